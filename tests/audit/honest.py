"""Honest runs: many writers in two processes fill a log that nobody touches, and every verification has to say so.

`python -m tests.audit.honest DATA_DIR [URL]` is the second process: it reads names of tenants, one a line, fills the
log of each and says when it is done.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from sqlalchemy import select

from audit.checkpoints import Checkpoint, checkpoint, verify_note
from audit.findings import Finding
from audit.log import AuditLog
from audit.logs import AuditLogs
from audit.proofs import consistency, inclusion, leaf, verify_consistency, verify_inclusion
from audit.record import Actor, Draft, Request
from audit.rotation import rotate
from audit.signers import public_keys
from audit.tables import checkpoints
from audit.verify import verify
from tenancy.control import Tenants
from tenancy.errors import Unavailable
from tenancy.identity import Authenticator
from tests.audit.load import MASTER, say
from tests.support.postgres import postgres_storage

T = TypeVar("T")

WRITERS = 15
"""Of each of the two processes."""
PAIRS = 3
"""Intents with their outcomes, of each writer."""
TRIES = 10
RECORDS = 2 * WRITERS * PAIRS * 2
"""Of a whole run, beside changes of the key."""


@dataclass(slots=True)
class Tally:
    """What the runs came to; an alarm of any kind would be a false one."""

    runs: int = 0
    records: int = 0
    verifications: int = 0
    checkpoints: int = 0
    proofs: int = 0
    alarms: list[str] = field(default_factory=list)

    def heard(self, run: str, finding: Finding | None) -> None:
        self.verifications += 1
        if finding is not None:
            self.alarms.append(f"{run}: {finding.kind} at {finding.seq}: {finding.reason}")

    def __str__(self) -> str:
        return (
            f"{self.runs} honest runs, {2 * WRITERS} writers in 2 processes: {self.records} records, "
            f"{self.verifications} verifications, {self.checkpoints} checkpoints, {self.proofs} proofs, "
            f"{len(self.alarms)} false alarms"
        )


def write(log: AuditLog, label: str, meanwhile: Callable[[], None]) -> None:
    """Every writer appends its pairs; `meanwhile` runs beside them."""

    def pairs(writer: int) -> None:
        for number in range(PAIRS):
            seq = log.append(lambda name=f"{label}-{writer}-{number}": _draft(name))
            log.append(lambda name=f"{label}-{writer}-{number}", seq=seq: _draft(name, seq))
            if writer == number:
                patiently(lambda: checkpoint(log))

    with ThreadPoolExecutor(WRITERS + 1) as pool:
        for done in [pool.submit(meanwhile), *(pool.submit(pairs, writer) for writer in range(WRITERS))]:
            done.result()


def run(log: AuditLog, name: str, tally: Tally, others: Callable[[], str]) -> None:
    """One run: fill the log while `others`, which waits for them, fill it too, and verify it all the while."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.is_set():
            tally.heard(name, patiently(lambda: verify(log)).finding)

    with ThreadPoolExecutor(1) as watcher:
        watching = watcher.submit(watch)
        try:
            write(log, "here", lambda: _rotate(log, name))
            assert others() == "done\n"
        finally:
            ended.set()
        watching.result()
    tally.heard(name, verify(log, recover=True).finding)
    _check_proofs(log, tally)
    tally.runs += 1
    tally.records += log.head().size


def _check_proofs(log: AuditLog, tally: Tally) -> None:
    """The checkpoints that lie in the log are signed, and each is shown to be in the next, and a record in each."""
    checkpoint(log)
    keys = [key.vkey for key in public_keys(log)]
    with log.database.reading() as connection:
        notes = connection.execute(select(checkpoints.c.note).order_by(checkpoints.c.size)).scalars().all()
    signed: list[Checkpoint] = [verify_note(note, *keys) for note in notes]
    for old, new in pairwise(signed):
        path = consistency(log, old.size, new.size)
        assert verify_consistency(old.size, new.size, old.root, new.root, path)
        seq = old.size
        assert verify_inclusion(leaf(log, seq), seq, new.size, inclusion(log, seq, new.size), new.root)
    tally.checkpoints += len(signed)
    tally.proofs += 2 * (len(signed) - 1)


def _rotate(log: AuditLog, name: str) -> None:
    """In every fifth run the key changes meanwhile."""
    if name.endswith(("0", "5")):
        patiently(lambda: rotate(log))


def patiently(work: Callable[[], T]) -> T:
    """Do `work`, again where a busy server had no connection for it in time: that is no finding about the log."""
    for _ in range(TRIES):
        with suppress(Unavailable):
            return work()
    return work()


def _draft(name: str, intent: int | None = None) -> Draft:
    return Draft(
        action="answer",
        phase="intent" if intent is None else "outcome",
        outcome=None if intent is None else "allowed",
        intent=intent,
        actor=Actor(kind="user", ref="u_1"),
        request=Request(id=name),
    )


def main() -> None:
    data_dir, url = Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else ""
    tenants = Tenants(data_dir, MASTER, storage=postgres_storage(url, data_dir) if url else None)
    authenticator, logs = Authenticator(tenants), AuditLogs(tenants, deadline_s=60.0)
    say("ready")
    for line in sys.stdin:
        log = logs.of(authenticator.operator(line.strip()))
        write(log, "there", lambda: None)
        logs.forget(log.log_id)
        say("done")
    logs.close()
    tenants.close()


if __name__ == "__main__":
    main()
