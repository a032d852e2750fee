from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from audit.log import AuditLog
from audit.logs import AuditLogs
from audit.query import Stored, view
from audit.record import CacheUse, GenerationUse, Policy, Resource, encode
from audit.trail import AuditTrail
from audit.verify import verify
from tenancy.control import SYSTEM, Tenants
from tenancy.errors import (
    AuditUnavailable,
    Conflict,
    Corrupt,
    Forbidden,
    InvalidInput,
    LimitExceeded,
    NotFound,
    StaleDomain,
    TenantSuspended,
    Throttled,
    Unauthenticated,
    Unavailable,
)
from tenancy.identity import Principal
from tests.audit.conftest import ReadAll
from tests.audit.test_log import FailingDatabase, locked


def test_a_whole_request_is_an_intent_and_its_outcome(
    trail: AuditTrail, log: AuditLog, ana: Principal, read_all: ReadAll
) -> None:
    async def request() -> int:
        async with trail.open(ana, action="answer", request_id="r1", root="r0") as one:
            one.note(question="Who may see this?", policy=Policy(domain="pd_1", acl_epoch=3))
            one.note(resources=[Resource(document="d", chunk=f"c{n}", stage="retrieved") for n in range(3)])
            one.note(resources=[Resource(document="d", chunk="c1", stage="in_prompt")], withheld=1)
            one.hop("embed", 11.6)
            seq = await one.intent()
            assert await one.intent() == seq
            one.note(answer="You may.", cache=CacheUse(status="miss", reason="empty"), withheld=1)
            one.note(resources=[Resource(document="d", chunk="c1", stage="cited")], policy=Policy(template="t1"))
            one.note(resources=[Resource(document="d", chunk="c1", stage="retrieved")], microunits=5)
            one.note(generation=GenerationUse(model="extractive"), detail={"kind": "test"})
            one.hop("generate", 100)
            return seq

    seq = asyncio.run(request())
    intent, outcome = read_all(log)
    assert (intent.seq, intent.phase, intent.outcome, intent.actor.ref) == (
        seq, "intent", None, log.subjects.ref(ana.user_id),
    )  # fmt: skip
    assert (intent.withheld, [r.stage for r in intent.resources]) == (1, ["retrieved", "in_prompt", "retrieved"])
    assert (outcome.phase, outcome.outcome, outcome.intent, outcome.request.root) == ("outcome", "allowed", seq, "r0")
    assert [r.stage for r in outcome.resources] == ["retrieved", "cited", "retrieved"]
    assert outcome.policy == Policy(domain="pd_1", acl_epoch=3, template="t1")
    assert outcome.withheld == 2
    assert outcome.cost is not None
    assert (outcome.cost.hops, outcome.cost.microunits) == ((("embed", 12), ("generate", 100)), 5)
    assert outcome.generation == GenerationUse(model="extractive")
    assert outcome.detail == {"kind": "test"}
    assert verify(log).ok


def test_what_is_withdrawn_has_its_own_outcome_and_what_follows_another_intent(
    trail: AuditTrail, log: AuditLog, ana: Principal, read_all: ReadAll
) -> None:
    async def request() -> tuple[int, int]:
        async with trail.open(ana, action="answer", request_id="r1") as one:
            one.note(question="Who?", cache=CacheUse(status="hit"), policy=Policy(domain="pd_1"), withheld=1)
            one.note(resources=[Resource(document="d", stage="replayed")])
            first = await one.intent()
            one.withdraw("gone")
            one.note(question="Who?", cache=CacheUse(status="miss", reason="gone"))
            second = await one.intent()
            one.note(resources=[Resource(document="e", stage="cited")])
            return first, second

    first, second = asyncio.run(request())
    announced, withdrawn, again, outcome = read_all(log)
    assert (announced.seq, withdrawn.intent, again.seq, outcome.intent) == (first, first, second, second)
    assert (withdrawn.phase, withdrawn.outcome, withdrawn.reason) == ("outcome", "revoked", "gone")
    assert [resource.document for resource in withdrawn.resources] == ["d"]
    assert again.resources == ()
    assert (again.policy, again.withheld) == (None, 0)
    assert again.content is not None
    assert again.content.question is not None
    assert (outcome.outcome, [resource.document for resource in outcome.resources]) == ("allowed", ["e"])
    assert verify(log).ok


