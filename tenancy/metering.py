"""What one question cost, hop by hop: a small record for the audit."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated

import msgspec

MicroUnits = Annotated[int, msgspec.Meta(ge=0)]
_PER = 1_000_000


class Price(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Micro-units per call and per million tokens; integers throughout, so that sums are exact."""

    call: MicroUnits = 0
    input_per_million: MicroUnits = 0
    output_per_million: MicroUnits = 0

    def of(self, input_tokens: int, output_tokens: int) -> int:
        """Micro-units of one call; the token part is rounded half up, once."""
        tokens = input_tokens * self.input_per_million + output_tokens * self.output_per_million
        return self.call + (tokens + _PER // 2) // _PER


class PriceTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Prices by hop name under a revision; a hop that is not listed is free."""

    revision: str = "none"
    hops: Mapping[str, Price] = {}


class Hop(msgspec.Struct, frozen=True):
    """One metered step: embed, retrieve, rerank, generate, cache."""

    name: str
    milliseconds: int
    input_tokens: int = 0
    output_tokens: int = 0
    microunits: int = 0


class HopTokens:
    """Tokens of a hop in progress: the last figures reported are charged, also when the hop fails."""

    def __init__(self) -> None:
        self.input = 0
        self.output = 0

    def used(self, input_tokens: int, output_tokens: int = 0) -> None:
        """Set the totals of this hop so far."""
        self.input, self.output = max(0, input_tokens), max(0, output_tokens)


class Meter:
    """The hops of one question, in the order in which they ended. One task writes it."""

    def __init__(self, prices: PriceTable | None = None, clock: Callable[[], float] = time.perf_counter) -> None:
        self.prices = prices or PriceTable()
        self._clock = clock
        self._hops: list[Hop] = []

    @contextmanager
    def hop(self, name: str) -> Iterator[HopTokens]:
        """Time a step and book what it reported, on every exit."""
        tokens, begun = HopTokens(), self._clock()
        try:
            yield tokens
        finally:
            price = self.prices.hops.get(name, Price())
            self._hops.append(
                Hop(
                    name=name,
                    milliseconds=max(0, round((self._clock() - begun) * 1000)),
                    input_tokens=tokens.input,
                    output_tokens=tokens.output,
                    microunits=price.of(tokens.input, tokens.output),
                )
            )

    @property
    def hops(self) -> tuple[Hop, ...]:
        return tuple(self._hops)

    @property
    def microunits(self) -> int:
        return sum(hop.microunits for hop in self._hops)
