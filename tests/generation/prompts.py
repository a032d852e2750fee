"""Prompts that the generation tests share."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import aclosing

from generation.generator import Delta, Finish, Generator, Piece
from generation.prompt import Prompt, PromptSource, Templates, render

LEAVE = PromptSource(
    "S1", "leave.md", "Leave policy", "Every employee has 27 days of annual leave.\nManagers approve each request."
)
TRAVEL = PromptSource("S2", "travel.md", "Travel policy", "Flights are booked by the travel office.")


def prompt(question: str = "How many days of annual leave are there?", *sources: PromptSource) -> Prompt:
    return render(Templates().get(), question, sources or (LEAVE, TRAVEL))


def soon(seconds: float = 20.0) -> float:
    return time.monotonic() + seconds


async def pieces(
    generator: Generator, *, salt: str = "a" * 64, max_tokens: int = 64, deadline: float | None = None
) -> list[Piece]:
    stream = generator.generate(
        prompt(), salt=salt, request_id="0" * 32, max_tokens=max_tokens, deadline=deadline or soon()
    )
    async with aclosing(stream):
        return [piece async for piece in stream]


async def first_delta(stream: AsyncIterator[Piece]) -> str:
    async for piece in stream:
        if isinstance(piece, Delta):
            return piece.text
    raise AssertionError("the stream held no text")


def text_of(given: list[Piece]) -> str:
    return "".join(piece.text for piece in given if isinstance(piece, Delta))


def finish_of(given: list[Piece]) -> Finish:
    *deltas, last = given
    assert isinstance(last, Finish)
    assert not any(isinstance(piece, Finish) for piece in deltas)
    return last
