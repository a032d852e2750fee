"""Whether a person asks the same again, from digests of questions."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

RETRY_S: Final = 120.0
"""The same question of the same person within so many seconds is a retry."""
REMEMBERED: Final = 10_000
"""Questions remembered at most, those asked last."""


class Retries:
    """Digests, which are keyed by tenant and person, with the times at which they were asked (UTC epoch seconds)."""

    def __init__(self) -> None:
        self._asked: OrderedDict[bytes, float] = OrderedDict()

    def is_retry(self, asked: bytes, now: float) -> bool:
        """Whether `asked` was asked shortly before, and note that it is asked now."""
        before = self._asked.pop(asked, None)
        self._asked[asked] = now
        while len(self._asked) > REMEMBERED or now - next(iter(self._asked.values())) > RETRY_S:
            self._asked.popitem(last=False)
        return before is not None and now - before <= RETRY_S
