"""Who is served how much, and who waits how long, when tenants compete for one replica; the last line is JSON.

    python -m benchmarks.fairness [--quick] [--seconds 300] [--scenario NAME]... [--assumed]
    python -m benchmarks.fairness --seeds 5 [--seconds 600] [--scenario NAME]... [--assumed] [--pace-slots 2]
    python -m benchmarks.fairness --fit [--scenario NAME]...
    python -m benchmarks.fairness --record [--seconds 60] [--scenario noisy] [--scenario long]

The pool's own waiting room (`generation.lanes`) in three orders: first come first served, round robin over users, and
ours: without slots for guests, as it is by default, and paced (`pace_slots`, and long prompts in pieces). By default
the engine is a model in simulated time (`fairness_engine`), whose costs are fitted to runs that were recorded on a real
SGLang server; how far the model is from these runs is printed first. The costs are fitted to `FITTED_TO`, and the other
recordings are what it is tested with. `--assumed` takes the costs of a larger model that nobody measured. `--seeds`
compares several draws of the traffic. `--record` makes the recordings anew: it starts a real SGLang server on the
processor, as the tests do. Its context holds 4,096 tokens, so that the long prompts there have 3,500.

    noisy      one tenant asks 50 times as much as its neighbour; and the neighbour alone
    long       prompts of 28,000 tokens beside short ones; and the short ones alone
    agent      a user whose agent makes 47 calls at once every 150 s, beside a colleague of the same tenant; and alone
    returning  a tenant comes back after half of the time, in which another had all
    weights    three tenants of weights 1, 2 and 4, all with more than can be served

`share` is of the service (tokens read, and twice those written) since the first request of each; `wait` is until a
request has a slot, `first` until its first token, `total` until its last; those that never came count with the time
until the end, those that were turned away because too many waited do not. `with / without` compares the p99 of the
same requests beside the aggressor and alone. `gap` is the largest difference of service over weight between two users
(of one tenant) or tenants that both waited, divided by the bound 2 max(L, 2 M): L is the largest prompt, M the most
tokens in flight.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import tempfile
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from admission.fair import Party
from benchmarks.fairness_engine import ORDERS, Asked, Costs, Simulation, figures, terms_of
from benchmarks.fairness_recorded import CHUNK, Recording, errors, fitted, paced, record, relative
from generation.lanes import LaneTerms
from tests.support.sglang_server import running_server

RECORDINGS = Path(__file__).parent / "recordings"
COSTS = RECORDINGS / "costs.json"
FITTED_TO = ("noisy alone", "noisy, first come", "long alone", "long, first come")
TERMS = LaneTerms(slots=16, guest_slots=6, prefill_tokens=CHUNK, pace_slots=2, piece_tokens=256)
REAL_TERMS = LaneTerms(
    slots=8, small_slots=2, small_tokens=1_000, guest_slots=2, prefill_tokens=1_024, pace_slots=2, piece_tokens=256
)
REAL_ORDERS = ("first come", "round robin", "ours", "ours, paced")
ALONE = {"noisy": "quiet/u", "long": "short/u", "agent": "acme/colleague"}
"""Of scenarios with an aggressor, the user whose times are compared with and without."""
TIMES = ("first", "total")
SEEDED = ("ours", "ours, paced")
"""Orders that are compared over several draws."""


def stream(
    seed: int, party: Party, rate: float, seconds: float, tokens: int, output: int, begin: float = 0.0
) -> list[Asked]:
    """Requests at random times, `rate` a second; the same for the same seed, whoever else is there."""
    draw, found, at = random.Random(seed), [], begin
    while (at := at + draw.expovariate(rate)) < seconds:
        found.append(Asked(at, party, draw.randint(tokens // 2, tokens), draw.randint(max(1, output // 2), output)))
    return found


def noisy(rate: float, seconds: float, tokens: int = 600, output: int = 60, *, seed: int = 0) -> list[Asked]:
    quiet = stream(100 * seed + 1, Party("quiet", "u"), rate / 50, seconds, tokens, output)
    return quiet + stream(100 * seed + 2, Party("noisy", "u"), rate, seconds, tokens, output)


def long(
    rate: float,
    seconds: float,
    large: int = 28_000,
    every: int = 60,
    tokens: int = 400,
    output: int = 40,
    *,
    seed: int = 0,
) -> list[Asked]:
    short = stream(100 * seed + 3, Party("short", "u"), rate / 25, seconds, tokens, output)
    begin = 1 + 7 * seed % every
    return short + [Asked(float(at), Party("long", "u"), large, output) for at in range(begin, int(seconds), every)]


def agent(rate: float, seconds: float, *, seed: int = 0) -> list[Asked]:
    draw = random.Random(100 * seed + 4)
    calls = [
        Asked(float(at), Party("acme", "agent"), draw.randint(400, 900), draw.randint(50, 150))
        for at in range(2, int(seconds), 150)
        for _ in range(47)
    ]
    return calls + stream(100 * seed + 5, Party("acme", "colleague"), rate / 50, seconds, 600, 60)


def returning(rate: float, seconds: float, *, seed: int = 0) -> list[Asked]:
    busy = stream(100 * seed + 6, Party("busy", "u"), rate / 2, seconds, 600, 60)
    return busy + stream(100 * seed + 7, Party("back", "u"), rate / 2, seconds, 600, 60, begin=seconds / 2)


def weights(rate: float, seconds: float, *, seed: int = 0) -> list[Asked]:
    found: list[Asked] = []
    for weight in (1, 2, 4):
        party = Party(f"weight {weight}", "u", float(weight))
        found += stream(100 * seed + 10 + weight, party, rate / 2, seconds, 600, 60)
    return found


SCENARIOS: dict[str, Callable[..., list[Asked]]] = {
    "noisy": noisy,
    "long": long,
    "agent": agent,
    "returning": returning,
    "weights": weights,
}


def only(asked: list[Asked], who: str) -> list[Asked]:
    return [one for one in asked if who in (one.who, one.party.tenant)]


def runs(
    scenario: str, asked: Callable[[], list[Asked]], orders: Iterable[str] = ORDERS
) -> list[tuple[str, str, list[Asked]]]:
    """Name, order and requests of each run of a scenario."""
    found = [(f"{scenario}, {order}", order, asked()) for order in orders]
    if scenario in ALONE:
        found.insert(0, (f"{scenario} alone", "ours, paced", only(asked(), ALONE[scenario])))
    return found


def measured(name: str, order: str, asked: list[Asked], costs: Costs, seconds: float, terms: LaneTerms) -> Any:
    simulation = Simulation(asked, ORDERS[order], costs, seconds, terms_of(order, terms))
    asyncio.run(simulation.run())
    return {
        "run": name,
        "gap": round(simulation.gaps.over_bound, 3),
        "busy": round(simulation.busy / simulation.now, 3),
        "clients": figures(simulation.asked, seconds),
    }


def shown(result: dict[str, Any]) -> None:
    gap = f"  worst gap over bound {result['gap']:.3f}, engine busy {result['busy']:.3f}" if "gap" in result else ""
    print(f"{result['run']}{gap}", flush=True)
    for who, of in result["clients"].items():
        times = "  ".join(
            f"{kind} {of[kind]['p50']:.2f} / {of[kind]['p99']:.2f}" for kind in ("wait", "first", "total")
        )
        count = f"{of['answered']} of {of['requests']} answered, {of['refused']} turned away"
        print(f"    {who:16} share {of['share']:.3f}  p50 / p99 s: {times}  ({count})", flush=True)


def compared(scenario: str, results: list[dict[str, Any]]) -> dict[str, Any]:
    """p99 of the well-behaved tenant with the aggressor over without, by order."""
    of = {result["run"]: result["clients"][ALONE[scenario]] for result in results}
    alone = of[f"{scenario} alone"]
    found = {}
    for order in ORDERS:
        if f"{scenario}, {order}" not in of:
            continue
        here = of[f"{scenario}, {order}"]
        found[order] = {
            "wait_added_s": round(here["wait"]["p99"] - alone["wait"]["p99"], 3),
            **{kind: round(here[kind]["p99"] / alone[kind]["p99"], 2) for kind in ("first", "total")},
        }
        print(f"    p99 of {ALONE[scenario]} with / without, {order}: {json.dumps(found[order])}", flush=True)
    return found


def simulated(scenario: str, costs: Costs, rate: float, seconds: float, terms: LaneTerms) -> dict[str, Any]:
    results = []
    for name, order, asked in runs(scenario, lambda: SCENARIOS[scenario](rate, seconds)):
        results.append(measured(name, order, asked, costs, seconds, terms))
        shown(results[-1])
    found: dict[str, Any] = {"runs": results}
    if scenario in ALONE:
        found["with_to_without_p99"] = compared(scenario, results)
    return found


def over_seeds(
    scenario: str, seeds: Iterable[int], costs: Costs, rate: float, seconds: float, terms: LaneTerms
) -> dict[str, Any]:
    """Of several draws of traffic: what the well-behaved one's p99 is with the aggressor over without."""
    found: dict[str, Any] = {order: [] for order in SEEDED}
    for seed in seeds:
        of = {
            name: measured(name, order, asked, costs, seconds, terms)["clients"]
            for name, order, asked in runs(scenario, partial(SCENARIOS[scenario], rate, seconds, seed=seed), SEEDED)
        }
        alone = of[f"{scenario} alone"][ALONE[scenario]]
        for order in SEEDED:
            clients = of[f"{scenario}, {order}"]
            ratios = {kind: round(clients[ALONE[scenario]][kind]["p99"] / alone[kind]["p99"], 2) for kind in TIMES}
            answers = sum(clients[who]["answered"] for who in clients if who != ALONE[scenario])
            found[order].append({"seed": seed, **ratios, "requests": alone["requests"], "others_answered": answers})
    for order, draws in found.items():
        told = [
            f"{kind} {statistics.median(one[kind] for one in draws):.2f}, worst {max(one[kind] for one in draws):.2f}"
            for kind in TIMES
        ]
        answers = statistics.mean(one["others_answered"] for one in draws)
        print(f"{scenario}, {order}, {len(draws)} draws: p99 with / without, {'; '.join(told)}; others {answers:.0f}")
    return found


