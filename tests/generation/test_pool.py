"""What a pool does with its replicas: placement, retries, circuit breakers, quarantine, draining. Stand-ins, faults."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from generation.breaker import Breaker, BreakerTerms
from generation.endpoint import Endpoint
from generation.generator import GeneratorRefused, Piece
from generation.lanes import LaneTerms, Load
from generation.pool import Pool, PoolTerms
from generation.quarantine import Quarantined
from generation.replica import Adapter, AdapterRefused, Patience, Replica
from tenancy.errors import InvalidInput, Unavailable
from tests.generation.prompts import finish_of, first_delta, prompt, soon, text_of
from tests.generation.test_breaker import Clock
from tests.support.redis_proxy import RedisProxy, certificate
from tests.support.sglang_stand_in import (
    Connection,
    Fault,
    StandIn,
    answer,
    cut_after,
    hang_up,
    recorded_lines,
    replay,
    silent,
    stall_after,
    stand_in,
    status,
    stream,
    tampered,
)

ANSWER = "urn:]EN attribute"
OTHER_MODEL = 'data: {"model": "other", "choices": [{"index": 0, "delta": {"content": "x"}}]}'


def replica(server: StandIn, **terms: Any) -> Replica:
    endpoint = Endpoint(base_url=server.base_url, model="tiny", revision="r1", api_key="user", admin_key="admin")
    terms.setdefault("breaker_terms", BreakerTerms(failures=3, pause_s=600.0, longest_s=600.0))
    return Replica(endpoint, **terms)


@asynccontextmanager
async def pool_of(*servers: StandIn, loader: Any = None, **terms: Any) -> AsyncIterator[Pool]:
    of_replicas = {name: terms.pop(name) for name in ("patience", "breaker_terms") if name in terms}
    made = Pool([replica(server, **of_replicas) for server in servers], PoolTerms(**terms), loader=loader)
    try:
        yield made
    finally:
        await made.aclose()


@asynccontextmanager
async def stand_ins(count: int) -> AsyncIterator[list[StandIn]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(stand_in()) for _ in range(count)]


def run(count: int, test: Callable[..., Awaitable[None]]) -> list[StandIn]:
    """Run `test` with so many stand-ins."""

    async def whole() -> list[StandIn]:
        async with stand_ins(count) as servers:
            await test(*servers)
            return servers

    return asyncio.run(whole())


async def ask(pool: Any, question: str = "Why?", **options: Any) -> list[Piece]:
    asked = {"salt": "a" * 64, "request_id": "0" * 32, "max_tokens": 64, "deadline": soon(), **options}
    async with aclosing(pool.generate(prompt(question), **asked)) as stream:
        return [piece async for piece in stream]


def always(server: StandIn, fault: Fault) -> None:
    server.usual = fault


def sent(*servers: StandIn) -> list[int]:
    return [len(server.generations) for server in servers]


def at_rest(pool: Pool) -> bool:
    return all(one.load == Load() for one in pool.replicas) and not pool._lanes.waiting


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(4_000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it never came to that")


# Placement and retries.


def test_concurrent_requests_are_spread_over_the_replicas() -> None:
    async def test(*servers: StandIn) -> None:
        for server in servers:
            always(server, stall_after(2))
        async with pool_of(*servers) as pool:
            tasks = [asyncio.create_task(ask(pool, f"Question {number}?")) for number in range(6)]
            await until(lambda: sum(sent(*servers)) == 6)
            assert sent(*servers) == [2, 2, 2]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert at_rest(pool)

    run(3, test)


@pytest.mark.parametrize("fault", [status(503), replay("overloaded"), hang_up, cut_after(0)])
def test_a_second_attempt_goes_to_another_replica(fault: Fault) -> None:
    async def test(bad: StandIn, good: StandIn) -> None:
        always(bad, fault)
        async with pool_of(bad, good) as pool:
            for number in range(3):
                assert text_of(await ask(pool, f"{number}?")) == ANSWER
            assert at_rest(pool)

    bad, good = run(2, test)
    assert len(good.generations) == 3
    assert len(bad.generations) <= 3


@pytest.mark.parametrize("fault", [cut_after(3), tampered(3, OTHER_MODEL), tampered(3, "data: {")])
def test_nothing_is_repeated_after_the_first_byte_anywhere(fault: Fault) -> None:
    async def test(one: StandIn, other: StandIn) -> None:
        always(one, fault)
        always(other, fault)
        async with pool_of(one, other) as pool:
            assert finish_of(await ask(pool)).reason == "error"
            assert at_rest(pool)

    assert sum(sent(*run(2, test))) == 1


def test_a_storm_of_503_is_not_answered_with_one_of_retries() -> None:
    async def test(*servers: StandIn) -> None:
        for server in servers:
            always(server, status(503))
        async with pool_of(*servers) as pool:
            for number in range(30):
                with pytest.raises(Unavailable):
                    await ask(pool, f"Question {number}?")
            assert at_rest(pool)

    # Three failures each until they are left alone; thirty requests without a breaker would have been sixty.
    assert sent(*run(2, test)) == [3, 3]


def test_many_at_once_in_a_storm_are_at_most_two_attempts_each() -> None:
    async def test(*servers: StandIn) -> None:
        for server in servers:
            always(server, status(503))
        async with pool_of(*servers) as pool:
            found = await asyncio.gather(*(ask(pool, f"{n}?") for n in range(20)), return_exceptions=True)
            assert all(isinstance(one, Unavailable) for one in found)
            assert at_rest(pool)

    assert sum(sent(*run(2, test))) <= 40


def test_a_server_that_is_well_again_is_found_by_one_request() -> None:
    async def test(server: StandIn) -> None:
        clock = Clock()
        server.faults = [status(503)] * 3
        async with pool_of(server) as pool:
            pool.replicas[0].breaker = Breaker(BreakerTerms(failures=3, pause_s=60), clock=clock)
            for _ in range(5):
                with pytest.raises(Unavailable):
                    await ask(pool)
            assert sent(server) == [3]
            clock.now += 60
            always(server, late)
            trial = asyncio.create_task(ask(pool))
            await until(lambda: sent(server) == [4])
            with pytest.raises(Unavailable, match="no replica"):
                await ask(pool)
            server.release.set()
            assert text_of(await trial) == ANSWER
            assert text_of(await ask(pool)) == ANSWER

    assert sent(*run(1, test)) == [5]


def test_a_trial_that_is_given_up_leaves_room_for_another() -> None:
    async def test(server: StandIn) -> None:
        clock = Clock()
        async with pool_of(server) as pool:
            pool.replicas[0].breaker = Breaker(BreakerTerms(pause_s=60), clock=clock)
            pool.replicas[0].breaker.trip()
            clock.now += 60
            always(server, silent)
            trial = asyncio.create_task(ask(pool))
            await until(lambda: sent(server) == [1])
            trial.cancel()
            await asyncio.gather(trial, return_exceptions=True)
            server.usual = answer
            assert text_of(await ask(pool)) == ANSWER
            assert pool.replicas[0].breaker.state == "closed"

    run(1, test)


@pytest.mark.parametrize("fault", [replay("unauthorized"), tampered(0, OTHER_MODEL)])
def test_a_server_with_another_key_or_model_is_left_alone_at_once(fault: Fault) -> None:
    async def test(wrong: StandIn, right: StandIn) -> None:
        always(wrong, fault)
        async with pool_of(wrong, right) as pool:
            refused = 0
            for number in range(12):
                try:
                    assert text_of(await ask(pool, f"{number}?")) == ANSWER
                except GeneratorRefused:
                    refused += 1
            assert refused == len(wrong.generations) <= 1

    run(2, test)


def test_a_request_that_the_server_refuses_says_nothing_about_the_server() -> None:
    async def test(server: StandIn) -> None:
        always(server, replay("too_long"))
        async with pool_of(server) as pool:
            for _ in range(10):
                with pytest.raises(GeneratorRefused, match="400"):
                    await ask(pool)
            assert pool.replicas[0].breaker.state == "closed"

    assert sent(*run(1, test)) == [10]


def test_health_is_looked_at_and_costs_no_generation() -> None:
    async def test(server: StandIn) -> None:
        async with pool_of(server, health_s=0.01) as pool:
            await ask(pool)
            await until(lambda: len(server.requests("/v1/models")) > 2)
            assert pool.replicas[0].usable
            server.controls["/v1/models"] = status(503)
            await until(lambda: not pool.replicas[0].usable)
            with pytest.raises(Unavailable, match="no replica"):
                await ask(pool)

    (server,) = run(1, test)
    assert sent(server) == [1]
    assert not server.requests("/health")
    assert not server.requests("/health_generate")


# Patience.


@pytest.mark.parametrize(
    ("fault", "patience", "said"),
    [
        (silent, Patience(first_token_s=0.2), "before the deadline"),
        (stall_after(0), Patience(first_token_s=0.2), "nothing came for 0.2 s before"),
        (stall_after(3), Patience(stall_s=0.2), "nothing came for 0.2 s while"),
    ],
)
def test_silence_ends_a_request_long_before_its_deadline(fault: Fault, patience: Patience, said: str) -> None:
    async def test(server: StandIn) -> None:
        always(server, fault)
        async with pool_of(server, patience=patience) as pool:
            await pool.replicas[0].check()
            try:
                detail = finish_of(await ask(pool)).detail
            except Unavailable as failure:
                detail = failure.reason
            assert said in (detail or "")
            assert at_rest(pool)

    (server,) = run(1, test)
    assert sent(server) == [1]
    assert server.aborts == [server.generations[0].body["rid"]]


@pytest.mark.parametrize(("deadline", "state"), [(0.1, "closed"), (1.3, "open")])
def test_who_came_with_little_time_left_says_nothing_about_a_silent_server(deadline: float, state: str) -> None:
    terms = BreakerTerms(failures=1, pause_s=600, longest_s=600)

    async def test(server: StandIn) -> None:
        async with pool_of(server, patience=Patience(first_token_s=2.0), breaker_terms=terms) as pool:
            await pool.replicas[0].check()
            always(server, silent)
            with pytest.raises(Unavailable):
                await ask(pool, deadline=soon(deadline))
            assert pool.replicas[0].breaker.state == state

    run(1, test)


def test_patience_that_lasts_changes_nothing() -> None:
    async def test(server: StandIn) -> None:
        always(server, stall_after(3))
        async with pool_of(server, patience=Patience(first_token_s=30, stall_s=30)) as pool:
            task = asyncio.create_task(ask(pool))
            await until(lambda: sent(server) == [1])
            server.usual = answer
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert text_of(await ask(pool)) == ANSWER

    run(1, test)


@pytest.mark.parametrize("deaf", [False, True])
def test_an_engine_that_ignores_a_closed_socket_holds_no_place_here(deaf: bool) -> None:
    async def test(server: StandIn) -> None:
        always(server, stall_after(3))
        if deaf:
            server.controls["/abort_request"] = late
        async with pool_of(server, lanes=LaneTerms(slots=1)) as pool:
            given = pool.generate(prompt(), salt="a", request_id="r", max_tokens=9, deadline=soon())
            async with aclosing(given):
                await first_delta(given)
            assert at_rest(pool), "the place is free although the engine goes on"
            assert server.running["/v1/chat/completions"] == 1
            server.usual = answer
            assert text_of(await ask(pool)) == ANSWER
            server.release.set()

    (server,) = run(1, test)
    assert server.aborts == [server.generations[0].body["rid"]]


def test_usage_that_comes_twice_is_counted_once() -> None:
    async def twice(connection: Connection) -> None:
        lines = recorded_lines("stream", connection)
        *said, usage, end = lines
        assert '"usage":{' in usage
        await stream(connection, [*said, usage, usage, usage, end])

    async def test(server: StandIn) -> None:
        async with pool_of(server) as pool:
            once = finish_of(await ask(pool))
            always(server, twice)
            again = finish_of(await ask(pool))
            assert again.usage == once.usage
            assert again.usage.output == 4

    run(1, test)


# Quarantine.


def poison(question: str) -> Fault:
    """A server that stops under one question, and answers others."""

    async def fault(connection: Connection) -> None:
        if question in json.dumps(connection.request.body["messages"]):
            return
        await answer(connection)

    return fault


def test_a_request_that_stopped_two_replicas_is_not_sent_again() -> None:
    async def test(*servers: StandIn) -> None:
        for server in servers:
            always(server, poison("Poison"))
        async with pool_of(*servers) as pool:
            for _ in range(3):
                with pytest.raises(Quarantined, match="twice") as caught:
                    await ask(pool, "Poison?")
                assert "Poison" not in str(caught.value)
            assert sorted(sent(*servers)) == [0, 1, 1]
            assert text_of(await ask(pool, "Food?")) == ANSWER
            with pytest.raises(Quarantined):
                await ask(pool.serving("t1"), "Poison?")
            assert sum(sent(*servers)) == 5, "another tenant's is another request"
            assert at_rest(pool)

    run(3, test)


def test_who_was_there_when_a_server_stopped_is_tried_again_alone() -> None:
    async def test(first: StandIn, second: StandIn) -> None:
        async def falls(connection: Connection) -> None:
            await first.release.wait()

        always(first, falls)
        always(second, poison("Poison"))
        async with pool_of(first, second) as pool:
            second_replica = pool.replicas[1]
            second_replica.state = "joining"
            questions = ["Poison?", *(f"Food {number}?" for number in range(5))]
            tasks = [asyncio.create_task(ask(pool, question)) for question in questions]
            await until(lambda: first.most_at_once == 6)
            await pool.join(second_replica)
            first.release.set()
            found = await asyncio.gather(*tasks, return_exceptions=True)
            assert isinstance(found[0], Quarantined)
            assert all(not isinstance(one, BaseException) and text_of(one) == ANSWER for one in found[1:])
            assert at_rest(pool)

    _, second = run(2, test)
    assert second.most_at_once == 1
    assert len(second.generations) == 6


def test_two_cut_streams_put_a_request_into_quarantine_too() -> None:
    async def test(server: StandIn) -> None:
        always(server, cut_after(3))
        async with pool_of(server) as pool:
            for _ in range(2):
                assert finish_of(await ask(pool)).reason == "error"
            with pytest.raises(Quarantined):
                await ask(pool)

    assert sent(*run(1, test)) == [2]


# Draining and reloading.


async def slow_start(pool: Pool, server: StandIn) -> asyncio.Task[list[Piece]]:
    """A stream under way at `server`, which goes on when it is released."""
    before = len(server.generations)
    always(server, halfway)
    task = asyncio.create_task(ask(pool, "A long one?"))
    await until(lambda: len(server.generations) > before)
    return task


async def late(connection: Connection) -> None:
    await connection.server.release.wait()
    await answer(connection)


async def halfway(connection: Connection) -> None:
    lines = recorded_lines("stream", connection)
    await connection.begin_stream()
    for number, line in enumerate(lines):
        if number == 3:
            await connection.server.release.wait()
        await connection.send(line)
    await connection.end_stream()


def test_a_drained_replica_ends_its_streams_and_gets_nothing_new() -> None:
    async def test(leaving: StandIn, staying: StandIn) -> None:
        async with pool_of(leaving, staying) as pool:
            gone, stays = pool.replicas
            stays.state = "joining"
            task = await slow_start(pool, leaving)
            await pool.join(stays)
            drain = asyncio.create_task(pool.drain(gone))
            for number in range(4):
                assert text_of(await ask(pool, f"{number}?")) == ANSWER
            assert not drain.done()
            leaving.release.set()
            assert text_of(await task) == ANSWER
            await asyncio.wait_for(drain, 10)
            assert pool.replicas == (stays,)

    leaving, staying = run(2, test)
    assert sent(leaving, staying) == [1, 4]
    assert leaving.aborts == []


def test_new_replicas_join_after_their_check_and_the_last_old_one_waits_for_them() -> None:
    async def test(old: StandIn, new: StandIn) -> None:
        new.info["version"] = "0.5.1"
        async with pool_of(old, health_s=0.02) as pool:
            task = await slow_start(pool, old)
            terms = PoolTerms(health_s=0.02, lanes=LaneTerms(slots=7))
            pool.reload([replica(new)], terms)
            await until(lambda: len(new.requests("/server_info")) > 2)
            assert [one.endpoint.base_url for one in pool.replicas] == [old.base_url]
            old.usual = answer
            assert text_of(await ask(pool)) == ANSWER, "the old one serves meanwhile"
            new.info["version"] = "0.5.23"
            await until(lambda: len(pool.replicas) == 2)
            assert text_of(await ask(pool)) == ANSWER
            old.release.set()
            assert text_of(await task) == ANSWER
            await asyncio.wait_for(pool.settled(), 10)
            assert [one.endpoint.base_url for one in pool.replicas] == [new.base_url]
            assert pool._lanes.terms.slots == 7

    old, new = run(2, test)
    assert sent(old, new) == [2, 1]


def test_a_reload_keeps_the_replicas_that_stay() -> None:
    async def test(stays: StandIn, leaves: StandIn, comes: StandIn) -> None:
        async with pool_of(stays, leaves) as pool:
            kept = pool.replicas[0]
            pool.reload([replica(stays), replica(comes)], pool.terms)
            await asyncio.wait_for(pool.settled(), 10)
            assert [one.endpoint.base_url for one in pool.replicas] == [stays.base_url, comes.base_url]
            assert pool.replicas[0] is kept
            other = Replica(Endpoint(base_url=stays.base_url, model="other", revision="r1"))
            with pytest.raises(InvalidInput, match="one model"):
                pool.reload([other], pool.terms)
            with pytest.raises(InvalidInput, match="one model"):
                await pool.join(other)

    run(3, test)


def test_a_second_reload_takes_the_place_of_the_first() -> None:
    async def test(old: StandIn, never: StandIn, new: StandIn) -> None:
        never.info["version"] = "0.5.1"
        async with pool_of(old, health_s=0.02) as pool:
            pool.reload([replica(never)], pool.terms)
            await until(lambda: len(never.requests("/server_info")) > 1)
            pool.reload([replica(new)], pool.terms)
            await asyncio.wait_for(pool.settled(), 10)
            assert [one.endpoint.base_url for one in pool.replicas] == [new.base_url]

    run(3, test)


def test_a_pool_needs_replicas_of_one_model() -> None:
    with pytest.raises(InvalidInput, match="at least one"):
        Pool([])
    one, other = (Endpoint(base_url="http://127.0.0.1:1", model=model, revision="r") for model in ("m", "n"))
    with pytest.raises(InvalidInput, match="one model"):
        Pool.of(one, other)


# Adapters.


@dataclass(frozen=True)
class Lora:
    server_name: str = "x7"
    revision: str = "r9"
    path: Path = Path("/adapters/x7")
    manifest: Mapping[str, str] = field(default_factory=dict)


class Loading:
    """Loads at each use, and counts."""

    def __init__(self) -> None:
        self.lent_now = 0
        self.calls = 0

    @asynccontextmanager
    async def lent(self, at: Replica, adapter: Adapter, deadline: float) -> AsyncIterator[None]:
        assert deadline > soon(0)
        await at.load_adapter(adapter.server_name, adapter.path)
        self.calls += 1
        self.lent_now += 1
        try:
            yield
        finally:
            self.lent_now -= 1


async def named(connection: Connection) -> None:
    """The recorded answer, in the name of what was asked for."""
    model = connection.request.body["model"]
    lines = recorded_lines("stream", connection)
    await stream(connection, [line.replace('"model":"tiny"', f'"model":"{model}"') for line in lines])


def test_an_adapter_is_loaded_named_and_expected_in_the_answer() -> None:
    async def test(server: StandIn) -> None:
        loading = Loading()
        always(server, named)
        async with pool_of(server, loader=loading) as pool:
            adapted = pool.adapted(Lora())
            assert adapted.identity.adapter == "x7@r9"
            assert pool.identity.adapter is None
            assert text_of(await ask(adapted)) == ANSWER
            assert (loading.calls, loading.lent_now) == (1, 0)
            assert text_of(await ask(pool)) == ANSWER
            assert loading.calls == 1
            server.usual = answer  # in the name of the base alone
            with pytest.raises(GeneratorRefused, match="another model"):
                await ask(adapted)

    (server,) = run(1, test)
    assert [request.body["model"] for request in server.generations] == ["tiny:x7", "tiny", "tiny:x7"]
    (load,) = server.requests("/load_lora_adapter")[:1]
    assert load.body == {"lora_name": "x7", "lora_path": "/adapters/x7"}
    assert load.headers["authorization"] == "Bearer admin"


@pytest.mark.parametrize("fault", [replay("adapter_refused"), status(500)])
def test_an_adapter_that_is_not_loaded_answers_nothing(fault: Fault, caplog: pytest.LogCaptureFixture) -> None:
    async def test(server: StandIn) -> None:
        server.controls["/load_lora_adapter"] = fault
        async with pool_of(server, loader=Loading()) as pool:
            with pytest.raises(AdapterRefused) as caught:
                await ask(pool.adapted(Lora()))
            assert "/" not in caught.value.reason
            assert at_rest(pool)
            assert text_of(await ask(pool)) == ANSWER, "the base answers those who asked for it"

    assert sent(*run(1, test)) == [1]
    assert "/load_lora_adapter" in caplog.text


def test_an_adapter_is_unloaded_and_one_that_is_not_there_is_said() -> None:
    async def test(server: StandIn) -> None:
        async with pool_of(server) as pool:
            await pool.replicas[0].unload_adapter("x7")
            server.controls["/unload_lora_adapter"] = replay("adapter_refused")
            with pytest.raises(AdapterRefused):
                await pool.replicas[0].unload_adapter("x7")
            with pytest.raises(Unavailable, match="loads no adapters"):
                await ask(pool.adapted(Lora()))

    (server,) = run(1, test)
    assert server.requests("/unload_lora_adapter")[0].body == {"lora_name": "x7"}
    assert server.generations == []


# What leaves.


def test_nothing_names_the_tenant_and_no_cookie_goes_anywhere() -> None:
    async def test(one: StandIn, other: StandIn) -> None:
        async with pool_of(one, other) as pool:
            for number in range(6):
                await ask(pool.serving("tenant-of-the-test"), f"{number}?")

    for server in run(2, test):
        for request in server.received:
            assert "tenant-of-the-test" not in json.dumps([dict(request.headers), request.body, request.path])
            assert "cookie" not in request.headers
            assert set(request.headers) <= {
                "host", "accept", "accept-encoding", "connection", "user-agent", "authorization", "content-type",
                "content-length",
            }  # fmt: skip


@pytest.mark.parametrize("salt", ["", " "])
def test_no_way_into_a_pool_leads_past_the_salt(salt: str) -> None:
    async def test(server: StandIn) -> None:
        async with pool_of(server) as pool:
            for generator in (pool, pool.serving("t"), pool.adapted(Lora())):
                with pytest.raises(InvalidInput, match="salt"):
                    await ask(generator, salt=salt)
            from generation.replica import Request

            request = Request(prompt=prompt(), salt=salt, request_id="r", max_tokens=1, deadline=soon())
            with pytest.raises(InvalidInput, match="salt"):
                async for _ in pool.replicas[0].generate(request, pool.replicas[0].attempt()):
                    pass
            assert finish_of(await ask(pool)).salted

    assert sent(*run(1, test)) == [1]


def test_an_encrypted_server_is_known_by_its_authority(tmp_path: Path) -> None:
    both, public = certificate(tmp_path / "tls")

    async def test(server: StandIn) -> None:
        proxy = RedisProxy(int(server.base_url.rpartition(":")[2]), tls=both)
        try:
            there = Endpoint(base_url=f"https://127.0.0.1:{proxy.port}/v1", model="tiny", revision="r")
            trusting, doubting = Pool.of(dataclasses.replace(there, ca_file=public)), Pool.of(there)
            assert text_of(await ask(trusting)) == ANSWER
            with pytest.raises(Unavailable, match="cannot be reached"):
                await ask(doubting)
            await trusting.aclose()
            await doubting.aclose()
        finally:
            proxy.close()

    assert sent(*run(1, test)) == [1]
    with pytest.raises(InvalidInput, match="authorities"):
        Pool.of(Endpoint(base_url="https://127.0.0.1:1", model="m", revision="r", ca_file=tmp_path / "none.pem"))
