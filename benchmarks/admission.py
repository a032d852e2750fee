"""What admission adds to a question, in process; the last line is JSON.

    python -m benchmarks.admission [--quick] [--rounds 20000]

One question's life at the gate: admitted, its prompt reported, settled, left. `added` is the time of that block less
the time of the same block without a gate. The arms take turns, 50 questions each, so that whatever else the machine
does meets all alike: no admission; 10 tenants, and 1,000, with four bounds of each tenant and each of its users; and
1,000 tenants where the key, the model and the deployment have limits as well: five scopes, 15 bounds. In the arms with
`headers` the state of the tenant's bounds is read too, as the headers of an HTTP answer need it. Each tenant has a
contract and 10 users, and each arm's tenants ask in turn, 64 questions being in flight meanwhile. `piece` is what a
stream adds for each piece of text that it reports. `wall` is what a question waits for, `cpu` without what others took
of the machine. `reference` is a loop over 1,000 numbers, by which runs on busy and idle machines are compared.

Then the counters alone, through their port: `take`, `settle` and `leave` of one lease over a user and a tenant, in
memory and at a real Redis on this machine, beside a bare round trip to it (`PING`); and leases a second at Redis with
64 requests at one time. `cpu_a_call` are microseconds that either side works for a call, busy machine or not.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import secrets
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from admission.counters import Ask, Counters, Granted
from admission.gate import ROOMS, Estimate, Gate, SharedLimits
from admission.limits import Amounts, Draw, Limits, TenantLimits
from admission.local import LocalCounters
from admission.scopes import tenant_scope, user_scope
from tenancy.contract import Contract
from tenancy.control import Tenants
from tenancy.identity import Authenticator, Principal, Role
from tenancy.keys import MasterKey

MODEL = "large"
USERS, IN_FLIGHT, BLOCK = 10, 64, 50
MANY = 10**9
EACH = Limits(requests_per_minute=MANY, concurrent=MANY, tokens_per_minute=MANY, money_per_month=MANY)
SHARED = SharedLimits(Limits(requests_per_minute=MANY, concurrent=MANY), {MODEL: Limits(tokens_per_minute=MANY)})
TWO, THREE = TenantLimits(tenant=EACH, user=EACH), TenantLimits(EACH, EACH, EACH)
ARMS = {
    "tenants_10": (10, TWO, SharedLimits(), False),
    "tenants_1000": (1_000, TWO, SharedLimits(), False),
    "tenants_1000_headers": (1_000, TWO, SharedLimits(), True),
    "five_scopes": (1_000, THREE, SHARED, False),
    "five_scopes_headers": (1_000, THREE, SHARED, True),
}
MOST_TENANTS = 1_000
COUNTERS: dict[str, Callable[[], Counters]] = {"memory": LocalCounters}
AT_REDIS = 1 / 4
"""Share of the rounds that are asked of Redis, which takes longer."""


class Nothing:
    """In the place of a gate and of a lease."""

    async def __aenter__(self) -> Nothing:
        return self

    async def __aexit__(self, *_raised: object) -> None: ...

    async def expect(self, _tokens: int) -> None: ...

    async def settle(self, _input: int, _output: int, _money: int) -> None: ...


def a_principal(folder: Path) -> Principal:
    """One that was authenticated; the others of the benchmark differ in their ids."""
    tenants = Tenants(folder, MasterKey(bytes(32)))
    try:
        tenants.create("acme")
        key = tenants.create_key("acme", "ana", [Role.READER])
        return Authenticator(tenants).authenticate(key.text, "192.0.2.1")
    finally:
        tenants.close()


def callers(ana: Principal, tenants: int) -> Iterator[Principal]:
    """Each tenant in turn, each time with its next user, without end."""
    for number in itertools.count():
        user, tenant = number // tenants % USERS, number % tenants
        name = f"{tenant:04d}"
        yield replace(ana, tenant_id=f"t{name}", user_id=f"u{name}-{user}", credential_id=f"k{name}-{user}")


def price(input_tokens: int, output_tokens: int) -> int:
    return 3 * input_tokens + 9 * output_tokens


@dataclass
class Times:
    """Nanoseconds, one of each a question, or a piece."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def add(self, begun: tuple[int, int], parts: int = 1) -> None:
        wall, cpu = now()
        self.wall.append((wall - begun[0]) / parts)
        self.cpu.append((cpu - begun[1]) / parts)

    @property
    def microseconds(self) -> dict[str, dict[str, float]]:
        return {"wall": microseconds(self.wall), "cpu": microseconds(self.cpu)}


