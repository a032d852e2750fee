"""Guards: no clear difference between the two texts. A guard that fails refuses.

Where a verifier is configured, what the guard on contrast alone vetoes is left to it: a word replaced or added is what
it has learned to weigh.
"""

from __future__ import annotations

import logging
from typing import Final

from cache.guards import Text, compare, contrast, read
from cache.verdict import Verdict, passed, veto

NAME: Final = "guards"
CONTRASTED: Final = "contrast alone vetoes"
_logger = logging.getLogger(__name__)


def check(question: Text, cached: str, *, verified: bool) -> tuple[Verdict, Text | None]:
    """The first veto, named by its guard, or a pass; and the cached text as it was read.

    `verified`: a verifier can decide, so that contrast, which comes last, is `near` and no veto.
    """
    try:
        text = read(cached)
        verdict = compare(question, text)
    except Exception as error:  # noqa: BLE001 - a text that no rule foresaw must not fail the question
        _logger.warning("a guard failed (%s): answered afresh", type(error).__name__)
        return veto(NAME, "a guard failed"), None
    if verified and not verdict.passed and verdict.name == contrast.NAME:
        return passed(NAME, near=(CONTRASTED, contrast.near_miss(verdict))), text
    return verdict, text
