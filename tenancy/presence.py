"""Which processes are alive: each instance holds a lock for as long as it runs, and the others see it released.

On one machine it is the lock of a file, which the kernel releases when the process ends in whatever way. So what an
instance left undone, and whose lock can be taken (or whose file is gone), nobody is left to finish.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Protocol

from tenancy.keyring import sync_directory

SUFFIX: Final = ".lock"
WALKED: Final = "walked"


class Presence(Protocol):
    """This process instance, under a fresh random `id`, until `close`."""

    @property
    def id(self) -> str: ...

    def alive(self, writer: str) -> bool:
        """Whether the process instance `writer` still runs."""

    def ended(self) -> list[str]:
        """The instances that ended and left something, and that nobody has forgotten yet."""

    def mark(self, log_id: str) -> None:
        """Put on record that this instance leaves something in an audit log; durable when this returns."""

    def unmark(self, log_ids: Iterable[str]) -> None:
        """Nothing is left in these logs."""

    def marked(self, writer: str) -> list[str]:
        """The logs that an instance marked."""

    def walked(self) -> bool:
        """Whether every log of instances from before there were marks was recovered."""

    def set_walked(self) -> None:
        """Put on record that it was."""

    def forget(self, writers: Iterable[str]) -> None:
        """Drop instances that ended, once what they left undone is settled."""

    def close(self, *, settled: bool = True) -> None:
        """Give up this identity: what it left open counts as abandoned from here on.

        Marks stay, and the instance is among the `ended`, where not everything is `settled`.
        """


def new_identity() -> str:
    return f"w_{secrets.token_hex(10)}"


class FilePresence:
    """A locked file `live/<id>.lock` below the data directory, and an empty file `live/<id>.logs/<log>` a mark."""

    def __init__(self, data_dir: Path) -> None:
        self.id = new_identity()
        self._directory = data_dir / "live"
        new = not self._directory.exists() and not (data_dir / "audit").exists()
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._path = self._directory / f"{self.id}{SUFFIX}"
        # Locked before it has its final name, so that a file of that name is never unlocked while its writer lives.
        unnamed = self._path.with_suffix(".new")
        self._descriptor = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        unnamed.rename(self._path)
        if new:
            self.set_walked()

    def alive(self, writer: str) -> bool:
        if writer == self.id:
            return True
        return not _released(self._directory / f"{writer}{SUFFIX}")

    def ended(self) -> list[str]:
        return sorted(
            path.stem for path in self._directory.glob(f"*{SUFFIX}") if path != self._path and _released(path)
        )

    def mark(self, log_id: str) -> None:
        marks = self._marks(self.id)
        if not marks.exists():
            marks.mkdir(mode=0o700)
            sync_directory(self._directory)
        (marks / log_id).touch(mode=0o600)
        sync_directory(marks)

    def unmark(self, log_ids: Iterable[str]) -> None:
        for log_id in log_ids:
            (self._marks(self.id) / log_id).unlink(missing_ok=True)

    def marked(self, writer: str) -> list[str]:
        try:
            return sorted(path.name for path in self._marks(writer).iterdir())
        except FileNotFoundError:
            return []

    def walked(self) -> bool:
        return (self._directory / WALKED).exists()

    def set_walked(self) -> None:
        (self._directory / WALKED).touch(mode=0o600)
        sync_directory(self._directory)

    def forget(self, writers: Iterable[str]) -> None:
        for writer in writers:
            # The marks first: without its lock's file nobody would look for them again.
            shutil.rmtree(self._marks(writer), ignore_errors=True)
            (self._directory / f"{writer}{SUFFIX}").unlink(missing_ok=True)

    def close(self, *, settled: bool = True) -> None:
        if settled:
            self.forget([self.id])
        os.close(self._descriptor)

    def _marks(self, writer: str) -> Path:
        return self._directory / f"{writer}.logs"


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
