"""Past hits as the log has them: in order, page by page, with their origins; what is missing has a name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from sqlalchemy import update

from audit import hits
from audit.hits import PastHit, past_hits, pruned, state_of
from audit.log import AuditLog
from audit.record import CacheUse, Resource
from audit.tables import events
from audit.trail import AuditTrail
from tenancy.identity import Principal
from tests.support.people import Company

Answered = Callable[..., int]


@pytest.fixture
def answered(trail: AuditTrail) -> Answered:
    """One question on record; returns the number of its intent."""

    def one(
        principal: Principal,
        question: str | None,
        *,
        origin: int | None = None,
        stays: bool = False,
        action: str = "answer",
    ) -> int:
        async def work() -> int:
            async with trail.open(principal, action=action, request_id="r") as opened:
                if origin is None:
                    opened.note(resources=[Resource(document="a.md", version="v1", chunk="c1", stage="in_prompt")])
                    opened.note(resources=[Resource(document="b.md", version="v2", chunk="c1", stage="retrieved")])
                else:
                    use = CacheUse(status="hit", kind="semantic", entry="ce_1", origin_seq=origin, age_s=5)
                    opened.note(cache=use)
                if question is not None:
                    opened.note(question=question)
                seq = await opened.intent()
                if stays:
                    opened.conclude("revoked")
                return seq

        return asyncio.run(work())

    return one


def found(log: AuditLog, **options: float | str | None) -> list[PastHit]:
    return [hit for page in past_hits(log, state_of(log), **options) for hit in page.served]  # type: ignore[arg-type]


@pytest.mark.both_storages
def test_hits_come_in_order_with_both_questions_and_the_sources_of_the_prompt(
    log: AuditLog, acme: Company, answered: Answered, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hits, "PAGE", 2)
    ana, bo = acme.principal("ana"), acme.principal("bo")
    origin = answered(ana, "How long?")
    served = [answered(bo, f"How long is it, {number}?", origin=origin) for number in range(5)]
    withheld = answered(bo, "Not this one", origin=origin, stays=True)
    pages = list(past_hits(log, state_of(log)))
    assert [hit.event.seq for page in pages for hit in page.served] == served
    assert sum(page.withheld for page in pages) == 1
    assert withheld not in served
    first = found(log)[0]
    assert (first.question, first.cached, first.sources) == ("How long is it, 0?", "How long?", (("a.md", "v1"),))
    assert first.origin is not None
    assert (first.origin.seq, first.missing) == (origin, ())
    assert len(found(log, actor=log.subjects.ref(bo.user_id))) == 5
    assert found(log, actor=log.subjects.ref(ana.user_id)) == []
    times = [hit.event.time for hit in found(log)]
    assert [hit.event.seq for hit in found(log, since=times[2])] == served[2:]
    assert [hit.event.seq for hit in found(log, until=times[2])] == served[:2]
    assert pruned(log, state_of(log), since=times[0]) == 0


def test_what_comes_after_the_state_is_not_read(log: AuditLog, acme: Company, answered: Answered) -> None:
    origin = answered(acme.principal("ana"), "How long?")
    answered(acme.principal("bo"), "How long is it?", origin=origin)
    before = state_of(log)
    answered(acme.principal("bo"), "How long is it then?", origin=origin)
    assert len([hit for page in past_hits(log, before) for hit in page.served]) == 1
    assert len(found(log)) == 2


def test_what_is_missing_has_a_name(log: AuditLog, acme: Company, answered: Answered) -> None:
    ana, bo = acme.principal("ana"), acme.principal("bo")
    origin = answered(ana, "How long?")
    other = answered(ana, "How long?", action="retrieve")
    silent = answered(ana, None)
    for start in (origin, other, silent, 10_000):
        answered(bo, "How long is it?", origin=start)
    absent = ("origin not on record",)
    assert [hit.missing for hit in found(log)] == [(), absent, ("origin without text",), absent]
    log.subjects.destroy(log.subjects.ref(ana.user_id))
    first = found(log)[0]
    assert (first.missing, first.cached, first.question) == (("origin erased",), None, "How long is it?")
    assert first.sources == (("a.md", "v1"),), "ids of documents are no text of a person"
    log.subjects.destroy(log.subjects.ref(bo.user_id))
    assert found(log)[0].missing == ("question erased", "origin erased")
    with log.database.writing() as connection:
        connection.execute(update(events).where(events.c.seq == origin).values(payload=b""))
    assert found(log)[0].missing == ("origin pruned", "question erased")
