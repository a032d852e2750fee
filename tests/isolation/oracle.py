"""Who may read what, and which answers may be shared: plain sets and dicts, without any of the product's code."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field

Label = tuple[str, str, int]
"""Kind, name, and how many bearers of that name were deleted before this one."""

TENANT: Label = ("tenant", "", 0)


@dataclass(frozen=True)
class Document:
    paragraphs: tuple[str, ...]
    allow: frozenset[Label]
    deny: frozenset[Label]

    @property
    def text(self) -> str:
        return "\n\n".join(self.paragraphs)


@dataclass(frozen=True)
class Given:
    """An answer that somebody got. `meaning` (topics, top_k) is equal for paraphrases, `cited` are names with texts."""

    meaning: tuple[tuple[str, ...], int]
    wording: str
    domain: frozenset[Label]
    text: str
    cited: frozenset[tuple[str, str]]
    kept: bool
    state: int


@dataclass
class Company:
    """One tenant. `state` counts changes; `opened` says whether an operator allowed semantic hits."""

    active: bool = True
    opened: bool = False
    state: int = 0
    documents: dict[str, Document] = field(default_factory=dict)
    members: set[tuple[Label, Label]] = field(default_factory=set)
    deleted: Counter[tuple[str, str]] = field(default_factory=Counter)
    given: list[Given] = field(default_factory=list)

    def label(self, text: str) -> Label:
        """The present bearer of "user:ana", "group:legal" or "tenant"."""
        kind, _, name = text.partition(":")
        return kind, name, self.deleted[kind, name]

    def delete(self, label: Label) -> None:
        """A user or group goes; whoever has the name next inherits nothing."""
        self.deleted[label[0], label[1]] += 1
        self.members = {(group, member) for group, member in self.members if label not in (group, member)}

    def held(self, user: Label) -> frozenset[Label]:
        if user != self.label(f"user:{user[1]}"):
            return frozenset()
        held = {user, TENANT}
        while found := {group for group, member in self.members if member in held} - held:
            held |= found
        return frozenset(held)

    def domain(self, user: Label) -> frozenset[Label]:
        return self.held(user) & {label for one in self.documents.values() for label in one.allow | one.deny}

    def readable(self, user: Label) -> dict[str, Document]:
        held = self.held(user)
        return {name: one for name, one in self.documents.items() if one.allow & held and not one.deny & held}

    def bm25(self, user: Label, question: str) -> dict[tuple[str, int], float]:
        """Scores of the readable paragraphs that hold a word of `question` (k1 = 1.2, b = 0.75)."""
        rows = {
            (name, at): words(paragraph)
            for name, one in self.readable(user).items()
            for at, paragraph in enumerate(one.paragraphs)
        }
        mean = sum(len(row) for row in rows.values()) / max(1, len(rows))
        scores: defaultdict[tuple[str, int], float] = defaultdict(float)
        for word in words(question):
            holding = {key: row.count(word) for key, row in rows.items() if word in row}
            rarity = math.log(1 + (len(rows) - len(holding) + 0.5) / (len(holding) + 0.5))
            for key, count in holding.items():
                scores[key] += rarity * count * 2.2 / (count + 1.2 * (0.25 + 0.75 * len(rows[key]) / mean))
        return dict(scores)

    def may_repeat(self, user: Label, meaning: tuple[tuple[str, ...], int]) -> list[Given]:
        """Earlier answers, newest first, to the same question in the same domain, resting on what still stands."""
        now = {(name, one.text) for name, one in self.readable(user).items()}
        domain = self.domain(user)
        return [one for one in self.given[::-1] if one.meaning == meaning and one.domain == domain and one.cited <= now]

    def must_repeat(self, user: Label, meaning: tuple[tuple[str, ...], int]) -> list[Given]:
        """Those of them that were kept and since which nothing at all has changed."""
        return [one for one in self.may_repeat(user, meaning) if one.kept and one.state == self.state]


def words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower())
