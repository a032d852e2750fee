"""All audit logs of one process: opened when first used, written by one small pool of threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from audit.log import AuditLog
from tenancy.control import SYSTEM, Tenants
from tenancy.errors import NotFound
from tenancy.identity import Principal
from tenancy.tenant import AuditFiles

WRITER_THREADS: Final = 8


class AuditLogs:
    """The logs below a data directory. An idle log holds no thread and, beyond the pooled ones, no open file."""

    def __init__(
        self,
        tenants: Tenants,
        *,
        deadline_s: float = 5.0,
        queue_limit: int = 4_096,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.live = tenants.storage.presence()
        self._tenants = tenants
        self._deadline_s = deadline_s
        self._queue_limit = queue_limit
        self._clock = clock
        self._writers = ThreadPoolExecutor(WRITER_THREADS, thread_name_prefix="audit")
        self._logs: dict[str, AuditLog] = {}
        self._lock = threading.Lock()

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

    def forget(self, tenant_id: str) -> None:
        """Write what waits and close one log; the next use opens it again."""
        with self._lock:
            log = self._logs.pop(tenant_id, None)
        if log is not None:
            log.close()

    def close(self) -> None:
        """Write everything that waits, end the writers and give up this process instance's identity."""
        with self._lock:
            logs = list(self._logs.values())
            self._logs.clear()
        for log in logs:
            log.close()
        self._writers.shutdown()
        self.live.close()

    def _open(self, files: AuditFiles) -> AuditLog:
        with self._lock:
            found = self._logs.get(files.tenant_id)
            if found is None:
                found = AuditLog(
                    files,
                    self.live,
                    self._writers,
                    deadline_s=self._deadline_s,
                    queue_limit=self._queue_limit,
                    clock=self._clock,
                )
                self._logs[files.tenant_id] = found
            return found
