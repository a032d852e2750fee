"""Personal data of one prompt behind placeholders, "[email-1]", and back.

The same item is the same placeholder everywhere in the prompt, so that the model can tell two people apart. Numbers
that a text of the prompt has already written in this form are left out: nobody can write a placeholder of another's.
The form has small letters, since `generation.prompt.escape` takes brackets before capital ones for marks.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final, get_args

import regex

from generation.guardrails.personal import find
from tenancy.contract import PersonalKind

_KINDS: Final = "|".join(get_args(PersonalKind))
_WRITTEN: Final = regex.compile(rf"(?i)({_KINDS})[-\u2010-\u2015 ](\d{{1,9}})")
PLACEHOLDER: Final = regex.compile(rf"(?i)[\[【]({_KINDS})[-\u2010-\u2015](\d{{1,9}})[\]】]")
BEGUN: Final = regex.compile(r"[\[【]\p{L}{0,5}(?:[-\u2010-\u2015]\d{0,9})?\Z")
"""What may become a placeholder with the next characters."""


def removed(kind: str) -> str:
    """What the asker reads in place of personal data."""
    return f"[{kind} removed]"


@dataclass(frozen=True, slots=True)
class Masked:
    """`spans` are the places of the placeholders: (start, end) in `text`, then in the original; in order."""

    text: str
    spans: tuple[tuple[int, int, int, int], ...] = ()

    def original(self, at: int, *, end: bool = False) -> int:
        """The place in the original of the place `at` in `text`; inside of a placeholder its beginning, or its end."""
        number = bisect_right(self.spans, at, key=lambda span: span[0]) - 1
        if number < 0:
            return at
        start, stop, original_start, original_stop = self.spans[number]
        if at < stop:
            return original_start if at == start or not end else original_stop
        return original_stop + at - stop


@dataclass(slots=True)
class Masks:
    """The placeholders of one prompt. `texts` is everything that the prompt will hold."""

    kinds: Collection[PersonalKind]
    texts: Iterable[str] = ()
    _numbers: dict[tuple[str, str], str] = field(default_factory=dict)
    _originals: dict[str, tuple[PersonalKind, str]] = field(default_factory=dict)
    _used: set[tuple[str, int]] = field(default_factory=set)

    def __post_init__(self) -> None:
        if self.kinds:
            for text in self.texts:
                self._used.update((kind.casefold(), int(number)) for kind, number in _WRITTEN.findall(text))

    @property
    def count(self) -> int:
        """Different items."""
        return len(self._originals)

    def masked(self, text: str) -> Masked:
        if not self.kinds:
            return Masked(text)
        parts: list[str] = []
        spans: list[tuple[int, int, int, int]] = []
        at = length = 0
        for item in find(text, self.kinds):
            placeholder = self._placeholder(item.kind, item.value, text[item.start : item.end])
            length += item.start - at
            spans.append((length, length + len(placeholder), item.start, item.end))
            parts += (text[at : item.start], placeholder)
            length += len(placeholder)
            at = item.end
        return Masked("".join((*parts, text[at:])), tuple(spans))

    def restored(self, text: str, hidden: Collection[PersonalKind] = ()) -> str:
        """`text` with what the placeholders stand for; of the kinds `hidden` it says only that something was there."""

        def original(match: regex.Match[str]) -> str:
            known = self._originals.get(f"[{match[1].casefold()}-{int(match[2])}]")
            if known is None:
                return str(match.group())
            kind, value = known
            return removed(kind) if kind in hidden else value

        return str(PLACEHOLDER.sub(original, text)) if self._originals else text

    def _placeholder(self, kind: PersonalKind, value: str, written: str) -> str:
        known = self._numbers.get((kind, value))
        if known is None:
            number = 1
            while (kind, number) in self._used:
                number += 1
            self._used.add((kind, number))
            known = f"[{kind}-{number}]"
            self._numbers[kind, value] = known
            self._originals[known] = (kind, written)
        return known
