"""The state of one certificate and how each label moves it. Pure: `cache.certificate.evidence` keeps it in a table.

    uncertified -> certified      both upper limits are at most alpha: that of all labels, which are like the served
                                  hits, and that of the labels within the share of an answer and an asker
    certified   -> uncertified    it is not any more; or a wrong label raised a doubt, until enough right ones followed;
                                  or the labels drifted, which also begins the evidence anew
    any         -> suspended      the lower limit is above alpha, or one wrong hit was of a kind that the guards exclude

Suspended ends with another ladder version or with an operator's `resume`, both of which begin anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from cache.certificate import bound, drift
from cache.certificate.bound import LEVEL, PRIOR, Prior
from cache.standing import State

ENTRIES: Final = 20
"""Stored answers that labels have to be about before anything is certified: one answer speaks for no others."""

MOST_OF_ENTRY: Final = 10
"""Labels of one stored answer that are within its share, or a fortieth of all, if that is more; which ones is decided
by their order and never by what they say.
"""

MOST_OF_ASKER: Final = 100
"""Labels of one person's questions that are within theirs, or a quarter of all: at 1 % nobody certifies alone."""

_ENTRY_PART: Final = 40
_ASKER_PART: Final = 4

_FAR: Final = 1_000_000
"""Labels that nobody counts up to."""

Label = Literal["same", "wrong", "missing", "unanswered"]
"""What became of a drawn question. `missing`: its asker left before there was anything to compare."""

Why = Literal["", "doubt", "limit", "veto class", "feedback", "operator", "drift"]


