"""Can a stopwatch tell what others' cache holds? Times of questions that another scope's cache can answer.

    python -m benchmarks.cache_timing [--store local|redis] [--probes 1100] [--held 300] [--seed 1]

One process, two tenants with the same documents, and two permission domains in the first. Ana's domain holds the
answers to some questions. Each arm asks questions of one form that differ in a number, each once, in an order drawn
per block, so that whatever slows the machine slows all arms:

    own          ana, what her domain holds: a hit; the positive control
    own, fresh   ana, what nobody asked
    domain       cy, of the same tenant and another domain, what ana's domain holds
    cy, fresh    cy, what nobody asked
    tenant       gil, of the other tenant, what ana's domain holds
    gil, fresh   gil, what nobody asked

Compared are the whole times to the last byte (audit included), by two clocks: that of the wall, which an asker has, and
that of the process, which no asker has and which other programs on the machine do not disturb. The measures are the
Mann-Whitney AUC with DeLong's variance (DeLong et al., Biometrics 44, 1988) and the Kolmogorov-Smirnov distance. AUC
1/2 is no difference; it counts whichever arm is the slower one. PASS: the control's AUC is at least 0.90, and the 99 %
interval of every other lies in 0.45 to 0.55 (about 1,050 probes an arm). FAIL: one lies to one side of 1/2 and reaches
out of that. Otherwise it is INCONCLUSIVE: a machine that is busy with other work, or too few probes. The verdict is the
wall clock's. The last line is JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import random
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cache.openings import open_template
from cache.policy import CachePolicy, TemplatePolicy
from cache.stores.local import LocalStore
from cache.stores.port import CacheStore
from tenancy import directory
from tenancy.control import Tenants
from tenancy.identity import Authenticator, Principal, Role
from tenancy.keys import MasterKey
from tests.support.path import Path as QuestionPath

Z = 2.5758
"""Of a two-sided interval of 99 %."""
CONTROL, WITHIN = 0.90, 0.05
ARMS = ("own", "own, fresh", "domain", "cy, fresh", "tenant", "gil, fresh")
PAIRS = {"own": "own, fresh", "domain": "cy, fresh", "tenant": "gil, fresh"}
WARM_UP = 40
TEXT = """The notice period of grade {0} is three months. Travel of grade {0} is paid in second class.

Overtime of grade {0} is compensated within eight weeks. Leave of grade {0} is thirty days."""


@dataclass(frozen=True)
class Compared:
    """`auc` is the chance that the second arm is slower, with its 99 % interval; `ks` the largest distance."""

    auc: float
    low: float
    high: float
    ks: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", choices=("local", "redis"), default="local")
    parser.add_argument("--probes", type=int, default=1_100, help="of each arm")
    parser.add_argument("--held", type=int, default=300, help="further answers that ana's domain holds")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    # In memory: the less a disk adds, the more there is to see.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as folder, opened(arguments.store, Path(folder)) as store:
        times = measure(Path(folder), store, arguments.probes, arguments.held, arguments.seed)
    result: dict[str, Any] = {"store": arguments.store, "probes": arguments.probes}
    for clock, place in (("wall", 0), ("process", 1)):
        print(f"{clock} clock")
        found = {arm: compare(times[arm][:, place], times[fresh][:, place]) for arm, fresh in PAIRS.items()}
        for arm in ARMS:
            median, upper = np.percentile(times[arm][:, place], [50, 95])
            print(f"  {arm:12} {len(times[arm]):6} probes   median {median:8.3f} ms   95 % below {upper:8.3f} ms")
        for arm, one in found.items():
            interval = f"99 % in {one.low:.3f} to {one.high:.3f}"
            print(f"  {arm:7} against {PAIRS[arm]:12} AUC {one.auc:.3f}, {interval}; KS {one.ks:.3f}")
        print(f"  {verdict(found)}")
        result[clock] = {arm: vars(one) for arm, one in found.items()} | {"verdict": verdict(found)}
    print(json.dumps({"verdict": result["wall"]["verdict"]} | result))


@contextmanager
def opened(store: str, folder: Path) -> Iterator[CacheStore]:
    policy = CachePolicy(template=TemplatePolicy(probation=0, shadow=0.0))
    if store == "local":
        yield LocalStore(policy)
        return
    from tests.cache.conformance.rig import redis_store, running

    with running(folder / "redis") as server:
        yield redis_store(server, policy, time.time)


def verdict(found: dict[str, Compared]) -> str:
    others = [one for arm, one in found.items() if arm != "own"]
    if found["own"].auc < CONTROL:
        return "INCONCLUSIVE"
    if all(within(one) for one in others):
        return "PASS"
    return "FAIL" if any(not within(one) and not one.low <= 0.5 <= one.high for one in others) else "INCONCLUSIVE"


def within(one: Compared) -> bool:
    return one.low >= 0.5 - WITHIN and one.high <= 0.5 + WITHIN


def compare(held: npt.NDArray[np.float64], fresh: npt.NDArray[np.float64]) -> Compared:
    """Mann-Whitney AUC of `fresh` being slower than `held` (n,), with DeLong's interval; ties count half."""
    ordered_held, ordered_fresh = np.sort(held), np.sort(fresh)
    # For each probe of one arm, the share of the other that it beats.
    slower = (np.searchsorted(ordered_held, fresh, "left") + np.searchsorted(ordered_held, fresh, "right")) / 2
    faster = (np.searchsorted(ordered_fresh, held, "left") + np.searchsorted(ordered_fresh, held, "right")) / 2
    of_fresh, of_held = slower / len(held), 1 - faster / len(fresh)
    auc = float(of_fresh.mean())
    error = float(np.sqrt(of_fresh.var(ddof=1) / len(fresh) + of_held.var(ddof=1) / len(held)))
    every = np.concatenate([held, fresh])
    distance = np.abs(
        np.searchsorted(ordered_held, every, "right") / len(held)
        - np.searchsorted(ordered_fresh, every, "right") / len(fresh)
    )
    return Compared(
        round(auc, 4), round(auc - Z * error, 4), round(auc + Z * error, 4), round(float(distance.max()), 4)
    )


