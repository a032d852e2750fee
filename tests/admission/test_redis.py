"""What is Redis's own: its clock, its keys and their end, what a server has to be, and what happens where it is not."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from admission.away import UnfitStore
from admission.counters import Refused
from admission.limits import WINDOW_S, Amounts, Budget
from admission.redis import PREFIX, RedisCounters
from admission.redis_link import LONGEST_PAUSE_S, Link
from admission.scopes import DEPLOYMENT, Scope, model_scope, root_scope, tenant_scope, user_scope
from admission.settings import AdmissionSettings
from admission.tally import month_end, month_of
from service.wiring import counters_at
from tenancy.errors import InvalidInput, LimitsUnavailable
from tenancy.redis_settings import RedisSettings
from tests.admission.conformance.conftest import settings_of
from tests.admission.conformance.rig import MID_MONTH, Clock, amounts, ask, draw, granted, run, tenant, user
from tests.support.redis_server import RedisServer


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    made = RedisServer(tmp_path / "redis")
    made.start()
    yield made
    made.kill()


def counters_of(server: RedisServer, clock: Clock | None = None) -> RedisCounters:
    return RedisCounters(Link(settings_of(server)), clock=clock)


def test_the_server_s_clock_decides(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process whose clock is an hour ahead sees the same windows."""
    counters = counters_of(server)

    async def main() -> None:
        limited = tenant("acme", requests_per_minute=1)
        await granted(counters, ask(limited))
        ahead = time.time() + 3_600
        monkeypatch.setattr(time, "time", lambda: ahead)
        found = await counters.take(ask(limited))
        assert isinstance(found, Refused)
        assert 0 < found.retry_after <= WINDOW_S + 1

    run(main(), counters)


def test_months_are_those_of_the_calendar(server: RedisServer) -> None:
    clock = Clock()
    counters = counters_of(server, clock)
    day = datetime(2023, 12, 31, 23, 59, 59, tzinfo=UTC)
    ends = [datetime(year, month, 1, tzinfo=UTC) for year in (2024, 2027, 2028, 2100) for month in range(1, 13)]
    instants = [day, *ends, *(end - timedelta(seconds=1) for end in ends)]

    async def main() -> None:
        for at in instants:
            clock.now = at.timestamp()
            scope = tenant_scope(f"{clock.now:.0f}")
            await counters.seed(month_of(clock.now), {scope: 5})
            assert (await counters.use(scope)).month.money == 5, f"{at} is of {month_of(clock.now)}"
            found = await counters.take(ask(draw(scope, money_per_month=5), need=amounts(0, 0, 1)))
            assert isinstance(found, Refused)
            assert found.retry_after == pytest.approx(month_end(clock.now) - clock.now, abs=1e-3)

    run(main(), counters)


def test_keys_end_with_what_they_count(server: RedisServer) -> None:
    clock = Clock()
    counters = counters_of(server, clock)

    def kept() -> dict[str, int]:
        with server.client() as client:
            found = {key.decode().removeprefix(PREFIX): int(client.ttl(key)) for key in client.keys("*")}
        assert found.pop("epoch") == -1
        return found

    async def main() -> None:
        scopes = {
            "s:tenant:acme:acme": tenant("acme", money_per_month=10),
            "s:user:acme:ana": user("ana"),
            "s:root:acme:r": draw(root_scope("acme", "r"), Budget(requests=5), until=MID_MONTH + 900),
        }
        lease = await granted(counters, ask(*scopes.values(), need=amounts(5)))
        assert kept() == dict.fromkeys([*scopes, f"l:{lease}", "leases"], -1), "what is in use never expires"
        await counters.settle(lease, amounts(5))
        assert set(kept().values()) == {-1}
        await counters.leave(lease)
        left = kept()
        assert left.keys() == scopes.keys()
        month = month_end(MID_MONTH) - MID_MONTH
        for key, lasts in (("s:user:acme:ana", WINDOW_S + 2), ("s:root:acme:r", 900), ("s:tenant:acme:acme", month)):
            assert lasts + WINDOW_S - 20 < left[key] <= lasts + WINDOW_S
        clock.now += WINDOW_S + 2
        assert await counters.reap() == ()
        lease = await granted(counters, ask(user("ana")))
        await counters.leave(lease)
        assert "s:user:acme:ana" in kept()

    run(main(), counters)


