"""Pruning: bytes go, the tree stays, and what is open, held or needed is not touched."""

from __future__ import annotations

import base64
import itertools
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import func, select

from audit import pruning, signers
from audit.holds import Hold, Holds
from audit.log import AuditLog
from audit.logs import AuditLogs
from audit.pruning import Pruned, plan, prune, pruned_root, statement
from audit.record import Actor, Content, Detail, Draft, Request, Resource, decode
from audit.retention import PLACED, hold_subject, hold_window
from audit.tables import event_documents, events, open_intents, prunings
from audit.verify import verify
from tenancy.control import Tenants
from tests.audit.conftest import payloads

both_storages = pytest.mark.both_storages

_numbers = itertools.count()
DAY = 86_400.0
START = 1_764_430_000.0


@dataclass(slots=True)
class Clock:
    now: float = START

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


def write(log: AuditLog, actor: str, *, phase: str = "outcome", intent: int | None = None, text: str = "") -> int:
    def build() -> Draft:
        return Draft(
            action="answer",
            phase=phase,  # type: ignore[arg-type]
            outcome="allowed" if phase == "outcome" else None,
            intent=intent,
            actor=Actor(kind="user", ref=actor),
            request=Request(id="r", root="c"),
            resources=(Resource(document="d", stage="cited"),),
            content=Content(**log.subjects.seal(actor, {"question": text})) if text else None,
        )

    return log.append(build)


def pair(log: AuditLog, actor: str, text: str = "") -> tuple[int, int]:
    begun = write(log, actor, phase="intent", text=text)
    return begun, write(log, actor, intent=begun)


def announce(said: dict[str, Detail]) -> Draft:
    actor = Actor(kind="operator", ref="u_operator")
    return Draft(
        action=pruning.ACTION, phase="outcome", outcome="allowed", actor=actor, request=Request(id="p"), detail=said
    )


def placed(said: dict[str, Detail]) -> Draft:
    actor = Actor(kind="operator", ref="u_operator")
    return Draft(action=PLACED, phase="outcome", outcome="allowed", actor=actor, request=Request(id="h"), detail=said)


def empty(log: AuditLog) -> list[int]:
    with log.database.reading() as connection:
        return list(
            connection.execute(
                select(events.c.seq).where(func.length(events.c.payload) == 0).order_by(events.c.seq)
            ).scalars()
        )


def rows(log: AuditLog, table: Any) -> list[Any]:
    with log.database.reading() as connection:
        return list(connection.execute(select(table).order_by(*table.primary_key.columns)).all())


@both_storages
def test_old_records_lose_their_bytes_and_the_log_verifies(log: AuditLog, clock: Clock) -> None:
    for number in range(3):
        pair(log, "u_ana", f"question {number}")
    clock.now += 10 * DAY
    pair(log, "u_bo", "young")
    before = log.head()
    leaves = [row.leaf for row in rows(log, events)]
    found = prune(log, START + DAY, announce)
    assert (found.records, found.ranges, dict(found.kept)) == (6, [(0, 5)], {})
    assert empty(log) == [0, 1, 2, 3, 4, 5]
    assert [row.leaf for row in rows(log, events)][:8] == leaves
    for row in rows(log, events)[:6]:
        rest = {name: value for name, value in row._mapping.items() if name not in ("seq", "leaf", "prev", "ts")}
        assert set(rest.values()) <= {None, "", b""}
    assert {row.seq for row in rows(log, event_documents)} == {6, 7}
    assert log.head().size == before.size + 1
    assert verify(log).finding is None


