"""What one admitted request holds, and how it grows while an answer is produced."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

import msgspec

from admission.counters import Counters, Crossing, Refused
from admission.limits import BOUNDS, NO_AMOUNTS, WINDOW_S, Amounts
from admission.scopes import SHARED
from tenancy.errors import LimitExceeded, LimitsUnavailable, Unavailable

STEP: Final = 256
"""Output tokens by which a lease is extended while an answer streams."""
AHEAD: Final = 32
"""Tokens left of what is held when the next ones are asked for, so that no piece overtakes its reservation."""

Price = Callable[[int, int], int]
"""Micro-units of so many input and output tokens."""
T = TypeVar("T")
_SHARED_RETRY_S: Final = (1.0, WINDOW_S + 1.0, 3_600.0)
"""What is said of a wait at a limit over all tenants: to the second it would say when others asked."""
_WORDS: Final = {bound.name: bound.words for bound in BOUNDS}
_ANOTHER: Final = "mint another root with POST /v1/roots"


class Lease(msgspec.Struct, eq=False, kw_only=True):
    """Made by `Gate.admit` alone; the request's task uses it, and changes nothing of it but by its methods.

    `held` is what it reserves now, `ceiling` the most output tokens that it ever will; `max_output_tokens` is what the
    generator may produce at most, `None` where nothing limits it; `deadline` an instant of `time.monotonic()`.
    `used` is what was used, as far as it was reported. `stopped` is the bound that refused more output; `on_allowance`
    whether the store of the counters was away when it was taken; `waited_s` are the seconds before that.
    """

    id: str
    counters: Counters
    immediate: bool
    on_allowance: bool
    held: Amounts
    ceiling: int
    max_output_tokens: int | None
    deadline: float | None
    price: Price
    waited_s: float
    used: Amounts = NO_AMOUNTS
    settled: bool = False
    stopped: Refused | None = None
    crossed: list[Crossing] = []

    @property
    def stopped_by(self) -> str:
        """The scope and the bound that refused more output, as in "user tokens_per_minute"; empty where none did."""
        return "" if self.stopped is None else f"{self.stopped.scope.kind} {self.stopped.bound}"

    @property
    def output(self) -> int:
        """Tokens produced, as far as they were reported."""
        return self.used.output

    async def expect(self, input_tokens: int) -> None:
        """The prompt is known: hold exactly its tokens. Raises `LimitExceeded` where that is more than fits."""
        held = self.held
        expected = Amounts(0, input_tokens, held.output, self.price(input_tokens, held.output))
        more = Amounts(0, input_tokens - held.input, 0, expected.money - held.money)
        refused = await self.counters.extend(self.id, more, self.used)
        if refused is not None:
            raise refusal(refused)
        self.held = expected

    async def afford(self, money: int) -> None:
        """The cost is known, but for what is not money: hold exactly that. Raises `LimitExceeded` where that is more
        than fits.
        """
        more = Amounts(money=money - self.held.money)
        refused = await self.counters.extend(self.id, more, self.used)
        if refused is not None:
            raise refusal(refused)
        self.held += more

    async def produced(self, input_tokens: int, output_tokens: int) -> bool:
        """Report the totals so far; whether more may be produced.

        Tokens come in the order of their reservation: the next `STEP` are asked for shortly before the last of those
        held is used, and where that is refused, what is held is the end.
        """
        self.used = self.used.or_more(self._priced(input_tokens, output_tokens))
        if output_tokens + AHEAD <= self.held.output or self.held.output >= self.ceiling:
            return True
        if self.stopped is None:
            output = min(self.held.output + STEP, self.ceiling)
            more = self._priced(self.held.input, output) - self.held
            self.stopped = await self.counters.extend(self.id, more, self.used)
            if self.stopped is None:
                self.held += more
                return True
        return output_tokens < self.held.output

    def until(self, seconds: float) -> float:
        """The instant (`time.monotonic()`) in so many `seconds`, or the request's deadline where that is earlier."""
        instant = time.monotonic() + seconds
        return instant if self.deadline is None else min(instant, self.deadline)

    @property
    def left_s(self) -> float | None:
        """Seconds to the request's deadline, if it has one."""
        return None if self.deadline is None else self.deadline - time.monotonic()

    async def renew(self) -> None:
        """A sign of life, with what was used so far."""
        if not self.settled:
            await self.counters.extend(self.id, NO_AMOUNTS, self.used)

    async def settle(self, input_tokens: int, output_tokens: int, money: int | None = None) -> bool:
        """Book the totals used and give the reservation back; `money` is what it cost, else the price of the tokens.

        Exactly once: later calls change nothing. Returns whether this call settled. A cancellation waits for it.
        """
        if self.settled:
            return False
        self.settled = True
        if money is None:
            money = self.price(input_tokens, output_tokens)
        used = self.used = Amounts(0, input_tokens, output_tokens, money).checked()
        work = self.counters.settle(self.id, used)
        settled = await (work if self.immediate else finished(work))
        self.crossed += settled.crossed
        return settled.booked

    def leave(self) -> Awaitable[None]:
        """End the request: what was reported is charged if nothing settled. Idempotent; a cancellation waits for it."""
        work = self._end()
        return work if self.immediate else finished(work)

    async def _end(self) -> None:
        if not self.settled:
            self.settled = True
            self.crossed += (await self.counters.settle(self.id, self.used)).crossed
        self.crossed += (await self.counters.leave(self.id)).crossed

    @asynccontextmanager
    async def in_time(self) -> AsyncIterator[None]:
        """The block ends at the request's deadline. Raises `Unavailable` then."""
        if self.deadline is None:
            yield
            return
        try:
            async with asyncio.timeout(self.deadline - time.monotonic()):
                yield
        except TimeoutError:
            raise Unavailable("the deadline of the request has passed", item="deadline", remedy="ask again") from None

    def _priced(self, input_tokens: int, output_tokens: int) -> Amounts:
        return Amounts(0, input_tokens, output_tokens, self.price(input_tokens, output_tokens))


