"""One deadline from admission on: wherever a question waits, it is over then, and holds nothing."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Coroutine
from contextlib import AsyncExitStack
from typing import Any

import pytest

import admission.lease
import retrieval.cached
import retrieval.finding
import retrieval.steps
from admission.fair import Party
from admission.limits import NO_AMOUNTS
from admission.scopes import user_scope
from generation.generator import Delta as Piece
from generation.generator import Finish, ModelIdentity, Usage
from generation.prompt import Prompt
from tenancy.errors import LimitExceeded, Unavailable
from tenancy.identity import Principal
from tenancy.limits import Limits, TenantLimits
from tests.support.path import Path, open_path
from tests.support.people import Company

LONG_S = 30.0
LEFT_S = 0.1
ASKED = "How long is the notice period?"
LIMITS = TenantLimits(user=Limits(deadline_s=LONG_S))


class Held:
    """A generator that answers once it is let go, and notes until when it may take."""

    identity = ModelIdentity("held-1", "1", "words", None)
    salted = True

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.go = asyncio.Event()
        self.left_s: list[float] = []

    def count(self, text: str) -> int:
        return len(text.split())

    async def generate(
        self, prompt: Prompt, *, salt: str, request_id: str, max_tokens: int, deadline: float
    ) -> AsyncGenerator[Piece | Finish, None]:
        del prompt, salt, request_id, max_tokens
        self.left_s.append(deadline - time.monotonic())
        self.begun.set()
        await self.go.wait()
        yield Piece("The notice period is three months. [S1]")
        yield Finish("stop", Usage(10, 0, 5))

    async def aclose(self) -> None:
        return None


@pytest.fixture
def ana(acme: Company) -> Principal:
    return acme.principal("ana")


class Clock:
    """The clock of leases: `late` moves it to shortly before the deadline of a question that is on its way."""

    def __init__(self) -> None:
        self.offset = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.offset

    def late(self, asking: Any) -> None:
        self.offset = asking.lease.deadline - LEFT_S - time.monotonic()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(admission.lease, "time", made)
    return made


def late_at(monkeypatch: pytest.MonkeyPatch, clock: Clock, module: Any, step: str, *, after: bool = False) -> None:
    """Little time is left before (or after) a step of the path, of those that have a deadline."""
    original = getattr(module, step)

    async def late(asking: Any, *args: Any, **options: Any) -> Any:
        if asking.lease.deadline is None:
            return await original(asking, *args, **options)
        if not after:
            clock.late(asking)
        result = await original(asking, *args, **options)
        if after:
            clock.late(asking)
        return result

    monkeypatch.setattr(module, step, late)


def opened(acme: Company, limits: TenantLimits = LIMITS, **options: Any) -> Any:
    return open_path(acme.tenants, limits=limits, **options)


async def too_late(path: Path, who: Principal) -> None:
    """The question is over at its deadline, and holds nothing."""
    begun = time.monotonic()
    with pytest.raises(Unavailable) as late:
        await path.ask_async(who, ASKED)
    assert late.value.item == "deadline"
    assert time.monotonic() - begun < LONG_S
    assert (await path.path.admission.counters.use(user_scope(who.tenant_id, who.user_id))).flight == NO_AMOUNTS


def test_a_question_in_time_is_answered(acme: Company, ana: Principal) -> None:
    with opened(acme) as path:
        path.put(acme.handle, "notice.txt", "The notice period is three months.", "tenant")
        assert path.ask(ana, ASKED).finish == "stop"


def test_waiting_for_a_thread_that_embeds(
    acme: Company, ana: Principal, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    late_at(monkeypatch, clock, retrieval.finding, "embed")

    async def main(path: Path) -> None:
        desk = path.path.desks.shared
        async with AsyncExitStack() as stack:
            for _ in range(8):
                await stack.enter_async_context(desk.turn(Party("globex")))
            await too_late(path, ana)
            assert desk.waiting == 0

    with opened(acme) as path:
        asyncio.run(main(path))


@pytest.mark.parametrize(("step", "hangs"), [("passages", "search"), ("sources_of", "gather")])
def test_waiting_for_passages_and_for_sources(
    acme: Company, ana: Principal, clock: Clock, monkeypatch: pytest.MonkeyPatch, step: str, hangs: str
) -> None:
    module = retrieval.finding if step == "passages" else retrieval.steps
    late_at(monkeypatch, clock, module, step)
    go = threading.Event()

    def hang(*_: Any, **__: Any) -> None:
        go.wait(LONG_S)
        raise Unavailable("nobody waits any more", item="test")

    async def main(path: Path) -> None:
        try:
            await too_late(path, ana)
        finally:
            go.set()

    with opened(acme) as path:
        path.put(acme.handle, "notice.txt", "The notice period is three months.", "tenant")
        monkeypatch.setattr(module, hangs, hang)
        asyncio.run(main(path))


async def beside_another(
    path: Path, held: Held, who: Principal, limits: TenantLimits, test: Coroutine[Any, Any, None]
) -> None:
    """Run `test` while a question of `who` is with the generator; `limits` are those of whoever asks from then on."""
    leading = asyncio.create_task(path.ask_async(who, ASKED))
    await held.begun.wait()
    path.path.admission._limits_for = lambda _tenant: limits
    try:
        await test
    finally:
        held.go.set()
        assert (await leading).finish == "stop"


def test_waiting_for_the_same_question_of_another(
    acme: Company, ana: Principal, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    late_at(monkeypatch, clock, retrieval.cached, "exact_hit", after=True)

    async def main() -> None:
        held = Held()
        with open_path(acme.tenants, generator=held) as path:
            path.put(acme.handle, "notice.txt", "The notice period is three months.", "tenant")
            path.path.flights._patience = LONG_S
            await beside_another(path, held, acme.principal("bo"), LIMITS, too_late(path, ana))

    asyncio.run(main())


def test_the_generator_has_what_is_left(acme: Company, ana: Principal) -> None:
    async def main() -> None:
        held = Held()
        held.go.set()
        with opened(acme, generator=held) as path:
            path.put(acme.handle, "notice.txt", "The notice period is three months.", "tenant")
            assert path.path.settings.deadline_s > LONG_S
            await path.ask_async(ana, ASKED)
        # What admission, embedding and search took is gone already.
        assert 0 < held.left_s[0] < LONG_S

    asyncio.run(main())


def test_waiting_at_a_limit(acme: Company, ana: Principal) -> None:
    limits = TenantLimits(tenant=Limits(concurrent=1), user=Limits(deadline_s=LEFT_S), full="queue", wait_s=LONG_S)

    async def full(path: Path) -> None:
        with pytest.raises(LimitExceeded) as refused:
            await path.ask_async(ana, "Who signs?")
        assert (refused.value.scope, refused.value.bound) == ("tenant", "concurrent")

    async def main() -> None:
        held = Held()
        with open_path(acme.tenants, generator=held) as path:
            path.put(acme.handle, "notice.txt", "The notice period is three months.", "tenant")
            await beside_another(path, held, acme.principal("bo"), limits, full(path))
            assert (await path.path.admission.use(ana.tenant_id)).flight == NO_AMOUNTS

    asyncio.run(main())
