"""What the service adds to a generation, over calling SGLang directly with the same prompts; the last line is JSON.

    python -m benchmarks.generation [--quick] [--rounds 40] [--seconds 40] [--tokens 24] [--embedding MODEL]

It starts a real SGLang server on the processor, as the tests do, and `strongroom serve` before it, with the default
embedding model and nothing remembered. `sglang direct` sends the service's own rendered prompts, recorded once, to the
server itself. Both take turns, each request on a connection of its own and with a fresh salt, so that both read every
prompt afresh: 1 stream at a time, and 8 at once. Time to first token is until the first text arrives, which the
service may hold back until its checks of the answer have seen enough: `held_pieces` is how many of the server's pieces
those checks keep before they let the first text out. The audit's share is measured in this process: the wait for the
durable intent of an answer, beside the bare fsync of 4 KiB in the same folder.

Then small requests beside clients who send prompts of 3,000 tokens as fast as they are answered, through the pool:
without any lane, with the lane for small requests, with lane and bound on prefill tokens; and alone. Small requests
come at random times, whatever becomes of those before them.

The model is tiny, so that the ratios are the worst that the service can look: its own work is the same beside a model
that takes a hundred times as long. Clients, service and engine share this machine's processors.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import secrets
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, aclosing, closing, contextmanager
from pathlib import Path
from typing import Any

from audit.query import Filters, query_log, view
from benchmarks.batch_neighbours import TEMPLATE, cold, made
from benchmarks.path import Bench, environment, timing_intents
from benchmarks.serving import Sent, Stream, fsync, milliseconds, serving, timed
from generation.canary import CanaryCheck
from generation.endpoint import Endpoint
from generation.generator import Delta
from generation.lanes import LaneTerms
from generation.links import LinkCheck
from generation.output import Chain
from generation.pool import Pool, PoolTerms
from generation.prompt import Prompt, PromptSource, render
from generation.replica import Patience, Replica, Request
from tests.support.sglang_server import ADMIN_KEY, API_KEY, MODEL, RunningServer, running_server

STREAMS = (1, 8)
ARMS = ("sglang direct", "strongroom")
LARGE_TOKENS, LARGE_CLIENTS, SLOTS = 3_000, 8, 6
WAIT_S = 300.0
LANES = {
    "alone": LaneTerms(slots=SLOTS),
    "no lane": LaneTerms(slots=SLOTS, small_slots=0, small_tokens=0, prefill_tokens=1 << 40),
    "lane": LaneTerms(slots=SLOTS, prefill_tokens=1 << 40),
    "lane and cap": LaneTerms(slots=SLOTS, prefill_tokens=4_096),
}


def passages(count: int) -> tuple[list[str], list[str]]:
    """Passages, and a question for each."""
    texts = [
        f"Office {number} grants {10 + number % 20} days of leave a year, {number % 7} more after {number % 9} years. "
        f"Whoever works at office {number} asks the manager at least {number % 30} days before."
        for number in range(100, 100 + count)
    ]
    return texts, [f"How many days of leave does office {number} grant?" for number in range(100, 100 + count)]


def settings(folder: Path, server: RunningServer, tokens: int, embedding: str) -> dict[str, str]:
    for name, key in (("api.key", API_KEY), ("admin.key", ADMIN_KEY)):
        (folder / name).write_text(key)
    terms = {
        "KIND": "sglang",
        "BASE_URL": server.base_url,
        "MODEL": MODEL,
        "REVISION": "r1",
        "TOKENIZER": str(server.model),
        "API_KEY_FILE": str(folder / "api.key"),
        "ADMIN_KEY_FILE": str(folder / "admin.key"),
        "MAX_TOKENS": str(tokens),
        "KV_SHARING": "none",
    }
    return {
        "STRONGROOM_CACHE__ENABLED": "false",
        "STRONGROOM_EMBEDDING__MODEL": embedding,
        **{f"STRONGROOM_GENERATION__{name}": value for name, value in terms.items()},
    }


@contextmanager
def _recording() -> Iterator[dict[str, dict[str, Any]]]:
    """The bodies that this process sends to a generator, by question."""
    bodies: dict[str, dict[str, Any]] = {}
    original = Replica.body

    def body(self: Replica, request: Request, engine_request: str) -> dict[str, Any]:
        made = bodies[request.prompt.question] = original(self, request, engine_request)
        return made

    Replica.body = body  # type: ignore[method-assign]
    try:
        yield bodies
    finally:
        Replica.body = original  # type: ignore[method-assign]


def direct_body(recorded: dict[str, Any]) -> dict[str, Any]:
    return {**recorded, "cache_salt": secrets.token_hex(32), "rid": secrets.token_hex(16)}


def text_of(name: str, data: str) -> str | None:
    """The text of an event of either arm; None at the end of the stream."""
    if data == "[DONE]" or name == "done":
        return None
    event = json.loads(data)
    if name == "delta":
        return str(event["text"])
    if name == "error" or "error" in event:
        raise SystemExit(f"a stream failed: {data}")
    return "" if name or not event["choices"] else str(event["choices"][0]["delta"].get("content") or "")


async def streamed(address: tuple[str, int], request: Sent) -> tuple[float, float, list[str]]:
    """Seconds to the first text and to the end of a stream, and its texts."""
    stream, texts, first = Stream(address, request), list[str](), 0.0
    begun = time.perf_counter()
    async with aclosing(stream.events()) as events:
        async for name, data in events:
            text = text_of(name, data)
            if text is None:
                stream.leave()
                return first, time.perf_counter() - begun, texts
            if text:
                first = first or time.perf_counter() - begun
                texts.append(text)
    raise SystemExit(f"a stream did not end: {stream.status} {stream.body[:500]!r}")


async def added(
    requests: dict[str, list[tuple[tuple[str, int], Sent]]], streams: int, texts: list[list[str]]
) -> dict[str, Any]:
    """Both arms in turn, so many streams at once; `texts` takes what SGLang said."""
    first: dict[str, list[float]] = {arm: [] for arm in ARMS}
    whole: dict[str, list[float]] = {arm: [] for arm in ARMS}
    for block, at in enumerate(range(0, len(requests[ARMS[0]]), streams)):
        for arm in ARMS if block % 2 else reversed(ARMS):
            for times in await asyncio.gather(*(streamed(*one) for one in requests[arm][at : at + streams])):
                first[arm].append(times[0])
                whole[arm].append(times[1])
                if arm == ARMS[0]:
                    texts.append(times[2])
    return {
        "requests": len(first[ARMS[0]]),
        "first_token": {arm: milliseconds(times) for arm, times in first.items()},
        "total": {arm: milliseconds(times) for arm, times in whole.items()},
        "first_token_ratio": _ratio(first),
        "total_ratio": _ratio(whole),
        "first_token_added_ms": _added_ms(first),
        "total_added_ms": _added_ms(whole),
    }


def _ratio(times: dict[str, list[float]]) -> float:
    return round(statistics.median(times[ARMS[1]]) / statistics.median(times[ARMS[0]]), 2)


def _added_ms(times: dict[str, list[float]]) -> float:
    return round(1e3 * (statistics.median(times[ARMS[1]]) - statistics.median(times[ARMS[0]])), 1)


def held_pieces(texts: Sequence[Sequence[str]]) -> float:
    """Median number of pieces that the checks of an answer keep before the first text leaves."""
    found = []
    for pieces in texts:
        checks = Chain([CanaryCheck("zq" + "0" * 20), LinkCheck([])])
        kept = 0
        for piece in pieces:
            if checks.feed(piece):
                break
            kept += 1
        found.append(kept)
    return statistics.median(found)


def service(server: RunningServer, folder: Path, rounds: int, more: dict[str, str]) -> dict[str, Any]:
    """Record the prompts in this process, with what the audit takes; then measure a server process."""
    count = 8 * max(1, rounds // 8)
    texts, questions = passages(count)
    with ExitStack() as stack:
        bench = stack.enter_context(closing(Bench(folder / "disk", texts, more)))
        intents = stack.enter_context(timing_intents())
        with _recording() as recorded:
            for question in questions:
                bench.answer(question, "bypass")
        if missing := set(questions) - recorded.keys():
            raise SystemExit(f"not answered by the model: {missing}")
        bodies = [recorded[question] for question in questions]
        bench.run(bench.path.routes.aclose())
        found: dict[str, Any] = {
            "prompt_tokens": statistics.median(_tokens(bench, body) for body in bodies),
            "intent": milliseconds(intents),
            "fsync": milliseconds([timed(lambda: fsync(bench.folder)) for _ in range(50)]),
        }
        host, port = server.base_url.removeprefix("http://").rsplit(":", 1)
        said: list[list[str]] = []
        with serving({**environment(bench.folder), **more}, folder / "server.log") as address:
            asked = [
                (address, Sent.post("/v1/answers", bench.key, {"query": question, "stream": True}))
                for question in questions
            ]
            for one in asked[:3]:
                bench.run(streamed(*one))
            for streams in STREAMS:
                direct = [
                    ((host, int(port)), Sent.post("/v1/chat/completions", API_KEY, direct_body(body)))
                    for body in bodies
                ]
                found[f"streams_{streams}"] = bench.run(added({ARMS[0]: direct, ARMS[1]: asked}, streams, said))
        found["held_pieces"] = held_pieces(said)
        for streams, records in zip(STREAMS, outcomes(bench, count), strict=True):
            found[f"streams_{streams}"]["hops_p50_ms"] = hops(records)
        return found


def outcomes(bench: Bench, count: int) -> tuple[list[Any], list[Any]]:
    """The last outcomes in the tenant's audit log, `count` and then `count`, oldest first."""
    log = bench.services.control.logs.of(bench.principal)
    page = query_log(log, Filters(order="desc"), limit=1_000)
    found = [view(stored, log.subjects) for stored in reversed(page.events)]
    answers = [event for event in found if (event["phase"], event["action"]) == ("outcome", "answer")]
    return answers[-2 * count : -count], answers[-count:]


