"""Ten thousand tenants on one node: what each costs on disk, in memory, in descriptors and in time; last line: JSON.

    python -m benchmarks.tenants [--quick] [--tenants 1000,10000] [--folder DIR] [--baseline-s 120]

Every tenant has 200 chunks of short texts in 20 documents, random unit vectors of 384 dimensions, and a reader with an
API key, all written by the product's own functions and made durable. Each part that measures memory or a start runs in
a process of its own; files are in the kernel's page cache, as they were just written. The baseline is qdrant-client in
local mode, one collection a tenant in one folder, as far as it gets in its time. The load average stands beside every
part: other programs on the machine show in it. Processor time, where it stands, does not depend on them so much.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from sqlalchemy import insert

from benchmarks.many_tenants import CHUNKS, DIMENSION, MASTER, MODEL, contents_of, fill, resident
from benchmarks.serving import UNLIMITED, milliseconds, serving, timed
from indexing.collections.open import OpenCollections
from indexing.embed import EmbeddingSettings, load_embedder
from retrieval.search import open_scope, search
from tenancy import schema
from tenancy.control import Tenants
from tenancy.identity import Authenticator, Principal, Role
from tenancy.pools import connections_within, raise_limit

WRITERS: Final = 4
READERS: Final = 4
OPEN: Final = 1_000
QUESTIONS: Final = 5_000
BUDGET_SHARE: Final = 0.2
"""The budget of the Zipf traffic, as a share of what all tenants would take."""

CLOSED: Final = 50_000
SOURCE: Final = "192.0.2.1"
_WORDS: Final = 4_000


def build(folder: Path, first: int, count: int, place: int, processes: int) -> dict[str, Any]:
    """Add every `processes`-th of the tenants `first` to `count`, as `WRITERS` threads; the keys of their readers lie
    in keys-PLACE.json.
    """
    contents = contents_of(_passages())
    embedder = load_embedder(EmbeddingSettings(model=MODEL))
    tenants = Tenants(folder / "data", MASTER)
    authenticator = Authenticator(tenants)
    stored = folder / f"keys-{place}.json"
    keys: dict[str, str] = json.loads(stored.read_text()) if stored.exists() else {}
    times: dict[str, list[float]] = {"create": [], "key": [], "write": []}

    def one(number: int) -> None:
        name = f"tenant-{number:05d}"
        times["create"].append(timed(lambda: tenants.create(name)))
        begun = time.perf_counter()
        keys[name] = tenants.create_key(name, "ana", [Role.READER]).text
        times["key"].append(time.perf_counter() - begun)
        handle = tenants.open(authenticator.operator(name))
        times["write"].append(timed(lambda: fill(handle, contents, embedder)))

    begun = time.perf_counter()
    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(one, range(first + place, count, processes)))
    taken = time.perf_counter() - begun
    tenants.close()
    stored.write_text(json.dumps(keys))
    return {
        "tenants": len(times["create"]),
        "seconds": round(taken, 1),
        "writers": WRITERS,
        **{name: milliseconds(found) for name, found in times.items()},
    }


def disk(folder: Path, count: int) -> dict[str, float]:
    """KiB that a tenant takes on the disk: its own files, its audit log, and its rows of the control plane."""
    taken = {
        name: sum(entry.stat().st_blocks * 512 for entry in (folder / "data" / name).rglob("*") if entry.is_file())
        for name in ("tenants", "audit")
    }
    control = sum(entry.stat().st_size for entry in (folder / "data").glob("control.sqlite*"))
    return {f"{name}_kib": round(size / count / 1024, 1) for name, size in {**taken, "control": control}.items()}


def start(folder: Path) -> dict[str, float]:
    """Seconds from a fresh process to its first answer that it is ready; the better of two."""
    key = base64.b64encode(MASTER.value).decode()
    environment = {
        "STRONGROOM_DATA_DIR": str(folder / "data"), "STRONGROOM_MASTER_KEY": key,
        "STRONGROOM_EMBEDDING__MODEL": MODEL, **UNLIMITED,
    }  # fmt: skip
    found = []
    for _ in range(2):
        begun = time.perf_counter()
        with serving(environment, folder / "server.log") as (host, port):
            with urllib.request.urlopen(f"http://{host}:{port}/healthz/ready", timeout=60) as response:
                assert response.status == 200
            found.append(time.perf_counter() - begun)
    return {"seconds": round(min(found), 2)}


class Opened:
    """The data directory in a process that holds nothing of it yet."""

    def __init__(self, folder: Path, budget: int) -> None:
        self.limit = raise_limit()
        self.embedder = load_embedder(EmbeddingSettings(model=MODEL))
        self.vector = self.embedder.encode_query("what is the rule")
        self.tenants = Tenants(folder / "data", MASTER)
        self.collections = OpenCollections(self.embedder.fingerprint, budget, waiters=READERS)
        authenticator = Authenticator(self.tenants)
        keys: dict[str, str] = {}
        for stored in folder.glob("keys-*.json"):
            keys |= json.loads(stored.read_text())
        self.names = sorted(keys)
        self._keys, self._authenticator = keys, authenticator

    def principal(self, number: int) -> Principal:
        return self._authenticator.authenticate(self._keys[self.names[number]], SOURCE)

    def ask(self, principal: Principal) -> tuple[float, float, float]:
        """Seconds to open the tenant in one state, to search it, and of this thread's processor time for opening it."""
        begun, busy = time.perf_counter(), time.thread_time()
        tenant = self.tenants.open(principal)
        scope = open_scope(principal, tenant, self.collections)
        opened, busy = time.perf_counter(), time.thread_time() - busy
        found = search(
            tenant, principal, scope, "what is the rule", self.vector, 8,
            model=self.embedder.fingerprint, covers=0.0,
        )  # fmt: skip
        if len(found.items) != 8:
            raise SystemExit("a tenant did not give 8 passages")
        return opened - begun, time.perf_counter() - opened, busy


