"""Which logs this process instance may leave an open intent in: on record before the first one, so that recovery after
a crash opens those logs and no other.
"""

from __future__ import annotations

import threading

from tenancy.presence import Presence


class Marks:
    """Open intents by log, and the marks that the instance keeps of them. Safe from several threads.

    A mark costs an fsync. It therefore stays when the last intent has its outcome, until `settle`.
    """

    def __init__(self, presence: Presence) -> None:
        self._presence = presence
        self._open: dict[str, int] = {}
        self._lock = threading.Lock()

    def opening(self, log_id: str, intents: int) -> None:
        """Before `intents` are committed; returns when the log's mark is durable. One thread at a time per log."""
        if not intents:
            return
        with self._lock:
            marked = log_id in self._open
            self._open[log_id] = self._open.get(log_id, 0) + intents
        if not marked:
            try:
                self._presence.mark(log_id)
            except BaseException:
                with self._lock:
                    del self._open[log_id]
                raise

    def closed(self, log_id: str, outcomes: int) -> None:
        """After so many intents of this instance got their outcome."""
        if not outcomes:
            return
        with self._lock:
            if log_id in self._open:
                self._open[log_id] = max(0, self._open[log_id] - outcomes)

    def settle(self) -> bool:
        """Drop the marks of logs without open intents; returns whether none is left."""
        with self._lock:
            done = [log_id for log_id, count in self._open.items() if not count]
            for log_id in done:
                del self._open[log_id]
            # Behind the lock: an intent that comes now makes its mark afterwards.
            self._presence.unmark(done)
            return not self._open

    def __len__(self) -> int:
        return len(self._open)
