from __future__ import annotations

import asyncio
import base64
from pathlib import Path

import pytest

from generation.extractive import ExtractiveGenerator
from indexing.collections.open import OpenCollections
from service.control import master_key
from service.generators import build_routes
from service.settings import load_settings
from service.wiring import build, cache_store
from tenancy.control import Tenants
from tenancy.errors import InvalidInput
from tests.service.house import MASTER, House


def settings(folder: Path, **more: str):  # type: ignore[no-untyped-def]
    return load_settings(
        environment={
            "STRONGROOM_DATA_DIR": str(folder / "data"),
            "STRONGROOM_MASTER_KEY_FILE": str(folder / "master.key"),
            "STRONGROOM_EMBEDDING__MODEL": "hashing:64",
            **more,
        }
    )


def test_the_default_generator_needs_no_server(folder: Path) -> None:
    (made,) = build_routes(settings(folder).generation).deployment.generators.values()
    assert isinstance(made, ExtractiveGenerator)


def test_a_server_is_taken_from_the_settings_with_its_key_from_a_file(folder: Path) -> None:
    (folder / "key").write_text("secret\n")
    given = {
        "KIND": "sglang", "BASE_URL": "http://127.0.0.1:30000", "MODEL": "m", "REVISION": "r1",
        "API_KEY_FILE": str(folder / "key"),
    }  # fmt: skip
    chosen = settings(folder, **{f"STRONGROOM_GENERATION__{name}": value for name, value in given.items()})
    (made,) = build_routes(chosen.generation).pools
    assert (made.identity.model, made.identity.revision, made.salted) == ("m", "r1", True)
    assert "secret" not in repr(chosen)
    asyncio.run(made.aclose())


@pytest.mark.parametrize(
    ("key", "value", "item"),
    [
        ("API_KEY_FILE", "/nowhere/key", "generation.api_key_file"),
        ("BASE_URL", "http://192.0.2.1", "generation.base_url"),
        ("MODEL", "", "generation.model"),
    ],
)
def test_an_endpoint_that_cannot_be_used_is_refused_at_start(folder: Path, key: str, value: str, item: str) -> None:
    given = {"KIND": "openai", "BASE_URL": "http://127.0.0.1:1", "MODEL": "m", "REVISION": "r", key: value}
    chosen = settings(folder, **{f"STRONGROOM_GENERATION__{name}": text for name, text in given.items()})
    with pytest.raises(InvalidInput) as caught:
        build_routes(chosen.generation)
    assert caught.value.item == item


def test_a_start_that_fails_leaves_nothing_open(folder: Path) -> None:
    with pytest.raises(InvalidInput):
        build(settings(folder, STRONGROOM_EMBEDDING__BATCH_SIZE="0"), MASTER)
    assert list((folder / "data" / "live").glob("*.lock")) == []
    services = build(settings(folder), MASTER)
    assert len(list((folder / "data" / "live").glob("*.lock"))) == 1
    services.close()


def test_cache_limits_come_from_the_settings(folder: Path) -> None:
    policy = cache_store(settings(folder, STRONGROOM_CACHE__QUOTA="1000", STRONGROOM_CACHE__TTL_S="5")).policy
    assert (policy.max_bytes, policy.time_to_live) == (1000, 5.0)


def test_the_environments_master_key_wins_over_the_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = settings(folder)
    with pytest.raises(InvalidInput, match="create-master-key"):
        master_key(chosen)
    monkeypatch.setenv("STRONGROOM_MASTER_KEY", base64.b64encode(MASTER.value).decode())
    assert master_key(chosen) == MASTER
    monkeypatch.setenv("STRONGROOM_MASTER_KEY", "short")
    with pytest.raises(InvalidInput, match="32 bytes"):
        master_key(chosen)


def test_a_tenant_deleted_by_a_command_leaves_the_servers_memory(house: House) -> None:
    house.put("acme", "a", "The notice period is three months.", allow=["tenant"])
    house.put("globex", "a", "The notice period is two months.", allow=["tenant"])
    for tenant in ("acme", "globex"):
        house.post("/v1/answers", house.key(tenant, "ana"), {"query": "How long is the notice period?"})
    collections = house.services.path.collections
    assert isinstance(collections, OpenCollections)
    assert collections.open_tenants == 2
    beside = Tenants(house.settings.data_path, MASTER)
    beside.delete("acme")
    assert len(house.services.forget_deleted()) == 1
    assert collections.open_tenants == 1
    assert house.post("/v1/answers", house.key("acme", "ana"), {"query": "How long?"}).status_code == 401
    answer = house.post("/v1/answers", house.key("globex", "ana"), {"query": "How long is the notice period?"})
    assert answer.json()["answer"].startswith("The notice period is two months.")
    beside.close()
