"""The rails that an answer passes on its way out, as stages of `generation.output`."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping
from typing import Final

from generation.guardrails.failure import RailFailed, failing_closed
from generation.guardrails.folding import fold
from generation.guardrails.masks import BEGUN, Masks, removed
from generation.guardrails.personal import CONTEXT, items, runs
from generation.guardrails.topics import Topics, inside_word
from generation.output import Stage
from tenancy.contract import PersonalKind

REMOVED: Final = "personal-data-removed"
_AT_ONCE: Final = 512
"""Characters that may be looked through with every piece."""


class Rail:
    """A stage that refuses where it breaks, and is then on record by its name."""

    def __init__(self, name: str, stage: Stage) -> None:
        self._name, self._stage = name, stage
        self._failed = False

    @property
    def detail(self) -> Mapping[str, int | bool | str]:
        return {"rail_failed": self._name} if self._failed else self._stage.detail

    @property
    def warnings(self) -> tuple[str, ...]:
        return self._stage.warnings

    def feed(self, text: str) -> str:
        return self._closed(lambda: self._stage.feed(text))

    def flush(self) -> str:
        return self._closed(self._stage.flush)

    def _closed(self, judge: Callable[[], str]) -> str:
        try:
            with failing_closed(self._name):
                return judge()
        except RailFailed:
            self._failed = True
            raise


class Restoring:
    """Puts back what placeholders stand for, but for kinds that the asker is not to see. `said` is what the model
    wrote, with everything put back: what citations are verified by.
    """

    def __init__(self, masks: Masks, hidden: Collection[PersonalKind]) -> None:
        self._masks, self._hidden = masks, frozenset(hidden)
        self._held = ""
        self._parts: list[str] = []
        self._removed = 0

    @property
    def said(self) -> str:
        return self._masks.restored("".join(self._parts))

    @property
    def detail(self) -> Mapping[str, int | bool | str]:
        return {"placeholders_removed": self._removed} if self._removed else {}

    @property
    def warnings(self) -> tuple[str, ...]:
        return (REMOVED,) if self._removed else ()

    def feed(self, text: str) -> str:
        held = self._held + text
        begun = BEGUN.search(held)
        cut = begun.start() if begun else len(held)
        self._held = held[cut:]
        return self._put_back(held[:cut])

    def flush(self) -> str:
        held, self._held = self._held, ""
        return self._put_back(held)

    def _put_back(self, text: str) -> str:
        self._parts.append(text)
        shown = self._masks.restored(text, self._hidden)
        if self._hidden:
            self._removed += sum(shown.count(removed(kind)) - text.count(removed(kind)) for kind in self._hidden)
        return shown


class _Pace:
    """When to look through what is held back: where it is long, only when it has grown by a fourth, since looking takes
    time in proportion to all of it. What leaves is the same whenever it is done.
    """

    def __init__(self) -> None:
        self._next = 0

    def due(self, held: int) -> bool:
        return held >= self._next

    def looked(self, left: int) -> None:
        self._next = left + left // 4 if left > _AT_ONCE else 0


class BlockedTopics:
    """Lets an answer out up to the first blocked phrase, and nothing from there on; `blocked` is then its topic."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._held = ""
        self._pace = _Pace()
        self._ended = False
        self.blocked: str | None = None

    @property
    def detail(self) -> Mapping[str, int | bool | str]:
        if self.blocked is not None:
            return {"rail_answer": "refused", "rail_topic": self.blocked}
        return {"rail_answer": "pass"} if self._ended else {}

    @property
    def warnings(self) -> tuple[str, ...]:
        return ()

    def feed(self, text: str) -> str:
        in_word = bool(self._held) and inside_word(self._held[-1] + text)
        self._held += text
        return "" if in_word or not self._pace.due(len(self._held)) else self._judged(complete=False)

    def flush(self) -> str:
        self._ended = True
        return self._judged(complete=True)

    def _judged(self, *, complete: bool) -> str:
        if self.blocked is not None:
            return ""
        folded = fold(self._held)
        scan = self._topics.scan(folded, complete=complete)
        cut = folded.raw_start(scan.free)
        free, self._held = self._held[:cut], self._held[cut:]
        self._pace.looked(len(self._held))
        if scan.found is not None:
            self.blocked = scan.found.topic
        return free


class PersonalData:
    """Takes personal data of some kinds out of an answer."""

    def __init__(self, kinds: Collection[PersonalKind]) -> None:
        self._kinds = frozenset(kinds)
        # The last characters that left say what a number behind them is.
        self._before = ""
        self._held = ""
        self._pace = _Pace()
        self._ended = False
        self.removed = 0

    @property
    def detail(self) -> Mapping[str, int | bool | str]:
        if self.removed:
            return {"rail_mask_output": "masked", "masked_output": self.removed}
        return {"rail_mask_output": "pass"} if self._ended else {}

    @property
    def warnings(self) -> tuple[str, ...]:
        return (REMOVED,) if self.removed else ()

    def feed(self, text: str) -> str:
        self._held += text
        return self._masked(complete=False) if self._pace.due(len(self._held)) else ""

    def flush(self) -> str:
        self._ended = True
        return self._masked(complete=True)

    def _masked(self, *, complete: bool) -> str:
        whole, kept = self._before + self._held, len(self._before)
        folded = fold(whole)
        begin = bisect_left(folded.starts, kept)
        found, until = runs(folded, begin, complete=complete)
        parts: list[str] = []
        at = kept
        for run in found:
            for item in items(folded, run, self._kinds):
                parts += (whole[at : item.start], removed(item.kind))
                at = item.end
                self.removed += 1
        cut = max(at, len(whole) if complete else folded.raw_start(until))
        parts.append(whole[at:cut])
        self._before = whole[folded.raw_start(max(0, bisect_left(folded.starts, cut) - CONTEXT)) : cut]
        self._held = whole[cut:]
        self._pace.looked(len(self._held))
        return "".join(parts)


class UntilVerified:
    """Lets nothing out before the answer is complete, for its citations can be verified only then."""

    def __init__(self) -> None:
        self._held: list[str] = []

    @property
    def detail(self) -> Mapping[str, int | bool | str]:
        return {}

    @property
    def warnings(self) -> tuple[str, ...]:
        return ()

    def feed(self, text: str) -> str:
        self._held.append(text)
        return ""

    def flush(self) -> str:
        held, self._held = self._held, []
        return "".join(held)
