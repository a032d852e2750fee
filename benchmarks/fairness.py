"""Who is served how much, and who waits how long, when tenants compete for one replica; the last line is JSON.

    python -m benchmarks.fairness [--quick] [--seconds 120] [--scenario NAME]... [--step-ms 25] [--read-ms 0.35]
                                  [--write-ms 1.2]

The pool's own waiting room (`generation.lanes`) in simulated time, in three orders: first come first served, round
robin over users, and ours. The engine is a model: a step reads up to 512 tokens of prompts, in order of arrival, and
writes a token of each request whose prompt is read; it takes `step-ms`, and `read-ms` and `write-ms` for each of
these tokens. **The three numbers are assumptions until they are fitted to recorded runs of a real server.**

    noisy      one tenant asks 50 times as much as its neighbour; and the neighbour alone
    long       prompts of 28,000 tokens beside short ones
    agent      a user whose agent makes 47 calls at once, beside a colleague of the same tenant
    returning  a tenant comes back after half of the time, in which another had all
    weights    three tenants of weights 1, 2 and 4, all with more than can be served

`share` is of the service (tokens read, and twice those written) while the first request of each still waits or runs;
`wait` is until a request has a slot, `first` until its first token, in simulated seconds; those that never came count
with the time until the end. `gap` is the largest difference of service over weight between two users (of one tenant)
or tenants that both waited, divided by the bound 2 max(L, 2 M): L is the largest prompt, M the most tokens in flight.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from admission.fair import WRITTEN, FairQueue, Party, Place
from generation.lanes import Lanes, LaneTerms, Load, Ticket
from tenancy.errors import Unavailable

CHUNK = 512
TERMS = LaneTerms(slots=16, small_slots=2, small_tokens=1_000, prefill_tokens=16_384, queue=100_000)


@dataclass(eq=False)
class Asked:
    at: float
    party: Party
    tokens: int
    output: int
    ticket: Ticket[Seat] | None = None
    left: int = 0
    written: int = 0
    seated: float | None = None
    first: float | None = None
    task: asyncio.Task[Ticket[Seat]] | None = None


@dataclass(eq=False)
class Seat:
    load: Load = field(default_factory=Load)
    usable: bool = True

    def begin(self) -> bool:
        return False

    def abandon(self) -> None:
        return None


class FirstCome(FairQueue[Any]):
    """Whoever came first is next."""

    def heads(self) -> Iterator[Place[Any]]:
        yield from sorted(super().heads(), key=lambda place: place._order)


class RoundRobin(FairQueue[Any]):
    """Users take turns, whatever their requests cost."""

    def heads(self) -> Iterator[Place[Any]]:
        yield from sorted(super().heads(), key=lambda place: place._path[-1].stamp)


ORDERS: dict[str, type[FairQueue[Any]]] = {"first come": FirstCome, "round robin": RoundRobin, "ours": FairQueue}


@dataclass(frozen=True)
class Costs:
    """Of the engine's steps, in seconds."""

    step: float
    read: float
    write: float


