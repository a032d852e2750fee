"""Very many small files into one tenant, and again after a few were edited; the last line is JSON.

    python -m benchmarks.ingest_many [--quick] [--files 100000] [--model hashing:384] [--folder DIR]

Each run is a process of its own, which reads, parses (in worker processes), cuts, embeds and writes as `strongroom
ingest` does. `share` is the rate of the first run as a share of bare embedding of the same chunks in the same batches,
`cpu_share` the same by seconds of processors, parsers included, which others on the machine disturb less. Then the same
run again; again after 1 % of the files were edited, with the share of chunks that were embedded anew; a run into
another tenant that is killed (SIGKILL) in the middle, what is there after it, and the run that completes it; and, with
`strongroom ingest --watch`, seconds from a save until a search finds the text. Memory peaks are of the process and of
its largest parser. Every file is a document of one chunk, but one of fifty has a few pages.
"""

from __future__ import annotations

import argparse
import base64
import gc
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from sqlalchemy import func, select

from indexing.acl_rules import Decision
from indexing.batch import BATCH_CHUNKS, ingest_paths
from indexing.collections.open import OpenCollections
from indexing.embed import Embedder, EmbeddingSettings, Vectors, load_embedder
from indexing.ingest import Pipeline
from indexing.parse.pool import ParsePool
from tenancy import schema
from tenancy.acl import AccessList
from tenancy.control import Tenants
from tenancy.domain import permission_domain
from tenancy.identity import Authenticator, Role
from tenancy.keys import MasterKey
from tenancy.tenant import TenantHandle

_KEY: Final = bytes(32)
_WORDS: Final = [f"{first}{last}" for first in ("re", "un", "de", "con") for last in ("port", "form", "tract", "sign")]
_IN_FOLDER: Final = 500
_EVERY: Final = 50
_ROOT: Final = Path(__file__).parents[1]


def write_files(folder: Path, count: int) -> None:
    dice = random.Random(7)
    for number in range(count):
        path = folder / f"{number // _IN_FOLDER:04}" / f"{number:06}.txt"
        path.parent.mkdir(exist_ok=True)
        paragraphs = 30 if number % _EVERY == 0 else 1
        text = "\n\n".join(" ".join(dice.choices(_WORDS, k=40)) + "." for _ in range(paragraphs))
        path.write_text(f"Note {number}\n\n{text}\n", encoding="utf-8")


