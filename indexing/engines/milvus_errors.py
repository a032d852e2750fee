"""What a Milvus server or its client complains about, as errors of ours. What a server says may quote a request, with
label ids and vectors in it: it is left out, and the client's own log of it is off.
"""

from __future__ import annotations

import logging
from typing import Final

import grpc
from pymilvus.exceptions import MilvusException

from tenancy.errors import EngineUnavailable, NotFound

NO_COLLECTION: Final = 100
NOT_LOADED: Final = 101
_FULL: Final = frozenset({3, 7, 9})  # memory, disk, writes refused because of either
_PAUSE: Final = frozenset({4, 8})  # requests at a time, rate
_DEFINITE: Final = frozenset({NO_COLLECTION, 700, 1100, 1400, 1401}) | _FULL
_REFUSED: Final = frozenset({grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED})
_PASSING: Final = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.ABORTED})


def silence_client() -> None:
    """Nothing of the client's log: it writes requests that failed, and tracebacks, to the standard error."""
    for name in ("pymilvus", "pymilvus.milvus_client", "pymilvus.bulk_writer"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)


def as_error(error: MilvusException | grpc.RpcError, engine: str) -> NotFound | EngineUnavailable:
    """The error to raise in place of the client's; `engine` is the item it names."""
    status, code = _status(error), _code(error)
    if code == NO_COLLECTION:
        return NotFound("the collection is not at the engine", item=engine)
    if status in _REFUSED or code in {1400, 1401}:
        return _unavailable("refuses the key", engine, "correct its api_key_file")
    if code == NOT_LOADED:
        return _unavailable("has not loaded the collection yet", engine, "try again; if it stays so, look at its log")
    if status is grpc.StatusCode.RESOURCE_EXHAUSTED or code in _FULL:
        return _unavailable("is out of memory or disk", engine, "give it more, or move tenants to another engine")
    if code in _PAUSE:
        return _unavailable("asks for a pause", engine, "try again later")
    if status is grpc.StatusCode.DEADLINE_EXCEEDED:
        return _unavailable("gave no answer in time", engine, "try again; if it stays so, look at the engine")
    if status is not None or code == 2:
        return _unavailable("cannot be reached", engine, "start it, or correct its address")
    return _unavailable(f"answered with error {code}", engine, "try again; if it stays so, look at its log")


def is_passing(error: MilvusException | grpc.RpcError) -> bool:
    """Whether the same call may do better in a moment: while a server starts, it fails in many ways."""
    status = _status(error)
    if status is not None:
        return status in _PASSING
    return _code(error) not in _DEFINITE


def is_unloaded(error: MilvusException | grpc.RpcError) -> bool:
    """Whether the collection is there and out of service."""
    return _code(error) == NOT_LOADED


def _status(error: BaseException | None) -> grpc.StatusCode | None:
    """The transport's own verdict; the client hides it as the cause, or in the place of a code."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))  # the client raises errors "from" themselves
        if isinstance(error, MilvusException) and isinstance(error.code, grpc.StatusCode):
            return error.code
        if isinstance(error, grpc.RpcError) and callable(getattr(error, "code", None)):
            status = error.code()
            return status if isinstance(status, grpc.StatusCode) else None
        error = error.__cause__
    return None


def _code(error: BaseException) -> int:
    code = error.code if isinstance(error, MilvusException) else 0
    return code if isinstance(code, int) else 0


def _unavailable(reason: str, engine: str, remedy: str) -> EngineUnavailable:
    return EngineUnavailable(f"the vector engine {reason}", item=engine, remedy=remedy)
