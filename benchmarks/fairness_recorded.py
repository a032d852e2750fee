"""Scenarios on a real server, recorded; the costs of a model of its engine; and how far that model is from the records.

A recording is a JSON file of `benchmarks/recordings`: one row a request (`ROW`), times in seconds from the beginning.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import random
import secrets
import statistics
import time
from collections.abc import Iterable, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from admission.fair import FairQueue, Party, Place
from benchmarks.batch_neighbours import TEMPLATE
from benchmarks.fairness_engine import ORDERS, Asked, Costs, Simulation, figures
from generation.endpoint import Endpoint
from generation.generator import Finish, prompt_tokens
from generation.lanes import LaneTerms
from generation.pool import Pool, PoolTerms
from generation.prompt import Prompt, PromptSource, render
from generation.replica import Patience, Replica, Request
from tenancy.errors import Unavailable
from tests.support.sglang_server import ADMIN_KEY, API_KEY, MODEL, RunningServer

ROW: Final = ("at", "tenant", "user", "weight", "tokens", "output", "refused", "seated", "first", "ended")
CHUNK: Final = 512
"""Tokens of prompts that the recorded server reads in a step at most: `--chunked-prefill-size`."""
_LIMIT_S: Final = 600.0
_SHORT_S: Final = 0.25


@dataclass(frozen=True)
class Recording:
    """`seconds` after which nobody who waited was served any more; `chunk` is the server's own setting."""

    scenario: str
    order: str
    seconds: float
    terms: LaneTerms
    chunk: int
    load: float
    asked: tuple[Asked, ...]

    def write(self, path: Path) -> None:
        rows = [
            [
                _rounded(value)
                for value in (
                    *(one.at, one.party.tenant, one.party.user, one.party.weight, one.tokens, one.output),
                    *(one.refused, one.seated, one.first, one.ended),
                )
            ]
            for one in self.asked
        ]
        head = {
            "scenario": self.scenario,
            "order": self.order,
            "seconds": self.seconds,
            "terms": asdict(self.terms),
            "chunk": self.chunk,
            "load": self.load,
            "row": ROW,
        }
        body = ",\n".join(json.dumps(row) for row in rows)
        path.write_text(json.dumps(head)[:-1] + ', "rows": [\n' + body + "\n]}\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Recording:
        found = json.loads(path.read_text(encoding="utf-8"))
        asked = []
        for row in found["rows"]:
            at, tenant, user, weight, tokens, output, refused, seated, first, ended = row
            one = Asked(at, Party(tenant, user, weight), tokens, output, seated, first, ended, refused=refused)
            one.written = output if ended is not None else 0
            asked.append(one)
        return cls(
            found["scenario"],
            found["order"],
            found["seconds"],
            LaneTerms(**found["terms"]),
            found["chunk"],
            found["load"],
            tuple(asked),
        )


def _rounded(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value


def prompt_of(pool: Pool, dice: random.Random, tokens: int) -> Prompt:
    """A prompt that nobody sent before, of about `tokens` tokens."""

    def made(words: list[str]) -> Prompt:
        return render(TEMPLATE, "Which rule holds?", [PromptSource("S1", "rules", "rules", " ".join(words))])

    words = [f"rule {dice.randrange(10**4)}" for _ in range(tokens)]
    each = pool.count(" ".join(words)) / len(words)
    bare = prompt_tokens(made([]), pool.count)
    return made(words[: max(1, round((tokens - bare) / each))])


def pool_of(server: RunningServer, terms: LaneTerms) -> Pool:
    endpoint = Endpoint(
        base_url=server.base_url,
        model=MODEL,
        revision="r1",
        api_key=API_KEY,
        admin_key=ADMIN_KEY,
        tokenizer=server.model,
    )
    replica = Replica(endpoint, patience=Patience(first_token_s=_LIMIT_S, stall_s=_LIMIT_S))
    return Pool([replica], PoolTerms(lanes=terms))


def record(
    server: RunningServer, scenario: str, asked: Sequence[Asked], order: str, terms: LaneTerms, seconds: float
) -> Recording:
    """The requests of a scenario through the pool, in an order; those that still wait at the end are given up."""
    done = asyncio.run(_recorded(server, asked, order, terms, seconds))
    load = round(os.getloadavg()[0], 1)
    return Recording(scenario, order, seconds, terms, CHUNK, load, tuple(done))


async def _recorded(
    server: RunningServer, asked: Sequence[Asked], order: str, terms: LaneTerms, seconds: float
) -> list[Asked]:
    for one in asked:
        one.party = replace(one.party)  # an object of its own, by which its seat is noted
    pool, dice = pool_of(server, terms), random.Random(secrets.randbits(64))
    prompts = {id(one): prompt_of(pool, dice, one.tokens) for one in asked}
    warm = Asked(0.0, Party("warm"), 200, 4)
    await _answered(pool, warm, prompt_of(pool, dice, 200), time.monotonic())
    pool._lanes.fair = fair = ORDERS[order](patience_s=terms.patience_s, pace=pool._lanes.pace)
    begun = time.monotonic()
    _note_seats(fair, asked, begun)
    tasks = []
    for one in sorted(asked, key=lambda one: one.at):
        await asyncio.sleep(max(0.0, begun + one.at - time.monotonic()))
        one.at = time.monotonic() - begun
        tasks.append(asyncio.create_task(_answered(pool, one, prompts[id(one)], begun)))
    await asyncio.sleep(max(0.0, begun + seconds - time.monotonic()))
    for task in tasks:
        task.cancel()
    for ended in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(ended, Exception):
            raise ended
    await pool.aclose()
    return sorted(asked, key=lambda one: one.at)


def _note_seats(fair: FairQueue[Any], asked: Sequence[Asked], begun: float) -> None:
    """Also of those whose answer does not end."""
    by_party = {id(one.party): one for one in asked}
    begin = fair.begin

    def noted(place: Place[Any]) -> None:
        if not place.piece:
            by_party[id(place.party)].seated = time.monotonic() - begun
        begin(place)

    fair.begin = noted  # type: ignore[method-assign]


async def _answered(pool: Pool, one: Asked, prompt: Prompt, begun: float) -> None:
    one.tokens = prompt_tokens(prompt, pool.count)
    request = Request(
        prompt=prompt,
        salt=secrets.token_hex(32),
        request_id=secrets.token_hex(16),
        max_tokens=one.output,
        deadline=time.monotonic() + _LIMIT_S,
    )
    try:
        async with aclosing(pool.stream(request, one.party)) as pieces:
            async for piece in pieces:
                one.first = one.first or time.monotonic() - begun
                if isinstance(piece, Finish):
                    one.ended = time.monotonic() - begun
                    one.tokens, one.output = piece.usage.input, piece.usage.output
                    one.written = one.output
    except Unavailable:
        one.refused = True


def again(recording: Recording, costs: Costs) -> list[Asked]:
    """The recorded requests before the model of the engine, in the recorded order."""
    asked = [Asked(one.at, one.party, one.tokens, one.output) for one in recording.asked]
    costs = replace(costs, chunk=recording.chunk)
    simulation = Simulation(asked, ORDERS[recording.order], costs, recording.seconds, recording.terms)
    asyncio.run(simulation.run())
    return simulation.asked


def answered(asked: Sequence[Asked]) -> int:
    return sum(one.ended is not None for one in asked)


def _times(asked: Sequence[Asked], seconds: float) -> list[float]:
    """What the model is fitted to: answers, and of each user the medians and the worst of two times."""
    found = [float(answered(asked))]
    for of in figures(asked, seconds).values():
        found += [of[kind][part] for kind in ("first", "total") for part in ("p50", "p99")]
    return found


def distance(recordings: Sequence[Recording], costs: Costs) -> float:
    """Mean square of the logarithms of model over recorded; times under 20 ms are as good as 20 ms."""
    squares = []
    for recording in recordings:
        real = _times(recording.asked, recording.seconds)
        model = _times(again(recording, costs), recording.seconds)
        squares += [
            math.log(max(theirs, 0.02) / max(ours, 0.02)) ** 2 for ours, theirs in zip(real, model, strict=True)
        ]
    return sum(squares) / len(squares)


def fitted(recordings: Sequence[Recording]) -> Costs:
    """The costs of steps that are nearest to `recordings`: one number after another, in steps that become finer."""
    best = Costs(way=0.02)
    least = distance(recordings, best)
    for stride in (2.0, 1.5, 1.25, 1.1):
        for _ in range(2):
            before = least
            for name in ("read_step", "write_step", "read", "write", "way"):
                for factor in (stride, 1 / stride):
                    tried = replace(best, **{name: getattr(best, name) * factor})
                    if (found := distance(recordings, tried)) < least:
                        best, least = tried, found
            if least == before:
                break
    return best


def paced(recording: Recording, costs: Costs) -> tuple[float, Costs]:
    """`costs` times a factor with which the model gives as many answers as were recorded: how fast the machine was.

    It had other work at the time, and different loads in different recordings. 1 where hardly anybody was left over:
    then the answers say nothing of it.
    """
    if answered(recording.asked) > 0.8 * len(recording.asked):
        return 1.0, costs
    low, high = 0.2, 5.0
    for _ in range(7):
        factor = math.sqrt(low * high)
        if answered(again(recording, scaled(costs, factor))) > answered(recording.asked):
            low = factor
        else:
            high = factor
    factor = math.sqrt(low * high)
    return factor, scaled(costs, factor)


def scaled(costs: Costs, factor: float) -> Costs:
    return replace(
        costs,
        read_step=costs.read_step * factor,
        read=costs.read * factor,
        write_step=costs.write_step * factor,
        write=costs.write * factor,
        way=costs.way * factor,
    )


def errors(recording: Recording, costs: Costs) -> dict[str, dict[str, Any]]:
    """By user, [recorded, model] of the share of service and of each time in seconds."""
    real = figures(recording.asked, recording.seconds)
    model = figures(again(recording, costs), recording.seconds)
    found: dict[str, dict[str, Any]] = {}
    for who, of in real.items():
        found[who] = {"requests": of["requests"], "share": [of["share"], model[who]["share"]]}
        for kind in ("wait", "first", "total"):
            for part in ("p50", "p99"):
                found[who][f"{kind} {part}"] = [of[kind][part], model[who][kind][part]]
    return found


def relative(found: Iterable[dict[str, dict[str, Any]]]) -> dict[str, float]:
    """Over all users: the median and the largest |model - recorded| / recorded of times from `_SHORT_S` on; of shorter
    ones the largest difference in seconds; of shares the largest difference.
    """
    times, short, shares = [], [0.0], [0.0]
    for users in found:
        for of in users.values():
            shares.append(abs(of["share"][0] - of["share"][1]))
            for name in of.keys() - {"requests", "share"}:
                real, model = of[name]
                if real >= _SHORT_S:
                    times.append(abs(model - real) / real)
                else:
                    short.append(abs(model - real))
    return {
        "times": len(times),
        "median_relative": round(statistics.median(times), 3) if times else 0.0,
        "worst_relative": round(max(times, default=0.0), 3),
        "worst_of_short_s": round(max(short), 3),
        "worst_share": round(max(shares), 3),
    }