def now() -> tuple[int, int]:
    return time.perf_counter_ns(), time.thread_time_ns()


class Arm:
    """Questions one after another; `gate` is `None` where there is no admission."""

    def __init__(self, gate: Gate | None, asking: Iterator[Principal], *, headers: bool = False) -> None:
        self.gate = gate
        self.asking = asking
        self.contract = Contract()
        self.headers = headers
        self.questions, self.pieces = Times(), Times()

    async def question(self) -> None:
        principal, request_id = next(self.asking), secrets.token_hex(16)
        begun = now()
        if self.gate is None:
            async with Nothing() as lease:
                await lease.expect(800)
                await lease.settle(800, 120, 3_480)
        else:
            asked = {"model": MODEL, "price": price, "request_id": request_id}
            entering = self.gate.admit(principal, Estimate(1_000, 512), self.contract, **asked)  # type: ignore[arg-type]
            async with entering as held:
                await held.expect(800)
                await held.settle(800, 120, 3_480)
        self.questions.add(begun)

    async def block(self, size: int) -> None:
        ROOMS.set([] if self.headers else None)
        for _ in range(size):
            await self.question()
        ROOMS.set(None)

    async def stream(self, pieces: int) -> None:
        """Of each answer the mean of its pieces, since a clock is read as slowly as a piece is reported."""
        assert self.gate is not None
        async with self.gate.admit(next(self.asking), Estimate(1_000, 2_048), model=MODEL, price=price) as lease:
            begun = now()
            for produced in range(pieces):
                await lease.produced(800, produced)
            self.pieces.add(begun, pieces)


async def measured(ana: Principal, rounds: int) -> dict[str, Any]:
    bare, arms = Arm(None, callers(ana, 1)), {}
    async with AsyncExitStack() as stack:
        for name, (tenants, limits, shared, headers) in ARMS.items():
            gate = Gate(LocalCounters(), lambda _, limits=limits: limits, shared=shared)  # type: ignore[misc]
            arm = arms[name] = Arm(gate, callers(ana, tenants), headers=headers)
            for principal in itertools.islice(arm.asking, IN_FLIGHT):
                await stack.enter_async_context(gate.admit(principal, Estimate(500, 100), model=MODEL, price=price))
            # All tenants have asked before anything is measured.
            await arm.block(MOST_TENANTS)
            arm.questions = Times()
        for _ in range(0, rounds, BLOCK):
            for each in (bare, *arms.values()):
                await each.block(BLOCK)
            for arm in arms.values():
                await arm.stream(512)
    without = bare.questions.microseconds
    found: dict[str, Any] = {"questions": rounds, "reference_us": reference(), "no_admission_us": without}
    for name, arm in arms.items():
        added = {
            kind: {part: round(value - without[kind][part], 2) for part, value in parts.items()}
            for kind, parts in arm.questions.microseconds.items()
        }
        found[name] = {"added_us": added, "piece_us": arm.pieces.microseconds}
    return found


async def port(counters: Counters, rounds: int, tenants: int = 100) -> dict[str, dict[str, float]]:
    """Microseconds of each call of one lease over a user and a tenant, of `rounds` leases one after another."""
    times: dict[str, list[int]] = {"take": [], "settle": [], "leave": [], "take_and_settle": []}
    used = Amounts(0, 800, 120, 3_480)
    for number in range(rounds):
        tenant = f"t{number % tenants}"
        draws = (Draw(user_scope(tenant, f"u{number % 7}"), EACH), Draw(tenant_scope(tenant), EACH))
        ask = Ask(f"{number:032x}", tenant, draws, Amounts(1, 1_000, 256, 5_304), 30.0)
        moments = [time.perf_counter_ns()]
        granted = await counters.take(ask)
        moments.append(time.perf_counter_ns())
        await counters.settle(ask.lease, used)
        moments.append(time.perf_counter_ns())
        await counters.leave(ask.lease)
        moments.append(time.perf_counter_ns())
        assert isinstance(granted, Granted)
        for name, (before, after) in zip(times, itertools.pairwise(moments), strict=False):
            times[name].append(after - before)
        times["take_and_settle"].append(moments[2] - moments[0])
    await counters.aclose()
    return {name: microseconds(values) for name, values in times.items()}


