"""The files below the paths that an operator names, in a fixed order, and the name of each as a document."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tenancy.errors import InvalidInput, StrongroomError


@dataclass(frozen=True, slots=True)
class Root:
    """What names are relative to. `whole` where all of the folder was asked for, not one file in it."""

    path: Path
    whole: bool

    @property
    def origin(self) -> str:
        return f"dir:{self.path}"


@dataclass(frozen=True, slots=True)
class Found:
    """A file, or what is wrong with an entry. `name` is relative to the root, with slashes, in NFC."""

    root: Root
    path: Path
    name: str
    error: StrongroomError | None = None


def root_of(path: Path) -> Root:
    """The root of a folder is itself, that of a file its folder. Raises `InvalidInput` where there is neither."""
    resolved = path.resolve()
    if not resolved.exists():
        raise InvalidInput("there is no such file or folder", item=str(path), remedy="check the path")
    root = Root(resolved, whole=True) if resolved.is_dir() else Root(resolved.parent, whole=False)
    try:
        root.origin.encode()
    except UnicodeEncodeError:
        raise InvalidInput("the folder's name is not valid Unicode", item=ascii(str(path))) from None
    if "\n" in root.origin:
        raise InvalidInput("the folder's name holds a line feed", item=ascii(str(path)), remedy="rename it")
    return root


def files(path: Path) -> Iterator[Found]:
    """`path` itself, or all files below it, by name. Hidden entries are left out.

    A link to a file inside the root is read; one that leads outside, or nowhere, is reported and not followed. Links
    to folders are never followed: what they show inside the root is found anyway.
    """
    root = root_of(path)
    if root.whole:
        yield from _below(root, root.path)
    else:
        yield _entry(root, path.resolve())


def _below(root: Root, folder: Path) -> Iterator[Found]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: unicodedata.normalize("NFC", entry.name))
    except OSError as error:
        yield Found(root, folder, _name(root, folder), InvalidInput(f"the folder cannot be read: {error.strerror}"))
        return
    for entry in entries:
        if entry.name.startswith("."):
            continue
        path = Path(entry.path)
        if entry.is_dir(follow_symlinks=False):
            yield from _below(root, path)
        elif entry.is_symlink() and path.is_dir() and path.resolve().is_relative_to(root.path):
            continue
        else:
            yield _entry(root, path)


def _entry(root: Root, path: Path) -> Found:
    name = _name(root, path)
    target = path.resolve()
    if not target.is_relative_to(root.path):
        error = InvalidInput("the link leads outside the folder", item=name, remedy="copy the file into the folder")
        return Found(root, path, name, error)
    if not target.is_file():
        return Found(root, path, name, InvalidInput("this is not a file", item=name, remedy="remove it"))
    return Found(root, path, name)


def _name(root: Root, path: Path) -> str:
    relative = unicodedata.normalize("NFC", path.relative_to(root.path).as_posix())
    # A file name that is no Unicode must not break the report of it.
    return relative if _is_unicode(relative) else ascii(relative)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
