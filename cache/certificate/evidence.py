"""Evidence about semantic hits, in the tenant's own database: read with the epochs, written without moving them.

One row for each template and ladder version, one for each namespace in it. Writers of one tenant's database exclude
each other on both back ends, so a row is read, moved and written in one write transaction, and several processes count
into it. What is written here is about hits, never about questions: no text, and of people keyed hashes alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from sqlalchemy import bindparam, delete, func, insert, select, update

from cache.certificate import bound
from cache.certificate.bound import Prior
from cache.certificate.counts import EMPTY, Counts, Label, Needs, Why, is_full
from cache.certificate.retention import ASKER, RECORDS, keep
from cache.openings import Opening
from cache.standing import Standing, State
from tenancy.cache_schema import cache_evidence, cache_judgements, cache_labelled, cache_namespaces
from tenancy.errors import NotFound
from tenancy.names import nfc_name
from tenancy.prepared import Prepared
from tenancy.tenant import ReadView, WriteView

EVERY_LADDER: Final = "*"

_EVIDENCE: Final = cache_evidence.c
_SPACES: Final = cache_namespaces.c
_STANDING: Final = Prepared(
    select(_EVIDENCE.state, _EVIDENCE.n, _EVIDENCE.k, _EVIDENCE.upper, _EVIDENCE.lower, _SPACES.suspended)
    .select_from(
        cache_evidence.outerjoin(
            cache_namespaces,
            (_SPACES.template == _EVIDENCE.template)
            & (_SPACES.ladder == _EVIDENCE.ladder)
            & (_SPACES.namespace == bindparam("space")),
        )
    )
    .where(_EVIDENCE.template == bindparam("named"), _EVIDENCE.ladder.in_([bindparam("version"), EVERY_LADDER]))
    .order_by(_EVIDENCE.ladder)
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a label belongs: `namespace` as the audit names it, `alpha` the template's target."""

    template: str
    ladder: str
    namespace: str
    alpha: float


@dataclass(frozen=True, slots=True)
class Judged:
    """One judgement; only a `uniform` one moves the certificate. `excluded`: of a kind that the guards exclude.
    `asker`: as of `cache.certificate.reports.asker_of`, in hexadecimal; without one nobody's share is counted.
    """

    purpose: Literal["uniform", "probation", "feedback"]
    label: Label
    reason: str
    entry: str
    excluded: bool = False
    asker: str = ""


@dataclass(frozen=True, slots=True)
class EvidenceRecord:
    """One row, as an operator sees it. Times in UTC epoch seconds, None where there is no evidence yet."""

    template: str
    ladder: str
    state: State
    why: str
    began: float | None
    since: float | None
    n: int
    k: int
    upper: float
    lower: float
    missing: int
    unanswered: int
    hits: int
    reports: int
    entries: int
    spread_n: int
    spread_k: int
    restarts: int
    suspended_namespaces: int


def standing(
    view: ReadView, template: str, ladder: str, *, namespace: str, alpha: float, opening: Opening | None
) -> Standing:
    """How semantic hits of `template` stand under `ladder`, for a question of `namespace`.

    The limits are those of the last label; `alpha` is the target of this moment, so that a stricter one holds at once.
    """
    rows = view.rows(_STANDING, {"named": template, "version": ladder, "space": namespace})
    state: State = "uncertified"
    n, k, upper, lower = 0, 0, 1.0, 0.0
    held = False
    for its_state, its_n, its_k, its_upper, its_lower, suspended in rows:
        held = held or its_state == "suspended" or suspended is not None
        if its_n:
            n, k, upper, lower = its_n, its_k, its_upper, its_lower
            # Not by the limit alone: a doubt about recent labels withholds what the limit would allow.
            state = "certified" if its_state == "certified" and upper <= alpha else "uncertified"
    if held or lower > alpha:
        state = "suspended"
    return Standing(state, n, k, upper, lower, alpha, opening, ladder, template)


def record(view: WriteView, place: Place, judged: Judged, now: float, *, records: int = RECORDS) -> Counts:
    """Note one judgement, and let a uniform one move the evidence. Returns what stands then.

    `records` bounds each table that grows with it.
    """
    view.execute(
        insert(cache_judgements).values(
            at=now,
            template=place.template,
            ladder=place.ladder,
            namespace=place.namespace,
            purpose=judged.purpose,
            label=judged.label,
            reason=judged.reason,
            entry=judged.entry,
        )
    )
    keep(view, cache_judgements, records)
    before = counts(view, place)
    if judged.purpose != "uniform":
        return before
    of_entry, of_asker = _labels_of(view, place, judged, before.spread_n, now)
    after = before.after(judged.label, place.alpha, excluded=judged.excluded, of_entry=of_entry, of_asker=of_asker)
    _write(view, place, before, after, now)
    keep(view, cache_labelled, records)
    if judged.label in ("same", "wrong"):
        _count_in_namespace(view, place, wrong=judged.label == "wrong", now=now, records=records)
    return after


