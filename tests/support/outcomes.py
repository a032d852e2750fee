"""What an outcome comes to, in one word."""

from __future__ import annotations

from indexing.outcome import Change, Outcome


def word(outcome: Outcome) -> str:
    """What changed, or else the status."""
    return outcome.status.value if outcome.change is Change.NONE else outcome.change.value
