"""The files below the paths that an operator names, in a fixed order, and the name of each as a document."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from indexing.file_names import readable
from tenancy.errors import InvalidInput, StrongroomError

UNCERTAIN_NAME: Final = "uncertain_name"
"""The bytes of the file's name are no UTF-8; the document's name is what they probably say."""


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

    `target` is where its content lies, and `lies` that place's name: the same, but for a link. `certain` is false where
    the name had to be guessed.
    """

    root: Root
    path: Path
    name: str
    target: Path
    lies: str
    error: StrongroomError | None = None
    certain: bool = True


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


def changed(path: Path, where: Collection[Path]) -> Iterator[Found]:
    """Of the files below the folder `path`, those at or below `where`, as `files` has them."""
    root = root_of(path)
    for place in sorted(where):
        if not place.is_relative_to(root.path) or _is_hidden(place.relative_to(root.path)):
            continue
        if place.is_dir() and not place.is_symlink():
            yield from _below(root, place)
        elif os.path.lexists(place) and not _is_link_inside(root, place):
            yield _entry(root, place)


def spelt(root: Path, name: str) -> bool:
    """Whether there is anything below `root` that has the document name `name`, as far as its spelling in NFC or NFD
    tells; or, where it is a guess or written out, whether a file is called so."""
    if any(os.path.lexists(root / unicodedata.normalize(form, name)) for form in ("NFC", "NFD")):
        return True
    if name.isascii() and "\\" not in name:
        return False
    folders = [root]
    for part in name.split("/"):
        folders = [folder / entry for folder in folders for entry in _entries(folder) if readable(entry)[0] == part]
    return bool(folders)


def _entries(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _below(root: Root, folder: Path) -> Iterator[Found]:
    try:
        with os.scandir(folder) as scan:
            entries = sorted(scan, key=lambda entry: unicodedata.normalize("NFC", entry.name))
    except OSError as error:
        yield _wrong(root, folder, f"the folder cannot be read: {error.strerror}", "check its permissions")
        return
    for entry in entries:
        if entry.name.startswith("."):
            continue
        path = Path(entry.path)
        if entry.is_dir(follow_symlinks=False):
            yield from _below(root, path)
        elif entry.is_file(follow_symlinks=False):
            name, certain = _name(root, path)
            yield Found(root, path, name, path, name, certain=certain)
        elif not (entry.is_symlink() and _is_link_inside(root, path)):
            yield _entry(root, path)


def _is_link_inside(root: Root, path: Path) -> bool:
    """Whether this is a link to a folder inside the root."""
    return path.is_symlink() and _is_dir(path) and path.resolve().is_relative_to(root.path)


def _is_hidden(relative: Path) -> bool:
    return any(part.startswith(".") for part in relative.parts)


def _entry(root: Root, path: Path) -> Found:
    name, certain = _name(root, path)
    try:
        target = path.resolve()
    except (OSError, RuntimeError):
        return _wrong(root, path, "the link leads to itself", "remove it")
    if not target.is_relative_to(root.path):
        return _wrong(root, path, "the link leads outside the folder", "copy the file into the folder")
    if not target.is_file():
        return _wrong(root, path, "this is not a file", "remove it")
    lies, _ = _name(root, target)
    if target != path and _is_hidden(target.relative_to(root.path)):
        return _wrong(root, path, "the link leads to a hidden file", "copy the file out of the hidden folder")
    return Found(root, path, name, target, lies, certain=certain)


def _wrong(root: Root, path: Path, reason: str, remedy: str | None = None) -> Found:
    name, certain = _name(root, path)
    return Found(root, path, name, path, name, InvalidInput(reason, item=name, remedy=remedy), certain)


def _is_dir(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, RuntimeError):
        return False


def _name(root: Root, path: Path) -> tuple[str, bool]:
    parts = [readable(part) for part in path.relative_to(root.path).parts]
    return "/".join(part for part, _ in parts) or ".", all(certain for _, certain in parts)
