"""What is asked, what comes back, and what the path of a question needs to work."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import msgspec

from admission.fair import Party
from admission.gate import Gate
from admission.settings import RootSettings
from admission.turns import Desks, Turns
from audit.trail import AuditTrail
from cache.certificate.tally import Tally
from cache.flight import Flights
from cache.ladder import Ladder
from cache.stores.port import CacheStore
from generation.generator import Usage
from generation.prompt import Templates, Turn
from generation.routing import Routes
from indexing.embedding import Embedders
from metering.meter import Tariff
from retrieval.abstain import THRESHOLD
from retrieval.citations import Citation
from retrieval.drift import Drift
from retrieval.passage import Passage
from retrieval.rerank import Reranker
from retrieval.search import Collections, SearchMode
from tenancy.contract import HiddenText, KvSharing, Mixing
from tenancy.errors import Conflict
from tenancy.identity import Principal
from tenancy.tenant import TenantHandle
from tenancy.workers import Lanes, Workers

CacheMode = Literal["default", "bypass", "refresh"]


class Revoked(Conflict):
    """Access to a source, or to the adapter, ended while the answer was being made."""

    code = "revoked"


@dataclass(frozen=True, slots=True)
class Question:
    """A question as the edge received it; `request_id` is 32 hex digits of our own. `None` means: the default.

    `filter` is the JSON of a filter (`indexing.filters`), not yet read: the tenant's contract says what it may name.
    `root` is the caller's own id of a conversation, `signed_root` one that was minted here (`admission.roots`), unread.
    """

    query: str
    request_id: str
    top_k: int | None = None
    mode: SearchMode | None = None
    filter: Mapping[str, Any] | None = None
    template: str | None = None
    model: str | None = None
    adapter: str | None = None
    max_tokens: int | None = None
    cache: CacheMode | None = None
    history: tuple[Turn, ...] = ()
    feature: str | None = None
    root: str | None = None
    signed_root: str | None = None


@dataclass(frozen=True, slots=True)
class CacheReport:
    """What the asker learns of the cache: no similarity, and `age_s` only coarsely (whole minutes, hours, days).

    A colleague of the same domain must not read out what others asked. `cached_from` is the random id of the entry,
    by which feedback and the audit name it.
    """

    status: Literal["hit", "miss", "bypass", "refresh"]
    kind: Literal["exact", "semantic"] | None = None
    age_s: int | None = None
    cached_from: str | None = None
    certified: Literal["certified", "uncertified"] | None = None
    stored: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """A finished answer. `audit_seq` is its intent in the tenant's log; `rewritten` how a follow-up was understood.

    `warnings` are codes of what its asker should know: passages of other reader classes were left out, a source speaks
    to the model, links were taken out, older turns of the conversation were cut.
    """

    text: str
    citations: tuple[Citation, ...]
    finish: Literal["stop", "length", "budget", "abstain"]
    model: str
    rewritten: str | None
    nearest_titles: tuple[str, ...]
    cache: CacheReport
    usage: Usage
    audit_seq: int
    request_id: str
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Delta:
    """The next characters of the answer, not yet verified."""

    text: str


@dataclass(frozen=True, slots=True)
class Done:
    """The last event: the answer as a whole, its citations verified."""

    answer: Answer


AnswerEvent = Delta | Done


@dataclass(frozen=True, slots=True)
class Retrieved:
    """Passages, best first, of the question as it was understood. `audit_seq` is the intent in the tenant's log."""

    asked: str
    passages: tuple[Passage, ...]
    audit_seq: int
    request_id: str


@dataclass(frozen=True, slots=True)
class PathSettings:
    """`context_tokens` bounds the sources of a prompt, `deadline_s` one generation; `threshold` is the least strength
    of evidence that is answered from.
    """

    top_k: int = 8
    mode: SearchMode = "hybrid"
    threshold: float = THRESHOLD
    context_tokens: int = 3_000
    max_tokens: int = 512
    deadline_s: float = 120.0
    recheck_s: float = 2.0
    cache_enabled: bool = True
    kv_sharing: KvSharing = "domain"
    mixing: Mixing = "separate"
    hidden: HiddenText = "mark"
    roots: RootSettings = field(default_factory=RootSettings)

    @property
    def revision(self) -> str:
        """Equal settings have equal revisions, in every process."""
        return f"config-{hashlib.sha256(msgspec.json.encode(self, order='sorted')).hexdigest()[:16]}"


class Opens(Protocol):
    """Opens the tenant of a principal: `tenancy.control.Tenants`, or for measuring `evaluation.trial`."""

    def open(self, principal: Principal) -> TenantHandle:
        """See `Tenants.open`."""
        ...


@dataclass(frozen=True, slots=True)
class AnswerPath:
    """The services along the path. What may have to wait for a server engine runs on the engine's lane.

    Embedding and search wait for their turn at `desks`, before they take a thread.
    """

    tenants: Opens
    workers: Workers
    lanes: Lanes
    collections: Collections
    embedders: Embedders
    routes: Routes
    templates: Templates
    cache: CacheStore
    trail: AuditTrail
    admission: Gate
    settings: PathSettings = PathSettings()
    ladder: Ladder = field(default_factory=Ladder)
    tariff: Tariff = field(default_factory=Tariff)
    flights: Flights = field(default_factory=Flights)
    tally: Tally = field(default_factory=Tally)
    drift: Drift = field(default_factory=Drift)
    desks: Desks = field(default_factory=lambda: Desks(Turns(8)))
    reranker: Reranker | None = None
    judge: Reranker | None = None

    def turn(
        self, principal: Principal, tenant: TenantHandle, engine: str | None = None
    ) -> AbstractAsyncContextManager[None]:
        """The user's turn at the threads that embed and search, or at those for the server `engine`."""
        desk = self.desks.shared if engine is None else self.desks.of(engine)
        return desk.turn(Party(principal.tenant_id, principal.user_id, float(tenant.contract.weight), principal.work))


def coarse_age(seconds: float) -> int:
    """`seconds` rounded down to whole days, hours or minutes, whichever is the largest that fits; else 0."""
    for unit in (86_400, 3_600, 60):
        if seconds >= unit:
            return int(seconds // unit) * unit
    return 0
