"""How the model's context is divided: instructions, question and answer first, then the sources and the history.

Every count is of the text as it stands in the prompt, by the model's own tokenizer where one is configured. The digest
of a conversation covers all of it as sent, whatever was cut here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from generation.generator import prompt_tokens
from generation.prompt import Template, Turn, render, turn_block
from tenancy.errors import InvalidInput

_SLACK = 16
"""Tokens by which the parts of a prompt may differ from the whole: where two meet, a tokenizer merges otherwise."""
_LEAST_SHARE = 8
"""At least one in so many tokens of the context is for sources."""

Count = Callable[[str], int]


@dataclass(frozen=True, slots=True)
class Room:
    """`sources` and `answer` are tokens, `fixed` those of everything else; `history` are the newest turns, in order,
    and `cut` counts the older ones that were left out.
    """

    sources: int
    answer: int
    fixed: int
    history: tuple[Turn, ...]
    cut: int = 0


def divide(
    template: Template,
    question: str,
    history: Sequence[Turn],
    *,
    length: int,
    sources: int,
    answer: int,
    count: Count,
    mark: str | None = None,
) -> Room:
    """Divide `length` tokens. `sources` and `answer` are what is wished for.

    The answer gets at most half of the context, the history at most half of what is left by then, its newest turns
    first. Raises `InvalidInput` where the question leaves too little for sources.
    """

    def tokens(turns: Sequence[Turn]) -> int:
        return prompt_tokens(render(template, question, (), turns, mark=mark), count) + _SLACK

    answer = min(answer, length // 2)
    left = length - answer - tokens(())
    if left < min(sources, length // _LEAST_SHARE):
        raise InvalidInput(
            "the question leaves no room for sources in the model's context",
            item="query",
            remedy="ask a shorter question, or use a model with a longer context",
        )
    kept = _newest(history, left // 2, count)
    # The frame around a history, and where its turns meet, counts too.
    while kept and length - answer - tokens(kept) < min(sources, left - left // 2):
        kept = kept[1:]
    fixed = tokens(kept)
    return Room(min(sources, length - answer - fixed), answer, fixed, kept, len(history) - len(kept))


def _newest(history: Sequence[Turn], most: int, count: Count) -> tuple[Turn, ...]:
    """The newest turns of at most `most` tokens in all; what is older than one that does not fit goes too."""
    kept: list[Turn] = []
    used = 0
    for turn in reversed(history):
        used += count(turn_block(turn))
        if used > most:
            break
        kept.append(turn)
    return tuple(reversed(kept))
