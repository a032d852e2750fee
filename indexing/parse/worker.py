"""The process that parses files for one tenant: started by `indexing.parse.pool`, and killed by it at will.

It reads requests from a socket, each with the descriptor of the file to parse, and answers with what
`parse` gives. Its memory is bounded, it writes no files, opens no sockets, and ends itself where a file takes longer
than it may, also when nobody is there any more to end it.
"""

from __future__ import annotations

import gc
import os
import resource
import signal
import socket
import struct
import sys
from typing import Final

import msgspec

from indexing.parse.failure import ParseFailure, Status
from indexing.parse.model import Parsed, ParseLimits, ParseResult
from indexing.parse.privileges import give_up
from indexing.parse.registry import parse

LENGTH: Final = struct.Struct("<Q")
MAX_REPLY: Final = 512 * 2**20
"""Bytes of all texts of one file."""

_GRACE_S: Final = 5.0
"""The pool ends a worker that is late; this long afterwards the worker does it itself."""
_OPEN_FILES: Final = 64


class Request(msgspec.Struct, frozen=True):
    """One file; its content lies behind the descriptor that comes along."""

    name: str
    media_type: str | None
    limits: ParseLimits


class Failed(msgspec.Struct, frozen=True):
    """A `ParseFailure` as a message."""

    status: Status
    reason: str
    item: str | None
    remedy: str | None
    suffix: str


class Result(msgspec.Struct, frozen=True):
    """One document, or why there is none."""

    parsed: Parsed | None = None
    failed: Failed | None = None


class Reply(msgspec.Struct, frozen=True):
    """What a file gave. `whole` is set where it gave nothing; `held` is the memory that the worker uses now, in
    bytes."""

    results: list[Result]
    whole: Failed | None
    held: int


def failed(failure: ParseFailure) -> Failed:
    return Failed(failure.status, failure.reason, failure.item, failure.remedy, failure.suffix)


def failure(message: Failed) -> ParseFailure:
    return ParseFailure(message.status, message.reason, item=message.item, remedy=message.remedy, suffix=message.suffix)


def main() -> None:
    """Answer until the other side closes. The arguments are the socket's descriptor and the most memory, in bytes."""
    descriptor, memory_bytes = map(int, sys.argv[1:])
    _confine(memory_bytes)
    give_up()
    channel = socket.socket(fileno=descriptor)
    # Says that everything is loaded, and takes what loading left behind out of each later collection's way.
    gc.freeze()
    channel.sendall(LENGTH.pack(0))
    while (request := _receive(channel)) is not None:
        reply = _answer(*request)
        channel.sendall(LENGTH.pack(len(reply)))
        channel.sendall(reply)


def _confine(memory_bytes: int) -> None:
    # Threads of number crunching libraries would each take address space for a stack and an arena.
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (_OPEN_FILES, _OPEN_FILES))
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _receive(channel: socket.socket) -> tuple[Request, int] | None:
    head, descriptors, _, _ = socket.recv_fds(channel, LENGTH.size, 1, socket.MSG_WAITALL)
    if len(head) < LENGTH.size or not descriptors:
        return None
    size = LENGTH.unpack(head)[0]
    body = channel.recv(size, socket.MSG_WAITALL)
    return (msgspec.msgpack.decode(body, type=Request), descriptors[0]) if len(body) == size else None


def _answer(request: Request, descriptor: int) -> bytes:
    name = request.name
    signal.setitimer(signal.ITIMER_REAL, request.limits.seconds + _GRACE_S)
    try:
        return _reply(*_parsed(request, descriptor))
    except MemoryError:
        why = ParseFailure("too_large", "takes too much memory to parse", item=name, remedy="split the file")
    except UnicodeEncodeError:
        why = ParseFailure("corrupt", "gives text that is not Unicode", item=name, remedy="save the file again")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return _reply([], why)


def _parsed(request: Request, descriptor: int) -> tuple[list[ParseResult], ParseFailure | None]:
    with open(descriptor, "rb") as file:
        # One byte more than is allowed tells that there is more, and a file that grows ends there.
        data = file.read(request.limits.max_bytes + 1)
    try:
        return parse(request.name, data, request.media_type, limits=request.limits), None
    except ParseFailure as failure:
        return [], failure
    except RecursionError:
        return [], ParseFailure("corrupt", "is nested too deeply", item=request.name, remedy="simplify the file")


def _reply(results: list[ParseResult], whole: ParseFailure | None) -> bytes:
    messages = [
        Result(failed=failed(result)) if isinstance(result, ParseFailure) else Result(result) for result in results
    ]
    reply = msgspec.msgpack.encode(Reply(messages, failed(whole) if whole is not None else None, _held()))
    if len(reply) <= MAX_REPLY:
        return reply
    return _reply([], ParseFailure("too_large", f"gives more than {MAX_REPLY >> 20} MiB of text", remedy="split it"))


def _held() -> int:
    """Resident memory, in bytes; what `getrusage` tells begins with the peak of the program that started this one."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


if __name__ == "__main__":
    try:
        main()
    except (BrokenPipeError, ConnectionResetError):
        os._exit(0)
