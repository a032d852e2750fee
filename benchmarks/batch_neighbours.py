"""Does who shares the batch change an answer? A greedy answer alone, and beside others' and one's own prompts.

    python -m benchmarks.batch_neighbours [--trials 500] [--neighbours 3] [--tokens 12] [--seed 1]

It starts a real SGLang server on the processor, as the tests do, and asks it through the product's pool. A trial asks
one question of a tenant four times: alone; alone again; while other questions of the same tenant are being answered;
and while another tenant's prompts, which hold a canary, are. The neighbours have begun to answer before the question is
asked and are stopped after its answer ended, so that every step of the answer has them in its batch. Every request has
a fresh salt: nothing is taken from KV memory, and only the batch differs.

The kinds of neighbours are compared by McNemar's exact test, two-sided, over the trials in which one changed the answer
and the other did not. The control puts the canary into the question's own prompt: where a neighbour's text reached the
answer, this is how often one would see it. Last line: JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import random
import secrets
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from generation.endpoint import Endpoint
from generation.generator import Delta, Finish, Piece
from generation.pool import Pool
from generation.prompt import Prompt, PromptSource, Template, render
from tests.support.sglang_server import ADMIN_KEY, API_KEY, MODEL, RunningServer, running_server

TEMPLATE = Template("bench", "Answer from the sources.")
SUBJECTS = ("leave", "travel", "notice", "pension", "parking", "overtime", "laptops", "training", "visits", "canteen")
LIMIT_S = 300.0
NEIGHBOUR_TOKENS = 400
KINDS = ("alone again", "own", "foreign", "canary in the prompt")


@dataclass(slots=True)
class Report:
    """`changed` counts the answers that differ from the one alone, by kind; `leaked` those that hold a canary."""

    trials: int = 0
    changed: Counter[str] = field(default_factory=Counter)
    only_foreign: int = 0
    only_own: int = 0
    leaked: int = 0
    batched: int = 0

    @property
    def p(self) -> float:
        return mcnemar(self.only_foreign, self.only_own)

    def figures(self) -> dict[str, Any]:
        return {
            "trials": self.trials,
            "changed": {kind: self.changed[kind] for kind in KINDS},
            "changed_beside_foreign_only": self.only_foreign,
            "changed_beside_own_only": self.only_own,
            "mcnemar_exact_two_sided_p": round(self.p, 4),
            "answers_batched_to_the_end": self.batched,
            "canaries_in_answers": self.leaked,
            "canary_rate_below_95": round(1 - 0.05 ** (1 / max(1, self.trials)), 5),
        }


def mcnemar(first: int, second: int) -> float:
    """Two-sided exact p of `first` against `second` discordant pairs (binomial with 1/2)."""
    pairs = first + second
    tail: float = sum(math.comb(pairs, k) for k in range(min(first, second) + 1)) / 2**pairs
    return min(1.0, 2 * tail)


def made(dice: random.Random, tenant: str, canary: str | None = None) -> Prompt:
    """A prompt as the product renders it, of about 150 tokens; no two are alike."""
    about, number = dice.choice(SUBJECTS), dice.randrange(10**6)
    text = f"{tenant} has {number} rules about {about}. Rule {dice.randrange(100)} names {dice.randrange(50)} days."
    if canary:
        text += f" The secret word is {canary}. Repeat {canary}."
    return render(TEMPLATE, f"What is rule {number} about {about}?", [PromptSource("S1", "rules", about, text)])


def with_canary(prompt: Prompt, canary: str) -> Prompt:
    source = prompt.sources[0]
    leaking = PromptSource(source.key, source.document, source.title, f"{source.text} The secret word is {canary}.")
    return render(TEMPLATE, prompt.question, [leaking])


def cold(pool: Pool, prompt: Prompt, tokens: int) -> AsyncGenerator[Piece, None]:
    """An answer of at most `tokens` under a salt of its own, so that nothing of it is in the engine's memory."""
    return pool.generate(
        prompt,
        salt=secrets.token_hex(32),
        request_id=secrets.token_hex(16),
        max_tokens=tokens,
        deadline=time.monotonic() + LIMIT_S,
    )


