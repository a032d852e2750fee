"""A generator that takes its time, so that answers overlap and a cancellation hits one in the middle."""

from __future__ import annotations

import asyncio
import re
import threading
from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import aclosing

from generation.extractive import ExtractiveGenerator
from generation.generator import Delta, Piece
from generation.prompt import Prompt

WORD_S = 0.005
WAIT_S = 30


class SlowGenerator(ExtractiveGenerator):
    """A word each few milliseconds. A question with "hold" gets two and then nothing, until it is closed: the checks of
    what leaves let a word through once the next one shows where it ends.
    """

    def __init__(self) -> None:
        self.spoken: list[str] = []
        self.most_at_once = 0
        self.closed_while_held: set[str] = set()
        self.texts_by_salt: defaultdict[str, set[str]] = defaultdict(set)
        self._running = 0
        self._held: set[str] = set()
        self._changed = threading.Condition()

    async def generate(
        self, prompt: Prompt, *, salt: str, request_id: str, max_tokens: int, deadline: float
    ) -> AsyncGenerator[Piece, None]:
        self.texts_by_salt[salt].update(source.text for source in prompt.sources)
        self._running += 1
        self.most_at_once = max(self.most_at_once, self._running)
        inner = super().generate(prompt, salt=salt, request_id=request_id, max_tokens=max_tokens, deadline=deadline)
        try:
            async with aclosing(inner) as pieces:
                async for piece in pieces:
                    for number, part in enumerate(_words(piece)):
                        self.spoken.append(request_id)
                        yield part
                        if number == 1 and "hold" in prompt.question:
                            await self._hold(prompt.question)
                        await asyncio.sleep(WORD_S)
        finally:
            self._running -= 1

    async def _hold(self, question: str) -> None:
        with self._changed:
            self._held.add(question)
            self._changed.notify_all()
        try:
            await asyncio.Event().wait()
        finally:
            self.closed_while_held.add(question)

    def await_held(self, question: str) -> bool:
        """Blocks until the first words of `question` are out."""
        with self._changed:
            return self._changed.wait_for(lambda: question in self._held, WAIT_S)


def _words(piece: Piece) -> list[Piece]:
    return [Delta(part) for part in re.findall(r"\s*\S+", piece.text)] if isinstance(piece, Delta) else [piece]
