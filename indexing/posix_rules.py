"""Access lists from the owner, group and mode of files, for folders whose permissions are the truth.

A map (TOML) says whom accounts of this machine stand for. An account that it does not name stands for nobody:

    everyone = ["tenant"]               # whom "others" may stand for; left out, nobody

    [users]
    ana = ["user:ana@example.com"]      # by name or number

    [groups]
    hr = ["group:hr"]

A class (owner, group, others) reads a file where the file's mode lets it read, and the mode of every folder between
the root and the file lets it pass. The kernel asks one class alone: an owner without the right to read does not read
as a member of the group. Labels cannot say that, so that the classes behind one that may not read are left out as well.
Where modes do not tell whether a class passes a folder of another owner or group, it is left out.
A file with an extended access list (`setfacl`) is given to nobody, and named: its group bits mean something else.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from indexing.acl_rules import Decision
from tenancy.acl import AccessList
from tenancy.errors import InvalidInput

_EXTENDED: Final = "system.posix_acl_access"
_ROOT: Final = 0


class _Map(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    everyone: list[str] = []
    users: dict[str, list[str]] = {}
    groups: dict[str, list[str]] = {}


class PosixRules:
    """Whom the accounts of this machine stand for."""

    def __init__(self, path: Path) -> None:
        """Raises `InvalidInput` naming the file and what is wrong in it."""
        self._file = path.name
        try:
            found = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), _Map)
        except OSError as error:
            raise InvalidInput(f"cannot be read: {error.strerror}", item=path.name, remedy="check the path") from None
        except (ValueError, RecursionError, msgspec.ValidationError) as error:
            raise InvalidInput(
                f"is no map of accounts: {error}", item=path.name, remedy="use everyone, [users] and [groups] alone"
            ) from None
        try:
            self._everyone = AccessList.of(found.everyone).allow
            self._users = {name: AccessList.of(labels).allow for name, labels in found.users.items()}
            self._groups = {name: AccessList.of(labels).allow for name, labels in found.groups.items()}
        except InvalidInput as error:
            raise InvalidInput(error.reason, item=f"{path.name}: {error.item}", remedy=error.remedy) from None

    def decide(self, root: Path, file: Path) -> Decision:
        """Who may read `file`, which lies below `root`. Raises `InvalidInput` where that cannot be told."""
        path = ascii(str(file.relative_to(root)))[1:-1]
        status = _status(file, path)
        folders = [_status(folder, path) for folder in _between(root, file)]
        if _EXTENDED in _extended(file) or any(_EXTENDED in _extended(folder) for folder in _between(root, file)):
            raise InvalidInput(
                "has an extended access list, which mode bits do not tell",
                item=path,
                remedy="name it in a manifest or a rule, or remove the list with setfacl -b",
            )
        allow: set[str] = set()
        classes = (
            (stat.S_IRUSR, self._user(status.st_uid), status.st_uid != _ROOT),
            (stat.S_IRGRP, self._group(status.st_gid), True),
            (stat.S_IROTH, self._everyone, True),
        )
        for bit, labels, asked in classes:
            if not asked:
                continue
            passes = [_lets_pass(folder, bit, status) for folder in folders]
            if not status.st_mode & bit or False in passes:
                break
            if None not in passes:
                allow |= labels
        return Decision(AccessList(frozenset(allow)), f"{self._file}, mode {stat.filemode(status.st_mode)}")

    def _user(self, uid: int) -> frozenset[str]:
        return self._users.get(str(uid)) or self._users.get(_account(uid), frozenset())

    def _group(self, gid: int) -> frozenset[str]:
        return self._groups.get(str(gid)) or self._groups.get(_group_name(gid), frozenset())


def _lets_pass(folder: os.stat_result, bit: int, file: os.stat_result) -> bool | None:
    """Whether the readers of `file` that `bit` stands for pass `folder`; None where modes do not tell."""
    mode = folder.st_mode
    if bit == stat.S_IRUSR and folder.st_uid == file.st_uid:
        return bool(mode & stat.S_IXUSR)
    if bit == stat.S_IRGRP and folder.st_gid == file.st_gid:
        return bool(mode & stat.S_IXGRP)
    if bit == stat.S_IROTH:
        # Labels of "everyone" hold the folder's owner and group as well.
        return all(mode & one for one in (stat.S_IXUSR, stat.S_IXGRP, stat.S_IXOTH))
    # Whoever they are, they are in the folder's group or others; its owner, if one of them, owns what is in the way.
    return True if mode & stat.S_IXGRP and mode & stat.S_IXOTH else None


def _between(root: Path, file: Path) -> Iterator[Path]:
    """The root and the folders below it that lead to `file`."""
    for folder in file.parents:
        yield folder
        if folder == root:
            return


def _status(path: Path, name: str) -> os.stat_result:
    try:
        return path.lstat()
    except OSError as error:
        raise InvalidInput(
            f"cannot be looked at: {error.strerror}", item=name, remedy="check the permissions"
        ) from None


def _extended(path: Path) -> list[str]:
    try:
        return os.listxattr(path, follow_symlinks=False)
    except OSError:
        # A file system without extended attributes has no such lists either.
        return []


def _account(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return ""


def _group_name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return ""
