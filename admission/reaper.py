"""Signs of life for the leases of this process, and the end of those whose process gave none.

A process that was killed leaves its leases behind in a store that others share. They expire, and whichever server
finds one first settles it with the last use that was reported: no more, since nobody knows that more was produced.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from admission.counters import Reaped
from admission.gate import Gate
from tenancy.errors import Unavailable

_log = logging.getLogger(__name__)


class Reaper:
    """`told` hears of each lease that was reaped here; it must not wait."""

    def __init__(self, gate: Gate, told: Callable[[Reaped], None] | None = None) -> None:
        self._gate = gate
        self._told = told

    async def run(self) -> None:
        """Until cancelled: a turn each third of a lease's time."""
        while True:
            await asyncio.sleep(self._gate.lease_s / 3)
            try:
                await self.turn()
            except Unavailable as error:
                _log.warning("leases could not be looked after (%s)", error.code)

    async def turn(self) -> tuple[Reaped, ...]:
        """Renew what lives here, then reap what nobody renewed."""
        for lease in tuple(self._gate.live.values()):
            await lease.renew()
        reaped = await self._gate.counters.reap()
        for one in reaped:
            _log.warning("a lease was reaped: its request ended without a word (tenant %s)", one.tenant)
            self._gate.tell(one.crossed)
            if self._told is not None:
                self._told(one)
        return reaped
