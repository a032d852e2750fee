"""A server shows that it keeps KV salts apart before a prompt is sent there; a proof that could not fail is none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial, wraps
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from generation.endpoint import Endpoint
from generation.generator import Finish, GeneratorRefused
from generation.placement import Deployment, Entry, PooledRoutes, Table
from generation.pool import Pool, PoolTerms
from generation.proof import NotIsolated, Probe, Proof
from generation.replica import Adapter, Replica
from generation.selftest import prove
from service.isolation import UNREACHED, isolation_of, note_tenants, require_isolation
from tenancy.errors import Unavailable
from tests.generation.prompts import finish_of, pieces, prompt, soon
from tests.support.sglang_stand_in import Memory, StandIn, stand_in, status


def looped(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """In an event loop of its own."""

    @wraps(test)
    def run(*given: Any, **named: Any) -> None:
        async def whole() -> None:
            await test(*given, **named)

        asyncio.run(whole())

    return run


def endpoint(server: StandIn, **changes: Any) -> Endpoint:
    return Endpoint(**{"base_url": server.base_url, "model": "tiny", "revision": "r1", **changes})


def replica(server: StandIn, **changes: Any) -> Replica:
    made = Replica(endpoint(server, **changes))
    made.isolation.prover = partial(prove, made)
    return made


@asynccontextmanager
async def pool(
    *servers: StandIn, waived: bool = False, dedicated_to: str | None = None, **changes: Any
) -> AsyncIterator[Pool]:
    terms = PoolTerms(name="main", waived=waived, dedicated_to=dedicated_to, health_s=0.02)
    made = Pool([replica(server, **changes) for server in servers], terms)
    try:
        yield made
    finally:
        await made.aclose()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 (the state of a task in the background)
            await asyncio.sleep(0.005)


def routes(pool: Pool, **others: Any) -> PooledRoutes:
    made = {pool.name: pool, **others}
    table = Table({name: Entry(name, "tiny") for name in made}, {})
    return PooledRoutes(Deployment(table, made))


def proof(*counts: tuple[int, int, bool]) -> Proof:
    return Proof(tuple(Probe("salt", size, cached, again) for size, cached, again in counts))


@pytest.mark.parametrize(
    ("counts", "verdict"),
    [
        ([(600, 0, False), (600, 599, True), (600, 0, False), (600, 599, True)], "apart"),
        ([(600, 0, False), (600, 512, True)], "apart"),
        ([(600, 0, False), (600, 599, True), (600, 1, False), (600, 599, True)], "shared"),
        ([(600, 5, False), (600, 599, True)], "shared"),
        ([(600, 0, False), (600, 0, True), (600, 1, False), (600, 0, True)], "shared"),
        ([(600, 0, False), (600, 0, True), (600, 0, False), (600, 0, True)], "inconclusive"),
        ([(600, 0, False), (600, 599, True), (600, 0, False), (600, 0, True)], "inconclusive"),
        ([(600, 0, False), (600, 200, True)], "inconclusive"),
        ([(100, 0, False), (100, 99, True)], "inconclusive"),
        ([(600, 0, False), (600, 0, False)], "inconclusive"),
        ([], "inconclusive"),
    ],
)
def test_only_a_proof_that_could_have_failed_counts(counts: list[tuple[int, int, bool]], verdict: str) -> None:
    found = proof(*counts)
    assert found.verdict == verdict
    assert (found.remedy is None) is (verdict == "apart")


@pytest.mark.parametrize(
    ("found", "verdict", "said"),
    [
        ("salted", "apart", None),
        ("all", "shared", "share memory"),
        ("none", "inconclusive", "does not show"),
    ],
)
@looped
async def test_what_a_server_does_with_salts_is_found_out(found: Any, verdict: str, said: str | None) -> None:
    async with stand_in() as server:
        server.memory = Memory(found)
        one = replica(server)
        try:
            if said is None:
                await one.check()
                assert one.usable
            else:
                with pytest.raises(NotIsolated, match=said) as caught:
                    await one.check()
                assert caught.value.remedy
                assert not one.usable
            assert one.isolation.proof is not None
            assert one.isolation.proof.verdict == verdict
        finally:
            await one.aclose()
        salts = [request.body["cache_salt"] for request in server.requests("/v1/chat/completions")]
        assert len(set(salts)) == len(salts) / 2, "each salt twice"
        assert len(set(salts)) == 3 * (3 if verdict == "inconclusive" else 1), "what shows nothing is tried again"
        asked = {str(request.body["messages"]) for request in server.requests("/v1/chat/completions")}
        assert len(asked) == len(set(salts)) / 3, "one prompt, new in every run"
        assert all(request.body["max_tokens"] == 1 for request in server.requests("/v1/chat/completions"))


@dataclass(frozen=True)
class Weights:
    server_name: str = "x1"
    revision: str = "r"
    path: Path = Path("/adapters/x1")
    manifest: Mapping[str, str] = field(default_factory=dict)


@pytest.mark.parametrize(("found", "apart"), [("salted", True), ("any adapter", False)])
@looped
async def test_an_adapters_values_are_not_found_under_the_same_salt(found: Any, apart: bool) -> None:
    async with stand_in() as server:
        server.memory = Memory(found)
        one = replica(server, adapter="x1")
        try:
            if apart:
                await one.check()
            else:
                with pytest.raises(NotIsolated, match="salt A without the adapter 599 of 600"):
                    await one.check()
        finally:
            await one.aclose()


@pytest.mark.parametrize(("found", "apart"), [("salted", True), ("any adapter", False)])
@looped
async def test_a_loaded_adapter_is_tested_before_its_first_request(found: Any, apart: bool) -> None:
    class Loader:
        @asynccontextmanager
        async def lent(self, replica: Replica, adapter: Adapter, deadline: float) -> AsyncIterator[None]:
            yield

    async with stand_in() as server:
        server.memory = Memory(found)
        made = Pool([replica(server)], PoolTerms(health_s=600), loader=Loader())
        finish_of(await pieces(made))
        before = server.tests
        with pytest.raises(GeneratorRefused) as caught:
            await pieces(made.adapted(Weights()))  # the recorded answer names the base model
        assert isinstance(caught.value, NotIsolated) is not apart
        assert server.tests == before + 4
        assert len(server.generations) == (2 if apart else 1)
        await made.aclose()


@looped
async def test_nothing_is_sent_before_the_proof_and_it_is_made_once() -> None:
    async with stand_in() as server, pool(server) as made:
        await asyncio.gather(*(pieces(made) for _ in range(5)))
        assert server.tests == 6
        first = next(n for n, request in enumerate(server.received) if request in server.generations)
        tests = [n for n, one in enumerate(server.received) if one.body and one not in server.generations]
        assert max(tests) < first


@looped
async def test_a_replica_that_fails_gets_no_prompt_and_the_others_serve() -> None:
    async with stand_in() as bad, stand_in() as good, pool(bad, good) as made:
        bad.memory = Memory("all")
        for _ in range(6):
            assert finish_of(await pieces(made)).salted
        assert (len(bad.generations), len(good.generations)) == (0, 6)
        assert made.refusal is None


@looped
async def test_where_no_replica_passes_questions_are_refused_with_the_reason_until_one_does() -> None:
    async with stand_in() as server, pool(server) as made:
        server.memory = Memory("all")
        asked = await asyncio.gather(*(pieces(made) for _ in range(5)), return_exceptions=True)
        assert all(isinstance(one, NotIsolated) and "share memory" in one.reason for one in asked), asked
        assert server.generations == []
        assert isolation_of(routes(made)) == (1, 0)
        server.memory = Memory("salted")
        await until(lambda: made.refusal is None)  # it is looked at again
        assert finish_of(await pieces(made)).salted


@looped
async def test_a_server_that_was_away_shows_it_again() -> None:
    async with stand_in() as server, pool(server) as made:
        made.terms = PoolTerms(health_s=600)
        await pieces(made)
        server.memory = Memory("all")
        await pieces(made)
        assert server.tests == 6, "as long as it is there, it is not asked again"
        server.faults = [status(502), status(502)]
        with pytest.raises(Unavailable):
            await pieces(made)
        with pytest.raises(NotIsolated):
            await pieces(made)


@looped
async def test_it_is_shown_again_after_a_while() -> None:
    async with stand_in() as server, pool(server) as made:
        made.terms = PoolTerms(health_s=0.02, prove_s=0.05)
        await pieces(made)
        server.memory = Memory("all")
        await until(lambda: made.refusal is not None)


@looped
async def test_a_server_that_is_away_is_logged_with_a_remedy() -> None:
    async with stand_in() as server:
        pass
    async with pool(server) as made:
        with capture_logs() as logged:
            await require_isolation(routes(made))
    (event,) = (one for one in logged if one["event"] == "a replica does not serve")
    assert event["remedy"] == UNREACHED


@looped
async def test_a_waived_pool_serves_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    async with stand_in() as server, pool(server, waived=True) as made:
        server.memory = Memory("all")
        given = routes(made)
        await require_isolation(given)
        assert isolation_of(given) == (0, 1)
        assert isinstance(finish_of(await pieces(made)), Finish)
        assert "serves, since its isolation is waived" in caplog.text
        made.reload([replica(server)], PoolTerms(name="main", health_s=600))
        await made.settled()
        with pytest.raises(NotIsolated):
            await pieces(made)


@looped
async def test_serving_does_not_begin_where_every_pool_is_refused() -> None:
    async with stand_in() as server, pool(server) as made:
        server.memory = Memory("none")
        with pytest.raises(NotIsolated, match="no pool can serve: the server does not show") as caught:
            await require_isolation(routes(made))
        assert "--enable-cache-report" in (caught.value.remedy or "")
        server.memory = Memory("salted")
        await require_isolation(routes(made))
        server.info["version"] = "0.5.1"
        with pytest.raises(NotIsolated, match="salts isolate from"):
            await require_isolation(routes(made))


@looped
async def test_serving_begins_where_a_server_is_away_or_another_pool_serves() -> None:
    async with pool(StandIn(base_url="http://127.0.0.1:9")) as made:
        await require_isolation(routes(made))
    async with stand_in() as server, pool(server) as made:
        server.memory = Memory("all")
        await require_isolation(routes(made, other=object()))
        with pytest.raises(NotIsolated):
            await pieces(made)


async def ask_as(made: Pool, tenant: str) -> Finish:
    stream = made.serving(tenant).generate(prompt(), salt="a" * 64, request_id="0" * 32, max_tokens=4, deadline=soon())
    return finish_of([piece async for piece in stream])


@looped
async def test_a_pool_without_salts_serves_one_tenant() -> None:
    async with stand_in() as server, pool(server, kind="openai") as made:
        assert not (await ask_as(made, "acme")).salted
        with pytest.raises(NotIsolated, match="several tenants would share"):
            await ask_as(made, "globex")
        assert not (await ask_as(made, "acme")).salted
        assert len(server.generations) == 2
        note_tenants(routes(made), 2)
        with pytest.raises(NotIsolated, match="several tenants would share"):
            await ask_as(made, "acme")
        with pytest.raises(NotIsolated, match="no pool can serve"):
            await require_isolation(routes(made))


@pytest.mark.parametrize("terms", [{"waived": True}, {"dedicated_to": "acme"}])
@looped
async def test_a_pool_without_salts_serves_several_where_that_is_waived_or_it_is_dedicated(
    terms: dict[str, Any],
) -> None:
    async with stand_in() as server, pool(server, kind="openai", **terms) as made:
        note_tenants(routes(made), 2)
        await require_isolation(routes(made))
        assert not (await ask_as(made, "acme")).salted
        if "waived" in terms:
            assert not (await ask_as(made, "globex")).salted
