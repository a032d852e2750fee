"""Folders for work that is not finished: what a dead process leaves in one is removed at the next start of a server."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tenancy.errors import Unavailable

STAGING: Final = "staging"
_SUFFIX: Final = ".lock"


@contextmanager
def staging(data_dir: Path) -> Iterator[Path]:
    """A fresh private folder on the data directory's own disk, gone when the block ends. Raises `Unavailable`."""
    folder = data_dir / STAGING / secrets.token_hex(12)
    lock = folder.with_suffix(_SUFFIX)
    try:
        descriptor = _made(folder, lock)
    except OSError as error:
        remedy = "check the disk (space, permissions, health)"
        raise Unavailable(f"no folder for unfinished work: {error.strerror}", item=STAGING, remedy=remedy) from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        lock.unlink(missing_ok=True)
        os.close(descriptor)


def _made(folder: Path, lock: Path) -> int:
    """Locked before it has its name, and the name before there is a folder: no folder is there without its lock."""
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    unnamed = folder.with_suffix(".new")
    descriptor = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        unnamed.rename(lock)
        folder.mkdir(mode=0o700)
    except BaseException:
        unnamed.unlink(missing_ok=True)
        lock.unlink(missing_ok=True)
        os.close(descriptor)
        raise
    return descriptor


def sweep_staging(data_dir: Path) -> int:
    """Remove the folders of dead processes; returns how many."""
    removed = 0
    for folder in sorted(path for path in (data_dir / STAGING).glob("*") if path.is_dir()):
        lock = folder.with_suffix(_SUFFIX)
        if _abandoned(lock):
            shutil.rmtree(folder, ignore_errors=True)
            lock.unlink(missing_ok=True)
            removed += 1
    for lock in (data_dir / STAGING).glob(f"*{_SUFFIX}"):
        # Of a process that ended before its folder was there, or behind its removal.
        if not lock.with_suffix("").exists() and _abandoned(lock):
            lock.unlink(missing_ok=True)
    return removed


def _abandoned(lock: Path) -> bool:
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True
