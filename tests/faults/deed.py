"""One `strongroom` command in a process of its own, killed before a step that changes something on a disk.

A step is a statement that writes, a commit, an fsync, or a file that is renamed, linked or removed. They come in the
same order in each run of one command over the same data, so each of them can be tried.
"""

from __future__ import annotations

import mmap
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Final

from sqlalchemy import event
from sqlalchemy.engine import Engine

import service.backup
import service.erasure
import service.restore  # noqa: F401  imported here, once for all commands
from service import cli

NEVER: Final = 0
_WRITES: Final = ("INSERT", "UPDATE", "DELETE", "PRAGMA WAL_CHECKPOINT")
_CALLS: Final = ("fsync", "rename", "replace", "link", "unlink")
_DIGITS: Final = 8

_fork = multiprocessing.get_context("forkserver")


@dataclass(frozen=True, slots=True)
class Done:
    """How a command ended: its exit code, -9 where it was killed, and what it said; `steps` that it went."""

    code: int
    out: str
    err: str
    steps: int


def preload() -> None:
    """Start the fork server, with the product imported."""
    _fork.set_forkserver_preload(["tests.faults.victim", __name__])


class Deed:
    """A command under way."""

    def __init__(self, folder: Path, environment: Mapping[str, str], words: Sequence[str | Path], kill_at: int) -> None:
        """Start it; what it says goes to files in `folder`. It dies before its step number `kill_at`, from 1 on."""
        self._folder = folder
        (folder / "steps").write_bytes(bytes(_DIGITS))
        arguments = (folder, dict(environment), [str(word) for word in words], kill_at)
        self._process = _fork.Process(target=_do, args=arguments)
        self._process.start()

    def wait(self) -> Done:
        self._process.join(120)
        code = self._process.exitcode
        assert code is not None, "the command did not end"
        self._process.close()
        out, err = ((self._folder / name).read_text(errors="replace") for name in ("out", "err"))
        return Done(code, out, err, int.from_bytes((self._folder / "steps").read_bytes(), "big"))


def do(folder: Path, environment: Mapping[str, str], *words: str | Path, kill_at: int = NEVER) -> Done:
    """Run a command to its end."""
    return Deed(folder, environment, words, kill_at).wait()


def _do(folder: Path, environment: Mapping[str, str], words: list[str], kill_at: int) -> None:
    for name in [name for name in os.environ if name.startswith("STRONGROOM_")]:
        del os.environ[name]
    os.environ.update(environment)
    sys.stdout, sys.stderr = ((folder / name).open("w", buffering=1, encoding="utf-8") for name in ("out", "err"))
    _watch(folder / "steps", kill_at)
    sys.exit(cli.run(words))


def _watch(steps: Path, kill_at: int) -> None:
    with steps.open("r+b") as file:
        counter = mmap.mmap(file.fileno(), _DIGITS)
    mine = os.getpid()

    def step(*_: Any) -> None:
        number = int.from_bytes(counter[:], "big") + 1
        counter[:] = number.to_bytes(_DIGITS, "big")
        if number == kill_at and os.getpid() == mine:
            os.kill(mine, signal.SIGKILL)

    def statement(_connection: Any, _cursor: Any, text: str, *_: Any) -> None:
        if text.lstrip().upper().startswith(_WRITES):
            step()

    event.listen(Engine, "before_cursor_execute", statement)
    event.listen(Engine, "commit", step)
    for name in _CALLS:
        setattr(os, name, _stepping(getattr(os, name), step))


def _stepping(call: Callable[..., Any], step: Callable[[], None]) -> Callable[..., Any]:
    @wraps(call)
    def stepped(*args: Any, **options: Any) -> Any:
        step()
        return call(*args, **options)

    return stepped
