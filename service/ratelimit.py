"""How far a caller's limits are used, as headers (draft-ietf-httpapi-ratelimit-headers-10).

    RateLimit-Policy: "user-requests_per_minute";q=60;w=61, "tenant-tokens_per_minute";q=100000;w=61;qu="tokens"
    RateLimit: "user-requests_per_minute";r=12;t=38, "tenant-tokens_per_minute";r=0;t=12

Policies are limits over a time: those of one minute and of a month. `t` is when some more becomes free (section 4.1.2),
which `Retry-After` says too. `w` is the longest that a request counts: windows move by seconds, so that true ones of
60 s never hold more, and whoever spreads `q` requests over `w` is never refused.

What tenants share is in none. Of money callers are told steps alone: what a single answer cost, where a bill counts
computed tokens, says what an engine had in its memory of others' prompts (docs/decisions/0016-waiting-at-limits.md).
"""

from __future__ import annotations

import math
from calendar import monthrange
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from admission.counters import Room
from admission.limits import BOUNDS, REACH_S, Bound
from tenancy.errors import LimitExceeded

_ALL: Final = {bound.name: bound for bound in BOUNDS}
_BOUNDS: Final = {name: bound for name, bound in _ALL.items() if bound.span in {"minute", "month"}}
_UNITS: Final = {"requests": "", "money": ';qu="micro-units"'}
_TOKENS: Final = ';qu="tokens"'
_DAY_S: Final = 86_400
_STEPS: Final = 20


def told(bound: str, limit: int, used: int) -> int:
    """How much of a limit callers are told to be `used`: of money in twentieths of the limit, rounded up."""
    known = _ALL.get(bound)
    if known is None or known.measure != "money" or not limit:
        return used
    return -(-limit * -(-used * _STEPS // limit) // _STEPS)


def room_headers(rooms: Iterable[Room]) -> list[tuple[str, str]]:
    """The headers of an admitted request; none where no limit is set."""
    return _headers(
        [
            (room.scope.kind, room.bound, room.limit, told(room.bound, room.limit, room.used), room.resets_s)
            for room in rooms
        ]
    )


def refusal_headers(error: LimitExceeded) -> list[tuple[str, str]]:
    """The headers of a refusal: the limit that refused."""
    if error.bound is None or error.limit is None or error.used is None:
        return []
    return _headers([(error.scope, error.bound, error.limit, error.limit, error.retry_after)])


def _headers(found: Iterable[tuple[str, str, int, int, float]]) -> list[tuple[str, str]]:
    policies, states = [], []
    for scope, name, limit, used, resets_s in found:
        bound = _BOUNDS.get(name)
        if bound is None:
            continue
        policies.append(f'"{scope}-{name}";q={limit};w={_window(bound)}{_UNITS.get(bound.measure, _TOKENS)}')
        states.append(f'"{scope}-{name}";r={max(0, limit - used)};t={math.ceil(max(0.0, resets_s))}')
    return [("RateLimit-Policy", ", ".join(policies)), ("RateLimit", ", ".join(states))] if policies else []


def _window(bound: Bound) -> int:
    if bound.span == "minute":
        return REACH_S
    now = datetime.now(UTC)
    return monthrange(now.year, now.month)[1] * _DAY_S
