"""On a real SGLang server, through the HTTP API: who finds what in the engine's memory, by the tokens in the audit."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from generation.endpoint import Endpoint
from generation.placement import PooledRoutes
from generation.prompt import Templates
from generation.replica import Replica
from generation.selftest import prove
from service.isolation import require_isolation
from tenancy import directory
from tenancy.contract import Contract, GenerationTerms
from tenancy.identity import Role
from tests.generation.prompts import soon
from tests.generation.test_selftest import Weights
from tests.service.house import House
from tests.service.test_server import command, serving
from tests.support.sglang_server import ADMIN_KEY, API_KEY, MODEL, RunningServer, running_server
from tests.support.stripping_proxy import stripping_proxy

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

HANDBOOK = " ".join(f"Rule {number}: the notice period is {number} months in case {number}." for number in range(40))
USERS: dict[str, tuple[str, ...]] = {"ana": (), "carl": (), "bob": ("board",), "cook": ("kitchen",)}
"""Two of one permission domain, and two of their own."""
PATIENCE_S = 240.0
QUESTION = "What does the rule say about the notice period?"


def settings(folder: Path, base_url: str, model: Path, **more: Any) -> dict[str, str]:
    for name, key in (("api.key", API_KEY), ("admin.key", ADMIN_KEY)):
        (folder / name).write_text(key)
    pool = {
        "kind": "sglang", "model": MODEL, "revision": secrets.token_hex(8), "replicas": [base_url],
        "api_key_file": str(folder / "api.key"), "admin_key_file": str(folder / "admin.key"), "tokenizer": str(model),
        "context_length": 4096, "first_token_s": 60.0, **more,
    }  # fmt: skip
    terms = ", ".join(f"{name} = {json.dumps(value)}" for name, value in pool.items())
    return {
        "STRONGROOM_GENERATION__POOLS": f"{{main = {{{terms}}}}}",
        "STRONGROOM_GENERATION__ROUTING": '{collection = ["main"]}',
        "STRONGROOM_GENERATION__TEMPLATES": f"{{same = {json.dumps(Templates().get().system)}}}",
        "STRONGROOM_CACHE__ENABLED": "false",
    }


class Office:
    """A house whose generator is the real server; every tenant has the same handbook, readable by everybody there.

    The revision of its model is random, and so are its salts.
    """

    def __init__(self, house: House) -> None:
        self.house = house
        self._keys: dict[tuple[str, str], str] = {}
        for tenant in ("acme", "globex"):
            house.put(tenant, "handbook.md", HANDBOOK, allow=["tenant"])
            house.put(tenant, "plans.md", "The board will meet in Bern.", allow=["group:board"])
            house.put(tenant, "old.md", "The canteen was closed.", allow=["group:kitchen"])
            # A group that no document names any more makes no domain, and these are still there at the end.
            house.put(tenant, "minutes.md", "The board met in Basel.", allow=["group:board"])
            house.put(tenant, "menu.md", "There is soup.", allow=["group:kitchen"])
            # Whoever joins a group moves the epoch, so everybody is there before the first question.
            for user, groups in USERS.items():
                self._keys[tenant, user] = house.key(tenant, user, groups=groups)

    def ask(self, tenant: str, user: str, **more: Any) -> tuple[int, int]:
        """Tokens of the prompt, and how many of them came from the engine's memory, as the audit has it."""
        response = self.post(tenant, user, **more)
        assert response.status_code == 200, response.text
        event = self.house.events(tenant)[-1]
        assert event["detail"]["salted"] is True
        assert "kv_isolation" not in event["detail"]
        assert "cached_input" not in response.text
        assert "cached_tokens" not in response.text
        used = event["generation"]
        return used["input"], used["cached_input"]

    def post(self, tenant: str, user: str, **more: Any) -> httpx.Response:
        return self.house.post("/v1/answers", self._keys[tenant, user], {"query": QUESTION, "max_tokens": 4, **more})

    @property
    def replicas(self) -> tuple[Replica, ...]:
        routes = self.house.services.path.routes
        assert isinstance(routes, PooledRoutes)
        (pool,) = routes.pools
        return pool.replicas

    def agree(self, tenant: str, **terms: Any) -> None:
        self.house.services.control.tenants.set_contract(tenant, Contract(generation=GenerationTerms(**terms)))


