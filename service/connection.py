"""One HTTP connection: the head of a request has to come in time, and what is sent has to be read in time, since an
open socket costs the other side nothing. Whoever reads nothing would hold a place at a generator.
"""

from __future__ import annotations

import asyncio
from typing import Final

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_S: Final = 30.0
"""Seconds from the opening of a connection, or the first byte of a request, to the end of its head."""

READ_S: Final = 60.0
"""Seconds in which a client takes what is waiting for it: some 50 kB."""


class Connection(H11Protocol):
    """uvicorn's h11 protocol, which bounds the size of a head, with a bound on its time and on that of reading."""

    _deadline: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self._read()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._read()
        self._unread = self.loop.call_later(READ_S, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._read()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._wants_head():
            self._await_head()
        else:
            self._stop_waiting()

    def _read(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _wants_head(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _await_head(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(HEAD_S, self._expire)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _expire(self) -> None:
        self._deadline = None
        if self._wants_head():
            self.transport.close()
