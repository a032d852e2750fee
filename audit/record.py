"""One audit event, and the exact bytes that the log hashes and stores.

The bytes are canonical JSON: sorted keys, no white space, UTF-8, absent fields left out, numbers whole or rounded to
six decimals, so that every platform writes the same. Text that a person wrote, and the person's name, appear only as
`Sealed`; documents and users otherwise appear as ids or keyed references.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

import msgspec

from tenancy.billing import Basis as Basis
from tenancy.errors import Corrupt, InvalidInput

VERSION: Final = 1
DECIMALS: Final = 6

Phase = Literal["intent", "outcome"]
Outcome = Literal["allowed", "refused", "error", "aborted", "revoked"]
ActorKind = Literal["user", "operator", "anonymous"]
Stage = Literal["listed", "retrieved", "in_prompt", "cited", "replayed", "read", "written", "deleted", "access"]
CacheStatus = Literal["hit", "miss", "bypass", "refresh", "stored"]
Action = Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z0-9_.]{0,63}$")]
WriterId = Annotated[str, msgspec.Meta(pattern=r"^w_[0-9a-f]{20}$")]
Detail = str | int | bool | None


_DECIMAL: Final[Mapping[str, tuple[str, ...]]] = {
    "Bound": ("upper",),
    "CacheUse": ("similarity", "threshold", "score"),
}
"""The fields that hold decimals, by part: most events are read for parts that have none."""


class Part(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Base of every part of an event: rounds its decimals, refuses those that JSON cannot carry."""

    def __post_init__(self) -> None:
        for name in _DECIMAL.get(type(self).__name__, ()):
            value = getattr(self, name)
            if isinstance(value, float):
                if not math.isfinite(value):
                    raise InvalidInput("an audit number must be finite", item=name)
                # Adding zero turns -0.0 into 0.0.
                msgspec.structs.force_setattr(self, name, round(value, DECIMALS) + 0.0)


class Sealed(Part, frozen=True, kw_only=True):
    """Text under a subject's key: keyed commitment (hex), ciphertext (base64), id of the key."""

    commit: str
    ct: str
    key: str


class Actor(Part, frozen=True, kw_only=True):
    """`ref` is a keyed reference of the user id, equal in all events of one user of one tenant."""

    kind: ActorKind
    ref: str | None = None
    credential: str | None = None
    method: str | None = None


class Request(Part, frozen=True, kw_only=True):
    """`root` groups the requests of one conversation or job; `parent` is the request that caused this one."""

    id: str
    root: str | None = None
    parent: str | None = None


class Policy(Part, frozen=True, kw_only=True):
    """What decided: permission domain fingerprint, the epochs read, isolation tier; revisions of template and config,
    and of the contract's guard rails.
    """

    domain: str | None = None
    acl_epoch: int | None = None
    corpus_epoch: int | None = None
    isolation: str | None = None
    template: str | None = None
    config: str | None = None
    rails: str | None = None


class Resource(Part, frozen=True, kw_only=True):
    """A document, or one chunk of it, and the furthest stage that it reached."""

    document: str
    stage: Stage
    version: str | None = None
    chunk: str | None = None


class GuardResult(Part, frozen=True, kw_only=True):
    name: str
    verdict: Literal["pass", "veto"]
    reason: str | None = None


class Bound(Part, frozen=True, kw_only=True):
    """The certificate behind a semantic hit: `k` wrong of `n` judged, `upper` the confidence limit on the rate."""

    n: int
    k: int
    upper: float
    state: str


class Freshness(Part, frozen=True, kw_only=True):
    versions_checked: int
    readable_checked: int


class CacheUse(Part, frozen=True, kw_only=True):
    """How the cache decided; misses and vetoes carry their `reason`. `origin_seq` is the intent that made the entry."""

    status: CacheStatus
    kind: Literal["exact", "semantic"] | None = None
    reason: str | None = None
    entry: str | None = None
    origin_seq: int | None = None
    origin_actor_same: bool | None = None
    namespace: str | None = None
    similarity: float | None = None
    threshold: float | None = None
    score: float | None = None
    guards: tuple[GuardResult, ...] = ()
    rules: str | None = None
    bound: Bound | None = None
    freshness: Freshness | None = None
    age_s: int | None = None


