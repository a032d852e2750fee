"""What a verification of a log can find."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["edited", "missing", "reordered", "forked", "truncated", "unmatched", "unsettled", "checkpoint"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong first. `seq` is the first bad position, or None where the records do not tell it."""

    kind: Kind
    seq: int | None
    reason: str


class Bad(Exception):
    """Ends a verification with its finding."""

    def __init__(self, kind: Kind, seq: int | None, reason: str) -> None:
        super().__init__(reason)
        self.finding = Finding(kind, seq, reason)