def recorded(scenarios: list[str], rate: float, seconds: float) -> dict[str, Any]:
    """Run `scenarios` on a real server, and keep what happened."""
    found: dict[str, Any] = {}
    RECORDINGS.mkdir(exist_ok=True)
    made: dict[str, Callable[[], list[Asked]]] = {
        "noisy": lambda: noisy(rate, seconds, 300, 16),
        "long": lambda: long(rate, seconds, 3_500, 5, 300, 16),
    }
    with ExitStack() as stack:
        logs = stack.enter_context(tempfile.TemporaryDirectory(prefix="strongroom-fairness-"))
        server = stack.enter_context(running_server(Path(logs), "--chunked-prefill-size", str(CHUNK)))
        for scenario in scenarios:
            results: list[dict[str, Any]] = []
            for name, order, asked in runs(scenario, made[scenario], REAL_ORDERS):
                run = record(server, name, asked, order, terms_of(order, REAL_TERMS), seconds)
                run.write(RECORDINGS / f"fairness-{name.replace(', ', '-').replace(' ', '-')}.json")
                results.append({"run": name, "load": run.load, "clients": figures(run.asked, seconds)})
                shown(results[-1])
            found[scenario] = {"runs": results, "with_to_without_p99": compared(scenario, results)}
    return found


