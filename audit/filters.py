"""What to find in a log."""

from __future__ import annotations

import math
from typing import Literal, get_args

import msgspec

from audit.record import CacheStatus, Outcome, Phase
from tenancy.errors import InvalidInput
from tenancy.names import holds_control

Order = Literal["asc", "desc"]


class Filters(msgspec.Struct, frozen=True, kw_only=True):
    """What to find; everything given must hold. `since` (inclusive) and `until` (exclusive) are UTC epoch seconds.

    `actor` is a reference, see `SubjectKeys.ref`. With `as_of` the log is read as it was when it had so many records.
    Raises `InvalidInput` for values that no event can have.
    """

    since: float | None = None
    until: float | None = None
    actor: str | None = None
    action: str | None = None
    phase: Phase | None = None
    outcome: Outcome | None = None
    document: str | None = None
    cache_status: CacheStatus | None = None
    cache_entry: str | None = None
    request: str | None = None
    root: str | None = None
    order: Order = "desc"
    as_of: int | None = None

    def __post_init__(self) -> None:
        for name, kind in (
            ("phase", Phase), ("outcome", Outcome), ("cache_status", CacheStatus), ("order", Order),
        ):  # fmt: skip
            value = getattr(self, name)
            if value is not None and value not in get_args(kind):
                raise InvalidInput(f"must be one of {', '.join(get_args(kind))}", item=name.replace("_", "."))
        check_window(self.since, self.until)
        for name in ("actor", "action", "document", "cache_entry", "request", "root"):
            value = getattr(self, name)
            if value is not None and holds_control(value):
                raise InvalidInput("must not hold control characters or lone surrogates", item=name.replace("_", "."))


def check_window(since: float | None, until: float | None) -> None:
    """Raise `InvalidInput` for times that are none, and for a window that ends before it begins."""
    for name, value in (("since", since), ("until", until)):
        if value is not None and not math.isfinite(value):
            raise InvalidInput("must be a time", item=name)
    if since is not None and until is not None and since > until:
        raise InvalidInput("the window ends before it begins", item="until")
