"""Which processes are alive: each instance holds a lock for as long as it runs, and the others see it released.

On one machine it is the lock of a file, which the kernel releases when the process ends in whatever way. So what an
instance left undone, and whose lock can be taken (or whose file is gone), nobody is left to finish.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Protocol

SUFFIX: Final = ".lock"


class Presence(Protocol):
    """This process instance, under a fresh random `id`, until `close`."""

    @property
    def id(self) -> str: ...

    def alive(self, writer: str) -> bool:
        """Whether the process instance `writer` still runs."""

    def ended(self) -> list[str]:
        """The instances that ended without `close`, and that nobody has forgotten yet."""

    def forget(self, writers: Iterable[str]) -> None:
        """Drop instances that ended, once what they left undone is settled."""

    def close(self) -> None:
        """Give up this identity: what it left open counts as abandoned from here on."""


def new_identity() -> str:
    return f"w_{secrets.token_hex(10)}"


class FilePresence:
    """A locked file `live/<id>.lock` below the data directory."""

    def __init__(self, data_dir: Path) -> None:
        self.id = new_identity()
        self._directory = data_dir / "live"
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._path = self._directory / f"{self.id}{SUFFIX}"
        # Locked before it has its final name, so that a file of that name is never unlocked while its writer lives.
        unnamed = self._path.with_suffix(".new")
        self._descriptor = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        unnamed.rename(self._path)

    def alive(self, writer: str) -> bool:
        if writer == self.id:
            return True
        return not _released(self._directory / f"{writer}{SUFFIX}")

    def ended(self) -> list[str]:
        return sorted(
            path.stem for path in self._directory.glob(f"*{SUFFIX}") if path != self._path and _released(path)
        )

    def forget(self, writers: Iterable[str]) -> None:
        for writer in writers:
            (self._directory / f"{writer}{SUFFIX}").unlink(missing_ok=True)

    def close(self) -> None:
        self._path.unlink(missing_ok=True)
        os.close(self._descriptor)


def _released(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        # Shared, so that two who look at the same time do not take each other for the writer.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True
