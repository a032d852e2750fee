"""What one admitted request holds, and how it grows while an answer is produced."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

from admission.counters import Counters, Crossing, Granted, Refused
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


class Lease:
    """Made by `Gate.admit` alone; the request's task uses it.

    `max_output_tokens` is what the generator may produce at most, `None` where nothing limits it; `deadline` an
    instant of `time.monotonic()`. `stopped` is the bound that refused more output; `on_allowance` whether the store of
    the counters was away when it was taken; `waited_s` are the seconds before that.
    """

    def __init__(
        self,
        counters: Counters,
        granted: Granted,
        held: Amounts,
        *,
        ceiling: int,
        max_output_tokens: int | None,
        deadline: float | None,
        price: Price,
    ) -> None:
        self.id = granted.lease
        self.rooms = granted.rooms
        self.on_allowance = granted.on_allowance
        self.max_output_tokens = max_output_tokens
        self.deadline = deadline
        self.stopped: Refused | None = None
        self.crossed: list[Crossing] = []
        self.waited_s = 0.0
        self._counters = counters
        self._immediate = getattr(counters, "immediate", False)
        self._held = held
        self._ceiling = ceiling
        self._price = price
        self._used = NO_AMOUNTS
        self._settled = False

    @property
    def settled(self) -> bool:
        return self._settled

    @property
    def stopped_by(self) -> str:
        """The scope and the bound that refused more output, as in "user tokens_per_minute"; empty where none did."""
        return "" if self.stopped is None else f"{self.stopped.scope.kind} {self.stopped.bound}"

    @property
    def used(self) -> Amounts:
        """What was used, as far as it was reported."""
        return self._used

    @property
    def output(self) -> int:
        """Tokens produced, as far as they were reported."""
        return self._used.output

    async def expect(self, input_tokens: int) -> None:
        """The prompt is known: hold exactly its tokens. Raises `LimitExceeded` where that is more than fits."""
        more = self._priced(input_tokens, self._held.output) - self._held
        refused = await self._counters.extend(self.id, more, self._used)
        if refused is not None:
            raise refusal(refused)
        self._held += more

    async def afford(self, money: int) -> None:
        """The cost is known, but for what is not money: hold exactly that. Raises `LimitExceeded` where that is more
        than fits.
        """
        more = Amounts(money=money - self._held.money)
        refused = await self._counters.extend(self.id, more, self._used)
        if refused is not None:
            raise refusal(refused)
        self._held += more

    async def produced(self, input_tokens: int, output_tokens: int) -> bool:
        """Report the totals so far; whether more may be produced.

        Tokens come in the order of their reservation: the next `STEP` are asked for shortly before the last of those
        held is used, and where that is refused, what is held is the end.
        """
        self._used = self._used.or_more(self._priced(input_tokens, output_tokens))
        if output_tokens + AHEAD <= self._held.output or self._held.output >= self._ceiling:
            return True
        if self.stopped is None:
            output = min(self._held.output + STEP, self._ceiling)
            more = self._priced(self._held.input, output) - self._held
            self.stopped = await self._counters.extend(self.id, more, self._used)
            if self.stopped is None:
                self._held += more
                return True
        return output_tokens < self._held.output

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
        if not self._settled:
            await self._counters.extend(self.id, NO_AMOUNTS, self._used)

    async def settle(self, input_tokens: int, output_tokens: int, money: int | None = None) -> bool:
        """Book the totals used and give the reservation back; `money` is what it cost, else the price of the tokens.

        Exactly once: later calls change nothing. Returns whether this call settled. A cancellation waits for it.
        """
        if self._settled:
            return False
        self._settled = True
        if money is None:
            money = self._price(input_tokens, output_tokens)
        used = self._used = Amounts(0, input_tokens, output_tokens, money).checked()
        settled = await self._done(self._counters.settle(self.id, used))
        self.crossed += settled.crossed
        return settled.booked

    async def leave(self) -> None:
        """End the request: what was reported is charged if nothing settled. Idempotent; a cancellation waits for it."""
        await self._done(self._end())

    async def _done(self, work: Coroutine[Any, Any, T]) -> T:
        return await (work if self._immediate else finished(work))

    async def _end(self) -> None:
        if not self._settled:
            self._settled = True
            self.crossed += (await self._counters.settle(self.id, self._used)).crossed
        self.crossed += (await self._counters.leave(self.id)).crossed

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
        return Amounts(0, input_tokens, output_tokens, self._price(input_tokens, output_tokens))


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