class Simulation:
    """One scenario in one order."""

    def __init__(self, asked: list[Asked], order: type[FairQueue[Any]], costs: Costs, seconds: float) -> None:
        self.now, self.costs, self.seconds = 0.0, costs, seconds
        self.asked = sorted(asked, key=lambda one: one.at)
        self.seat = Seat()
        self.lanes: Lanes[Seat] = Lanes(lambda: [self.seat], TERMS)
        self.lanes.fair = order(patience_s=TERMS.patience_s, clock=lambda: self.now)
        self.running: list[Asked] = []
        self.gaps = Gaps()

    async def run(self) -> None:
        coming = iter(self.asked)
        following = next(coming, None)
        waiting: list[Asked] = []
        while self.now < self.seconds:
            while following is not None and following.at <= self.now:
                one, following = following, next(coming, None)
                one.task = asyncio.create_task(
                    self.lanes.enter(one.tokens, party=one.party, deadline=time.monotonic() + 86_400)
                )
                waiting.append(one)
                self.gaps.waits(one, 1)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            for one in [one for one in waiting if one.task is not None and one.task.done()]:
                waiting.remove(one)
                self._seat(one)
            if not self.running and following is None:
                break
            self.now += self._step() if self.running else max(0.001, (following.at if following else 0) - self.now)
            self.gaps.compare(self.running)
        for one in waiting:
            assert one.task is not None
            one.task.cancel()
        await asyncio.gather(*(one.task for one in waiting if one.task is not None), return_exceptions=True)

    def _seat(self, one: Asked) -> None:
        assert one.task is not None
        try:
            one.ticket = one.task.result()
        except Unavailable:
            return
        finally:
            self.gaps.waits(one, -1)
        one.seated, one.left = self.now, one.tokens
        self.gaps.served(one, one.tokens)
        self.running.append(one)

    def _step(self) -> float:
        """Read a chunk, write a token of whoever is read, and return how long that takes."""
        room = CHUNK
        writing = [one for one in self.running if not one.left]
        for one in self.running:
            read = min(room, one.left)
            one.left -= read
            room -= read
        took = self.costs.step + self.costs.read * (CHUNK - room) + self.costs.write * len(writing)
        for one in writing:
            assert one.ticket is not None
            if one.first is None:
                one.first = self.now + took
                one.ticket.begun()
            one.written += 1
            one.ticket.wrote(1)
            self.gaps.served(one, WRITTEN)
            if one.written >= one.output:
                self.running.remove(one)
                one.ticket.leave()
        return took


class Gaps:
    """Service over weight of users and tenants, and how far two that both wait move apart."""

    def __init__(self) -> None:
        self.service: dict[tuple[str, ...], float] = defaultdict(float)
        self.waiting: dict[tuple[str, ...], int] = defaultdict(int)
        self.worst, self.longest, self.flight = 0.0, 1, 1
        self._spans: dict[Any, tuple[float, float]] = {}

    def waits(self, one: Asked, change: int) -> None:
        for key in _keys(one.party):
            self.waiting[key] += change

    def served(self, one: Asked, service: float) -> None:
        self.longest = max(self.longest, one.tokens)
        for key, weight in zip(_keys(one.party), (one.party.weight, 1.0), strict=True):
            self.service[key] += service / weight

    def compare(self, running: list[Asked]) -> None:
        self.flight = max(self.flight, sum(one.tokens + one.output for one in running))
        spans = {}
        for pair in itertools.combinations([key for key, waits in self.waiting.items() if waits], 2):
            if pair[0][:-1] == pair[1][:-1]:
                apart = self.service[pair[0]] - self.service[pair[1]]
                least, most = self._spans.get(pair, (apart, apart))
                spans[pair] = min(least, apart), max(most, apart)
                self.worst = max(self.worst, spans[pair][1] - spans[pair][0])
        self._spans = spans

    @property
    def over_bound(self) -> float:
        return self.worst / (2 * max(self.longest, WRITTEN * self.flight))


def _keys(party: Party) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return (party.tenant,), (party.tenant, party.user)


