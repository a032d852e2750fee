"""Which entries an operator means. Nothing selected is an error, never "all"."""

from __future__ import annotations

from dataclasses import dataclass

from tenancy.errors import InvalidInput
from tenancy.names import nfc_name


@dataclass(frozen=True, slots=True)
class Selector:
    """Every given condition has to hold. `document` is the internal document id, `user` a user id,
    `older_than` an age in seconds; `everything` stands alone and is spelled out.
    """

    document: int | None = None
    entry: str | None = None
    user: str | None = None
    template: str | None = None
    older_than: float | None = None
    everything: bool = False

    def __post_init__(self) -> None:
        conditions = (self.document, self.entry, self.user, self.template, self.older_than)
        given = any(condition is not None for condition in conditions)
        if not given and not self.everything:
            raise InvalidInput(
                "no cache entry is selected",
                item="selector",
                remedy="name a document, entry, user, template or age, or say `all`",
            )
        if given and self.everything:
            raise InvalidInput("`all` goes with no other condition", item="selector")
        if "" in conditions or (self.older_than is not None and not self.older_than >= 0):
            raise InvalidInput("a condition on cache entries is empty or negative", item="selector")
        # They stand in the audit as they were given.
        for name in ("entry", "template"):
            if (value := getattr(self, name)) is not None:
                nfc_name(value, name)
