"""The dense leg with its label filter beside bare FAISS and hnswlib with a callback, at growing collections.

    python -m benchmarks.search [--chunks 1000 10000 100000 300000] [--rounds 200] [--hnsw-up-to 100000]

All take turns question by question in one process, on the same vectors. `readable` is 10 % of the chunks, chosen at
random; the cost of the filter compares the same search with everything readable and without any filter. Recall@10 is
against exact search over the readable chunks. Last line: JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import numpy.typing as npt

from benchmarks.labelled import DIMENSION, FINGERPRINT, Labelled, Reader, Vectors, fill, percentiles_ms
from indexing.collections.open import OpenCollections
from tenancy.control import Tenants
from tenancy.keys import MasterKey

K = 10
Search = Callable[[Vectors], npt.NDArray[np.int64]]
"""From a question (dimension,) to positions or ids, best first."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chunks", type=int, nargs="+", default=[1_000, 10_000, 100_000, 300_000])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--hnsw-up-to", type=int, default=100_000, help="chunks; building a graph takes minutes")
    parser.add_argument(
        "--threads", type=int, default=1, help="of FAISS; with more, a busy machine measures its barriers"
    )
    arguments = parser.parse_args()
    faiss.omp_set_num_threads(arguments.threads)
    results = []
    with tempfile.TemporaryDirectory() as folder:
        tenants = Tenants(Path(folder), MasterKey(secrets.token_bytes(32)))
        for chunks in arguments.chunks:
            results.append(measure(tenants, chunks, arguments.rounds, hnsw=chunks <= arguments.hnsw_up_to))
            print(_lines(results[-1]), flush=True)
        tenants.close()
    print(json.dumps({"load": round(os.getloadavg()[0], 1), "threads": faiss.omp_get_max_threads(), "sizes": results}))
    return 0


def measure(tenants: Tenants, chunks: int, rounds: int, *, hnsw: bool) -> dict[str, Any]:
    labelled = fill(tenants, f"search-{chunks}", chunks)
    some = next(reader for reader in labelled.readers if (reader.labelling, reader.share) == ("random", 0.1))
    everything = next(reader for reader in labelled.readers if reader.labelling == "all")
    collections = OpenCollections(FINGERPRINT, 8 << 30)
    searches = {
        "strongroom 10 %": _ours(labelled, some, collections),
        "strongroom all": _ours(labelled, everything, collections),
        **_bare(labelled, some),
        **(_graph(labelled, some) if hnsw else {}),
    }
    seconds: dict[str, list[float]] = {name: [] for name in searches}
    hits: dict[str, int] = dict.fromkeys(searches, 0)
    questions = labelled.questions(rounds)
    for search in searches.values():
        search(questions[0])
    for vector in questions:
        right, _ = labelled.right(some, vector, K)
        for name, search in searches.items():
            began = time.perf_counter()
            found = search(vector)
            seconds[name].append(time.perf_counter() - began)
            hits[name] += len(set(found.tolist()) & right)
    median = {name: statistics.median(times) for name, times in seconds.items()}
    wanted = rounds * min(K, len(some.rows))
    filtered = [name for name in searches if "10 %" in name]
    return {
        "chunks": chunks,
        "ms": {name: percentiles_ms(times) for name, times in seconds.items()},
        "recall": {name: round(hits[name] / wanted, 4) for name in filtered},
        "ratio_to_bare_faiss_10": round(median["strongroom 10 %"] / median["faiss 10 %"], 2),
        "ratio_to_bare_faiss_all": round(median["strongroom all"] / median["faiss all"], 2),
        "filter_cost_percent": round(100 * (median["strongroom 10 %"] / median["faiss all"] - 1), 1),
        "own_overhead_ms": round(1000 * (median["strongroom 10 %"] - median["faiss 10 %"]), 3),
    }


def _ours(labelled: Labelled, reader: Reader, collections: OpenCollections) -> Search:
    domain, snapshot = labelled.scope(reader, collections)

    def search(vector: Vectors) -> npt.NDArray[np.int64]:
        return np.array([scored.chunk_id for scored in snapshot.dense(domain, vector, K)])

    return search


def _bare(labelled: Labelled, reader: Reader) -> Mapping[str, Search]:
    """A flat index without any filter, and with a bitmap made beforehand."""
    index = faiss.IndexFlatIP(DIMENSION)
    index.add(labelled.vectors)
    mask = np.zeros(len(labelled.vectors), dtype=np.bool_)
    mask[reader.rows] = True
    bits = np.packbits(mask, bitorder="little")
    selector = faiss.IDSelectorBitmap(len(bits), faiss.swig_ptr(bits))
    parameters = faiss.SearchParameters()
    parameters.sel = selector

    def unfiltered(vector: Vectors) -> npt.NDArray[np.int64]:
        rows: npt.NDArray[np.int64] = index.search(vector[np.newaxis], K)[1][0]
        return labelled.chunk_ids[rows]

    def filtered(vector: Vectors) -> npt.NDArray[np.int64]:
        # Held here, since FAISS keeps bare pointers to both.
        assert selector is not None and len(bits)  # noqa: PT018
        rows: npt.NDArray[np.int64] = index.search(vector[np.newaxis], K, params=parameters)[1][0]
        return labelled.chunk_ids[rows[rows >= 0]]

    return {"faiss all": unfiltered, "faiss 10 %": filtered}


def _graph(labelled: Labelled, reader: Reader) -> Mapping[str, Search]:
    """hnswlib with a callback for the readable set, with its own search parameter at 200."""
    import hnswlib

    index = hnswlib.Index(space="ip", dim=DIMENSION)
    index.init_index(max_elements=len(labelled.vectors), ef_construction=100, M=16)
    index.add_items(labelled.vectors, num_threads=os.cpu_count() or 1)
    index.set_ef(200)
    readable = set(reader.rows.tolist())

    def filtered(vector: Vectors) -> npt.NDArray[np.int64]:
        try:
            positions, _ = index.knn_query(vector, k=K, num_threads=1, filter=readable.__contains__)
        except RuntimeError:
            # hnswlib gives nothing at all where its graph search found fewer than k.
            return np.zeros(0, dtype=np.int64)
        rows: npt.NDArray[np.uint64] = positions[0]
        return labelled.chunk_ids[rows]

    return {"hnswlib 10 %": filtered}


def _lines(found: Mapping[str, Any]) -> str:
    head = f"{found['chunks']} chunks: {found['ratio_to_bare_faiss_10']} times bare FAISS with the same filter, "
    head += f"{found['filter_cost_percent']} % over no filter at all"
    rows = [
        f"  {name:18} p50 {times['p50']:>8} ms  p99 {times['p99']:>8} ms"
        + (f"  recall {found['recall'][name]:.3f}" if name in found["recall"] else "")
        for name, times in found["ms"].items()
    ]
    return "\n".join([head, *rows])


if __name__ == "__main__":
    sys.exit(main())
