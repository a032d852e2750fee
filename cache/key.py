"""Who may share an answer, then what was asked: composite identity -> namespace -> exact key.

    namespace = HMAC-SHA256(tenant's key, enc(part) for every part of the identity)
    exact key = HMAC-SHA256(tenant's key, namespace || enc(normalised question))

`enc` is length-prefixed and tells absent from empty (`tenancy.names.enc`). The question is never part of the
namespace, and everything in the identity is derived by the server: a client cannot name a namespace.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field
from typing import Final

from tenancy.domain import PermissionDomain
from tenancy.errors import InvalidInput
from tenancy.keys import keyed_hash
from tenancy.tenant import TenantHandle

_SEAL: Final = object()
_PURPOSE: Final = "cache-namespace"


@dataclass(frozen=True, slots=True)
class RetrievalIdentity:
    """The retrieval settings that decide which passages an answer sees."""

    top_k: int
    mode: str
    fusion: str
    reranker: str | None
    chunker: str


@dataclass(frozen=True, slots=True)
class CompositeIdentity:
    """Everything that has to be equal before one asker's answer may serve another's question.

    Revisions, not aliases: "latest" is resolved before. `None` means absent and differs from "".
    """

    tenant_id: str
    domain: str
    model_revision: str
    tokenizer_revision: str
    template_revision: str
    adapter_revision: str | None
    embedder: str
    """Fingerprint of the embedding model, in its canonical text: two models of equal width differ."""
    generation: str
    """Canonical text of sampling, `max_tokens` and whatever else changes the answer."""
    user_id: str | None
    """The asker where answers stay private; `None`: shared within the permission domain."""
    filter: str | None
    conversation: str | None
    """Digest of the history that the answer depends on."""
    response_contract: str | None
    retrieval: RetrievalIdentity

    def parts(self) -> tuple[str | None, ...]:
        """All parts in their fixed order; numbers in decimal."""
        return (
            self.tenant_id,
            self.domain,
            self.model_revision,
            self.tokenizer_revision,
            self.template_revision,
            self.adapter_revision,
            self.embedder,
            self.generation,
            "domain" if self.user_id is None else "user",
            self.user_id,
            self.filter,
            self.conversation,
            self.response_contract,
            str(self.retrieval.top_k),
            self.retrieval.mode,
            self.retrieval.fusion,
            self.retrieval.reranker,
            self.retrieval.chunker,
        )


@dataclass(frozen=True, slots=True)
class Namespace:
    """One partition of one tenant's cache. Sealed: only `namespace` makes one."""

    value: bytes
    tenant_id: str
    domain: str
    user_id: str | None
    seal: object = field(repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.seal is not _SEAL:
            raise TypeError("a Namespace comes from cache.key.namespace alone")

    @property
    def fingerprint(self) -> str:
        """A namespace as audit and evidence name it: equal for equal namespaces, and no key."""
        return f"ns_{self.value[:16].hex()}"


def namespace(tenant: TenantHandle, domain: PermissionDomain, identity: CompositeIdentity) -> Namespace:
    """The namespace of `identity` (32 bytes), bound to the tenant and the permission domain at hand.

    Raises `InvalidInput` where the identity names another tenant, domain or user than the domain's own.
    """
    if not (tenant.tenant_id == domain.tenant_id == identity.tenant_id):
        raise InvalidInput("the cache identity belongs to another tenant", item="tenant_id")
    if identity.domain != domain.fingerprint:
        raise InvalidInput("the cache identity belongs to another permission domain", item="domain")
    if identity.user_id is not None and identity.user_id != domain.user_id:
        raise InvalidInput("a private cache identity belongs to another user", item="user_id")
    value = keyed_hash(tenant.keys.purpose(_PURPOSE), *identity.parts())
    return Namespace(value, tenant.tenant_id, domain.fingerprint, identity.user_id, _SEAL)


def exact_key(tenant: TenantHandle, space: Namespace, question: str) -> bytes:
    """The key (32 bytes) of a question that is repeated up to white space and Unicode normal form."""
    if space.tenant_id != tenant.tenant_id:
        raise InvalidInput("the namespace belongs to another tenant", item="namespace")
    return keyed_hash(tenant.keys.purpose(_PURPOSE), space.value, normalise_question(question))


def normalise_question(question: str) -> str:
    """NFC, trimmed, inner white space collapsed to single spaces; case is kept."""
    return " ".join(unicodedata.normalize("NFC", question).split())