def test_scopes_of_one_id_are_apart(server: RedisServer) -> None:
    counters = counters_of(server)
    same: list[Scope] = [
        tenant_scope("x"), user_scope("x", "x"), user_scope("x", "y"), root_scope("x", "x"), root_scope("y", "x"),
        model_scope("x"), model_scope("x:x"), model_scope("x}y{"), DEPLOYMENT,
    ]  # fmt: skip

    async def main() -> None:
        for number, scope in enumerate(same, 1):
            await counters.recall(scope, time.time() + 60, Amounts(number))
        assert [(await counters.use(scope)).life.requests for scope in same] == list(range(1, len(same) + 1))

    run(main(), counters)


def test_a_thousand_expired_leases_are_reaped_in_steps(server: RedisServer) -> None:
    clock = Clock()
    counters = counters_of(server, clock)

    async def main() -> None:
        leases = [await granted(counters, ask(tenant(), need=amounts(1))) for _ in range(250)]
        clock.now += 31
        reaped = await counters.reap()
        assert sorted(one.lease for one in reaped) == sorted(leases)
        assert (await counters.use(tenant_scope("acme"))).minute.requests == 250

    run(main(), counters)


def test_after_a_long_outage_each_of_many_leases_gets_its_time(server: RedisServer) -> None:
    clock = Clock()
    counters = counters_of(server, clock)

    async def main() -> None:
        leases = [await granted(counters, ask(tenant(), need=amounts(1))) for _ in range(250)]
        assert await counters.reap() == ()
        clock.now += 300
        assert await counters.reap() == (), "nobody had a chance to renew them, in whichever step they are looked at"
        clock.now += 15
        assert await counters.reap() == ()
        clock.now += 16
        assert sorted(one.lease for one in await counters.reap()) == sorted(leases)

    run(main(), counters)


def test_a_script_that_the_server_forgot_is_sent_again(server: RedisServer) -> None:
    counters = counters_of(server)

    async def main() -> None:
        lease = await granted(counters, ask(tenant()))
        with server.client() as client:
            client.script_flush()
        assert (await counters.settle(lease, amounts(1))).booked
        await counters.leave(lease)

    run(main(), counters)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
def test_each_event_loop_has_connections_of_its_own(server: RedisServer) -> None:
    """As with a command that asks in one loop and ends in another; the first one's are left to the end of it."""
    counters = counters_of(server)

    async def once() -> None:
        await granted(counters, ask(tenant()))

    for _ in range(3):
        asyncio.run(once())
    asyncio.run(counters.aclose())
    run(once(), counters)
    with server.client() as client:
        assert client.zcard(f"{PREFIX}leases") == 4
    gc.collect()


def test_a_full_server_admits_nothing_and_ends_what_runs(server: RedisServer) -> None:
    counters = counters_of(server)

    async def main() -> None:
        lease = await granted(counters, ask(tenant(), need=amounts(5)))
        with server.client() as client:
            client.config_set("maxmemory", "1")
            with pytest.raises(LimitsUnavailable, match="out of memory"):
                await counters.take(ask(tenant()))
            assert await counters.extend(lease, amounts(), amounts(3)) is None
            assert (await counters.settle(lease, amounts(4))).booked
            await counters.leave(lease)
            client.config_set("maxmemory", "0")
        await granted(counters, ask(tenant()))
        assert (await counters.use(tenant_scope("acme"))).minute == Amounts(2, 4)

    run(main(), counters)


def test_a_damaged_key_refuses_and_changes_nothing(server: RedisServer) -> None:
    counters = counters_of(server)

    async def main() -> None:
        with server.client() as client:
            client.set(f"{PREFIX}s:tenant:acme:acme", b"\xc1 not ours")
            with pytest.raises(LimitsUnavailable, match="another program"):
                await counters.take(ask(user("ana"), tenant("acme")))
            assert (await counters.use(user_scope("acme", "ana"))).minute == Amounts()
            assert counters.available, "other tenants are served"
            await granted(counters, ask(tenant("globex"), tenant="globex"))

    run(main(), counters)


