"""Clocks set back and forth over rotations, checkpoints, pruning and exports: the order of a log is its numbers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from audit.checkpoints import checkpoint, verify_note
from audit.export import export
from audit.log import AuditLog
from audit.logs import AuditLogs
from audit.offline.check import check
from audit.pruning import plan, prune
from audit.rotation import rotate
from audit.signers import current, public_keys
from audit.verify import verify
from tenancy.control import Tenants
from tests.audit.test_pruning import DAY, START, Clock, announce, empty, pair

JUMPS = (-400 * DAY, 0.0, 4_000 * DAY, -20_000 * DAY, 1.0)

both_storages = pytest.mark.both_storages


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def logs(tenants: Tenants, clock: Clock) -> Iterator[AuditLogs]:
    made = AuditLogs(tenants, deadline_s=10.0, clock=clock)
    yield made
    made.close()


@both_storages
def test_keys_stand_in_the_order_of_their_making_and_everything_verifies(
    log: AuditLog, clock: Clock, tmp_path: Path
) -> None:
    pair(log, "u_ana")
    made = [current(log).id]
    first = checkpoint(log, force=True)
    assert first is not None
    for jump in JUMPS:
        clock.now = START + jump
        pair(log, "u_ana")
        rotate(log)
        made.append(current(log).id)
        pair(log, "u_bo")
        assert checkpoint(log) is not None
    assert [key.id for key in public_keys(log)] == made
    assert [key.retired is None for key in public_keys(log)] == [False] * len(JUMPS) + [True]
    vkey = public_keys(log)[0].vkey
    kept = verify_note(first.note, vkey)
    assert verify(log, known=[kept]).finding is None
    export(log, tmp_path / "export")
    report = check(tmp_path / "export", [vkey], [first.note])
    assert (report.finding, report.agreed) == (None, [first.size])


@both_storages
def test_a_clock_that_was_ahead_for_a_while_keeps_its_own_records_and_no_others(log: AuditLog, clock: Clock) -> None:
    pair(log, "u_ana")
    clock.now = START + 4_000 * DAY
    ahead = pair(log, "u_ana")
    clock.now = START + DAY
    begun, ended = pair(log, "u_ana")
    clock.now = START + 200 * DAY
    young = pair(log, "u_ana")
    before = clock.now - 184 * DAY
    assert plan(log, before).records == 4
    found = prune(log, before, announce)
    assert (found.records, dict(found.kept)) == (4, {"its time is in the future": 2})
    assert empty(log) == [0, 1, begun, ended]
    assert verify(log).finding is None
    # Once that time has come, and is over, they go as well.
    clock.now = START + 4_300 * DAY
    pair(log, "u_ana")
    assert set(ahead) < set(empty(log)) | set(ahead)
    prune(log, clock.now - 184 * DAY, announce)
    assert {*ahead, *young} < set(empty(log))
    assert verify(log).finding is None


@both_storages
def test_a_clock_that_is_behind_prunes_nothing_that_is_young(log: AuditLog, clock: Clock) -> None:
    pair(log, "u_ana")
    # Behind for a while: what was written then stands behind what is young, and stays with it.
    clock.now = START - 4_000 * DAY
    pair(log, "u_bo")
    clock.now = START + DAY
    pair(log, "u_ana")
    assert prune(log, clock.now - 184 * DAY, announce).records == 0
    # Behind while it is pruned: everything seems to come from the future.
    clock.now = START - 400 * DAY
    assert prune(log, clock.now - 184 * DAY, announce).records == 2
    assert empty(log) == [2, 3]
    assert verify(log).finding is None