def add_hits(view: WriteView, hits: Mapping[tuple[str, str, str], int], now: float, *, records: int = RECORDS) -> None:
    """Add served hits, by (template, ladder, namespace)."""
    for (template, ladder, namespace), number in hits.items():
        place = Place(template, ladder, namespace, 1.0)
        begin(view, place, now)
        _space(view, place, now, records)
        view.execute(update(cache_evidence).where(*_this(place)).values(hits=_EVIDENCE.hits + number))
        view.execute(update(cache_namespaces).where(*_this_space(place)).values(hits=_SPACES.hits + number, at=now))


def add_report(view: WriteView, place: Place, now: float) -> None:
    """Count one hit that its asker called wrong."""
    begin(view, place, now)
    view.execute(update(cache_evidence).where(*_this(place)).values(reports=_EVIDENCE.reports + 1))


def served(view: ReadView, place: Place) -> tuple[int, float] | None:
    """How many hits were served since the evidence began, and when that was; None where there is none."""
    row = view.execute(select(_EVIDENCE.hits, _EVIDENCE.began).where(*_this(place))).one_or_none()
    return None if row is None else (row.hits, row.began)


def suspend(view: WriteView, template: str, now: float) -> None:
    """Serve exact hits only, under every ladder version, until an operator resumes."""
    place = Place(nfc_name(template, "template"), EVERY_LADDER, "", 1.0)
    suspend_at(view, place, "operator", now)


def suspend_at(view: WriteView, place: Place, why: Why, now: float) -> State:
    """Suspend one ladder version of a template."""
    before = begin(view, place, now)
    _write(view, place, before, before.suspended(why), now)
    return "suspended"


def resume(view: WriteView, template: str, now: float) -> int:
    """End every suspension of `template`; evidence that was suspended begins anew. Returns how many ended.

    Raises `NotFound` where nothing was suspended.
    """
    named = nfc_name(template, "template")
    ended = view.execute(
        delete(cache_evidence).where(_EVIDENCE.template == named, _EVIDENCE.ladder == EVERY_LADDER)
    ).rowcount
    held = select(_EVIDENCE.ladder).where(_EVIDENCE.template == named, _EVIDENCE.state == "suspended")
    for ladder in view.execute(held).scalars().all():
        place = Place(named, ladder, "", 1.0)
        before = counts(view, place)
        _write(view, place, before, before.anew("operator"), now)
        ended += 1
    ended += view.execute(
        update(cache_namespaces)
        .where(_SPACES.template == named, _SPACES.suspended.is_not(None))
        .values(n=0, k=0, suspended=None)
    ).rowcount
    if ended == 0:
        raise NotFound("no semantic hits of this template are suspended", item=named)
    return ended


def evidence(view: ReadView) -> list[EvidenceRecord]:
    """All evidence of the tenant, by template, the newest first."""
    held = (
        select(func.count())
        .select_from(cache_namespaces)
        .where(
            _SPACES.template == _EVIDENCE.template,
            _SPACES.ladder == _EVIDENCE.ladder,
            _SPACES.suspended.is_not(None),
        )
        .scalar_subquery()
    )
    columns = [_EVIDENCE[name] for name in EvidenceRecord.__dataclass_fields__ if name != "suspended_namespaces"]
    found = view.execute(select(*columns, held).order_by(_EVIDENCE.template, _EVIDENCE.began.desc()))
    return [EvidenceRecord(*row) for row in found]


def needs(view: ReadView, place: Place) -> Needs | None:
    """What is missing for a certificate of `place` at the least; None where it holds or is suspended."""
    labelled = cache_labelled.c
    rows = view.execute(
        select(labelled.about, labelled.n).where(labelled.template == place.template, labelled.ladder == place.ladder)
    ).all()
    people = [row.n for row in rows if row.about.startswith(ASKER)]
    answers = [row.n for row in rows if not row.about.startswith(ASKER)]
    return counts(view, place).needs(place.alpha, answers, people)


def reasons(view: ReadView, template: str, ladder: str) -> dict[str, int]:
    """How often each reason was given among the judgements that are kept: why stored answers were found wrong."""
    columns = cache_judgements.c
    found = view.execute(
        select(columns.reason, func.count())
        .where(columns.template == template, columns.ladder == ladder, columns.label != "same")
        .group_by(columns.reason)
    )
    return {str(reason): int(number) for reason, number in sorted(found.all())}


def _this(place: Place) -> tuple[Any, Any]:
    return _EVIDENCE.template == place.template, _EVIDENCE.ladder == place.ladder


