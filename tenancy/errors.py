"""Every error that Strongroom raises on purpose.

    StrongroomError
    ├── InvalidInput            the request or item is malformed
    │   ├── UnknownParameter    a query parameter that the route does not know
    │   ├── TooLarge            over a documented size limit
    │   ├── ForeignTraining     (generation.adapters.training) an adapter made from another tenant's documents
    │   └── ParseFailure        (indexing.parse) a file that yields no text
    ├── Unauthenticated         no credential, or one that does not verify
    │   └── TokenRefused        (tenancy.tokens) with a fixed detail for the log
    ├── Throttled               too many failed authentications
    ├── Forbidden               the role or the tenant of the credential does not fit
    │   ├── TenantSuspended
    │   ├── RootRefused         (admission.roots) a root id of somebody else's, invented, or over
    │   ├── RootRequired        (admission.roots) a request outside of any root
    │   └── BlockedTopic        (generation.guardrails) a question that the contract does not have answered
    ├── NotFound                absent, or not visible to the caller: deliberately the same
    ├── Conflict                the present state does not permit the change
    │   ├── AlreadyExists
    │   ├── ModelMismatch       a collection made with another embedding model
    │   ├── Held                (audit.holds) a legal hold keeps what was to be destroyed
    │   └── SchemaTooNew        a file written by a newer program
    ├── LimitExceeded           an admission scope refused
    ├── Unavailable             a dependency is away; nothing was released
    │   ├── AuditUnavailable    the audit log cannot be made durable
    │   ├── LimitsUnavailable   the store of what was spent is away
    │   └── EngineUnavailable   a vector engine is away, refuses, or is not this tenant's
    │       └── EngineBehind    what is stored has not reached it yet
    ├── StaleDomain             a permission domain of another epoch than the snapshot
    │   └── EngineDisagrees     (indexing.collection) an engine holds another state than the snapshot
    └── Corrupt                 a stored record fails its check

`service/problems.py` turns each into an HTTP problem (RFC 9457) and an exit code.
"""

from __future__ import annotations

from typing import ClassVar


class StrongroomError(Exception):
    """What happened, to which item, and what to do.

    `reason` is a sentence for people; it never quotes document text, questions or secrets.
    """

    code: ClassVar[str] = "error"

    def __init__(self, reason: str, *, item: str | None = None, remedy: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.item = item
        self.remedy = remedy

    def __str__(self) -> str:
        subject = f"{self.item}: " if self.item else ""
        remedy = f" ({self.remedy})" if self.remedy else ""
        return f"{subject}{self.reason}{remedy}"


class InvalidInput(StrongroomError):
    code = "invalid-input"


class UnknownParameter(InvalidInput):
    code = "unknown-parameter"


class TooLarge(InvalidInput):
    code = "too-large"


class Unauthenticated(StrongroomError):
    code = "unauthenticated"


class Throttled(StrongroomError):
    """`retry_after` is in seconds."""

    code = "throttled"

    def __init__(self, reason: str, *, retry_after: float) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


class Forbidden(StrongroomError):
    code = "forbidden"


class TenantSuspended(Forbidden):
    code = "tenant-suspended"


class NotFound(StrongroomError):
    code = "not-found"


class Conflict(StrongroomError):
    code = "conflict"


class AlreadyExists(Conflict):
    code = "already-exists"


class ModelMismatch(Conflict):
    code = "model-mismatch"


class SchemaTooNew(Conflict):
    code = "schema-too-new"


class LimitExceeded(StrongroomError):
    """`scope` names who ran out ("user", "tenant"), `bound` of what ("tokens_per_minute"); `retry_after` is in seconds.

    `limit` and `used` are `None` where they are not the caller's to know.
    """

    code = "limit-exceeded"

    def __init__(
        self,
        reason: str,
        *,
        scope: str,
        retry_after: float,
        bound: str | None = None,
        limit: int | None = None,
        used: int | None = None,
        remedy: str | None = None,
    ) -> None:
        super().__init__(reason, item=scope, remedy=remedy)
        self.scope = scope
        self.bound = bound
        self.limit = limit
        self.used = used
        self.retry_after = retry_after


class Unavailable(StrongroomError):
    """Where `told` is set, reason, item and remedy are the operator's, and a caller over HTTP reads `told`."""

    code = "unavailable"
    told: ClassVar[str | None] = None


class AuditUnavailable(Unavailable):
    code = "audit-unavailable"


class LimitsUnavailable(Unavailable):
    """The store of what was spent is away, and the contract permits nothing meanwhile, or it is used up."""

    code = "limits-unavailable"
    told = "limits cannot be checked now"


class EngineUnavailable(Unavailable):
    told = "the tenant's collection is out of reach"


class EngineBehind(EngineUnavailable):
    told = "all is stored, and found when the tenant's collection is in reach again"


class StaleDomain(StrongroomError):
    code = "stale-domain"


class Corrupt(StrongroomError):
    code = "corrupt"
