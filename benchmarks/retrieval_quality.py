"""nDCG@10 of the lexical, the dense and the hybrid leg on public sets; the last line is JSON.

    python -m benchmarks.retrieval_quality --data DIR [--cache FOLDER] [--sets NAME ...] [--chunked] [--rerank]

DIR holds retrieval/scifact and the others. Each set becomes one tenant: its documents are ingested, and its questions
are searched, by the functions that the service uses, as a user who may read everything. A document is one passage, as
in the references; `--chunked` cuts as the service does, and a document then ranks by its best chunk. Vectors are kept
in the cache folder between runs. `--rerank` also has the best 16 passages of hybrid read again by the embedding model,
token by token. The exit code is 1 where hybrid is below the better leg on a set that it is held to.
"""

from __future__ import annotations

import argparse
import json
import secrets
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.retrieval_sets import SETS, RetrievalSet, StoredVectors, ndcg, read_set
from indexing.chunk import Chunking
from indexing.collections.open import OpenCollections
from indexing.embed import DEFAULT_MODEL, EmbeddingSettings, load_embedder
from indexing.ingest import Pipeline, Source, embed, prepare, write
from indexing.parse import ParseFailure
from indexing.prepared import Prepared
from retrieval.passage import Passage
from retrieval.rerank import EMBEDDING, Reranker, RerankSettings, TokenReranker, reranked, texts_of
from retrieval.search import Scope, SearchMode, open_scope, search
from tenancy.acl import AccessList
from tenancy.control import Tenants
from tenancy.identity import Authenticator, Principal, Role
from tenancy.keys import MasterKey
from tenancy.tenant import TenantHandle

MODES: tuple[SearchMode, ...] = ("lexical", "dense", "hybrid")
RERANKED = "reranked"
HELD = frozenset({"scifact", "cranfield", "xquad-en", "xquad-zh"})
"""The model is English only: German is shown, and not held to the better leg."""

REFERENCES = {
    "scifact": {"lexical": 0.679, "dense": 0.645, "hybrid": 0.747},
    "cranfield": {"lexical": 0.331, "dense": 0.382, "hybrid": 0.404},
    "xquad-en": {"lexical": 0.961, "dense": 0.943, "hybrid": 0.970},
    "xquad-zh": {"lexical": 0.967},
}
"""BM25 (SciFact: Anserini), all-MiniLM-L6-v2, and a fusion; SciFact's fusion is with the larger BGE-base."""

WHOLE = Chunking(target_chars=1_000_000)
PASSAGES = 25
"""Chunks asked for, so that ten documents remain when several chunks of one are found."""


READ_AGAIN = RerankSettings(model=EMBEDDING, depth=16, device="cpu", batch_size=16, window=512)


def ingest_all(tenant: TenantHandle, pipeline: Pipeline, documents: dict[str, str]) -> int:
    """Ingest in transactions of 256 documents; returns how many held no text."""
    empty = 0
    prepared: list[Prepared] = []
    for name, text in documents.items():
        source = Source(name, text.encode(), AccessList.of(["tenant"]), "text/plain")
        try:
            prepared += prepare(tenant, pipeline, source)
        except ParseFailure:
            empty += 1
        if len(prepared) >= 256:
            write(tenant, pipeline, embed(pipeline, prepared))
            prepared = []
    write(tenant, pipeline, embed(pipeline, prepared))
    return empty


def measure(
    tenant: TenantHandle,
    principal: Principal,
    scope: Scope,
    vectors: StoredVectors,
    data: RetrievalSet,
    reranker: Reranker | None,
) -> dict[str, float]:
    """Mean nDCG@10 by mode, and the mean milliseconds of a hybrid search without the embedding."""
    gains: dict[str, list[float]] = {mode: [] for mode in (*MODES, *([RERANKED] if reranker else []))}
    seconds = 0.0
    for question, text in data.questions.items():
        vector, covers = vectors.encode_query(text), vectors.covers(text)
        for mode in MODES:
            start = time.perf_counter()
            found = search(
                tenant, principal, scope, text, vector, PASSAGES, mode, model=vectors.fingerprint, covers=covers
            )
            seconds += time.perf_counter() - start if mode == "hybrid" else 0.0
            gains[mode].append(gain(found.items, data.relevant[question]))
        if reranker is not None:
            again, rest = found.items[: reranker.depth], found.items[reranker.depth :]
            scores = reranker.scores(text, texts_of(again))
            ranked = reranked(again, scores, len(again), reranker.share)
            gains[RERANKED].append(gain([*ranked, *rest], data.relevant[question]))
    means = {mode: round(float(np.mean(values)), 4) for mode, values in gains.items()}
    return means | {"ms_a_search": round(1000 * seconds / len(data.questions), 2)}


def gain(passages: Sequence[Passage], relevant: Mapping[str, int]) -> float:
    return ndcg(list(dict.fromkeys(passage.document for passage in passages)), relevant)


def run_set(
    tenants: Tenants, pipeline: Pipeline, vectors: StoredVectors, data: RetrievalSet, reranker: Reranker | None
) -> dict[str, float]:
    tenants.create(data.name)
    authenticator = Authenticator(tenants)
    key = tenants.create_key(data.name, "reader", (Role.READER,))
    principal = authenticator.authenticate(key.text, "127.0.0.1")
    tenant = tenants.open(principal)
    empty = ingest_all(tenant, pipeline, dict(data.documents))
    collections = OpenCollections(vectors.fingerprint, 2**31)
    measured = measure(tenant, principal, open_scope(principal, tenant, collections), vectors, data, reranker)
    return {"documents": len(data.documents), "without_text": empty, "questions": len(data.questions)} | measured


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "strongroom-vectors")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--chunked", action="store_true")
    parser.add_argument("--rerank", action="store_true")
    arguments = parser.parse_args()

    embedder = load_embedder(EmbeddingSettings(model=arguments.model))
    vectors = StoredVectors(embedder, arguments.cache, cut=arguments.chunked)
    pipeline = Pipeline(vectors, Chunking() if arguments.chunked else WHOLE)
    reranker = TokenReranker(vectors, READ_AGAIN) if arguments.rerank else None
    results: dict[str, dict[str, float]] = {}
    below: list[str] = []
    print(f"{'nDCG@10':12}" + "".join(f"{mode:>9} {'(ref.)':8}" for mode in MODES) + "  ms/search", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        tenants = Tenants(Path(folder), MasterKey(secrets.token_bytes(32)))
        for name in arguments.sets:
            found = results[name] = run_set(tenants, pipeline, vectors, read_set(arguments.data, name), reranker)
            reference = {mode: f"({value})" for mode, value in REFERENCES.get(name, {}).items()}
            cells = "".join(f"{found[mode]:>9.4f} {reference.get(mode, ''):8}" for mode in MODES)
            again = f"  reranked {found[RERANKED]:.4f}" if reranker else ""
            print(f"{name:12}{cells}{found['ms_a_search']:>11.2f}{again}", flush=True)
            if name in HELD and found["hybrid"] < max(found["lexical"], found["dense"]):
                below.append(name)
        tenants.close()
    for name in below:
        print(f"{name}: hybrid is below the better leg", file=sys.stderr)
    print(
        json.dumps({"model": vectors.fingerprint.name, "chunked": arguments.chunked, "sets": results, "below": below})
    )
    return 1 if below else 0


if __name__ == "__main__":
    sys.exit(main())
