"""Access lists of documents: sets of labels that allow and deny; deny wins, no allow means nobody."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tenancy.errors import InvalidInput
from tenancy.names import nfc_name


def parse_label(text: str) -> tuple[str, str]:
    """Split "user:NAME", "group:NAME" or "tenant" into kind and NFC name. Raises `InvalidInput`."""
    if text == "tenant":
        return "tenant", ""
    kind, colon, name = text.partition(":")
    if not colon or kind not in {"user", "group"}:
        raise InvalidInput("a label is user:NAME, group:NAME or tenant", item=text[:200])
    return kind, nfc_name(name, kind)


@dataclass(frozen=True, slots=True)
class AccessList:
    """Labels as text. The empty list is valid and lets nobody read."""

    allow: frozenset[str] = field(default_factory=frozenset)
    deny: frozenset[str] = field(default_factory=frozenset)

    @classmethod
    def of(cls, allow: Iterable[str] = (), deny: Iterable[str] = ()) -> AccessList:
        """Validate and normalise labels. Raises `InvalidInput` naming the bad one."""
        return cls(*(frozenset(_canonical(label) for label in side) for side in (allow, deny)))


def _canonical(label: str) -> str:
    kind, name = parse_label(label)
    return "tenant" if kind == "tenant" else f"{kind}:{name}"
