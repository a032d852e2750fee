"""Where the access lists of `strongroom ingest` come from, read as often as its rules change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tenancy.errors import InvalidInput

if TYPE_CHECKING:
    from indexing.acl_rules import AccessRules, Decision
    from indexing.batch import Decide
    from indexing.outcome import Outcome
    from indexing.walk import Found


@dataclass(frozen=True, slots=True)
class Sources:
    """What the command line names: rules, a manifest, one list for all, a map of accounts, rules in folders."""

    acl: Path | None
    manifest: Path | None
    allow: Sequence[str]
    deny: Sequence[str]
    posix: Path | None
    folder_rules: bool

    @property
    def files(self) -> list[Path]:
        """The files of rules, which are no documents."""
        return [file for file in (self.acl, self.manifest, self.posix) if file is not None]

    def stamp(self) -> list[tuple[int, int, int] | None]:
        """Differs where one of the files was written since."""
        return [_stamp(file) for file in self.files]

    def read(self) -> Deciding:
        """Raises `InvalidInput` for what cannot be read as rules, before any document is."""
        from indexing.acl_rules import AccessRules, Decision
        from indexing.deciding import Access
        from indexing.posix_rules import PosixRules
        from tenancy.acl import AccessList

        by_mode = PosixRules(self.posix) if self.posix is not None else None
        if self.acl is None and self.manifest is None:
            listed = self.allow or self.deny
            for_all = Decision(AccessList.of(self.allow, self.deny), "--allow") if listed else None
            return Deciding(Access(None, for_all, by_mode, folders=self.folder_rules).decide, None)
        if self.allow or self.deny:
            raise InvalidInput(
                "access lists come from one place", item="--allow", remedy="leave out --allow and --deny, or the files"
            )
        rules = AccessRules(self.acl, self.manifest)
        return Deciding(Access(rules, None, by_mode, folders=self.folder_rules).decide, rules)


@dataclass(slots=True)
class Deciding:
    """Decides for one pass, and remembers for which files nothing did, and where the `links` that it met lead."""

    inner: Decide
    rules: AccessRules | None
    unread: int = 0
    links: dict[Path, Path] = field(default_factory=dict)
    _seen: list[str] = field(default_factory=list)
    _undecided: set[str] = field(default_factory=set)

    def decide(self, entry: Found) -> Decision | None:
        self._seen.append(entry.lies)
        if entry.path != entry.target:
            self.links[entry.path] = entry.target
        decision = self.inner(entry)
        if decision is None or decision.by is None:
            self._undecided.add(entry.lies)
        return decision

    def done(self, outcome: Outcome) -> None:
        # Rules are about files. What names a line or an attachment decides nothing, and is told.
        if "#" not in outcome.document:
            self._seen.append(outcome.document)
        names = {outcome.document, outcome.document.rpartition("#")[0]}
        self.unread += outcome.change.value == "added" and bool(self._undecided & names)

    def unused(self) -> Iterable[str]:
        """The rules that fit none of what was seen."""
        return self.rules.unused(self._seen) if self.rules is not None else []


def _stamp(file: Path) -> tuple[int, int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
