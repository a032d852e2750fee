"""Window: a question longer than the embedder sees has no vector of its own.

Two prompts that share their first tokens up to the window embed identically, at similarity 1.0.
"""

from __future__ import annotations

from typing import Final

from cache.decision import Reason
from cache.verdict import Verdict, passed, veto

NAME: Final = "window"


def check(tokens: int, window: int) -> Verdict:
    """`tokens` of the question as the embedder counts them, special tokens included, against its `window`."""
    if tokens <= 0 or window <= 0:
        return veto(NAME, "length unknown")
    return passed(NAME) if tokens <= window else veto(NAME, Reason.WINDOW)