@both_storages
def test_what_was_pruned_is_signed_for_and_its_root_can_be_computed_from_what_is_left(
    log: AuditLog, clock: Clock
) -> None:
    for _ in range(5):
        pair(log, "u_ana", "x")
    clock.now += 10 * DAY
    prune(log, START + DAY, announce)
    said = decode(payloads(log)[-1])
    assert (said.action, said.detail["first"], said.detail["last"]) == ("audit.prune", 0, 9)
    (row,) = rows(log, prunings)
    assert (row.first, row.last, row.seq) == (0, 9, said.seq)
    with log.database.reading() as connection:
        root = pruned_root(connection, 0, 9)
    assert said.detail["root"] == root.hex()
    (key,) = [key for key in signers.public_keys(log) if key.id == said.detail["key"]]
    public = Ed25519PublicKey.from_public_bytes(key.public)
    public.verify(base64.b64decode(str(said.detail["signature"])), statement(log.log_id, 0, 9, root))
    # A second run finds nothing more to do, and what says so is never pruned itself.
    clock.now += 400 * DAY
    found = prune(log, clock.now, announce)
    assert (found.records, dict(found.kept)) == (0, {"needed for verification": 1})


@both_storages
def test_open_intents_and_held_records_stay_whole(log: AuditLog, clock: Clock) -> None:
    pair(log, "u_ana", "a")
    held = pair(log, "u_held", "kept")
    opened = write(log, "u_bo", phase="intent", text="open")
    pair(log, "u_ana", "b")
    clock.now += 5 * DAY
    windowed = pair(log, "u_ana", "in the window")
    clock.now += 5 * DAY
    last = pair(log, "u_ana", "c")
    clock.now += 10 * DAY
    hold_subject(log, "u_held", placed, reason="case 17", by="operator")
    window = hold_window(log, START + 4 * DAY, START + 6 * DAY, placed, reason="case 18", by="operator")
    expected = plan(log, clock.now)
    found = prune(log, clock.now, announce)
    assert found == expected
    assert set(empty(log)) == {0, 1, 5, 6, *last}
    assert dict(found.kept) == {"legal hold": 4, "open intent": 1}
    texts = [decode(payloads(log)[seq]).content for seq in (held[0], opened, windowed[0])]
    assert all(text is not None and text.question is not None for text in texts)
    assert [row.seq for row in rows(log, open_intents)] == [opened]
    assert verify(log).finding is None
    log.subjects.holds.release(window.id, by="operator")
    assert prune(log, clock.now - DAY, announce).ranges == [windowed]
    assert verify(log).finding is None


@both_storages
def test_an_intent_and_its_outcome_go_together_or_not_at_all(log: AuditLog, clock: Clock) -> None:
    first = write(log, "u_ana", phase="intent")
    second = write(log, "u_ana", phase="intent")
    clock.now += 10 * DAY
    write(log, "u_ana", intent=first)
    assert prune(log, START + DAY, announce).records == 0
    clock.now += 10 * DAY
    write(log, "u_ana", intent=second)
    found = prune(log, START + 11 * DAY, announce)
    assert (found.ranges, found.kept["its outcome is younger"]) == ([(first, first), (2, 2)], 1)
    assert verify(log).finding is None


