"""May semantic hits of a template be served at all: what the evidence says, or an operator's override."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cache.openings import Opening

State = Literal["uncertified", "certified", "suspended"]


@dataclass(frozen=True, slots=True)
class Standing:
    """`k` wrong of `n` uniformly drawn and judged; `lower` and `upper` limit the share of wrong hits, `alpha` is its
    target. All belong to one ladder version (`Ladder.version`) of one template of one tenant.
    """

    state: State
    n: int
    k: int
    upper: float
    lower: float
    alpha: float
    opening: Opening | None
    ladder: str
    template: str

    @property
    def serves(self) -> bool:
        """Certified, or opened by an operator and not suspended by its own evidence."""
        return self.state == "certified" or (self.opening is not None and self.state != "suspended")
