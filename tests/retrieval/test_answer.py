"""The path of a question: who gets what, what is remembered, what is on record."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing

import pytest

from audit.query import Filters, query_log
from audit.record import Event, decode
from audit.verify import verify
from cache.openings import open_template
from cache.policy import CachePolicy, TemplatePolicy
from cache.stores.local import LocalStore
from generation.extractive import ExtractiveGenerator
from generation.generator import Delta as Piece
from generation.generator import Finish, ModelIdentity, Usage
from generation.prompt import Prompt, Turn
from retrieval.answer import answer
from retrieval.question import Delta, PathSettings, Question, Revoked
from tenancy.errors import (
    AuditUnavailable,
    Forbidden,
    InvalidInput,
    LimitExceeded,
    NotFound,
    TenantSuspended,
    Unavailable,
)
from tenancy.identity import Principal, Role
from tenancy.limits import Limits, TenantLimits
from tests.support.path import Path, open_path
from tests.support.people import NOW, Company
from tests.support.spent import spent

NOTICE = "Notice periods. The notice period for employees is three months to the end of a quarter."
SALARY = "Salaries. A senior technician earns 48,000 euro a year before bonus."
ASKED = "What is the notice period for employees?"


@pytest.fixture
def path(acme: Company) -> Iterator[Path]:
    with open_path(acme.tenants) as opened:
        opened.put(acme.handle, "notice.txt", NOTICE, "tenant")
        opened.put(acme.handle, "salary.txt", SALARY, "group:hr")
        yield opened


@pytest.fixture
def ana(acme: Company) -> Principal:
    return acme.principal("ana", groups=["hr"])


@pytest.fixture
def bo(acme: Company) -> Principal:
    return acme.principal("bo")


def events(path: Path, principal: Principal) -> list[Event]:
    """Everything in the principal's audit log, once nothing is queued any more."""
    page = query_log(path.logs.of(principal), Filters(order="asc"), limit=1000)
    return [decode(stored.payload) for stored in page.events]


def test_an_answer_cites_verbatim_what_its_asker_may_read(path: Path, bo: Principal) -> None:
    found = path.ask(bo, ASKED)
    assert "three months" in found.text
    (citation,) = found.citations
    assert (citation.document, NOTICE[citation.start : citation.end]) == ("notice.txt", citation.quote)
    assert (found.finish, found.cache.status, found.model) == ("stop", "miss", ExtractiveGenerator().identity.model)


def test_who_may_not_read_it_is_told_that_it_is_not_in_their_documents(
    path: Path, ana: Principal, bo: Principal
) -> None:
    question = "How much does a senior technician earn?"
    assert "48,000" in path.ask(ana, question).text
    refused = path.ask(bo, question)
    assert refused.finish == "abstain"
    assert refused.citations == ()
    assert "48,000" not in refused.text
    assert not any("alar" in title for title in refused.nearest_titles)


def test_the_same_question_again_is_an_exact_hit_with_the_same_bytes(path: Path, acme: Company, bo: Principal) -> None:
    cy = acme.principal("cy")
    first = path.ask(bo, ASKED)
    assert first.cache.stored
    again = path.ask(cy, f"  {ASKED} ")
    assert (again.cache.status, again.cache.kind, again.text) == ("hit", "exact", first.text)
    assert again.citations == first.citations
    assert again.request_id != first.request_id


def test_another_domain_misses(path: Path, ana: Principal, bo: Principal) -> None:
    path.ask(bo, ASKED)
    assert path.ask(ana, ASKED).cache.status == "miss"
    assert path.ask(bo, ASKED).cache.status == "hit"


def test_bypass_and_refresh_leave_and_replace_what_is_stored(path: Path, bo: Principal) -> None:
    path.ask(bo, ASKED)
    assert path.ask(bo, ASKED, cache="bypass").cache.status == "bypass"
    refreshed = path.ask(bo, ASKED, cache="refresh")
    assert (refreshed.cache.status, refreshed.cache.stored) == ("refresh", True)
    assert path.ask(bo, ASKED).cache.status == "hit"


