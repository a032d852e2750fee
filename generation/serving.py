"""A pool as it serves one user of a tenant."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from admission.fair import Party
from generation.generator import ModelIdentity, Piece
from generation.prompt import Prompt
from generation.replica import Adapter, Request

if TYPE_CHECKING:
    from generation.pool import Pool


@dataclass(frozen=True, slots=True)
class Serving:
    """A pool's generator for one party, perhaps with an adapter. It holds nothing: closing it closes no pool."""

    pool: Pool
    party: Party | None = None
    adapter: Adapter | None = None

    @property
    def identity(self) -> ModelIdentity:
        return self.pool.identity_with(self.adapter)

    @property
    def salted(self) -> bool:
        return self.pool.salted

    def count(self, text: str) -> int:
        return self.pool.count(text)

    def generate(
        self, prompt: Prompt, *, salt: str, request_id: str, max_tokens: int, deadline: float
    ) -> AsyncGenerator[Piece, None]:
        """See `Generator.generate`."""
        request = Request(
            prompt=prompt,
            salt=salt,
            request_id=request_id,
            max_tokens=max_tokens,
            deadline=deadline,
            adapter=self.adapter,
        )
        return self.pool.stream(request, self.party)

    async def aclose(self) -> None:
        return None
