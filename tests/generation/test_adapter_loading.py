"""Adapters at engines that fail on demand: loaded before use, checked before each load, room made, new starts seen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from generation.adapters.files import copy_in
from generation.adapters.loading import AdapterLoader, Loadable
from generation.endpoint import Endpoint
from generation.generator import GeneratorRefused
from generation.pool import Pool, PoolTerms
from generation.proof import Probe, Proof
from generation.replica import AdapterRefused, Replica, Request
from generation.serving import Serving
from service.problems import problem_of
from tenancy.errors import Unavailable
from tests.generation.adapter_engine import Engine
from tests.generation.prompts import pieces, prompt, soon, text_of
from tests.support.lora import write_adapter
from tests.support.sglang_stand_in import Connection, StandIn, recorded_lines, stand_in, status, stream

ANSWER = "urn:]EN attribute"


class Bench:
    """One engine and a pool of it, with adapters by number."""

    def __init__(self, folder: Path, server: StandIn, most: int) -> None:
        self.folder = folder
        self.engine = Engine(server)
        self.loader = AdapterLoader(most)
        endpoint = Endpoint(base_url=server.base_url, model="tiny", revision="r1", admin_key="admin")
        self.replica = Replica(endpoint)
        self.pool = Pool([self.replica], PoolTerms(), loader=self.loader)

    def adapter(self, number: int) -> Loadable:
        source = self.folder / f"source-{number}"
        if not source.exists():
            write_adapter(source, seed=number)
        path, manifest = copy_in(source, self.folder / "engines", "t_1", lambda _: None)
        return Loadable(f"ad_{number}", f"sha256:{number}", path, manifest)

    async def ask(self, adapter: Loadable | None) -> str:
        generator: Pool | Serving = self.pool if adapter is None else self.pool.adapted(adapter)
        return text_of(await pieces(generator))

    @asynccontextmanager
    async def streaming(self, adapter: Loadable) -> AsyncIterator[None]:
        """A request that has the adapter in use for as long as the block."""
        async with self.loader.lent(self.replica, adapter, soon()):
            yield

    async def loading(self) -> None:
        """Return when somebody loads, or waits for room."""
        turn = self.loader._shelves[self.replica].turn
        while not turn.locked():  # noqa: ASYNC110 - the product announces it to nobody
            await asyncio.sleep(0)


def run(folder: Path, test: Callable[[Bench], Awaitable[None]], most: int = 2) -> Bench:
    async def whole() -> Bench:
        async with stand_in() as server:
            bench = Bench(folder, server, most)
            try:
                await test(bench)
            finally:
                server.release.set()
                await bench.pool.aclose()
            return bench

    return asyncio.run(whole())


def test_an_adapter_is_loaded_once_and_then_used(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        one = bench.adapter(1)
        assert await bench.ask(None) == ANSWER
        assert bench.engine.calls == [], "the base needs none"
        assert [await bench.ask(one) for _ in range(3)] == [ANSWER] * 3
        assert bench.loader.loaded(bench.replica) == ("ad_1",)

    bench = run(tmp_path, test)
    assert bench.engine.calls == [("load", "ad_1")]
    assert [request.body["model"] for request in bench.engine.server.generations] == ["tiny", *["tiny:ad_1"] * 3]


def test_nothing_is_loaded_at_a_server_that_is_another_than_it_should_be(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        bench.engine.server.info["version"] = "0.5.19"
        with pytest.raises(GeneratorRefused, match=r"0\.5\.19"):
            await bench.ask(bench.adapter(1))

    assert run(tmp_path, test).engine.calls == []


@pytest.mark.parametrize("path", ["/server_info", "/load_lora_adapter"])
def test_no_error_names_the_servers_address(tmp_path: Path, path: str) -> None:
    async def test(bench: Bench) -> None:
        bench.engine.server.controls[path] = status(503)
        with pytest.raises(Unavailable) as caught:
            await bench.ask(bench.adapter(1))
        told = problem_of(caught.value, "0" * 32)
        assert bench.engine.server.base_url not in str(told)
        assert told.item in (None, "0" * 32)

    run(tmp_path, test)


def test_many_at_once_load_it_once(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        one = bench.adapter(1)
        assert await asyncio.gather(*(bench.ask(one) for _ in range(8))) == [ANSWER] * 8

    assert run(tmp_path, test).engine.calls == [("load", "ad_1")]


@pytest.mark.parametrize("name", ["adapter_model.safetensors", "adapter_config.json"])
def test_nothing_is_loaded_that_was_changed_since(tmp_path: Path, name: str) -> None:
    async def test(bench: Bench) -> None:
        one, two = bench.adapter(1), bench.adapter(2)
        (one.path / name).write_bytes((two.path / name).read_bytes() + b" ")
        with pytest.raises(AdapterRefused, match="not those that were registered"):
            await bench.ask(one)
        assert bench.engine.calls == []
        assert await bench.ask(two) == ANSWER

    run(tmp_path, test)


def test_it_is_checked_before_each_load_not_only_the_first(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        one, two = bench.adapter(1), bench.adapter(2)
        await bench.ask(one)
        await bench.ask(two)
        assert bench.loader.loaded(bench.replica) == ("ad_2",)
        (one.path / "adapter_model.safetensors").write_bytes(b"other")
        with pytest.raises(AdapterRefused):
            await bench.ask(one)

    assert ("load", "ad_1") not in run(tmp_path, test, most=1).engine.calls[1:]


def test_the_least_recently_used_makes_room(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        one, two, three = (bench.adapter(number) for number in (1, 2, 3))
        for adapter in (one, two, one, three):
            assert await bench.ask(adapter) == ANSWER
        assert bench.engine.held == ["ad_1", "ad_3"]
        assert await bench.ask(two) == ANSWER
        assert bench.engine.held == ["ad_3", "ad_2"]

    run(tmp_path, test)


def test_one_in_use_is_not_unloaded_and_one_that_waits_gets_its_turn(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        one, two = bench.adapter(1), bench.adapter(2)
        async with bench.streaming(one):
            waiting = asyncio.create_task(bench.ask(two))
            await bench.loading()
            later = asyncio.create_task(bench.ask(one))
            # The base, and whoever has the adapter in use, go on meanwhile.
            assert await bench.ask(None) == ANSWER
            assert bench.engine.calls == [("load", "ad_1")]
            assert not waiting.done()
            assert not later.done(), "who wants the other again waits behind"
        assert await waiting == await later == ANSWER
        assert [name for _, name in bench.engine.calls] == ["ad_1", "ad_1", "ad_2", "ad_2", "ad_1"]

    run(tmp_path, test, most=1)


def test_who_waits_for_room_beyond_the_deadline_is_told_and_the_adapter_in_use_stays(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        one, two = bench.adapter(1), bench.adapter(2)
        async with bench.streaming(one):
            stuck = bench.pool.adapted(two).generate(
                prompt(), salt="s", request_id="r", max_tokens=4, deadline=soon(0.2)
            )
            async with aclosing(stuck):
                with pytest.raises(AdapterRefused, match="deadline"):
                    await anext(stuck)
            assert bench.loader.loaded(bench.replica) == ("ad_1",)
            assert bench.engine.held == ["ad_1"]
        assert await bench.ask(two) == ANSWER

    run(tmp_path, test, most=1)


def test_a_load_that_fails_is_one_tenants_and_is_tried_again(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        one, two = bench.adapter(1), bench.adapter(2)
        assert await bench.ask(one) == ANSWER
        bench.engine.server.controls["/load_lora_adapter"] = status(500)
        with pytest.raises(AdapterRefused) as caught:
            await bench.ask(two)
        assert caught.value.told == "the adapter cannot be loaded now"
        assert await bench.ask(one) == await bench.ask(None) == ANSWER
        assert bench.replica.usable, "the engine is not left alone for it"
        bench.engine.server.controls["/load_lora_adapter"] = bench.engine.load
        assert await bench.ask(two) == ANSWER

    assert len(run(tmp_path, test).engine.server.generations) == 4


def test_a_load_that_hangs_holds_up_nobody_who_has_what_he_needs(tmp_path: Path) -> None:
    async def hang(connection: Connection) -> None:
        await connection.server.release.wait()

    async def test(bench: Bench) -> None:
        one, two = bench.adapter(1), bench.adapter(2)
        assert await bench.ask(one) == ANSWER
        bench.engine.server.controls["/load_lora_adapter"] = hang
        hanging = asyncio.create_task(bench.ask(two))
        await bench.loading()
        assert await bench.ask(one) == await bench.ask(None) == ANSWER
        hanging.cancel()
        with pytest.raises(asyncio.CancelledError):
            await hanging
        bench.engine.server.controls["/load_lora_adapter"] = bench.engine.load
        assert await bench.ask(two) == ANSWER, "a load that was given up leaves no lock"

    run(tmp_path, test)


def test_an_engine_that_was_started_anew_is_given_its_adapters_again(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        one, two = bench.adapter(1), bench.adapter(2)
        await bench.ask(one)
        await bench.ask(two)
        bench.engine.held.clear()
        assert await asyncio.gather(*(bench.ask(one) for _ in range(4))) == [ANSWER] * 4
        assert await bench.ask(two) == ANSWER

    names = [name for _, name in run(tmp_path, test).engine.calls]
    assert names == ["ad_1", "ad_2", "ad_1", "ad_2"]


def test_a_new_start_that_the_self_test_meets_first_is_seen_as_well(tmp_path: Path) -> None:
    apart = Proof((Probe("first", 200, 0), Probe("first again", 200, 200, again=True)))

    async def test(bench: Bench) -> None:
        one = bench.adapter(1)

        async def prover(deadline: float, adapter: Loadable | None) -> Proof:
            if adapter is not None:
                asked = Request(
                    prompt=prompt(), salt="s", request_id="r", max_tokens=1, deadline=deadline, adapter=adapter
                )
                async with aclosing(bench.replica.generate(asked, bench.replica.attempt(probe=True))) as found:
                    assert [piece async for piece in found]
            return apart

        bench.replica.isolation.prover = prover
        assert await bench.ask(one) == ANSWER
        bench.engine.held.clear()
        await bench.replica.check()  # as the pool does for one that was away: the adapter's test is due again
        assert await bench.ask(one) == ANSWER

    assert run(tmp_path, test).engine.calls == [("load", "ad_1")] * 2


def test_a_request_that_the_engine_refuses_for_itself_is_not_repeated(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        one = bench.adapter(1)
        await bench.ask(one)
        bench.engine.server.usual = status(400)
        with pytest.raises(GeneratorRefused):
            await bench.ask(one)

    bench = run(tmp_path, test)
    assert bench.engine.calls == [("load", "ad_1")]
    assert len(bench.engine.server.generations) == 2


def test_what_another_process_loaded_is_taken_as_loaded(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        bench.engine.held.append("ad_1")
        assert await bench.ask(bench.adapter(1)) == ANSWER

    assert run(tmp_path, test).engine.calls == [("load", "ad_1")]


def test_an_answer_in_the_name_of_the_base_is_none_of_the_adapter(tmp_path: Path) -> None:
    async def base(connection: Connection) -> None:
        await stream(connection, recorded_lines("stream", connection))

    async def test(bench: Bench) -> None:
        bench.engine.server.usual = base
        assert await bench.ask(None) == ANSWER
        with pytest.raises(GeneratorRefused, match="another model"):
            await bench.ask(bench.adapter(1))

    run(tmp_path, test)


def test_identity_tells_adapters_and_their_revisions_apart(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        one = bench.adapter(1)
        named = [
            bench.pool.identity,
            bench.pool.adapted(one).identity,
            bench.pool.adapted(Loadable("ad_2", one.revision, one.path, one.manifest)).identity,
            bench.pool.adapted(Loadable("ad_1", "sha256:9", one.path, one.manifest)).identity,
        ]
        assert len({identity.adapter for identity in named}) == 4

    run(tmp_path, test)
