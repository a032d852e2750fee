"""Locks between processes of one machine: a lock on a file, which the kernel releases however its holder ends."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tenancy.errors import NotFound, Unavailable

_POLL_S: Final = 0.01


@contextmanager
def file_lock(path: Path, timeout_s: float) -> Iterator[None]:
    """Hold the lock of `path`, which one holder has at a time, threads of one process included.

    Raises `Unavailable` where somebody else holds it for `timeout_s` seconds, `NotFound` where its folder is gone.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        raise NotFound("the data was deleted", item=path.name) from None
    except OSError as error:
        raise Unavailable("the lock cannot be taken", item=path.name, remedy=str(error.strerror)) from error
    try:
        _wait(descriptor, path, time.monotonic() + timeout_s)
        yield
    finally:
        os.close(descriptor)


def _wait(descriptor: int, path: Path, until: float) -> None:
    # The kernel's own wait knows no time limit.
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                raise Unavailable("another process is at work here", item=path.stem, remedy="try again") from None
            time.sleep(_POLL_S)
        else:
            return