def hops(outcomes: Sequence[Any]) -> dict[str, float]:
    """Median milliseconds of each step of the service, as the audit has them."""
    taken: dict[str, list[int]] = defaultdict(list)
    for event in outcomes:
        for name, spent in event["cost"]["hops"]:
            taken[name].append(spent)
    return {name: statistics.median(times) for name, times in taken.items()}


def _tokens(bench: Bench, body: dict[str, Any]) -> int:
    (pool,) = bench.path.routes.pools  # type: ignore[attr-defined]
    return sum(pool.count(message["content"]) for message in body["messages"])


def large(pool: Pool, dice: random.Random) -> Prompt:
    """A prompt of about `LARGE_TOKENS` tokens that nobody sent before."""
    text = ""
    while pool.count(text) < LARGE_TOKENS:
        text += " ".join(f"Rule {dice.randrange(10**6)} holds for office {dice.randrange(10**6)}." for _ in range(20))
    return render(TEMPLATE, "Which rule holds?", [PromptSource("S1", "rules", "rules", text)])


async def timed_answer(pool: Pool, prompt: Prompt, tokens: int) -> tuple[float, float]:
    """Seconds to the first piece, and to the end."""
    begun, first = time.perf_counter(), 0.0
    async with aclosing(cold(pool, prompt, tokens)) as pieces:
        async for piece in pieces:
            if isinstance(piece, Delta):
                first = first or time.perf_counter() - begun
    return first or time.perf_counter() - begun, time.perf_counter() - begun