def edit(folder: Path, count: int) -> int:
    """A sentence more in the middle of one file of a hundred."""
    chosen = random.Random(11).sample(range(count), max(1, count // 100))
    for number in chosen:
        path = folder / f"{number // _IN_FOLDER:04}" / f"{number:06}.txt"
        paragraphs = path.read_text(encoding="utf-8").split("\n\n")
        paragraphs[len(paragraphs) // 2] += " This was added later."
        path.write_text("\n\n".join(paragraphs), encoding="utf-8")
    return len(chosen)


class Counted:
    """An embedder that counts what it is given."""

    def __init__(self, inner: Embedder) -> None:
        self._inner = inner
        self.texts = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def encode(self, texts: Sequence[str]) -> Vectors:
        self.texts += len(texts)
        return self._inner.encode(texts)


def opened(data: Path, name: str) -> TenantHandle:
    tenants = Tenants(data, MasterKey(_KEY))
    return tenants.open(Authenticator(tenants).operator(name))


def work(data: Path, name: str, folder: Path, model: str) -> None:
    """One run, in the process that was started for it; it tells how far it is, and ends with its figures."""
    embedder = Counted(load_embedder(EmbeddingSettings(model=model)))
    tenant = opened(data, name)
    pool = ParsePool()
    pipeline = Pipeline(embedder, parse=pool.parse, parse_all=pool.parse_all, max_bytes=pool.limits.max_bytes)
    decision = Decision(AccessList.of(["tenant"]), by="benchmark")
    found: Counter[str] = Counter()
    # As the command does.
    gc.freeze()
    before, begun = _processor_seconds(resource.RUSAGE_SELF), time.perf_counter()
    try:
        for number, outcome in enumerate(
            ingest_paths(tenant, pipeline, [folder], lambda _: decision, lambda: None), start=1
        ):
            found[outcome.status.value] += 1
            if number % 100 == 0:
                print(number, flush=True)
    finally:
        pool.close()
    seconds = time.perf_counter() - begun
    used = _processor_seconds(resource.RUSAGE_SELF) - before + _processor_seconds(resource.RUSAGE_CHILDREN)
    peaks = {
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "parser_peak_mib": round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024),
    }
    print(
        json.dumps(
            {"seconds": round(seconds, 1), "cpu_s": round(used, 1), "embedded": embedder.texts, **found, **peaks}
        ),
        flush=True,
    )


def _processor_seconds(who: int) -> float:
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def command(data: Path, name: str, folder: Path, model: str) -> list[str]:
    return [sys.executable, "-m", "benchmarks.ingest_many", "--work", str(data), name, str(folder), model]


def run(data: Path, name: str, folder: Path, model: str) -> dict[str, Any]:
    done = subprocess.run(command(data, name, folder, model), cwd=_ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def killed(data: Path, name: str, folder: Path, model: str, after: int) -> dict[str, Any]:
    """A run that ends in the middle; how many documents were told, how many are there, and whether each is whole."""
    worker = subprocess.Popen(command(data, name, folder, model), cwd=_ROOT, stdout=subprocess.PIPE, text=True)
    told = 0
    assert worker.stdout is not None
    for line in worker.stdout:
        told = int(line)
        if told >= after:
            break
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    worker.stdout.close()
    found = counted(opened(data, name))
    return {"told": told, **found}


def counted(tenant: TenantHandle) -> dict[str, int]:
    """Documents, and those that lack a chunk of their version, a vector, or their access list."""
    chunks, versions = schema.chunks.c, schema.versions.c
    held = select(chunks.document_id, func.count().label("count")).group_by(chunks.document_id).subquery()
    with tenant.reading() as view:
        present = view.execute(select(func.count()).select_from(schema.documents)).scalar_one()
        whole = view.execute(
            select(func.count())
            .select_from(schema.versions)
            .join(held, held.c.document_id == versions.document_id)
            .where(versions.retired.is_(None) & (held.c.count == versions.chunks))
        ).scalar_one()
        bare = view.execute(
            select(func.count())
            .select_from(schema.chunks.outerjoin(schema.vectors))
            .where(schema.vectors.c.chunk_id.is_(None))
        ).scalar_one()
        listed = view.execute(select(func.count(schema.acl.c.document_id.distinct()))).scalar_one()
    return {"documents": present, "broken": present - whole + bare + present - listed}


def bare_rate(data: Path, name: str, embedder: Embedder, most: int) -> tuple[float, float]:
    """Chunks a second of bare embedding, of the first `most` chunks; and by seconds of processors."""
    with opened(data, name).reading() as view:
        texts = list(view.execute(select(schema.chunks.c.text).order_by(schema.chunks.c.id).limit(most)).scalars())
    embedder.encode(texts[:8])
    cpu, begun = time.process_time(), time.perf_counter()
    for start in range(0, len(texts), BATCH_CHUNKS):
        embedder.encode(texts[start : start + BATCH_CHUNKS])
    return len(texts) / (time.perf_counter() - begun), len(texts) / (time.process_time() - cpu)


@contextmanager
def watching(data: Path, name: str, folder: Path, model: str) -> Iterator[None]:
    """`strongroom ingest --watch`, from when it watches."""
    environment = {
        **os.environ,
        "STRONGROOM_DATA_DIR": str(data),
        "STRONGROOM_MASTER_KEY": base64.b64encode(_KEY).decode(),
        "STRONGROOM_EMBEDDING__MODEL": model,
    }
    words = [sys.executable, "-c", "from service.cli import main; main()", "ingest", "--tenant", name, str(folder)]
    process = subprocess.Popen(
        [*words, "--allow", "tenant", "--watch"],
        cwd=_ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if "watching" in line:
                break
        else:
            raise SystemExit("it does not watch")
        yield
    finally:
        process.terminate()
        process.communicate()


def latencies(data: Path, name: str, folder: Path, embedder: Embedder, count: int) -> list[float]:
    """Seconds from a save until a search finds the new text first."""
    tenants = Tenants(data, MasterKey(_KEY))
    authenticator = Authenticator(tenants)
    handle = tenants.open(authenticator.operator(name))
    reader = authenticator.authenticate(tenants.create_key(name, "reader", [Role.READER]).text, "127.0.0.1")
    collections = OpenCollections(embedder.fingerprint, 1 << 32)
    taken = []

    def found(vector: Any, document: str) -> bool:
        with collections.opened(handle) as (view, snapshot):
            best = snapshot.dense(permission_domain(reader, view), vector, 1)
            ids = [scored.chunk_id for scored in best]
            query = select(schema.documents.c.name).join(schema.chunks).where(schema.chunks.c.id.in_(ids))
            return view.execute(query).scalars().all() == [document]

    for number in range(count):
        text = f"zebra{number} umbrella{number * 7} quartz{number * 13}"
        vector = embedder.encode([text])[0]
        found(vector, "")
        path = folder / f"saved-{number}.txt"
        begun = time.perf_counter()
        path.write_text(text, encoding="utf-8")
        while not found(vector, path.name):
            if time.perf_counter() - begun > 120:
                raise SystemExit("a file that was saved was not found within two minutes")
            time.sleep(0.02)
        taken.append(time.perf_counter() - begun)
    return sorted(taken)


def measure(folder: Path, count: int, model: str) -> dict[str, Any]:
    data, files = folder / "data", folder / "files"
    files.mkdir()
    write_files(files, count)
    tenants = Tenants(data, MasterKey(_KEY))
    for name in ("whole", "killed"):
        tenants.create(name)
    tenants.close()
    embedder = load_embedder(EmbeddingSettings(model=model))
    result: dict[str, Any] = {}

    def note(name: str, value: Any) -> None:
        result[name] = value
        print(f"{name:12} {json.dumps(value)} (load {os.getloadavg()[0]:.1f})", flush=True)

    first = run(data, "whole", files, model)
    bare, bare_cpu = bare_rate(data, "whole", embedder, min(first["embedded"], 20_000))
    rate = first["embedded"] / first["seconds"]
    shares = {"share": round(rate / bare, 3), "cpu_share": round(first["embedded"] / first["cpu_s"] / bare_cpu, 3)}
    note("first", {**first, "chunks_per_s": round(rate), "bare_per_s": round(bare), **shares})
    note("second", run(data, "whole", files, model))
    edited = edit(files, count)
    again = run(data, "whole", files, model)
    note("edited", {"files": edited, **again, "embedded_share": round(again["embedded"] / first["embedded"], 4)})
    note("killed", killed(data, "killed", files, model, count // 2))
    resumed = run(data, "killed", files, model)
    note("resumed", {**resumed, **counted(opened(data, "killed"))})
    with watching(data, "whole", files, model):
        taken = latencies(data, "whole", files, embedder, 10)
    note("watch_s", {"median": round(taken[len(taken) // 2], 2), "most": round(taken[-1], 2), "saves": len(taken)})
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few files, to see that it runs")
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--model", default="hashing:384", help="the rate of a real model is that of embedding")
    parser.add_argument("--folder", type=Path, help="where the files and the tenants lie meanwhile")
    parser.add_argument("--work", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        data, name, folder, model = arguments.work
        work(Path(data), name, Path(folder), model)
        return
    count = 600 if arguments.quick else arguments.files
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="strongroom-many-", dir=arguments.folder) as name:
        result = measure(Path(name), count, arguments.model)
    summary = {"model": arguments.model, "files": count, "processors": os.cpu_count(), **result}
    print(json.dumps({**summary, "seconds": round(time.perf_counter() - begun)}))


if __name__ == "__main__":
    main()