def measure(folder: Path, store: CacheStore, probes: int, held: int, seed: int) -> dict[str, npt.NDArray[np.float64]]:
    """Milliseconds of every probe by the wall's and by the process's clock (probes, 2), by arm."""
    draw = random.Random(seed)
    tenants = Tenants(folder, MasterKey(bytes(32)))
    path = QuestionPath(tenants, cache=store)
    try:
        people = prepared(tenants, path)
        questions = numbered(draw)
        answered = [next(questions) for _ in range(probes + held + WARM_UP)]
        with asyncio.Runner() as runner:
            for question in answered:
                runner.run(path.ask_async(people["ana"], question))
            return probed(runner, path, people, answered, questions, probes, draw)
    finally:
        path.close()
        tenants.close()


def probed(
    runner: asyncio.Runner,
    path: QuestionPath,
    people: dict[str, Principal],
    answered: list[str],
    fresh: Iterator[str],
    probes: int,
    draw: random.Random,
) -> dict[str, npt.NDArray[np.float64]]:
    # The same questions in three orders: what one arm asks is new to the scope of the next.
    own, domain, tenant = (iter(draw.sample(answered, len(answered))) for _ in range(3))
    arms = {
        "own": (people["ana"], own),
        "own, fresh": (people["ana"], fresh),
        "domain": (people["cy"], domain),
        "cy, fresh": (people["cy"], fresh),
        "tenant": (people["gil"], tenant),
        "gil, fresh": (people["gil"], fresh),
    }
    times: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    gc.collect()
    gc.disable()
    for block in range(WARM_UP + probes):
        for arm in draw.sample(ARMS, len(ARMS)):
            principal, questions = arms[arm]
            query = next(questions)
            begun, worked = time.perf_counter_ns(), time.process_time_ns()
            served = runner.run(path.ask_async(principal, query))
            took = (time.perf_counter_ns() - begun) / 1e6, (time.process_time_ns() - worked) / 1e6
            assert served.finish == "stop"
            assert (served.cache.status == "hit") == (arm == "own"), f"{arm}: {served.cache}"
            if block >= WARM_UP:
                times[arm].append(took)
        if block % 50 == 0:
            gc.collect()
    gc.enable()
    return {arm: np.array(found) for arm, found in times.items()}


def numbered(draw: random.Random) -> Iterator[str]:
    """Questions of one form and length, in an order without meaning."""
    numbers = list(range(100_000, 1_000_000))
    draw.shuffle(numbers)
    for number in numbers:
        yield f"How long is the notice period of grade 7 under rule {number}?"


def prepared(tenants: Tenants, path: QuestionPath) -> dict[str, Principal]:
    """Ana and cy in one tenant and two domains, which read the same; gil in another tenant."""
    authenticator = Authenticator(tenants)
    people = {}
    for tenant, users in (("acme", ("ana", "cy")), ("globex", ("gil",))):
        tenants.create(tenant)
        for user in users:
            key = tenants.create_key(tenant, user, [Role.READER], groups=[f"group of {user}"])
            people[user] = authenticator.authenticate(key.text, "192.0.2.1")
        handle = tenants.open(authenticator.operator(tenant))
        with handle.writing() as view:
            for user in users:
                directory.add_members(view, f"group of {user}", [f"user:{user}"], 0.0)
            open_template(view, "default", threshold=0.99, opened_by="operator", reason="benchmark", now=0.0)
        allowed = [f"group:group of {user}" for user in users]
        for grade in range(1, 13):
            path.put(handle, f"grade {grade}.md", TEXT.format(grade), *allowed)
    return people


if __name__ == "__main__":
    main()
