"""The hops of one request while it runs: time, tokens, model and price of each, as the audit's record takes them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from audit.record import Metered
from metering.prices import FREE, FREE_PLAN, Basis, PriceBook, PriceList
from tenancy.billing import UsageTerms
from tenancy.errors import InvalidInput, Unavailable


@dataclass(frozen=True, slots=True)
class Hop:
    """One metered step: embed, retrieve, rerank, generate, cache; others, as "compare", are free."""

    name: str
    milliseconds: int
    metered: Metered


class HopUse:
    """A hop in progress: the last figures reported are charged, also when the hop fails."""

    def __init__(self) -> None:
        self._computed = (0, 0)
        self._served = (0, 0)
        self._saved: tuple[int, int] | None = None
        self._model: str | None = None
        self._version: str | None = None
        self._adapter: str | None = None
        self._estimated = False

    def by(self, model: str, version: str | None = None, adapter: str | None = None) -> None:
        """Name what does the work: a model and its version, or an engine."""
        self._model, self._version, self._adapter = model, version or None, adapter or None

    def used(
        self, input_tokens: int, output_tokens: int = 0, *, cached_input: int = 0, estimated: bool = False
    ) -> None:
        """Set the totals of this hop so far. Of its input, `cached_input` tokens were not computed again.

        `estimated`: the engine's last word is missing. The totals are what it said before, or our own counts.
        """
        served = max(0, input_tokens), max(0, output_tokens)
        self._computed = served[0] - min(max(0, cached_input), served[0]), served[1]
        self._served, self._estimated = served, estimated

    def saved(self, input_tokens: int, output_tokens: int) -> None:
        """These tokens were served and none of them computed: a remembered answer of the model that `by` named."""
        self._served = self._saved = max(0, input_tokens), max(0, output_tokens)

    def metered(self, name: str, prices: PriceList, basis: Basis) -> Metered:
        """The use under `prices`. What was saved is the price of generating the same tokens."""
        charged = self._computed if basis == "actual" else self._served
        saved = 0 if self._saved is None else prices.price("generate", self._model).of(*self._saved)
        return Metered(
            model=self._model,
            version=self._version,
            adapter=self._adapter,
            computed=self._computed,
            served=None if self._served == self._computed else self._served,
            microunits=prices.price(name, self._model).of(*charged),
            saved=saved,
            estimated=self._estimated,
        )


class Meter:
    """The hops of one request, in the order in which they ended. One task writes it."""

    def __init__(
        self,
        prices: PriceList = FREE,
        basis: Basis = "actual",
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.prices = prices
        self.basis: Basis = basis
        self._clock = clock
        self._hops: list[Hop] = []

    @contextmanager
    def hop(self, name: str) -> Iterator[HopUse]:
        """Time a step and book what it reported, on every exit."""
        use, begun = HopUse(), self._clock()
        try:
            yield use
        finally:
            milliseconds = max(0, round((self._clock() - begun) * 1000))
            self._hops.append(Hop(name, milliseconds, use.metered(name, self.prices, self.basis)))

    @property
    def hops(self) -> tuple[Hop, ...]:
        return tuple(self._hops)

    @property
    def microunits(self) -> int:
        return sum(hop.metered.microunits for hop in self._hops)

    @property
    def generated(self) -> tuple[int, int]:
        """Tokens (input, output) that were generated with, as limits count them: on either basis of the bill the whole
        prompt, and nothing of a remembered answer.
        """
        uses = [hop.metered for hop in self._hops if hop.name == "generate"]
        tokens = [use.computed if use.served is None else use.served for use in uses]
        return sum(part[0] for part in tokens), sum(part[1] for part in tokens)


@dataclass(frozen=True, slots=True)
class Tariff:
    """The deployment's price lists, and the plan of tenants whose contract names none."""

    book: PriceBook = field(default_factory=PriceBook)
    plan: str = FREE_PLAN
    clock: Callable[[], float] = time.time

    def meter(self, terms: UsageTerms) -> Meter:
        """A meter for one request, under the list in force now. Raises `Unavailable` where there is none."""
        try:
            prices = self.book.at(terms.prices or self.plan, self.clock())
        except InvalidInput as error:
            raise Unavailable(
                error.reason, item=error.item, remedy="add the price list that the contract names"
            ) from None
        return Meter(prices, terms.tokens)
