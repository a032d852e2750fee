"""Errors as OpenAI's clients read them: `{"error": {message, type, param, code}}`, beside the status that their
exceptions go by. What is said is what the problem document says.
"""

from __future__ import annotations

from typing import Final

import msgspec
from litestar.openapi import ResponseSpec

from service.openapi import PROBLEMS
from service.problems import Problem
from tenancy.errors import NotFound

COMPLETIONS: Final = "/v1/chat/completions"
MODELS: Final = "/v1/models"
MEDIA_TYPE: Final = "application/json"

_CODES: Final = {
    "invalid-input": "invalid_value",
    "unauthenticated": "invalid_api_key",
    "limit-exceeded": "rate_limit_exceeded",
    "throttled": "rate_limit_exceeded",
}
LASTING: Final = frozenset({"conflict", "withheld", "already-exists", "model-mismatch", "schema-too-new", "corrupt"})
"""What the same request meets again, so that clients that retry by status should not."""


class NoSuchModel(NotFound):
    """The name that a request gave as `model` is none of the caller's."""

    code = "model-not-found"


class ErrorObject(msgspec.Struct, frozen=True):
    """`code` is OpenAI's where it has one, else that of the problem document."""

    message: str
    type: str
    param: str | None
    code: str


class ErrorBody(msgspec.Struct, frozen=True):
    """What a refused or failed request is answered with, and the last event of a stream that fails."""

    error: ErrorObject


class ProblemForClients(Problem, frozen=True, kw_only=True, omit_defaults=True):
    """A problem document that OpenAI's clients read, too, by its member `error`."""

    error: ErrorObject


ERRORS: Final = {
    status: ResponseSpec(data_container=ErrorBody, description=described.description, generate_examples=False)
    for status, described in PROBLEMS.items()
    if status != 422
}
"""Responses of `POST /v1/chat/completions`; what cannot be processed is 400 there."""
PROBLEMS_FOR_BOTH: Final = {
    status: ResponseSpec(
        data_container=ProblemForClients,
        description=described.description,
        media_type=described.media_type,
        generate_examples=False,
    )
    for status, described in PROBLEMS.items()
}
"""Responses of `GET /v1/models`."""


def is_for_clients(path: str) -> bool:
    """Whether a request under `path` gets errors in this form alone."""
    return path.rstrip("/") == COMPLETIONS


def is_for_both(path: str) -> bool:
    """Whether a request under `path` gets problem documents with OpenAI's form inside."""
    return path == MODELS or path.startswith(f"{MODELS}/")


def status_of(problem: Problem) -> int:
    """OpenAI has no 422."""
    return 400 if problem.status == 422 else problem.status


def error_of(problem: Problem) -> ErrorObject:
    subject = f"{problem.item}: " if problem.item else ""
    remedy = f" ({problem.remedy})" if problem.remedy else ""
    return ErrorObject(
        message=f"{subject}{problem.detail}{remedy}",
        type=_type(status_of(problem)),
        param=problem.item if status_of(problem) in (400, 403, 404) else None,
        code=_CODES.get(problem.code, problem.code.replace("-", "_")),
    )


def body_of(problem: Problem) -> ErrorBody:
    return ErrorBody(error_of(problem))


def for_both(problem: Problem) -> ProblemForClients:
    return ProblemForClients(**msgspec.structs.asdict(problem), error=error_of(problem))


def retry_headers(problem: Problem) -> dict[str, str]:
    """What the official clients obey before they look at the status."""
    return {"X-Should-Retry": "false"} if problem.code in LASTING else {}


def _type(status: int) -> str:
    if status == 429:
        return "rate_limit_error"
    return "server_error" if status >= 500 else "invalid_request_error"
