"""What the ladder is asked and what it answers: a question as the cache sees it, a hit, a miss, and every reason."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from cache.certificate.shadow import Purpose
from cache.entry import Entry
from cache.guards import RULES_REVISION, Text
from cache.key import CompositeIdentity, Namespace
from cache.policy import TemplatePolicy
from cache.standing import Standing
from cache.verdict import Verdict

__all__ = ["Asked", "Candidate", "Hit", "Miss", "Mode", "Purpose", "Reach", "Reason", "Would"]


class Mode(StrEnum):
    """What the request asks of the cache: use it, leave it alone, or answer afresh and replace what is there."""

    DEFAULT = "default"
    BYPASS = "bypass"
    REFRESH = "refresh"


class Reach(StrEnum):
    """How far an answer may travel.

    SHARED    exact and semantic hits within the permission domain
    EXACT     only the same question again (deictic turns, text without words)
    PRIVATE   only the same question of the same user (it carries personal data)
    NONE      not at all: it asks for an action, its answer depends on the moment, or it is drawn by chance
    """

    SHARED = "shared"
    EXACT = "exact"
    PRIVATE = "private"
    NONE = "none"


class Reason(StrEnum):
    BYPASSED = "bypassed"
    REFRESHED = "refreshed"
    NOT_CACHEABLE = "not cacheable"
    ABSENT = "absent"
    EXACT_ONLY = "exact only"
    WINDOW = "longer than the embedding window"
    UNCERTIFIED = "no certificate, and not opened by an operator"
    SUSPENDED = "suspended: too many wrong hits"
    DRAWN = "drawn for a check"
    PROBATION = "entry on probation"
    BELOW_THRESHOLD = "below the threshold"
    VETOED = "vetoed by a guard"
    KNOWN_NEGATIVE = "reported as a wrong hit before"
    LOW_SCORE = "score too low"
    OTHER_MODEL = "score fitted with another embedding model"
    UNVERIFIED = "refused by the verifier"
    UNASKED = "not put before the verifier: others were, or its time was spent"
    VERIFIER_AWAY = "verifier failed"
    CORRUPT = "corrupt entry"
    OTHER_NAMESPACE = "entry of another namespace"
    EXPIRED = "expired"
    STALE_DOMAIN = "domain of another state"
    CHANGED = "a document changed, went away or is not readable now"
    ASKER_GONE = "the user whose question it answers was deleted"
    GROWN = "documents or access lists moved too long ago"
    GONE = "removed before it was served"
    STORE_AWAY = "cache out of reach"


@dataclass(frozen=True, slots=True)
class Asked:
    """One question as the cache sees it. `reach` says how far its answer may travel, `why` the rule that said so."""

    namespace: Namespace
    exact: bytes
    question: str
    text: Text
    template: str
    mode: Mode
    reach: Reach
    why: str
    identity: CompositeIdentity
    policy: TemplatePolicy

    @property
    def space(self) -> str:
        """The namespace as records name it: equal for equal namespaces, and no key."""
        return f"ns_{self.namespace.value[:16].hex()}"

    @property
    def embedder(self) -> str:
        """The embedding model as records name it: a similarity on record is one of this model."""
        return f"em_{hashlib.sha256(self.identity.embedder.encode()).hexdigest()[:16]}"


@dataclass(frozen=True, slots=True)
class Candidate:
    """An entry that was looked at, and the verdict of every rung that it reached; `reason` is None where all passed.

    For the audit and for `explain`; never for the asker.
    """

    entry_id: str
    similarity: float
    reason: Reason | None
    verdicts: tuple[Verdict, ...] = ()

    @property
    def verdict(self) -> Verdict | None:
        """The one that turned the entry away."""
        return next((verdict for verdict in self.verdicts if not verdict.passed), None)


@dataclass(frozen=True, slots=True)
class Hit:
    """An answer to serve. `similarity` is 1 for an exact hit, which has no score and needs no standing.

    `score` and `verified` are probabilities that both questions have one answer (`verified` None where no
    verifier was asked). `refused` are better candidates that were turned away. `rules` is the ladder's version for a
    semantic hit, the revision of the guards for an exact one. `verdicts` are those on the entry, `steps` those on the
    question and the template.
    """

    entry: Entry
    kind: Literal["exact", "semantic"]
    similarity: float
    age: float
    score: float | None = None
    verified: float | None = None
    standing: Standing | None = None
    refused: tuple[Candidate, ...] = ()
    rules: str = RULES_REVISION
    verdicts: tuple[Verdict, ...] = ()
    steps: tuple[Verdict, ...] = ()

    @property
    def uncertified(self) -> bool:
        return self.standing is not None and self.standing.state != "certified"


@dataclass(frozen=True, slots=True)
class Would:
    """The candidate that would have been served: the first that passed every rung of its own and is off probation, or
    where all that passed are on it, the first of these.

    `purpose` says why to compare it with the fresh answer: `uniform`, drawn for the certificate; `probation`, among
    the first hits of a new entry; `none`: not at all.
    """

    entry: Entry
    similarity: float
    score: float
    purpose: Purpose
    verdicts: tuple[Verdict, ...] = ()


@dataclass(frozen=True, slots=True)
class Miss:
    reason: Reason
    candidates: tuple[Candidate, ...] = ()
    would: Would | None = None
    standing: Standing | None = None
    steps: tuple[Verdict, ...] = ()
