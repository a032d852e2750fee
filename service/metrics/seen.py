"""What the end of a request means for the figures of its tenant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from audit.ended import Ended

Fate = Literal["answered", "revoked", "rejected", "own-limit", "system", "abandoned"]
"""`rejected`: the caller's mistake. `own-limit`: one of the tenant's own limits. `system`: the deployment's fault."""

ANSWER: Final = "answer"
FEEDBACK: Final = "feedback"
GENERATE: Final = "generate"

_SYSTEM_SCOPES: Final = frozenset({"model", "deployment"})


@dataclass(frozen=True, slots=True)
class Seen:
    """One request, in seconds. The times are those of answers alone; `per_token_s` is the time per output token after
    the first one, where a model wrote two at least.
    """

    tenant_id: str
    tenant: str
    action: str
    fate: Fate
    total_s: float | None = None
    queue_s: float | None = None
    first_s: float | None = None
    per_token_s: float | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    fresh: bool = False
    verdict: str | None = None

    @property
    def is_answer(self) -> bool:
        return self.action == ANSWER


def seen(ended: Ended) -> Seen | None:
    """`ended` as its tenant's figures take it; None for a request without a tenant."""
    principal = ended.principal
    if principal is None:
        return None
    fate = fate_of(ended)
    kept = ended.action == ANSWER and fate == "answered"
    used = ended.generation
    wrote = next((step for step in ended.steps if step.name == GENERATE), None)
    verdict = ended.detail.get("verdict") if ended.action == FEEDBACK and fate == "answered" else None
    return Seen(
        tenant_id=principal.tenant_id,
        tenant=principal.tenant,
        action=ended.action,
        fate=fate,
        total_s=ended.took_s if kept else None,
        queue_s=ended.queue_s if kept and wrote is not None else None,
        first_s=(ended.took_s if ended.first_s is None else ended.first_s) if kept else None,
        per_token_s=_per_token(ended) if kept else None,
        input_tokens=(used.input or 0) if used is not None else 0,
        output_tokens=(used.output or 0) if used is not None else 0,
        fresh=ended.cache is not None and ended.cache.status == "refresh",
        verdict=verdict if isinstance(verdict, str) else None,
    )


def fate_of(ended: Ended) -> Fate:
    """How a request ended, as its tenant sees it."""
    match ended.outcome:
        case "allowed":
            return "answered"
        case "revoked":
            return "revoked"
        case "aborted":
            return "abandoned"
        case "error":
            return "system"
    if ended.scope is None:
        return "rejected"
    return "system" if ended.scope in _SYSTEM_SCOPES else "own-limit"


def _per_token(ended: Ended) -> float | None:
    output = (ended.generation.output or 0) if ended.generation is not None else 0
    written = [step for step in ended.steps if step.name == GENERATE]
    if output < 2 or not written or ended.first_s is None:
        return None
    until = written[-1].start_s + written[-1].took_s
    return max(0.0, until - ended.first_s) / (output - 1)
