"""A set is asked on the real path, as its askers and never wider, and each question's scores are what came back."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator

import msgspec
import pytest

from audit.query import Filters, query_log
from audit.record import decode
from evaluation.running import FEATURE, Way, run, with_asker
from evaluation.scores import Scores, figures
from evaluation.sets import Case
from tenancy import directory
from tenancy.control import Tenants
from tenancy.errors import InvalidInput, NotFound, TenantSuspended
from tenancy.identity import Authenticator, Principal
from tests.support.path import Path, open_path
from tests.support.people import Company

ANSWERED = Case(
    question="How long is the notice period?", documents=("notice.md",), facts=("three months",), asker="ana"
)
SECRET = Case(question="What is the salary of the director?", documents=("salary.md",), asker="ana")
ABSENT = Case(question="Who painted the ceiling of the chapel?", unanswerable=True, asker="ana")


@pytest.fixture
def path(tenants: Tenants, acme: Company) -> Iterator[Path]:
    for user in ("ana", "bo"):
        acme.principal(user)
    with open_path(tenants) as found:
        found.put(acme.handle, "notice.md", "The notice period is three months.", "tenant")
        found.put(acme.handle, "salary.md", "The salary of the director is 90,000.", "user:bo")
        yield found


def scores(path: Path, authenticator: Authenticator, *cases: Case) -> list[Scores]:
    def asker(name: str) -> Principal:
        return authenticator.operator("acme", name)

    return asyncio.run(run(Way(path.path), asker, cases))


def test_an_answered_question_has_every_score(path: Path, authenticator: Authenticator) -> None:
    (one,) = scores(path, authenticator, ANSWERED)
    assert (one.ndcg, one.recall, one.mrr, one.cited, one.facts, one.quality) == (1, 1, 1, 1, 1, 1)
    assert not one.declined
    assert one.seconds is not None
    assert one.seconds > 0
    assert one.input_tokens > 0


def test_who_may_not_read_the_answer_finds_none_and_who_may_does(path: Path, authenticator: Authenticator) -> None:
    (ana,) = scores(path, authenticator, SECRET)
    (bo,) = scores(path, authenticator, Case(question=SECRET.question, documents=SECRET.documents, asker="bo"))
    assert (ana.declined, ana.recall, ana.quality) == (True, 0, 0)
    assert (bo.declined, bo.recall, bo.quality) == (False, 1, 1)


def test_declining_is_right_where_there_is_no_answer(path: Path, authenticator: Authenticator) -> None:
    found = figures(scores(path, authenticator, ABSENT, ANSWERED, SECRET), 10)
    assert (found.declined_right, found.declined_wrong) == (1.0, 0.5)
    assert (found.unanswerable, found.answerable, found.failed) == (1, 2, 0)


def test_every_question_is_on_record_as_its_askers_and_as_an_evaluation(
    path: Path, acme: Company, authenticator: Authenticator
) -> None:
    scores(path, authenticator, ANSWERED)
    log = path.logs.of(authenticator.operator("acme"))
    events = [decode(stored.payload) for stored in query_log(log, Filters(order="asc")).events]
    ours = [event for event in events if event.action in {"retrieve", "answer"}]
    assert [event.action for event in ours] == ["retrieve", "retrieve", "answer", "answer"]
    assert {event.actor.kind for event in ours} == {"operator"}
    assert {event.detail.get("feature") for event in ours} == {FEATURE}


def test_nothing_is_remembered_or_served_from_memory(path: Path, authenticator: Authenticator, acme: Company) -> None:
    ana = authenticator.operator("acme", "ana")
    assert path.ask(ana, ANSWERED.question).cache.stored
    assert path.ask(ana, ANSWERED.question).cache.status == "hit"
    (one,) = scores(path, authenticator, ANSWERED)
    assert one.output_tokens > 0
    fresh = "How long would the notice period be?"
    scores(path, authenticator, Case(question=fresh, documents=("notice.md",), asker="ana"))
    assert path.ask(ana, fresh).cache.status == "miss"


def test_a_question_that_fails_is_named_by_its_code_and_the_others_go_on(
    path: Path, authenticator: Authenticator
) -> None:
    way = Way(path.path, template="absent")
    found = asyncio.run(run(way, lambda name: authenticator.operator("acme", name), [ANSWERED, ABSENT]))
    assert [one.failed for one in found] == ["not-found", "not-found"]
    assert figures(found, 10).failed == 2
    assert figures(found, 10).quality == 0.0


def test_what_would_end_every_question_ends_the_run(path: Path, tenants: Tenants, authenticator: Authenticator) -> None:
    tenants.set_status("acme", "suspended")
    with pytest.raises(TenantSuspended):
        scores(path, authenticator, ANSWERED)


def test_an_unknown_asker_is_refused(path: Path, authenticator: Authenticator) -> None:
    with pytest.raises(NotFound):
        scores(path, authenticator, Case(question="x?", unanswerable=True, asker=secrets.token_hex(4)))


def test_who_goes_while_a_set_is_asked_asks_nothing_more_and_others_do(
    path: Path, acme: Company, authenticator: Authenticator
) -> None:
    def step(done: int, _of: int) -> None:
        if done == 1:
            with acme.handle.writing() as view:
                directory.delete_user(view, "ana")

    cases = [ANSWERED, ABSENT, msgspec.structs.replace(ANSWERED, asker="bo")]
    found = asyncio.run(run(Way(path.path), lambda name: authenticator.operator("acme", name), cases, step))
    assert [one.failed for one in found] == [None, "not-found", None]
    log = path.logs.of(authenticator.operator("acme"))
    events = [decode(stored.payload) for stored in query_log(log, Filters(order="asc")).events]
    # An intent and an outcome each.
    assert sum(event.action == "answer" for event in events) == 4


def test_each_question_has_an_asker() -> None:
    nameless = Case(question="x?", unanswerable=True)
    assert [case.asker for case in with_asker([nameless, ANSWERED], "bo")] == ["bo", "ana"]
    with pytest.raises(InvalidInput, match="1 of the set's 2 questions name no asker"):
        with_asker([nameless, ANSWERED], None)