async def beside_large(server: RunningServer, name: str, seconds: float, seed: int) -> dict[str, list[float]]:
    """Times of small requests during so many seconds, under the terms of this name."""
    endpoint = Endpoint(
        base_url=server.base_url,
        model=MODEL,
        revision="r1",
        api_key=API_KEY,
        admin_key=ADMIN_KEY,
        tokenizer=server.model,
    )
    replica = Replica(endpoint, patience=Patience(first_token_s=WAIT_S, stall_s=WAIT_S))
    pool, dice = Pool([replica], PoolTerms(lanes=LANES[name])), random.Random(seed)
    larges = [large(pool, dice) for _ in range(LARGE_CLIENTS)]
    found: dict[str, list[float]] = {"first": [], "total": [], "large": []}

    async def large_client(number: int) -> None:
        while True:
            found["large"].append((await timed_answer(pool, larges[number], 4))[1])

    async def small_client() -> None:
        first, whole = await timed_answer(pool, made(dice, "acme"), 4)
        found["first"].append(first)
        found["total"].append(whole)

    clients = [asyncio.create_task(large_client(number)) for number in range(LARGE_CLIENTS) if name != "alone"]
    await asyncio.sleep(2)  # until the large ones fill the engine
    smalls, until = list[asyncio.Task[None]](), time.monotonic() + seconds
    while time.monotonic() < until:
        smalls.append(asyncio.create_task(small_client()))
        await asyncio.sleep(dice.expovariate(2.0))
    await asyncio.gather(*smalls)
    for client in clients:
        client.cancel()
    for ended in await asyncio.gather(*clients, return_exceptions=True):
        if isinstance(ended, Exception):
            raise ended
    await pool.aclose()
    return found