def opened(folder: Path, count: int) -> dict[str, Any]:
    """Open so many tenants one after the other and keep them: memory, descriptors, times."""
    bench = Opened(folder, 64 << 30)
    people = [bench.principal(number) for number in range(min(count, len(bench.names)))]
    # What the first of all pays once in a process (compiled statements, imports) is no tenant's share.
    bench.ask(people[0])
    before, files = resident(), _open_files()
    cold = [bench.ask(person) for person in people[1:]]
    after = resident()
    warm = [bench.ask(person) for person in people]
    found = {
        "open": bench.collections.open_tenants,
        "resident_mib": round(after / 2**20, 1),
        "mib_a_tenant": round((after - before) / 2**20 / (len(people) - 1), 3),
        "estimated_mib_a_tenant": round(bench.collections.nbytes / 2**20 / len(people), 3),
        "descriptors": _open_files() - files,
        "descriptors_allowed": bench.limit,
        "connections_allowed": connections_within(bench.limit),
        "cold_open": milliseconds([opening for opening, _, _ in cold]),
        "cold_open_processor": milliseconds([busy for _, _, busy in cold]),
        "cold_open_and_search": milliseconds([opening + searching for opening, searching, _ in cold]),
        "warm_open": milliseconds([opening for opening, _, _ in warm]),
        "warm_search": milliseconds([searching for _, searching, _ in warm]),
    }
    bench.tenants.close()
    return found


