"""A set of questions asked on the path of a question itself, each as its asker, past the cache.

So permissions, limits, audit and usage are those of any question; it goes on record as the operator's at the console,
under the feature `evaluation`. One after another, so that times are those of a path without a queue.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec

from evaluation.scores import Scores, Spent, scored, unanswered
from evaluation.sets import Case
from metering.meter import Meter, Tariff
from retrieval.answer import answer, retrieve
from retrieval.question import Answer, AnswerPath, Delta, Question
from tenancy.billing import UsageTerms
from tenancy.errors import (
    AuditUnavailable,
    Conflict,
    InvalidInput,
    LimitExceeded,
    NotFound,
    StrongroomError,
    TenantSuspended,
)
from tenancy.identity import Principal

FEATURE: Final = "evaluation"
LONGEST_WAIT_S: Final = 120.0
"""For a limit that frees itself; what is longer ends the question."""

_PASSAGES_A_DOCUMENT: Final = 5
_MOST_PASSAGES: Final = 100


class Withdrawn(Conflict):
    """A copy of a tenant's data that may not be read any more."""

    code = "withdrawn"


_ENDS: Final = (Withdrawn, TenantSuspended, AuditUnavailable)
"""What ends a run: the same would come of every further question."""

Step = Callable[[int, int], None]
"""Told how many questions are done, of how many."""


@dataclass(frozen=True, slots=True)
class Way:
    """How questions are asked: the path, and the template where it is not the tenant's default. `k` is the depth of
    the ranking in documents.
    """

    path: AnswerPath
    template: str | None = None
    k: int = 10


@dataclass(frozen=True, slots=True)
class _Noting(Tariff):
    """Remembers the meters that it gave."""

    made: list[Meter] = field(default_factory=list)

    def meter(self, terms: UsageTerms) -> Meter:
        made = Tariff.meter(self, terms)
        self.made[:] = [made]
        return made


async def run(
    way: Way, askers: Callable[[str], Principal], cases: Sequence[Case], step: Step = lambda _done, _of: None
) -> list[Scores]:
    """The scores of `cases`, in their order; each has an asker, whose principal `askers` gives.

    What one question ends with is its score, also where its asker went meanwhile. Raises what `askers` raises before
    the first one, and what would end every question alike.
    """
    settings = replace(way.path.settings, cache_enabled=False)
    tariff = _Noting(way.path.tariff.book, way.path.tariff.plan, way.path.tariff.clock)
    way = replace(way, path=replace(way.path, settings=settings, tariff=tariff))
    # All at the beginning, before anything is asked; and again for each question: somebody may go meanwhile.
    for name in {case.asker or "" for case in cases}:
        askers(name)
    found = []
    for number, case in enumerate(cases):
        try:
            principal = askers(case.asker or "")
        except NotFound as error:
            found.append(unanswered(case, error.code))
        else:
            found.append(await _scored(way, tariff, principal, case))
        step(number + 1, len(cases))
    return found


def with_asker(cases: Sequence[Case], asker: str | None) -> list[Case]:
    """`cases` with `asker` where a case names none. Raises `InvalidInput` where there is neither."""
    nameless = sum(case.asker is None for case in cases)
    if asker is None and nameless:
        reason = f"{nameless} of the set's {len(cases)} questions name no asker"
        raise InvalidInput(reason, item="asker", remedy="give --asker for such ones")
    return [case if case.asker else msgspec.structs.replace(case, asker=asker) for case in cases]


async def _scored(way: Way, tariff: _Noting, principal: Principal, case: Case) -> Scores:
    until = time.monotonic() + LONGEST_WAIT_S
    while True:
        try:
            ranked = await _ranked(way, principal, case)
            begun = time.perf_counter()
            answered = await _answered(way, principal, case)
            seconds = time.perf_counter() - begun
        except LimitExceeded as error:
            if time.monotonic() + error.retry_after > until:
                return unanswered(case, error.code)
            await asyncio.sleep(error.retry_after)
        except _ENDS:
            raise
        except StrongroomError as error:
            return unanswered(case, error.code)
        else:
            break
    use = answered.usage
    spent = Spent(
        seconds=round(seconds, 6),
        input_tokens=use.input,
        output_tokens=use.output,
        microunits=sum(meter.microunits for meter in tariff.made),
    )
    return scored(case, ranked, answered, spent, way.k)


async def _ranked(way: Way, principal: Principal, case: Case) -> list[str]:
    """Names of the documents of the best passages; some passages of each, so that `k` documents are among them."""
    top_k = min(_MOST_PASSAGES, _PASSAGES_A_DOCUMENT * way.k)
    question = Question(case.question, secrets.token_hex(16), top_k=top_k, feature=FEATURE)
    found = await retrieve(way.path, principal, question)
    return [passage.document for passage in found.passages]


async def _answered(way: Way, principal: Principal, case: Case) -> Answer:
    question = Question(case.question, secrets.token_hex(16), template=way.template, feature=FEATURE)
    async with aclosing(answer(way.path, principal, question)) as events:
        done = [event.answer async for event in events if not isinstance(event, Delta)]
    if not done:
        raise StrongroomError("the answer path ended without an answer")
    return done[0]
