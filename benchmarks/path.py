"""What the path of a question costs over the bare search and the bare embedding call; the last line is JSON.

    python -m benchmarks.path --data DIR [--quick] [--tenants N]

DIR holds retrieval/xquad-en and retrieval/scifact. One tenant holds the XQuAD passages and a part of SciFact, embedded
by the default model. For each question, in turn, so that all meet the same load of the machine: the bare embedding
call, the bare exact FAISS search over the same vectors, the product's search, `retrieve()` in this process, and
`POST /v1/retrieve` to a real server process on loopback. Then requests a second at 1 and 16 clients, exact cache hits
in this process with the time of the audit told apart, SQL statements of a question, and `benchmarks.many_tenants`:
what a thousand open tenants take in memory and how long one takes to open. Every intent is made durable before an
answer leaves, so the time of an fsync stands beside.

The files are in the temporary folder (TMPDIR), for the hits a second time in memory (/dev/shm), where an fsync is free.
Clients, server and the rest share this machine's processors.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import secrets
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, aclosing, closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from sqlalchemy import event, select

from audit.trail import Trail
from benchmarks import many_tenants
from benchmarks.retrieval_sets import read_set
from benchmarks.serving import UNLIMITED, Client, Sent, fsync, load, milliseconds, serving, timed
from indexing.ingest import Source, embed, prepare, write
from retrieval.answer import answer, retrieve
from retrieval.question import Answer, AnswerEvent, CacheMode, Done, Question
from retrieval.search import open_scope, search
from service.settings import load_settings
from service.wiring import Services, build
from tenancy import database, schema
from tenancy.acl import AccessList
from tenancy.identity import Principal, Role
from tenancy.tenant import TenantHandle

TENANT = "bench"
TOP_K = 8
SHARED_MEMORY = Path("/dev/shm")


def environment(folder: Path) -> dict[str, str]:
    key = base64.b64encode(many_tenants.MASTER.value).decode()
    return {"STRONGROOM_DATA_DIR": str(folder / "data"), "STRONGROOM_MASTER_KEY": key, **UNLIMITED}


class Bench:
    """A tenant with documents and one reader, opened in this process; `more` are further settings."""

    def __init__(self, folder: Path, passages: Sequence[str], more: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        settings = load_settings(environment={**environment(folder), **(more or {})})
        self.services: Services = build(settings, many_tenants.MASTER)
        self.path = self.services.path
        tenants = self.services.control.tenants
        tenants.create(TENANT)
        self.key = tenants.create_key(TENANT, "ana", [Role.READER]).text
        self.principal: Principal = self.services.control.authenticator.authenticate(self.key, "192.0.2.1")
        self.tenant: TenantHandle = tenants.open(self.principal)
        self.loop = asyncio.new_event_loop()
        self._ingest(passages)

    def close(self) -> None:
        self.loop.close()
        self.services.close()

    def run(self, work: Awaitable[Any]) -> Any:
        return self.loop.run_until_complete(work)

    def flush(self) -> None:
        """Wait for the outcomes, which are written behind the answers."""
        self.services.control.logs.of(self.principal).flush()

    def retrieve(self, text: str) -> None:
        found = self.run(retrieve(self.path, self.principal, Question(text, secrets.token_hex(16), top_k=TOP_K)))
        if len(found.passages) != TOP_K:
            raise SystemExit("fewer passages than asked for")

    def answer(self, text: str, cache: CacheMode = "default") -> Answer:
        async def last() -> AnswerEvent:
            asked = Question(text, secrets.token_hex(16), cache=cache)
            async with aclosing(answer(self.path, self.principal, asked)) as events:
                return [found async for found in events][-1]

        done = self.run(last())
        if not isinstance(done, Done):
            raise SystemExit("an answer did not end")
        return done.answer

    def hit(self, text: str) -> None:
        if self.answer(text).cache.status != "hit":
            raise SystemExit("expected a cache hit")

    def _ingest(self, passages: Sequence[str]) -> None:
        pipeline, access = self.services.pipeline, AccessList.of(["tenant"])
        prepared = [
            item
            for number, text in enumerate(passages)
            for item in prepare(
                self.tenant, pipeline, Source(f"passage-{number:04d}", text.encode(), access, "text/plain")
            )
        ]
        failed = [one for one in write(self.tenant, pipeline, embed(pipeline, prepared)) if one.error is not None]
        if failed:
            raise SystemExit(f"not ingested: {failed[0]}")


def overhead(bench: Bench, address: tuple[str, int], questions: Sequence[str]) -> dict[str, Any]:
    """Times of the works below, which take turns question by question."""
    with bench.tenant.reading() as view:
        rows = view.execute(select(schema.vectors.c.vector)).scalars().all()
    vectors = np.stack([np.frombuffer(row, "<f4") for row in rows])
    flat = faiss.IndexFlatIP(vectors.shape[1])
    flat.add(vectors)
    embedder, path = bench.path.embedders.default, bench.path
    embedded = {text: embedder.encode_query(text) for text in questions}
    client = Client(address)

    def searched(text: str) -> None:
        scope = open_scope(bench.principal, bench.tenant, path.collections)
        search(
            bench.tenant,
            bench.principal,
            scope,
            text,
            embedded[text],
            TOP_K,
            model=embedder.fingerprint,
            covers=embedder.covers(text),
        )

    def over_http(text: str) -> None:
        bench.run(client.send(Sent.post("/v1/retrieve", bench.key, {"query": text, "top_k": TOP_K})))

    works: dict[str, Callable[[str], object]] = {
        "embed": embedder.encode_query,
        "faiss": lambda text: flat.search(embedded[text][np.newaxis], TOP_K),
        "search": searched,
        "retrieve": bench.retrieve,
        "http": over_http,
    }
    times: dict[str, list[float]] = {name: [] for name in works}
    for turn, text in enumerate([*questions[:10], *questions]):
        for name, work in works.items():
            taken = timed(lambda work=work, text=text: work(text))  # type: ignore[misc]
            bench.flush()
            if turn >= 10:
                times[name].append(taken)
    bench.run(client.close())
    found: dict[str, Any] = {name: milliseconds(taken) for name, taken in times.items()}
    p50 = {name: found[name]["p50_ms"] for name in works}
    bare = p50["embed"] + p50["faiss"]
    found["vectors"] = len(vectors)
    found["search_to_faiss"] = round(p50["search"] / p50["faiss"], 1)
    for name in ("retrieve", "http"):
        found[f"{name}_to_embed_and_faiss"] = round(p50[name] / bare, 2)
        found[f"{name}_overhead_ms"] = round(p50[name] - bare, 2)
    return found


def throughput(bench: Bench, address: tuple[str, int], questions: Sequence[str], seconds: float) -> dict[str, Any]:
    """Requests a second; beside it how many questions a second the embedding model alone takes from one thread."""
    bodies: dict[str, tuple[str, dict[str, Any]]] = {
        "retrieve": ("/v1/retrieve", {"top_k": TOP_K}),
        "answer": ("/v1/answers", {"cache": "bypass"}),
        "hit": ("/v1/answers", {}),
    }
    found: dict[str, Any] = {}
    hot = questions[:8]
    for kind, (path, body) in bodies.items():
        requests = [
            Sent.post(path, bench.key, {"query": text, **body}) for text in (hot if kind == "hit" else questions)
        ]
        for clients in (1, 16):
            if kind == "hit":
                bench.run(load(address, requests, 1, 0.5))
            found[f"{kind}_{clients}"] = bench.run(load(address, requests, clients, seconds))
    until, embedded = time.perf_counter() + seconds, 0
    while time.perf_counter() < until:
        bench.path.embedders.default.encode_query(questions[embedded % len(questions)])
        embedded += 1
    found["embed_per_s"] = round(embedded / seconds, 1)
    found["retrieve_16_to_embed"] = round(found["retrieve_16"]["per_s"] / found["embed_per_s"], 2)
    return found


def hits(bench: Bench, text: str, rounds: int) -> dict[str, Any]:
    """Exact cache hits in this process: the whole, the wait for the durable intent, and the rest.

    `quiet` lets the log write the outcome before the next question, as with one user; `busy` does not.
    """
    found: dict[str, Any] = {}
    for kind in ("quiet", "busy"):
        whole: list[float] = []
        with timing_intents() as waits:
            for turn in range(rounds + 20):
                if turn == 20:
                    waits.clear()
                    whole.clear()
                whole.append(timed(lambda: bench.hit(text)))
                if kind == "quiet":
                    bench.flush()
        rest = [all_of_it - wait for all_of_it, wait in zip(whole, waits, strict=True)]
        found[kind] = {"whole": milliseconds(whole), "intent": milliseconds(waits), "rest": milliseconds(rest)}
    return found


@contextmanager
def timing_intents() -> Iterator[list[float]]:
    waits: list[float] = []
    original = Trail.intent

    async def intent(self: Trail) -> int:
        begun = time.perf_counter()
        try:
            return await original(self)
        finally:
            waits.append(time.perf_counter() - begun)

    Trail.intent = intent  # type: ignore[method-assign]
    try:
        yield waits
    finally:
        Trail.intent = original  # type: ignore[method-assign]


def statements(bench: Bench, text: str) -> dict[str, Any]:
    """SQL statements and transactions of one question, all files together, outcome included."""
    counts: Counter[str] = Counter()

    def count(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        counts["transactions" if statement.startswith("BEGIN") else "statements"] += 1

    works: dict[str, Callable[[], object]] = {
        "retrieve": lambda: bench.retrieve(text),
        "answer": lambda: bench.answer(text, "bypass"),
        "hit": lambda: bench.hit(text),
    }
    found: dict[str, Any] = {}
    event.listen(database._engine, "before_cursor_execute", count)
    for name, work in works.items():
        counts.clear()
        work()
        bench.flush()
        found[name] = dict(counts)
    event.remove(database._engine, "before_cursor_execute", count)
    return found


def cached_question(bench: Bench, questions: Sequence[str]) -> str:
    """A question whose answer the cache keeps."""
    for text in questions:
        if bench.answer(text).cache.stored:
            bench.flush()
            return text
    raise SystemExit("no answer was kept")


def show(title: str, found: dict[str, Any], folder: Path) -> None:
    """Print figures beside the load and the time of an fsync at that moment, which they keep."""
    found["load"] = round(os.getloadavg()[0], 1)
    found["fsync"] = milliseconds([timed(lambda: fsync(folder)) for _ in range(50)])
    print(title)
    for name, value in found.items():
        print(f"  {name:26} {json.dumps(value)}")
    sys.stdout.flush()


def passages_of(data: Path, scifact: int) -> tuple[list[str], list[str]]:
    """Passages, and questions that they answer."""
    xquad = read_set(data, "xquad-en")
    more = read_set(data, "scifact").documents.values() if scifact else ()
    return [*xquad.documents.values(), *islice(more, scifact)], list(xquad.questions.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--quick", action="store_true", help="small counts, to see that it runs")
    parser.add_argument("--tenants", type=int, help="of the memory measurement; 1,000 without")
    arguments = parser.parse_args()
    quick: bool = arguments.quick
    count = arguments.tenants or (30 if quick else 1_000)
    passages, questions = passages_of(arguments.data, 0 if quick else 300)
    result: dict[str, Any] = {"processors": os.cpu_count(), "load": round(os.getloadavg()[0], 1)}
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="strongroom-path-")))
        bench = stack.enter_context(closing(Bench(root / "disk", passages[: 40 if quick else None])))
        text = cached_question(bench, questions)
        result["statements"] = statements(bench, text)
        show("statements", result["statements"], bench.folder)
        result["hits_on_disk"] = hits(bench, text, 50 if quick else 400)
        show("hits_on_disk", result["hits_on_disk"], bench.folder)
        if SHARED_MEMORY.is_dir():
            memory = stack.enter_context(tempfile.TemporaryDirectory(prefix="strongroom-path-", dir=SHARED_MEMORY))
            other = stack.enter_context(closing(Bench(Path(memory) / "memory", passages[:40])))
            result["hits_in_memory"] = hits(other, cached_question(other, questions), 50 if quick else 400)
            show("hits_in_memory", result["hits_in_memory"], other.folder)
        with serving(environment(bench.folder), root / "server.log") as address:
            asked = questions[10 : 30 if quick else 160]
            result["overhead"] = overhead(bench, address, asked)
            show("overhead", result["overhead"], bench.folder)
            result["throughput"] = throughput(bench, address, asked, 1.0 if quick else 5.0)
            show("throughput", result["throughput"], bench.folder)
        (root / "many").mkdir()
        written = many_tenants.build(root / "many", passages, count)
        result["tenants"] = {"write_ms": round(written, 1), **many_tenants.measured(root / "many")}
        show("tenants", result["tenants"], bench.folder)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
