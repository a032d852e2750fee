"""What a tenant, or one of its users, uses now, for tests outside the event loop and in it."""

from __future__ import annotations

from dataclasses import dataclass

from admission.counters import Use
from admission.gate import Gate
from admission.limits import Amounts


@dataclass(frozen=True, slots=True)
class Spent:
    """Requests and tokens of the last minute; what requests in flight hold."""

    requests: int
    concurrent: int
    tokens: int
    held: int


def spent(gate: Gate, tenant_id: str, user_id: str | None = None) -> Spent:
    """Of the counters in memory, which never wait."""
    asking = gate.use(tenant_id, user_id)
    try:
        asking.send(None)
    except StopIteration as found:
        use: Use = found.value
        assert use.flight.requests or use.flight == Amounts()
        return Spent(use.minute.requests, use.flight.requests, use.minute.tokens, use.held.tokens)
    raise AssertionError("the counters are not in memory")
