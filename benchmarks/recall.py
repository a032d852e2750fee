"""Recall@10 against exact search over the readable set, for each engine, and rows outside it (there must be none).

    python -m benchmarks.recall [--chunks 20000 100000] [--engines faiss qdrant-edge milvus] [--questions 100]

`qdrant-edge` is Qdrant's engine in process; `milvus` starts the real server of the extra `milvus-server`. The
approximate settings of an engine are measured too ("graph"): with its exact threshold at zero. Last line: JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.labelled import FINGERPRINT, Labelled, Reader, fill, percentiles_ms
from indexing.collections.open import OpenCollections
from indexing.engine import Engine
from tenancy.control import Tenants
from tenancy.keys import MasterKey

K = 10
BUDGET = 8 << 30


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chunks", type=int, nargs="+", default=[20_000, 100_000])
    parser.add_argument("--engines", nargs="+", choices=["faiss", *SERVERS], default=["faiss", "qdrant-edge"])
    parser.add_argument("--questions", type=int, default=100)
    arguments = parser.parse_args()
    results: list[dict[str, Any]] = []
    print(
        f"{'engine':20} {'chunks':>7} {'labels':8} {'share':>6} {'recall@10':>9} "
        f"{'filled':>7} {'outside':>7} {'p50 ms':>8}"
    )
    for chunks in arguments.chunks:
        for name in arguments.engines:
            with ExitStack() as stack:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                tenants = Tenants(folder / "data", MasterKey(secrets.token_bytes(32)))
                stack.callback(tenants.close)
                engines = {} if name == "faiss" else stack.enter_context(SERVERS[name](folder))
                for setting, engine in [("faiss", None)] if not engines else engines.items():
                    results += measure(tenants, setting, engine, chunks, arguments.questions)
    worst = {
        engine: min(found["recall"] for found in results if found["engine"] == engine)
        for engine in dict.fromkeys(found["engine"] for found in results)
    }
    print(json.dumps({"load": round(os.getloadavg()[0], 1), "worst_recall": worst, "rows": results}))
    return 1 if any(found["outside"] or not found["filled"] for found in results) else 0


def measure(tenants: Tenants, setting: str, engine: Engine | None, chunks: int, questions: int) -> list[dict[str, Any]]:
    """One row a reader, printed as soon as it is known."""
    began = time.perf_counter()
    name = f"{setting}-{chunks}"
    labelled = fill(tenants, name, chunks, engine=setting)
    collections = OpenCollections(FINGERPRINT, BUDGET, {} if engine is None else {setting: engine})
    collections.settle(labelled.tenant)
    print(
        f"{setting}: {chunks} chunks written and acknowledged in {time.perf_counter() - began:.0f} s", file=sys.stderr
    )
    rows = []
    for reader in labelled.readers:
        found = one_reader(labelled, reader, collections, engine, questions)
        row = {"engine": setting, "chunks": chunks, "labels": reader.labelling, "share": reader.share, **found}
        print(
            f"{setting:20} {chunks:>7} {reader.labelling:8} {reader.share:>6} {row['recall']:>9.4f} "
            f"{row['filled']!s:>7} {row['outside']:>7} {row['ms']['p50']:>8}",
            flush=True,
        )
        rows.append(row)
    return rows


def one_reader(
    labelled: Labelled, reader: Reader, collections: OpenCollections, engine: Engine | None, questions: int
) -> dict[str, Any]:
    """`outside` counts rows that the engine itself returned though the reader may not read them."""
    domain, snapshot = labelled.scope(reader, collections)
    readable = set(labelled.chunk_ids[reader.rows].tolist())
    hits, outside, seconds, filled = 0, 0, [], True
    wanted = min(K, len(readable))
    for vector in labelled.questions(questions):
        right, _ = labelled.right(reader, vector, K)
        began = time.perf_counter()
        found = [scored.chunk_id for scored in snapshot.dense(domain, vector, K)]
        seconds.append(time.perf_counter() - began)
        raw = found
        if engine is not None and snapshot.collection is not None:
            raw = [
                hit.chunk_id
                for hit in engine.nearest(
                    snapshot.collection.physical, vector, domain.labels, None, K, readable=len(readable)
                )
            ]
        outside += len(set(raw) - readable) + len(set(found) - readable)
        filled &= len(set(found)) == wanted
        hits += len(set(found) & right)
    recall = hits / (questions * wanted)
    return {"recall": round(recall, 4), "filled": filled, "outside": outside, "ms": percentiles_ms(seconds)}


@contextmanager
def _qdrant_edge(folder: Path) -> Iterator[Mapping[str, Engine]]:
    from tests.support.qdrant_edge import edge_engine

    exact, graph = (
        edge_engine("qdrant-edge", folder / "exact", timeout=600.0),
        edge_engine("qdrant-edge-graph", folder / "graph", timeout=600.0, exact_below=0),
    )
    try:
        yield {"qdrant-edge": exact, "qdrant-edge-graph": graph}
    finally:
        exact.close()
        graph.close()


@contextmanager
def _milvus(folder: Path) -> Iterator[Mapping[str, Engine]]:
    from indexing.engines.milvus import MilvusEngine
    from tests.support.milvus_server import MilvusServer

    (folder / "milvus").mkdir()
    with ExitStack() as stack:
        server = MilvusServer(folder / "milvus")
        server.start()
        stack.callback(server.stop)
        engine = MilvusEngine.server("milvus", server.url, timeout=600.0)
        stack.callback(engine.close)
        yield {"milvus": engine}


SERVERS: Mapping[str, Callable[[Path], Any]] = {"qdrant-edge": _qdrant_edge, "milvus": _milvus}


if __name__ == "__main__":
    sys.exit(main())
