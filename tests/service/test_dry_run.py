"""A preview takes nothing and foretells what the question takes; a remembered answer takes no tokens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from service.problems import Problem
from service.routes.preview import PreviewResponse
from tenancy.contract import Contract, GenerationTerms
from tenancy.identity import Role
from tenancy.limits import Limits, TenantLimits
from tests.service.house import House, problem
from tests.service.priced import ledger_of, opened
from tests.service.test_roots import mint
from tests.service.test_usage import by_hop, used
from tests.support.spent import Spent, spent

QUESTION = {"query": "How long is the notice period?"}
DRY = "/v1/answers?dry_run=true"
LIMITS = TenantLimits(
    tenant=Limits(requests_per_minute=100, money_per_month=10**9),
    user=Limits(requests_per_minute=10, tokens_per_minute=50_000, concurrent=3, max_output_tokens=200),
)


@pytest.fixture
def house(folder: Path) -> Iterator[House]:
    made = opened(folder)
    with made.client:
        made.put("acme", "notice.md", "The notice period is three months.", allow=["tenant"])
        made.services.control.tenants.set_contract("acme", Contract(admission=LIMITS))
        yield made
    made.close()


def dry(house: House, key: str, **more: Any) -> dict[str, Any]:
    response = house.post(DRY, key, QUESTION | more)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def room(found: dict[str, Any], scope: str = "user") -> dict[str, dict[str, Any]]:
    return {one["bound"]: one for one in found["room"] if one["scope"] == scope}


def spent_by(house: House, user: str) -> Spent:
    tenants = house.services.control.tenants
    tenant = tenants.show("acme").id
    return spent(house.services.path.admission, tenant, tenants.find_user(tenant, user))


def test_a_preview_says_how_what_it_takes_and_how_much_room_there_is(house: House) -> None:
    key = house.key("acme", "ana")
    found = dry(house, key, top_k=3, feature="help")
    assert (found["dry_run"], found["admitted"], found["refused"]) == (True, True, None)
    plan, estimate = found["plan"], found["estimate"]
    assert (plan["model"], plan["template"], plan["top_k"], plan["mode"]) == ("extractive-1", "default", 3, "hybrid")
    assert estimate["output_tokens"] == estimate["max_output_tokens"] == 200
    assert estimate["input_tokens"] > 0
    price = found["price"]
    assert price["prices"].startswith("plan/1+")
    assert price["microunits"] == price["max_microunits"] > 20 * 200
    assert room(found)["requests_per_minute"] == {
        "scope": "user", "bound": "requests_per_minute", "limit": 10, "used": 0, "left": 10, "resets_s": 0.0,
    }  # fmt: skip
    assert set(room(found)) == {"requests_per_minute", "tokens_per_minute", "concurrent"}
    assert {"requests_per_minute", "money_per_month"} <= set(room(found, "tenant"))
    # What the question itself then takes fits into what was foretold.
    answer = house.post("/v1/answers", key, QUESTION).json()
    assert answer["usage"]["input_tokens"] <= estimate["input_tokens"]
    assert answer["usage"]["output_tokens"] <= estimate["max_output_tokens"]
    after = dry(house, key)
    assert room(after)["requests_per_minute"]["used"] == 1
    assert room(after)["tokens_per_minute"]["used"] == sum(answer["usage"].values())
    # Money is told in twentieths of the limit.
    assert room(after, "tenant")["money_per_month"]["used"] == 10**9 // 20
    # Answers of this user were short, so that less is expected of the next one.
    assert after["estimate"]["output_tokens"] < 200 == after["estimate"]["max_output_tokens"]


def test_a_preview_consumes_nothing_and_is_on_record(house: House) -> None:
    key = house.key("acme", "ana")
    before = ledger_of(house).catch_up()
    responses = [house.post(DRY, key, QUESTION | {"stream": True}) for _ in range(12)]
    # More of them than the user has requests.
    assert {response.status_code for response in responses} == {200}
    assert "ratelimit" not in responses[0].headers
    uses = spent_by(house, "ana")
    assert (uses.requests, uses.concurrent, uses.tokens, uses.held) == (0, 0, 0, 0)
    assert ledger_of(house).catch_up() == 0, before
    mine = [one for one in house.events("acme") if one["action"] == "answer.preview"]
    assert [one["phase"] for one in mine] == ["intent", "outcome"] * 12
    assert mine[-1]["outcome"] == "allowed"
    assert "resources" not in mine[-1]
    assert "cost" not in mine[-1]
    assert responses[-1].json()["audit"]["seq"] == mine[-2]["seq"]
    # Not even a remembered answer: whether there is one is not told.
    assert house.post("/v1/answers", key, QUESTION).json()["cache"]["status"] == "miss"
    assert dry(house, key)["plan"]["cache"] == "default"


@pytest.mark.parametrize(
    ("limits", "bound", "scope"),
    [
        (TenantLimits(user=Limits(requests_per_minute=0)), "requests_per_minute", "user"),
        (TenantLimits(user=Limits(concurrent=0)), "concurrent", "user"),
        (TenantLimits(user=Limits(tokens_per_minute=100)), "tokens_per_minute", "user"),
        (TenantLimits(tenant=Limits(output_tokens_per_minute=10)), "output_tokens_per_minute", "tenant"),
        (TenantLimits(tenant=Limits(money_per_month=100)), "money_per_month", "tenant"),
        (TenantLimits(key=Limits(kv_tokens=5)), "kv_tokens", "key"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_preview_foretells_the_refusal(house: House, limits: TenantLimits, bound: str, scope: str) -> None:
    key = house.key("acme", "ana")
    house.services.control.tenants.set_contract("acme", Contract(admission=limits))
    seen = dry(house, key)
    refused = problem(house.post("/v1/answers", key, QUESTION), 429, "limit-exceeded")
    assert seen["admitted"] is False
    told = seen["refused"]
    assert (told["scope"], told["bound"]) == (refused["scope"], refused["bound"]) == (scope, bound)
    assert (told["limit"], told["used"]) == (refused["limit"], refused["used"])
    assert told["need"] > told["limit"] - told["used"]


def test_a_preview_shows_the_room_of_its_root(house: House) -> None:
    key = house.key("acme", "ana")
    root = mint(house, key, calls=1, tokens=100_000)
    headers = {"Strongroom-Root": root["root"]}
    for left, admitted in ((1, True), (0, False)):
        found = house.post(DRY, key, QUESTION, headers=headers).json()
        assert (room(found, "root")["requests"]["left"], found["admitted"]) == (left, admitted)
        seen = house.get("/v1/limits", key, headers=headers).json()
        assert (room(seen, "root")["requests"]["left"], seen["admitted"]) == (left, admitted)
        house.post("/v1/answers", key, QUESTION, headers=headers)
    assert found["refused"]["bound"] == "requests"
    problem(house.post(DRY, key, QUESTION, headers={"Strongroom-Root": "sr_root.x.y"}), 403, "root-refused")
    problem(house.get("/v1/limits", key, headers={"Strongroom-Root": "sr_root.x.y"}), 403, "root-refused")


def test_a_preview_refuses_what_the_question_would_be_refused_for(house: House) -> None:
    key = house.key("acme", "ana")
    for change, status, code in (
        ({"model": "none"}, 404, "not-found"),
        ({"template": "none"}, 404, "not-found"),
        ({"filter": {"field": "year", "eq": 1}}, 422, "invalid-input"),
        ({"query": " "}, 422, "invalid-input"),
    ):
        assert (
            problem(house.post("/v1/answers", key, QUESTION | change), status, code)["detail"]
            == (problem(house.post(DRY, key, QUESTION | change), status, code)["detail"])
        )
    problem(house.post(DRY, house.key("acme", "lo", Role.INGEST), QUESTION), 403, "forbidden")
    problem(house.post("/v1/answers?dry_run=perhaps", key, QUESTION), 422, "invalid-input")
    assert house.post("/v1/answers?dry_run=false", key, QUESTION).json()["answer"]


def test_the_contract_s_longest_answer_is_in_the_preview(house: House) -> None:
    agreed = Contract(generation=GenerationTerms(max_output_tokens=77))
    house.services.control.tenants.set_contract("acme", agreed)
    assert dry(house, house.key("acme", "ana"))["estimate"]["max_output_tokens"] == 77
    assert dry(house, house.key("acme", "ana"), max_tokens=5)["estimate"]["max_output_tokens"] == 5


def test_the_openapi_document_tells_both_answers(house: House) -> None:
    operation = house.get("/schema/openapi.json").json()["paths"]["/v1/answers"]["post"]
    names = {one["name"]: one for one in operation["parameters"]}
    assert set(names) == {"dry_run", "Strongroom-Root"}
    assert (names["dry_run"]["in"], names["Strongroom-Root"]["in"]) == ("query", "header")
    assert not names["Strongroom-Root"].get("required", False)
    answered = operation["responses"]["200"]["content"]["application/json"]
    seen = answered["examples"]["dry_run"]["value"]
    assert msgspec.to_builtins(msgspec.convert(seen, PreviewResponse)) == seen
    assert set(seen) == set(dry(house, house.key("acme", "ana")))
    refusals = operation["responses"]["429"]["content"]["application/problem+json"]["examples"]
    for example in refusals.values():
        assert msgspec.to_builtins(msgspec.convert(example["value"], Problem)) == example["value"]
    house.services.control.tenants.set_contract(
        "acme", Contract(admission=TenantLimits(user=Limits(requests_per_minute=0)))
    )
    refused = house.post("/v1/answers", house.key("acme", "ana"), QUESTION).json()
    assert set(refused) == set(refusals["minute"]["value"])
    assert {name: refused[name] for name in ("type", "title", "code", "status")} == {
        name: refusals["minute"]["value"][name] for name in ("type", "title", "code", "status")
    }
    told = json.dumps(answered)
    assert "PreviewResponse" in told
    assert "AnswerResponse" in told
    for path, method in (
        ("/v1/retrieve", "post"),
        ("/v1/chat/completions", "post"),
        ("/v1/roots", "post"),
        ("/v1/limits", "get"),
    ):
        found = house.get("/schema/openapi.json").json()["paths"][path][method]["parameters"]
        assert [one["name"] for one in found] == ["Strongroom-Root"]


# --- Remembered answers -----------------------------------------------------------------------------------------------


def test_a_remembered_answer_generates_nothing_is_counted_as_served_and_is_one_request(house: House) -> None:
    key = house.key("acme", "ana")
    first = house.post("/v1/answers", key, QUESTION).json()
    tokens = sum(first["usage"].values())
    once = spent_by(house, "ana")
    assert (once.requests, once.tokens) == (1, tokens)
    generated = by_hop(used(house, "?group_by=hop"))["generate"]
    root = mint(house, key, calls=1)
    before = spent_by(house, "ana")
    again = house.post("/v1/answers", key, QUESTION, headers={"Strongroom-Root": root["root"]}).json()
    assert again["cache"]["status"] == "hit"
    assert again["usage"] == {"input_tokens": 0, "output_tokens": 0}
    twice = spent_by(house, "ana")
    assert (twice.requests - before.requests, twice.tokens - before.tokens, twice.held) == (1, 0, 0)
    hops = by_hop(used(house, "?group_by=hop"))
    # Nothing more was generated: the tokens of the first answer were served once more.
    assert hops["generate"] == generated
    assert hops["cache"]["tokens_computed"] == 0
    assert hops["cache"]["tokens_served"] == tokens
    assert hops["cache"]["saved"] == generated["microunits"]
    # One call of the root as well.
    found = problem(
        house.post("/v1/answers", key, QUESTION, headers={"Strongroom-Root": root["root"]}), 429, "limit-exceeded"
    )
    assert found["scope"] == "root"


def test_a_preview_tells_nothing_of_how_much_others_use_of_a_limit_over_all_tenants(folder: Path) -> None:
    made = House(folder, STRONGROOM_ADMISSION__DEPLOYMENT__REQUESTS_PER_MINUTE="3")
    with made.client:
        for tenant in ("acme", "globex"):
            made.put(tenant, "notice.md", "The notice period is three months.", allow=["tenant"])
        key, other = made.key("acme", "ana"), made.key("globex", "eve")
        before = dry(made, key)
        statuses = [made.post("/v1/answers", other, QUESTION).status_code for _ in range(4)]
        assert (statuses[0], statuses[-1]) == (200, 429)
        assert made.post("/v1/answers", key, QUESTION).status_code == 429
        after = dry(made, key)
    made.close()
    assert after["admitted"] is before["admitted"] is True
    assert after["room"] == before["room"]
