"""What callers are told of their limits: exact counts, but of money steps that no single answer shows in."""

from __future__ import annotations

import pytest

from admission.counters import Room
from admission.limits import BOUNDS
from admission.scopes import tenant_scope
from service.ratelimit import refusal_headers, room_headers, told
from tenancy.errors import LimitExceeded

SCOPE = tenant_scope("t")
LIMIT = 1_000_000


def headers(bound: str, used: int) -> dict[str, str]:
    return dict(room_headers([Room(SCOPE, bound, LIMIT, used, 12.2)]))


def test_requests_and_tokens_are_told_as_they_are_counted() -> None:
    for bound in ("requests_per_minute", "tokens_per_minute", "input_tokens_per_minute", "output_tokens_per_minute"):
        assert headers(bound, 7)["RateLimit"] == f'"tenant-{bound}";r={LIMIT - 7};t=13'


def test_of_money_no_answer_s_cost_is_told() -> None:
    # An answer whose prompt the engine had in its memory, and one whose it had not.
    for cheap, dear in ((40_001, 49_999), (950_001, 999_000)):
        assert headers("money_per_month", cheap) == headers("money_per_month", dear)
    for bound in BOUNDS:
        if bound.measure == "money":
            assert {told(bound.name, LIMIT, used) for used in range(0, LIMIT + 1, 999)} <= set(
                range(0, LIMIT + 1, 50_000)
            )


@pytest.mark.parametrize(("limit", "used"), [(0, 0), (0, 5), (1, 1), (7, 3), (19, 19), (10**9, 1), (100, 130)])
def test_what_is_told_is_never_less_than_what_is_used(limit: int, used: int) -> None:
    assert told("money_per_month", limit, used) >= used
    assert told("money_per_month", limit, 0) == 0
    assert told("requests_per_minute", limit, used) == used


def test_a_refusal_tells_that_nothing_is_left() -> None:
    refused = LimitExceeded("", scope="tenant", bound="money_per_month", limit=LIMIT, used=912_345, retry_after=3.0)
    assert dict(refusal_headers(refused))["RateLimit"] == '"tenant-money_per_month";r=0;t=3'
