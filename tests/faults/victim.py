"""What is killed: a server, and the commands of an operator beside it, each in a process of its own.

A fork server imports the product once; each victim is a fresh fork of it that has opened nothing yet. Its marks lie in
a shared file, so that whoever killed it can see what it was in the middle of.
"""

from __future__ import annotations

import itertools
import mmap
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import faiss  # noqa: F401  imported here, once for all victims
from sqlalchemy import event

from indexing import batch
from service import cli, server
from service.settings import load_settings
from tenancy import database

DOING = (
    "tenant.sqlite", "cache.sqlite", "audit.sqlite", "subjects.sqlite", "ledger.sqlite", "control.sqlite", "ingest",
)  # fmt: skip
"""What is marked: a write transaction of a file, a run of `strongroom ingest`."""

BATCH_CHUNKS = 8
"""Few, so that one ingestion is several transactions."""

_fork = multiprocessing.get_context("forkserver")


class Marks:
    """How often each of `DOING` is under way now, in a file that outlives the process."""

    def __init__(self, path: Path, *, fresh: bool = False) -> None:
        if fresh:
            path.write_bytes(bytes(len(DOING)))
        with path.open("r+b") as file:
            self._bytes = mmap.mmap(file.fileno(), len(DOING))
        self._lock = threading.Lock()

    def add(self, name: str, number: int) -> None:
        with self._lock:
            self._bytes[DOING.index(name)] += number

    def found(self) -> list[str]:
        return [name for name, count in zip(DOING, self._bytes[:], strict=True) if count]


class Victim:
    """A child process; `lines` gives what it prints, until it is dead. `orders` takes command lines."""

    def __init__(self, role: str, folder: Path, environment: Mapping[str, str], kill_at: int) -> None:
        self.marks = Marks(folder / f"{role}.marks", fresh=True)
        output, theirs = _fork.Pipe(duplex=False)
        orders, self.orders = _fork.Pipe(duplex=False)
        run: Callable[..., None] = serve if role == "server" else command
        self._process: BaseProcess = _fork.Process(target=run, args=(folder, environment, kill_at, theirs, orders))
        self._process.start()
        theirs.close()
        orders.close()
        self.lines: Iterator[str] = self._read(output)

    def kill(self) -> None:
        self._process.kill()

    def wait(self) -> int:
        """Wait for the end; returns the exit status, -9 for a kill."""
        self._process.join()
        code = self._process.exitcode
        assert code is not None
        return code

    def close(self) -> None:
        self.orders.close()
        self._process.close()

    def _read(self, output: Connection) -> Iterator[str]:
        with os.fdopen(os.dup(output.fileno()), encoding="utf-8", errors="replace") as lines:
            output.close()
            # A line that the kill cut short says nothing.
            yield from (line.rstrip("\n") for line in lines if line.endswith("\n"))


def preload() -> None:
    """Start the fork server, with the product imported."""
    _fork.set_forkserver_preload([__name__])


def serve(folder: Path, environment: Mapping[str, str], kill_at: int, output: Connection, orders: Connection) -> None:
    """`strongroom serve`."""
    orders.close()
    _prepare(folder / "server.log", environment, output)
    _watch(Marks(folder / "server.marks"), kill_at, of=DOING)
    server.run(load_settings(), load_settings)


def command(folder: Path, environment: Mapping[str, str], kill_at: int, output: Connection, orders: Connection) -> None:
    """One `strongroom` command after the other, as they are ordered."""
    _prepare(folder / "loader.log", environment, output)
    marks = Marks(folder / "loader.marks")
    _watch(marks, kill_at, of=("tenant.sqlite",))
    batch.BATCH_CHUNKS = BATCH_CHUNKS  # type: ignore[misc]
    while True:
        arguments: list[str] = orders.recv()
        with _marked(marks, "ingest"):
            code = cli.run(arguments)
        print(f"exit {code}")


def _prepare(log: Path, environment: Mapping[str, str], output: Connection) -> None:
    for name in [name for name in os.environ if name.startswith("STRONGROOM_")]:
        del os.environ[name]
    os.environ.update(environment)
    os.dup2(output.fileno(), 1)
    output.close()
    # Each line is in the pipe when `print` returns: what was said cannot be lost with the process.
    sys.stdout = os.fdopen(1, "w", buffering=1, encoding="utf-8")
    sys.stderr = log.open("a", buffering=1, encoding="utf-8")
    os.dup2(sys.stderr.fileno(), 2)


def _watch(marks: Marks, kill_at: int, *, of: Sequence[str]) -> None:
    """Mark write transactions; with `kill_at`, die before that many-th statement or commit inside one of files `of`."""
    inside = threading.local()
    counter = itertools.count(1)
    writing = database.Database.writing

    @contextmanager
    def watched(self: database.Database) -> Iterator[Any]:
        # Until behind the commit: the stack is entered first, so that it is left last.
        with ExitStack() as left_last, writing(self) as connection:
            left_last.enter_context(_marked(marks, self.path.name))
            left_last.callback(setattr, inside, "now", False)
            inside.now = self.path.name in of
            yield connection

    def step(*_: Any) -> None:
        if getattr(inside, "now", False) and next(counter) == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    database.Database.writing = watched  # type: ignore[method-assign]
    event.listen(database._engine, "before_cursor_execute", step)
    event.listen(database._engine, "commit", step)


@contextmanager
def _marked(marks: Marks, name: str) -> Iterator[None]:
    marks.add(name, 1)
    try:
        yield
    finally:
        marks.add(name, -1)
