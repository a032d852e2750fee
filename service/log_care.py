"""What a server does for its audit logs: it signs those that grew and books what they say of use, and verifies each of
them regularly.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

import structlog
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError

from audit.log import AuditLog
from audit.record import Actor, Draft, Request
from audit.tables import events
from audit.verify import Verification, verify
from metering.ledger import UsageLedger
from service.control import Control
from tenancy.control import SYSTEM
from tenancy.errors import NotFound, StrongroomError

SIGN_S: Final = 10.0
"""Seconds between two checkpoints of a log that grows."""
ROUND_S: Final = 30.0
"""Seconds between two looks at the logs of a few tenants."""
TENANTS: Final = 20
"""Logs of one look. Those of ten thousand tenants are through after four hours."""
ACTION: Final = "audit.verified"

_NICE: Final = 19
_FAILURES: Final = (StrongroomError, SQLAlchemyError, OSError)
_NEWEST: Final = (
    select(events.c.ts).where(events.c.action == ACTION, events.c.phase == "outcome").order_by(events.c.seq.desc())
)
_FIRST: Final = select(events.c.ts).order_by(events.c.seq)

_log = structlog.get_logger("strongroom.audit")


class LogCare:
    """Signs the logs that this process adds to and books their use; verifies the log of every tenant, and the system's,
    each `every_s` seconds, with 0 never.

    They are verified one after another, in a thread of the lowest priority that rests for as long as it works. The
    result is an event of that log; what does not verify is also one of the system's, and a line of the application's.
    """

    def __init__(self, control: Control, every_s: float) -> None:
        self._control = control
        self._every_s = every_s
        self._after = ""
        self._stopped = threading.Event()
        self._worked = 0.0
        # Threads of their own: when all the workers are busy, most is added.
        self._signer = ThreadPoolExecutor(1, thread_name_prefix="sign")
        self._booker = ThreadPoolExecutor(1, thread_name_prefix="book", initializer=_lowest_priority)
        self._unbooked: set[str] = set()
        self._booking: Future[None] | None = None
        self._verifier = ThreadPoolExecutor(1, thread_name_prefix="verify", initializer=_lowest_priority)

    async def keep_signed(self) -> None:
        """Sign a checkpoint of every log that grew and book its use, for as long as the process runs."""
        while True:
            await asyncio.sleep(SIGN_S)
            self._unbooked |= set(await asyncio.wrap_future(self._signer.submit(self._control.logs.sign))) - {SYSTEM}
            if self._unbooked and (self._booking is None or self._booking.done()):
                self._booking = self._booker.submit(self.book)

    async def keep_verified(self) -> None:
        """Verify every log regularly, for as long as the process runs."""
        while True:
            await asyncio.sleep(ROUND_S)
            try:
                await asyncio.wrap_future(self._verifier.submit(self.look))
            except _FAILURES as error:
                _log.error("audit logs were not verified", error=type(error).__name__)

    def book(self) -> None:
        """Bring the usage ledgers of the logs that grew up to them. One that fails is tried when its log grows again,
        and is brought up in any case when it is read.
        """
        while self._unbooked and not self._stopped.is_set():
            log_id = self._unbooked.pop()
            try:
                UsageLedger(self._control.logs.of_id(log_id)).catch_up()
            except NotFound:
                # Its keys are gone: nobody reads this log again.
                continue
            except _FAILURES as error:
                _log.error("the usage of a tenant was not booked", log=log_id, error=type(error).__name__)

    def look(self) -> list[Verification]:
        """Verify those of the next tenants' logs whose time has come."""
        if not self._every_s:
            return []
        page = self._control.tenants.page(self._after, TENANTS)
        ids = ([] if self._after else [SYSTEM]) + [record.id for record in page]
        self._after = page[-1].name if page else ""
        found = [self._verified(log_id) for log_id in ids]
        return [one for one in found if one is not None]

    def close(self) -> None:
        """Break off what is under way, and end the threads. Before the logs are closed."""
        self._stopped.set()
        self._signer.shutdown()
        self._booker.shutdown()
        self._verifier.shutdown()

    def _verified(self, log_id: str) -> Verification | None:
        if self._stopped.is_set():
            return None
        try:
            logs = self._control.logs
            log = logs.of(None) if log_id == SYSTEM else logs.of_id(log_id)
            if not self._is_due(log):
                return None
            self._worked = time.monotonic()
            found = verify(log, recover=True, between=self._rest)
            # Whoever destroyed something meanwhile could not take it out of what this was reading.
            log.erase_traces()
        except _Stopped:
            return None
        except _FAILURES as error:
            reason = error.reason if isinstance(error, StrongroomError) else type(error).__name__
            _log.error("an audit log could not be verified", log=log_id, reason=reason)
            return None
        self._report(log, found)
        return found

    def _is_due(self, log: AuditLog) -> bool:
        with log.database.reading() as connection:
            last = connection.execute(_NEWEST.limit(1)).scalar_one_or_none()
            if last is None:
                last = connection.execute(_FIRST.limit(1)).scalar_one_or_none()
        # A time in the future is of a clock that was set back: nothing is known then.
        return last is not None and not 0 <= log.now() - last < self._every_s

    def _rest(self) -> None:
        """As long as was worked since the last time."""
        if self._stopped.wait(min(1.0, time.monotonic() - self._worked)):
            raise _Stopped
        self._worked = time.monotonic()

    def _report(self, log: AuditLog, found: Verification) -> None:
        finding = found.finding
        detail: dict[str, Any] = {"log": log.log_id, "size": found.size, "root": found.root.hex()}
        if finding is not None:
            detail |= {"finding": finding.kind, "at": finding.seq, "reason": finding.reason}
            _log.critical("AN AUDIT LOG DOES NOT VERIFY", **detail)
        told = [log] if finding is None or log.log_id == SYSTEM else [log, self._control.logs.of(None)]
        draft = Draft(
            action=ACTION,
            phase="outcome",
            outcome="allowed" if finding is None else "error",
            reason=None if finding is None else finding.kind,
            actor=Actor(kind="operator", method="schedule"),
            request=Request(id=secrets.token_hex(16)),
            detail=detail,
        )
        for each in told:
            try:
                each.append(lambda: draft)
            except _FAILURES as error:
                _log.error("a verification is not on record", log=each.log_id, error=type(error).__name__)


class _Stopped(Exception):
    """The process ends."""


def _lowest_priority() -> None:
    """Of this thread alone, as Linux takes it; elsewhere it would be that of the process."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
