"""Where a run's access lists come from: several sources, the nearest to the document first.

A line of the manifest, else the nearest `.strongroom.toml` that decides, else the rules of the command line (or its one
list for all), else the file's owner and mode. Where none decides, a known document keeps its list, and nobody reads a
new one.
"""

from __future__ import annotations

from pathlib import Path

from indexing.acl_rules import AccessRules, Decision
from indexing.folder_rules import FolderRules
from indexing.posix_rules import PosixRules
from indexing.walk import Found
from tenancy.errors import InvalidInput


class Access:
    """Decides for one run, in which each file of rules is read once."""

    def __init__(
        self,
        rules: AccessRules | None = None,
        for_all: Decision | None = None,
        posix: PosixRules | None = None,
        *,
        folders: bool = True,
    ) -> None:
        """With `folders` the files `.strongroom.toml` of the folders are asked, each below its own root."""
        self._rules = rules
        self._for_all = for_all
        self._posix = posix
        self._folders: dict[Path, FolderRules] | None = {} if folders else None

    def decide(self, entry: Found) -> Decision | None:
        """The access list for a file; None where nothing decides. Raises `InvalidInput` where what would is broken."""
        path, nearer = entry.lies, self._by_folder(entry)
        if self._rules is not None:
            found = self._rules.decide(path, nearer)
            if found.by is not None or found.title is not None or found.metadata or self._posix is None:
                return found
        if nearer is not None:
            return nearer
        if self._for_all is not None:
            return self._for_all
        return self._posix.decide(entry.root.path, entry.target) if self._posix is not None else None

    def _by_folder(self, entry: Found) -> Decision | None:
        if self._folders is None:
            return None
        root = entry.root.path
        if root not in self._folders:
            self._folders[root] = FolderRules(root)
        try:
            return self._folders[root].decide(entry.lies, entry.target)
        except InvalidInput as error:
            # The item is the document; what is to be mended is another file.
            raise InvalidInput(f"{error.item}: {error.reason}", item=entry.name, remedy=error.remedy) from None
