"""Legal holds, and erasing a person for good: what a hold covers is not destroyed, whatever runs beside it."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from sqlalchemy import text
from sqlalchemy.engine import Connection

import audit.subjects
from audit.erasure import erase_texts, holds_on, require_free
from audit.holds import Held, Hold, Holds
from audit.log import AuditLog
from audit.logs import AuditLogs
from audit.record import Actor, Detail, Draft, Request
from audit.retention import DAYS, PLACED, cutoff, hold_subject, hold_window
from audit.subject_tables import SUBJECTS, SUBJECTS_FILE, metadata, subject_keys
from audit.subjects import Erased, SubjectKeys
from tenancy.control import Tenants
from tenancy.errors import Conflict, InvalidInput, NotFound
from tests.support.people import Company

both_storages = pytest.mark.both_storages


def record(log: AuditLog, subject: str) -> int:
    actor, request = Actor(kind="user", ref=subject), Request(id="r1")
    return log.append(lambda: Draft(action="answer", phase="outcome", outcome="allowed", actor=actor, request=request))


def announce(said: dict[str, Detail]) -> Draft:
    actor, request = Actor(kind="operator", ref="u_operator"), Request(id="h")
    return Draft(action=PLACED, phase="outcome", outcome="allowed", actor=actor, request=request, detail=said)


@both_storages
def test_an_erased_subject_is_never_readable_again_and_others_are(log: AuditLog) -> None:
    subjects = log.subjects
    ana, bo = (subjects.seal(who, {"question": who})["question"] for who in ("u_ana", "u_bo"))
    assert erase_texts(log, "u_ana").keys == 1
    later = subjects.seal("u_ana", {"question": "of a request that was still on its way"})["question"]
    again = subjects.seal("u_ana", {"question": "and of another"})["question"]
    for sealed in (ana, later, again):
        with pytest.raises(Erased):
            subjects.open("u_ana", "question", sealed)
    assert later.key != ana.key
    assert subjects.open("u_bo", "question", bo) == "u_bo"
    # Asked again it finds no key that opens anything.
    assert erase_texts(log, "u_ana").keys == 0


@both_storages
def test_another_process_seals_for_an_erased_subject_under_no_key_that_is_kept(
    log: AuditLog, open_tenants: Callable[[], Tenants], acme: Company, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit.subjects, "_REMEMBER_S", 600.0)
    other = SubjectKeys(open_tenants().audit_files_of(acme.handle.tenant_id))
    before = other.seal("u_ana", {"question": "x"})["question"]
    erase_texts(log, "u_ana")
    meanwhile = other.seal("u_ana", {"question": "y"})["question"]
    other._recent.clear()
    after = other.seal("u_ana", {"question": "z"})["question"]
    assert before.key == meanwhile.key != after.key
    for sealed in (before, meanwhile, after):
        with pytest.raises(Erased):
            other.open("u_ana", "question", sealed)


@both_storages
def test_a_hold_on_a_person_keeps_the_key_until_it_is_released(log: AuditLog) -> None:
    sealed = log.subjects.seal("u_ana", {"question": "x"})["question"]
    hold = hold_subject(log, "u_ana", announce, reason="case 17", by="operator:root")
    with pytest.raises(Held) as held:
        erase_texts(log, "u_ana")
    assert held.value.holds == (hold,)
    assert "case 17" not in str(held.value)
    assert log.subjects.open("u_ana", "question", sealed) == "x"
    assert log.subjects.unfinished("ana") is None
    assert erase_texts(log, "u_bo").keys == 0
    log.subjects.holds.release(hold.id, by="operator:root")
    assert erase_texts(log, "u_ana").keys == 1


@both_storages
def test_a_hold_that_is_placed_while_keys_are_about_to_go_keeps_them(
    log: AuditLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.subjects.seal("u_ana", {"question": "x"})
    log.subjects.seal("u_bo", {"question": "y"})
    honest = Holds.active
    placing = iter([True])

    def active(self: Holds) -> tuple[Hold, ...]:
        seen = honest(self)
        if next(placing, False):
            hold_subject(log, "u_ana", announce, reason="case 17", by="operator")
        return seen

    monkeypatch.setattr(Holds, "active", active)
    with pytest.raises(Held):
        erase_texts(log, "u_ana")
    # One that keeps somebody else is in nobody's way.
    placing = iter([True])
    assert erase_texts(log, "u_bo").keys == 1


@both_storages
def test_a_hold_on_a_time_keeps_those_who_have_a_record_in_it(logs: AuditLogs, acme: Company) -> None:
    log = logs.of(acme.principal("ana"))
    record(log, "u_ana")
    now = log.now()
    before = hold_window(log, None, now - 60, announce, reason="earlier", by="operator")
    assert holds_on(log, "u_ana") == ()
    now_on = hold_window(log, now - 60, None, announce, reason="since then", by="operator")
    assert holds_on(log, "u_ana") == (now_on,)
    assert holds_on(log, "u_bo") == ()
    with pytest.raises(Held):
        require_free(log, "u_ana")
    require_free(log, "u_bo")
    assert {hold.id for hold in log.subjects.holds.active()} == {before.id, now_on.id}


@both_storages
def test_holds_are_listed_and_released_once(log: AuditLog) -> None:
    holds = log.subjects.holds
    placed = hold_window(log, 10.0, 20.0, announce, reason="case 17", by="operator:root")
    assert holds.all() == (placed,)
    ended = holds.release(placed.id, by="operator:eva")
    assert (ended.released_by, ended.released is not None) == ("operator:eva", True)
    assert holds.all() == (ended,)
    assert holds.active() == ()
    with pytest.raises(Conflict, match="ended already"):
        holds.release(placed.id, by="operator:root")
    with pytest.raises(NotFound):
        holds.release("h_0000000000000000", by="operator:root")
    with pytest.raises(InvalidInput, match="ends before"):
        hold_window(log, 20.0, 20.0, announce, reason="empty", by="operator:root")
    with pytest.raises(InvalidInput):
        hold_window(log, None, None, announce, reason="", by="operator:root")


def test_a_hold_waits_for_a_pruning_that_did_not_see_it(log: AuditLog) -> None:
    """Whoever was told that a hold is in force loses nothing to a transaction that began before."""
    order: list[str] = []

    def place() -> None:
        hold_subject(log, "u_ana", announce, reason="case 17", by="operator")
        order.append("in force")

    with log.database.writing():
        assert log.subjects.holds.active() == ()
        placing = threading.Thread(target=place)
        placing.start()
        while not log.subjects.holds.active():
            pass
        order.append("pruned")
    placing.join()
    assert order == ["pruned", "in force"]


@both_storages
def test_what_was_begun_is_found_by_name_until_there_is_a_receipt(log: AuditLog) -> None:
    subjects = log.subjects
    erase_texts(log, "u_ana", user="u_id", name="ana")
    assert subjects.unfinished("ana") == ("u_ana", "u_id")
    assert subjects.unfinished("bo") is None
    subjects.finish("u_ana", {"id": "er_1", "outcome": "erased"})
    assert subjects.unfinished("ana") is None
    assert subjects.receipts() == [{"id": "er_1", "outcome": "erased"}]
    assert subjects.receipts(subject="u_ana") == subjects.receipts(receipt_id="er_1")
    assert subjects.receipts(receipt_id="er_2") == []


def test_a_subjects_file_from_before_there_were_holds_is_brought_up_to_date(acme: Company, logs: AuditLogs) -> None:
    log = logs.of(acme.principal("ana"))
    sealed = log.subjects.seal("u_ana", {"question": "x"})["question"]
    with log.subjects._database.writing() as connection:
        _as_version_1(connection)
    del log
    logs.forget(acme.handle.tenant_id)
    acme.handle.audit._databases.pop(SUBJECTS_FILE)
    again = SubjectKeys(acme.handle.audit)
    assert again.open("u_ana", "question", sealed) == "x"
    assert again.holds.all() == ()
    assert again.erase("u_ana", frozenset()) == 1


def _as_version_1(connection: Connection) -> None:
    for table in reversed(metadata.sorted_tables):
        if table is not subject_keys:
            connection.execute(text(f"DROP TABLE {table.name}"))
    connection.execute(text(f"PRAGMA user_version = {len(SUBJECTS)}"))


def test_classes_are_at_least_what_they_are_called() -> None:
    assert DAYS == {"184-days": 184, "12-months": 366, "6-years": 2192}
    assert cutoff("184-days", 184 * 86_400.0 + 5) == 5.0
