"""Guards: no clear difference between the two texts. A guard that fails refuses."""

from __future__ import annotations

import logging
from typing import Final

from cache.guards import Text, compare, read
from cache.verdict import Verdict, veto

NAME: Final = "guards"
_logger = logging.getLogger(__name__)


def check(question: Text, cached: str) -> tuple[Verdict, Text | None]:
    """The first veto, named by its guard, or a pass; and the cached text as it was read."""
    try:
        text = read(cached)
        return compare(question, text), text
    except Exception as error:  # noqa: BLE001 - a text that no rule foresaw must not fail the question
        _logger.warning("a guard failed (%s): answered afresh", type(error).__name__)
        return veto(NAME, "a guard failed"), None
