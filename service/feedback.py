"""What askers say of their own answers. It may remove an entry; it never certifies, and suspends nothing alone.

One person's word removes an entry and keeps a pair apart. A template is suspended by reports that the judge or an
operator confirmed (`cache.certificate.reports`), and each person counts once for a pair.

An answer is found by its audit event, under the id of its request. Another person's answer and one that never was look
the same from outside.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from sqlalchemy import delete, insert, select

from audit.log import AuditLog
from audit.query import Filters, query_log
from audit.record import CacheUse, Detail, Event, decode
from audit.trail import Trail
from cache.certificate import evidence, negatives, reports, retention
from cache.certificate.evidence import Judged, Place
from cache.stores.selector import Selector
from retrieval.question import AnswerPath
from tenancy.cache_schema import cache_feedback
from tenancy.directory import exists
from tenancy.errors import InvalidInput, NotFound
from tenancy.identity import Principal
from tenancy.tenant import WriteView

Verdict = Literal["wrong_hit", "wrong_answer", "edited", "good"]

_RELEASED: Final = frozenset({"allowed", "aborted"})


@dataclass(frozen=True, slots=True)
class Told:
    """`removed`: a remembered answer was taken out of the cache."""

    removed: bool


@dataclass(frozen=True, slots=True)
class _Served:
    """A hit that its asker calls wrong. `pair` and `place` are those of a semantic one."""

    entry: str
    pair: bytes | None
    place: Place | None


@dataclass(frozen=True, slots=True)
class _Said:
    """`reporter`: the asker, as a keyed hash."""

    answer: str
    verdict: Verdict
    reporter: bytes


def tell(path: AnswerPath, principal: Principal, trail: Trail, answer_id: str, verdict: Verdict) -> Told:
    """Record `verdict` about the answer of request `answer_id`; the last one stands, but a `wrong_hit` for good.

    Raises `NotFound` unless the answer is the principal's own, `InvalidInput` for a `wrong_hit` that was no hit.
    """
    tenant = path.tenants.open(principal)
    event = _own_answer(trail.log, principal, answer_id)
    served = _served(path, event) if verdict == "wrong_hit" else None
    detail: dict[str, Detail] = {"answer": answer_id, "verdict": verdict}
    if served is not None:
        detail["entry"] = served.entry
    trail.note(detail=detail)
    hits = path.tally.take(tenant)
    now, records = path.cache.clock(), path.cache.policy.records
    try:
        with tenant.writing() as view:
            evidence.add_hits(view, hits, now, records=records)
            if not exists(view, principal.user_id):
                raise NotFound("you have no such answer", item="answer_id")
            said = _Said(answer_id, verdict, reports.asker_of(tenant, principal.user_id))
            new = _note(view, said, served, now)
            retention.keep(view, cache_feedback, records)
            if new and served is not None:
                _report(view, trail, served, now, counts=new == "pair", records=records)
    except BaseException:
        path.tally.put_back(tenant, hits)
        raise
    # After the pair is kept apart: were it the other way round, a crash could leave the entry to come back.
    removed = served is not None and path.cache.invalidate(tenant, Selector(entry=served.entry)) > 0
    trail.note(detail={"removed": removed})
    return Told(removed)


def _own_answer(log: AuditLog, principal: Principal, answer_id: str) -> Event:
    """The intent that announced what the asker got."""
    found = query_log(log, Filters(request=answer_id, action="answer", order="asc"))
    events = [decode(stored.payload) for stored in found.events]
    ended = {event.intent: event.outcome for event in events if event.phase == "outcome"}
    mine = log.subjects.ref(principal.user_id)
    intents = [
        event
        for event in events
        if event.phase == "intent" and event.actor.ref == mine and ended.get(event.seq) in _RELEASED
    ]
    if not intents or not principal.user_id:
        raise NotFound("you have no such answer", item="answer_id", remedy="use the request_id of an answer of yours")
    return intents[-1]


def _served(path: AnswerPath, event: Event) -> _Served:
    use = event.cache
    if use is None or use.status != "hit" or use.entry is None:
        raise InvalidInput(
            "this answer was made afresh, so that it is no wrong hit", item="verdict", remedy="say wrong_answer"
        )
    pair, template = event.detail.get("pair"), event.detail.get("template")
    place = None
    if isinstance(template, str):
        place = _place(path, use, template)
    return _Served(use.entry, bytes.fromhex(pair) if isinstance(pair, str) else None, place)


def _place(path: AnswerPath, use: CacheUse, template: str) -> Place:
    return Place(template, use.rules or "", use.namespace or "", path.cache.policy.of(template).alpha)


def _note(view: WriteView, said: _Said, served: _Served | None, now: float) -> Literal["", "answer", "pair"]:
    """Replace what was said of the answer before. A `wrong_hit` counts once: "" where it was said of the answer before,
    "answer" where the same person said it of another answer with the same pair of questions, "pair" where not.
    """
    columns = cache_feedback.c
    before = view.execute(select(columns.verdict).where(columns.answer == said.answer)).scalar_one_or_none()
    if before in ("wrong_hit", said.verdict):
        return ""
    place = None if served is None else served.place
    values = {"template": place.template, "ladder": place.ladder} if place is not None else {}
    pair = None if served is None else served.pair
    known = view.execute(
        select(columns.answer).where(
            columns.reporter == said.reporter,
            columns.pair == pair,
            columns.verdict == "wrong_hit",
            *(columns[name] == value for name, value in values.items()),
        )
    ).first()
    view.execute(delete(cache_feedback).where(columns.answer == said.answer))
    view.execute(
        insert(cache_feedback).values(
            answer=said.answer, at=now, verdict=said.verdict, reporter=said.reporter, pair=pair, **values
        )
    )
    return "pair" if known is None else "answer"


def _report(view: WriteView, trail: Trail, served: _Served, now: float, *, counts: bool, records: int) -> None:
    negatives.refuse(view, served.entry, now=now, records=records)
    if served.pair is not None:
        negatives.add(view, served.pair, source="feedback", now=now, records=records)
    if served.place is None or not counts:
        return
    judged = Judged("feedback", "wrong", "wrong_hit", served.entry)
    evidence.record(view, served.place, judged, now, records=records)
    state = reports.report(view, served.place, now)
    trail.note(detail={"template": served.place.template, "state": state})
