"""What an attestation says: claims with their counts, each beside a control that must succeed for it to mean anything.

A probe that finds nothing proves nothing by itself: the search may be broken, the cache off, the engine without memory.
So each claim counts its controls as well, the same thing where it must be found; where those fail, the claim is
INCONCLUSIVE. Never PASS: a claim about something that does not exist is NOT BUILT.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

Verdict = Literal["PASS", "FAIL", "INCONCLUSIVE", "NOT BUILT"]

SHOWN: Final = 3
"""Violations that a finding quotes."""
_RULE_OF_THREE: Final = 3.0
"""0 of n: with 95 % confidence the rate is below 3/n (Hanley and Lippman-Hand, JAMA 249, 1983)."""


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the report.

    `probes` were sent and `against` of them found what must not be found; of `controls`, `held` found what must be.
    `finding` says it in words, `remedy` what to do where the verdict is not PASS.
    """

    claim: str
    verdict: Verdict
    finding: str
    probes: int = 0
    against: int = 0
    controls: int = 0
    held: int = 0
    remedy: str | None = None


class Layer(msgspec.Struct, frozen=True, kw_only=True):
    """One layer of the service and what was shown about it."""

    layer: str
    verdict: Verdict
    claims: tuple[Claim, ...]

    @classmethod
    def of(cls, layer: str, claims: Sequence[Claim]) -> Layer:
        return cls(layer=layer, verdict=combined([one.verdict for one in claims]), claims=tuple(claims))


class Tally:
    """Counts the probes and the controls of one claim while they are made."""

    def __init__(self, claim: str) -> None:
        self.claim = claim
        self.probes = 0
        self.controls = 0
        self.held = 0
        self._against: list[str] = []
        self._missed: list[str] = []

    def probe(self, found: bool, where: str) -> None:
        """One probe; `found` what must not be found. `where` names it without quoting what was found."""
        self.probes += 1
        if found:
            self._against.append(where)

    def control(self, found: bool, where: str) -> None:
        """The same where it must be found."""
        self.controls += 1
        self.held += found
        if not found:
            self._missed.append(where)

    def void(self, where: str) -> None:
        """A probe that was not answered: it shows nothing, and neither does the claim."""
        self.control(False, where)

    def close(self, *, need: float = 1.0, least: int = 1, remedy: str | None = None) -> Claim:
        """The claim. `need` is the share of the controls that must have held, and `least` their number; `remedy` is
        for a control that did not.
        """
        verdict: Verdict = "PASS"
        finding = f"{len(self._against)} of {self.probes} probes, {bound(self.probes)}"
        if self._against:
            finding = f"{len(self._against)} of {self.probes} probes: {shown(self._against)}"
            verdict, remedy = "FAIL", "stop serving what is named here, and find out how it got there"
        elif not self.probes or self.held < max(least, need * self.controls):
            verdict = "INCONCLUSIVE"
            if self._missed:
                finding += f"; nothing is shown, since controls failed: {shown(self._missed)}"
        return Claim(
            claim=self.claim,
            verdict=verdict,
            finding=f"{finding}; control {self.held} of {self.controls}",
            probes=self.probes,
            against=len(self._against),
            controls=self.controls,
            held=self.held,
            remedy=None if verdict == "PASS" else remedy,
        )


def inconclusive(claim: str, why: str, remedy: str | None = None) -> Claim:
    """Nothing was shown, and why."""
    return Claim(claim=claim, verdict="INCONCLUSIVE", finding=why, remedy=remedy)


def not_built(claim: str, why: str) -> Claim:
    """What the claim is about does not exist."""
    return Claim(claim=claim, verdict="NOT BUILT", finding=why)


def combined(verdicts: Sequence[Verdict]) -> Verdict:
    """The worst of `verdicts`. What does not exist keeps nothing from passing, and passes nothing."""
    for worst in ("FAIL", "INCONCLUSIVE", "PASS"):
        if worst in verdicts:
            return worst
    return "NOT BUILT"


def bound(probes: int) -> str:
    """The rate that 0 of `probes` leaves open."""
    if probes <= _RULE_OF_THREE:
        return "too few to bound a rate"
    return f"rate below {100 * _RULE_OF_THREE / probes:.2g} % at 95 % confidence"


def shown(places: Sequence[str]) -> str:
    """The first of `places`, each once."""
    distinct = list(dict.fromkeys(places))
    more = len(distinct) - SHOWN
    return ", ".join(distinct[:SHOWN]) + (f" and {more} more" if more > 0 else "")