@both_storages
def test_pairs_that_a_step_would_part_go_in_one_transaction(
    log: AuditLog, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = [write(log, "u_ana", phase="intent") for _ in range(4)]
    for intent in reversed(begun):
        write(log, "u_ana", intent=intent)
    clock.now += 10 * DAY
    monkeypatch.setattr(pruning, "STEP", 3)

    class Stop(Exception):
        pass

    def second(said: dict[str, Detail]) -> Draft:
        if said["first"] == 3:
            raise Stop
        return announce(said)

    with pytest.raises(Stop):
        prune(log, clock.now, second)
    assert empty(log) == [0, 1, 2, 5, 6, 7]
    assert verify(log).finding is None
    assert prune(log, clock.now, announce).ranges == [(3, 4)]
    assert verify(log).finding is None


def test_a_failure_leaves_neither_half_a_range_nor_its_announcement(log: AuditLog, clock: Clock) -> None:
    pair(log, "u_ana", "x")
    clock.now += 10 * DAY
    before = payloads(log)

    def broken(said: dict[str, Detail]) -> Draft:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        prune(log, clock.now, broken)
    assert payloads(log) == before
    assert rows(log, prunings) == []


def test_planning_changes_nothing(log: AuditLog, clock: Clock) -> None:
    pair(log, "u_ana", "x")
    clock.now += 10 * DAY
    before = payloads(log)
    assert plan(log, clock.now) == Pruned(2, [(0, 1)])
    assert payloads(log) == before
    assert plan(log, START) == Pruned()


@given(data=st.data())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_was_written_the_log_verifies_after_any_pruning(
    data: st.DataObject, logs: AuditLogs, tenants: Tenants, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against a slow oracle: what must stay by the rules stays, what need not goes."""
    monkeypatch.setattr(pruning, "STEP", data.draw(st.integers(1, 7), label="step"))
    clock.now = START
    log = logs.of_id(tenants.create(f"t{next(_numbers)}").id)
    opened: list[tuple[int, str]] = []
    partner: dict[int, int] = {}
    actors: list[str] = []
    times: list[float] = []
    for _ in range(data.draw(st.integers(0, 20), label="records")):
        clock.now += data.draw(st.sampled_from([0.0, DAY]))
        times.append(clock.now)
        what = data.draw(st.sampled_from(["intent", "outcome", "alone"]))
        if what == "outcome" and opened:
            begun, actor = opened.pop(data.draw(st.integers(0, len(opened) - 1)))
            seq = write(log, actor, intent=begun)
            partner |= {begun: seq, seq: begun}
        else:
            actor = data.draw(st.sampled_from(["u_ana", "u_held"]))
            seq = write(log, actor, phase="intent" if what == "intent" else "outcome")
            if what == "intent":
                opened.append((seq, actor))
        actors.append(actor)
    clock.now = START + 50 * DAY
    hold_subject(log, "u_held", placed, reason="case 17", by="operator")
    cut = START + data.draw(st.integers(0, 20)) * DAY
    old = next((seq for seq, ts in enumerate(times) if ts >= cut), len(times))
    own = {seq for seq in range(old) if actors[seq] == "u_ana" and seq not in {begun for begun, _ in opened}}
    expected = {seq for seq in own if partner.get(seq, seq) in own}
    prune(log, cut, announce)
    assert set(empty(log)) == expected
    assert verify(log).finding is None


@both_storages
def test_a_log_is_pruned_beside_its_writers(log: AuditLog, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(40):
        pair(log, "u_ana", "old")
    clock.now += 10 * DAY
    monkeypatch.setattr(pruning, "STEP", 10)
    stop = threading.Event()
    written: list[int] = []

    def ask() -> None:
        while not stop.is_set():
            written.extend(pair(log, "u_bo", "young"))

    asking = [threading.Thread(target=ask) for _ in range(3)]
    for one in asking:
        one.start()
    try:
        found = prune(log, START + DAY, announce)
    finally:
        stop.set()
        for one in asking:
            one.join()
    assert (found.records, len(found.ranges)) == (80, 8)
    assert len(written) == len(set(written)) > 0
    assert empty(log) == list(range(80))
    assert verify(log).finding is None


@both_storages
def test_a_hold_that_is_placed_while_a_step_begins_is_not_missed(
    log: AuditLog, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair(log, "u_ana", "x")
    kept = pair(log, "u_held", "y")
    clock.now += 10 * DAY
    honest = Holds.active
    placing = iter([True])

    def active(self: Holds) -> tuple[Hold, ...]:
        seen = honest(self)
        if next(placing, False):
            hold_subject(log, "u_held", placed, reason="case 17", by="operator")
        return seen

    monkeypatch.setattr(Holds, "active", active)
    found = prune(log, START + DAY, announce)
    assert (found.ranges, dict(found.kept)) == ([(0, 1)], {"legal hold": 2})
    assert set(empty(log)).isdisjoint(kept)
