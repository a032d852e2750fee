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
    """A file, or what is wrong with an entry. `name` is relative to the root, with slashes, in NFC.

    `target` is where its content lies, and `lies` that place's name: the same, but for a link.
    """

    root: Root
    path: Path
    name: str
    target: Path
    lies: str
    error: StrongroomError | None = None


def root_of(path: Path) -> Root:
    """The root of a folder is itself, that of a file its folder. Raises `InvalidInput` where there is neither."""
    try:
        resolved = path.resolve(strict=True)
    except (OSError, RuntimeError):
        raise InvalidInput("there is no such file or folder", item=str(path), remedy="check the path") from None
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

    A link to a file inside the root is read, under the rules of where that file lies, since whoever may write a link
    need not be allowed to read it; one that leads outside, or nowhere, is reported and not followed. Links to folders
    are never followed: what they show inside the root is found anyway.
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
        yield _wrong(root, folder, _name(root, folder), f"the folder cannot be read: {error.strerror}")
        return
    for entry in entries:
        if entry.name.startswith("."):
            continue
        path = Path(entry.path)
        if entry.is_dir(follow_symlinks=False):
            yield from _below(root, path)
        elif entry.is_symlink() and _is_dir(path) and path.resolve().is_relative_to(root.path):
            continue
        else:
            yield _entry(root, path)


def _entry(root: Root, path: Path) -> Found:
    name = _name(root, path)
    if not _is_unicode(str(path)):
        return _wrong(root, path, name, "the name is not valid Unicode", "rename it, and the folders above it")
    try:
        target = path.resolve()
    except (OSError, RuntimeError):
        return _wrong(root, path, name, "the link leads to itself", "remove it")
    if not target.is_relative_to(root.path):
        return _wrong(root, path, name, "the link leads outside the folder", "copy the file into the folder")
    if not target.is_file():
        return _wrong(root, path, name, "this is not a file", "remove it")
    lies = _name(root, target)
    if target != path and any(part.startswith(".") for part in lies.split("/")):
        return _wrong(root, path, name, "the link leads to a hidden file", "copy the file out of the hidden folder")
    return Found(root, path, name, target, lies)


def _wrong(root: Root, path: Path, name: str, reason: str, remedy: str | None = None) -> Found:
    return Found(root, path, name, path, name, InvalidInput(reason, item=name, remedy=remedy))


def _is_dir(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, RuntimeError):
        return False


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
