"""Which writers are alive: each process instance holds a lock on its own file for as long as it runs.

The kernel releases the lock when the process ends in whatever way, so an intent whose writer's lock can be taken (or
whose file is gone) has no one left who could still write its outcome.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from pathlib import Path
from typing import Final

SUFFIX: Final = ".lock"


class LiveWriter:
    """This process instance, under a fresh random `id`, until `close`."""

    def __init__(self, data_dir: Path) -> None:
        self.id = f"w_{secrets.token_hex(10)}"
        self._directory = data_dir / "live"
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._path = self._directory / f"{self.id}{SUFFIX}"
        # Locked before it has its final name, so that a file of that name is never unlocked while its writer lives.
        unnamed = self._path.with_suffix(".new")
        self._descriptor = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        unnamed.rename(self._path)
        self._sweep()

    def alive(self, writer: str) -> bool:
        """Whether the process instance `writer` still runs."""
        if writer == self.id:
            return True
        return not _released(self._directory / f"{writer}{SUFFIX}")

    def close(self) -> None:
        """Give up this identity: what it left open counts as abandoned from here on."""
        self._path.unlink(missing_ok=True)
        os.close(self._descriptor)

    def _sweep(self) -> None:
        for path in self._directory.glob(f"*{SUFFIX}"):
            if path != self._path and _released(path):
                path.unlink(missing_ok=True)


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
