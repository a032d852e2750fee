"""What may be spent, as contracts and settings say it: limits of a scope, and those of a tenant's scopes together."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

Amount = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
"""Up to what every store of counters counts exactly."""
Seconds = Annotated[float, msgspec.Meta(gt=0, le=31_622_400)]
"""A year at most: JSON has no infinity, and where it is stored it would read as no bound of one's own."""
WorkClass = Literal["interactive", "batch"]
"""People who wait, or programs that do not: batch work gives way where both wait."""
Share = Annotated[float, msgspec.Meta(gt=0, le=1)]


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, cache_hash=True):
    """Limits of one scope; `None` is no limit, 0 admits nothing.

    `tokens_per_minute` are input plus output. `kv_tokens` are what requests in flight hold together, read and written.
    `money_per_month` is in micro-units, by calendar month (UTC); an alert goes out at the share `soft` of it, and when
    it is spent. `max_output_tokens` and `deadline_s` bound each request.
    """

    requests_per_minute: Amount | None = None
    concurrent: Amount | None = None
    input_tokens_per_minute: Amount | None = None
    output_tokens_per_minute: Amount | None = None
    tokens_per_minute: Amount | None = None
    kv_tokens: Amount | None = None
    money_per_month: Amount | None = None
    soft: Share | None = None
    max_output_tokens: Amount | None = None
    deadline_s: Seconds | None = None


class Away(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one server admits of a tenant while the store of the counters is away: nothing (`refuse`), or so many
    `requests` and so many `tokens`, input plus output, until the store has heard of them (`allowance`).
    """

    policy: Literal["refuse", "allowance"] = "refuse"
    requests: Amount = 100
    tokens: Amount = 50_000


class TenantLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`tenant` bounds the tenant as a whole, `user` each of its users, `key` each of its credentials.

    With `full` "queue" a request for which a limit has no room waits for up to `wait_s` seconds. `away` is what holds
    without the store of the counters, `roots` whether a request without a root is admitted. What is left out, the
    deployment says.
    """

    tenant: Limits = Limits()
    user: Limits = Limits()
    key: Limits = Limits()
    full: Literal["refuse", "queue"] | None = None
    wait_s: Seconds | None = None
    away: Away | None = None
    roots: Literal["allow", "refuse"] | None = None
