"""KV memory and adapters, with a stand-in for the engine that keeps prompts apart, or does not."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from generation.adapters import registry
from service.attest import adapters, memory
from service.attest.stage import Stage
from tests.attest.place import Place, claim, placed, plain, staged, table, verdicts
from tests.generation.adapter_engine import Engine
from tests.generation.stage import standing
from tests.support import sglang_stand_in
from tests.support.lora import write_adapter
from tests.support.sglang_stand_in import Connection, Memory, StandIn, stream

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


class Remembering(Engine):
    """It loads adapters, and counts what it remembers of every prompt as in self-tests."""

    async def generate(self, connection: Connection) -> None:
        adapter = connection.request.body["model"].partition(":")[2]
        if adapter and adapter not in self.held:
            await super().generate(connection)
            return
        await stream(connection, sglang_stand_in.tested_lines(connection, self.server.memory))


@dataclass
class Rig:
    place: Place
    stage: Stage
    server: StandIn


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """The default pool extracts, the pool `main` is the stand-in's, which takes adapters."""
    folder: Path = tmp_path_factory.mktemp("engines")
    with standing(1) as ((server,), _):
        Remembering(server)
        pool = table(
            kind="sglang", model="tiny", revision="r1", replicas=[server.base_url], max_adapters=4, max_adapter_rank=8,
            adapter_modules=["q_proj", "v_proj"], admin_key_file="",
        )  # fmt: skip
        with (
            placed(
                STRONGROOM_GENERATION__POOLS=f'{{main = {pool}, default = {{kind = "extractive"}}}}',
                STRONGROOM_GENERATION__ADAPTERS_DIR=str(folder / "adapters"),
            ) as place,
            staged(place) as stage,
        ):
            yield Rig(place, stage, server)


@pytest.fixture(autouse=True)
def apart(rig: Rig) -> None:
    rig.server.memory = Memory()


def with_adapter(rig: Rig, folder: Path) -> Stage:
    options = msgspec.structs.replace(rig.stage.options, adapter=write_adapter(folder / "adapter"))
    return dataclasses.replace(rig.stage, options=options)


def test_memory_passes_and_the_canaries_go_back_to_the_routing(rig: Rig) -> None:
    found = memory.examine(rig.stage)
    assert found.verdict == "PASS", plain(found)
    tenants, domains = claim(found, "another tenant's"), claim(found, "another domain's")
    assert (tenants.probes, tenants.held, domains.probes, domains.held) == (2, 4, 2, 4)
    contract = rig.place.control.tenants.show(rig.stage.left.name).contract
    assert contract["generation"] == {}


def test_an_engine_that_ignores_salts_fails_it(rig: Rig) -> None:
    rig.server.memory = Memory("all")
    found = memory.examine(rig.stage)
    assert claim(found, "another domain's").verdict == "FAIL", plain(found)


def test_an_engine_that_shares_beginnings_fails_it_across_tenants(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    class Prefixes(Memory):
        def cached(self, body: object) -> int:
            # As a radix cache without salts: the instructions up to the tenants' marks are equal.
            known = len(self.held)
            self.held.add((json.dumps(body),))
            return (self.size - 1 if len(self.held) == known else 64) if known else 0

    rig.server.memory = Prefixes()
    found = memory.examine(rig.stage)
    assert claim(found, "another tenant's").verdict == "FAIL", plain(found)


def test_an_engine_that_keeps_nothing_shows_nothing(rig: Rig) -> None:
    rig.server.memory = Memory("none")
    found = memory.examine(rig.stage)
    assert set(verdicts(found).values()) == {"INCONCLUSIVE"}, plain(found)


def test_without_a_model_there_is_no_memory() -> None:
    with placed() as place, staged(place) as stage:
        assert memory.examine(stage).verdict == "NOT BUILT"
        assert adapters.examine(stage).verdict == "NOT BUILT"


def test_adapters_pass(rig: Rig, tmp_path: Path) -> None:
    found = adapters.examine(with_adapter(rig, tmp_path))
    said = verdicts(found)
    assert found.verdict == "PASS", plain(found)
    assert said.pop("an answer of an adapter is not remembered for its base model") == "NOT BUILT"
    assert set(said.values()) == {"PASS"}


def test_without_an_adapter_nothing_is_shown(rig: Rig) -> None:
    assert adapters.examine(rig.stage).verdict == "INCONCLUSIVE"


def test_an_access_list_that_nobody_checks_fails_it(rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "holds_any", lambda *_: True)
    found = adapters.examine(with_adapter(rig, tmp_path))
    assert claim(found, "access list leaves out").verdict == "FAIL", plain(found)
    assert claim(found, "no other tenant").verdict == "PASS", plain(found)
    assert claim(found, "listed for nobody").verdict == "FAIL", plain(found)


def test_an_adapter_that_cannot_be_loaded_shows_nothing(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(connection: Connection) -> None:
        await connection.respond(400, json.dumps({"message": "no room"}))

    monkeypatch.setitem(rig.server.controls, "/load_lora_adapter", refused)
    found = adapters.examine(with_adapter(rig, tmp_path))
    assert claim(found, "no other tenant").verdict == "INCONCLUSIVE", plain(found)