class GenerationUse(Part, frozen=True, kw_only=True):
    """Which model answered; `input`, `cached_input` and `output` are tokens, `salt_fp` a fingerprint of the salt."""

    model: str
    revision: str | None = None
    adapter: str | None = None
    pool: str | None = None
    salt_fp: str | None = None
    input: int | None = None
    cached_input: int | None = None
    output: int | None = None
    finish: str | None = None


class Content(Part, frozen=True, kw_only=True):
    """What persons wrote. A filter is sealed like a question: its values may be names."""

    question: Sealed | None = None
    filter: Sealed | None = None
    answer: Sealed | None = None
    user: Sealed | None = None


class Metered(Part, frozen=True, kw_only=True):
    """What one hop used. `computed` and `served` are tokens of (input, output), `served` left out where it is the same.

    `saved` are the microunits that generating the same would have cost. `estimated`: the engine's last word is missing.
    """

    model: str | None = None
    version: str | None = None
    adapter: str | None = None
    computed: tuple[int, int] = (0, 0)
    served: tuple[int, int] | None = None
    microunits: int = 0
    saved: int = 0
    estimated: bool = False


class Cost(Part, frozen=True, kw_only=True):
    """`hops` are (name, milliseconds) in order; `microunits` are millionths of the billing unit.

    `metered` has an entry for each hop, under the price list `prices`, which charges the `basis` tokens.
    """

    hops: tuple[tuple[str, int], ...] = ()
    microunits: int | None = None
    prices: str | None = None
    basis: Basis | None = None
    metered: tuple[Metered, ...] = ()


class Draft(Part, frozen=True, kw_only=True):
    """An event before the log gives it its place.

    `intent` is the sequence number that an outcome closes. `detail` says what a command changed; it takes ids,
    names of groups and counts, never text from documents, questions or secrets.
    """

    action: Action
    phase: Phase
    actor: Actor
    request: Request
    outcome: Outcome | None = None
    reason: str | None = None
    intent: int | None = None
    policy: Policy | None = None
    resources: tuple[Resource, ...] = ()
    withheld: int = 0
    cache: CacheUse | None = None
    generation: GenerationUse | None = None
    content: Content | None = None
    cost: Cost | None = None
    detail: dict[str, Detail] = {}


class Event(Draft, frozen=True, kw_only=True):
    """A stored event: place in the log, time (UTC, ISO 8601), the log's id, the process instance that wrote it."""

    v: int
    seq: int
    ts: str
    log: str
    writer: WriterId

    @property
    def time(self) -> float:
        """UTC epoch seconds."""
        return datetime.fromisoformat(self.ts).timestamp()


_encoder = msgspec.json.Encoder(order="sorted")
_decoder = msgspec.json.Decoder(Event)


def stamped(moment: float) -> str:
    """UTC epoch seconds as an event's `ts`."""
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def stamp(draft: Draft, *, seq: int, now: float, log: str, writer: str) -> Event:
    """Give `draft` its place; `now` is UTC epoch seconds."""
    ts = stamped(now)
    fields: dict[str, Any] = {name: getattr(draft, name) for name in Draft.__struct_fields__}
    return Event(v=VERSION, seq=seq, ts=ts, log=log, writer=writer, **fields)


def check(draft: Draft) -> Draft:
    """Return `draft` if it can be encoded wherever it lands, or raise `InvalidInput`."""
    encode(stamp(draft, seq=0, now=0.0, log="", writer=""))
    return draft


def encode(event: Event) -> bytes:
    """The canonical bytes. Raises `InvalidInput` for text that is not Unicode."""
    try:
        return _encoder.encode(event)
    except UnicodeEncodeError:
        raise InvalidInput("an audit event must hold valid Unicode", item=event.action) from None


def decode(data: bytes) -> Event:
    """Undo `encode`; raises `Corrupt` for bytes that no event of this version has."""
    try:
        event = _decoder.decode(data)
        datetime.fromisoformat(event.ts)
    except (msgspec.DecodeError, ValueError, InvalidInput):
        raise Corrupt("a stored audit event cannot be read") from None
    return event
