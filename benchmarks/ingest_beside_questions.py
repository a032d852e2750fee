"""Questions beside a bulk ingestion of another tenant, in one process; the last line is JSON.

    python -m benchmarks.ingest_beside_questions [--quick] [--model hashing:256] [--rounds 4] [--questions 60]

Three arms take turns, so that whatever else the machine does meets all alike: no ingestion, ingestion as a request of
its own that takes no turns, and ours, which parses and embeds in turns as batch work. Two askers each ask for passages
one after the other, 20 ms apart (embedding, search, audit; no generation), while as many documents as there are loading
threads come in, one after the other. `p50` and `p99` are milliseconds of a question over all rounds of an arm, `chunks`
a second what the ingestion did meanwhile; `times` is p99 over that of the first arm.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import random
import secrets
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from indexing.ingest import Pipeline, Source, put_document
from retrieval.answer import retrieve
from retrieval.question import Question
from service.settings import load_settings
from service.wiring import Services, build
from tenancy.acl import AccessList
from tenancy.identity import Principal, Role
from tenancy.keys import MasterKey
from tenancy.tenant import TenantHandle

ARMS: Final = ("alone", "no_turns", "in_turns")
ASKERS: Final = 2
THINK_S: Final = 0.02
WORDS: Final = tuple(f"word{number}" for number in range(4_000))


@dataclass
class Arm:
    """Seconds of each question; chunks that came in, in so many seconds."""

    took: list[float] = field(default_factory=list)
    chunks: int = 0
    seconds: float = 0.0


def text(dice: random.Random, paragraphs: int) -> str:
    return "\n\n".join(" ".join(dice.choices(WORDS, k=90)) + "." for _ in range(paragraphs))


class Bench:
    def __init__(self, services: Services, paragraphs: int) -> None:
        self.services = services
        self.paragraphs = paragraphs
        self.dice = random.Random(11)
        self.askers = [self._principal("asks", f"user{number}", Role.READER) for number in range(ASKERS)]
        loaders = services.settings.workers.loading
        self.loaders = [self._principal(f"loads{number}", "loader", Role.INGEST) for number in range(loaders)]
        tenant = services.control.tenants.open(self.askers[0])
        for number in range(20):
            self._put(tenant, services.pipeline, f"known{number}", 6)

    def _principal(self, tenant: str, user: str, role: Role) -> Principal:
        control = self.services.control
        if tenant not in {record.name for record in control.tenants.listed()}:
            control.tenants.create(tenant)
        return control.authenticator.authenticate(control.tenants.create_key(tenant, user, [role]).text, "127.0.0.1")

    def _put(self, tenant: TenantHandle, pipeline: Pipeline, name: str, paragraphs: int) -> int:
        content = text(self.dice, paragraphs).encode()
        source = Source(name, content, AccessList.of(["tenant"], ()), media_type="text/plain")
        return sum(outcome.chunks for outcome in put_document(tenant, pipeline, source))

    async def ask(self, who: Principal, count: int, arm: Arm) -> None:
        for _ in range(count):
            question = Question(" ".join(self.dice.choices(WORDS, k=8)), secrets.token_hex(16))
            begun = time.perf_counter()
            await retrieve(self.services.path, who, question)
            arm.took.append(time.perf_counter() - begun)
            await asyncio.sleep(THINK_S)

    async def load(self, who: Principal, arm: Arm, ended: asyncio.Event, *, turns: bool) -> None:
        services = self.services
        tenant = services.control.tenants.open(who)
        pipeline = services.in_turn(who, tenant) if turns else services.pipeline
        while not ended.is_set():
            async with services.loading.turn(who.tenant_id) as workers:
                arm.chunks += await workers.run(self._put, tenant, pipeline, "bulk", self.paragraphs)

    async def round(self, name: str, arm: Arm, questions: int) -> None:
        ended = asyncio.Event()
        begun = time.perf_counter()
        loading = [
            asyncio.create_task(self.load(who, arm, ended, turns=name == "in_turns"))
            for who in (() if name == "alone" else self.loaders)
        ]
        await asyncio.gather(*(self.ask(who, questions // ASKERS, arm) for who in self.askers))
        ended.set()
        await asyncio.gather(*loading)
        arm.seconds += time.perf_counter() - begun


def measured(
    services: Services, paragraphs: int, rounds: int, questions: int, say: Callable[..., None]
) -> dict[str, Any]:
    bench, arms = Bench(services, paragraphs), {name: Arm() for name in ARMS}

    async def main() -> None:
        await bench.round("alone", Arm(), questions // 4)
        for number in range(rounds):
            for name in ARMS[number % 3 :] + ARMS[: number % 3]:
                await bench.round(name, arms[name], questions)
                say(f"round {number} {name}: p50 {1e3 * float(np.median(arms[name].took)):.1f} ms so far")
        await services.path.routes.aclose()

    asyncio.run(main())
    alone = _percentile(arms["alone"].took, 99)
    return {
        name: {
            "questions": len(arm.took),
            "p50": _percentile(arm.took, 50),
            "p99": _percentile(arm.took, 99),
            "times": round(_percentile(arm.took, 99) / alone, 2),
            "chunks": round(arm.chunks / arm.seconds, 1),
        }
        for name, arm in arms.items()
    }


def _percentile(seconds: Sequence[float], share: float) -> float:
    return round(1e3 * float(np.percentile(seconds, share)), 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few questions, hashed words: whether it runs")
    parser.add_argument("--model", default="", help="the embedding model; empty takes the packaged one")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--questions", type=int, default=60, help="of one round")
    parser.add_argument("--paragraphs", type=int, default=120, help="of one document")
    given = parser.parse_args()
    if given.quick:
        given.model, given.rounds, given.questions, given.paragraphs = "hashing:256", 1, 8, 20
    with tempfile.TemporaryDirectory(prefix="strongroom-bench-") as folder:
        environment = {
            "STRONGROOM_DATA_DIR": str(Path(folder) / "data"),
            "STRONGROOM_MASTER_KEY": base64.b64encode(bytes(32)).decode(),
        }
        if given.model:
            environment["STRONGROOM_EMBEDDING__MODEL"] = given.model
        services = build(load_settings(environment=environment), MasterKey(bytes(32)))
        try:
            found = measured(services, given.paragraphs, given.rounds, given.questions, print)
        finally:
            services.close()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
