"""The manifests of a folder: which keys are believed, and which manifests, each by the one that follows it."""

from __future__ import annotations

import base64
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from .manifest import NAME, Manifest, name_of
from .notes import Key, Tree
from .verdict import Bad

MAX_MANIFEST: Final = 1 << 30
"""Bytes; one of a thousand million records has a quarter of it."""


def rotation(log: str, old: bytes, new: bytes) -> bytes:
    """What the old key of a log signs about the new one; both are raw."""
    keys = "\n".join(base64.b64encode(key).decode() for key in (old, new))
    return f"strongroom audit key\n{log}\n{keys}\n".encode()


def size_of(path: Path) -> int:
    """The bytes of a file. Raises `ValueError` for what is none, such as a device or a pipe, which may have no end."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise ValueError("it is no regular file")
    return found.st_size


class Chain:
    """The manifests in `folder`, from the first on, or from the one that follows `after`.

    `keys` are believed; read on, they are all keys that the log had. Raises `Bad` with the first manifest that is
    missing, altered or another one.
    """

    def __init__(self, folder: Path, keys: Sequence[Key], after: Manifest | None = None) -> None:
        self.folder = folder
        self.keys = {key.id: key for key in keys}
        self.first = 0 if after is None else after.size
        self.manifests: list[Manifest] = []
        start = 0 if after is None else after.number
        names = sorted(path.name for path in folder.iterdir() if NAME.fullmatch(path.name))
        newest = int(names[-1][9:15]) if names else 0
        if newest <= start:
            kind, reason = ("missing", "there is no manifest") if after is None else ("truncated", "nothing is newer")
            raise Bad(kind, self.first, reason)
        for number in range(start + 1, newest + 1):
            self._read(number)
        self._believe(start, [] if after is None else [after])

    @property
    def newest(self) -> Manifest:
        return self.manifests[-1]

    def unnamed(self) -> list[str]:
        """Files in the folder that no manifest names: of an export that was cut short, or somebody else's."""
        named = {part.file for manifest in self.manifests for part in manifest.parts}
        names = {path.name for path in self.folder.iterdir() if not path.name.startswith(".")}
        return sorted(name for name in names - named if not NAME.fullmatch(name))

    def _read(self, number: int) -> None:
        name, begin = name_of(number), self.newest.size if self.manifests else self.first
        try:
            if size_of(self.folder / name) > MAX_MANIFEST:
                raise ValueError("it is too large")
            self.manifests.append(Manifest.read((self.folder / name).read_bytes()))
        except FileNotFoundError:
            raise Bad("missing", begin, f"{name} is not there, and a later one is") from None
        except ValueError as error:
            raise Bad("edited", begin, f"{name} cannot be read: {error}") from None

    def _believe(self, start: int, given: list[Manifest]) -> None:
        """Go back from the newest manifest: each signed one names the digest of the one before it."""
        chain = given + self.manifests
        self._learn(self.newest)
        wrong: Bad | None = None
        follower: Manifest | None = None
        for place in range(len(chain) - 1, -1, -1):
            found, number = chain[place], start + place + (0 if given else 1)
            begin = chain[place - 1].size if place else found.first if given else 0
            bad = self._doubt(found, number, begin, follower)
            if bad is None and found is self.newest:
                # Who signs the newest manifest also says which keys the log had before.
                for listed in found.keys:
                    if listed.key.name == found.origin:
                        self.keys.setdefault(listed.key.id, listed.key)
            wrong, follower = bad or wrong, None if bad else found
        if wrong is not None:
            raise wrong

    def _doubt(self, found: Manifest, number: int, begin: int, follower: Manifest | None) -> Bad | None:
        """What speaks against the manifest that stands as the one of `number`, where `begin` records came before."""
        name, until = name_of(number), found.size - 1
        key = self.keys.get(found.signer)
        if key is None or key.name != found.origin:
            return Bad("untrusted", begin, f"{name} is signed with a key that is not trusted: {found.signer}", until)
        if not key.signed(found.signed, found.signature):
            return Bad("edited", begin, f"{name} was changed after it was signed", until)
        if found.number < number:
            return Bad("truncated", found.size, f"in the place of {name} stands manifest {found.number} again")
        if found.number > number or (follower is not None and follower.previous != found.digest):
            return Bad("forked", begin, f"{name} is not the one that the next manifest follows", until)
        if follower is not None and (follower.first, follower.log) != (found.size, found.log):
            return Bad("forked", found.size, f"the manifest after {name} does not begin where it ends")
        if found.first != begin:
            return Bad("forked", begin, f"{name} does not begin where the one before it ends", until)
        if (number == 1) != (found.previous is None):
            return Bad("forked", begin, f"{name} does not say which manifest it follows", until)
        if (found.note.origin, found.note.size) != (found.origin, found.size):
            return Bad("checkpoint", begin, f"the checkpoint in {name} is of another log or size", until)
        if Tree(found.size, found.nodes).root() != found.note.root:
            return Bad("forked", begin, f"{name} and the checkpoint in it are of two trees", until)
        known = [*self.keys.values(), *(listed.key for listed in self.newest.keys if found is self.newest)]
        if not found.note.signed_by(known):
            return Bad("checkpoint", begin, f"no key of the log signed the checkpoint in {name}", until)
        return None

    def _learn(self, newest: Manifest) -> None:
        """Believe a key that a believed one signed as its successor, and so on; they may stand in any
        order, as a clock is set back at times.
        """
        waiting, known = list(newest.keys), -1
        while known != len(self.keys):
            known = len(self.keys)
            for listed in list(waiting):
                by = self.keys.get(listed.signed_by or "")
                if by is None or not by.name == listed.key.name == newest.origin:
                    continue
                waiting.remove(listed)
                if by.signed(rotation(newest.log, by.public, listed.key.public), listed.signature):
                    self.keys.setdefault(listed.key.id, listed.key)