def fit(recordings: dict[str, Recording], *, anew: bool) -> tuple[Costs, dict[str, Any]]:
    """Costs, and how far the model with them is from each recording."""
    if anew:
        found_costs = fitted([recordings[name] for name in FITTED_TO])
        COSTS.write_text(json.dumps(asdict(found_costs)) + "\n", encoding="utf-8")
    costs = Costs(**json.loads(COSTS.read_text(encoding="utf-8")))
    print(f"fitted to {'; '.join(FITTED_TO)}: {_milliseconds(costs)}", flush=True)
    found: dict[str, Any] = {"costs": asdict(costs), "recordings": {}}
    for name, recording in recordings.items():
        speed, own = paced(recording, costs)
        far = errors(recording, own)
        found["recordings"][name] = {
            "load": recording.load,
            "costs_times": round(speed, 2),
            "recorded_and_model": far,
            "error": relative([far]),
            "error_without_factor": relative([errors(recording, costs)]),
        }
        of = found["recordings"][name]
        kind = "fitted" if name in FITTED_TO else "tested"
        print(f"{name} ({kind}, load {recording.load}, costs times {speed:.2f}): {json.dumps(of['error'])}", flush=True)
        for who, times in far.items():
            print(f"    {who:16} recorded, model: {json.dumps(times)}", flush=True)
    tested = [of["recorded_and_model"] for name, of in found["recordings"].items() if name not in FITTED_TO]
    found["error_of_those_not_fitted"] = relative(tested)
    print(f"error of those not fitted: {json.dumps(found['error_of_those_not_fitted'])}", flush=True)
    return costs, found


