"""One server's signals: it is told of every request as it ends, and asked for figures by the admin listener."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from admission.shares import Share
from audit.ended import Ended
from generation.occupancy import EngineUse
from retrieval.drift import UNCOUNTED, Drift
from service.metrics.families import Families
from service.metrics.patterns import Retries
from service.metrics.seen import ANSWER, Seen, fate_of, seen
from service.metrics.windows import Figures, History, Window, Windows, merged

if TYPE_CHECKING:
    from service.metrics.tracing import Traces

ATTEST: Final = "attest"

_log = structlog.get_logger("strongroom.signals")


class TenantSignals(msgspec.Struct, frozen=True):
    """Figures of one tenant at this server, since it began at most: `current` of the window that runs, `last` of the
    one before, `kept` of all that are kept. `isolation_violations` are those of the deployment.
    """

    tenant: str
    window_s: float
    current: Figures
    last: Figures | None
    kept: Figures
    isolation_violations: int


class Signals:
    """Thread-safe only as far as the event loop is the one that ends requests. `clock` gives UTC epoch seconds."""

    def __init__(
        self,
        window_s: float = 300.0,
        most_tenants: int = 20,
        clock: Callable[[], float] = time.time,
        drift: Drift | None = None,
    ) -> None:
        self._drift = drift
        self.families = Families(most_tenants)
        self.windows = Windows(window_s)
        self._retries = Retries()
        self.traces: Traces | None = None
        self._clock = clock

    def ended(self, ended: Ended) -> None:
        """Take one request. Whatever goes wrong here is logged and keeps no request from its answer."""
        try:
            self._take(ended)
        except Exception:  # noqa: BLE001  figures may be wrong; answers go on
            _log.exception("a request is missing from the figures", action=ended.action)

    def _take(self, ended: Ended) -> None:
        now, one = self._clock(), seen(ended)
        self.families.ended(ended, one, fate_of(ended))
        if one is not None:
            retry = self._is_retry(ended, one, now)
            self.windows.add(one, now, retry=retry)
            self._keep(ended, one, retry=retry)
        if ended.action == ATTEST and ended.detail.get("verdict") == "FAIL":
            self.families.violated(str(ended.detail.get("layers", "")).count(": FAIL") or 1)
        if self.traces is not None:
            self.traces.ended(ended)

    def _keep(self, ended: Ended, one: Seen, *, retry: bool) -> None:
        """Add what people did to the sums of the day, which outlive this process."""
        if self._drift is None or ended.detail.get("feature") in UNCOUNTED:
            return
        if one.is_answer:
            self._drift.tell(one.tenant_id, asked=1, retries=int(retry), abandoned=int(one.fate == "abandoned"))
        elif one.verdict is not None:
            self._drift.tell(one.tenant_id, told=1, edited=int(one.verdict == "edited"))

    def _is_retry(self, ended: Ended, one: Seen, now: float) -> bool:
        if ended.action != ANSWER or ended.asked is None:
            return False
        # In this order: every question is remembered.
        return self._retries.is_retry(ended.asked, now) or one.fresh

    @property
    def now(self) -> float:
        """UTC epoch seconds."""
        return self._clock()

    def take_shares(self, shares: Mapping[str, Share]) -> None:
        """Service received and due, by tenant id, since this was called last."""
        now = self._clock()
        for tenant_id, share in shares.items():
            self.windows.add_share(tenant_id, share, now)
        recent = {}
        for _, history in self.windows.rolled(now):
            last = history.last
            recent[history.name] = history.current.share + (Share() if last is None else last.share)
        self.families.shares(recent)

    def take_uses(self, uses: Iterable[tuple[str, Mapping[str, EngineUse]]]) -> None:
        """What tenants (by id) had of the engines of each pool (by name), since this was called last."""
        now = self._clock()
        for pool, by_tenant in uses:
            self.families.engine(pool, sum(use.engine_ns for use in by_tenant.values()) / 1e9)
            for tenant_id, use in by_tenant.items():
                self.windows.add_use(tenant_id, use, now)

    def report(self, tenant_id: str, tenant: str) -> TenantSignals:
        """The figures of a tenant; of one that asked nothing they are zeros."""
        now = self._clock()
        history = self.windows.find(tenant_id, now) or History(tenant, now)
        last = history.last
        kept = merged([*history.ended, history.current]) or Window(now)
        return TenantSignals(
            tenant=tenant,
            window_s=self.windows.window_s,
            current=history.current.figures(now),
            last=None if last is None else last.figures(),
            kept=kept.figures(now),
            isolation_violations=self.families.violations,
        )

    def close(self) -> None:
        if self.traces is not None:
            self.traces.close()
