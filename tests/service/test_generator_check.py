"""The rows of `strongroom doctor` about pools and their replicas."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from service.generator_check import examine_pools
from service.settings import Settings, load_settings
from tests.generation.stage import standing
from tests.support.sglang_stand_in import replay


def settings(folder: Path, **pools: dict[str, Any]) -> Settings:
    tables = [
        f"{name} = {{" + ", ".join(f"{key} = {json.dumps(value)}" for key, value in pool.items()) + "}"
        for name, pool in pools.items()
    ]
    return load_settings(
        environment={
            "STRONGROOM_DATA_DIR": str(folder / "data"),
            "STRONGROOM_GENERATION__POOLS": "{" + ", ".join(tables) + "}",
        }
    )


def pool(*replicas: str, **more: Any) -> dict[str, Any]:
    return {"kind": "sglang", "model": "tiny", "revision": "r", "replicas": list(replicas), **more}


def test_every_pool_and_every_replica_has_a_row(tmp_path: Path) -> None:
    with standing(4) as (servers, _):
        well, old, other, keyed = servers
        old.info["version"] = "0.5.19"
        other.info["served_model_name"] = "large"
        keyed.controls["/server_info"] = replay("unauthorized")
        found = examine_pools(
            settings(
                tmp_path,
                main=pool(well.base_url, old.base_url),
                own=pool(other.base_url, keyed.base_url, dedicated_to="acme"),
                copy={"kind": "extractive"},
            )
        )
    by_check: dict[str, list[Any]] = {}
    for row in found:
        by_check.setdefault(row.check, []).append(row)
    assert set(by_check) == {"pool main", "replica main", "pool own", "replica own", "pool copy"}
    assert [row.state for row in by_check["replica main"]] == ["ok", "wrong"]
    assert "0.5.19" in by_check["replica main"][1].finding
    (main,), (own,), (copy,) = (by_check[f"pool {name}"] for name in ("main", "own", "copy"))
    assert (main.state, main.finding) == ("note", "tiny, trust level shared, 1 of 2 replicas answer")
    assert own.state == "wrong"
    assert own.finding.startswith("tiny, trust level dedicated, for acme alone, 0 of 2 replicas answer")
    assert [row.state for row in by_check["replica own"]] == ["wrong", "wrong"]
    assert "'large'" in by_check["replica own"][0].finding
    assert "401" in by_check["replica own"][1].finding
    assert copy.state == "ok"


def test_pools_that_are_well_are_said_to_be(tmp_path: Path) -> None:
    with standing(2) as (servers, _):
        found = examine_pools(settings(tmp_path, main=pool(*(server.base_url for server in servers))))
        assert [row.state for row in found] == ["ok", "ok", "ok"]
        assert found[0].finding == "tiny, trust level shared, 2 of 2 replicas answer"
        assert all(server.generations for server in servers), "each has answered with a token"