def test_a_refusal_after_a_withdrawal_has_a_record_of_its_own(
    trail: AuditTrail, log: AuditLog, ana: Principal, read_all: ReadAll
) -> None:
    async def request() -> None:
        async with trail.open(ana, action="answer", request_id="r1") as one:
            await one.intent()
            one.withdraw("changed")
            raise Forbidden("no")

    with pytest.raises(Forbidden):
        asyncio.run(request())
    phases = [(event.phase, event.outcome, event.intent) for event in read_all(log)]
    assert phases == [("intent", None, None), ("outcome", "revoked", 0), ("outcome", "refused", None)]
    assert verify(log).ok


def test_names_and_texts_are_only_in_ciphertext(
    trail: AuditTrail, log: AuditLog, ana: Principal, read_all: ReadAll
) -> None:
    async def request() -> None:
        async with trail.open(ana, action="answer", request_id="r1") as one:
            one.note(question="zebra question")
            one.note(filter='{"eq":"zebra","field":"author","type":"string"}')
            await one.intent()
            one.note(answer="zebra answer")

    asyncio.run(request())
    events = read_all(log)
    stored = b"".join(encode(event) for event in events)
    assert b"zebra" not in stored
    assert b'"ana"' not in stored
    assert ana.user_id.encode() not in stored
    intent, outcome = (view(Stored(event.seq, encode(event)), log.subjects)["content"] for event in events)
    assert (intent["question"]["text"], intent["user"]["text"]) == ("zebra question", "ana")
    assert intent["filter"]["text"] == '{"eq":"zebra","field":"author","type":"string"}'
    assert outcome["answer"]["text"] == "zebra answer"


@pytest.mark.parametrize(
    ("error", "outcome", "reason"),
    [
        (InvalidInput("x"), "refused", "invalid-input"),
        (Unauthenticated("x"), "refused", "unauthenticated"),
        (Throttled("x", retry_after=1), "refused", "throttled"),
        (Forbidden("x"), "refused", "forbidden"),
        (TenantSuspended("x"), "refused", "tenant-suspended"),
        (NotFound("x"), "refused", "not-found"),
        (Conflict("x"), "refused", "conflict"),
        (LimitExceeded("x", scope="user", limit=1, used=1, retry_after=1), "refused", "limit-exceeded"),
        (Unavailable("x"), "error", "unavailable"),
        (StaleDomain("x"), "error", "stale-domain"),
        (Corrupt("x"), "error", "corrupt"),
        (ValueError("the secret question"), "error", "ValueError"),
        (asyncio.CancelledError(), "aborted", "cancelled"),
        (KeyboardInterrupt(), "aborted", "cancelled"),
    ],
)
def test_every_exception_leaves_its_outcome(
    trail: AuditTrail, log: AuditLog, ana: Principal, read_all: ReadAll,
    error: BaseException, outcome: str, reason: str,
) -> None:  # fmt: skip
    async def request(with_intent: bool) -> None:
        async with trail.open(ana, action="answer", request_id="r1") as one:
            if with_intent:
                await one.intent()
            raise error

    for with_intent in (True, False):
        with pytest.raises(type(error)):
            asyncio.run(request(with_intent))
    intent, closed, alone = read_all(log)
    assert (intent.phase, intent.outcome) == ("intent", None)
    assert (closed.outcome, closed.reason, closed.intent) == (outcome, reason, 0)
    assert (alone.outcome, alone.reason, alone.intent) == (outcome, reason, None)
    assert verify(log).ok


