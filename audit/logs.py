"""All audit logs of one process: opened when first used, written by one small pool of threads."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from sqlalchemy.exc import SQLAlchemyError

from audit.log import AuditLog
from audit.marks import Marks
from tenancy.control import SYSTEM, Tenants
from tenancy.errors import NotFound, StrongroomError
from tenancy.identity import Principal
from tenancy.recent import Recent
from tenancy.tenant import AuditFiles

WRITER_THREADS: Final = 8
LOGS: Final = 1_024
"""Logs kept though nobody is using them right now."""

_logger = logging.getLogger(__name__)


class AuditLogs:
    """The logs of a deployment. An idle log holds no thread and, beyond the pooled ones, no open file."""

    def __init__(
        self,
        tenants: Tenants,
        *,
        deadline_s: float = 5.0,
        queue_limit: int = 4_096,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.live = tenants.storage.presence()
        self._marks = Marks(self.live)
        self._tenants = tenants
        self._deadline_s = deadline_s
        self._queue_limit = queue_limit
        self._clock = clock
        self._writers = ThreadPoolExecutor(WRITER_THREADS, thread_name_prefix="audit")
        # One with records that wait is held by its writers, and so found again.
        self._logs: Recent[str, AuditLog] = Recent(LOGS)
        # By id: one that grew must not stay in memory for that.
        self._unsigned: set[str] = set()

    def of(self, principal: Principal | None) -> AuditLog:
        """The log of the principal's tenant, also of a suspended one; the system log without a principal.

        A tenant whose keys are gone has no log any more: what its last credentials try belongs to the system log.
        """
        tenant_id = SYSTEM if principal is None else principal.tenant_id
        found = self._logs.get(tenant_id)
        if found is not None:
            return found
        if principal is None:
            return self._open(self._tenants.system_audit())
        try:
            return self._open(self._tenants.audit_files(principal))
        except NotFound:
            return self.of(None)

    def of_id(self, tenant_id: str) -> AuditLog:
        """The log of a tenant by its id, also of a deleted one: it is retained. Raises `NotFound`."""
        return self._logs.get(tenant_id) or self._open(self._tenants.audit_files_of(tenant_id))

    def forget(self, tenant_id: str) -> None:
        """Write what waits and close one log; the next use opens it again."""
        log = self._logs.pop(tenant_id)
        if log is not None:
            log.close()

    def settle(self) -> None:
        """Drop the marks of logs without open intents: what a crash from now on leaves is in the others alone."""
        self._marks.settle()

    def sign(self) -> list[str]:
        """Sign a checkpoint of each log to which this process added records since the last one; returns their ids."""
        grown = list(self._unsigned)
        for log_id in grown:
            try:
                self.of_id(log_id).sign()
            except NotFound:
                # Its keys are gone: nobody reads this log again.
                self._unsigned.discard(log_id)
            except (StrongroomError, SQLAlchemyError) as error:
                _logger.error("audit log %s cannot be signed: %s", log_id, type(error).__name__)
        return grown

    def recover(self) -> Iterator[tuple[str, int | Exception]]:
        """Close the intents of process instances that ended; gives each log that was opened for it with the number of
        intents, or with why it was not recovered, which the next call tries again.

        Opened are the logs that those instances marked. A directory from before there were marks is walked once.
        """
        ended = self.live.ended()
        walk = not self.live.walked()
        marked = {writer: self.live.marked(writer) for writer in ended}
        every = (record.id for record in self._tenants.listed()) if walk else ()
        failed: set[str] = set()
        seen: set[str] = set()
        for log_id in itertools.chain(sorted({*itertools.chain(*marked.values())}), [SYSTEM] if walk else [], every):
            if log_id in seen:
                continue
            seen.add(log_id)
            try:
                log = self._open(self._tenants.audit_files_of(log_id))
                settled = log.recover()
                log.erase_traces()
                yield log_id, settled
            except NotFound:
                # Its keys are gone: nobody reads this log again.
                continue
            except (StrongroomError, SQLAlchemyError) as error:
                failed.add(log_id)
                yield log_id, error
        self.live.forget(writer for writer in ended if failed.isdisjoint(marked[writer]))
        if walk and not failed:
            self.live.set_walked()

    def close(self) -> None:
        """Write everything that waits and sign it, end the writers and give up this process instance's identity."""
        for log in self._logs.values():
            self.forget(log.log_id)
        self.sign()
        self._writers.shutdown()
        self.live.close(settled=self._marks.settle())

    def _open(self, files: AuditFiles) -> AuditLog:
        made = AuditLog(
            files,
            self.live,
            self._writers,
            marks=self._marks,
            unsigned=self._unsigned,
            deadline_s=self._deadline_s,
            queue_limit=self._queue_limit,
            clock=self._clock,
        )
        return self._logs.add(files.tenant_id, made)