def _milliseconds(costs: Costs) -> str:
    return ", ".join(
        f"{name} {1e3 * value:.3f} ms"
        for name, value in asdict(costs).items()
        if name not in ("chunk", "shortest", "mixed")
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="20 simulated seconds, and the costs that are assumed")
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--rate", type=float, help="requests of the noisy tenant a second")
    parser.add_argument("--scenario", action="append", choices=list(SCENARIOS))
    parser.add_argument("--record", action="store_true", help="on a real server; its load is this machine's")
    parser.add_argument("--fit", action="store_true", help="fit the costs anew: minutes")
    parser.add_argument("--assumed", action="store_true", help="costs that nobody measured")
    for name in ("slots", "small_slots", "guest_slots", "prefill_tokens", "tenant_slots", "pace_slots", "piece_tokens"):
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=getattr(TERMS, name))
    parser.add_argument("--shortest", action="store_true", help="the engine reads short prompts first")
    parser.add_argument("--mixed", action="store_true", help="the engine reads and writes in one step")
    parser.add_argument("--seeds", type=int, default=0, help="so many draws of the traffic, and only the ratios")
    chosen = parser.parse_args()
    if chosen.record:
        real = recorded(chosen.scenario or ["noisy", "long"], chosen.rate or 10.0, chosen.seconds or 60.0)
        print(json.dumps({"recorded": real, "terms": asdict(REAL_TERMS), "processors": os.cpu_count()}))
        return
    terms = replace(
        TERMS,
        slots=chosen.slots,
        small_slots=chosen.small_slots,
        guest_slots=chosen.guest_slots,
        prefill_tokens=chosen.prefill_tokens,
        tenant_slots=chosen.tenant_slots,
        pace_slots=chosen.pace_slots,
        piece_tokens=chosen.piece_tokens,
    )
    seconds = chosen.seconds or (20.0 if chosen.quick else 300.0)
    result: dict[str, Any] = {"simulated_seconds": seconds, "terms": asdict(terms)}
    costs = Costs()
    if chosen.seeds and not chosen.assumed:
        costs = Costs(**json.loads(COSTS.read_text(encoding="utf-8")))
    elif not (chosen.assumed or chosen.quick):
        found = [Recording.read(path) for path in sorted(RECORDINGS.glob("fairness-*.json"))]
        costs, result["fit"] = fit({recording.scenario: recording for recording in found}, anew=chosen.fit)
    costs = replace(costs, shortest=chosen.shortest, mixed=chosen.mixed)
    result["costs"] = asdict(costs)
    if chosen.seeds:
        for scenario in chosen.scenario or ALONE:
            draws = range(1, chosen.seeds + 1)
            result[scenario] = over_seeds(scenario, draws, costs, chosen.rate or 10.0, seconds, terms)
        print(json.dumps(result))
        return
    for scenario in chosen.scenario or SCENARIOS:
        result[scenario] = simulated(scenario, costs, chosen.rate or 10.0, seconds, terms)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
