"""Files parsed in processes of their own, so that a bomb, a hang or a crash costs one file.

A process serves one tenant in its life: what a hostile file may have made of it never sees another tenant's files. It
gets the import path and nothing else: no keys, no settings, no open files but the one to parse.
"""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Condition
from typing import BinaryIO, Final

import msgspec

from indexing.parse.failure import ParseFailure
from indexing.parse.model import ParseLimits, ParseResult
from indexing.parse.worker import LENGTH, MAX_REPLY, Reply, Request, failure
from tenancy.errors import Unavailable
from tenancy.tenant import TenantHandle

MEMORY_BYTES: Final = 2 * 2**30
"""Address space of a worker: its libraries take about 0.3 GiB of it."""

Result = list[ParseResult] | ParseFailure
"""The documents of a file, or why there is none."""

_START_S: Final = 60.0
_IDLE: Final = 6
"""Workers that wait for the next file of their tenant: starting one takes a quarter of a second, and one that waits
some 40 MB."""
_MOST_FILES: Final = 2_000
_MOST_HELD: Final = 512 * 2**20
"""A worker is replaced after so many files, or where so much memory stays with it."""


class ParsePool:
    """Processes of which at most `workers` parse at one time, one file each. Safe for threads."""

    def __init__(self, workers: int = 2, limits: ParseLimits | None = None, memory_bytes: int = MEMORY_BYTES) -> None:
        self._limits = limits or ParseLimits()
        self._memory_bytes = memory_bytes
        self._room = workers
        self._most_idle = max(workers, _IDLE)
        self._idle: list[_Worker] = []
        self._changed = Condition()
        self._closed = False

    @property
    def limits(self) -> ParseLimits:
        return self._limits

    def parse(
        self, tenant: TenantHandle, name: str, content: bytes | BinaryIO, media_type: str | None = None
    ) -> list[ParseResult]:
        """As `indexing.parse.parse`, elsewhere. `content` may be an open file, which is read from its beginning by
        the worker alone.

        Raises `ParseFailure` as that does, and "timed_out" or "too_large" where the file takes more time or memory than
        it may, "corrupt" where it ends its parser; `Unavailable` where no worker can be started.
        """
        with self._worker(tenant.tenant_id) as worker:
            try:
                reply = worker.parse(name, content, media_type, self._limits)
            except _Lost as lost:
                raise _why(lost, self._limits, self._memory_bytes, name) from None
        found = _results(reply)
        if isinstance(found, ParseFailure):
            raise found
        return found

    def parse_all(self, tenant: TenantHandle, files: Sequence[tuple[str, bytes]]) -> list[Result]:
        """What `parse` returns or raises for each of a few dozen short files, by name and content.

        One worker is asked for all of them at once; where one ends it, or leaves too much in it, another one is asked
        for those behind it.
        Raises `Unavailable`.
        """
        found: list[Result] = []
        while len(found) < len(files):
            left = files[len(found) :]
            with self._worker(tenant.tenant_id) as worker:
                # What it answered before it ended is still to be had.
                with suppress(_Lost):
                    for name, content in left:
                        worker.ask(name, content, None, self._limits)
                try:
                    for _ in left:
                        found.append(_results(worker.answer(self._limits)))
                        if worker.is_full:
                            break
                except _Lost as lost:
                    found.append(_why(lost, self._limits, self._memory_bytes, files[len(found)][0]))
        return found

    def close(self) -> None:
        """End all workers; those that are at work, when they are done."""
        with self._changed:
            self._closed = True
            idle, self._idle = self._idle, []
            self._changed.notify_all()
        for worker in idle:
            worker.end()

    @contextmanager
    def _worker(self, owner: str) -> Iterator[_Worker]:
        """A worker of `owner`, an idle one where there is one."""
        with self._changed:
            while not self._closed and not self._room:
                self._changed.wait()
            if self._closed:
                raise Unavailable("parsing has ended", remedy="try again when the service runs")
            self._room -= 1
            worker = next((idle for idle in reversed(self._idle) if idle.owner == owner), None)
            if worker is not None:
                self._idle.remove(worker)
        try:
            if worker is None:
                worker = _Worker(owner, self._memory_bytes)
            yield worker
        finally:
            with self._changed:
                self._room += 1
                if worker is not None:
                    self._idle.append(worker)
                done = [idle for idle in self._idle if not idle.is_fit or self._closed]
                # The one that was idle longest goes first.
                done += [idle for idle in self._idle if idle not in done][: -self._most_idle]
                self._idle = [idle for idle in self._idle if idle not in done]
                self._changed.notify()
            for idle in done:
                idle.end()


class _Lost(Exception):
    """A worker is gone, with the return code `code`; None where it was late and was killed."""

    def __init__(self, code: int | None) -> None:
        self.code = code


