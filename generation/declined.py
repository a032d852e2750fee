"""How a model says that its sources hold no answer: one word in the place of an answer, which becomes an abstention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

NO_ANSWER: Final = "NO_ANSWER_IN_SOURCES"

_LEADING: Final = " \t\r\n\"'`*_#>-([\u201c\u2018\u201e\u00ab\u300c"
"""What models put before a word of their own accord: blanks, quotes, brackets and marks of Markdown."""

_ONLY: Final = "NO_"
_MOST_LEADING: Final = 16
_MOST_BEHIND: Final = 80
"""Characters behind the word after which the model is not waited for: they are paid, and nobody reads them."""


class Declined:
    """Holds an answer back while it may begin with the word. Where it does, nothing of it leaves, and `said` is true.

    The word further on in an answer is text like any other: what stands before it has left. So is all of one that is
    not `heeded`, of copied sentences: there it is a document's word, which must not silence the others.
    """

    def __init__(self, *, heeded: bool = True) -> None:
        self._held = ""
        self._decided = not heeded
        self._behind = 0
        self.said = False

    @property
    def detail(self) -> Mapping[str, int | bool | str]:
        return {"declined": True} if self.said else {}

    @property
    def goes_on(self) -> bool:
        """Whether the model writes on behind the word."""
        return self._behind > _MOST_BEHIND

    @property
    def warnings(self) -> tuple[str, ...]:
        return ()

    def feed(self, text: str) -> str:
        if self.said:
            self._behind += len(text)
            return ""
        if self._decided:
            return text
        self._held += text
        word = self._held.lstrip(_LEADING)
        if len(self._held) - len(word) > _MOST_LEADING:
            return self.flush()
        self.said = word.startswith(NO_ANSWER)
        if self.said or NO_ANSWER.startswith(word):
            return ""
        return self.flush()

    def cut(self) -> None:
        """The answer was cut short here: a beginning that only the word has is the word."""
        self.said = self.said or (not self._decided and _ONLY in self._held)

    def flush(self) -> str:
        held, self._held, self._decided = self._held, "", True
        return "" if self.said else held