def test_a_conclusion_stands_unless_the_block_fails_after_success(
    trail: AuditTrail, log: AuditLog, ana: Principal, read_all: ReadAll
) -> None:
    async def request(conclusion: str, error: Exception | None) -> None:
        async with trail.open(ana, action="answer", request_id="r1") as one:
            one.conclude(conclusion, "because")  # type: ignore[arg-type]
            if error:
                raise error

    asyncio.run(request("revoked", None))
    for conclusion in ("revoked", "allowed"):
        with pytest.raises(ValueError, match="x"):
            asyncio.run(request(conclusion, ValueError("x")))
    asyncio.run(request("allowed", None))
    assert [(event.outcome, event.reason) for event in read_all(log)] == [
        ("revoked", "because"), ("revoked", "because"), ("error", "ValueError"), ("allowed", "because"),
    ]  # fmt: skip


def test_a_cancelled_task_leaves_an_outcome(
    trail: AuditTrail, log: AuditLog, ana: Principal, read_all: ReadAll
) -> None:
    async def request(reached: asyncio.Event) -> None:
        async with trail.open(ana, action="answer", request_id="r1") as one:
            await one.intent()
            reached.set()
            await asyncio.Event().wait()

    async def main() -> None:
        reached = asyncio.Event()
        task = asyncio.create_task(request(reached))
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert [(event.phase, event.outcome) for event in read_all(log)] == [("intent", None), ("outcome", "aborted")]


def test_a_task_cancelled_while_its_intent_is_being_written_leaves_a_pair(
    trail: AuditTrail, log: AuditLog, ana: Principal, read_all: ReadAll
) -> None:
    """Intent and outcome then wait in one queue, and the outcome must still know the number of its intent."""
    started, go_on = threading.Event(), threading.Event()
    log.subjects.seal("u_x", {"warm": "up"})
    seal = log.subjects.seal

    def slow_seal(*arguments: object) -> object:
        started.set()
        go_on.wait(10)
        return seal(*arguments)  # type: ignore[arg-type]

    log.subjects.seal = slow_seal  # type: ignore[assignment, method-assign]

    async def request(name: str) -> None:
        async with trail.open(ana, action="answer", request_id=name) as one:
            await one.intent()

    async def main() -> None:
        tasks = [asyncio.create_task(request(f"r{number}")) for number in range(3)]
        await asyncio.to_thread(started.wait, 10)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        go_on.set()

    asyncio.run(main())
    events = read_all(log)
    intents = {event.request.id: event.seq for event in events if event.phase == "intent"}
    assert {event.request.id: event.intent for event in events if event.outcome == "aborted"} == intents
    assert len(events) == 6
    assert verify(log).ok


def test_a_closed_generator_leaves_an_outcome(
    trail: AuditTrail, log: AuditLog, ana: Principal, read_all: ReadAll
) -> None:
    async def stream() -> AsyncIterator[str]:
        async with trail.open(ana, action="answer", request_id="r1") as one:
            await one.intent()
            yield "first"
            yield "second"

    async def main(take: int) -> None:
        pieces = stream()
        for _ in range(take):
            await anext(pieces)
        await pieces.aclose()  # type: ignore[attr-defined]

    asyncio.run(main(1))
    assert [(event.phase, event.outcome) for event in read_all(log)] == [("intent", None), ("outcome", "aborted")]


def test_an_intent_that_cannot_be_durable_releases_nothing(
    trail: AuditTrail, log: AuditLog, ana: Principal, read_all: ReadAll
) -> None:
    released = []

    async def request() -> None:
        async with trail.open(ana, action="answer", request_id="r1") as one:
            await one.intent()
            released.append("answer")

    broken = FailingDatabase(log.database)
    log.database = broken  # type: ignore[assignment]
    with pytest.raises(AuditUnavailable):
        asyncio.run(request())
    assert released == []
    broken.failing = False
    (outcome,) = read_all(log)
    assert (outcome.outcome, outcome.reason, outcome.intent) == ("error", "audit-unavailable", None)
    asyncio.run(request())
    assert released == ["answer"]
    assert verify(log).ok


