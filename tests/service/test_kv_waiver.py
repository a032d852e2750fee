"""Pools whose servers do not keep KV salts apart, over HTTP: refused with the reason, or waived and on every record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from generation.proof import NotIsolated
from service.generator_check import PoolFinding, examine_pools
from service.isolation import require_isolation
from service.settings import load_settings
from tests.generation.stage import Stage, pools_of, stage, standing
from tests.service.house import House, problem
from tests.support.sglang_stand_in import Memory

pytestmark = pytest.mark.slow


def shared(scene: Stage, *at: int) -> None:
    """These servers ignore salts, and every pool is tested anew."""
    for index in at:
        scene.servers[index].memory = Memory("all")
    scene.within(lambda: require_isolation(scene.routes))


def test_a_refused_pool_answers_nobody_and_says_why(tmp_path: Path) -> None:
    with stage(tmp_path) as scene:
        assert scene.ask().status_code == 200
        assert scene.house.get("/healthz/ready").json()["pools_refused"] == 0
        shared(scene, 0, 1)
        before = scene.sent
        told = problem(scene.ask(), 503, "unavailable")
        assert told["detail"] == "the model's server has not shown that it keeps the KV memory of tenants apart"
        assert "127.0.0.1" not in json.dumps(told)
        assert scene.sent == before
        assert (scene.last()["outcome"], "generation" in scene.last()) == ("error", False)
        health = scene.house.get("/healthz/ready").json()
        assert (health["status"], health["pools_refused"], health["pools_waived"]) == ("degraded", 1, 0)
        with pytest.raises(NotIsolated):
            shared(scene, 0, 1, 2, 3)


def test_a_refused_pool_is_passed_over_within_its_trust_level(tmp_path: Path) -> None:
    with stage(tmp_path) as scene:
        shared(scene, 0, 1)
        scene.agree(pools=["main", "spare"], fallback=True)
        assert scene.ask().status_code == 200
        assert scene.last()["generation"]["pool"] == "spare"
        assert "kv_isolation" not in scene.last()["detail"]


def test_every_generation_of_a_waived_pool_says_so(tmp_path: Path) -> None:
    with stage(tmp_path, STRONGROOM_GENERATION__KV_ISOLATION="waived") as scene:
        for servers in ((), (0, 1, 2, 3)):
            shared(scene, *servers)
            assert scene.ask().status_code == 200
            assert scene.last()["detail"]["kv_isolation"] == "waived"
            with scene.house.client.stream(
                "POST",
                "/v1/answers",
                headers={"Authorization": f"Bearer {scene.house.key('acme', 'ana')}"},
                json=scene.question() | {"stream": True},
            ) as response:
                response.read()
            assert scene.last()["detail"]["kv_isolation"] == "waived"
        health = scene.house.get("/healthz/ready").json()
        assert (health["pools_refused"], health["pools_waived"]) == (0, 3)


def openai(address: str, **more: str) -> dict[str, str]:
    return {
        "STRONGROOM_GENERATION__KIND": "openai", "STRONGROOM_GENERATION__BASE_URL": address,
        "STRONGROOM_GENERATION__MODEL": "tiny", "STRONGROOM_GENERATION__REVISION": "r1",
        "STRONGROOM_CACHE__ENABLED": "false", **more,
    }  # fmt: skip


def ask(house: House, tenant: str) -> Any:
    house.put(tenant, "notice.md", "The notice period is three months.", allow=["tenant"])
    return house.post("/v1/answers", house.key(tenant, "ana"), {"query": "How long is the notice period?"})


@pytest.mark.parametrize("waived", [False, True])
def test_a_server_without_salts_serves_one_tenant_of_a_deployment(tmp_path: Path, waived: bool) -> None:
    more = {"STRONGROOM_GENERATION__KV_ISOLATION": "waived"} if waived else {}
    with standing(1) as ((server,), _):
        house = House(tmp_path, **openai(server.base_url, **more))
        with house.client as client:
            assert ask(house, "acme").status_code == 200
            detail = house.events("acme")[-1]["detail"]
            assert (detail["salted"], detail.get("kv_isolation")) == (False, "waived" if waived else None)
            assert ask(house, "globex").status_code == (200 if waived else 503)
            client.blocking_portal.call(house.services.path.routes.aclose)
        house.close()
        again = House(tmp_path, **openai(server.base_url, **more))  # as a server that starts with two tenants
        with again.client as client:
            assert ask(again, "acme").status_code == (200 if waived else 503)
            client.blocking_portal.call(again.services.path.routes.aclose)
        again.close()


def rows(folder: Path, addresses: list[str], **more: str) -> dict[str, list[PoolFinding]]:
    settings = load_settings(
        environment={
            "STRONGROOM_DATA_DIR": str(folder),
            "STRONGROOM_GENERATION__POOLS": pools_of(addresses),
            **more,
        }
    )
    found: dict[str, list[PoolFinding]] = {}
    for row in examine_pools(settings):
        found.setdefault(row.check, []).append(row)
    return found


def test_doctor_shows_what_every_replica_has_shown(tmp_path: Path) -> None:
    with standing(4) as (servers, _):
        servers[1].memory = Memory("all")
        servers[2].memory = Memory("none")
        addresses = [server.base_url for server in servers]
        found = rows(tmp_path, addresses)
        assert [row.state for row in found["replica main"]] == ["ok", "wrong"]
        assert "keeps KV salts apart: salt A 0 of 600, salt A again 599 of 600" in found["replica main"][0].finding
        assert "share memory at the server (salt A 0 of 600" in found["replica main"][1].finding
        assert "cache_salt" in (found["replica main"][1].remedy or "")
        assert found["pool main"][0].state == "note"
        assert "--enable-cache-report" in (found["replica spare"][0].remedy or "")
        assert (found["pool spare"][0].state, "serves nobody" in found["pool spare"][0].finding) == ("wrong", True)
        assert found["pool vault"][0].state == "ok"
        waived = rows(tmp_path, addresses, STRONGROOM_GENERATION__KV_ISOLATION="waived")
        assert {row.state for some in waived.values() for row in some} == {"ok", "note"}
        assert "KV ISOLATION IS WAIVED (shared: salt A" in waived["replica main"][1].finding
        assert "KV ISOLATION IS WAIVED" in waived["pool vault"][0].finding
