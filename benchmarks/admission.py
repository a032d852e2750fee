"""What admission adds to a question, in process; the last line is JSON.

    python -m benchmarks.admission [--quick] [--rounds 20000]

One question's life at the gate: admitted over its user, its key, its tenant, its model and the deployment (15 bounds
are set), its prompt reported, settled, left. `added` is the time of that block less the time of the same block without
a gate. The arms take turns, 50 questions each, so that whatever else the machine does meets all alike: no admission,
the gate with 10 tenants, and with 1,000. Each tenant has 10 users, and each arm's tenants ask in turn, 64 questions
being in flight meanwhile. `piece` is what a stream adds for each piece of text that it reports.

Then the counters alone, through their port: `take`, `settle` and `leave` of one lease.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from admission.counters import Ask, Counters, Granted
from admission.gate import Estimate, Gate, SharedLimits
from admission.limits import Amounts, Draw, Limits, TenantLimits
from admission.local import LocalCounters
from admission.scopes import tenant_scope, user_scope
from tenancy.control import Tenants
from tenancy.identity import Authenticator, Principal, Role
from tenancy.keys import MasterKey

MODEL = "large"
USERS, IN_FLIGHT, BLOCK = 10, 64, 50
MANY = 10**9
EACH = Limits(requests_per_minute=MANY, concurrent=MANY, tokens_per_minute=MANY, money_per_month=MANY)
SHARED = SharedLimits(Limits(requests_per_minute=MANY, concurrent=MANY), {MODEL: Limits(tokens_per_minute=MANY)})
SIZES = (10, 1_000)
COUNTERS: dict[str, Callable[[], Counters]] = {"memory": LocalCounters}


@dataclass
class Nothing:
    """In the place of a lease."""

    async def expect(self, _tokens: int) -> None: ...

    async def settle(self, _input: int, _output: int, _money: int) -> None: ...


@asynccontextmanager
async def nobody(_principal: Principal) -> AsyncIterator[Nothing]:
    yield Nothing()


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


class Arm:
    """Questions one after another; `gate` is `None` where there is no admission."""

    def __init__(self, gate: Gate | None, asking: Iterator[Principal]) -> None:
        self.gate = gate
        self.asking = asking
        self.times: list[int] = []
        self.pieces: list[float] = []

    async def question(self, principal: Principal) -> int:
        """Nanoseconds of one."""
        if self.gate is None:
            begun = time.perf_counter_ns()
            async with nobody(principal) as lease:
                await lease.expect(800)
                await lease.settle(800, 120, 3_480)
            return time.perf_counter_ns() - begun
        begun = time.perf_counter_ns()
        async with self.gate.admit(principal, Estimate(1_000, 512), model=MODEL, price=price) as held:
            await held.expect(800)
            await held.settle(800, 120, 3_480)
        return time.perf_counter_ns() - begun

    async def block(self, size: int) -> None:
        self.times += [await self.question(next(self.asking)) for _ in range(size)]

    async def stream(self, pieces: int) -> None:
        """Nanoseconds of one piece: of each answer's mean, since a clock is read as slowly as a piece is reported."""
        assert self.gate is not None
        async with self.gate.admit(next(self.asking), Estimate(1_000, 2_048), model=MODEL, price=price) as lease:
            begun = time.perf_counter_ns()
            for produced in range(pieces):
                await lease.produced(800, produced)
            self.pieces.append((time.perf_counter_ns() - begun) / pieces)


async def measured(ana: Principal, rounds: int) -> dict[str, object]:
    bare = Arm(None, callers(ana, SIZES[0]))
    gates = {size: Gate(LocalCounters(), lambda _: TenantLimits(EACH, EACH, EACH), shared=SHARED) for size in SIZES}
    arms = {size: Arm(gate, callers(ana, size)) for size, gate in gates.items()}
    async with AsyncExitStack() as stack:
        for arm in arms.values():
            assert arm.gate is not None
            for principal in itertools.islice(arm.asking, IN_FLIGHT):
                await stack.enter_async_context(arm.gate.admit(principal, Estimate(500, 100), model=MODEL, price=price))
            # All tenants have asked before anything is measured.
            await arm.block(max(SIZES))
            arm.times.clear()
        for _ in range(0, rounds, BLOCK):
            for each in (bare, *arms.values()):
                await each.block(BLOCK)
            for arm in arms.values():
                await arm.stream(512)
    without = microseconds(bare.times)
    found: dict[str, object] = {"questions": rounds, "no_admission_us": without}
    for size, arm in arms.items():
        with_gate = microseconds(arm.times)
        found[f"tenants_{size}"] = {
            "us": with_gate,
            "added_us": {name: round(value - without[name], 2) for name, value in with_gate.items()},
            "piece_us": microseconds(arm.pieces),
        }
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
    return {name: microseconds(values) for name, values in times.items()}


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
        print(f"{name:20} {values}", flush=True)
    found["port_us"] = ports = {name: asyncio.run(port(opened(), rounds)) for name, opened in COUNTERS.items()}
    for name, values in ports.items():
        print(f"{'port, ' + name:20} {values}", flush=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
