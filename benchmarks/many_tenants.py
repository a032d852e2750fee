"""Memory and opening times of many small tenants: part of `benchmarks.path`, which starts `measure` in a fresh process.

Every tenant holds 200 chunks of real passages in 20 documents, with random vectors of 384 dimensions, written through
the product's own rows. Nothing of it was in the measuring process's memory before; the files are in the page cache of
the kernel, as they were just written.
"""

from __future__ import annotations

import gc
import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.serving import milliseconds
from indexing import adding
from indexing.catalogue import EMBEDDED
from indexing.chunk import Chunk
from indexing.collections.open import OpenCollections
from indexing.documents import Content
from indexing.embed import Embedder, EmbeddingSettings, load_embedder
from indexing.ingest import Pipeline
from indexing.model import claim_model, claim_pipeline
from indexing.origin import API
from indexing.terms import pack, term_postings
from retrieval.search import open_scope, search
from tenancy.acl import AccessList
from tenancy.control import Tenants
from tenancy.identity import Authenticator, Principal, Role
from tenancy.keys import MasterKey
from tenancy.tenant import TenantHandle

MASTER = MasterKey(bytes(range(32)))
MODEL = "hashing:384"
DIMENSION = 384
CHUNKS = 200
DOCUMENTS = 20
QUESTION = "When did the university open its new library?"


def build(folder: Path, passages: Sequence[str], count: int) -> float:
    """Write `count` tenants; returns the milliseconds of one. Their users' keys lie in keys.json."""
    tenants = Tenants(folder / "data", MASTER)
    authenticator = Authenticator(tenants)
    contents = contents_of(passages)
    embedder = load_embedder(EmbeddingSettings(model=MODEL))
    keys = {}
    begun = time.perf_counter()
    for number in range(count):
        name = f"tenant-{number:04d}"
        tenants.create(name)
        keys[name] = tenants.create_key(name, "ana", [Role.READER]).text
        fill(tenants.open(authenticator.operator(name)), contents, embedder)
    taken = time.perf_counter() - begun
    tenants.close()
    (folder / "keys.json").write_text(json.dumps(keys))
    return taken / count * 1e3


def measured(folder: Path) -> dict[str, Any]:
    """`measure` in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.many_tenants", str(folder)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode:
        raise SystemExit(run.stderr)
    found: dict[str, Any] = json.loads(run.stdout)
    return found


def measure(folder: Path) -> dict[str, Any]:
    """Open every tenant once and keep it open; then once more, warm. Memory in bytes."""
    embedder = load_embedder(EmbeddingSettings(model=MODEL))
    vector = embedder.encode_query(QUESTION)
    tenants = Tenants(folder / "data", MASTER)
    authenticator = Authenticator(tenants)
    collections = OpenCollections(embedder.fingerprint, 8 << 30)
    keys: dict[str, str] = json.loads((folder / "keys.json").read_text())
    principals = [authenticator.authenticate(key, "192.0.2.1") for key in keys.values()]
    times: dict[str, list[float]] = {"cold_open": [], "first_search": [], "warm_open": []}

    def opened(principal: Principal, kind: str) -> None:
        begun = time.perf_counter()
        tenant = tenants.open(principal)
        scope = open_scope(principal, tenant, collections)
        times[kind].append(time.perf_counter() - begun)
        if kind == "cold_open":
            begun = time.perf_counter()
            found = search(tenant, principal, scope, QUESTION, vector, 8, model=embedder.fingerprint, covers=0.0)
            times["first_search"].append(time.perf_counter() - begun)
            if len(found.items) != 8:
                raise SystemExit("a tenant did not give 8 passages")

    # What the first of all pays once in a process (compiled statements, imports) is no tenant's share.
    opened(principals[0], "cold_open")
    times["cold_open"].clear()
    before = resident()
    for principal in principals[1:]:
        opened(principal, "cold_open")
    after = resident()
    for principal in principals:
        opened(principal, "warm_open")
    tenants.close()
    return {
        "tenants": len(principals),
        "resident_mib": round(after / 2**20, 1),
        "resident_before_mib": round(before / 2**20, 1),
        "bytes_a_tenant": (after - before) // (len(principals) - 1),
        "bytes_of_vectors": CHUNKS * DIMENSION * 4,
        "estimated_bytes_a_tenant": collections.nbytes // len(principals),
        **{name: milliseconds(found) for name, found in times.items()},
    }


def fill(tenant: TenantHandle, contents: Sequence[Content], embedder: Embedder) -> None:
    """Write `contents` in one transaction, for everybody of the tenant to read."""
    with tenant.writing() as view:
        model_id = claim_model(view, embedder.spec, embedder.fingerprint, EMBEDDED, time.time()).model.id
        claim_pipeline(view, Pipeline(embedder).revision)
        for number, content in enumerate(contents):
            content = replace(content, model_id=model_id)
            adding.add(view, f"document-{number}", content, API, AccessList.of(["tenant"]), time.time())


def contents_of(passages: Sequence[str]) -> list[Content]:
    """The same 20 documents for every tenant: what is shared on disk is shared nowhere in memory."""
    vectors = np.random.default_rng(7).normal(size=(CHUNKS, DIMENSION)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    each = CHUNKS // DOCUMENTS
    contents = []
    for start in range(0, CHUNKS, each):
        texts = [passages[number % len(passages)] for number in range(start, start + each)]
        contents.append(
            Content(
                version=f"sha256:{secrets.token_hex(32)}",
                title=f"Document {start // each}",
                media_type="text/plain",
                metadata={},
                warnings=(),
                chunks=[Chunk(ordinal, 0, len(text), text) for ordinal, text in enumerate(texts)],
                terms=[pack(term_postings(text)) for text in texts],
                vectors=vectors[start : start + each],
                model_id=0,
            )
        )
    return contents


def resident() -> int:
    """Bytes of this process in memory (`man 5 proc`, statm)."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    print(json.dumps(measure(Path(sys.argv[1]))))
