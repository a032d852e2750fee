"""The settings of admission: the limits that hold where a contract says nothing, and who is told of budgets."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from admission.gate import LEASE_S, SharedLimits
from admission.limits import Limits, TenantLimits
from tenancy.limits import Away, Seconds
from tenancy.redis_settings import RedisSettings

Positive = Annotated[int, msgspec.Meta(ge=1)]


# Nothing is admitted without an answer: a moment of a busy machine is no outage.
_PATIENT: Final = RedisSettings(timeout_s=1.0, connect_timeout_s=1.0, failures=3, retry_s=0.5)


class AlertSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where it is posted that a budget has reached its soft share, or its end; empty: the log alone tells of it."""

    webhook: str = ""
    token_file: str = ""
    attempts: Positive = 5
    timeout_s: Seconds = 10.0


class RootSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Signed root ids: whether a request without one is admitted, seconds that a root lives where its maker names none,
    and at most, and how many each user mints in a minute.
    """

    missing: Literal["allow", "refuse"] = "allow"
    deadline_s: Seconds = 3_600.0
    longest_s: Seconds = 86_400.0
    per_minute: Positive = 60


class AdmissionSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`tenant`, `user` and `key` are each tenant's, user's and API key's, where a contract does not say otherwise;
    `deployment` and `models` (by the names in answers) are over all tenants. A lease without a sign of life for
    `lease_s` seconds is settled.

    With `full` "queue" a request that does not fit waits for up to `wait_s` seconds, where a contract does not say
    otherwise; `queue` requests wait at most. `store` says where the counters are: in this process, or at a Redis server
    that several share; `away` is what holds while that is away, where a contract does not say otherwise.
    """

    tenant: Limits = Limits()
    user: Limits = Limits()
    key: Limits = Limits()
    deployment: Limits = Limits()
    models: dict[str, Limits] = {}
    full: Literal["refuse", "queue"] = "refuse"
    wait_s: Seconds = 10.0
    queue: Positive = 256
    lease_s: Annotated[float, msgspec.Meta(ge=3)] = LEASE_S
    store: Literal["memory", "redis"] = "memory"
    redis: RedisSettings = _PATIENT
    away: Away = Away()
    looks_per_minute: Positive = 600
    alerts: AlertSettings = AlertSettings()
    roots: RootSettings = RootSettings()

    @property
    def limits(self) -> TenantLimits:
        return TenantLimits(
            tenant=self.tenant, user=self.user, key=self.key, full=self.full, wait_s=self.wait_s, away=self.away
        )

    @property
    def shared(self) -> SharedLimits:
        return SharedLimits(self.deployment, self.models)
