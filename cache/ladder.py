"""Everything that decides about a semantic hit and is fixed while the service runs, and its version.

Evidence about the cache's correctness belongs to one version: whatever changes which hits are served changes it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from random import SystemRandom
from typing import Final, Protocol

from cache.decision import Asked
from cache.guards import RULES_REVISION, Text
from cache.policy import CachePolicy
from tenancy.names import enc

REVISION: Final = "ladder-3"


class Score(Protocol):
    """A calibrated probability that two questions have the same answer. Pure, fast, never raises."""

    @property
    def revision(self) -> str:
        """Names the fitted parameters: another one starts new evidence."""

    @property
    def threshold(self) -> float:
        """The least probability served where the template's policy names none."""

    def fits(self, embedder: str) -> bool:
        """Whether it may judge similarities of the model with this fingerprint (`CompositeIdentity.embedder`)."""

    def probability(self, question: Text, cached: Text, similarity: float, near_misses: tuple[str, ...]) -> float:
        """Between 0 and 1. `similarity` is the cosine of the two; `near_misses` are codes of the guards."""


class Verifier(Protocol):
    """A learned opinion on the pairs that score and contrast alone would refuse. Whatever it raises is a miss."""

    @property
    def revision(self) -> str:
        """Names the weights."""

    @property
    def threshold(self) -> float:
        """The least probability served where the template's policy names none."""

    @property
    def timeout_s(self) -> float:
        """For all the pairs of one question together."""

    def probability(self, question: str, cached: str, *, within_s: float) -> float:
        """Between 0 and 1. Raises, within `within_s`, where it cannot say."""


@dataclass(frozen=True, slots=True)
class Similarity:
    """The plainest score: the cosine itself, which no data has calibrated. It can weigh no near miss, so one is 0."""

    revision: str = "similarity-1"
    threshold: float = 0.5

    def fits(self, embedder: str) -> bool:  # noqa: ARG002 - a port
        return True

    def probability(self, question: Text, cached: Text, similarity: float, near_misses: tuple[str, ...]) -> float:  # noqa: ARG002 - a port
        if near_misses or not similarity > 0:
            return 0.0
        return min(1.0, similarity)


@dataclass(frozen=True, slots=True)
class Ladder:
    """`judge` is the revision of what compares a fresh answer with a stored one; without one nothing is compared, and
    so nothing certified. `random` draws from [0, 1).

    With a verifier, a pair that the score alone would serve is served as without one. One that the score puts lower,
    but at `worth` or above, or that the guard on contrast alone vetoes, is the verifier's to decide; of at most `pairs`
    candidates a question.
    """

    score: Score = Similarity()
    verifier: Verifier | None = None
    worth: float = 0.1
    pairs: int = 2
    judge: str | None = None
    random: Callable[[], float] = SystemRandom().random

    def score_threshold(self, asked: Asked) -> float:
        return self.score.threshold if asked.policy.score is None else asked.policy.score

    def worth_verifying(self, asked: Asked) -> float | None:
        """The least probability of the score that goes before the verifier."""
        return None if self.verifier is None else min(self.worth, self.score_threshold(asked))

    def verifier_threshold(self, asked: Asked) -> float | None:
        if self.verifier is None:
            return None
        return self.verifier.threshold if asked.policy.verified is None else asked.policy.verified

    def version(self, asked: Asked, floor: float | None, policy: CachePolicy) -> str:
        """ "lv_" and 16 hex digits: what decides about semantic hits of `asked`, without who asks what.

        `floor` is the least similarity that an operator's opening serves; `policy` the deployment's, whose times hold
        where the template's own name none, and which says how many candidates are looked at.
        """
        identity, own = asked.identity, asked.policy
        parts = (
            REVISION,
            RULES_REVISION,
            self.score.revision,
            repr(self.score_threshold(asked)),
            None if self.verifier is None else self.verifier.revision,
            None if self.verifier is None else repr(self.verifier_threshold(asked)),
            None if self.verifier is None else repr(self.worth_verifying(asked)),
            None if self.verifier is None else str(self.pairs),
            None if floor is None else repr(floor),
            self.judge,
            str(own.probation),
            repr(float(policy.time_to_live if own.ttl_s is None else own.ttl_s)),
            repr(float(policy.max_staleness if own.max_staleness_s is None else own.max_staleness_s)),
            str(policy.nearest),
            identity.model_revision,
            identity.tokenizer_revision,
            identity.template_revision,
            identity.adapter_revision,
            identity.embedder,
            identity.response_contract,
            identity.retrieval.fusion,
            identity.retrieval.reranker,
            identity.retrieval.chunker,
        )
        return f"lv_{hashlib.sha256(enc(*parts)).hexdigest()[:16]}"
