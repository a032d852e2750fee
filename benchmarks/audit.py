"""Audit records per second, every one durable before it counts, beside a plain SQLite insert with an fsync each and
beside another Merkle ledger (pymerkle's SqliteTree); what the audit adds to a question; verification and export.

    python -m benchmarks.audit [RECORDS]

All run in this process on the same disk. A question is a cache hit, the shortest answer that there is, with the audit
and, in turn with it, with a log that takes every record and writes none. Last line: JSON. Queries of a large log are
`benchmarks.audit_queries`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager
from pathlib import Path

from pymerkle import SqliteTree

from audit.export import export
from audit.log import AuditLog
from audit.logs import AuditLogs
from audit.record import Policy, Resource
from audit.trail import AuditTrail
from audit.verify import verify
from benchmarks.path import Bench
from benchmarks.serving import milliseconds, timed
from tenancy.control import Tenants
from tenancy.identity import Authenticator, Principal
from tenancy.keys import MasterKey

DOCUMENTS = [
    Resource(document=f"policy-{n}", version="sha256:" + "0" * 64, chunk="c1", stage="cited") for n in range(8)
]


def fsync_ms(directory: Path, times: int = 50) -> float:
    """Median milliseconds of writing 4 KiB and fsync."""
    taken = []
    with (directory / "fsync").open("wb") as file:
        for _ in range(times):
            began = time.perf_counter()
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
            taken.append(time.perf_counter() - began)
    return statistics.median(taken) * 1000


def plain_rows(directory: Path, records: int) -> float:
    """Rows per second of a plain table in WAL mode with one committed, fsynced insert per row."""
    table = sqlite3.connect(directory / "plain.sqlite", isolation_level=None)
    table.execute("PRAGMA journal_mode = WAL")
    table.execute("PRAGMA synchronous = FULL")
    table.execute("CREATE TABLE events (seq INTEGER PRIMARY KEY, payload BLOB)")
    payload = bytes(1_500)
    rate = measured(
        lambda: [table.execute("INSERT INTO events (payload) VALUES (?)", (payload,)) for _ in range(records)]
    )
    table.close()
    return records * rate


def other_ledger(directory: Path, records: int) -> float:
    """Records per second of pymerkle's tree in an SQLite file, each committed by itself; no root in between."""
    payload = bytes(1_500)
    with SqliteTree(str(directory / "other.sqlite")) as tree:
        return records * measured(lambda: [tree.append(payload) for _ in range(records)])


@contextmanager
def writing_nothing(log: AuditLog) -> Iterator[None]:
    """Within it every record counts as written at once, under the number 0."""

    def submit(*_: object, **__: object) -> Future[int]:
        done: Future[int] = Future()
        done.set_result(0)
        return done

    log.submit = submit  # type: ignore[method-assign]
    try:
        yield
    finally:
        del log.submit


def questions(folder: Path, rounds: int) -> dict[str, dict[str, float]]:
    """Milliseconds of a cache hit with the audit and without, in turn."""
    with closing(Bench(folder, ["Every employee has thirty days of leave a year."])) as bench:
        log = bench.services.control.logs.of(bench.principal)
        text = "How many days of leave does an employee have?"
        bench.answer(text)
        bench.flush()
        taken: dict[str, list[float]] = {"with": [], "without": []}
        for _ in range(rounds):
            taken["with"].append(timed(lambda: bench.hit(text)))
            bench.flush()
            with writing_nothing(log):
                taken["without"].append(timed(lambda: bench.hit(text)))
        return {name: milliseconds(seconds) for name, seconds in taken.items()}


def requests(trail: AuditTrail, principal: Principal, log: AuditLog, clients: int, records: int) -> float:
    """Records per second of whole requests (intent, then outcome with answer) from so many clients at once."""

    async def client(share: int) -> None:
        for number in range(share):
            async with trail.open(principal, action="answer", request_id=f"r{number}") as one:
                one.note(question="How many days of leave?", policy=Policy(domain="pd_0"), resources=DOCUMENTS)
                await one.intent()
                one.note(answer="Thirty days of leave a year.")

    async def run() -> None:
        await asyncio.gather(*(client(records // 2 // clients) for _ in range(clients)))
        log.flush()

    return records // 2 // clients * clients * 2 * measured(lambda: asyncio.run(run()))


def measured(run: Callable[[], object]) -> float:
    """Runs per second."""
    began = time.perf_counter()
    run()
    return 1 / (time.perf_counter() - began)


def main() -> None:
    records = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory(dir=os.environ.get("STRONGROOM_BENCH_DIR")) as folder:
        directory = Path(folder)
        tenants = Tenants(directory, MasterKey(bytes(32)))
        tenants.create("bench")
        principal = Authenticator(tenants).operator("bench")
        logs = AuditLogs(tenants)
        trail, log = AuditTrail(logs), logs.of(principal)
        requests(trail, principal, log, 1, 20)
        figures["fsync_ms"] = fsync_ms(directory)
        figures["plain_rows_per_s"] = plain_rows(directory, records)
        for clients in (1, 16, 64):
            figures[f"records_per_s_{clients}_clients"] = requests(trail, principal, log, clients, records)
        size = log.head().size
        figures["verified_per_s"] = size * measured(lambda: verify(log))
        assert verify(log).ok
        figures["exported_per_s"] = size * measured(lambda: export(log, directory / "export"))
        logs.close()
        tenants.close()
        figures["other_ledger_per_s"] = other_ledger(directory, records)
        asked = questions(directory / "questions", max(20, records // 10))
        for name, taken in asked.items():
            figures |= {f"hit_{name}_audit_{quantile}": value for quantile, value in taken.items()}
        figures["ratio_hit_p50_audit_to_none"] = asked["with"]["p50_ms"] / asked["without"]["p50_ms"]
        figures["ratio_hit_p99_audit_to_none"] = asked["with"]["p99_ms"] / asked["without"]["p99_ms"]
    figures["ratio_16_clients_to_plain"] = figures["records_per_s_16_clients"] / figures["plain_rows_per_s"]
    figures["ratio_16_clients_to_other_ledger"] = figures["records_per_s_16_clients"] / figures["other_ledger_per_s"]
    for name, figure in figures.items():
        print(f"{name:32} {figure:12.2f}")
    print(json.dumps({name: round(figure, 3) for name, figure in figures.items()}))


if __name__ == "__main__":
    main()