def test_a_mode_that_the_policy_of_the_template_does_not_permit_is_refused(acme: Company, bo: Principal) -> None:
    policy = CachePolicy(templates={"default": TemplatePolicy(modes=("refresh", "default"))})
    with open_path(acme.tenants, cache=LocalStore(policy)) as path:
        path.put(acme.handle, "notice.txt", NOTICE, "tenant")
        with pytest.raises(InvalidInput, match="bypass is not permitted") as caught:
            path.ask(bo, ASKED, cache="bypass")
        assert (caught.value.item, caught.value.remedy) == ("default", "use refresh or default")
        assert path.ask(bo, ASKED).cache.status == "refresh"
        assert path.ask(bo, ASKED, cache="default").cache.status == "hit"


def test_a_changed_document_and_a_revocation_are_misses_at_once(path: Path, acme: Company, bo: Principal) -> None:
    path.ask(bo, ASKED)
    path.put(acme.handle, "notice.txt", NOTICE.replace("three", "four"), "tenant")
    changed = path.ask(bo, ASKED)
    assert (changed.cache.status, "four months" in changed.text) == ("miss", True)
    assert path.ask(bo, ASKED).cache.status == "hit"
    acme.access("notice.txt", allow=["group:hr"])
    revoked = path.ask(bo, ASKED)
    assert revoked.finish == "abstain"
    assert "four months" not in revoked.text


def test_a_paraphrase_hits_only_where_an_operator_opened_the_template(path: Path, acme: Company, bo: Principal) -> None:
    paraphrase = "What is the employees' notice period?"
    path.ask(bo, ASKED)
    assert path.ask(bo, paraphrase, cache="default").cache.status == "miss"
    acme_fresh = "Which notice period is there for employees?"
    with acme.handle.writing() as view:
        open_template(view, "default", threshold=0.5, opened_by="operator", reason="test", now=NOW)
    hit = path.ask(bo, acme_fresh)
    assert (hit.cache.status, hit.cache.kind, hit.cache.certified) == ("hit", "semantic", "uncertified")
    assert path.ask(bo, "What is not the notice period for employees?").cache.status == "miss"


def test_a_follow_up_is_understood_and_shown(path: Path, acme: Company, bo: Principal) -> None:
    path.put(acme.handle, "managers.txt", "The notice period for managers is six months.", "tenant")
    history = (Turn("user", ASKED), Turn("assistant", "Three months. [S1]"))
    found = path.ask(bo, "And for managers?", history=history)
    assert found.rewritten is not None
    assert "notice period" in found.rewritten
    assert "six months" in found.text
    assert path.ask(bo, ASKED).rewritten is None


def test_every_question_is_on_record_with_its_stages(path: Path, ana: Principal, bo: Principal) -> None:
    answered = path.ask(bo, ASKED)
    path.ask(bo, ASKED)
    recorded = [event for event in events(path, bo) if event.action == "answer"]
    assert [(event.phase, event.outcome) for event in recorded] == [("intent", None), ("outcome", "allowed")] * 2
    first, second = recorded[1], recorded[3]
    assert answered.audit_seq == recorded[0].seq == first.intent
    assert [(found.document, found.stage) for found in first.resources] == [("notice.txt", "cited")]
    assert second.cache is not None
    assert (second.cache.kind, second.cache.origin_seq) == ("exact", recorded[0].seq)
    assert {found.stage for found in second.resources} == {"replayed"}
    assert verify(path.logs.of(bo)).ok


def test_refusals_are_on_record_and_release_nothing(path: Path, acme: Company) -> None:
    auditor = acme.principal("auditor", Role.AUDITOR)
    with pytest.raises(Forbidden):
        path.ask(auditor, ASKED)
    (event,) = [event for event in events(path, auditor) if event.action == "answer"]
    assert (event.phase, event.outcome, event.reason) == ("outcome", "refused", "forbidden")


@pytest.mark.parametrize("option", [{"model": "other"}, {"adapter": "other"}, {"template": "other"}])
def test_what_this_deployment_does_not_have_is_not_found(path: Path, bo: Principal, option: dict[str, str]) -> None:
    with pytest.raises(NotFound):
        path.ask(bo, ASKED, **option)


