"""With which settings does the server of a data directory run? It leaves a digest of them, which holds no secret."""

from __future__ import annotations

import fcntl
import hashlib
import os
from contextlib import suppress
from typing import Final

import msgspec

from service.settings import Settings
from service.wiring import LOCK_FILE

FILE: Final = "server.settings"


def publish(settings: Settings) -> None:
    """Called by a server when it has taken over settings."""
    path = settings.data_path / FILE
    path.with_suffix(".new").write_text(_digest(settings), encoding="ascii")
    path.with_suffix(".new").replace(path)


def is_running(settings: Settings) -> bool | None:
    """Whether the server runs with `settings`; None where none runs, or where it has not said."""
    try:
        published = (settings.data_path / FILE).read_text(encoding="ascii")
    except FileNotFoundError:
        return None
    return None if not _locked(settings) else published == _digest(settings)


def _locked(settings: Settings) -> bool:
    with suppress(FileNotFoundError):
        descriptor = os.open(settings.data_path / LOCK_FILE, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
    return False


def _digest(settings: Settings) -> str:
    """Of all but the address, which the command line may change."""
    return hashlib.sha256(
        msgspec.json.encode({**msgspec.to_builtins(settings), "server": None}, order="sorted")
    ).hexdigest()