def zipf(folder: Path, questions: int) -> dict[str, Any]:
    """Questions of `READERS` threads, tenants by Zipf's law, within a budget for a part of them."""
    probe = Opened(folder, 64 << 30)
    probe.ask(probe.principal(0))
    each = probe.collections.nbytes
    probe.tenants.close()
    count = len(probe.names)
    budget = max(8 * each, int(BUDGET_SHARE * count * each))
    bench = Opened(folder, budget)
    dice = np.random.default_rng(11)
    weights = 1 / np.arange(1, count + 1)
    order = dice.permutation(count)
    asked = order[dice.choice(count, size=questions, p=weights / weights.sum())]
    hits: list[float] = []
    misses: list[float] = []
    most = 0
    lock = threading.Lock()

    def one(number: int) -> None:
        nonlocal most
        begun = time.perf_counter()
        person = bench.principal(int(number))
        held = person.tenant_id in bench.collections.tenants if count <= OPEN else None
        opening, _, _ = bench.ask(person)
        taken = time.perf_counter() - begun
        # A load takes milliseconds, and finding a snapshot in memory far less than one.
        hit = opening < 0.003 if held is None else held
        with lock:
            (hits if hit else misses).append(taken)
            most = max(most, bench.collections.nbytes)

    warmed = questions // 5
    with ThreadPoolExecutor(READERS) as pool:
        list(pool.map(one, asked[:warmed]))
        hits.clear()
        misses.clear()
        begun = time.perf_counter()
        list(pool.map(one, asked[warmed:]))
        taken = time.perf_counter() - begun
    bench.tenants.close()
    return {
        "questions": questions - warmed,
        "threads": READERS,
        "budget_mib": round(budget / 2**20, 1),
        "most_mib": round(most / 2**20, 1),
        "open": bench.collections.open_tenants,
        "hit_rate": round(len(hits) / (len(hits) + len(misses)), 3),
        "per_s": round((questions - warmed) / taken, 1),
        **milliseconds([*hits, *misses]),
        "hit": milliseconds(hits),
        "miss": milliseconds(misses or [0.0]),
        "resident_mib": round(resident() / 2**20, 1),
    }


def listing(folder: Path, count: int) -> dict[str, Any]:
    """List tenants that exist as rows alone: nothing of them is ever opened."""
    tenants = Tenants(folder / "data", MASTER)
    rows = [
        {"id": f"t_{number:032x}", "name": f"closed-{number:06d}", "status": "active", "created": 0.0, "contract": {}}
        for number in range(count)
    ]
    with tenants._control.writing() as connection:
        connection.execute(insert(schema.tenants), rows)
    page = [timed(lambda: tenants.page(after=f"closed-{count // 2:06d}", limit=100)) for _ in range(20)]
    forget = [timed(tenants.forget_deleted) for _ in range(20)]
    key = base64.b64encode(MASTER.value).decode()
    environment = {**os.environ, "STRONGROOM_DATA_DIR": str(folder / "data"), "STRONGROOM_MASTER_KEY": key}
    program = Path(sys.executable).parent / "strongroom"
    begun = time.perf_counter()
    listed = subprocess.run(
        [program, "tenant", "list", "--json"], env=environment, capture_output=True, text=True, check=True
    )
    taken = time.perf_counter() - begun
    most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    assert len(json.loads(listed.stdout)) == count
    started = start(folder)
    tenants.close()
    return {
        "tenants": count,
        "command_s": round(taken, 2),
        "command_most_resident_mib": round(most / 1024, 1),
        "page_of_100": milliseconds(page),
        "forget_deleted": milliseconds(forget),
        "server_start_s": started["seconds"],
    }


def baseline(folder: Path, seconds: float, most: int) -> dict[str, Any]:
    """qdrant-client in local mode: a collection of 200 points for each tenant, until the time is over."""
    from qdrant_client import QdrantClient
    from qdrant_client.models import Distance, PointStruct, VectorParams

    vectors = np.random.default_rng(7).normal(size=(CHUNKS, DIMENSION)).astype(np.float32)
    points = [PointStruct(id=number, vector=row.tolist()) for number, row in enumerate(vectors)]
    before = resident()
    client = QdrantClient(path=str(folder))
    begun, made = time.perf_counter(), 0
    while made < most and time.perf_counter() - begun < seconds:
        client.create_collection(f"c{made}", VectorParams(size=DIMENSION, distance=Distance.COSINE))
        client.upsert(f"c{made}", points)
        made += 1
    taken = time.perf_counter() - begun
    after = resident()
    searches = [
        timed(partial(client.query_points, f"c{number % made}", query=vectors[number].tolist(), limit=8))
        for number in range(100)
    ]
    client.close()
    reopened = timed(lambda: QdrantClient(path=str(folder)).close())
    size = sum(entry.stat().st_blocks * 512 for entry in folder.rglob("*") if entry.is_file())
    return {
        "tenants": made,
        "seconds": round(taken, 1),
        "per_s": round(made / taken, 1),
        "mib_a_tenant": round((after - before) / 2**20 / made, 3),
        "disk_kib": round(size / made / 1024, 1),
        "search": milliseconds(searches),
        "start_s": round(reopened, 2),
        "start_ms_a_tenant": round(1e3 * reopened / made, 2),
    }