def refusal(refused: Refused) -> LimitExceeded | LimitsUnavailable:
    """A refusal as the error that its caller gets. Of a scope that tenants share it says nothing but that."""
    scope, words = refused.scope, _WORDS.get(refused.bound, refused.bound)
    if refused.bound == "store":
        return LimitsUnavailable("the store of the counters is away", remedy="ask again")
    if scope.kind in SHARED:
        return LimitExceeded(
            "the service is at a limit of its own",
            scope=scope.kind,
            retry_after=next((step for step in _SHARED_RETRY_S if step >= refused.retry_after), _SHARED_RETRY_S[-1]),
            remedy="try again later",
        )
    if refused.bound == "deadline":
        return LimitExceeded(
            f"the time of this {scope.kind} is over",
            scope=scope.kind,
            retry_after=refused.retry_after,
            remedy=_ANOTHER,
        )
    return LimitExceeded(
        f"the {scope.kind}'s limit of {refused.limit} {words} is reached",
        scope=scope.kind,
        bound=refused.bound,
        limit=refused.limit,
        used=refused.used,
        retry_after=refused.retry_after,
        remedy=_remedy(refused),
    )


def _remedy(refused: Refused) -> str:
    if refused.need > refused.limit:
        return f"this request alone needs {refused.need}; ask for less"
    if refused.scope.kind == "root" and refused.bound in ("requests", "tokens", "money"):
        return _ANOTHER
    return "GET /v1/limits shows each limit, and when it has room again"


async def finished(work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which is done to its end even where the caller is cancelled, and the caller after it."""
    task = asyncio.ensure_future(_begun(work))
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            if task.cancelled():
                raise
            cancelled = error
    if cancelled is not None:
        task.result()
        raise cancelled
    return task.result()


async def _begun(work: Awaitable[T]) -> T:
    return await work
