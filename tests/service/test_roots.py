"""Signed roots over HTTP: who may use one, what it bounds, and that it outlives a restart with what it has used."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import pytest

from admission.limits import Amounts
from admission.roots import DEEPEST, ID_PREFIX, PREFIX
from admission.scopes import root_scope
from retrieval import roots as rooted
from tenancy.billing import UsageTerms
from tenancy.contract import Contract
from tenancy.identity import Role
from tenancy.limits import TenantLimits
from tests.service.house import House, problem
from tests.service.priced import house, opened

__all__ = ["house"]

QUESTION = {"query": "How long is the notice period?", "cache": "bypass"}
CHAT = {"model": "extractive-1", "messages": [{"role": "user", "content": QUESTION["query"]}]}
ROUTES = {"/v1/answers": QUESTION, "/v1/retrieve": {"query": QUESTION["query"]}, "/v1/chat/completions": CHAT}


def mint(house: House, key: str, parent: str | None = None, **terms: Any) -> dict[str, Any]:
    response = house.post("/v1/roots", key, terms | ({} if parent is None else {"parent": parent}))
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def ask(house: House, key: str, signed: str | None, path: str = "/v1/answers", **more: Any) -> Any:
    headers = {} if signed is None else {"Strongroom-Root": signed.encode("latin-1")}
    return house.post(path, key, ROUTES[path] | more, headers=headers)


def used(house: House, root_id: str, tenant: str = "acme") -> Amounts:
    control = house.services.control
    scope = root_scope(control.tenants.show(tenant).id, root_id)
    return asyncio.run(house.services.path.admission.counters.use(scope)).life


def events_of(house: House, response: Any, tenant: str = "acme") -> list[dict[str, Any]]:
    return [one for one in house.events(tenant) if one["request"]["id"] == response.headers["x-request-id"]]


# --- What a root bounds -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ROUTES)
def test_the_calls_of_a_root_are_counted_on_every_route_and_named_in_the_audit(house: House, path: str) -> None:
    key = house.key("acme", "ana")
    root = mint(house, key, calls=2)
    for _ in range(2):
        response = ask(house, key, root["root"], path)
        assert response.status_code == 200, response.text
        records = events_of(house, response)
        assert [one["request"]["root"] for one in records] == [root["id"]] * 2
        # In the intent as well, which is all that is left of a request whose process was killed.
        assert [one["detail"]["branch"] for one in records] == [root["id"]] * 2
    response = ask(house, key, root["root"], path)
    assert response.status_code == 429
    if path != "/v1/chat/completions":
        found = problem(response, 429, "limit-exceeded")
        assert (found["scope"], found["bound"], found["limit"], found["used"]) == ("root", "requests", 2, 2)
        assert "mint another root" in found["remedy"]
    (refused,) = events_of(house, response)
    assert (refused["outcome"], refused["request"]["root"]) == ("refused", root["id"])
    assert "branch" not in refused.get("detail", {})
    # The root is spent, its user is not.
    assert ask(house, key, None, path).status_code == 200


def test_tokens_and_money_of_a_root_are_those_of_its_answers(house: House) -> None:
    key = house.key("acme", "ana", Role.READER, Role.ADMIN)
    root = mint(house, key, tokens=100_000, money=10**9)
    body = ask(house, key, root["root"]).json()
    tokens = body["usage"]["input_tokens"] + body["usage"]["output_tokens"]
    life = used(house, root["id"])
    assert (life.requests, life.tokens) == (1, tokens)
    assert life.money >= 1_000 + 10 * body["usage"]["input_tokens"]
    for terms in ({"tokens": tokens}, {"money": life.money - 1}):
        small = mint(house, key, **terms)
        # What is held beforehand is more than the answer takes in the end.
        found = problem(ask(house, key, small["root"]), 429, "limit-exceeded")
        assert (found["scope"], found["bound"]) == ("root", next(iter(terms)))
        assert used(house, small["id"]) == Amounts()


def test_requests_at_one_time_of_a_root(house: House) -> None:
    key = house.key("acme", "ana")
    # None at all would be refused for ever, and each time told to come back in a second.
    assert "parallel" in json.dumps(problem(house.post("/v1/roots", key, {"parallel": 0}), 422, "invalid-input"))
    one = mint(house, key, parallel=1)
    for _ in range(3):
        assert ask(house, key, one["root"]).status_code == 200


def test_children_draw_from_their_parents_and_no_family_has_more_than_its_root(house: House) -> None:
    key = house.key("acme", "ana")
    root = mint(house, key, calls=3, tokens=500_000, deadline=600)
    left = mint(house, key, root["root"], calls=2)
    right = mint(house, key, root["root"], calls=100, deadline=3_000)
    below = house.post("/v1/roots", key, {"calls": 1}, headers={"Strongroom-Root": left["root"]}).json()
    assert (left["parent"], left["tree"], below["parent"], below["tree"]) == (
        root["id"], root["id"], left["id"], root["id"],
    )  # fmt: skip
    # A child is told what really holds.
    assert (left["calls"], left["tokens"], right["calls"]) == (2, 500_000, 3)
    assert right["expires"] == root["expires"]
    assert ask(house, key, below["root"]).status_code == 200
    assert problem(ask(house, key, below["root"]), 429, "limit-exceeded")["scope"] == "root"
    assert ask(house, key, right["root"]).status_code == 200
    assert [used(house, one["id"]).requests for one in (root, left, right, below)] == [2, 1, 1, 1]
    last = ask(house, key, left["root"])
    assert last.status_code == 200
    assert events_of(house, last)[-1]["detail"]["branch"] == f"{root['id']} {left['id']}"
    # Right has two calls of its own left, and the root none.
    found = problem(ask(house, key, right["root"]), 429, "limit-exceeded")
    assert (found["bound"], found["limit"], found["used"]) == ("requests", 3, 3)
    assert [used(house, one["id"]).requests for one in (root, left, right, below)] == [3, 2, 1, 1]


def test_a_tree_has_a_depth(house: House) -> None:
    key = house.key("acme", "ana")
    root = mint(house, key, calls=9)
    for _ in range(DEEPEST - 1):
        root = mint(house, key, root["root"])
    assert len(root["root"]) < 2_000
    assert ask(house, key, root["root"]).status_code == 200
    problem(house.post("/v1/roots", key, {"parent": root["root"]}), 422, "invalid-input")


def test_the_request_s_own_deadline_is_the_root_s(house: House) -> None:
    key = house.key("acme", "ana")
    root = mint(house, key, deadline=5)
    seen: list[float] = []
    admit = house.services.path.admission.admit

    def watched(*given: Any, **more: Any) -> Any:
        seen.extend(draw.limits.deadline_s for draw in more["roots"])
        return admit(*given, **more)

    house.services.path.admission.admit = watched  # type: ignore[method-assign]
    assert ask(house, key, root["root"]).status_code == 200
    assert 0 < seen[0] <= 5


# --- Who may use one ----------------------------------------------------------------------------------------------


def forged(root: str) -> dict[str, str]:
    """Ids that nobody minted, by what is wrong with them."""
    body, _, mac = root.removeprefix(PREFIX).partition(".")
    nodes = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    nodes[0][1] = 1_000_000
    richer = base64.urlsafe_b64encode(json.dumps(nodes, separators=(",", ":")).encode()).rstrip(b"=").decode()
    return {
        "empty": "",
        "its id alone": nodes[0][0],
        "invented": f"{PREFIX}{body[::-1]}.{mac}",
        "more calls": f"{PREFIX}{richer}.{mac}",
        "no mac": f"{PREFIX}{body}.",
        "no mac and no dot": f"{PREFIX}{body}",
        "a mac cut short": f"{PREFIX}{body}.{mac[:-1]}",
        "a mac of another": f"{PREFIX}{body}.{'A' * len(mac)}",
        "behind it more": f"{root}.x",
        "padded": f"{root}=",
        "another prefix": root.replace("sr_root.", "sr_toor."),
        "endless": PREFIX + "A" * 6_000,
        "not ascii": f"{PREFIX}{body}.\u00e9",
    }


@pytest.mark.parametrize("path", ROUTES)
def test_a_forged_root_is_refused_on_record_and_never_a_new_budget(house: House, path: str) -> None:
    key = house.key("acme", "ana")
    root = mint(house, key, calls=1)["root"]
    for name, text in forged(root).items():
        response = ask(house, key, text, path)
        assert response.status_code == 403, name
        assert "root" in response.text, name
        (event,) = events_of(house, response)
        assert (event["outcome"], event["reason"]) == ("refused", "root-refused"), name
        assert "root" not in event["request"], name
    assert ask(house, key, root, path).status_code == 200


def test_another_user_and_another_tenant_cannot_use_it_nor_draw_children_from_it(house: House) -> None:
    root = mint(house, house.key("acme", "ana"), calls=10)
    for other in (house.key("acme", "bo"), house.key("globex", "ana")):
        problem(ask(house, other, root["root"]), 403, "root-refused")
        problem(house.post("/v1/roots", other, {"parent": root["root"]}), 403, "root-refused")
    assert used(house, root["id"]) == Amounts()
    # Another key of the same user is the same user.
    again = house.key("acme", "ana", Role.READER, Role.INGEST)
    assert ask(house, again, root["root"]).status_code == 200


def test_a_root_that_is_over_is_refused(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    key = house.key("acme", "ana")
    root = mint(house, key, calls=10, deadline=60)
    assert ask(house, key, root["root"]).status_code == 200
    with monkeypatch.context() as later:
        later.setattr(rooted.time, "time", lambda: root["expires"])
        found = problem(ask(house, key, root["root"]), 403, "root-refused")
        assert "over" in found["detail"]
        problem(house.post("/v1/roots", key, {"parent": root["root"]}), 403, "root-refused")
    assert ask(house, key, root["root"]).status_code == 200


def test_an_id_of_one_s_own_may_not_read_like_a_minted_one(house: House) -> None:
    key = house.key("acme", "ana")
    root = mint(house, key, calls=10)
    for own in (root["id"], root["root"], ID_PREFIX):
        assert problem(ask(house, key, None, root=own), 422, "invalid-input")["item"] == "root"
    problem(ask(house, key, root["root"], root="mine"), 422, "invalid-input")
    assert ask(house, key, None, "/v1/chat/completions", metadata={"root": root["id"]}).status_code == 400
    assert used(house, root["id"]) == Amounts()
    found = ask(house, key, None, root="mine")
    assert [one["request"]["root"] for one in events_of(house, found)] == ["mine", "mine"]


def test_two_roots_on_one_request_are_refused(house: House) -> None:
    key = house.key("acme", "ana")
    first, second = (mint(house, key)["root"] for _ in range(2))
    headers = [("Authorization", f"Bearer {key}"), ("Strongroom-Root", first), ("Strongroom-Root", second)]
    response = house.client.post("/v1/answers", json=QUESTION, headers=headers)
    assert response.status_code == 403, response.text
    problem(house.post("/v1/roots", key, {"parent": first}, headers={"Strongroom-Root": second}), 422, "invalid-input")


def test_where_a_root_is_required_a_request_without_one_is_refused(folder: Path) -> None:
    house = opened(folder, STRONGROOM_ADMISSION__ROOTS__MISSING="refuse")
    with house.client:
        house.put("acme", "notice.md", "The notice period is three months.", allow=["tenant"])
        key = house.key("acme", "ana")
        for path in ROUTES:
            response = ask(house, key, None, path)
            assert response.status_code == 403
            assert response.json().get("code", response.json().get("error", {}).get("code")) in {
                "root-required", "root_required",
            }  # fmt: skip
            (event,) = events_of(house, response)
            assert (event["outcome"], event["reason"]) == ("refused", "root-required")
            assert ask(house, key, mint(house, key, calls=1)["root"], path).status_code == 200
        # A caller's own id is none.
        problem(ask(house, key, None, root="mine"), 403, "root-required")
        # A contract takes the place of the deployment.
        tenants = house.services.control.tenants
        tenants.set_contract("acme", Contract(admission=TenantLimits(roots="allow")))
        assert tenants.open(house.services.control.authenticator.operator("acme")).contract.admission.roots == "allow"
        assert ask(house, key, None).status_code == 200
    house.close()


# --- Minting ------------------------------------------------------------------------------------------------------


def test_minting_is_on_record_and_needs_the_role_of_a_reader(house: House) -> None:
    response = house.post(
        "/v1/roots", house.key("acme", "ana", Role.READER, Role.AUDITOR), {"calls": 5, "money": 7, "deadline": 60}
    )
    root = response.json()
    records = events_of(house, response)
    assert [one["phase"] for one in records] == ["intent", "outcome"]
    said = records[0]["detail"]
    assert (said["minted"], said["calls"], said["money"], said["until"]) == (
        root["id"], 5, 7, round(root["expires"]),
    )  # fmt: skip
    assert records[0]["request"]["root"] == root["tree"] == root["id"]
    assert root["root"] not in json.dumps(house.events("acme"))
    problem(house.post("/v1/roots", house.key("acme", "lo", Role.INGEST), {}), 403, "forbidden")


def test_what_an_answer_cost_is_no_threshold_that_its_asker_may_choose(house: House) -> None:
    """Where computed tokens are charged, the cost of an answer says whether an engine had its prompt in memory."""
    reader, admin = house.key("acme", "ana"), house.key("acme", "ana", Role.READER, Role.ADMIN)
    assert problem(house.post("/v1/roots", reader, {"money": 5_000}), 403, "forbidden")["item"] == "money"
    parent = mint(house, admin, money=10**9)
    assert mint(house, reader, parent["root"], calls=1)["money"] == 10**9
    problem(house.post("/v1/roots", reader, {"money": 5_000, "parent": parent["root"]}), 403, "forbidden")
    house.services.control.tenants.set_contract("acme", Contract(usage=UsageTerms(tokens="logical")))
    assert mint(house, reader, money=5_000)["money"] == 5_000


@pytest.mark.parametrize(
    ("terms", "item"),
    [
        ({"calls": -1}, "calls"),
        ({"calls": "5"}, "calls"),
        ({"tokens": 10**13}, "tokens"),
        ({"money": 0.5}, "money"),
        ({"deadline": 0}, "deadline"),
        ({"deadline": 10**6}, "deadline"),
        ({"paralel": 1}, "paralel"),
    ],
)
def test_terms_that_are_none_are_named(house: House, terms: dict[str, Any], item: str) -> None:
    found = problem(house.post("/v1/roots", house.key("acme", "ana"), terms), 422, "invalid-input")
    assert found["item"] == item


def test_who_mints_many_roots_still_draws_on_its_own_limits(folder: Path) -> None:
    house = opened(folder, STRONGROOM_ADMISSION__USER__REQUESTS_PER_MINUTE="6")
    with house.client:
        house.put("acme", "notice.md", "The notice period is three months.", allow=["tenant"])
        key = house.key("acme", "ana")
        roots = [mint(house, key, calls=100)["root"] for _ in range(3)]
        assert [ask(house, key, root).status_code for root in (*roots, *roots)] == [200] * 3 + [429] * 3
        assert problem(ask(house, key, roots[0]), 429, "limit-exceeded")["scope"] == "user"
        # Minting is a request as well.
        assert problem(house.post("/v1/roots", key, {}), 429, "limit-exceeded")["scope"] == "user"
    house.close()


def test_no_user_mints_without_end(folder: Path) -> None:
    house = opened(folder, STRONGROOM_ADMISSION__ROOTS__PER_MINUTE="2")
    with house.client:
        key = house.key("acme", "ana")
        for _ in range(2):
            mint(house, key)
        found = problem(house.post("/v1/roots", key, {}), 429, "limit-exceeded")
        assert "GET /v1/limits" in found["remedy"], "another root would be refused as well"
        assert (found["scope"], found["limit"]) == ("root", 2)
        mint(house, house.key("acme", "bo"))
        assert ask(house, key, None).status_code != 429
    house.close()


# --- After a restart ----------------------------------------------------------------------------------------------


def test_a_restart_gives_no_root_its_budget_back(folder: Path) -> None:
    house = opened(folder)
    with house.client:
        house.put("acme", "notice.md", "The notice period is three months.", allow=["tenant"])
        key = house.key("acme", "ana", Role.READER, Role.ADMIN)
        root = mint(house, key, calls=4, tokens=10**6, money=10**9)
        child = mint(house, key, root["root"], calls=3)
        assert ask(house, key, root["root"]).status_code == 200
        for path in ROUTES:
            assert ask(house, key, child["root"], path).status_code == 200
        fresh = mint(house, key, calls=1)
        # Refused ones used nothing, before and after.
        assert ask(house, key, child["root"]).status_code == 429
        before = [used(house, one["id"]) for one in (root, child)]
    house.close()
    again = opened(folder)
    with again.client:
        assert used(again, root["id"]) == Amounts()
        for one in (child, root):
            found = problem(ask(again, key, one["root"]), 429, "limit-exceeded")
            assert (found["scope"], found["bound"]) == ("root", "requests")
        assert [used(again, one["id"]) for one in (root, child)] == before
        assert before[0].requests == 4
        assert before[1].requests == 3
        assert before[0].tokens > before[1].tokens > 0
        assert ask(again, key, fresh["root"]).status_code == 200
        problem(ask(again, key, fresh["root"]), 429, "limit-exceeded")
    again.close()


def test_a_life_that_has_begun_is_not_told_again(house: House) -> None:
    key = house.key("acme", "ana")
    root = mint(house, key, calls=5)
    counters, tenant = house.services.path.admission.counters, house.services.control.tenants.show("acme").id
    scope = root_scope(tenant, root["id"])
    assert ask(house, key, root["root"]).status_code == 200

    async def main() -> None:
        await counters.recall(scope, root["expires"], Amounts(4))
        assert (await counters.use(scope)).life.requests == 1

    asyncio.run(main())
