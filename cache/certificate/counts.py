"""The state of one certificate and how each label moves it. Pure: `cache.certificate.evidence` keeps it in a table.

    uncertified -> certified      the upper limit is at most alpha
    certified   -> uncertified    it is not any more; or a wrong label raised a doubt, until enough right ones followed;
                                  or the labels drifted, which also begins the evidence anew
    any         -> suspended      the lower limit is above alpha, or one wrong hit was of a kind that the guards exclude

Suspended ends with another ladder version or with an operator's `resume`, both of which begin anew.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal

from cache.certificate import bound, drift
from cache.certificate.bound import LEVEL, PRIOR, Prior
from cache.standing import State

ENTRIES: Final = 20
"""Stored answers that labels have to be about before anything is certified: one answer speaks for no others."""

MOST_OF_ENTRY: Final = 10
"""Labels of one stored answer that count; which ones is decided by their order and never by what they say."""

MOST_OF_ASKER: Final = 100
"""Labels of one person's questions that count, in the same way: at 1 % nobody certifies a template alone."""

Label = Literal["same", "wrong", "missing", "unanswered"]
"""What became of a drawn question. `missing`: its asker left before there was anything to compare."""

Why = Literal["", "doubt", "limit", "veto class", "feedback", "operator", "drift"]


@dataclass(frozen=True, slots=True)
class Counts:
    """`k` of `n` labels count as wrong. Among both are `missing` labels: what is not known may have been wrong, so they
    count against a certificate, and not for a suspension. `unanswered` questions, where the service itself failed, are
    no labels. `restarts` is how often this evidence began anew; `level` is smaller each time, so that all its
    beginnings together stay below pi^2/6 times the first one's 5 %. `prior` is that of the upper limit.
    `entries` is how many stored answers the labels are about.
    """

    state: State = "uncertified"
    why: Why = ""
    n: int = 0
    k: int = 0
    missing: int = 0
    unanswered: int = 0
    entries: int = 0
    restarts: int = 0
    prior: Prior = PRIOR
    bets: drift.Bets = ()

    @property
    def level(self) -> float:
        return LEVEL / (self.restarts + 1) ** 2

    @property
    def upper(self) -> float:
        return bound.upper(self.n, self.k, self.prior, self.level)

    @property
    def lower(self) -> float:
        return bound.lower(self.n - self.missing, self.k - self.missing, level=self.level)

    def standing(self, alpha: float) -> State:
        """The state under the target that holds now, which may be another than at the last label."""
        if self.state == "suspended" or self._too_many(alpha):
            return "suspended"
        if self.entries < ENTRIES or drift.doubt(self.bets):
            return "uncertified"
        if not bound.below(self.n, self.k, alpha, self.prior, self.level):
            return "uncertified"
        return "certified"

    def after(
        self, label: Label, alpha: float, *, excluded: bool = False, of_entry: int = 0, of_asker: int = 0
    ) -> Counts:
        """One more uniformly drawn question. `excluded`: it is of a kind that the guards are there to exclude;
        `of_entry`, `of_asker`: labels of the same stored answer and of the same person that count already.
        """
        if label == "unanswered":
            return replace(self, unanswered=self.unanswered + 1)
        if is_full(of_entry, of_asker):
            return self.suspended("veto class") if label == "wrong" and excluded else self
        wrong = label != "same"
        bets = self.bets if label == "missing" or not self.bets else drift.after(self.bets, wrong=wrong, alpha=alpha)
        moved = replace(
            self,
            n=self.n + 1,
            k=self.k + wrong,
            missing=self.missing + (label == "missing"),
            entries=self.entries + (of_entry == 0),
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

    def _too_many(self, alpha: float) -> bool:
        return bound.above(self.n - self.missing, self.k - self.missing, alpha, level=self.level)


def is_full(of_entry: int, of_asker: int) -> bool:
    """Whether one more label of this stored answer and this person does not count."""
    return of_entry >= MOST_OF_ENTRY or of_asker >= MOST_OF_ASKER


EMPTY: Final = Counts()
