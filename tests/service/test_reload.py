"""Other replicas while questions are answered: streams go on, new servers join after their checks, levels are kept."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.settings import Settings, load_settings
from tenancy.errors import InvalidInput
from tests.generation.fault_cases import spoken
from tests.generation.stage import LIMIT_S, Stage, stage, standing
from tests.service.test_server import command, environment, serving
from tests.support.sglang_stand_in import Connection

__all__ = ["environment"]  # a fixture

pytestmark = pytest.mark.slow


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Stage]:
    with stage(tmp_path, patience_s=60.0) as made:
        yield made


async def halfway(connection: Connection) -> None:
    """Text leaves, and the rest when the stand-in is released."""
    lines = spoken(connection)
    await connection.begin_stream()
    for number, line in enumerate(lines):
        if number == 3:
            await connection.server.release.wait()
        await connection.send(line)
    await connection.end_stream()


def until(condition: Any) -> None:
    limit = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < limit, "it never came to that"
        time.sleep(0.01)


def with_pools(scene: Stage, pools: str) -> Settings:
    return load_settings(
        environment={
            "STRONGROOM_DATA_DIR": scene.house.settings.data_dir,
            "STRONGROOM_GENERATION__POOLS": pools,
            "STRONGROOM_GENERATION__ROUTING": '{collection = ["main"]}',
        }
    )


def reload(scene: Stage, pools: str) -> None:
    async def work() -> None:
        scene.house.services.reload(with_pools(scene, pools))

    scene.within(work)


def addresses(scene: Stage) -> list[str]:
    return [server.base_url for server in scene.servers]


def table(*pools: str) -> str:
    return "{" + ", ".join(pools) + "}"


def pool(name: str, *replicas: str, **more: Any) -> str:
    terms = {"model": "tiny", "revision": "r1", "kind": "sglang", "replicas": list(replicas), "health_s": 0.1, **more}
    return f"{name} = {{" + ", ".join(f"{key} = {json.dumps(value)}" for key, value in terms.items()) + "}"


def test_a_replica_that_is_left_out_ends_its_stream(scene: Stage) -> None:
    one, other = addresses(scene)[:2]
    scene.always(halfway)
    with ThreadPoolExecutor(1) as threads:
        stream = threads.submit(scene.ask, scene.question() | {"stream": True})
        until(lambda: sum(scene.sent[:2]) == 1)
        busy, free = (0, 1) if scene.sent[0] else (1, 0)
        scene.servers[free].usual = speak_now
        kept = (one, other)[free]
        reload(scene, table(pool("main", kept)))
        for _ in range(3):
            assert scene.ask().status_code == 200
        assert scene.sent[busy] == 1, "it gets nothing new"
        leaving = [replica for replica in scene.pools["main"].replicas if replica.state == "draining"]
        assert [replica.endpoint.base_url for replica in leaving] == [(one, other)[busy]]
        scene.release()
        response = stream.result(LIMIT_S)
        assert "event: done" in response.text
        assert "event: error" not in response.text
        until(lambda: [replica.endpoint.base_url for replica in scene.pools["main"].replicas] == [kept])
    assert scene.aborts == 0
    assert set(scene.pools) == {"main"}


async def speak_now(connection: Connection) -> None:
    await connection.begin_stream()
    for line in spoken(connection):
        await connection.send(line)
    await connection.end_stream()


def test_a_new_replica_joins_after_its_check_and_one_that_fails_it_does_not(scene: Stage) -> None:
    spare = scene.servers[2]
    scene.always(speak_now, at=(0, 1, 2))
    spare.info["version"] = "0.5.1"
    reload(scene, table(pool("main", spare.base_url)))
    for _ in range(3):
        assert scene.ask().status_code == 200
    until(lambda: len(spare.requests("/server_info")) > 1)
    assert scene.sent[2] == 0
    spare.info["version"] = "0.5.23"
    until(lambda: [replica.endpoint.base_url for replica in scene.pools["main"].replicas] == [spare.base_url])
    assert scene.ask().status_code == 200
    assert scene.sent[2] == 1


def test_a_pool_that_is_left_out_ends_its_streams_and_serves_nobody(scene: Stage) -> None:
    main, spare = addresses(scene)[0], addresses(scene)[2]
    scene.always(halfway)
    with ThreadPoolExecutor(1) as threads:
        stream = threads.submit(scene.ask, scene.question() | {"stream": True})
        until(lambda: sum(scene.sent[:2]) == 1)
        reload(scene, table(pool("main", spare, model="tiny", revision="r2")))
        until(lambda: scene.ask().status_code == 200)
        assert sum(scene.sent[:2]) == 1
        assert [one.name for one in scene.routes.retiring] == ["main"], "that of before, with its stream"
        scene.release()
        assert "event: done" in stream.result(LIMIT_S).text
        until(lambda: not scene.routes.retiring)
    assert main not in [replica.endpoint.base_url for one in scene.routes.pools for replica in one.replicas]


def test_what_cannot_be_taken_over_changes_nothing(scene: Stage) -> None:
    there = scene.routes.deployment
    one, other, spare, vault = addresses(scene)
    for pools in (
        table(pool("main", vault), pool("vault", one, trust="confidential")),
        table(pool("main", one, other, trust="confidential")),
        table(pool("main", one, dedicated_to="acme")),
        table(pool("main", one), pool("second", one)),
        table(pool("elsewhere", spare)),
    ):
        with pytest.raises(InvalidInput):
            reload(scene, pools)
        assert scene.routes.deployment is there
        assert scene.ask().status_code == 200


def test_a_replica_changes_its_level_only_when_its_streams_have_ended(scene: Stage) -> None:
    one, other = addresses(scene)[:2]
    scene.always(halfway)
    with ThreadPoolExecutor(1) as threads:
        stream = threads.submit(scene.ask, scene.question() | {"stream": True})
        until(lambda: sum(scene.sent[:2]) == 1)
        busy, kept = (one, other) if scene.sent[0] else (other, one)
        reload(scene, table(pool("main", kept)))
        moved = table(pool("main", kept), pool("high", busy, trust="confidential"))
        with pytest.raises(InvalidInput, match="may still hold its requests"):
            reload(scene, moved)
        scene.release()
        assert "event: done" in stream.result(LIMIT_S).text
        until(lambda: [replica.endpoint.base_url for replica in scene.pools["main"].replicas] == [kept])
    reload(scene, moved)
    assert set(scene.pools) == {"main", "high"}


def test_a_signal_takes_the_pools_from_the_settings_file(environment: dict[str, str], tmp_path: Path) -> None:
    with standing(2) as (servers, loop):
        for server in servers:
            server.usual = speak_now
        file = tmp_path / "strongroom.toml"

        def write(text: str) -> None:
            file.with_suffix(".new").write_text(text)
            os.replace(file.with_suffix(".new"), file)

        def pools(*replicas: str) -> str:
            return f"[generation.pools]\n{pool('default', *replicas)}\n[cache]\nenabled = false\n"

        write(pools(servers[0].base_url))
        environment = environment | {"STRONGROOM_CONFIG": str(file)}
        (tmp_path / "docs").mkdir()
        (tmp_path / "docs" / "notice.md").write_text("The notice period is three months.")
        assert command(environment, "tenant", "create", "acme").returncode == 0
        made = command(environment, "key", "create", "--tenant", "acme", "--user", "ana", "--json")
        command(environment, "ingest", "--tenant", "acme", str(tmp_path / "docs"), "--allow", "tenant")
        headers = {"Authorization": f"Bearer {json.loads(made.stdout)['key']}"}
        log = tmp_path / "server.log"
        question = {"query": "How long is the notice period?"}
        with serving(environment, log) as (process, address), httpx.Client(base_url=address, headers=headers) as client:
            assert client.post("/v1/answers", json=question).status_code == 200
            servers[0].usual = halfway
            with client.stream("POST", "/v1/answers", json=question | {"stream": True}, timeout=LIMIT_S) as response:
                text = response.iter_text()
                seen = next(text)
                servers[0].usual = speak_now
                write(pools(servers[1].base_url))
                process.send_signal(signal.SIGHUP)
                until(lambda: client.post("/v1/answers", json=question).status_code == 200 and servers[1].generations)
                before = len(servers[0].generations)
                loop.call_soon_threadsafe(servers[0].release.set)
                seen += "".join(text)
            assert "event: done" in seen
            write("[generation.pools]\nmistake")
            process.send_signal(signal.SIGHUP)
            until(lambda: "the settings were not taken over" in log.read_text())
            assert client.post("/v1/answers", json=question).status_code == 200
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        assert len(servers[0].generations) == before, "what was left out gets nothing more"