def _stream(
    draw: random.Random, party: Party, rate: float, seconds: float, tokens: int, output: int, begin: float = 0.0
) -> list[Asked]:
    """Requests at random times, `rate` a second."""
    found, at = [], begin
    while (at := at + draw.expovariate(rate)) < seconds:
        found.append(Asked(at, party, draw.randint(tokens // 2, tokens), draw.randint(max(1, output // 2), output)))
    return found


def noisy(draw: random.Random, seconds: float) -> list[Asked]:
    return _stream(draw, Party("noisy", "u"), 25.0, seconds, 600, 60) + alone(draw, seconds)


def alone(draw: random.Random, seconds: float) -> list[Asked]:
    return _stream(draw, Party("quiet", "u"), 0.5, seconds, 600, 60)


def long(draw: random.Random, seconds: float) -> list[Asked]:
    party = Party("long", "u")
    giants = [Asked(at, party, 28_000, 100) for at in range(1, int(seconds), 15)]
    return giants + _stream(draw, Party("short", "u"), 2.0, seconds, 400, 40)


def agent(draw: random.Random, seconds: float) -> list[Asked]:
    burst = [Asked(2.0, Party("acme", "agent"), draw.randint(400, 900), draw.randint(50, 150)) for _ in range(47)]
    return burst + _stream(draw, Party("acme", "colleague"), 0.5, seconds, 600, 60)


def returning(draw: random.Random, seconds: float) -> list[Asked]:
    busy = _stream(draw, Party("busy", "u"), 12.0, seconds, 600, 60)
    return busy + _stream(draw, Party("back", "u"), 12.0, seconds, 600, 60, begin=seconds / 2)


def weights(draw: random.Random, seconds: float) -> list[Asked]:
    found = []
    for weight in (1, 2, 4):
        found += _stream(draw, Party(f"weight {weight}", "u", float(weight)), 12.0, seconds, 600, 60)
    return found


SCENARIOS: dict[str, Callable[[random.Random, float], list[Asked]]] = {
    "noisy": noisy,
    "noisy, neighbour alone": alone,
    "long": long,
    "agent": agent,
    "returning": returning,
    "weights": weights,
}


def measured(scenario: str, order: str, costs: Costs, seconds: float) -> dict[str, Any]:
    asked = SCENARIOS[scenario](random.Random(7), seconds)
    simulation = Simulation(asked, ORDERS[order], costs, seconds)
    asyncio.run(simulation.run())
    by: dict[str, list[Asked]] = defaultdict(list)
    for one in simulation.asked:
        by[f"{one.party.tenant}/{one.party.user}"].append(one)
    begin = max(ones[0].at for ones in by.values())
    service = {who: sum(_service(one) for one in ones if (one.seated or 0) >= begin) for who, ones in by.items()}
    total = sum(service.values()) or 1
    return {
        "scenario": scenario,
        "order": order,
        "gap": round(simulation.gaps.over_bound, 3),
        "clients": {
            who: {
                "share": round(service[who] / total, 3),
                "wait": _percentiles([(seconds if one.seated is None else one.seated) - one.at for one in ones]),
                "first": _percentiles([(seconds if one.first is None else one.first) - one.at for one in ones]),
                "requests": len(ones),
            }
            for who, ones in by.items()
        },
    }


def _service(one: Asked) -> int:
    return one.tokens - one.left + WRITTEN * one.written if one.seated is not None else 0


def _percentiles(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {f"p{part}": round(ordered[min(len(ordered) - 1, len(ordered) * part // 100)], 3) for part in (50, 99)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="20 simulated seconds")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--scenario", action="append", choices=list(SCENARIOS))
    for name, value in (("--step-ms", 25.0), ("--read-ms", 0.35), ("--write-ms", 1.2)):
        parser.add_argument(name, type=float, default=value)
    chosen = parser.parse_args()
    costs = Costs(chosen.step_ms / 1e3, chosen.read_ms / 1e3, chosen.write_ms / 1e3)
    seconds = 20.0 if chosen.quick else chosen.seconds
    found = []
    for scenario in chosen.scenario or SCENARIOS:
        for order in ORDERS:
            result = measured(scenario, order, costs, seconds)
            found.append(result)
            print(f"{scenario:24} {order:12} worst gap over bound {result['gap']:.3f}", flush=True)
            for who, of in result["clients"].items():
                wait, first = of["wait"], of["first"]
                print(
                    f"    {who:18} share {of['share']:.3f}  wait p50 {wait['p50']:8.3f} p99 {wait['p99']:8.3f}  "
                    f"first p50 {first['p50']:8.3f} p99 {first['p99']:8.3f} s  of {of['requests']}"
                )
    print(json.dumps({"simulated_seconds": seconds, "costs_s": vars(costs), "results": found}))


if __name__ == "__main__":
    main()
