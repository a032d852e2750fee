"""The error tree as HTTP problems (RFC 9457) and as exit codes: two columns of one table.

A problem is `application/problem+json`: type, title, status, detail, instance (the request id), code, and where
there is one a remedy. Anything that is not in the table is a 500 without details.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from service.ratelimit import refusal_headers, told
from tenancy.errors import LimitExceeded, StrongroomError, Throttled, Unavailable

MEDIA_TYPE: Final = "application/problem+json"
_URN: Final = "urn:strongroom:problem:"
_NO_DETAIL: Final = "something went wrong here; nothing more was released"
_LATER: Final = "try again later"

DONE: Final = 0
FAILED: Final = 1
USAGE: Final = 2
INTERRUPTED: Final = 130


@dataclass(frozen=True, slots=True)
class Kind:
    """What one error code is outside: HTTP status, title, exit code of a command."""

    status: int
    title: str
    exit: int = FAILED


TABLE: Final[dict[str, Kind]] = {
    "error": Kind(500, "Internal error"),
    "malformed": Kind(400, "Malformed request", USAGE),
    "invalid-input": Kind(422, "The request cannot be processed", USAGE),
    "parse-failure": Kind(422, "The document yields no text"),
    "unknown-parameter": Kind(400, "Unknown parameter", USAGE),
    "unsupported-parameter": Kind(400, "Unsupported parameter", USAGE),
    "unsupported-value": Kind(400, "Unsupported value", USAGE),
    "context-length-exceeded": Kind(400, "The conversation is too long", USAGE),
    "too-large": Kind(413, "Too large", USAGE),
    "unsupported-media-type": Kind(415, "Unsupported media type", USAGE),
    "method-not-allowed": Kind(405, "Method not allowed"),
    "unauthenticated": Kind(401, "Not authenticated"),
    "throttled": Kind(429, "Too many failed authentications"),
    "forbidden": Kind(403, "Forbidden"),
    "root-refused": Kind(403, "The root is not valid"),
    "root-required": Kind(403, "A root is required"),
    "tenant-suspended": Kind(403, "The tenant is suspended"),
    "not-found": Kind(404, "Not found"),
    "model-not-found": Kind(404, "No such model"),
    "conflict": Kind(409, "Conflict"),
    "revoked": Kind(409, "Access was revoked meanwhile"),
    "withheld": Kind(409, "The answer was withheld"),
    "blocked-topic": Kind(403, "A topic that is not answered"),
    "blocked-answer": Kind(403, "The answer went into a topic that is not answered"),
    "rail-failed": Kind(503, "A guard rail failed"),
    "already-exists": Kind(409, "Already there"),
    "model-mismatch": Kind(409, "Another embedding model"),
    "schema-too-new": Kind(503, "Written by a newer program"),
    "limit-exceeded": Kind(429, "Limit exceeded"),
    "unavailable": Kind(503, "Unavailable"),
    "audit-unavailable": Kind(503, "The audit log is unavailable"),
    "limits-unavailable": Kind(503, "Limits cannot be checked"),
    "stale-domain": Kind(503, "The state changed during the request"),
    "corrupt": Kind(500, "A stored record is damaged"),
    "client-gone": Kind(499, "The client closed the connection"),
}

_BY_STATUS: Final[dict[int, tuple[str, str]]] = {
    404: ("not-found", "there is nothing under this address"),
    405: ("method-not-allowed", "this address does not take this method"),
    413: ("too-large", "the request body is over the limit"),
    503: ("unavailable", "the service cannot answer now"),
}


class Malformed(StrongroomError):
    """The body is no JSON, or a header cannot be read."""

    code = "malformed"


class UnsupportedMediaType(StrongroomError):
    code = "unsupported-media-type"


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """The body; `instance` is the request id. On a refusal by a limit `scope`, `bound`, `limit` and `used` say which
    one, and `resets` in how many seconds there may be room again.
    """

    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: str
    item: str | None = None
    remedy: str | None = None
    scope: str | None = None
    bound: str | None = None
    limit: int | None = None
    used: int | None = None
    resets: int | None = None


def kind_of(error: StrongroomError) -> Kind:
    """The table's row of an error; a subclass without its own row has that of its base."""
    return TABLE[_code(error)]


def _told(error: LimitExceeded) -> int | None:
    if error.bound is None or error.limit is None or error.used is None:
        return error.used
    return told(error.bound, error.limit, error.used)


def problem_of(error: Exception, request_id: str) -> Problem:
    """The problem document of an exception; of one outside the tree it says nothing."""
    if not isinstance(error, StrongroomError) or kind_of(error).status == 500:
        code = _code(error) if isinstance(error, StrongroomError) else "error"
        return _problem(code, _NO_DETAIL, request_id)
    if isinstance(error, Unavailable) and error.told:
        return _problem(_code(error), error.told, request_id, remedy=_LATER)
    extra: dict[str, Any] = {"item": error.item, "remedy": error.remedy}
    if isinstance(error, LimitExceeded):
        extra |= {"scope": error.scope, "bound": error.bound, "limit": error.limit, "used": _told(error)}
        extra["resets"] = _whole_seconds(error.retry_after)
    return _problem(_code(error), error.reason, request_id, **extra)


def problem_of_status(status: int, request_id: str) -> Problem:
    """The problem document of a refusal by the web framework: no such route, wrong method, body over the limit."""
    if status >= 500 and status not in _BY_STATUS:
        return _problem("error", _NO_DETAIL, request_id)
    code, detail = _BY_STATUS.get(status, ("malformed", "the request is malformed"))
    return _problem(code, detail, request_id)


def encode(problem: Problem) -> bytes:
    return msgspec.json.encode(problem)


def headers_of(error: Exception) -> dict[str, str]:
    """Headers that belong to a problem: how long to wait, how to authenticate."""
    if isinstance(error, Throttled | LimitExceeded):
        limited = dict(refusal_headers(error)) if isinstance(error, LimitExceeded) else {}
        return {"Retry-After": str(_whole_seconds(error.retry_after))} | limited
    status = kind_of(error).status if isinstance(error, StrongroomError) else 500
    if status == 401:
        return {"WWW-Authenticate": 'Bearer realm="strongroom"'}
    return {"Retry-After": "1"} if status == 503 else {}


def _whole_seconds(seconds: float) -> int:
    return max(1, math.ceil(seconds))


def _problem(code: str, detail: str, request_id: str, **extra: Any) -> Problem:
    kind = TABLE[code]
    return Problem(
        type=_URN + code, title=kind.title, status=kind.status, detail=detail, instance=request_id, code=code, **extra
    )


def _code(error: StrongroomError) -> str:
    return next(base.code for base in type(error).__mro__ if issubclass(base, StrongroomError) and base.code in TABLE)
