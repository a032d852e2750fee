"""What the port of the counters promises, whoever keeps it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import msgspec
import pytest

from admission.counters import Counters, Granted, Refused, Use
from admission.limits import NO_AMOUNTS, WINDOW_S, Amounts, Budget, Draw
from admission.scopes import DEPLOYMENT, Scope, model_scope, root_scope, tenant_scope, user_scope
from tenancy.errors import InvalidInput
from tests.admission.conformance.rig import TTL_S, Clock, amounts, ask, draw, granted, refused, run, tenant, user

ACME, ANA, BO = tenant_scope("acme"), user_scope("acme", "ana"), user_scope("acme", "bo")


def minute(use: Use) -> tuple[int, int, int]:
    return use.minute.requests, use.minute.input, use.minute.output


def at_rest(use: Use) -> bool:
    return use.flight == use.held == NO_AMOUNTS


# --- Taking -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "need", "fits"),
    [
        ({"concurrent": 2}, amounts(), 2),
        ({"requests_per_minute": 3}, amounts(), 3),
        ({"kv_tokens": 100}, amounts(20, 20), 2),
        ({"input_tokens_per_minute": 100}, amounts(30, 1000), 3),
        ({"output_tokens_per_minute": 100}, amounts(1000, 30), 3),
        ({"tokens_per_minute": 100}, amounts(10, 15), 4),
        ({"money_per_month": 100}, amounts(9, 9, 26), 3),
        ({"concurrent": 0}, amounts(), 0),
    ],
)
@pytest.mark.parametrize("scope", [ACME, ANA, DEPLOYMENT, model_scope("m"), root_scope("acme", "r")])
def test_each_limit_of_each_scope_admits_what_fits_and_no_more(
    counters: Counters, scope: Scope, limits: dict[str, float], need: Amounts, fits: int
) -> None:
    async def main() -> None:
        limited = draw(scope, **limits)
        for _ in range(fits):
            await granted(counters, ask(tenant("acme"), limited, need=need))
        refusal = await refused(counters, ask(tenant("acme"), limited, need=need))
        assert (refusal.scope, refusal.bound, refusal.limit) == (scope, *next(iter(limits.items())))
        assert refusal.used <= refusal.limit < refusal.used + refusal.need
        assert refusal.retry_after > 0
        if fits:
            await granted(counters, ask(tenant("other"), tenant="other", need=need))

    if scope == ACME:
        limits_of_one = draw(ACME, **limits)

        async def alone() -> None:
            for _ in range(fits):
                await granted(counters, ask(limits_of_one, need=need))
            assert (await refused(counters, ask(limits_of_one, need=need))).scope == ACME

        run(alone(), counters)
    else:
        run(main(), counters)


@pytest.mark.parametrize("measure", ["requests", "tokens", "money"])
def test_a_budget_lasts_a_scope_s_whole_life(counters: Counters, clock: Clock, measure: str) -> None:
    async def main() -> None:
        root = Draw(root_scope("acme", "r"), budget=Budget(**{measure: 3}), until=clock.now + 3_600)
        for _ in range(3):
            lease = await granted(counters, ask(root, need=amounts(1, 0, 1)))
            await counters.settle(lease, amounts(1, 0, 1))
            await counters.leave(lease)
            clock.now += WINDOW_S + 2
        refusal = await refused(counters, ask(root, need=amounts(1, 0, 1)))
        assert (refusal.bound, refusal.limit, refusal.used) == (measure, 3, 3)
        assert (await counters.use(root.scope)).life.requests == 3
        clock.now += 3_600
        assert (await refused(counters, ask(root, need=amounts(1, 0, 1)))).bound == "deadline"

    run(main(), counters)


def test_a_refusal_takes_nothing_of_any_scope(counters: Counters) -> None:
    async def main() -> None:
        full = tenant("acme", tokens_per_minute=30)
        first = await granted(counters, ask(user("ana"), full, need=amounts(20)))
        before = [await counters.use(scope) for scope in (ACME, ANA, BO)]
        for who in ("ana", "bo") * 10:
            assert (await refused(counters, ask(user(who), full, need=amounts(20)))).scope == ACME
        assert [await counters.use(scope) for scope in (ACME, ANA, BO)] == before
        assert before[2] == Use()
        await granted(counters, ask(user("bo"), full, need=amounts(10)))
        await counters.leave(first)

    run(main(), counters)


def test_of_two_refusals_the_longer_wait_is_told(counters: Counters) -> None:
    async def main() -> None:
        both = (user("ana", concurrent=1), tenant("acme", requests_per_minute=1))
        await granted(counters, ask(*both))
        refusal = await refused(counters, ask(*both))
        assert refusal.scope == ACME
        assert WINDOW_S - 2 < refusal.retry_after <= WINDOW_S + 1

    run(main(), counters)


def test_a_repetition_of_a_live_lease_takes_nothing_more(counters: Counters) -> None:
    async def main() -> None:
        once = ask(tenant("acme", concurrent=1), need=amounts(5, 5))
        await granted(counters, once)
        use = await counters.use(ACME)
        assert await granted(counters, once) == once.lease
        assert await counters.use(ACME) == use
        await counters.leave(once.lease)
        assert at_rest(await counters.use(ACME))

    run(main(), counters)


def test_rooms_say_how_far_each_bound_is_used(counters: Counters, clock: Clock) -> None:
    async def main() -> None:
        wanted = ask(tenant("acme", concurrent=4, requests_per_minute=9, money_per_month=50), need=amounts(1, 1, 7))
        found = await counters.take(wanted)
        assert isinstance(found, Granted)
        rooms = {room.bound: room for room in found.rooms}
        assert {name: (room.limit, room.used) for name, room in rooms.items()} == {
            "concurrent": (4, 1),
            "requests_per_minute": (9, 1),
            "money_per_month": (50, 7),
        }
        assert rooms["concurrent"].resets_s == 0
        assert WINDOW_S <= rooms["requests_per_minute"].resets_s <= WINDOW_S + 1
        december = datetime(2026, 12, 1, tzinfo=UTC).timestamp()
        assert rooms["money_per_month"].resets_s == pytest.approx(december - clock.now, abs=1)

    run(main(), counters)


# --- Extending ----------------------------------------------------------------------------------------------------


def test_an_extension_is_held_or_refused_whole(counters: Counters) -> None:
    async def main() -> None:
        lease = await granted(counters, ask(user("ana"), tenant("acme", tokens_per_minute=100), need=amounts(20, 30)))
        assert await counters.extend(lease, amounts(0, 40), amounts(20, 10)) is None
        assert (await counters.use(ANA)).held == amounts(20, 70)
        refusal = await counters.extend(lease, amounts(0, 40), amounts(20, 60))
        assert refusal is not None
        assert (refusal.scope, refusal.bound, refusal.limit, refusal.used, refusal.need) == (
            ACME,
            "tokens_per_minute",
            100,
            90,
            40,
        )
        assert (await counters.use(ANA)).held == amounts(20, 70)
        assert await counters.extend(lease, amounts(0, 10), amounts(20, 60)) is None

    run(main(), counters)


def test_what_is_given_back_is_free_at_once_and_never_below_the_use(counters: Counters) -> None:
    async def main() -> None:
        full = tenant("acme", tokens_per_minute=100)
        lease = await granted(counters, ask(full, need=amounts(80, 20)))
        await refused(counters, ask(full, need=amounts(50)))
        assert await counters.extend(lease, amounts(-60), NO_AMOUNTS) is None
        other = await granted(counters, ask(full, need=amounts(50)))
        assert await counters.extend(lease, amounts(-100, -100), amounts(15, 3)) is None
        assert (await counters.use(ACME)).held == amounts(65, 3)
        await counters.leave(other)

    run(main(), counters)


def test_use_above_what_is_held_is_held_though_nothing_more_is_granted(counters: Counters) -> None:
    async def main() -> None:
        full = tenant("acme", tokens_per_minute=40)
        lease = await granted(counters, ask(full, need=amounts(10, 10)))
        assert await counters.extend(lease, NO_AMOUNTS, amounts(10, 50)) is None
        assert (await counters.use(ACME)).held == amounts(10, 50)
        assert (await refused(counters, ask(full, need=amounts(1)))).used == 60
        assert await counters.extend(lease, amounts(0, 1), amounts(10, 50)) is not None

    run(main(), counters)


def test_a_lease_that_is_over_grows_no_more(counters: Counters) -> None:
    async def main() -> None:
        lease = await granted(counters, ask(tenant()))
        await counters.settle(lease, NO_AMOUNTS)
        for over in (lease, "f" * 32):
            refusal = await counters.extend(over, amounts(0, 1), NO_AMOUNTS)
            assert isinstance(refusal, Refused)
            assert refusal.bound == "lease"
        assert (await counters.use(ACME)).held == NO_AMOUNTS

    run(main(), counters)


# --- Settling -----------------------------------------------------------------------------------------------------


def test_settles_once_with_what_was_used(counters: Counters, clock: Clock) -> None:
    async def main() -> None:
        lease = await granted(counters, ask(user(), tenant(), need=amounts(50, 50, 50)))
        assert (await counters.settle(lease, amounts(7, 3, 1))).booked
        assert not (await counters.settle(lease, amounts(1000, 1000))).booked
        assert (await counters.use(ANA)).flight.requests == 1
        assert not (await counters.leave(lease)).booked
        assert not (await counters.leave(lease)).booked
        assert not (await counters.settle(lease, amounts(9))).booked
        for scope in (ACME, ANA):
            assert minute(await counters.use(scope)) == (1, 7, 3)
            assert at_rest(await counters.use(scope))
        clock.now += WINDOW_S + 2
        assert minute(await counters.use(ACME)) == (0, 0, 0)

    run(main(), counters)


def test_leaving_settles_with_the_last_report(counters: Counters) -> None:
    async def main() -> None:
        lease = await granted(counters, ask(tenant(), need=amounts(50, 50)))
        await counters.extend(lease, NO_AMOUNTS, amounts(20, 4))
        await counters.extend(lease, NO_AMOUNTS, amounts(20, 2))
        assert (await counters.leave(lease)).booked
        assert minute(await counters.use(ACME)) == (1, 20, 4)
        assert at_rest(await counters.use(ACME))

    run(main(), counters)


def test_tokens_are_what_was_read_and_written_most_though_in_different_reports(counters: Counters) -> None:
    async def main() -> None:
        limited = tenant(tokens_per_minute=70)
        lease = await granted(counters, ask(limited, need=amounts(10, 10)))
        await counters.extend(lease, NO_AMOUNTS, amounts(30, 1))
        await counters.extend(lease, NO_AMOUNTS, amounts(19, 34))
        await counters.leave(lease)
        assert minute(await counters.use(ACME)) == (1, 30, 34)
        found = await refused(counters, ask(limited, need=amounts(3, 4)))
        assert (found.bound, found.used) == ("tokens_per_minute", 64)
        await granted(counters, ask(limited, need=amounts(3, 3)))

    run(main(), counters)


def test_nothing_negative_is_used(counters: Counters) -> None:
    async def main() -> None:
        lease = await granted(counters, ask(tenant()))
        with pytest.raises(InvalidInput):
            await counters.settle(lease, amounts(-1))
        with pytest.raises(InvalidInput):
            await counters.extend(lease, NO_AMOUNTS, amounts(0, -1))
        assert (await counters.settle(lease, amounts(1))).booked

    run(main(), counters)


def test_a_window_holds_what_happened_in_its_last_minute(counters: Counters, clock: Clock) -> None:
    async def main() -> None:
        limited = tenant("acme", requests_per_minute=2)
        first = clock.now
        await granted(counters, ask(limited))
        clock.now += 30
        await granted(counters, ask(limited))
        wait = (await refused(counters, ask(limited))).retry_after
        assert clock.now + wait == pytest.approx(first + WINDOW_S, abs=1)
        clock.now = first + WINDOW_S - 0.5
        await refused(counters, ask(limited))
        clock.now = first + WINDOW_S + 1
        await granted(counters, ask(limited))
        await refused(counters, ask(limited))

    run(main(), counters)


# --- Months -------------------------------------------------------------------------------------------------------


async def spend(counters: Counters, money: int, **limits: float) -> list[tuple[float, int]]:
    """The crossings that one request of so much `money` told of."""
    lease = await granted(counters, ask(tenant("acme", **limits), need=amounts(0, 0, 1)))
    settled = await counters.settle(lease, amounts(0, 0, money))
    left = await counters.leave(lease)
    assert all(crossing.scope == ACME for crossing in settled.crossed)
    return [(crossing.share, crossing.used) for crossing in (*settled.crossed, *left.crossed)]


def test_a_month_s_money_ends_with_the_month_and_tells_once_of_each_share(counters: Counters, clock: Clock) -> None:
    async def main() -> None:
        limits = {"money_per_month": 100, "soft": 0.8}
        assert await spend(counters, 79, **limits) == []
        assert await spend(counters, 1, **limits) == [(0.8, 80)]
        assert await spend(counters, 10, **limits) == []
        clock.now += WINDOW_S * 60
        assert await spend(counters, 10, **limits) == [(1.0, 100)]
        refusal = await refused(counters, ask(tenant("acme", **limits), need=amounts(0, 0, 1)))
        december = datetime(2026, 12, 1, tzinfo=UTC).timestamp()
        assert refusal.retry_after == pytest.approx(december - clock.now, abs=1)
        clock.now = december
        assert (await counters.use(ACME)).month == NO_AMOUNTS
        assert await spend(counters, 100, **limits) == [(0.8, 100), (1.0, 100)]

    run(main(), counters)


def test_an_expired_lease_that_crosses_tells_of_it_as_well(counters: Counters, clock: Clock) -> None:
    async def main() -> None:
        lease = await granted(counters, ask(tenant("acme", money_per_month=10, soft=0.5), need=amounts(0, 0, 1)))
        await counters.extend(lease, NO_AMOUNTS, amounts(0, 0, 6))
        clock.now += TTL_S + 1
        (reaped,) = await counters.reap()
        assert [crossing.share for crossing in reaped.crossed] == [0.5]

    run(main(), counters)


# --- Reaping ------------------------------------------------------------------------------------------------------


def test_the_reaper_settles_what_nobody_renewed(counters: Counters, clock: Clock) -> None:
    async def main() -> None:
        silent = await granted(counters, ask(user("ana"), tenant(), need=amounts(50, 50)))
        await counters.extend(silent, NO_AMOUNTS, amounts(20, 4))
        settled = await granted(counters, ask(user("ana"), tenant(), need=amounts(5, 5)))
        await counters.settle(settled, amounts(1, 1))
        alive = await granted(counters, ask(user("bo"), tenant(), need=amounts(3, 3)))
        clock.now += TTL_S / 2
        await counters.extend(alive, NO_AMOUNTS, NO_AMOUNTS)
        assert await counters.reap() == ()
        clock.now += TTL_S / 2 + 1
        reaped = {one.lease: one for one in await counters.reap()}
        assert {lease: one.used for lease, one in reaped.items()} == {silent: amounts(20, 4), settled: amounts(1, 1)}
        assert {one.tenant for one in reaped.values()} == {"acme"}
        assert await counters.reap() == ()
        use = await counters.use(ANA)
        assert at_rest(use)
        assert minute(use) == (2, 21, 5)
        assert (await counters.use(ACME)).held == amounts(3, 3)
        assert not (await counters.settle(silent, amounts(999))).booked
        await counters.leave(alive)

    run(main(), counters)


# --- At one time --------------------------------------------------------------------------------------------------


def test_forty_clients_at_a_limit_of_four_are_never_five(counters: Counters) -> None:
    async def main() -> None:
        inside, most, served = 0, 0, 0
        four = asyncio.Barrier(4)

        async def client(number: int) -> None:
            nonlocal inside, most, served
            while True:
                wanted = ask(user(f"u{number}"), tenant("acme", concurrent=4))
                if isinstance(await counters.take(wanted), Refused):
                    await asyncio.sleep(0)
                    continue
                inside += 1
                most = max(most, inside)
                await four.wait()
                inside -= 1
                await counters.leave(wanted.lease)
                served += 1
                return

        await asyncio.gather(*(client(number) for number in range(40)))
        assert (most, served) == (4, 40)
        assert at_rest(await counters.use(ACME))

    run(main(), counters)


def test_asks_and_answers_are_data(counters: Counters) -> None:
    async def main() -> None:
        wanted = ask(user("ana", concurrent=1), draw(root_scope("acme", "r"), Budget(requests=2)), need=amounts(1))
        assert msgspec.json.decode(msgspec.json.encode(wanted), type=type(wanted)) == wanted
        found = await counters.take(wanted)
        assert isinstance(found, Granted)
        assert msgspec.json.decode(msgspec.json.encode(found), type=Granted) == found

    run(main(), counters)


# --- What was spent before ----------------------------------------------------------------------------------------


def test_a_month_that_was_spent_elsewhere_begins_with_it_and_once(counters: Counters, clock: Clock) -> None:
    async def main() -> None:
        capped, free = tenant(money_per_month=100), user(money_per_month=1_000)
        await counters.seed("2026-11", {ACME: 90, ANA: 5})
        await counters.seed("2026-11", {ACME: 90, ANA: 5})
        assert (await counters.use(ACME)).month == Amounts(money=90)
        refusal = await refused(counters, ask(capped, free, need=amounts(money=11)))
        assert (refusal.scope, refusal.used, refusal.limit) == (ACME, 90, 100)
        lease = await granted(counters, ask(capped, free, need=amounts(money=10)))
        assert (await counters.settle(lease, amounts(money=10))).crossed
        # What was counted here stands: the same month is never told anew.
        await counters.seed("2026-11", {ACME: 3, ANA: 3})
        assert (await counters.use(ACME)).month == Amounts(money=100)
        assert (await counters.use(ANA)).month == Amounts(money=15)

    run(main(), counters)


def test_a_month_that_is_over_is_not_begun(counters: Counters, clock: Clock) -> None:
    async def main() -> None:
        await counters.seed("2026-10", {ACME: 90})
        await granted(counters, ask(tenant(money_per_month=100), need=amounts(money=100)))

    run(main(), counters)
