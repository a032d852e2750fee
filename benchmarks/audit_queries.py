"""How long queries and reports of one audit log take when it holds a million records, or ten.

    python -m benchmarks.audit_queries [--records 1000000] [--cache FOLDER] [--rounds 200]

The log is made once, with the product's own append in large transactions, and kept in FOLDER (by default below
~/.cache): delete it there to make it again. Its records are requests of a thousand users over a year: four of five are
answers, three documents each, drawn so that few documents are asked for often; a third of the answers are cache hits.
The texts of a user are one sealed text, repeated. Each query is timed with values drawn anew, in turn with the others.
The baseline is the same newest-first page by a plain SELECT of the payloads, without a filter. Last line: JSON.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

from sqlalchemy import select

from audit.filters import Filters
from audit.log import AuditLog
from audit.logs import AuditLogs
from audit.query import query_log
from audit.record import (
    Actor,
    CacheUse,
    Content,
    Draft,
    Freshness,
    GenerationUse,
    Policy,
    Request,
    Resource,
    Sealed,
)
from audit.reports.document import document_report
from audit.reports.frame import Asked
from audit.reports.subject import subject_report
from audit.tables import events
from benchmarks.serving import milliseconds, timed
from tenancy.control import Tenants
from tenancy.identity import Authenticator
from tenancy.keys import MasterKey

USERS: Final = 1_000
DOCUMENTS: Final = 20_000
BEGUN: Final = 1_767_225_600.0
"""2026-01-01, UTC epoch seconds."""
YEAR_S: Final = 365 * 86_400
GROUP: Final = 20_000
"""Records in one transaction while the log is made."""
PAGE: Final = 50
SEED: Final = 7

MASTER: Final = MasterKey(bytes(range(32)))


class Past:
    """A clock that goes through a year while `records` are written."""

    def __init__(self, records: int) -> None:
        self._step = YEAR_S / records
        self._ticks = 0

    def __call__(self) -> float:
        self._ticks += 1
        return BEGUN + self._ticks * self._step


def often(dice: random.Random, most: int) -> int:
    """A number below `most`, small ones often: about one in ten is among the first hundredth of a per cent."""
    return min(most - 1, int(most ** dice.random()) - 1)


class Requests:
    """Drafts of requests, an intent and its outcome next to each other."""

    def __init__(self, log: AuditLog) -> None:
        self._dice = random.Random(SEED)
        self.users = [log.subjects.ref(f"user-{number}") for number in range(USERS)]
        self._texts: list[dict[str, Sealed]] = [
            log.subjects.seal(user, {"question": "How many days of leave do I have left this year?", "user": user})
            for user in self.users
        ]

    def drafts(self, first: int) -> Iterator[Draft]:
        """From the record `first` on, which is an intent's place."""
        seq = first
        while True:
            yield from self._request(seq)
            seq += 2

    def _request(self, seq: int) -> Iterator[Draft]:
        dice = self._dice
        number, drawn = often(dice, USERS), dice.random()
        action = "answer" if drawn < 0.8 else "retrieve" if drawn < 0.97 else "acl.set"
        hit = action == "answer" and dice.random() < 1 / 3
        resources = tuple(
            Resource(
                document=f"hr/policy-{often(dice, DOCUMENTS)}.md",
                version=f"sha256:{'0' * 64}",
                chunk=f"c{dice.randrange(40)}",
                stage="replayed" if hit else dice.choice(("retrieved", "in_prompt", "cited")),
            )
            for _ in range(3)
        )
        common: dict[str, Any] = {
            "action": action,
            "actor": Actor(kind="user", ref=self.users[number], credential=f"k{number}", method="key"),
            "request": Request(id=f"{dice.getrandbits(128):032x}", root=f"conversation-{seq // 16}"),
            "policy": Policy(domain=f"pd_{number % 40:020x}", acl_epoch=seq // 5_000, corpus_epoch=seq // 2_000),
            "resources": resources,
            "cache": None if action != "answer" else _cache(seq, hit),
        }
        refused = dice.random() < 0.02
        yield Draft(phase="intent", content=Content(**self._texts[number]), **common)
        yield Draft(
            phase="outcome",
            outcome="refused" if refused else "allowed",
            reason="forbidden" if refused else None,
            intent=seq,
            generation=GenerationUse(model="m", revision="r1", pool="standard", input=900, output=120, finish="stop"),
            **common,
        )


def _cache(seq: int, hit: bool) -> CacheUse:
    if not hit:
        return CacheUse(status="miss", reason="absent", namespace="ns_0")
    return CacheUse(
        status="hit",
        kind="exact",
        entry=f"e_{seq % 5_000:020x}",
        origin_seq=0,
        origin_actor_same=False,
        namespace="ns_0",
        freshness=Freshness(versions_checked=3, readable_checked=3),
        age_s=60,
    )


def fill(log: AuditLog, records: int) -> float:
    """Bring `log` to `records` records; returns how many were added in a second, 0 where nothing was missing."""
    first, began = log.head().size, time.perf_counter()
    drafts = Requests(log).drafts(first)
    done = first
    while done < records:
        group = list(islice(drafts, min(GROUP, records - done)))
        with log.database.writing() as connection:
            log.append_in(connection, group)
        done += len(group)
        print(f"\r{done:,} of {records:,} records", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return (done - first) / (time.perf_counter() - began) if done > first else 0.0


def works(log: AuditLog, records: int) -> dict[str, Callable[[], object]]:
    """What is timed, each with values of its own at every call."""
    dice = random.Random(SEED + 1)
    users = [log.subjects.ref(f"user-{number}") for number in range(USERS)]
    span = YEAR_S * min(1.0, log.head().size / records)

    def asked(**filters: Any) -> Callable[[], object]:
        return lambda: query_log(log, Filters(**{name: value() for name, value in filters.items()}), limit=PAGE)

    def window() -> object:
        since = BEGUN + dice.random() * span * 0.99
        return query_log(log, Filters(since=since, until=since + 3_600, outcome="refused"), limit=PAGE)

    def user() -> str:
        return users[often(dice, USERS)]

    def document() -> str:
        return f"hr/policy-{often(dice, DOCUMENTS)}.md"

    def plain() -> object:
        with log.database.reading() as connection:
            return connection.execute(select(events.c.payload).order_by(events.c.seq.desc()).limit(PAGE)).all()

    return {
        "plain": plain,
        "newest": asked(),
        "actor": asked(actor=user),
        "document": asked(document=document),
        "refused": asked(outcome=lambda: "refused"),
        "actor and refused": asked(actor=user, outcome=lambda: "refused"),
        "cache hits": asked(cache_status=lambda: "hit"),
        "cache entry": asked(cache_entry=lambda: f"e_{dice.randrange(0, 5_000, 2):020x}"),
        "conversation": asked(root=lambda: f"conversation-{dice.randrange(records // 16)}"),
        "an hour's refusals": window,
        "as of half": asked(as_of=lambda: records // 2, actor=user),
        "report: document": lambda: document_report(log, document(), Asked()),
        "report: rare document": lambda: document_report(log, f"hr/policy-{dice.randrange(DOCUMENTS)}.md", Asked()),
        "report: subject": lambda: subject_report(log, user(), Asked()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--cache", type=Path, default=Path("~/.cache/strongroom-bench"))
    parser.add_argument("--rounds", type=int, default=200)
    given = parser.parse_args()
    folder = given.cache.expanduser() / f"audit-{given.records}"
    folder.mkdir(parents=True, exist_ok=True)
    tenants = Tenants(folder, MASTER)
    if not any(record.name == "bench" for record in tenants.listed()):
        tenants.create("bench")
    logs = AuditLogs(tenants, clock=Past(given.records))
    log = logs.of(Authenticator(tenants).operator("bench"))
    filled = fill(log, given.records)
    log.sign()
    timed_works = works(log, given.records)
    taken: dict[str, list[float]] = {name: [] for name in timed_works}
    for _ in range(given.rounds):
        for name, work in timed_works.items():
            taken[name].append(timed(work))
    found = {name: milliseconds(seconds) for name, seconds in taken.items()}
    plain = found["plain"]["p50_ms"]
    print(f"{'query (ms)':24} {'p50':>9} {'p99':>9} {'ratio of p50 to plain':>22}")
    for name, figures in found.items():
        print(f"{name:24} {figures['p50_ms']:9.2f} {figures['p99_ms']:9.2f} {figures['p50_ms'] / plain:22.1f}")
    size = sum(file.stat().st_size for file in folder.rglob("audit.sqlite*"))
    logs.close()
    tenants.close()
    print(
        json.dumps(
            {
                "records": given.records,
                "filled_per_s": round(filled, 1),
                "bytes_per_record": round(size / given.records, 1),
                "ms": found,
                "p50_to_plain": {name: round(figures["p50_ms"] / plain, 2) for name, figures in found.items()},
            }
        )
    )


if __name__ == "__main__":
    main()