PARTS: Final[dict[str, Callable[..., Any]]] = {
    "build": build, "opened": opened, "zipf": zipf, "listing": listing, "baseline": baseline,
}  # fmt: skip


def apart(part: str, folder: Path, *arguments: float) -> dict[str, Any]:
    """One part in a process of its own, with the load average at its beginning and end."""
    before = os.getloadavg()[0]
    words = [sys.executable, "-m", "benchmarks.tenants", "--part", part, "--folder", str(folder)]
    run = subprocess.run([*words, *map(str, arguments)], stdout=subprocess.PIPE, text=True, check=False)
    if run.returncode:
        raise SystemExit(f"{part} ended with {run.returncode}")
    found: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return found | {"load": [round(before, 1), round(os.getloadavg()[0], 1)]}


def side_by_side(folder: Path, first: int, count: int) -> dict[str, Any]:
    """Build with as many processes as there are processors: what a loader of many tenants would do."""
    processes = os.cpu_count() or 1
    with ThreadPoolExecutor(processes) as pool:
        begun = time.perf_counter()
        parts = list(pool.map(lambda place: apart("build", folder, first, count, place, processes), range(processes)))
        taken = time.perf_counter() - begun
    return {"tenants": count - first, "per_s": round((count - first) / taken, 1), "processes": parts}


@contextmanager
def _folder(given: Path | None) -> Iterator[Path]:
    if given is not None:
        given.mkdir(parents=True, exist_ok=True)
        yield given
    else:
        with tempfile.TemporaryDirectory(prefix="tenants-") as made:
            yield Path(made)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a hundredth of everything")
    parser.add_argument("--tenants", default="1000,10000", help="scales, ascending")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--baseline-s", type=float, default=120.0)
    parser.add_argument("--part", choices=[*PARTS])
    parser.add_argument("arguments", nargs="*", type=float)
    given = parser.parse_args()
    if given.part:
        whole = [int(one) if one == int(one) else one for one in given.arguments]
        print(json.dumps(PARTS[given.part](given.folder, *whole)))
        return
    scales = [10, 40] if given.quick else [10, *map(int, given.tenants.split(","))]
    with _folder(given.folder) as folder:
        result: dict[str, Any] = {"chunks": CHUNKS, "dimension": DIMENSION, "scales": {}}
        built = 0
        for scale in scales:
            found: dict[str, Any] = {"build": side_by_side(folder, built, scale), "disk": disk(folder, scale)}
            built = scale
            found["start"] = start(folder) | {"load": round(os.getloadavg()[0], 1)}
            if scale > scales[0]:
                found["opened"] = apart("opened", folder, min(scale, OPEN))
                found["zipf"] = apart("zipf", folder, 200 if given.quick else QUESTIONS)
            result["scales"][str(scale)] = found
            print(json.dumps({scale: found}), file=sys.stderr, flush=True)
        for name in ("listed", "qdrant"):
            (folder / name).mkdir(exist_ok=True)
        result["listing"] = apart("listing", folder / "listed", CLOSED // 100 if given.quick else CLOSED)
        seconds = 3.0 if given.quick else given.baseline_s
        result["qdrant_local"] = apart("baseline", folder / "qdrant", seconds, scales[-1])
    print(json.dumps(result))


def _passages() -> list[str]:
    """Texts of about 60 words, with the frequencies of a language."""
    dice = np.random.default_rng(3)
    words = [f"{first}{second}" for first in ("ba", "ke", "lo", "mi", "nu", "ra", "so", "ti") for second in range(500)]
    weights = 1 / np.arange(1, _WORDS + 1)
    chosen = dice.choice(_WORDS, size=(CHUNKS, 60), p=weights / weights.sum())
    return [f"what is the rule of {' '.join(words[word] for word in row)}" for row in chosen]


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


if __name__ == "__main__":
    main()
