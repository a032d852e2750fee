"""Hits that their askers called wrong: what they may do alone, and what only together with the judge or an operator.

One report keeps a pair of questions apart and takes one answer away (`service.feedback`). It suspends nothing: anybody
can call a right answer wrong, and two can do so together. A report is confirmed where the judge found the same pair
wrong, before or after it, or where an operator looked at it and says so. If even the lower limit of confirmed wrong
hits among the served ones is above the target, the template is suspended. Nothing that is said certifies.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import func, select, update
from sqlalchemy.engine import Connection

from cache.certificate import bound, evidence, negatives
from cache.certificate.evidence import Place
from cache.certificate.retention import ASKER
from cache.policy import CachePolicy
from cache.standing import State
from tenancy.cache_schema import cache_feedback, cache_judgements, cache_labelled, cache_negatives
from tenancy.errors import InvalidInput, NotFound
from tenancy.keys import audit_purpose, keyed_hash
from tenancy.tenant import ReadView, TenantHandle, WriteView

_PURPOSE: Final = "cache-askers"
_SAID: Final = cache_feedback.c
_PAIRS: Final = cache_negatives.c


@dataclass(frozen=True, slots=True)
class Report:
    """A semantic hit that its asker called wrong. `confirmed` by the judge (`shadow`) or an `operator`, None so far by
    nobody. `at` in UTC epoch seconds.
    """

    answer: str
    at: float
    template: str
    ladder: str
    confirmed: str | None


def report(view: WriteView, place: Place, now: float) -> State:
    """Count one report, which stands in `cache_feedback` already. Returns what stands then."""
    evidence.add_report(view, place, now)
    return weigh(view, place, now)


def weigh(view: WriteView, place: Place, now: float) -> State:
    """Suspend `place` where its confirmed reports say so. Returns what stands then."""
    counts, served = evidence.counts(view, place), evidence.served(view, place)
    if served is None:
        return counts.state
    hits, began = served
    wrong = _confirmed(view, place, began)
    if not bound.above(max(hits, wrong), wrong, place.alpha, level=counts.level):
        return counts.state
    return evidence.suspend_at(view, place, "feedback", now)


def confirm(view: WriteView, answer: str, policy: CachePolicy, now: float) -> tuple[Report, State]:
    """An operator's word that the hit with this id was wrong. Returns the report, and what stands then.

    Raises `NotFound` where no asker called this answer a wrong hit, `InvalidInput` for an exact one.
    """
    row = view.execute(select(cache_feedback).where(_SAID.answer == answer, _SAID.verdict == "wrong_hit")).one_or_none()
    if row is None:
        raise NotFound(
            "nobody called this answer a wrong hit",
            item=answer[:64],
            remedy="`strongroom cache reports` lists the answers that were",
        )
    if row.template is None or row.pair is None:
        raise InvalidInput(
            "this answer was the same question's own", item=answer[:64], remedy="only semantic hits have a certificate"
        )
    negatives.add(view, row.pair, source="operator", now=now, records=policy.records)
    state = weigh(view, Place(row.template, row.ladder, "", policy.of(row.template).alpha), now)
    return Report(row.answer, row.at, row.template, row.ladder, "operator"), state


def reports(view: ReadView, *, template: str | None = None, most: int = 1_000) -> list[Report]:
    """Semantic hits that were called wrong, the newest first."""
    found = view.execute(
        select(_SAID.answer, _SAID.at, _SAID.template, _SAID.ladder, _PAIRS.source)
        .select_from(cache_feedback.outerjoin(cache_negatives, _PAIRS.pair == _SAID.pair))
        .where(_SAID.verdict == "wrong_hit", _SAID.template.is_not(None))
        .where(*(() if template is None else (_SAID.template == template,)))
        .order_by(_SAID.at.desc(), _SAID.answer)
        .limit(most)
    )
    return [
        Report(row.answer, row.at, row.template, row.ladder, row.source if row.source in negatives.CONFIRMING else None)
        for row in found
    ]


def asker_of(tenant: TenantHandle, user_id: str) -> bytes:
    """A keyed hash of a person, which tells only whether two labels or reports are of the same one."""
    return keyed_hash(tenant.audit.purpose(_PURPOSE), user_id)


def forget_asker(view: WriteView, user_id: str) -> None:
    """Put random values in place of the hashes of a person who is deleted: what was counted stays counted, and nothing
    tells any more whose it was.
    """
    _forget(view, asker_of(view.tenant, user_id))


def forget_withdrawn(connection: Connection, audit_key: bytes, user_ids: Iterable[str]) -> None:
    """The same in the restored database of a tenant with this audit key, for people who were deleted after the backup;
    the ids of the answers that they reported go too, since they may have been erased.
    """
    for user_id in user_ids:
        known = keyed_hash(audit_purpose(audit_key, _PURPOSE), user_id)
        for answer in connection.execute(select(_SAID.answer).where(_SAID.reporter == known)).scalars().all():
            other = f"erased_{secrets.token_hex(16)}"
            connection.execute(update(cache_feedback).where(_SAID.answer == answer).values(answer=other))
        _forget(connection, known)


def _forget(view: WriteView | Connection, known: bytes) -> None:
    instead, labelled = secrets.token_bytes(32), cache_labelled.c
    view.execute(update(cache_feedback).where(_SAID.reporter == known).values(reporter=instead))
    view.execute(
        update(cache_labelled).where(labelled.about == f"{ASKER}{known.hex()}").values(about=f"{ASKER}{instead.hex()}")
    )


@dataclass(frozen=True, slots=True)
class Unlinked:
    """How many rows told of a person: reports of answers, labels under the person's hash, judgements of answers."""

    feedback: int
    labels: int
    judgements: int


def unlink(view: WriteView, user_id: str, entries: Sequence[str]) -> Unlinked:
    """Take a person out of the evidence, and the remembered answers `entries` to their questions: random values stand
    in the place of hashes and ids, so that what was counted stays counted.
    """
    known, instead = asker_of(view.tenant, user_id), secrets.token_bytes(32)
    said = view.execute(select(_SAID.answer).where(_SAID.reporter == known)).scalars().all()
    for answer in said:
        values = {"reporter": instead, "answer": f"erased_{secrets.token_hex(16)}"}
        view.execute(update(cache_feedback).where(_SAID.answer == answer).values(values))
    labelled, judged = cache_labelled.c, cache_judgements.c
    about = {f"{ASKER}{known.hex()}": f"{ASKER}{instead.hex()}"}
    about |= {f"entry {entry}": f"entry erased_{secrets.token_hex(12)}" for entry in entries}
    labels = judgements = 0
    for before, after in about.items():
        labels += view.execute(update(cache_labelled).where(labelled.about == before).values(about=after)).rowcount
    for entry in entries:
        own = update(cache_judgements).where(judged.entry == entry)
        judgements += view.execute(own.values(entry=f"erased_{secrets.token_hex(12)}")).rowcount
    return Unlinked(len(said), labels, judgements)


def _confirmed(view: ReadView, place: Place, began: float) -> int:
    """Reports since then, one for each person and pair, whose pair was found wrong by somebody else as well."""
    each: Any = (
        select(_SAID.reporter, _SAID.pair)
        .distinct()
        .select_from(cache_feedback.join(cache_negatives, _PAIRS.pair == _SAID.pair))
        .where(
            _SAID.template == place.template,
            _SAID.ladder == place.ladder,
            _SAID.verdict == "wrong_hit",
            _SAID.at >= began,
            _PAIRS.source.in_(negatives.CONFIRMING),
        )
        .subquery()
    )
    return int(view.execute(select(func.count()).select_from(each)).scalar_one())
