"""A hit that was drawn: answered afresh in place of being served, then compared with what would have been served.

The asker gets the fresh answer. What the comparison finds is recorded in the tenant's database before the answer's
last event, and a failure to record it takes nothing from the answer. A wrong entry is removed, and its pair of
questions never meets again. What becomes of the label, whatever becomes of the question:

    answered, or found in no document      compared by the judge: same or wrong
    cut short, or could not be compared    missing: counts against a certificate and not for a suspension
    its asker left, or access was revoked  missing
    the service failed                     unanswered: counted apart, no label

An asker who leaves while the comparison waits or runs does not end it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Final, Self

from audit.record import Detail
from cache.certificate import evidence, negatives, reports
from cache.certificate.counts import Label
from cache.certificate.evidence import Judged, Place
from cache.certificate.judge import Cited, Judgement, Statement, excluded, judge
from cache.decision import Asked, Hit, Miss, Would
from cache.entry import sealed
from cache.standing import Standing
from retrieval.citations import Citation
from retrieval.question import Answer, AnswerPath, Revoked
from retrieval.remembered import stored_answer
from retrieval.steps import Asking
from tenancy.directory import exists
from tenancy.errors import StrongroomError
from tenancy.tenant import TenantHandle

_logger: Final = logging.getLogger(__name__)

_UNCOMPARED: Final = frozenset({"cut short", "comparison failed"})
"""Reasons that say nothing about the entry: the label is missing."""


@dataclass(frozen=True, slots=True)
class _Draw:
    """A question whose answer is to be compared."""

    asked: Asked
    would: Would
    standing: Standing
    user_id: str

    @property
    def place(self) -> Place:
        return Place(self.asked.template, self.standing.ladder, self.asked.space, self.asked.policy.alpha)


class _Label:
    """The one label of a draw: the first that is recorded stands."""

    def __init__(self, path: AnswerPath, tenant: TenantHandle, draw: _Draw) -> None:
        self.draw = draw
        self.done = False
        self._path, self._tenant = path, tenant
        self._lock = threading.Lock()

    def compare(self, finished: Answer) -> Judgement:
        """Judge, record, and keep or remove the entry."""
        found = _judged(self.draw, finished)
        if found.reason in _UNCOMPARED:
            self.record("missing", found.reason)
            return found
        self.record("wrong" if found.wrong else "same", found.reason)
        entry, cache = self.draw.would.entry, self._path.cache
        if found.wrong:
            cache.discard(self._tenant, entry)
        else:
            cache.confirm(self._tenant, sealed(self._tenant, replace(entry, confirmed=entry.confirmed + 1)))
        return found

    def record(self, label: Label, reason: str) -> None:
        with self._lock:
            if not self.done:
                _record(self._path, self._tenant, self.draw, label, reason)
                self.done = True


class Comparison:
    """Around the making of a fresh answer; does nothing for a question that was not drawn.

    Leave the block with an answer given to `compare`, or with an exception: then the label is missing or unanswered.
    """

    def __init__(self, asking: Asking, asked: Asked, found: Miss) -> None:
        self._asking = asking
        self._label: _Label | None = None
        if found.would is not None and found.standing is not None and found.would.purpose != "none":
            draw = _Draw(asked, found.would, found.standing, asking.principal.user_id)
            self._label = _Label(asking.path, asking.tenant, draw)

    async def compare(self, finished: Answer) -> None:
        """Compare, record, and note on the trail what was found."""
        label = self._label
        if label is None:
            return
        with self._asking.hop("compare"):
            found = await self._kept(label, self._compared(label, finished))
        if found is not None:
            would = label.draw.would
            detail: dict[str, Detail] = {
                "compared": would.purpose,
                "compared_entry": would.entry.id,
                "comparison": found.reason or "same",
            }
            self._asking.trail.note(detail=detail)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        label = self._label
        if label is None or error is None or label.done:
            return
        left = isinstance(error, asyncio.CancelledError | GeneratorExit | Revoked)
        said: Label = "missing" if left else "unanswered"
        await self._kept(label, self._recorded(label, said, "left" if left else "failed"))

    async def _kept(self, label: _Label, work: Coroutine[Any, Any, Judgement | None]) -> Judgement | None:
        """Wait for `work`, also where the asker leaves meanwhile; whoever is told twice to end records at once."""
        task = asyncio.ensure_future(work)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            try:
                await asyncio.wait({task})
            except asyncio.CancelledError:
                task.cancel()
                _tried(label, "missing", "left")
            raise

    async def _compared(self, label: _Label, finished: Answer) -> Judgement | None:
        try:
            return await self._asking.path.workers.run(label.compare, finished)
        except Exception as error:  # noqa: BLE001  the answer is finished, and owes nothing to its comparison
            _logger.warning("a comparison did not end well: %s", type(error).__name__)
            await self._recorded(label, "missing", "not compared")
            return None

    async def _recorded(self, label: _Label, said: Label, reason: str) -> None:
        """In a thread of its own: a pool that is full is one of the reasons to be here."""
        await asyncio.to_thread(_tried, label, said, reason)


async def count_hit(asking: Asking, asked: Asked, hit: Hit) -> None:
    """Count a semantic hit that is being served; written with others, now and then."""
    if hit.standing is None:
        return
    path, tenant = asking.path, asking.tenant
    if path.tally.add(tenant, (asked.template, hit.standing.ladder, asked.space)):
        try:
            await path.workers.run(write_hits, path, tenant)
        except StrongroomError as error:
            _logger.warning("served hits could not be counted: %s", error.code)


def write_hits(path: AnswerPath, tenant: TenantHandle) -> None:
    """Write the served hits of `tenant` that wait; they go on waiting where that fails."""
    hits = path.tally.take(tenant)
    try:
        with tenant.writing() as view:
            evidence.add_hits(view, hits, path.cache.clock(), records=path.cache.policy.records)
    except BaseException:
        path.tally.put_back(tenant, hits)
        raise


def _tried(label: _Label, said: Label, reason: str) -> None:
    try:
        label.record(said, reason)
    except Exception as error:  # noqa: BLE001  what ended the question is what its asker hears of
        _logger.warning("a label could not be recorded: %s", type(error).__name__)


def _judged(draw: _Draw, finished: Answer) -> Judgement:
    if finished.finish == "abstain":
        return Judgement(True, "not in the documents")
    if finished.finish != "stop":
        return Judgement(True, "cut short")
    text, citations = stored_answer(draw.would.entry)
    return judge(_statement(finished.text, finished.citations), _statement(text, citations))


def _statement(text: str, citations: tuple[Citation, ...]) -> Statement:
    return Statement(text, tuple(Cited(one.document, one.version, one.start, one.end, one.quote) for one in citations))


def _record(path: AnswerPath, tenant: TenantHandle, draw: _Draw, label: Label, reason: str) -> None:
    """One transaction: the label, the pair that must not meet again, the wrong entry, and the hits that wait."""
    purpose = draw.would.purpose
    if purpose == "none":
        return
    entry, now, records = draw.would.entry, path.cache.clock(), path.cache.policy.records
    wrong = label == "wrong"
    kept_apart = wrong and excluded(draw.asked.question, entry.question)
    hits = path.tally.take(tenant)
    try:
        with tenant.writing() as view:
            evidence.add_hits(view, hits, now, records=records)
            # Of somebody who was deleted meanwhile nothing new is written down.
            asker = reports.asker_of(tenant, draw.user_id).hex() if exists(view, draw.user_id) else ""
            judged = Judged(purpose, label, reason, entry.id, kept_apart, asker)
            evidence.record(view, draw.place, judged, now, records=records)
            if wrong:
                pair = negatives.pair_of(tenant, draw.asked.question, entry.question)
                negatives.add(view, pair, source="shadow", now=now, records=records)
                negatives.refuse(view, entry.id, now=now, records=records)
                # What an asker said of the same pair is confirmed by it.
                reports.weigh(view, draw.place, now)
    except BaseException:
        path.tally.put_back(tenant, hits)
        raise
