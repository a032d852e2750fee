"""Exports of logs whose old records were pruned."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import delete, update

from audit import pruning
from audit.export import export
from audit.log import AuditLog
from audit.logs import AuditLogs
from audit.offline.check import check
from audit.offline.ranges import Ranges
from audit.pruning import prune
from audit.record import Actor, Detail, Draft, Request
from audit.tables import events, prunings
from tenancy.control import Tenants
from tenancy.errors import Conflict, Corrupt
from tests.audit.test_export import draft, fill, keys_of

START = 1_764_430_000.0


class Clock:
    now = START

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def logs(tenants: Tenants, clock: Clock) -> Iterator[AuditLogs]:
    made = AuditLogs(tenants, deadline_s=10.0, clock=clock)
    yield made
    made.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "export"


def announce(said: dict[str, Detail]) -> Draft:
    actor = Actor(kind="operator", ref="u_operator")
    return Draft(
        action=pruning.ACTION, phase="outcome", outcome="allowed", actor=actor, request=Request(id="p"), detail=said
    )


def pruned_log(log: AuditLog, clock: Clock) -> None:
    """Records 0-19 pruned but for an open intent at 10, which keeps its place; 20-29 and what says so are there."""
    for number in range(20):
        one = draft(number) if number not in {10, 11} else Draft(
            action="answer", phase="intent", actor=Actor(kind="user"), request=Request(id=f"open{number}")
        )  # fmt: skip
        log.submit(partial(lambda made: made, one))
    log.flush()
    clock.now += 1_000
    fill(log, 10)
    found = prune(log, START + 500, announce)
    assert found.ranges == [(0, 9), (12, 19)]


@pytest.mark.both_storages
def test_pruned_records_are_hashes_and_the_export_verifies(
    log: AuditLog, clock: Clock, folder: Path, storage: str
) -> None:
    pruned_log(log, clock)
    made = export(log, folder, part_records=6)
    assert made.pruned == 18
    found = check(folder, keys_of(log))
    assert found.finding is None
    assert (found.pruned, found.size, found.open) == (18, 32, 2)
    first = (folder / "records-000000000000-000000000005.ndjson").read_bytes()
    assert b"record" not in first
    assert json.loads(first.splitlines()[0])["pruned"] is True


def test_what_was_exported_before_stays_true_after_pruning(log: AuditLog, clock: Clock, folder: Path) -> None:
    fill(log, 20)
    export(log, folder)
    clock.now += 1_000
    fill(log, 2)
    prune(log, START + 500, announce)
    export(log, folder)
    found = check(folder, keys_of(log))
    assert found.finding is None
    assert (found.pruned, found.size) == (0, 23)


def test_an_export_of_before_the_pruning_cannot_be_made_after_it(log: AuditLog, clock: Clock, folder: Path) -> None:
    pruned_log(log, clock)
    with pytest.raises(Conflict, match="pruned"):
        export(log, folder, as_of=25)
    assert not list(folder.glob("[!.]*"))


def test_pruning_while_a_log_is_exported_keeps_no_export_from_being_made(
    log: AuditLog, clock: Clock, folder: Path
) -> None:
    fill(log, 30)
    clock.now += 1_000

    def begin(done: int, of: int) -> None:
        if done == 10:
            prune(log, START + 500, announce)

    made = export(log, folder, part_records=10, progress=begin)
    assert (made.pruned, made.size) == (20, 31)
    found = check(folder, keys_of(log))
    assert (found.finding, found.pruned) == (None, 20)


def test_bytes_that_went_without_a_record_of_it_are_not_exported(log: AuditLog, clock: Clock, folder: Path) -> None:
    pruned_log(log, clock)
    with log.database.writing() as connection:
        connection.execute(delete(prunings).where(prunings.c.first == 12))
    with pytest.raises((Conflict, Corrupt)):
        export(log, folder)
    with log.database.writing() as connection:
        connection.execute(update(events).where(events.c.seq == 22).values(payload=b""))
    with pytest.raises((Conflict, Corrupt)):
        export(log, folder)


def test_what_an_interrupted_export_wrote_before_the_pruning_is_written_anew(
    log: AuditLog, clock: Clock, folder: Path
) -> None:
    fill(log, 20)

    def stop(done: int, of: int) -> None:
        if done == 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export(log, folder, part_records=10, progress=stop)
    assert b"record" in next(folder.glob("records-*")).read_bytes()
    clock.now += 1_000
    fill(log, 2)
    prune(log, START + 500, announce)
    assert export(log, folder, part_records=10).reused == 0
    assert b"record" not in next(folder.glob("records-000000000000-*")).read_bytes()
    assert check(folder, keys_of(log)).finding is None


def test_a_forged_record_of_a_pruning_accounts_for_nothing(
    log: AuditLog, clock: Clock, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner's program lets bytes go, and signs no statement about which."""

    def forged(said: dict[str, Detail]) -> Draft:
        return announce(said | {"signature": "AAAA"})

    fill(log, 20)
    clock.now += 1_000
    fill(log, 2)
    prune(log, START + 500, forged)
    export(log, folder)
    found = check(folder, keys_of(log)).finding
    assert found is not None
    assert (found.kind, found.at, found.until) == ("missing", 0, 19)
    assert re.search("no record of the log says so", found.reason)


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=8), st.integers(0, 45))
def test_ranges_are_left_at_their_first_gap(given_ranges: list[tuple[int, int]], place: int) -> None:
    covered = {number for first, last in given_ranges for number in range(first, last + 1)}
    assert Ranges(given_ranges).past(place) == next(n for n in itertools.count(place) if n not in covered)