@contextmanager
def open_office(folder: Path, base_url: str, model: Path, **more: Any) -> Iterator[Office]:
    house = House(folder, **settings(folder, base_url, model, **more))
    with house.client as client:
        client.blocking_portal.call(lambda: require_isolation(house.services.path.routes))
        yield Office(house)
        client.blocking_portal.call(house.services.path.routes.aclose)
    house.close()


@pytest.fixture
def office(sglang: RunningServer, tmp_path: Path) -> Iterator[Office]:
    with open_office(tmp_path, sglang.base_url, sglang.model) as made:
        yield made


def cold(found: tuple[int, int]) -> bool:
    tokens, cached = found
    assert tokens > 400, "too short to show anything"
    return cached == 0


def warm(found: tuple[int, int]) -> bool:
    tokens, cached = found
    assert tokens > 400, "too short to show anything"
    return cached >= 0.9 * tokens


def flush(server: RunningServer) -> None:
    headers = {"Authorization": f"Bearer {ADMIN_KEY}"}
    params = {"timeout": 30}
    httpx.post(
        f"{server.base_url}/flush_cache", headers=headers, params=params, timeout=60, trust_env=False
    ).raise_for_status()


def test_nobody_finds_anothers_prompt_and_everybody_finds_their_own(office: Office) -> None:
    for again in (False, True):
        first = office.ask("acme", "ana")
        assert warm(first) if again else cold(first)
        assert warm(office.ask("acme", "ana"))
        assert warm(office.ask("acme", "carl")), "the same domain, model and template"
        for stranger in (
            office.ask("globex", "ana"),
            office.ask("acme", "bob"),
            office.ask("acme", "ana", template="same"),
        ):
            assert warm(stranger) if again else cold(stranger), stranger


def test_the_same_after_the_engine_has_forgotten_everything(office: Office, sglang: RunningServer) -> None:
    assert cold(office.ask("acme", "ana"))
    assert warm(office.ask("acme", "ana"))
    flush(sglang)
    assert cold(office.ask("acme", "ana"))
    assert cold(office.ask("globex", "ana"))
    assert cold(office.ask("acme", "bob"))
    assert cold(office.ask("acme", "ana", template="same"))
    for found in (office.ask("acme", "ana"), office.ask("globex", "ana"), office.ask("acme", "ana", template="same")):
        assert warm(found)


