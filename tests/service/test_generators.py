"""Pools from the settings: what is refused at start, what a contract may name, what a reload changes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from generation.lanes import LaneTerms
from generation.pool import Pool
from service.engines import require_possible
from service.generators import build_routes, place, pools_of
from service.settings import Settings, load_settings
from tenancy.contract import Contract, GenerationTerms
from tenancy.errors import InvalidInput

A, B, C = (f"http://127.0.0.1:{port}" for port in (7001, 7002, 7003))


def toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {toml(inner)}" for name, inner in value.items()) + "}"
    return json.dumps(value)


def settings(pools: dict[str, Any], routing: dict[str, Any] | None = None, **keys: str) -> Settings:
    given = {"POOLS": toml(pools), "ROUTING": toml(routing or {}), **keys}
    return load_settings(environment={f"STRONGROOM_GENERATION__{name}": text for name, text in given.items()})


def server(*replicas: str, **more: Any) -> dict[str, Any]:
    return {"kind": "sglang", "model": "m", "revision": "r1", "replicas": list(replicas), **more}


def closed(made: Any) -> None:
    asyncio.run(made.aclose())


def test_pools_have_their_terms_from_the_settings(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("secret\n")
    lanes: dict[str, Any] = {
        "slots": 9,
        "small_slots": 2,
        "small_tokens": 500,
        "prefill_tokens": 4000,
        "pace_slots": 2,
        "pace_s": 20.0,
        "piece_tokens": 256,
        "piece_pause": 8,
        "tenant_slots": 3,
        "queue": 8,
    }
    chosen = settings(
        {
            "main": server(
                A, B, api_key_file=str(tmp_path / "key"), first_token_s=3, stall_s=4, guest_share=0.25, **lanes
            ),
            "own": server(C, dedicated_to="acme"),
            "copy": {"kind": "extractive"},
        }
    )
    routes = build_routes(chosen.generation)
    pools = {pool.name: pool for pool in routes.pools}
    assert set(routes.deployment.table.entries) == {"main", "own", "copy"}, "no pool but those that are configured"
    assert pools["main"].terms.lanes == LaneTerms(guest_slots=2, **lanes)
    assert pools["own"].terms.lanes.guest_slots == 0, "of a pool for one tenant nothing is kept for others"
    first, second = pools["main"].replicas
    assert (first.endpoint.base_url, second.endpoint.base_url, first.endpoint.api_key) == (A, B, "secret")
    assert (first.patience.first_token_s, first.patience.stall_s) == (3, 4)
    assert (pools["own"].terms.trust, pools["own"].terms.dedicated_to) == ("dedicated", "acme")
    assert "secret" not in repr(chosen)
    assert "secret" not in repr(routes.pools[0].replicas)
    closed(routes)


def test_the_keys_of_one_server_are_the_pool_default() -> None:
    alone: Any = {"KIND": "sglang", "BASE_URL": A, "MODEL": "m", "REVISION": "r"}
    assert list(pools_of(settings({}).generation)) == ["default"]
    assert list(pools_of(settings({}, **alone).generation)) == ["default"]
    assert set(pools_of(settings({"more": server(B)}, **alone).generation)) == {"default", "more"}
    assert list(pools_of(settings({"more": server(B)}).generation)) == ["more"], "nothing answers that nobody asked for"
    with pytest.raises(InvalidInput, match="two pools of this name"):
        pools_of(settings({"default": server(B)}, **alone).generation)


@pytest.mark.parametrize(
    ("pools", "routing", "item"),
    [
        ({"Main": server(A)}, {}, "generation.pools.Main"),
        ({"main": server()}, {}, "generation.pools.main.replicas"),
        ({"main": server(A, slots=2, small_slots=2)}, {}, "generation.pools.main.small_slots"),
        ({"main": server(A, A + "/v1/")}, {}, "generation.pools.main.replicas"),
        ({"main": server(A), "other": server("HTTP://127.0.0.1:7001/")}, {}, "generation.pools.other.replicas"),
        ({"copy": {"kind": "extractive", "model": "m"}}, {}, "generation.pools.copy.model"),
        ({"main": server(A)}, {"collection": ["none"]}, "generation.routing.collection"),
        (
            {"main": server(A), "vault": server(B, trust="secret")},
            {"collection": ["main", "vault"]},
            "generation.routing.collection",
        ),
        (
            {"main": server(A, trust="x"), "own": server(B, trust="x", dedicated_to="acme")},
            {},
            "generation.pools.own.trust",
        ),
    ],
)
def test_what_cannot_be_kept_apart_is_refused_at_start(pools: Any, routing: Any, item: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        build_routes(settings(pools, routing).generation)
    assert caught.value.item == item


@pytest.mark.parametrize(
    ("pool", "item"),
    [
        (server("http://192.0.2.1:30000"), "generation.pools.main.replicas"),
        (server(A, model=""), "generation.pools.main.model"),
        (server("http://[::1"), "generation.pools.main.replicas"),
        (server("http://127.0.0.1:99999"), "generation.pools.main.replicas"),
        (server("http://127.0.0.1:70\u0001"), "generation.pools.main.replicas"),
        (server("https://a b"), "generation.pools.main.replicas"),
        (server(A, api_key_file="/nowhere/key"), "generation.pools.main.api_key_file"),
        (server(A, api_key_file="/dev/null"), "generation.pools.main.api_key_file"),
        (server(A, admin_key_file="/dev/zero"), "generation.pools.main.admin_key_file"),
        (server("https://a", ca_file="/nowhere/ca.pem"), "generation.pools.main.ca_file"),
    ],
)
def test_an_endpoint_that_cannot_be_used_is_refused_at_start(pool: Any, item: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        build_routes(settings({"main": pool}).generation)
    assert caught.value.item == item


@pytest.mark.parametrize("data", [b"", b" \n", b"one\ntwo", b"\xff\xfe", "schl\u00fcssel".encode(), b"k" * 20_000])
def test_a_file_without_a_key_is_refused_at_start(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "key").write_bytes(data)
    with pytest.raises(InvalidInput, match="holds no key") as caught:
        build_routes(settings({"main": server(A, api_key_file=str(tmp_path / "key"))}).generation)
    assert caught.value.item == "generation.pools.main.api_key_file"


def test_two_tenants_may_each_have_a_pool_of_the_same_level() -> None:
    pools = {"one": server(A, dedicated_to="acme"), "two": server(B, dedicated_to="globex"), "all": server(C)}
    found = build_routes(settings(pools, {"collection": ["all"], "dedicated": ["one", "two"]}).generation)
    closed(found)


@pytest.mark.parametrize(
    ("terms", "item"),
    [
        ({"pools": ["none"]}, "generation.pools"),
        ({"pools": ["theirs"]}, "generation.pools"),
        ({"pools": ["main", "vault"]}, "generation.pools"),
        ({"pools": ["main", "own"]}, "generation.pools"),
        ({"pools": ["main"], "models": ["other"]}, "generation.models"),
        ({}, None),
        ({"pools": ["own"]}, None),
        ({"pools": ["main"], "models": ["m"]}, None),
    ],
)
def test_a_contract_is_checked_when_it_is_set(terms: dict[str, Any], item: str | None) -> None:
    pools = {
        "main": server(A), "vault": server(B, trust="secret"), "own": server(C, dedicated_to="acme"),
        "theirs": server("http://127.0.0.1:7004", dedicated_to="globex"),
    }  # fmt: skip
    deployment = settings(pools, {"collection": ["main"]})
    contract = Contract(generation=GenerationTerms(**terms))
    if item is None:
        require_possible(deployment, "acme", contract)
        return
    with pytest.raises(InvalidInput) as caught:
        require_possible(deployment, "acme", contract)
    assert caught.value.item == item
    assert "theirs" not in str(caught.value) or terms["pools"] == ["theirs"]


def test_without_any_pool_for_a_tenant_there_is_a_clear_refusal() -> None:
    with pytest.raises(InvalidInput, match="no pool serves this tenant"):
        require_possible(settings({"own": server(A, dedicated_to="globex")}), "acme", Contract())


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("http://a:80", "http://a", True),
        ("https://a/v1", "https://a:443/", True),
        ("http://A:7", "http://a:7/v1/", True),
        ("http://localhost:7", "http://127.0.0.1:7", True),
        ("http://LOCALHOST.:7", "http://127.0.0.1:7", True),
        ("http://[::1]:7", "http://[0:0::1]:7", True),
        ("http://a.:7", "http://a:7", True),
        ("http://a:7", "http://a:8", False),
        ("http://127.0.0.1:7", "http://127.0.0.2:7", False),
        ("http://a", "https://a", False),
        ("http://a/x", "http://a/y", False),
    ],
)
def test_one_server_has_one_place(one: str, other: str, same: bool) -> None:
    assert (place(one) == place(other)) is same


def test_a_pool_is_built_without_a_request_to_its_servers() -> None:
    (pool,) = build_routes(settings({"main": server("http://127.0.0.1:9")}).generation).pools
    assert isinstance(pool, Pool)
    closed(pool)
