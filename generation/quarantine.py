"""Requests under which servers stopped: one that did so twice is not sent again for a while."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from generation.prompt import Prompt
from generation.wire import until
from tenancy.errors import InvalidInput, Unavailable

_CRASHES: Final = 2
_KEPT: Final = 1_024


class Quarantined(InvalidInput):
    """A request that stopped two servers. No other pool gets it either."""


class Quarantine:
    """Digests of requests, under a key of this process: of the requests themselves nothing is kept."""

    def __init__(self, seconds: float = 600.0, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._key = secrets.token_bytes(32)
        self._turn = asyncio.Lock()
        self._crashes: OrderedDict[bytes, tuple[int, float]] = OrderedDict()

    def digest(self, prompt: Prompt, *, tenant: str | None, model: str, max_tokens: int) -> bytes:
        """Equal for equal requests of one tenant: no tenant learns what another one's stopped."""
        found = hashlib.blake2b(key=self._key, digest_size=16)
        for part in (tenant or "", model, str(max_tokens), *(f"{m.role}\0{m.content}" for m in prompt.messages)):
            found.update(len(part).to_bytes(8, "big") + part.encode("utf-8", "surrogatepass"))
        return found.digest()

    def require_free(self, digest: bytes, request_id: str) -> None:
        """Raises `Quarantined`."""
        count, until = self._crashes.get(digest, (0, 0.0))
        if count >= _CRASHES and self._clock() < until:
            minutes = max(1, round((until - self._clock()) / 60))
            raise Quarantined(
                "the model's servers stopped under this request twice, and it is not sent again for a while",
                item=request_id,
                remedy=f"ask in other words, or again in {minutes} minutes",
            )

    def suspected(self, digest: bytes) -> bool:
        """Whether a server stopped under this request lately."""
        count, until = self._crashes.get(digest, (0, 0.0))
        return count > 0 and self._clock() < until

    def crashed(self, digest: bytes) -> None:
        """A server's connection broke under this request."""
        count, until = self._crashes.pop(digest, (0, 0.0))
        now = self._clock()
        self._crashes[digest] = (count + 1 if now < until else 1, now + self._seconds)
        while len(self._crashes) > _KEPT:
            self._crashes.popitem(last=False)

    def cleared(self, digest: bytes) -> None:
        """The request was answered to its end."""
        self._crashes.pop(digest, None)

    @asynccontextmanager
    async def alone(self, deadline: float) -> AsyncIterator[None]:
        """One at a time of the requests under which a server has stopped. Raises `Unavailable` at the deadline."""
        try:
            async with until(deadline):
                await self._turn.acquire()
        except TimeoutError:
            raise Unavailable("no replica had room for the request before its deadline", item="generator") from None
        try:
            yield
        finally:
            self._turn.release()