def test_the_same_after_other_prompts_have_taken_the_room(office: Office) -> None:
    assert cold(office.ask("acme", "ana"))
    assert warm(office.ask("acme", "ana"))
    office.agree("globex", kv_sharing="none")
    length, _ = office.ask("globex", "ana")
    for _ in range(20_000 // length + 2):  # the server holds 20,000 tokens
        assert cold(office.ask("globex", "ana"))
    assert cold(office.ask("acme", "ana")), "evicted"
    office.agree("globex")
    assert cold(office.ask("globex", "ana"))
    assert cold(office.ask("acme", "bob"))
    assert warm(office.ask("acme", "ana"))


@pytest.mark.parametrize(
    ("sharing", "mine", "neighbours"), [("domain", True, True), ("user", True, False), ("none", False, False)]
)
def test_a_contract_narrows_who_shares(office: Office, sharing: str, mine: bool, neighbours: bool) -> None:
    office.agree("acme", kv_sharing=sharing)
    assert cold(office.ask("acme", "ana"))
    assert warm(office.ask("acme", "ana")) is mine
    assert warm(office.ask("acme", "carl")) is neighbours
    assert cold(office.ask("globex", "ana"))


def delete(house: House) -> None:
    answer = house.send("DELETE", "/v1/documents/old.md", house.key("acme", "loader", Role.INGEST))
    assert answer.status_code == 200


def revoke(house: House) -> None:
    key = house.key("acme", "loader", Role.INGEST)
    answer = house.send("PATCH", "/v1/documents/plans.md/acl", key, {"allow": ["group:owners"]})
    assert answer.status_code == 200


def leave_group(house: House) -> None:
    tenant = house.services.control.tenants.open(house.services.control.authenticator.operator("acme"))
    with tenant.writing() as view:
        directory.remove_members(view, "kitchen", ["user:cook"])


@pytest.mark.parametrize("change", [delete, revoke, leave_group])
def test_after_a_deletion_or_a_revocation_nothing_of_before_is_found(office: Office, change: Any) -> None:
    """The epoch is the tenant's: all its domains begin anew, those whom the change does not concern too, and no
    other tenant does.
    """
    askers = ("ana", "bob", "cook")
    before = [office.ask("acme", user) for user in askers]
    assert all(cold(found) for found in before)
    assert all(warm(office.ask("acme", user)) for user in askers)
    assert cold(office.ask("globex", "ana"))
    change(office.house)
    after = [office.ask("acme", user) for user in askers[: 3 - (change is leave_group)]]
    assert all(cold(found) for found in after)
    assert {tokens for tokens, _ in before + after} == {before[0][0]}, "the prompt is the same"
    assert warm(office.ask("acme", "ana"))
    assert warm(office.ask("globex", "ana")), "another tenant keeps what it has"


def environment(folder: Path, base_url: str, model: Path, **more: Any) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("STRONGROOM_")}
    return {
        **clean,
        "STRONGROOM_DATA_DIR": str(folder / "data"),
        "STRONGROOM_MASTER_KEY": "A" * 43 + "=",
        "STRONGROOM_EMBEDDING__MODEL": "hashing:256",
        **settings(folder, base_url, model, **more),
    }


def test_the_service_starts_before_the_server_itself_and_not_before_a_proxy_that_strips_the_salt(
    sglang: RunningServer, tmp_path: Path
) -> None:
    with serving(environment(tmp_path, sglang.base_url, sglang.model), tmp_path / "direct.log", PATIENCE_S) as (
        _,
        address,
    ):
        assert httpx.get(f"{address}/healthz/ready").json()["pools_refused"] == 0
    (tested,) = [line for line in (tmp_path / "direct.log").read_text().splitlines() if "a replica was tested" in line]
    assert json.loads(tested)["verdict"] == "apart"
    with (
        stripping_proxy(sglang.base_url, "other_field") as proxy,
        serving(environment(tmp_path, proxy, sglang.model), tmp_path / "harmless.log", PATIENCE_S),
    ):
        pass
    with stripping_proxy(sglang.base_url, "cache_salt") as proxy:
        stripped = environment(tmp_path, proxy, sglang.model)
        refused = command(stripped, "serve", "--port", "0")
        assert refused.returncode == 1
        assert "listening" not in refused.stdout
        assert "requests of different KV salts share memory at the server" in refused.stderr
        assert "remove what drops or rewrites `cache_salt` on the way" in refused.stderr
        doctor = json.loads(command(stripped, "doctor", "--json").stdout)
        (row,) = [row for row in doctor if row["check"] == "pool main"]
        assert (row["state"], "serves nobody" in row["finding"]) == ("wrong", True)
        waived = environment(tmp_path, proxy, sglang.model, kv_isolation="waived")
        with serving(waived, tmp_path / "waived.log", PATIENCE_S) as (_, address):
            told = httpx.get(f"{address}/healthz/ready").json()
            assert (told["pools_refused"], told["pools_waived"]) == (0, 1)
        assert "KV ISOLATION IS WAIVED" in (tmp_path / "waived.log").read_text()