def test_a_suspended_tenant_gets_no_answer_also_not_a_remembered_one(path: Path, acme: Company, bo: Principal) -> None:
    path.ask(bo, ASKED)
    acme.tenants.set_status("acme", "suspended")
    with pytest.raises(TenantSuspended):
        path.ask(bo, ASKED)
    acme.tenants.set_status("acme", "active")
    assert path.ask(bo, ASKED).cache.status == "hit"


def test_a_limit_refuses_and_is_free_again_after_each_exit(acme: Company, bo: Principal) -> None:
    limits = TenantLimits(user=Limits(requests_per_minute=2, concurrent=1))
    with open_path(acme.tenants, limits=limits) as path:
        path.put(acme.handle, "notice.txt", NOTICE, "tenant")
        path.ask(bo, ASKED)
        with pytest.raises(NotFound):
            path.ask(bo, ASKED, template="other")
        path.ask(bo, ASKED)
        with pytest.raises(LimitExceeded) as refused:
            path.ask(bo, ASKED)
        assert refused.value.scope == "user"
        assert spent(path.path.admission, acme.handle.tenant_id).concurrent == 0
        assert path.ask(acme.principal("cy"), ASKED).finish == "stop"


def test_without_a_durable_intent_nothing_leaves(path: Path, bo: Principal, monkeypatch: pytest.MonkeyPatch) -> None:
    path.ask(bo, ASKED)
    seen: list[object] = []

    async def broken(_future: object) -> int:
        raise AuditUnavailable("the log cannot be written")

    async def drive(query: str) -> None:
        async with aclosing(answer(path.path, bo, Question(query, secrets.token_hex(16)))) as running:
            async for event in running:
                seen.append(event)

    monkeypatch.setattr(path.logs.of(bo), "durable", broken)
    for query in (ASKED, "How much does a technician earn?", "Which notice period do employees have?"):
        with pytest.raises(AuditUnavailable):
            asyncio.run(drive(query))
        with pytest.raises(AuditUnavailable):
            path.retrieve(bo, query)
    assert seen == []


class Slow:
    """A generator that lets the test act between two deltas. Its text cites S1."""

    identity = ModelIdentity("slow", "1", "none")
    salted = True

    def __init__(self, between: Callable[[], None] = lambda: None, reason: str = "stop") -> None:
        self.between = between
        self.reason = reason
        self.salts: list[str] = []
        self.closed = 0

    def count(self, text: str) -> int:
        return len(text.split())

    async def generate(
        self, prompt: Prompt, *, salt: str, request_id: str, max_tokens: int, deadline: float
    ) -> AsyncGenerator[Piece | Finish, None]:
        self.salts.append(salt)
        try:
            yield Piece("The notice period is three months ")
            self.between()
            yield Piece("to the end of a quarter. [S1]")
            yield Finish(self.reason, Usage(10, 0, 5))  # type: ignore[arg-type]
        finally:
            self.closed += 1

    async def aclose(self) -> None:
        return None


def test_a_revocation_during_the_stream_ends_it_and_is_on_record(acme: Company, bo: Principal) -> None:
    slow = Slow(lambda: acme.access("notice.txt", allow=["group:hr"]))
    with open_path(acme.tenants, generator=slow, settings=PathSettings(recheck_s=0.0)) as path:
        path.put(acme.handle, "notice.txt", NOTICE, "tenant")
        with pytest.raises(Revoked):
            path.ask(bo, ASKED)
        assert events(path, bo)[-1].outcome == "revoked"
        assert path.path.cache.stats(acme.handle).entries == 0
        assert slow.closed == 1


def test_a_revocation_after_the_last_delta_still_refuses_the_answer(acme: Company, bo: Principal) -> None:
    slow = Slow(lambda: acme.access("notice.txt", allow=["group:hr"]))
    with open_path(acme.tenants, generator=slow, settings=PathSettings(recheck_s=1e9)) as path:
        path.put(acme.handle, "notice.txt", NOTICE, "tenant")
        with pytest.raises(Revoked):
            path.ask(bo, ASKED)


