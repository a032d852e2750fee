"""What a self-test has shown about one server: whether requests of different KV salts share its memory.

A proof that cannot fail proves nothing. So every prompt that must find nothing in the memory is sent again, where it
must find itself; a server that reports no cached tokens, or keeps none, has shown nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from generation.generator import Misfit

LEAST_INPUT: Final = 128
"""Tokens of a prompt that can show something: engines share whole pages, of 64 tokens and less."""

_MOST: Final = 0.5

Verdict = Literal["apart", "shared", "inconclusive"]


class NotIsolated(Misfit):
    """A server, or a pool, that has not shown to keep the KV memory of different salts apart."""

    told = "the model's server has not shown that it keeps the KV memory of tenants apart"

    def again(self) -> NotIsolated:
        """The same for another request."""
        return NotIsolated(self.reason, item=self.item, remedy=self.remedy)


@dataclass(frozen=True, slots=True)
class Probe:
    """One request: tokens of its prompt, and how many of them came from KV memory. `again`: it was sent before."""

    name: str
    input: int
    cached: int
    again: bool = False


@dataclass(frozen=True, slots=True)
class Proof:
    probes: tuple[Probe, ...]

    @property
    def verdict(self) -> Verdict:
        if any(probe.cached > 0 for probe in self._first):
            return "shared"
        controlled = all(probe.cached >= _MOST * probe.input and probe.input >= LEAST_INPUT for probe in self._again)
        return "apart" if controlled and self._again else "inconclusive"

    @property
    def finding(self) -> str:
        """The counts, in words."""
        return ", ".join(f"{probe.name} {probe.cached} of {probe.input}" for probe in self.probes) + " tokens cached"

    @property
    def remedy(self) -> str | None:
        match self.verdict:
            case "apart":
                return None
            case "shared":
                return "remove what drops or rewrites `cache_salt` on the way, or replace a server that ignores it"
            case "inconclusive":
                return (
                    "start the server with --enable-cache-report and without --disable-radix-cache, and let each "
                    "replica be one server, not a balancer before several"
                )

    def refusal(self, item: str) -> NotIsolated:
        """The error of a proof that failed."""
        said = {
            "shared": "requests of different KV salts share memory at the server",
            "inconclusive": "the server does not show whether it keeps the memory of KV salts apart",
        }[self.verdict]
        return NotIsolated(f"{said} ({self.finding})", item=item, remedy=self.remedy)

    @property
    def _first(self) -> list[Probe]:
        return [probe for probe in self.probes if not probe.again]

    @property
    def _again(self) -> list[Probe]:
        return [probe for probe in self.probes if probe.again]
