"""No false alarm: whatever is honestly done to a log between exports, they verify, with every kept checkpoint."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest

from audit.checkpoints import checkpoint
from audit.export import export
from audit.log import AuditLog
from audit.logs import AuditLogs
from audit.offline.check import check
from audit.offline.manifest import Manifest
from audit.pruning import prune
from audit.rotation import rotate
from audit.verify import verify
from tenancy.control import Tenants
from tenancy.errors import Conflict
from tests.audit.test_export import fill, keys_of
from tests.audit.test_export_pruned import Clock, announce

DAY = 86_400.0


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def logs(tenants: Tenants, clock: Clock) -> Iterator[AuditLogs]:
    made = AuditLogs(tenants, deadline_s=30.0, clock=clock)
    yield made
    made.close()


class Interrupted(Exception):
    pass


def cut_short(chance: random.Random, log: AuditLog, folder: Path) -> None:
    """An export that ends after some parts, as a killed one."""
    left = chance.randint(1, 4)

    def stop(done: int, of: int) -> None:
        nonlocal left
        left -= 1
        if not left:
            raise Interrupted

    try:
        export(log, folder, part_records=chance.choice([1, 7, 300]), progress=stop)
    except Interrupted:
        (folder / ".records-000000000003.partial").write_bytes(b"half")


def exported(folder: Path) -> int:
    """Of so many records the folder has an export."""
    manifests = sorted(folder.glob("manifest-*"))
    return Manifest.read(manifests[-1].read_bytes()).size if manifests else 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_an_honest_log_is_never_accused(log: AuditLog, clock: Clock, tmp_path: Path, seed: int) -> None:
    chance, folder = random.Random(seed), tmp_path / "export"
    first: list[str] = []
    notes: list[str] = []
    for _ in range(25):
        clock.now += chance.random() * 30 * DAY
        what = chance.choice(["write", "write", "write", "keep", "rotate", "prune", "cut short", "export", "as of"])
        if what == "write":
            fill(log, 2 * chance.choice([1, 2, 30, 160]))
        elif what == "keep":
            kept = checkpoint(log, force=True)
            notes += [] if kept is None else [kept.note]
        elif what == "rotate":
            rotate(log)
        elif what == "prune":
            prune(log, clock.now - chance.choice([1, 60, 184]) * DAY, announce)
        elif what == "cut short":
            cut_short(chance, log, folder)
        else:
            as_of = chance.randint(exported(folder), log.head().size) if what == "as of" else None
            with suppress(Conflict) if as_of is not None else nullcontext():
                export(log, folder, as_of=as_of, part_records=chance.choice([1, 100, 256, 1_000]))
        first = first or keys_of(log)[:1]
    export(log, folder)
    found = check(folder, first, notes)
    assert found.finding is None
    assert found.size == log.head().size
    assert len(found.agreed) == len([note for note in notes if note.split("\n")[1] != "0"])
    assert check(folder, keys_of(log)[-1:], notes).finding is None


def test_a_clock_that_was_set_back_between_two_keys_accuses_nobody(log: AuditLog, clock: Clock, tmp_path: Path) -> None:
    fill(log, 3)
    checkpoint(log)
    (first,) = keys_of(log)
    for step in (DAY, -3 * DAY, DAY):
        clock.now += step
        rotate(log)
    export(log, tmp_path / "export")
    assert check(tmp_path / "export", [first]).finding is None
    assert verify(log).finding is None
