"""Engines from the settings: what is refused at the start, what a contract may name, what is away and who notices."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from indexing.engine import Engine
from indexing.engines.qdrant import QdrantEngine
from indexing.engines.registry import Engines
from service import engine_check, engines
from service.engine_check import EngineWatch
from service.engines import build_engines, require_possible
from service.settings import CollectionSettings, EngineSettings, Settings, load_settings
from tenancy.contract import Contract, read_contract
from tenancy.errors import InvalidInput, Unavailable

EXAMPLES = Path(__file__).resolve().parents[2] / "configs" / "examples"
CONTRACT = EXAMPLES.parent / "contracts" / "example.toml"
NEAR = "http://127.0.0.1:6333"


def settings(default: str = "faiss", **entries: Mapping[str, Any]) -> CollectionSettings:
    made = {name: EngineSettings(**{"kind": "qdrant", "url": NEAR, **entry}) for name, entry in entries.items()}
    return msgspec.structs.replace(load_settings(None, {}).collections, engine=default, engines=made)


def whole(collections: CollectionSettings, *also: str) -> Settings:
    base = load_settings(None, {"STRONGROOM_EMBEDDING__MODEL": "hashing:64"})
    embedding = msgspec.structs.replace(base.embedding, also=also)
    return msgspec.structs.replace(base, collections=collections, embedding=embedding)


@pytest.mark.parametrize(
    ("given", "item"),
    [
        (settings(faiss={}), "collections.engines.faiss"),
        (settings(**{"A b": {}}), "collections.engines.A b"),
        (settings(default="nowhere"), "collections.engine"),
        (settings(default="q", q={"dedicated_to": "acme"}), "collections.engine"),
        (settings(q={"url": "http://10.0.0.7:6333"}), "collections.engines.q.url"),
        (settings(q={"url": "https://q.example.com"}), "collections.engines.q.url"),
        (settings(q={"url": "q.example.com"}), "collections.engines.q.url"),
        (settings(q={"api_key_file": "/nonexistent/key"}), "collections.engines.q.api_key_file"),
        (settings(q={"database": "x"}), "collections.engines.q.database"),
        (settings(q={"ca_file": "x"}), "collections.engines.q.ca_file"),
        (settings(q={"dedicated_to": "acme"}, r={"url": f"{NEAR}/"}), "collections.engines.q.dedicated_to"),
    ],
)
def test_what_cannot_be_used_is_refused_at_the_start(given: CollectionSettings, item: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        build_engines(given)
    assert refused.value.item == item


def test_a_missing_package_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines.importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(InvalidInput, match=r"pip install 'strongroom\[qdrant\]'"):
        build_engines(settings(q={}))


def test_building_connects_to_nothing() -> None:
    made = build_engines(settings(default="q", q={}, m={"kind": "milvus", "url": "http://127.0.0.1:1"}))
    assert list(made) == ["q", "m"]
    assert made.needed() == []
    assert isinstance(made["q"], QdrantEngine)
    with pytest.raises(Unavailable):
        made["q"].version()
    made.close()


def test_an_unknown_key_of_an_engine_is_named_with_the_nearest(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text('[collections.engines.q]\nkind = "qdrant"\nurl = "http://127.0.0.1"\ntimeout = 3.0\n')
    with pytest.raises(InvalidInput, match=r"did you mean collections\.engines\.timeout_s"):
        load_settings(path, {})


@pytest.mark.parametrize("name", ["qdrant.toml", "milvus.toml"])
def test_the_examples_can_be_read(name: str) -> None:
    found = load_settings(EXAMPLES / name, {})
    assert found.collections.engine in found.collections.engines


@pytest.mark.parametrize(
    ("tenant", "contract", "item"),
    [
        ("acme", Contract(engine="elsewhere"), "engine"),
        ("globex", Contract(engine="own"), "engine"),
        ("globex", Contract(engine="own", tier="dedicated"), "engine"),
        ("acme", Contract(engine="q", tier="dedicated"), "engine"),
        ("acme", Contract(engine="faiss", tier="dedicated"), "engine"),
        ("acme", Contract(model="/etc"), "model"),
    ],
)
def test_a_contract_that_cannot_be_kept_is_refused(tenant: str, contract: Contract, item: str) -> None:
    deployment = whole(settings(q={}, own={"url": "http://127.0.0.1:7000", "dedicated_to": "acme"}))
    with pytest.raises(InvalidInput) as refused:
        require_possible(deployment, tenant, contract)
    assert refused.value.item == item


def test_a_contract_that_can_be_kept_is_taken() -> None:
    deployment = whole(settings(own={"dedicated_to": "acme"}), "hashing:128")
    require_possible(deployment, "acme", Contract(engine="own", tier="dedicated", model="hashing:128"))
    require_possible(deployment, "globex", Contract(model="hashing:64"))


def test_the_example_of_a_contract_can_be_kept_by_a_deployment_as_it_comes() -> None:
    example, deployment = read_contract(CONTRACT), load_settings(None, {})
    require_possible(deployment, "acme", example)
    other = msgspec.structs.replace(example.generation, models=("extractive",))
    with pytest.raises(InvalidInput) as refused:
        require_possible(deployment, "acme", msgspec.structs.replace(example, generation=other))
    assert refused.value.item == "generation.models"


class Away:
    name = "q"

    def version(self) -> str:
        raise Unavailable("away")

    def close(self) -> None: ...


def test_readiness_counts_the_engines_that_are_away_and_asks_now_and_then() -> None:
    now = [0.0]
    engine: list[Any] = [Away()]
    made = Engines.connected({"q": engine[0]})
    watch = EngineWatch(made, lambda: now[0])
    assert watch.away() == 0, "no tenant has needed it yet"
    assert made["q"] is engine[0]
    assert watch.away() == 0, "believed for a while"
    now[0] += engine_check.RECHECK_S + 1
    assert watch.away() == 1


class Hanging:
    name = "slow"

    def __init__(self) -> None:
        self.go = threading.Event()
        self.asked = 0

    def version(self) -> str:
        self.asked += 1
        assert self.go.wait(30)
        return "1"

    def close(self) -> None: ...


def test_readiness_does_not_wait_for_an_engine_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_check, "PATIENCE_S", 0.01)
    now = [0.0]
    engine: Any = Hanging()
    made = Engines.connected({"slow": engine})
    assert made["slow"] is engine
    watch = EngineWatch(made, lambda: now[0])
    assert watch.away() == 1
    now[0] += engine_check.RECHECK_S + 1
    assert watch.away() == 1
    assert engine.asked == 1, "one that has not answered yet is not asked again"
    (pending,) = watch._pending.values()
    engine.go.set()
    pending.join(30)
    assert watch.away() == 0


def test_doctor_names_collections_that_belong_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    local: Engine = QdrantEngine.local("q")
    orphan = f"c_{'0' * 32}"
    local.create(orphan, 4)
    monkeypatch.setattr(engine_check, "build_engines", lambda _settings: Engines.connected({"q": local}))
    monkeypatch.setattr(engine_check, "_on_record", lambda _settings: (set(), True))
    (found,) = engine_check.examine_engines(whole(settings()))
    assert found.state == "note"
    assert orphan in found.finding
    assert "of no tenant" in found.finding