@dataclass(frozen=True, slots=True)
class Counts:
    """`k` of `n` labels count as wrong. Among both are `missing` labels: what is not known may have been wrong, so they
    count against a certificate, and not for a suspension. `unanswered` questions, where the service itself failed, are
    no labels. `restarts` is how often this evidence began anew; `level` is smaller each time, so that all its
    beginnings together stay below pi^2/6 times the first one's 5 %. `prior` is that of the upper limits.
    `entries` is how many stored answers the labels are about. Of the labels, `spread_k` of `spread_n` are within the
    share of their answer and their asker: what is asked over and over says nothing of the rest, and what is asked
    seldom nothing of that, so that a certificate needs both.
    """

    state: State = "uncertified"
    why: Why = ""
    n: int = 0
    k: int = 0
    missing: int = 0
    unanswered: int = 0
    entries: int = 0
    spread_n: int = 0
    spread_k: int = 0
    restarts: int = 0
    prior: Prior = PRIOR
    bets: drift.Bets = ()

    @property
    def level(self) -> float:
        return LEVEL / (self.restarts + 1) ** 2

    @property
    def upper(self) -> float:
        """Of both limits the larger."""
        return max(
            bound.upper(self.n, self.k, self.prior, self.level),
            bound.upper(self.spread_n, self.spread_k, self.prior, self.level),
        )

    @property
    def lower(self) -> float:
        return bound.lower(self.n - self.missing, self.k - self.missing, level=self.level)

    def standing(self, alpha: float) -> State:
        """The state under the target that holds now, which may be another than at the last label."""
        if self.state == "suspended" or self._too_many(alpha):
            return "suspended"
        if self.entries < ENTRIES or drift.doubt(self.bets):
            return "uncertified"
        return "certified" if self._is_below(alpha) else "uncertified"

    def after(
        self, label: Label, alpha: float, *, excluded: bool = False, of_entry: int = 0, of_asker: int = 0
    ) -> Counts:
        """One more uniformly drawn question. `excluded`: it is of a kind that the guards are there to exclude;
        `of_entry`, `of_asker`: labels within the share of the same stored answer, and of the same person, so far.
        """
        if label == "unanswered":
            return replace(self, unanswered=self.unanswered + 1)
        wrong = label != "same"
        within = not is_full(of_entry, of_asker, self.spread_n)
        bets = self.bets if label == "missing" or not self.bets else drift.after(self.bets, wrong=wrong, alpha=alpha)
        moved = replace(
            self,
            n=self.n + 1,
            k=self.k + wrong,
            missing=self.missing + (label == "missing"),
            entries=self.entries + (within and of_entry == 0),
            spread_n=self.spread_n + within,
            spread_k=self.spread_k + (within and wrong),
            bets=bets,
        )
        if self.state == "suspended":
            return moved
        if label == "wrong" and excluded:
            return replace(moved, state="suspended", why="veto class")
        if moved._too_many(alpha):
            return replace(moved, state="suspended", why="limit")
        if bets and drift.alarm(bets):
            return self.anew("drift")
        state = moved.standing(alpha)
        why: Why = "doubt" if state == "uncertified" and drift.doubt(bets) else ""
        # Bets begin with the first certificate; they go on where it is lost and won again.
        return replace(moved, state=state, why=why, bets=drift.CALM if state == "certified" and not bets else bets)

    def anew(self, why: Why) -> Counts:
        """Without the labels so far."""
        return Counts(why=why, restarts=self.restarts + 1, prior=self.prior)

    def suspended(self, why: Why) -> Counts:
        return replace(self, state="suspended", why=why)

    def needs(self, alpha: float, of_entries: Sequence[int] = (), of_askers: Sequence[int] = ()) -> Needs | None:
        """What is missing for a certificate, if every further label is right; None where it holds, or is suspended.

        `of_entries`, `of_askers`: labels within their shares so far, one number for each answer and each person.
        """
        if self.standing(alpha) != "uncertified":
            return None
        all_labels = self._right_ones(self.n, self.k, alpha)
        spread = self._right_ones(self.spread_n, self.spread_k, alpha)
        most_of_entry, most_of_asker = _most(self.spread_n + spread)
        return Needs(
            max(all_labels, spread, self._until_calm(alpha)),
            _more(spread, most_of_asker, of_askers),
            max(ENTRIES - self.entries, _more(spread, most_of_entry, of_entries)),
        )

    def _right_ones(self, n: int, k: int, alpha: float) -> int:
        """How many right labels bring the upper limit down to `alpha`; at most `_FAR`."""
        low, high = -1, 1
        if bound.below(n, k, alpha, self.prior, self.level):
            return 0
        while high < _FAR and not bound.below(n + high, k, alpha, self.prior, self.level):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            if bound.below(n + middle, k, alpha, self.prior, self.level):
                high = middle
            else:
                low = middle
        return min(high, _FAR)

    def _until_calm(self, alpha: float) -> int:
        bets, labels = self.bets, 0
        while drift.doubt(bets) and labels < _FAR:
            bets, labels = drift.after(bets, wrong=False, alpha=alpha), labels + 1
        return labels

    def _is_below(self, alpha: float) -> bool:
        return bound.below(self.n, self.k, alpha, self.prior, self.level) and bound.below(
            self.spread_n, self.spread_k, alpha, self.prior, self.level
        )

    def _too_many(self, alpha: float) -> bool:
        return bound.above(self.n - self.missing, self.k - self.missing, alpha, level=self.level)


@dataclass(frozen=True, slots=True)
class Needs:
    """At least so many right labels, of so many further people, about so many further stored answers."""

    labels: int
    askers: int
    entries: int


def is_full(of_entry: int, of_asker: int, spread_n: int) -> bool:
    """Whether one more label is beyond the share of this stored answer, or of this person, of `spread_n` so far."""
    most_of_entry, most_of_asker = _most(spread_n)
    return of_entry >= most_of_entry or of_asker >= most_of_asker


def _most(labels: int) -> tuple[int, int]:
    """Of one stored answer, and of one person."""
    return max(MOST_OF_ENTRY, labels // _ENTRY_PART), max(MOST_OF_ASKER, labels // _ASKER_PART)


def _more(labels: int, most: int, so_far: Sequence[int]) -> int:
    """How many further ones with a share of `most` it takes, when those so far have filled theirs."""
    room = sum(max(0, most - number) for number in so_far)
    return -(-max(0, labels - room) // most)


EMPTY: Final = Counts()