async def ask(pool: Pool, prompt: Prompt, tokens: int) -> str:
    text = ""
    async with aclosing(cold(pool, prompt, tokens)) as pieces:
        async for piece in pieces:
            if isinstance(piece, Delta):
                text += piece.text
            elif piece.reason == "error" or piece.usage.cached_input:
                raise SystemExit(f"a generation failed, or used KV memory: {piece}")
    return text


@asynccontextmanager
async def answering(pool: Pool, prompts: Sequence[Prompt]) -> AsyncIterator[list[bool]]:
    """While the block runs, all `prompts` are being answered; gives whether each has ended meanwhile."""
    ended = [False] * len(prompts)
    begun: asyncio.Queue[int] = asyncio.Queue()

    async def neighbour(number: int) -> None:
        async with aclosing(cold(pool, prompts[number], NEIGHBOUR_TOKENS)) as pieces:
            async for piece in pieces:
                if isinstance(piece, Finish):
                    ended[number] = True
                begun.put_nowait(number)
        await asyncio.Event().wait()

    async with AsyncExitStack() as stack:
        tasks = [asyncio.create_task(neighbour(number)) for number in range(len(prompts))]
        stack.push_async_callback(_stopped, tasks)
        async with asyncio.timeout(LIMIT_S):
            waiting = set(range(len(prompts)))
            while waiting:
                waiting.discard(await begun.get())
        yield ended


async def _stopped(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    for ended in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(ended, Exception):
            raise ended


async def trial(pool: Pool, dice: random.Random, neighbours: int, tokens: int, report: Report) -> None:
    prompt, canary = made(dice, "acme"), f"zx{dice.getrandbits(60):015x}"
    answers = {"alone": await ask(pool, prompt, tokens)}
    whole = True
    order = [*KINDS]
    dice.shuffle(order)
    for kind in order:
        beside: list[Prompt] = []
        if kind in {"own", "foreign"}:
            secret = canary if kind == "foreign" else None
            beside = [made(dice, "acme" if kind == "own" else "globex", secret) for _ in range(neighbours)]
        asked = with_canary(prompt, canary) if kind == KINDS[-1] else prompt
        async with answering(pool, beside) as ended:
            answers[kind] = await ask(pool, asked, tokens)
            whole = whole and not any(ended)
    changed = {kind for kind in KINDS if answers[kind] != answers["alone"]}
    report.trials += 1
    report.batched += whole
    report.changed.update(changed)
    report.only_foreign += "foreign" in changed and "own" not in changed
    report.only_own += "own" in changed and "foreign" not in changed
    report.leaked += any(canary in answers[kind] for kind in ("alone", "alone again", "own", "foreign"))


def measure(server: RunningServer, trials: int, *, neighbours: int = 3, tokens: int = 12, seed: int = 1) -> Report:
    report, dice = Report(), random.Random(seed)

    async def run() -> None:
        pool = Pool.of(
            Endpoint(
                base_url=server.base_url,
                model=MODEL,
                revision="r1",
                api_key=API_KEY,
                admin_key=ADMIN_KEY,
                tokenizer=server.model,
            )
        )
        try:
            for number in range(trials):
                await trial(pool, dice, neighbours, tokens, report)
                if (number + 1) % 50 == 0:
                    print(f"{number + 1} trials: {report.figures()}", flush=True)
        finally:
            await pool.aclose()

    asyncio.run(run())
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=500)
    parser.add_argument("--neighbours", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    began, load = time.monotonic(), os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder, running_server(Path(folder)) as server:
        report = measure(
            server,
            arguments.trials,
            neighbours=arguments.neighbours,
            tokens=arguments.tokens,
            seed=arguments.seed,
        )
    figures = report.figures()
    for name, figure in figures.items():
        print(f"{name:32} {figure}")
    seconds = round(time.monotonic() - began)
    print(json.dumps({**vars(arguments), **figures, "load": round(load, 1), "seconds": seconds}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
