"""A long prompt is read in pieces, with others served between them.

An engine reads one prompt to its end before it reads another, chunk by chunk, and whoever is being answered there
waits (SGLang 0.5: a chunk of the prompt that is being read goes before everything in its queue, whatever the priority).
Since it keeps what it read, under the same KV salt, the door can send the beginning of a prompt alone, for one token
that is thrown away, and a longer beginning after that: each time only what is new is read. Between two pieces whoever
came meanwhile is next in fair order, and the others' answers go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from generation.generator import Finish, Piece
from generation.prompt import Prompt
from generation.tokens import estimate
from generation.wire import until
from tenancy.errors import Unavailable

if TYPE_CHECKING:
    from generation.lanes import Lanes, Ticket
    from generation.replica import Request

    Attempt = Callable[[Request, int], AsyncGenerator[Piece, None]]

S = TypeVar("S")


def beginnings(prompt: Prompt, tokens: int, size: int) -> Iterator[Prompt]:
    """Of a prompt of `tokens`, beginnings that each have about `size` tokens more; not the whole."""
    whole = sum(len(message.content) for message in prompt.messages)
    for number in range(1, -(-tokens // size)):
        left, messages = whole * number * size // tokens, []
        for message in prompt.messages:
            messages.append(replace(message, content=message.content[:left]))
            left -= len(messages[-1].content)
        yield replace(prompt, messages=tuple(messages))


@dataclass(slots=True)
class Ahead(Generic[S]):
    """What `seat` read of a prompt before the request itself is sent: `tokens`, by our count. The engine `computed` so
    many, by its own, which it then takes from its memory: whoever asks pays for them as read.
    """

    tokens: int = 0
    computed: int = 0
    seat: S | None = None

    def elsewhere(self, seats: Iterable[S]) -> list[S]:
        """Replicas that would read all of it again."""
        return [seat for seat in seats if seat is not self.seat] if self.tokens else []

    def told(self, piece: Piece) -> Piece:
        """`piece` as if the prompt had been sent whole."""
        usage = piece.usage
        if usage is None or not self.computed:
            return piece
        usage = replace(usage, cached_input=max(0, usage.cached_input - self.computed))
        return replace(piece, usage=usage)

    async def read(self, request: Request, tokens: int, lanes: Lanes[Any], attempt: Attempt) -> None:
        """Have all of a large prompt read but its last piece; less where that fails, which the request then sees.

        `attempt` sends the beginning of a request that has so many tokens. Of 0 tokens nothing is read.
        """
        terms, read = lanes.terms, 0
        if terms.piece_tokens is None or tokens < terms.small_tokens:
            return
        for beginning in beginnings(request.prompt, tokens, terms.piece_tokens):
            read += terms.piece_tokens
            piece = attempt(replace(request, prompt=beginning, max_tokens=1), read)
            try:
                async with until(request.deadline), aclosing(piece) as said:
                    async for word in said:
                        if isinstance(word, Finish) and word.reason != "error":
                            self.tokens, self.computed = read, word.usage.input - word.usage.cached_input
                    if self.tokens < read or self.seat is None:
                        return
                    await lanes.pauses.wait(self.seat, terms.piece_pause)
            except (Unavailable, TimeoutError):
                return


def charge(ticket: Ticket[Any], piece: Piece) -> None:
    """What the engine did so far by its own count; an estimate where it says none while it writes."""
    if piece.usage is None:
        ticket.wrote(estimate(piece.text))
    else:
        ticket.settle(max(0, piece.usage.input - piece.usage.cached_input), piece.usage.output)


@dataclass(slots=True, eq=False)
class _Pause(Generic[S]):
    """At `seat`, until `left` more tokens are written there."""

    seat: S
    left: int
    over: asyncio.Future[None]


class Pauses(Generic[S]):
    """Between two pieces: until each of the answers that stream at a replica has had some tokens.

    `streaming` gives how many stream at one.
    """

    def __init__(self, streaming: Callable[[S], int]) -> None:
        self._streaming = streaming
        self._running: list[_Pause[S]] = []

    async def wait(self, seat: S, tokens: int) -> None:
        """Return when the answers that stream at `seat` have `tokens` more each, all in all, or none streams there."""
        if not (streams := self._streaming(seat)):
            return
        pause = _Pause(seat, tokens * streams, asyncio.get_running_loop().create_future())
        self._running.append(pause)
        try:
            await pause.over
        finally:
            self._running.remove(pause)

    def wrote(self, seat: S, tokens: int) -> None:
        """So many tokens came from `seat`, or an answer ended there."""
        for pause in self._running:
            if pause.seat is seat:
                pause.left -= tokens
                if (pause.left <= 0 or not self._streaming(seat)) and not pause.over.done():
                    pause.over.set_result(None)
