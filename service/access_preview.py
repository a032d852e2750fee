"""Who would read what, before an ingestion: nothing is parsed, and nothing is written."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from indexing.acl_rules import Decision
from indexing.documents import find_stored
from indexing.walk import Found, files
from tenancy import directory
from tenancy.acl import AccessList, parse_label
from tenancy.errors import InvalidInput
from tenancy.sweep import Readers
from tenancy.tenant import ReadView, TenantHandle

MOST_NAMED: Final = 10

Change = Literal["new", "changed", "same", "failed"]


@dataclass(frozen=True, slots=True)
class Preview:
    """One file. `by` names what decides; `readers` counts users of the directory, of whom `who` names the first.

    `hold_nobody` are labels that stand for no user of the directory, as that of a misspelt name does.
    """

    document: str
    change: Change
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    by: str | None = None
    readers: int = 0
    who: tuple[str, ...] = ()
    hold_nobody: tuple[str, ...] = ()
    reason: str | None = None
    remedy: str | None = None


def preview(
    tenant: TenantHandle,
    paths: Sequence[Path],
    decide: Callable[[Found], Decision | None],
    exclude: Collection[Path] = (),
) -> Iterator[Preview]:
    """What the access list of each file below `paths` would be, and whom it would let read, as the directory is now.

    The lines of a JSON Lines file may name lists of their own, which are not looked at here.
    Raises `InvalidInput` for a path that does not exist.
    """
    left_out = {path.resolve() for path in exclude}
    with tenant.reading() as view:
        readers = Readers(view)
        for path in paths:
            for entry in files(path):
                if entry.path not in left_out:
                    yield _one(view, readers, entry, decide)


def _one(view: ReadView, readers: Readers, entry: Found, decide: Callable[[Found], Decision | None]) -> Preview:
    if entry.error is not None:
        return Preview(entry.name, "failed", reason=entry.error.reason, remedy=entry.error.remedy)
    try:
        decision = decide(entry)
    except InvalidInput as error:
        return Preview(entry.name, "failed", reason=error.reason, remedy=error.remedy)
    stored = find_stored(view, entry.name)
    present = stored.access if stored is not None else AccessList()
    access = present if decision is None else decision.access
    change: Change = "new" if stored is None else "same" if stored.access == access else "changed"
    allowed, idle = _held(view, readers, access.allow)
    denied, also = _held(view, readers, access.deny)
    who = sorted(readers.names[user] for user in allowed - denied)
    return Preview(
        entry.name,
        change,
        tuple(sorted(access.allow)),
        tuple(sorted(access.deny)),
        decision.by if decision is not None else None,
        len(who),
        tuple(who[:MOST_NAMED]),
        tuple(sorted(idle | also)),
    )


def _held(view: ReadView, readers: Readers, labels: Collection[str]) -> tuple[set[str], set[str]]:
    """The ids of users who hold one of `labels`, and those of the labels that nobody holds."""
    held: set[str] = set()
    idle: set[str] = set()
    for label in labels:
        kind, name = parse_label(label)
        find = {"user": directory.find_user, "group": directory.find_group}.get(kind)
        ref = find(view, name) if find is not None else ""
        # A misspelt group is in the directory as soon as a list names it, without members.
        users = readers.of(kind, ref) if ref is not None else frozenset()
        held |= users
        if not users and kind != "tenant":
            idle.add(label)
    return held, idle
