"""The budget of a tree of roots under concurrency, and across the loss of all counters in the middle of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

from admission.counters import Ask, Granted, Refused
from admission.limits import Amounts
from admission.local import LocalCounters
from admission.roots import Root, Terms, minted, signed
from admission.scopes import root_scope
from retrieval.roots import recorded, root_key
from tenancy.errors import LimitExceeded
from tenancy.identity import Principal
from tests.support.path import Path, open_path
from tests.support.people import Company

ASKED = "How long is the notice period?"


@pytest.fixture
def path(acme: Company) -> Iterator[Path]:
    with open_path(acme.tenants) as opened:
        opened.put(acme.handle, "notice.md", "The notice period is three months.", "tenant")
        yield opened


class Watched(LocalCounters):
    """Notes how many requests of one root were ever in flight."""

    most = 0
    root = ""

    async def take(self, ask: Ask) -> Granted | Refused:
        found = await super().take(ask)
        use = await self.use(root_scope(ask.tenant, self.root))
        self.most = max(self.most, use.flight.requests)
        return found


def family(calls: int, parallel: int) -> tuple[Root, list[Root]]:
    root = minted(Terms(calls=calls, parallel=parallel, until=time.time() + 600))
    children = [minted(Terms(calls=calls, until=time.time() + 600), root) for _ in range(3)]
    return root, [root, *children, minted(Terms(until=time.time() + 600), children[0])]


async def tried(path: Path, ana: Principal, text: str) -> bool:
    try:
        await path.ask_async(ana, ASKED, cache="bypass", signed_root=text)
    except LimitExceeded as refused:
        if refused.scope != "root":
            raise
        return False
    return True


def test_a_tree_never_has_more_in_flight_nor_in_all_than_its_root(path: Path, acme: Company) -> None:
    ana = acme.principal("ana")
    root, nodes = family(calls=10, parallel=3)
    texts = [signed(node, root_key(acme.handle), ana.tenant_id, ana.user_id) for node in nodes]
    counters = Watched()
    counters.root = root.id
    path.path.admission.counters = counters

    async def main() -> int:
        done = 0
        while round_of := sum(await asyncio.gather(*(tried(path, ana, text) for text in texts * 3))):
            done += round_of
        return done

    assert asyncio.run(main()) == 10
    assert counters.most == 3
    use = asyncio.run(counters.use(root_scope(ana.tenant_id, root.id)))
    assert (use.life.requests, use.flight, use.held) == (10, Amounts(), Amounts())


def test_counters_that_lose_everything_again_and_again_give_nothing_back(path: Path, acme: Company) -> None:
    ana = acme.principal("ana")
    root, nodes = family(calls=7, parallel=50)
    texts = [signed(node, root_key(acme.handle), ana.tenant_id, ana.user_id) for node in nodes]

    async def main() -> int:
        done = 0
        for _ in range(5):
            # Nobody is in the middle of a call: what is in flight when a process dies is on record by its intent.
            path.path.admission.counters = LocalCounters()
            done += sum(await asyncio.gather(*(tried(path, ana, text) for text in texts[:2])))
        return done

    assert asyncio.run(main()) == 7
    scope = root_scope(ana.tenant_id, root.id)
    use = asyncio.run(path.path.admission.counters.use(scope))
    log = path.logs.of(ana)
    on_record = recorded(log, root.id, [root.id, nodes[1].id, nodes[4].id])
    assert on_record[root.id] == use.life
    assert on_record[root.id].requests == 7
    assert on_record[root.id].tokens > on_record[nodes[1].id].tokens > 0
    assert on_record[nodes[4].id] == Amounts()