def _this_space(place: Place) -> tuple[Any, Any, Any]:
    return (
        _SPACES.template == place.template,
        _SPACES.ladder == place.ladder,
        _SPACES.namespace == place.namespace,
    )


def begin(view: WriteView, place: Place, now: float) -> Counts:
    """What stands, with a row for it where there was none."""
    if view.execute(select(_EVIDENCE.ladder).where(*_this(place))).first() is None:
        view.execute(insert(cache_evidence).values(_row(place, EMPTY, now) | {"since": now}))
    return counts(view, place)


def counts(view: ReadView, place: Place) -> Counts:
    """What stands."""
    row = view.execute(select(cache_evidence).where(*_this(place))).one_or_none()
    if row is None:
        return EMPTY
    return Counts(
        state=row.state,
        why=row.why,
        n=row.n,
        k=row.k,
        missing=row.missing,
        unanswered=row.unanswered,
        entries=row.entries,
        spread_n=row.spread_n,
        spread_k=row.spread_k,
        restarts=row.restarts,
        prior=Prior(row.prior_a, row.prior_b),
        bets=tuple(row.bets),
    )


def _row(place: Place, now_so: Counts, began: float) -> dict[str, Any]:
    return {
        "template": place.template,
        "ladder": place.ladder,
        "state": now_so.state,
        "why": now_so.why,
        "began": began,
        "n": now_so.n,
        "k": now_so.k,
        "upper": now_so.upper,
        "lower": now_so.lower,
        "missing": now_so.missing,
        "unanswered": now_so.unanswered,
        "hits": 0,
        "reports": 0,
        "entries": now_so.entries,
        "spread_n": now_so.spread_n,
        "spread_k": now_so.spread_k,
        "restarts": now_so.restarts,
        "prior_a": now_so.prior.a,
        "prior_b": now_so.prior.b,
        "bets": list(now_so.bets),
    }


def _write(view: WriteView, place: Place, before: Counts, after: Counts, now: float) -> None:
    begin(view, place, now)
    values = _row(place, after, now)
    if after.restarts == before.restarts:
        # The same evidence goes on: so do its beginning and what was counted beside it.
        for name in ("began", "hits", "reports"):
            del values[name]
    else:
        view.execute(
            delete(cache_labelled).where(
                cache_labelled.c.template == place.template, cache_labelled.c.ladder == place.ladder
            )
        )
    if after.state != before.state or after.restarts != before.restarts:
        values["since"] = now
    view.execute(update(cache_evidence).where(*_this(place)).values(values))


def _labels_of(view: WriteView, place: Place, judged: Judged, spread_n: int, now: float) -> tuple[int, int]:
    """How many labels of this entry and of this asker were within their shares before this one, which is added if it
    is, too.
    """
    columns = cache_labelled.c
    before = []
    abouts = (f"entry {judged.entry}", f"{ASKER}{judged.asker}")
    for about in abouts:
        this = (columns.template == place.template, columns.ladder == place.ladder, columns.about == about)
        before.append(view.execute(select(columns.n).where(*this)).scalar_one_or_none() or 0)
    of_entry, of_asker = before
    if judged.label == "unanswered" or is_full(of_entry, of_asker, spread_n):
        return of_entry, of_asker
    for about, number in zip(abouts, before, strict=True):
        key = {"template": place.template, "ladder": place.ladder, "about": about}
        this = (columns.template == place.template, columns.ladder == place.ladder, columns.about == about)
        if number:
            view.execute(update(cache_labelled).where(*this).values(n=number + 1, at=now))
        elif about != ASKER:
            view.execute(insert(cache_labelled).values(key | {"n": 1, "at": now}))
    return of_entry, of_asker


def _space(view: WriteView, place: Place, now: float, records: int) -> tuple[int, int]:
    row = view.execute(select(_SPACES.n, _SPACES.k).where(*_this_space(place))).one_or_none()
    if row is not None:
        return row.n, row.k
    key = {"template": place.template, "ladder": place.ladder, "namespace": place.namespace}
    view.execute(insert(cache_namespaces).values(key | {"n": 0, "k": 0, "hits": 0, "suspended": None, "at": now}))
    keep(view, cache_namespaces, records)
    return 0, 0


def _count_in_namespace(view: WriteView, place: Place, *, wrong: bool, now: float, records: int) -> None:
    n, k = _space(view, place, now, records)
    values: dict[str, Any] = {"n": n + 1, "k": k + wrong, "at": now}
    if bound.above(n + 1, k + wrong, place.alpha):
        values["suspended"] = func.coalesce(_SPACES.suspended, now)
    view.execute(update(cache_namespaces).where(*_this_space(place)).values(values))