def head_of_line(server: RunningServer, seconds: float) -> dict[str, Any]:
    """All terms in turn, twice."""
    times: dict[str, dict[str, list[float]]] = {name: {"first": [], "total": [], "large": []} for name in LANES}
    for turn in range(2):
        for name in LANES if turn else reversed(LANES):
            for kind, taken in asyncio.run(beside_large(server, name, seconds / 2, turn)).items():
                times[name][kind] += taken
    found: dict[str, Any] = {
        name: {
            "small_requests": len(of["first"]),
            "first_token": milliseconds(of["first"]),
            "total": milliseconds(of["total"]),
            "large_answers": len(of["large"]),
        }
        for name, of in times.items()
    }
    p99 = {name: found[name]["first_token"]["p99_ms"] for name in LANES}
    p50 = {name: found[name]["first_token"]["p50_ms"] for name in LANES}
    for name in ("lane", "lane and cap"):
        found[name]["first_token_p50_to_no_lane"] = round(p50[name] / p50["no lane"], 3)
        found[name]["first_token_p99_to_no_lane"] = round(p99[name] / p99["no lane"], 3)
    return found


def load() -> float:
    return round(os.getloadavg()[0], 1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small counts, to see that it runs")
    parser.add_argument("--rounds", type=int, default=40, help="questions of each arm")
    parser.add_argument("--seconds", type=float, default=40.0, help="of small requests, for each kind of lane")
    parser.add_argument("--tokens", type=int, default=24, help="of an answer")
    parser.add_argument("--embedding", default="packaged:all-MiniLM-L6-v2", help="hashing:256 is none at all")
    arguments = parser.parse_args()
    rounds, seconds = (8, 4.0) if arguments.quick else (arguments.rounds, arguments.seconds)
    result: dict[str, Any] = {"processors": os.cpu_count(), "embedding": arguments.embedding, "load": load()}
    with tempfile.TemporaryDirectory(prefix="strongroom-generation-") as name, ExitStack() as stack:
        folder = Path(name)
        server = stack.enter_context(running_server(folder))
        more = settings(folder, server, arguments.tokens, arguments.embedding)
        result["added"] = service(server, folder, rounds, more)
        result["load_after_added"] = load()
        for figure, value in result["added"].items():
            print(f"{figure:14} {json.dumps(value)}", flush=True)
        result["head_of_line"] = head_of_line(server, seconds)
        result["load_after_head_of_line"] = load()
        for lane, found in result["head_of_line"].items():
            print(f"{lane:14} {json.dumps(found)}", flush=True)
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