def test_a_server_that_evicts_by_itself_is_refused_by_name_and_remedy(server: RedisServer) -> None:
    counters = counters_of(server)

    async def main() -> None:
        with server.client() as client:
            client.config_set("maxmemory-policy", "allkeys-lru")
            with pytest.raises(UnfitStore, match="allkeys-lru") as unfit:
                await counters.link.check()
            assert "noeviction" in str(unfit.value.remedy)
            client.config_set("maxmemory-policy", "noeviction")
        assert (await counters.link.check()).startswith("8.")

    run(main(), counters)


def test_a_wrong_password_is_away_at_once_and_says_what_to_check(server: RedisServer, tmp_path: Path) -> None:
    (tmp_path / "wrong").write_text("wrong")
    settings = msgspec.structs.replace(settings_of(server), password_file=str(tmp_path / "wrong"), retry_s=60)
    counters = RedisCounters(Link(settings))

    async def main() -> None:
        with pytest.raises(LimitsUnavailable) as refused:
            await counters.take(ask(tenant()))
        assert "admission.redis.password_file" in str(refused.value.remedy)
        assert "wrong" not in f"{refused.value} {refused.value.item} {counters.link.detail}"
        with pytest.raises(LimitsUnavailable, match="left alone"):
            await counters.take(ask(tenant()))

    run(main(), counters)


def test_a_server_that_hangs_costs_two_timeouts_and_then_none(server: RedisServer) -> None:
    settings = msgspec.structs.replace(settings_of(server), timeout_s=0.2, connect_timeout_s=0.2, retry_s=60)
    counters = RedisCounters(Link(settings))

    async def main() -> None:
        await counters.link.check()
        server.pause()
        try:
            for _ in range(20):
                with pytest.raises(LimitsUnavailable):
                    await counters.take(ask(tenant()))
            assert counters.link.counts["outages"] == 1
            assert counters.link.counts["calls_while_away"] == 20
            assert not counters.available
        finally:
            server.resume()

    begun = time.monotonic()
    run(main(), counters)
    assert time.monotonic() - begun < 20 * 0.2


def test_a_server_that_is_back_is_noticed_soon(tmp_path: Path) -> None:
    """The pause between attempts grows to two seconds and no further."""
    link = Link(RedisSettings(retry_s=0.5))
    breaker = link._breaker
    for _ in range(20):
        breaker.failed()
    assert breaker._pause == LONGEST_PAUSE_S  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("changes", "item"),
    [
        ({"url": "http://127.0.0.1"}, "admission.redis.url"),
        ({"url": "redis://:secret@127.0.0.1"}, "admission.redis.url"),
        ({"url": "redis://counters.example:6379"}, "admission.redis.url"),
        ({"password_file": "/nowhere"}, "admission.redis.password_file"),
        ({"url": "rediss://counters.example", "ca_file": "/nowhere"}, "admission.redis.ca_file"),
    ],
)
def test_settings_that_cannot_be_used_are_named(changes: dict[str, str], item: str) -> None:
    redis = msgspec.convert(changes, RedisSettings)
    with pytest.raises(InvalidInput) as refused:
        counters_at(AdmissionSettings(store="redis", redis=redis))
    assert refused.value.item == item
    assert "secret" not in str(refused.value)
    counters_at(AdmissionSettings(store="redis", redis=RedisSettings(url="rediss://counters.example:6379/1")))


def test_the_documented_user_may_do_all_that_is_needed(server: RedisServer, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/operations/limits.md").read_text()
    (line,) = (line for line in page.splitlines() if line.startswith("ACL SETUSER"))
    with server.client() as client:
        client.execute_command(*line.replace("PASSWORD", "pw").split())
    (tmp_path / "pw").write_text("pw")
    settings = msgspec.structs.replace(
        settings_of(server), username="strongroom-counters", password_file=str(tmp_path / "pw")
    )
    counters = RedisCounters(Link(settings))

    async def main() -> None:
        assert (await counters.link.check()).startswith("8.")
        await counters.seed(month_of(time.time()), {tenant_scope("acme"): 1})
        lease = await granted(counters, ask(tenant(money_per_month=5), need=amounts(1, 1, 1)))
        assert await counters.extend(lease, amounts(1), amounts(1)) is None
        await counters.settle(lease, amounts(1, 0, 1))
        await counters.leave(lease)
        await counters.report(ask(tenant()), amounts(1), recent=True)
        assert await counters.reap() == ()
        assert (await counters.use(tenant_scope("acme"))).month.money == 2

    run(main(), counters)