def cpu_of(client: Any) -> float:
    """Seconds that the server's own thread has worked."""
    found = client.info("cpu")
    return float(found["used_cpu_user_main_thread"] + found["used_cpu_sys_main_thread"])


def at_redis(rounds: int) -> dict[str, Any]:
    from admission.redis import RedisCounters
    from admission.redis_link import Link
    from tenancy.redis_settings import RedisSettings
    from tests.support.redis_server import RedisServer

    async def crowd(each: int) -> float:
        """Leases a second of `IN_FLIGHT` clients that ask without a pause."""
        counters = counters_at_redis()

        async def client(number: int) -> None:
            draws = (Draw(user_scope("crowd", f"u{number}"), EACH), Draw(tenant_scope("crowd"), EACH))
            for turn in range(each):
                ask = Ask(f"{number:016x}{turn:016x}", "crowd", draws, Amounts(1, 1_000, 256, 5_304), 30.0)
                await counters.take(ask)
                await counters.settle(ask.lease, Amounts(0, 800, 120, 3_480))
                await counters.leave(ask.lease)

        begun = time.perf_counter()
        await asyncio.gather(*(client(number) for number in range(IN_FLIGHT)))
        took = time.perf_counter() - begun
        await counters.aclose()
        return each * IN_FLIGHT / took

    def counters_at_redis() -> RedisCounters:
        settings = RedisSettings(
            url=server.url, password_file=str(server.password_file), timeout_s=10, connect_timeout_s=10
        )
        return RedisCounters(Link(settings))

    with tempfile.TemporaryDirectory(prefix="strongroom-admission-") as folder:
        server = RedisServer(Path(folder) / "redis", persistent=False)
        server.start()
        try:
            with server.client() as client:
                ours, its = time.process_time(), cpu_of(client)
                found: dict[str, Any] = dict(asyncio.run(port(counters_at_redis(), rounds)))
                ours, its = time.process_time() - ours, cpu_of(client) - its
            found["cpu_a_call"] = {"client": round(ours / rounds / 3 * 1e6), "server": round(its / rounds / 3 * 1e6)}
            pings = []
            with server.client() as client:
                for _ in range(rounds):
                    begun = time.perf_counter_ns()
                    client.ping()
                    pings.append(time.perf_counter_ns() - begun)
            found["ping"] = microseconds(pings)
            found["leases_per_s_of_64"] = round(asyncio.run(crowd(max(10, rounds // 100))))
        finally:
            server.kill()
    return found


def reference() -> dict[str, float]:
    """What this machine takes now for a loop whose time is known: figures of two runs are compared by it."""
    times = []
    for _ in range(2_000):
        begun = time.perf_counter_ns()
        sum(range(1_000))
        times.append(time.perf_counter_ns() - begun)
    return microseconds(times)


def microseconds(nanoseconds: Sequence[float]) -> dict[str, float]:
    cuts = statistics.quantiles(nanoseconds, n=100, method="inclusive")
    return {"p50": round(cuts[49] / 1e3, 2), "p99": round(cuts[98] / 1e3, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="1,000 questions of each")
    parser.add_argument("--rounds", type=int, default=20_000)
    chosen = parser.parse_args()
    rounds = 1_000 if chosen.quick else chosen.rounds
    with tempfile.TemporaryDirectory(prefix="strongroom-admission-") as folder:
        ana = a_principal(Path(folder))
    found = asyncio.run(measured(ana, rounds))
    for name, values in found.items():
        print(f"{name:25} {values}", flush=True)
    found["port_us"] = ports = {name: asyncio.run(port(opened(), rounds)) for name, opened in COUNTERS.items()}
    ports["redis"] = at_redis(max(500, int(rounds * AT_REDIS)))
    for name, values in ports.items():
        print(f"{'port, ' + name:25} {values}", flush=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
