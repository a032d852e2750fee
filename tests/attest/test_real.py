"""The whole attestation of a deployment on a real SGLang server: PASS as it is, also after the engine forgot and after
it was started anew; FAIL where its salts are one, where its tenants are one, and where an adapter is everybody's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from generation.adapters import registry
from retrieval import steps
from service.attest import adapters, memory
from service.attest.report import markdown
from service.attest.run import attest
from service.attest.stage import Options, Stage
from tests.attest.place import Place, claim, confuse_tenants, logging_to, placed, plain, staged, table
from tests.support.sglang_server import ADMIN_KEY, API_KEY, MODEL, RunningServer, SglangNotRunning, running_server

pytestmark = [pytest.mark.load, pytest.mark.slow, pytest.mark.timeout(1800)]

MODULES = ["q_proj", "k_proj", "v_proj", "o_proj"]


@contextmanager
def engine(logs: Path, port: int | None = None) -> Iterator[RunningServer]:
    logs.mkdir(exist_ok=True)
    try:
        with running_server(logs, port=port) as server:
            yield server
    except SglangNotRunning as failure:
        pytest.fail(str(failure), pytrace=False)


@contextmanager
def deployed(server: RunningServer, folder: Path) -> Iterator[Place]:
    """A house whose tenants are answered by extraction, and those whose contract says so by the engine."""
    for name, key in (("api", API_KEY), ("admin", ADMIN_KEY)):
        (folder / name).write_text(key)
    pool = table(
        kind="sglang", model=MODEL, revision="r1", replicas=[server.base_url], tokenizer=str(server.model),
        context_length=4096, max_adapters=2, max_adapter_rank=8, adapter_modules=MODULES, adapter_bases=["model"],
        first_token_s=120.0, stall_s=60.0, api_key_file=str(folder / "api"), admin_key_file=str(folder / "admin"),
    )  # fmt: skip
    with placed(
        STRONGROOM_GENERATION__POOLS=f'{{main = {pool}, default = {{kind = "extractive"}}}}',
        STRONGROOM_GENERATION__ADAPTERS_DIR=str(folder / "adapters"),
        STRONGROOM_GENERATION__DEADLINE_S="300",
        STRONGROOM_CACHE__TEMPLATES="{default = {probation = 0, shadow = 0.0}}",
    ) as place:
        yield place


def options(server: RunningServer, place: Place) -> Options:
    adapter = server.model.with_name(f"{server.model.name}-lora-a")
    return Options(probes=10, timing=0, rounds=3, load=0, log=place.log, adapter=adapter)


def flush(server: RunningServer) -> None:
    admin = {"Authorization": f"Bearer {ADMIN_KEY}"}
    httpx.post(f"{server.base_url}/flush_cache", headers=admin, timeout=60, trust_env=False).raise_for_status()


def broken_salts(patch: pytest.MonkeyPatch) -> None:
    """Every namespace has one salt."""
    patch.setattr(steps, "kv_salt", lambda *_, **__: "0" * 64)


def said(report: dict[str, Any]) -> dict[str, str]:
    return {layer["layer"]: layer["verdict"] for layer in report["layers"]}


def test_a_deployment_with_a_real_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with engine(tmp_path / "first") as server, deployed(server, tmp_path) as place:
        _whole(place, options(server, place))
        with staged(place, options(server, place)) as stage:
            flush(server)
            assert_passes(stage)
            with monkeypatch.context() as patch:
                broken_salts(patch)
                found = memory.examine(stage)
                assert claim(found, "another tenant's").verdict == "FAIL", plain(found)
                assert claim(found, "another domain's").verdict == "FAIL", plain(found)
            with monkeypatch.context() as patch:
                patch.setattr(registry, "holds_any", lambda *_: True)
                found = adapters.examine(stage)
                assert claim(found, "access list leaves out").verdict == "FAIL", plain(found)
            with monkeypatch.context() as patch:
                confuse_tenants(patch, stage.pair)
                found = adapters.examine(stage)
                assert claim(found, "no other tenant").verdict == "FAIL", plain(found)
                found = memory.examine(stage)
                assert claim(found, "another tenant's").verdict == "FAIL", plain(found)
        port = int(server.base_url.rpartition(":")[2])
        restarted = server
    with engine(tmp_path / "second", port) as again, deployed(again, tmp_path) as place:
        assert again.base_url == restarted.base_url
        with staged(place, options(again, place)) as stage:
            assert_passes(stage)


def assert_passes(stage: Stage) -> None:
    for found in (memory.examine(stage), adapters.examine(stage)):
        assert found.verdict == "PASS", plain(found)
        print(plain(found))


def _whole(place: Place, chosen: Options) -> None:
    """Every layer but timing, which a busy machine may not decide; it is asked for with no probes."""
    with logging_to(place.log):
        report = attest(place.control, place.caller, chosen)
    print(markdown(report))
    print(json.dumps(said(report)))
    layers = ("retrieval and index", "cache", "KV memory", "adapters", "logs", "queue", "contracts")
    expected = dict.fromkeys(layers, "PASS")
    assert {name: said(report)[name] for name in expected} == expected
