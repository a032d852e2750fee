"""Contract objectives held against ended windows, regularly; what a window missed is on record in its tenant's log."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

import structlog
from sqlalchemy.exc import SQLAlchemyError

from admission.shares import Share
from audit.record import Actor, Draft, Request
from generation.occupancy import EngineUse
from service.control import Control
from service.metrics.objectives import Breach, breaches, enough
from service.metrics.signals import Signals
from service.metrics.windows import Window
from tenancy.contract import stored_contract
from tenancy.errors import NotFound, StrongroomError
from tenancy.workers import Workers

ACTION: Final = "objective.breach"
EVERY_S: Final = 10.0
"""Seconds between two looks at which windows have ended."""

_log = structlog.get_logger("strongroom.objectives")


class Judge:
    """Judges each tenant's windows once. `shares` gives what tenants received and were due since it was called last,
    `uses` what they had of the engines of each pool.
    """

    def __init__(
        self,
        control: Control,
        signals: Signals,
        workers: Workers,
        shares: Callable[[], Mapping[str, Share]],
        uses: Callable[[], Iterable[tuple[str, Mapping[str, EngineUse]]]],
    ) -> None:
        self._shares, self._uses = shares, uses
        self._control = control
        self._signals = signals
        self._workers = workers

    async def keep(self) -> None:
        """Judge for as long as the process runs."""
        while True:
            await asyncio.sleep(EVERY_S)
            await self.look()

    async def look(self) -> list[Breach]:
        """Judge what has ended; returns what was missed."""
        found: list[Breach] = []
        self._signals.take_shares(self._shares())
        self._signals.take_uses(self._uses())
        now = self._signals.now
        for tenant_id, history in self._signals.windows.rolled(now):
            window = history.unjudged
            if window is None or not enough(window, now):
                continue
            history.unjudged = None
            try:
                found += await self._workers.run(self._judged, tenant_id, history.name, window)
            except (StrongroomError, SQLAlchemyError, OSError) as error:
                _log.error("a window was not judged", tenant=history.name, error=type(error).__name__)
        for breach in found:
            self._signals.families.breached(breach.objective)
        return found

    def _judged(self, tenant_id: str, name: str, window: Window) -> list[Breach]:
        try:
            record = self._control.tenants.show(name)
        except NotFound:
            return []
        if record.id != tenant_id:
            return []  # another tenant has the name of one that is gone
        found = breaches(stored_contract(record.contract, name).objectives, window)
        for breach in found:
            _log.warning("an objective of a contract was missed", tenant=name, **_detail(breach))
            self._control.logs.of_id(tenant_id).append(partial(_draft, breach))
        return found


def _draft(breach: Breach) -> Draft:
    return Draft(
        action=ACTION,
        phase="outcome",
        outcome="allowed",
        actor=Actor(kind="operator", method="schedule"),
        request=Request(id=secrets.token_hex(16)),
        detail=_detail(breach),
    )


def _detail(breach: Breach) -> dict[str, Any]:
    """As a record takes it: numbers with decimals are text."""
    return {
        "objective": breach.objective,
        "target": f"{breach.target:g}",
        "found": f"{breach.found:.4g}",
        "count": breach.count,
        "since": round(breach.since),
        "until": round(breach.until),
    }
