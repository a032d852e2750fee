"""Reports about a small history whose every fact is known."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import msgspec
import pytest
from sqlalchemy import delete, update

from audit.log import AuditLog
from audit.record import (
    Actor,
    Bound,
    CacheUse,
    Draft,
    Freshness,
    GenerationUse,
    GuardResult,
    Outcome,
    Request,
    Resource,
    stamp,
)
from audit.reports.cache_entry import cache_entry_report, entry_of
from audit.reports.denied import denied_report
from audit.reports.document import document_report
from audit.reports.done import attestations_report, deletions_report
from audit.reports.frame import Asked, Report
from audit.reports.subject import subject_report
from audit.reports.uses import Use
from audit.tables import event_documents, events
from audit.trail import AuditTrail
from tenancy.errors import Forbidden, InvalidInput, NotFound
from tenancy.identity import Principal
from tests.audit.test_record import WRITER
from tests.support.people import Company

pytestmark = pytest.mark.both_storages

ALL = Asked(limit=1000)
LEASE, PLAN, SALARY = "contracts/lease.pdf", "plan.md", "hr/salaries.md"
HIT = CacheUse(
    status="hit", kind="semantic", entry="ce_1", origin_seq=0, origin_actor_same=False, similarity=0.94, threshold=0.9,
    score=0.99, guards=(GuardResult(name="all", verdict="pass"),), rules="g1",
    bound=Bound(n=1200, k=1, upper=0.004, state="certified"),
    freshness=Freshness(versions_checked=2, readable_checked=2), age_s=60,
)  # fmt: skip


def at(stage: Any, *documents: str, version: str = "sha256:1") -> list[Resource]:
    return [Resource(document=name, version=version, chunk="c0", stage=stage) for name in documents]


class History:
    """Writes requests through a real trail."""

    def __init__(self, trail: AuditTrail, log: AuditLog) -> None:
        self.trail, self.log = trail, log
        self._number = 0

    def ask(
        self,
        principal: Principal,
        question: str,
        before: list[Resource],
        after: list[Resource],
        *,
        cache: CacheUse | None = None,
        answer: str = "An answer.",
        error: BaseException | None = None,
        action: str = "answer",
        announce: bool = True,
        detail: dict[str, Any] | None = None,
    ) -> None:
        self._number += 1

        async def run() -> None:
            async with self.trail.open(principal, action=action, request_id=f"r{self._number}") as one:
                one.note(question=question, resources=before, cache=cache, detail=detail)
                if announce:
                    await one.intent()
                if error is not None:
                    raise error
                one.note(answer=answer, resources=after, generation=GenerationUse(model="m"))

        with contextlib.suppress(Forbidden, asyncio.CancelledError):
            asyncio.run(run())
        self.log.flush()


@pytest.fixture
def bo(acme: Company) -> Principal:
    return acme.principal("bo")


@pytest.fixture
def history(trail: AuditTrail, log: AuditLog, ana: Principal, bo: Principal) -> History:
    """0-1 ana is answered from the lease; 2-3 bo gets it from the cache; 4 bo is refused the salaries; 5-6 bo's answer
    from the plan is broken off; 7-8 ana is answered from the plan, the lease being left out of the prompt; 9-10 ana
    meets bo's question at the cache and the guards turn it away.
    """
    made = History(trail, log)
    made.ask(ana, "Until when?", at("in_prompt", LEASE, PLAN), at("cited", LEASE), answer="Until May.")
    made.ask(bo, "How long?", at("replayed", LEASE), [], cache=HIT, answer="Until May.")
    made.ask(bo, "Who earns what?", at("retrieved", SALARY), [], error=Forbidden("no"), announce=False)
    made.ask(bo, "What next?", at("in_prompt", PLAN), [], error=asyncio.CancelledError())
    made.ask(ana, "And then?", at("retrieved", LEASE) + at("in_prompt", PLAN), at("cited", PLAN, version="sha256:2"))
    veto = GuardResult(name="contrast", verdict="veto", reason="a qualifier on one side only")
    miss = CacheUse(status="miss", reason="vetoed", entry="ce_1", similarity=0.97, guards=(veto,))
    made.ask(ana, "Not until when?", at("retrieved", PLAN), [], cache=miss)
    return made


def columns(report: Report, table: str, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in report.tables[table].rows]


def test_who_saw_a_document_at_which_stage_and_whose_answer_it_was(history: History, log: AuditLog) -> None:
    report = document_report(log, LEASE, ALL)
    assert columns(report, "uses", "seq", "user", "stage", "via", "origin_user", "released") == [
        (8, "ana", "retrieved", "live", None, "yes"),
        (3, "bo", "replayed", "replayed", "ana", "yes"),
        (1, "ana", "cited", "live", None, "yes"),
    ]
    assert columns(report, "people", "user", "cited", "replayed", "in_prompt", "retrieved", "refused", "maybe") == [
        ("ana", 1, 0, 0, 1, 0, 0),
        ("bo", 0, 1, 0, 0, 0, 0),
    ]
    assert (report.about, report.head, report.cursor) == ({"document": LEASE, "persons": 2}, log.head(), None)


def test_a_refusal_and_a_broken_answer_are_told_apart_from_what_was_shown(history: History, log: AuditLog) -> None:
    refused = document_report(log, SALARY, ALL)
    assert columns(refused, "uses", "user", "outcome", "reason", "released") == [
        ("bo", "refused", "forbidden", "no"),
    ]  # fmt: skip
    assert columns(refused, "people", "user", "retrieved", "refused", "maybe") == [("bo", 0, 1, 0)]
    plan = document_report(log, PLAN, ALL)
    assert columns(plan, "uses", "seq", "user", "outcome", "stage", "released", "versions") == [
        (10, "ana", "allowed", "retrieved", "yes", "sha256:1"),
        (8, "ana", "allowed", "cited", "yes", "sha256:1 sha256:2"),
        (6, "bo", "aborted", "in_prompt", "maybe", "sha256:1"),
        (1, "ana", "allowed", "in_prompt", "yes", "sha256:1"),
    ]
    assert ("bo", 0, 1) in columns(plan, "people", "user", "in_prompt", "maybe")


def test_nobody_saw_a_document_that_no_record_names(history: History, log: AuditLog) -> None:
    report = document_report(log, "contracts/lease", ALL)
    assert [table.rows for table in report.tables.values()] == [(), ()]


def test_what_a_person_was_shown_and_asked(history: History, log: AuditLog, bo: Principal) -> None:
    report = subject_report(log, log.subjects.ref(bo.user_id), ALL)
    assert report.about["user"] == "bo"
    assert columns(report, "uses", "question", "answer", "cache", "documents", "origin_seq", "released") == [
        ("What next?", None, None, f"{PLAN} (in prompt)", None, "maybe"),
        ("Who earns what?", None, None, f"{SALARY} (retrieved)", None, "no"),
        ("How long?", "Until May.", "hit semantic certified", f"{LEASE} (replayed)", 0, "yes"),
    ]
    assert columns(report, "actions", "action", "outcome", "records") == [
        ("answer", "aborted", 1),
        ("answer", "allowed", 1),
        ("answer", "refused", 1),
    ]


def test_an_erased_person_is_named_as_erased_and_others_are_not(
    history: History, log: AuditLog, bo: Principal, ana: Principal
) -> None:
    log.subjects.destroy(log.subjects.ref(bo.user_id))
    report = subject_report(log, log.subjects.ref(bo.user_id), ALL)
    assert columns(report, "uses", "question", "answer", "erased")[-1] == (None, None, "question answer")
    assert report.about["user"] is None
    assert columns(document_report(log, LEASE, ALL), "uses", "user") == [("ana",), (None,), ("ana",)]
    own = subject_report(log, log.subjects.ref(ana.user_id), ALL)
    assert columns(own, "uses", "question", "erased")[-1] == ("Until when?", None)


def test_why_a_remembered_answer_was_served_and_why_not(history: History, log: AuditLog) -> None:
    report = cache_entry_report(log, "ce_1", ALL)
    assert columns(report, "origin", "seq", "user", "question", "answer", "documents") == [
        (0, "ana", "Until when?", "Until May.", f"{LEASE} (cited); {PLAN} (in prompt)"),
    ]
    assert columns(report, "uses", "user", "status", "why", "question", "guards", "score", "wrong", "judged") == [
        ("ana", "miss", "vetoed", "Not until when?", "contrast veto a qualifier on one side only", None, None, None),
        ("bo", "hit", None, "How long?", "all pass", 0.99, 1, 1200),
    ]
    assert entry_of(log, 2) == entry_of(log, 9) == "ce_1"
    with pytest.raises(InvalidInput):
        entry_of(log, 0)
    for absent in (99, -1, 10**30):
        with pytest.raises(NotFound):
            entry_of(log, absent)


def test_an_entry_that_was_never_served_has_the_origin_that_the_caller_knows(history: History, log: AuditLog) -> None:
    assert cache_entry_report(log, "ce_2", ALL).tables["origin"].rows == ()
    known = cache_entry_report(log, "ce_2", ALL, origin_seq=7)
    assert columns(known, "origin", "seq", "user", "question") == [(7, "ana", "And then?")]
    assert known.tables["uses"].rows == ()


def test_who_was_refused(history: History, log: AuditLog) -> None:
    report = denied_report(log, ALL)
    assert columns(report, "uses", "seq", "user", "reason", "question", "documents") == [
        (4, "bo", "forbidden", "Who earns what?", f"{SALARY} (retrieved)"),
    ]
    assert columns(report, "actions", "action", "outcome", "records") == [("answer", "refused", 1)]


def test_deletions_and_self_tests_are_listed_with_what_they_say(
    history: History, log: AuditLog, ana: Principal
) -> None:
    history.ask(ana, "", [], at("deleted", PLAN), action="document.delete", detail={"chunks": 3})
    history.ask(ana, "", [], [], action="attest", detail={"verdict": "PASS"})
    assert columns(deletions_report(log, ALL), "uses", "action", "documents", "detail") == [
        ("document.delete", f"{PLAN} (deleted)", '{"chunks": 3}'),
    ]
    assert columns(attestations_report(log, ALL), "uses", "action", "detail") == [
        ("attest", '{"verdict": "PASS"}'),
    ]  # fmt: skip


REPORTS: dict[str, Callable[[AuditLog, Asked], Report]] = {
    "document": lambda log, asked: document_report(log, PLAN, asked),
    "subject": lambda log, asked: subject_report(log, log.subjects.ref("someone"), asked),
    "cache entry": lambda log, asked: cache_entry_report(log, "ce_1", asked),
    "denied": denied_report,
    "deletions": deletions_report,
    "attestations": attestations_report,
}


@pytest.mark.parametrize("name", REPORTS)
def test_a_past_state_gives_the_report_of_then(
    history: History, log: AuditLog, ana: Principal, bo: Principal, name: str
) -> None:
    make = REPORTS[name]
    then = make(log, ALL)
    history.ask(bo, "Again?", at("in_prompt", PLAN), at("cited", PLAN), cache=HIT, action="document.delete")
    history.ask(bo, "Denied?", at("retrieved", PLAN), [], error=Forbidden("no"), action="attest")
    now = make(log, ALL)
    assert now.head != then.head
    again = make(log, Asked(limit=1000, as_of=then.head.size))
    assert asdict(again) == asdict(then) | {"until": again.until, "note": again.note}
    assert make(log, Asked(limit=1000, as_of=0)).tables[then.paged].rows == ()
    with pytest.raises(InvalidInput):
        make(log, Asked(as_of=now.head.size + 1))


def test_an_intent_is_open_as_of_before_its_outcome(history: History, log: AuditLog) -> None:
    for size, outcome, released in ((6, None, "maybe"), (7, "aborted", "maybe")):
        report = document_report(log, PLAN, Asked(as_of=size))
        assert columns(report, "uses", "user", "outcome", "released")[0] == ("bo", outcome, released)


def test_pages_join_to_the_whole_and_are_about_one_state(history: History, log: AuditLog, bo: Principal) -> None:
    whole = document_report(log, PLAN, ALL)
    rows, after = list[Any](), None
    while True:
        page = document_report(log, PLAN, Asked(limit=1, after=after))
        rows += page.tables["uses"].rows
        assert page.head == whole.head
        history.ask(bo, "Again?", at("in_prompt", PLAN), at("cited", PLAN))
        after = page.cursor
        if after is None:
            break
    assert rows == list(whole.tables["uses"].rows)


def test_a_cursor_belongs_to_its_report(history: History, log: AuditLog) -> None:
    after = document_report(log, PLAN, Asked(limit=1)).cursor
    assert after is not None
    for make in (
        lambda: document_report(log, LEASE, Asked(limit=1, after=after)),
        lambda: document_report(log, PLAN, Asked(limit=1, after=after, as_of=9)),
        lambda: document_report(log, PLAN, Asked(limit=1, after=after, since=1.0)),
        lambda: denied_report(log, Asked(after=after)),
        lambda: document_report(log, PLAN, Asked(after="zzz")),
    ):
        with pytest.raises(InvalidInput):
            make()


def test_a_window_cuts_rows_and_counts_and_keeps_a_request_that_crosses_it(history: History, log: AuditLog) -> None:
    with log.database.reading() as connection:
        times = [row.ts for row in connection.execute(events.select().order_by(events.c.seq))]
    # From between the intent and the outcome of bo's broken answer to between those of ana's.
    report = document_report(log, PLAN, Asked(since=times[6], until=times[8]))
    assert columns(report, "uses", "seq", "user", "outcome") == [(8, "ana", "allowed"), (6, "bo", "aborted")]
    assert columns(report, "people", "user", "in_prompt", "announced", "maybe") == [("ana", 0, 1, 0), ("bo", 0, 0, 1)]
    assert (report.since, report.until) == (times[6], times[8])
    empty = denied_report(log, Asked(since=times[5]))
    assert [table.rows for table in empty.tables.values()] == [(), ()]


def test_a_pruned_record_is_passed_over(history: History, log: AuditLog) -> None:
    with log.database.writing() as connection:
        for seq in (0, 1):
            bare = {"payload": b"", "action": "", "phase": "", "request": "", "outcome": None, "actor": None}
            connection.execute(update(events).where(events.c.seq == seq).values(bare))
            connection.execute(delete(event_documents).where(event_documents.c.seq == seq))
    report = document_report(log, LEASE, ALL)
    assert columns(report, "uses", "seq", "via", "origin_user") == [(8, "live", None), (3, "replayed", None)]
    assert cache_entry_report(log, "ce_1", ALL).tables["origin"].rows == ()


@pytest.mark.parametrize("limit", [0, 1001])
def test_limits_are_bounded(limit: int) -> None:
    with pytest.raises(InvalidInput):
        Asked(limit=limit)
    Asked(limit=1000)


def test_a_name_that_no_event_can_have_is_refused(log: AuditLog) -> None:
    with pytest.raises(InvalidInput):
        document_report(log, "a\0b", ALL)
    with pytest.raises(InvalidInput):
        cache_entry_report(log, "\ud800", ALL)


@pytest.mark.parametrize(
    ("outcome", "announced", "status", "released"),
    [
        ("allowed", True, "miss", "yes"),
        ("allowed", False, "miss", "yes"),
        (None, True, "miss", "maybe"),
        ("aborted", True, "miss", "maybe"),
        ("aborted", True, "hit", "maybe"),
        ("error", True, "miss", "maybe"),
        ("revoked", True, "miss", "maybe"),
        ("revoked", True, "hit", "no"),
        ("refused", True, "miss", "no"),
        ("refused", False, "miss", "no"),
        ("error", False, "miss", "no"),
        ("aborted", False, "miss", "no"),
    ],
)
def test_what_may_have_left_is_never_called_no(
    outcome: Outcome | None, announced: bool, status: Any, released: str
) -> None:
    made = Draft(
        action="answer", phase="intent", actor=Actor(kind="anonymous"), request=Request(id="r"),
        cache=CacheUse(status=status),
    )  # fmt: skip
    intent = stamp(made, seq=0, now=1.0, log="t", writer=WRITER)
    ended = stamp(made, seq=1, now=2.0, log="t", writer=WRITER)
    concluded = None if outcome is None else msgspec.structs.replace(ended, phase="outcome", outcome=outcome)
    assert Use(intent if announced else None, concluded).released == released
