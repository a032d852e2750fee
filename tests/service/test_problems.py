from __future__ import annotations

import pytest

import cache.stores.local  # noqa: F401  so that every error class below is loaded
import generation.pool  # noqa: F401
import indexing.batch  # noqa: F401
import retrieval.answer  # noqa: F401
from generation.generator import GeneratorRefused, Misfit
from generation.replica import AdapterRefused
from service.problems import TABLE, headers_of, kind_of, problem_of, problem_of_status
from tenancy.errors import (
    Corrupt,
    EngineUnavailable,
    InvalidInput,
    LimitExceeded,
    NotFound,
    StrongroomError,
    Throttled,
    Unauthenticated,
    Unavailable,
)


def all_errors(base: type[StrongroomError] = StrongroomError) -> list[type[StrongroomError]]:
    return [base, *(error for kind in base.__subclasses__() for error in all_errors(kind))]


@pytest.mark.parametrize("error", all_errors(), ids=lambda error: error.__name__)
def test_every_error_of_the_tree_has_a_status(error: type[StrongroomError]) -> None:
    code = next(base.code for base in error.__mro__ if issubclass(base, StrongroomError) and base.code in TABLE)
    assert code != "error" or error is StrongroomError


def test_a_problem_says_what_and_what_to_do() -> None:
    found = problem_of(NotFound("no such document", item="a.md", remedy="list them"), "f" * 32)
    assert (found.status, found.code, found.item, found.remedy) == (404, "not-found", "a.md", "list them")
    assert found.instance == "f" * 32


def test_a_limit_names_its_scope_and_when_to_come_back() -> None:
    error = LimitExceeded("too many", scope="user", limit=3, used=3, retry_after=12.2)
    found = problem_of(error, "r")
    assert (found.status, found.scope, found.limit, found.used) == (429, "user", 3, 3)
    assert headers_of(error) == {"Retry-After": "13"}
    assert headers_of(Throttled("wait", retry_after=0.1)) == {"Retry-After": "1"}


@pytest.mark.parametrize(
    "error", [ValueError("secret text"), Corrupt("secret text", item="secret"), StrongroomError("secret text")]
)
def test_what_was_not_foreseen_says_nothing(error: Exception) -> None:
    found = problem_of(error, "r")
    assert found.status == 500
    assert "secret" not in repr(found)


def test_what_a_generators_server_refused_is_for_the_operator_alone() -> None:
    """Addresses, model names and versions of the deployment are in the log, and in no answer."""
    for kind in (GeneratorRefused, Misfit, AdapterRefused, EngineUnavailable):
        found = problem_of(kind("serves the secret", item="http://secret:30000", remedy="upgrade secret"), "r")
        assert (found.status, found.code, "secret" in repr(found)) == (503, "unavailable", False)
    assert problem_of(Unavailable("the stream was cut"), "r").detail == "the stream was cut"


def test_a_refusal_by_the_framework_is_a_problem_too() -> None:
    assert problem_of_status(404, "r").code == "not-found"
    assert problem_of_status(418, "r").status == 400
    assert problem_of_status(502, "r").status == 500


def test_headers_tell_how_to_authenticate_and_when_to_retry() -> None:
    assert headers_of(Unauthenticated("no"))["WWW-Authenticate"].startswith("Bearer")
    assert headers_of(Unavailable("away")) == {"Retry-After": "1"}
    assert headers_of(InvalidInput("bad")) == {}


def test_exit_codes_tell_wrong_usage_from_failure() -> None:
    assert kind_of(InvalidInput("bad")).exit == 2
    assert kind_of(NotFound("gone")).exit == 1
