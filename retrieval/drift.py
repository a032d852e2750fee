"""What kind of questions a tenant gets, in sums: no text, and no vector of one question alone.

Of each question that was searched for: its vector, the similarity of the best passage, the strength of the evidence,
and whether nothing was found. They are added up in memory, and written to the tenant's own database when `LEAST`
questions wait, so that no row, and no difference of two states of a row, is of fewer. What a crash loses is not missed.

A sum of twenty vectors tells of their common subject. It lies where the tenant's documents and their vectors lie, under
the same key, and is deleted with them.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np
import numpy.typing as npt
from sqlalchemy import delete, insert, select

from indexing.embed import Fingerprint
from tenancy.quality_schema import question_days
from tenancy.tenant import TenantHandle, WriteView

if TYPE_CHECKING:
    from retrieval.question import Answer, AnswerPath
    from retrieval.search import Passages
    from retrieval.sources import Gathered
    from retrieval.steps import AskedVector

LEAST: Final = 20
"""So many questions are written together, and never fewer."""

DAY_S: Final = 86_400
DAYS_KEPT: Final = 400
UNCOUNTED: Final = frozenset({"evaluation"})
"""Features whose questions are nobody's."""

_COMPARED: Final = ("compared", "similarity", "similarity_square")
_ASKED: Final = ("asked", "retries", "abandoned")
_TOLD: Final = ("told", "edited")
"""Sums that are of fewer than all questions, by their counts: each waits for twenty of its own."""

_logger: Final = logging.getLogger(__name__)


class Noted(msgspec.Struct, frozen=True):
    """One question as it is added up; `similarity` is None where the dense leg found nothing."""

    model: str
    vector: npt.NDArray[np.float32]
    similarity: float | None
    strength: float
    found: bool


class Waiting:
    """Sums of the questions of one tenant, with one embedding model, that wait to be written."""

    def __init__(self, dimension: int) -> None:
        self.sums: Counter[str] = Counter()
        self.total = np.zeros(dimension, dtype=np.float64)

    def add(self, noted: Noted) -> None:
        self.sums.update({
            "questions": 1,
            "declined": int(not noted.found),
            "strength": noted.strength,
            "strength_square": noted.strength**2,
        })  # fmt: skip
        if noted.similarity is not None:
            self.sums.update({
                "compared": 1,
                "similarity": noted.similarity,
                "similarity_square": noted.similarity**2,
            })  # fmt: skip
        self.total += noted.vector


class Drift:
    """What waits, by tenant. Thread-safe."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[str, Waiting]] = {}
        self._told: dict[str, Counter[str]] = {}
        self._lock = threading.Lock()

    def add(self, tenant: TenantHandle, noted: Noted) -> bool:
        """Add one question; returns whether so many wait that they should be written now."""
        with self._lock:
            models = self._waiting.setdefault(tenant.tenant_id, {})
            waiting = models.setdefault(noted.model, Waiting(len(noted.vector)))
            waiting.add(noted)
            return waiting.sums["questions"] >= LEAST

    def tell(self, tenant_id: str, **counts: int) -> None:
        """Count what its users did: `retries`, `abandoned`, `told`, `edited`, of so many `asked`."""
        with self._lock:
            self._told.setdefault(tenant_id, Counter()).update(counts)

    def take(self, tenant: TenantHandle) -> tuple[dict[str, Waiting], Counter[str]]:
        """What is enough to be written, by model, with what was told; both are for the caller to write."""
        with self._lock:
            models = self._waiting.get(tenant.tenant_id, {})
            taken = {name: one for name, one in models.items() if one.sums["questions"] >= LEAST}
            for name, one in taken.items():
                del models[name]
                if left := _kept_back(one.sums, _COMPARED):
                    models[name] = Waiting(len(one.total))
                    models[name].sums = left
            if not models:
                self._waiting.pop(tenant.tenant_id, None)
            told = self._told.pop(tenant.tenant_id, Counter()) if taken else Counter()
            if left := Counter(_kept_back(told, _ASKED) | _kept_back(told, _TOLD)):
                self._told[tenant.tenant_id] = left
            return taken, told

    def forget(self, tenant_id: str) -> None:
        """Drop what waits of a tenant that was deleted."""
        with self._lock:
            self._waiting.pop(tenant_id, None)
            self._told.pop(tenant_id, None)


def _kept_back(sums: Counter[str], names: Sequence[str]) -> Counter[str]:
    """Take `names` out of `sums` where the first of them, their count, is of fewer than `LEAST`; returns them."""
    if sums[names[0]] >= LEAST:
        return Counter()
    return Counter({name: sums.pop(name) for name in names if name in sums})


def noted(asked: AskedVector, found: Passages, gathered: Gathered, finished: Answer) -> Noted:
    """What is added up of one question."""
    return Noted(
        model=model_key(asked.embedder.fingerprint),
        vector=asked.vector,
        similarity=found.similarity,
        strength=gathered.evidence.strength,
        found=finished.finish != "abstain",
    )


def model_key(fingerprint: Fingerprint) -> str:
    """A short name of an embedding model: vectors of two are never added up."""
    return hashlib.sha256(msgspec.json.encode(fingerprint, order="sorted")).hexdigest()[:16]


async def note(path: AnswerPath, tenant: TenantHandle, feature: str | None, noted: Noted) -> None:
    """Add a question, and write what waits where it is enough. A failure is logged, and the answer stands."""
    if feature in UNCOUNTED or not path.drift.add(tenant, noted):
        return
    try:
        await path.workers.run(write, path.drift, tenant, path.cache.clock())
    except Exception as error:  # noqa: BLE001  the answer is finished, and owes nothing to these sums
        _logger.warning("what kind of questions there are could not be written: %s", type(error).__name__)


def write(drift: Drift, tenant: TenantHandle, now: float) -> None:
    """Write what waits of `tenant` in one transaction, under the day of `now` (UTC epoch seconds)."""
    taken, told = drift.take(tenant)
    if not taken:
        return
    with tenant.writing() as view:
        for number, (model, waiting) in enumerate(taken.items()):
            if number == 0:
                waiting.sums.update(told)
            _add(view, int(now // DAY_S), model, waiting)
        view.execute(delete(question_days).where(question_days.c.day < now // DAY_S - DAYS_KEPT))


def _add(view: WriteView, day: int, model: str, waiting: Waiting) -> None:
    key = (question_days.c.day == day) & (question_days.c.model == model)
    row = view.execute(select(question_days).where(key)).one_or_none()
    sums, total = Counter(waiting.sums), waiting.total
    if row is not None:
        sums.update(row.sums)
        total = total + np.frombuffer(row.total, dtype="<f4")
        view.execute(delete(question_days).where(key))
    values = {"day": day, "model": model, "sums": dict(sums), "total": total.astype("<f4").tobytes()}
    view.execute(insert(question_days).values(values))
