"""Whether a tenant's questions have changed: the last days against those before, from sums alone (`retrieval.drift`).

For means and shares a difference is held against its standard error (`z`); three of them are remarkable. For the
questions' vectors, the squared distance of both mean vectors is divided by what it would be without any change,
(1 - |m|^2)(1/n1 + 1/n2) for unit vectors with the mean m. That ratio is about 1 without a change, and above 2 with one
that is worth a look: its own spread is sqrt(2/d) for d directions that questions vary in, some dozens.

Days are not independent draws, so that weekly rhythms and single eager users also show.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
from sqlalchemy import select

from tenancy.errors import InvalidInput
from tenancy.quality_schema import question_days
from tenancy.tenant import ReadView

REMARKABLE_Z: Final = 3.0
REMARKABLE_RATIO: Final = 2.0
LEAST_QUESTIONS: Final = 40
"""In each of both spans; with fewer nothing is called remarkable."""


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """The days from `since` up to `until` (UTC, days since 1970-01-01, without the last), in numbers. Shares of
    `asked` questions: `retry_rate`, `abandon_rate`; of `told` answers: `edit_rate`.
    """

    since: int
    until: int
    questions: int
    similarity: float | None
    strength: float | None
    declined: float | None
    asked: int
    told: int
    retry_rate: float | None
    abandon_rate: float | None
    edit_rate: float | None


class Shift(msgspec.Struct, frozen=True, kw_only=True):
    """One figure in both spans; `z` is the difference in standard errors, or for `questions` the ratio of distances."""

    figure: str
    before: float | None
    after: float | None
    z: float | None
    remarkable: bool


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """`enough` says whether both spans have so many questions that something may be said."""

    recent: Span
    reference: Span
    enough: bool
    shifts: tuple[Shift, ...]


class _Sums:
    def __init__(self) -> None:
        self.sums: Counter[str] = Counter()
        self.totals: dict[str, npt.NDArray[np.float64]] = {}
        self.counts: Counter[str] = Counter()


def report(view: ReadView, today: int, recent: int = 7, reference: int = 28) -> Report:
    """The last `recent` days, today included, against the `reference` days before. Raises `InvalidInput`."""
    if not (1 <= recent <= 200 and 1 <= reference <= 200):
        raise InvalidInput("a span has 1 to 200 days", item="days")
    begun = today + 1 - recent
    before, after = _sums(view, begun - reference, begun), _sums(view, begun, today + 1)
    enough = min(before.sums["questions"], after.sums["questions"]) >= LEAST_QUESTIONS
    shifts = [
        _mean("similarity", "compared", before, after),
        _mean("strength", "questions", before, after),
        _share("declined", "questions", before, after),
        _share("retries", "asked", before, after),
        _share("abandoned", "asked", before, after),
        _share("edited", "told", before, after),
        _distance(before, after),
    ]
    if not enough:
        shifts = [msgspec.structs.replace(shift, remarkable=False) for shift in shifts]
    return Report(
        recent=_span(after, begun, today + 1),
        reference=_span(before, begun - reference, begun),
        enough=enough,
        shifts=tuple(shifts),
    )


def _sums(view: ReadView, since: int, until: int) -> _Sums:
    found = _Sums()
    rows = view.execute(select(question_days).where(question_days.c.day >= since, question_days.c.day < until))
    for row in rows:
        found.sums.update(row.sums)
        total = np.frombuffer(row.total, dtype="<f4").astype(np.float64)
        found.totals[row.model] = found.totals.get(row.model, np.zeros(len(total))) + total
        found.counts[row.model] += int(row.sums.get("questions", 0))
    return found


def _span(found: _Sums, since: int, until: int) -> Span:
    sums = found.sums
    return Span(
        since=since,
        until=until,
        questions=int(sums["questions"]),
        similarity=_rate(sums["similarity"], sums["compared"]),
        strength=_rate(sums["strength"], sums["questions"]),
        declined=_rate(sums["declined"], sums["questions"]),
        asked=int(sums["asked"]),
        told=int(sums["told"]),
        retry_rate=_rate(sums["retries"], sums["asked"]),
        abandon_rate=_rate(sums["abandoned"], sums["asked"]),
        edit_rate=_rate(sums["edited"], sums["told"]),
    )


def _mean(name: str, of: str, before: _Sums, after: _Sums) -> Shift:
    """A difference of means by Welch's standard error."""
    means, errors = [], 0.0
    for one in (before, after):
        count = one.sums[of]
        if count < 2:
            return _shift(
                name, _rate(before.sums[name], before.sums[of]), _rate(after.sums[name], after.sums[of]), None
            )
        mean = one.sums[name] / count
        means.append(mean)
        errors += max(0.0, one.sums[f"{name}_square"] / count - mean**2) / (count - 1)
    return _shift(name, means[0], means[1], _ratio(means[1] - means[0], math.sqrt(errors)))


def _share(name: str, of: str, before: _Sums, after: _Sums) -> Shift:
    """A difference of shares by the pooled standard error."""
    shares = [_rate(one.sums[name], one.sums[of]) for one in (before, after)]
    counts = [one.sums[of] for one in (before, after)]
    if shares[0] is None or shares[1] is None:
        return _shift(name, shares[0], shares[1], None)
    pooled = (before.sums[name] + after.sums[name]) / sum(counts)
    error = math.sqrt(pooled * (1 - pooled) * (1 / counts[0] + 1 / counts[1]))
    return _shift(name, shares[0], shares[1], _ratio(shares[1] - shares[0], error))


def _distance(before: _Sums, after: _Sums) -> Shift:
    """How far the mean vector moved, for the model with most questions in both spans."""
    shared: Sequence[str] = sorted(before.totals.keys() & after.totals.keys())
    if not shared:
        return Shift(figure="questions", before=None, after=None, z=None, remarkable=False)
    model = max(shared, key=lambda name: min(before.counts[name], after.counts[name]))
    counts = before.counts[model], after.counts[model]
    means = before.totals[model] / counts[0], after.totals[model] / counts[1]
    pooled = (before.totals[model] + after.totals[model]) / sum(counts)
    spread = max(1e-9, 1 - float(pooled @ pooled)) * (1 / counts[0] + 1 / counts[1])
    moved = means[1] - means[0]
    ratio = float(moved @ moved) / spread
    lengths = [round(float(np.linalg.norm(mean)), 4) for mean in means]
    return Shift(
        figure="questions",
        before=lengths[0],
        after=lengths[1],
        z=round(ratio, 2),
        remarkable=ratio >= REMARKABLE_RATIO,
    )


def _shift(name: str, before: float | None, after: float | None, z: float | None) -> Shift:
    return Shift(
        figure=name,
        before=None if before is None else round(before, 4),
        after=None if after is None else round(after, 4),
        z=None if z is None else round(z, 2),
        remarkable=z is not None and abs(z) >= REMARKABLE_Z,
    )


def _ratio(difference: float, error: float) -> float:
    if error:
        return difference / error
    return 0.0 if not difference else math.copysign(99.0, difference)


def _rate(part: float, whole: float) -> float | None:
    return part / whole if whole else None