class _Worker:
    def __init__(self, owner: str, memory_bytes: int) -> None:
        self.owner = owner
        self._files = 0
        self._held = 0
        self._asked = 0
        ours, theirs = socket.socketpair()
        environment = {
            "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "MALLOC_ARENA_MAX": "2",
        }
        command = [sys.executable, "-P", "-m", "indexing.parse.worker", str(theirs.fileno()), str(memory_bytes)]
        try:
            self._process = subprocess.Popen(  # noqa: S603 (a fixed command; names and files go through the socket)
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=environment,
                pass_fds=(theirs.fileno(),),
                cwd="/",
            )
        except OSError as error:
            ours.close()
            raise _unstartable(error) from None
        finally:
            theirs.close()
        self._channel = ours
        try:
            self._read(LENGTH.size, time.monotonic() + _START_S)
        except _Lost:
            self.end()
            raise Unavailable(
                "the parser does not start", remedy="see whether memory is short, and whether all packages are there"
            ) from None

    @property
    def is_fit(self) -> bool:
        """Whether it may be given another file. Whatever ended early leaves half a message behind."""
        return not self._asked and self._files < _MOST_FILES and not self.is_full

    @property
    def is_full(self) -> bool:
        """Whether what files left behind in it takes room from the next."""
        return self._held >= _MOST_HELD

    def parse(self, name: str, content: bytes | BinaryIO, media_type: str | None, limits: ParseLimits) -> Reply:
        """Raises `_Lost`; then the worker is of no more use."""
        self.ask(name, content, media_type, limits)
        return self.answer(limits)

    def ask(self, name: str, content: bytes | BinaryIO, media_type: str | None, limits: ParseLimits) -> None:
        """For one file more. The worker takes them in order; `answer` has to be called once for each.

        Raises `_Lost`; then the worker is of no more use.
        """
        self._files += 1
        self._asked += 1
        request = msgspec.msgpack.encode(Request(name, media_type, limits))
        with _behind_a_descriptor(content) as descriptor:
            try:
                socket.send_fds(self._channel, [LENGTH.pack(len(request))], [descriptor])
                self._channel.sendall(request)
            except OSError:
                raise self._ended() from None

    def answer(self, limits: ParseLimits) -> Reply:
        """To the first file that has none yet. Raises `_Lost`; then the worker is of no more use."""
        deadline = time.monotonic() + limits.seconds
        size = LENGTH.unpack(self._read(LENGTH.size, deadline))[0]
        if size > MAX_REPLY:
            raise self._ended()
        reply = msgspec.msgpack.decode(self._read(size, deadline), type=Reply)
        self._asked -= 1
        self._held = reply.held
        return reply

    def end(self) -> None:
        self._channel.close()
        self._process.kill()
        self._process.wait()

    def _read(self, size: int, deadline: float) -> bytearray:
        """Raises `_Lost` where the worker ends or is late."""
        data = bytearray(size)
        view = memoryview(data)
        while view:
            left = deadline - time.monotonic()
            if left <= 0:
                raise _Lost(None)
            self._channel.settimeout(left)
            try:
                count = self._channel.recv_into(view)
            except TimeoutError:
                raise _Lost(None) from None
            except OSError:
                count = 0
            if not count:
                raise self._ended()
            view = view[count:]
        return data

    def _ended(self) -> _Lost:
        self._process.kill()
        return _Lost(self._process.wait())


def _unstartable(error: OSError) -> Unavailable:
    if error.errno in {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE}:
        remedy = "see the limits on processes, memory and open files"
    else:
        remedy = f"see whether this account may execute {sys.executable}"
    return Unavailable(f"no parser can be started: {error.strerror}", remedy=remedy)


def _results(reply: Reply) -> Result:
    if reply.whole is not None:
        return failure(reply.whole)
    results: list[ParseResult] = []
    for result in reply.results:
        if result.failed is not None:
            results.append(failure(result.failed))
        elif result.parsed is not None:
            results.append(result.parsed)
    return results


@contextmanager
def _behind_a_descriptor(content: bytes | BinaryIO) -> Iterator[int]:
    """The descriptor of a file with `content`, at its beginning."""
    if not isinstance(content, bytes):
        # The worker shares the offset, and a reader's own seek may move within its buffer alone.
        os.lseek(content.fileno(), 0, os.SEEK_SET)
        yield content.fileno()
        return
    descriptor = os.memfd_create("document", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(content)
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)


def _why(lost: _Lost, limits: ParseLimits, memory_bytes: int, name: str) -> ParseFailure:
    if lost.code is None or lost.code == -signal.SIGALRM:
        reason, remedy = f"takes more than {limits.seconds:.0f} s to parse", "split the file, or raise the limit"
        return ParseFailure("timed_out", reason, item=name, remedy=remedy)
    # The kernel's own killer takes the process that uses most memory; nothing else but `end` sends this signal.
    if lost.code == -signal.SIGKILL:
        reason, remedy = f"takes more than {memory_bytes >> 20} MiB to parse", "split the file, or raise the limit"
        return ParseFailure("too_large", reason, item=name, remedy=remedy)
    return ParseFailure(
        "corrupt", "ends the program that parses it", item=name, remedy="open it in its own program and save it again"
    )