def test_questions_behind_a_proxy_that_strips_the_salt_are_refused_and_answered_on_record_where_waived(
    sglang: RunningServer, tmp_path: Path
) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    with stripping_proxy(sglang.base_url, "cache_salt") as proxy:
        house = House(tmp_path / "one", **settings(tmp_path / "one", proxy, sglang.model))
        with house.client:
            house.put("acme", "handbook.md", HANDBOOK, allow=["tenant"])
            response = house.post("/v1/answers", house.key("acme", "ana"), {"query": QUESTION})
            assert (response.status_code, response.json()["code"]) == (503, "unavailable")
            assert "keeps the KV memory of tenants apart" in response.json()["detail"]
            assert proxy not in response.text
            assert "generation" not in house.events("acme")[-1]
        house.close()
        house = House(tmp_path / "two", **settings(tmp_path / "two", proxy, sglang.model, kv_isolation="waived"))
        with house.client:
            house.put("acme", "handbook.md", HANDBOOK, allow=["tenant"])
            response = house.post("/v1/answers", house.key("acme", "ana"), {"query": QUESTION, "max_tokens": 4})
            assert response.status_code == 200
            assert house.events("acme")[-1]["detail"]["kv_isolation"] == "waived"
        house.close()


@pytest.mark.load
def test_the_same_after_a_restart_of_the_server_which_shows_again_that_it_keeps_salts_apart(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    with ExitStack() as opened:
        with running_server(tmp_path_factory.mktemp("first")) as server:
            office = opened.enter_context(open_office(tmp_path, server.base_url, server.model, failures=100))
            assert cold(office.ask("acme", "ana"))
            assert warm(office.ask("acme", "ana"))
            (replica,) = office.replicas
            before = replica.isolation.proof
        assert office.post("acme", "ana").status_code == 503
        port = int(server.base_url.rpartition(":")[2])
        with running_server(tmp_path_factory.mktemp("second"), port=port):
            assert cold(office.ask("acme", "ana"))
            assert replica.isolation.proof is not before
            assert replica.isolation.proof is not None
            assert replica.isolation.proof.verdict == "apart"
            assert cold(office.ask("globex", "ana"))
            assert cold(office.ask("acme", "bob"))
            assert cold(office.ask("acme", "ana", template="same"))
            assert warm(office.ask("acme", "ana"))
            assert warm(office.ask("globex", "ana"))


def test_a_proxy_that_begins_to_strip_the_salt_is_found_out_when_it_comes_back(
    sglang: RunningServer, tmp_path: Path
) -> None:
    with ExitStack() as opened:
        with stripping_proxy(sglang.base_url) as proxy:
            office = opened.enter_context(open_office(tmp_path, proxy, sglang.model, failures=100))
            assert cold(office.ask("acme", "ana"))
        assert office.post("acme", "ana").status_code == 503
        with stripping_proxy(sglang.base_url, "cache_salt", port=int(proxy.rpartition(":")[2])):
            refused = office.post("acme", "ana")
            assert (refused.status_code, "KV memory" in refused.json()["detail"]) == (503, True)
            assert office.house.get("/healthz/ready").json()["pools_refused"] == 1


def test_an_adapter_finds_nothing_of_the_model_without_it_under_the_same_salt(sglang: RunningServer) -> None:
    async def test() -> None:
        weights = Weights(server_name=f"x{secrets.token_hex(8)}", path=sglang.model.with_name("model-lora-a"))
        common: dict[str, Any] = {
            "base_url": sglang.base_url,
            "model": MODEL,
            "revision": "r",
            "api_key": API_KEY,
            "admin_key": ADMIN_KEY,
        }
        dynamic, fixed = Replica(Endpoint(**common)), Replica(Endpoint(**common, adapter=weights.server_name))
        fixed.isolation.prover = partial(prove, fixed)
        await dynamic.load_adapter(weights.server_name, weights.path)
        try:
            found = await prove(dynamic, soon(120), weights)
            assert (found.verdict, len(found.probes)) == ("apart", 4)
            await fixed.check()
            assert fixed.isolation.proof is not None
            assert (fixed.isolation.proof.verdict, len(fixed.isolation.proof.probes)) == ("apart", 8)
        finally:
            await dynamic.unload_adapter(weights.server_name)
            await dynamic.aclose()
            await fixed.aclose()

    asyncio.run(test())
