"""Access rules that lie in the folders themselves: a file `.strongroom.toml`, written as the rules of `acl_rules`.

Paths in it are relative to its folder. The nearest file that decides, by a rule that matches or by its default, decides
alone; files further up, and then the rules of the command line, are asked where it does not. A file that cannot be
read, is broken, or may be written by everybody decides nothing: what lies below it is not taken in, and named.
"""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Final

from indexing.acl_rules import AccessRules, Decision
from tenancy.errors import InvalidInput

FILE: Final = ".strongroom.toml"
_MOST_BYTES: Final = 2**20
"""Whoever may write a folder must not stop the run with one file in it."""


class FolderRules:
    """The rules below one folder, each file read once."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._known: dict[Path, AccessRules | InvalidInput | None] = {}

    def decide(self, path: str, file: Path | None = None) -> Decision | None:
        """What the files in the folders of the document `path` (relative to the root, with "/") say; None where they
        say nothing. `file` is where it lies: a folder may be written otherwise on the disk than in a document's name.
        Raises `InvalidInput` naming the file of rules.
        """
        parts = path.split("/")
        folders = list((file or self._root / path).relative_to(self._root).parents)[::-1]
        for depth in range(len(parts) - 1, -1, -1):
            folder = "/".join(parts[:depth])
            rules = self._rules(self._root / folders[depth], folder)
            if rules is None:
                continue
            found = rules.decide("/".join(parts[depth:]))
            if found.by is not None:
                return replace(found, by=f"{folder}/{found.by}" if folder else found.by)
        return None

    def _rules(self, place: Path, folder: str) -> AccessRules | None:
        if place not in self._known:
            try:
                self._known[place] = self._read(place, folder)
            except InvalidInput as error:
                self._known[place] = error
        known = self._known[place]
        if isinstance(known, InvalidInput):
            raise InvalidInput(known.reason, item=known.item, remedy=known.remedy)
        return known

    def _read(self, place: Path, folder: str) -> AccessRules | None:
        path = place / FILE
        name = f"{folder}/{FILE}" if folder else FILE
        try:
            status = path.lstat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise InvalidInput(f"cannot be read: {error.strerror}", item=name, remedy="check the permissions") from None
        if not stat.S_ISREG(status.st_mode):
            raise InvalidInput("is not a file", item=name, remedy="put the rules themselves there")
        if status.st_size > _MOST_BYTES:
            raise InvalidInput(f"is longer than {_MOST_BYTES >> 20} MiB", item=name, remedy="write fewer, wider rules")
        if status.st_mode & stat.S_IWOTH:
            raise InvalidInput("may be written by everybody", item=name, remedy=f"chmod o-w {FILE}")
        if not os.access(path, os.R_OK):
            raise InvalidInput("cannot be read", item=name, remedy="check the permissions")
        try:
            return AccessRules(path)
        except InvalidInput as error:
            where = f"{folder}/{error.item}" if folder and error.item else error.item or name
            raise InvalidInput(error.reason, item=where, remedy=error.remedy) from None