def test_an_intent_that_is_too_late_is_still_paired(
    trail: AuditTrail, log: AuditLog, ana: Principal, read_all: ReadAll
) -> None:
    async def request() -> None:
        async with trail.open(ana, action="answer", request_id="r1") as one:
            await one.intent()

    log.head()
    log._deadline_s = 0.1
    with locked(log), pytest.raises(AuditUnavailable):
        asyncio.run(request())
    log._deadline_s = 10.0
    events = read_all(log)
    assert [(event.phase, event.outcome) for event in events] in (
        [("intent", None), ("outcome", "error")],
        [("outcome", "error")],
    )
    assert verify(log).ok
    assert verify(log).in_flight == 0


def test_a_refusal_that_cannot_be_recorded_is_unavailable(trail: AuditTrail, log: AuditLog, ana: Principal) -> None:
    async def request() -> None:
        async with trail.open(ana, action="answer", request_id="r1"):
            raise Forbidden("no")

    log._deadline_s = 0.1
    with locked(log), pytest.raises(AuditUnavailable):
        asyncio.run(request())
    log._deadline_s = 10.0
    with pytest.raises(Forbidden):
        asyncio.run(request())


def test_an_outcome_is_recorded_even_where_its_text_cannot_be_sealed(
    trail: AuditTrail, log: AuditLog, ana: Principal, read_all: ReadAll, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_key(*_: object) -> None:
        raise Unavailable("the database is busy")

    async def request() -> None:
        async with trail.open(ana, action="answer", request_id="r1") as one:
            await one.intent()
            monkeypatch.setattr(log.subjects, "seal", no_key)
            one.note(answer="an answer", resources=[Resource(document="d", stage="cited")])

    asyncio.run(request())
    _, outcome = read_all(log)
    assert (outcome.outcome, outcome.intent, outcome.content, outcome.detail) == (
        "allowed", 0, None, {"incomplete": True},
    )  # fmt: skip
    assert verify(log).ok


def test_a_suspended_tenant_keeps_its_log(
    trail: AuditTrail, logs: AuditLogs, tenants: Tenants, ana: Principal, read_all: ReadAll
) -> None:
    tenants.set_status(ana.tenant, "suspended")

    async def request() -> None:
        async with trail.open(ana, action="answer", request_id="r1"):
            tenants.open(ana)

    with pytest.raises(TenantSuspended):
        asyncio.run(request())
    (event,) = read_all(logs.of(ana))
    assert (event.outcome, event.reason, event.log) == ("refused", "tenant-suspended", ana.tenant_id)


def test_a_failed_authentication_goes_to_the_system_log(
    trail: AuditTrail, logs: AuditLogs, ana: Principal, read_all: ReadAll
) -> None:
    async def request() -> None:
        async with trail.open(None, action="authenticate", request_id="r1"):
            raise Unauthenticated("the credential does not verify")

    with pytest.raises(Unauthenticated):
        asyncio.run(request())
    (event,) = read_all(logs.of(None))
    assert (event.log, event.actor.kind, event.actor.ref, event.outcome) == (SYSTEM, "anonymous", None, "refused")
    assert read_all(logs.of(ana)) == []
    assert verify(logs.of(None)).ok


def test_an_operator_without_a_user_is_named_in_ciphertext(
    trail: AuditTrail, log: AuditLog, operator: Principal, read_all: ReadAll
) -> None:
    async def request() -> None:
        async with trail.open(operator, action="tenant.suspend", request_id="r1"):
            pass

    asyncio.run(request())
    (event,) = read_all(log)
    assert (event.actor.kind, event.actor.method, event.outcome) == ("operator", "operator", "allowed")
    assert view(Stored(0, encode(event)), log.subjects)["content"]["user"]["text"] == operator.user


@pytest.mark.parametrize("request_id", ["", "a\nb", "x" * 201, "\ud800"])
def test_a_request_id_that_cannot_be_logged_is_refused(trail: AuditTrail, ana: Principal, request_id: str) -> None:
    with pytest.raises(InvalidInput):
        trail.open(ana, action="answer", request_id=request_id)
    trail.open(ana, action="answer", request_id="x" * 200)