def test_an_unchanged_stream_is_answered_and_remembered(acme: Company, bo: Principal) -> None:
    slow = Slow()
    with open_path(acme.tenants, generator=slow, settings=PathSettings(recheck_s=0.0)) as path:
        path.put(acme.handle, "notice.txt", NOTICE, "tenant")
        assert path.ask(bo, ASKED).citations[0].document == "notice.txt"
        assert path.ask(bo, ASKED).cache.kind == "exact"
        assert len(slow.salts) == 1


@pytest.mark.parametrize("reason", ["length", "budget"])
def test_a_truncated_answer_is_given_and_not_remembered(acme: Company, bo: Principal, reason: str) -> None:
    with open_path(acme.tenants, generator=Slow(reason=reason)) as path:
        path.put(acme.handle, "notice.txt", NOTICE, "tenant")
        assert path.ask(bo, ASKED).finish == reason
        assert path.ask(bo, ASKED).cache.status == "miss"


def test_an_error_of_the_generator_is_one_of_ours_and_not_remembered(acme: Company, bo: Principal) -> None:
    with open_path(acme.tenants, generator=Slow(reason="error")) as path:
        path.put(acme.handle, "notice.txt", NOTICE, "tenant")
        with pytest.raises(Unavailable):
            path.ask(bo, ASKED)
        assert events(path, bo)[-1].outcome == "error"
        assert path.path.cache.stats(acme.handle).entries == 0


def test_salts_differ_by_domain_and_by_revocation(acme: Company, ana: Principal, bo: Principal) -> None:
    slow = Slow()
    with open_path(acme.tenants, generator=slow) as path:
        path.put(acme.handle, "notice.txt", NOTICE, "tenant")
        path.put(acme.handle, "salary.txt", SALARY, "group:hr")
        for principal in (ana, bo, bo):
            path.ask(principal, ASKED, cache="bypass")
        acme.member("hr", "somebody")
        path.ask(bo, ASKED, cache="bypass")
    of_ana, of_bo, of_bo_again, later = slow.salts
    assert of_ana != of_bo == of_bo_again != later


def test_giving_up_is_recorded_as_aborted_and_frees_everything(acme: Company, bo: Principal) -> None:
    slow = Slow()
    with open_path(acme.tenants, generator=slow) as path:
        path.put(acme.handle, "notice.txt", NOTICE, "tenant")

        async def leave_early() -> None:
            async with aclosing(answer(path.path, bo, Question(ASKED, secrets.token_hex(16)))) as running:
                async for event in running:
                    assert isinstance(event, Delta)
                    break

        asyncio.run(leave_early())
        assert path.ask(bo, ASKED).finish == "stop"
        outcomes = [event.outcome for event in events(path, bo) if event.phase == "outcome"]
        assert outcomes == ["aborted", "allowed"]
        assert spent(path.path.admission, acme.handle.tenant_id).concurrent == 0
        assert slow.closed == 2


def test_identical_questions_at_one_time_are_generated_once(acme: Company, bo: Principal) -> None:
    slow = Slow()
    with open_path(acme.tenants, generator=slow) as path:
        path.put(acme.handle, "notice.txt", NOTICE, "tenant")

        async def together() -> list[str]:
            answers = await asyncio.gather(*(path.ask_async(bo, ASKED) for _ in range(8)))
            return sorted(found.cache.status for found in answers)

        assert asyncio.run(together()) == ["hit"] * 7 + ["miss"]
        assert len(slow.salts) == 1


def test_retrieval_finds_and_records_and_respects_the_domain(path: Path, ana: Principal, bo: Principal) -> None:
    found = path.retrieve(ana, "senior technician salary", top_k=5)
    assert {passage.document for passage in found.passages} == {"notice.txt", "salary.txt"}
    assert found.passages[0].document == "salary.txt"
    assert {passage.document for passage in path.retrieve(bo, "senior technician salary", top_k=5).passages} == {
        "notice.txt"
    }
    last = [event for event in events(path, bo) if event.action == "retrieve"][-1]
    assert [(resource.document, resource.stage) for resource in last.resources] == [("notice.txt", "retrieved")]
    assert last.withheld == 0
