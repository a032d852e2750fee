"""Chunks a second of an ingestion, as a share of the bare embedding rate on the same chunks; the last line is JSON.

    python -m benchmarks.ingest --data DIR [--quick] [--model NAME]

DIR holds retrieval/scifact (text files) and documents/policies (PDF). Each set is put into a folder and loaded into a
fresh tenant as `strongroom ingest` does: read, parsed, chunked, embedded, and written in transactions that are durable.
The bare call embeds the same chunks in the same batches and does nothing else. Both take turns, in alternating order,
and the share is the median over the rounds, so that other load on the machine meets both alike. The goal is 0.85.
`without_model_per_s` is the same ingestion with hashed words for vectors: all that stands beside the embedding.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import Any

from sqlalchemy import select

from benchmarks.retrieval_sets import read_set
from benchmarks.serving import fsync, timed
from indexing.acl_rules import Decision
from indexing.batch import BATCH_CHUNKS, ingest_paths
from indexing.chunk import embedded_text
from indexing.embed import DEFAULT_MODEL, Embedder, EmbeddingSettings, load_embedder
from indexing.ingest import Pipeline
from tenancy import schema
from tenancy.acl import AccessList
from tenancy.control import Tenants
from tenancy.identity import Authenticator
from tenancy.keys import MasterKey
from tenancy.tenant import TenantHandle

GOAL = 0.85


@dataclass(frozen=True, slots=True)
class Files:
    """A folder of documents."""

    name: str
    folder: Path
    files: int


def texts(data: Path, name: str, folder: Path, limit: int) -> Files:
    """The first documents of a retrieval set, a text file each."""
    folder = folder / name
    folder.mkdir()
    chosen = list(islice(read_set(data, name).documents.values(), limit))
    for number, text in enumerate(chosen):
        (folder / f"{number:05d}.txt").write_text(text, encoding="utf-8")
    return Files(name, folder, len(chosen))


def policies(data: Path, folder: Path, limit: int) -> Files:
    """The first policy PDFs."""
    folder = folder / "policies"
    folder.mkdir()
    chosen = sorted((data / "documents" / "policies").rglob("*.pdf"))[:limit]
    for path in chosen:
        shutil.copy(path, folder)
    return Files("policies", folder, len(chosen))


class Bench:
    """Fresh tenants over one model."""

    def __init__(self, folder: Path, embedder: Embedder) -> None:
        self._tenants = Tenants(folder / "data", MasterKey(bytes(32)))
        self._authenticator = Authenticator(self._tenants)
        self._numbers = count()
        self.pipeline = Pipeline(embedder)

    def close(self) -> None:
        self._tenants.close()

    def tenant(self) -> TenantHandle:
        name = f"tenant-{next(self._numbers)}"
        self._tenants.create(name)
        tenant = self._tenants.open(self._authenticator.operator(name))
        with tenant.reading():
            return tenant

    def ingest(self, tenant: TenantHandle, files: Files) -> None:
        decision = Decision(AccessList.of(["tenant"]), by="benchmark")
        for outcome in ingest_paths(tenant, self.pipeline, [files.folder], lambda _: decision, lambda: None):
            if outcome.error is not None:
                raise SystemExit(f"not ingested: {outcome.document}: {outcome.error}")

    def chunks(self, tenant: TenantHandle) -> list[str]:
        with tenant.reading() as view:
            rows = view.execute(select(schema.chunks.c.text, schema.chunks.c.context).order_by(schema.chunks.c.id))
            return [embedded_text(row.text, row.context) for row in rows]


def measure(bench: Bench, files: Files, rounds: int) -> dict[str, Any]:
    """Medians over the rounds. The first ingestion gives the chunks, so the first round begins with it."""
    chunks: list[str] = []
    encode = bench.pipeline.embedder.encode

    def bare() -> None:
        for start in range(0, len(chunks), BATCH_CHUNKS):
            encode(chunks[start : start + BATCH_CHUNKS])

    encode(["warm up"])
    seconds: dict[str, list[float]] = {"ingest": [], "embed": []}
    for turn in range(rounds):
        tenant = bench.tenant()
        works: dict[str, Callable[[], None]] = {"embed": bare, "ingest": partial(bench.ingest, tenant, files)}
        for name in sorted(works, reverse=turn % 2 == 0):
            seconds[name].append(timed(works[name]))
            chunks = chunks or bench.chunks(tenant)
    shares = [bare_s / whole_s for bare_s, whole_s in zip(seconds["embed"], seconds["ingest"], strict=True)]
    return {
        "files": files.files,
        "chunks": len(chunks),
        "ingest_per_s": round(len(chunks) / statistics.median(seconds["ingest"]), 1),
        "embed_per_s": round(len(chunks) / statistics.median(seconds["embed"]), 1),
        "share": round(statistics.median(shares), 3),
        "shares": [round(share, 3) for share in shares],
    }


def without_model(folder: Path, files: Files) -> float:
    """Chunks a second where vectors cost next to nothing: what all but the embedding takes."""
    with closing(Bench(folder, load_embedder(EmbeddingSettings(model="hashing:384")))) as bench:
        tenant = bench.tenant()
        taken = timed(partial(bench.ingest, tenant, files))
        return len(bench.chunks(tenant)) / taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--quick", action="store_true", help="few documents, to see that it runs")
    parser.add_argument("--model", default=DEFAULT_MODEL)
    arguments = parser.parse_args()
    embedder = load_embedder(EmbeddingSettings(model=arguments.model))
    rounds = 2 if arguments.quick else 3
    result: dict[str, Any] = {"model": arguments.model, "processors": os.cpu_count(), "goal": GOAL}
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="strongroom-ingest-") as name:
        folder = Path(name)
        sets = [
            texts(arguments.data, "scifact", folder, 20 if arguments.quick else 240),
            policies(arguments.data, folder, 2 if arguments.quick else 12),
        ]
        with closing(Bench(folder, embedder)) as bench:
            for files in sets:
                result[files.name] = measure(bench, files, rounds)
                result[files.name]["without_model_per_s"] = round(
                    without_model(Path(name) / f"{files.name}-hashing", files), 1
                )
                print(f"{files.name:10} {json.dumps(result[files.name])} (load {os.getloadavg()[0]:.1f})", flush=True)
        result["fsync_ms"] = round(statistics.median(_fsyncs(folder)) * 1e3, 2)
    result["seconds"] = round(time.perf_counter() - begun)
    print(json.dumps(result))


def _fsyncs(folder: Path) -> Sequence[float]:
    return [timed(lambda: fsync(folder)) for _ in range(50)]


if __name__ == "__main__":
    main()
