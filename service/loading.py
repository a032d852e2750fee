"""Documents that come over HTTP: threads of their own, and one document of a tenant at a time.

Parsing and embedding one document can take minutes. On the threads of the questions, a few documents of one tenant
would keep all others' questions waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, ParamSpec, TypeVar

from tenancy.errors import LimitExceeded
from tenancy.workers import Workers

WAITING: Final = 32
"""Documents of one tenant that are written or wait for it; one more is refused."""
_RETRY_S: Final = 5.0

_P = ParamSpec("_P")
_T = TypeVar("_T")


@dataclass(slots=True)
class _Line:
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    length: int = 0


class Loading:
    """`threads` documents are written at one time, each of another tenant. For one event loop."""

    def __init__(self, threads: int) -> None:
        self._workers = Workers(threads, 1 << 20, "load")
        self._lines: dict[str, _Line] = {}

    async def run(self, tenant_id: str, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Call `function` in a thread when it is the tenant's turn. Raises `LimitExceeded`."""
        async with self.turn(tenant_id) as workers:
            return await workers.run(function, *args, **kwargs)

    @asynccontextmanager
    async def turn(self, tenant_id: str) -> AsyncIterator[Workers]:
        """The tenant's turn, for as long as this lasts; what writes a document runs on the threads that it gives.

        Raises `LimitExceeded`.
        """
        line = self._lines.setdefault(tenant_id, _Line())
        if line.length >= WAITING:
            raise LimitExceeded(
                f"{WAITING} documents of the tenant are being written",
                scope="tenant",
                limit=WAITING,
                used=line.length,
                retry_after=_RETRY_S,
            )
        line.length += 1
        try:
            async with line.turn:
                yield self._workers
        finally:
            line.length -= 1
            if not line.length:
                del self._lines[tenant_id]

    def close(self) -> None:
        self._workers.close()
