"""Latency of a cache hit without network and without audit, beside a plain dict and a bare FAISS search.

    python -m benchmarks.cache [--entries 10000] [--dimension 384] [--rounds 500]

One tenant in a temporary folder, encrypted files, one namespace. "lookup" is what the question path adds once it
holds its scope (namespace, exact key, ladder, checks in the tenant's database); "with scope" also opens the read
transaction and derives the permission domain. The vectors are random, the embedding call is not part of it. The
last line is JSON, times in microseconds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import faiss
import numpy as np
from sqlalchemy import insert

from cache.entry import Entry, canonical_payload, new_entry_id, sealed
from cache.key import CompositeIdentity, RetrievalIdentity
from cache.ladder import Ladder
from cache.lookup import Asked, Hit, Mode, ask, exact, semantic
from cache.openings import open_template
from cache.stores.local import LocalStore
from tenancy import schema
from tenancy.acl import AccessList, write_access_list
from tenancy.control import Tenants
from tenancy.domain import PermissionDomain, permission_domain
from tenancy.identity import Authenticator, Principal, Role
from tenancy.keys import MasterKey
from tenancy.tenant import ReadView, TenantHandle

DOCUMENTS = 50
LADDER = Ladder()
CONTEXT = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=10_000)
    parser.add_argument("--dimension", type=int, default=384)
    parser.add_argument("--rounds", type=int, default=500)
    arguments = parser.parse_args()
    faiss.omp_set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        tenants = Tenants(Path(folder), MasterKey(bytes(32)))
        tenants.create("acme")
        authenticator = Authenticator(tenants)
        principal = authenticator.authenticate(tenants.create_key("acme", "ana", [Role.READER]).text, "192.0.2.1")
        result = measure(tenants.open(principal), principal, arguments.entries, arguments.dimension, arguments.rounds)
        tenants.close()
    for name, figures in result.items():
        print(f"{name:34} {figures}")
    print(json.dumps(result))


def measure(
    tenant: TenantHandle, principal: Principal, entries: int, dimension: int, rounds: int
) -> dict[str, dict[str, float]]:
    store = LocalStore()
    write_documents(tenant)
    vectors = np.random.default_rng(5).normal(size=(entries, dimension)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    put = fill(tenant, principal, store, vectors)
    plain = {question(number): b"{}" for number in range(entries)}
    flat = faiss.IndexFlatIP(dimension)
    flat.add(vectors)
    chosen = [int(number) for number in np.random.default_rng(6).integers(0, entries, rounds)]

    def in_scope(work: Callable[[PermissionDomain, ReadView, int], object]) -> Callable[[int], object]:
        def opened(number: int) -> object:
            with tenant.reading() as view:
                return work(permission_domain(principal, view), view, number)

        return opened

    def exactly(domain: PermissionDomain, view: ReadView, number: int) -> None:
        found = exact(domain, view, store, asking(domain, view, question(number)))
        if not isinstance(found, Hit):
            raise SystemExit(f"expected an exact hit, not {found}")

    def near(domain: PermissionDomain, view: ReadView, number: int) -> None:
        asked = asking(domain, view, question(number) + " Thanks!")
        found = semantic(domain, view, store, asked, vectors[number], tokens=12, limit=256, ladder=LADDER)
        if not isinstance(found, Hit):
            raise SystemExit(f"expected a semantic hit, not {found}")

    with tenant.reading() as view:
        domain = permission_domain(principal, view)
        result = interleaved(
            {
                "plain dict": lambda number: plain[question(number)],
                "bare faiss flat search, top 5": lambda number: flat.search(vectors[number : number + 1], 5),
                "exact hit, lookup": lambda number: exactly(domain, view, number),
                "semantic hit, lookup": lambda number: near(domain, view, number),
                "scope alone": in_scope(lambda *_: None),
                "exact hit, with scope": in_scope(exactly),
                "semantic hit, with scope": in_scope(near),
            },
            chosen,
        )
    p50 = {name: figures["p50"] for name, figures in result.items()}
    ratios = {
        "semantic lookup / bare faiss": p50["semantic hit, lookup"] / p50["bare faiss flat search, top 5"],
        "exact lookup / plain dict": p50["exact hit, lookup"] / p50["plain dict"],
    }
    return result | {"put": put, "ratios": {name: round(ratio, 2) for name, ratio in ratios.items()}}


def interleaved(works: dict[str, Callable[[int], object]], chosen: list[int]) -> dict[str, dict[str, float]]:
    """Microseconds of each work; they take turns, so that all meet the same load of the machine."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for turn, number in enumerate(chosen[:20] + chosen):
        for name, work in works.items():
            started = time.perf_counter()
            work(number)
            if turn >= 20:
                times[name].append((time.perf_counter() - started) * 1e6)
    return {name: percentiles(found) for name, found in times.items()}


def percentiles(times: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(times, n=100, method="inclusive")
    return {"p10": round(cuts[9], 2), "p50": round(cuts[49], 2), "p99": round(cuts[98], 2)}


def question(number: int) -> str:
    return f"What is the limit of expense category {number} for employees?"


def asking(domain: PermissionDomain, view: ReadView, text: str) -> Asked:
    identity = CompositeIdentity(
        tenant_id=domain.tenant_id,
        domain=domain.fingerprint,
        model_revision="extractive-1",
        tokenizer_revision="words-1",
        template_revision="default@1",
        adapter_revision=None,
        embedder="random",
        generation="temperature=0",
        user_id=None,
        filter=None,
        conversation=None,
        response_contract=None,
        retrieval=RetrievalIdentity(8, "hybrid", "rrf", None, "chunker-1"),
    )
    return ask(domain, view, identity, text, template="default", mode=Mode.DEFAULT, follow_up=False)


def write_documents(tenant: TenantHandle) -> None:
    with tenant.writing() as view:
        for number in range(1, DOCUMENTS + 1):
            view.execute(
                insert(schema.documents).values(
                    id=number, name=f"doc-{number}", version=f"sha256:{number}", title="t", media_type="text/plain",
                    metadata={}, origin="benchmark", warnings=[], updated=time.time(),
                )
            )  # fmt: skip
            write_access_list(view, number, AccessList.of(["tenant"], []), time.time())
            view.bump_corpus(number)
        open_template(view, "default", threshold=0.9, opened_by="benchmark", reason="latency", now=time.time())


def fill(
    tenant: TenantHandle,
    principal: Principal,
    store: LocalStore,
    vectors: np.ndarray[tuple[int, int], np.dtype[np.float32]],
) -> dict[str, float]:
    """Write one entry a vector through the store; microseconds of a write."""
    with tenant.reading() as view:
        domain, epochs = permission_domain(principal, view), view.epochs
        asked = [asking(domain, view, question(number)) for number in range(len(vectors))]
    now, times = time.time(), []
    for number, vector in enumerate(vectors):
        documents = {(number * 7 + position) % DOCUMENTS + 1 for position in range(CONTEXT)}
        entry = Entry(
            id=new_entry_id(),
            namespace=asked[number].namespace.value,
            exact=asked[number].exact,
            template="default",
            question=asked[number].question,
            vector=vector.tobytes(),
            payload=canonical_payload({"answer": "The limit is 100 EUR. " * 20, "citations": [{"quote": "x" * 200}]}),
            dependencies=tuple((document, f"sha256:{document}") for document in sorted(documents)),
            acl_epoch=epochs.acl,
            corpus_epoch=epochs.corpus,
            created=now,
            expires=now + 86_400,
            origin_seq=number,
            origin_user=principal.user_id,
        )
        started = time.perf_counter()
        refused = store.put(tenant, sealed(tenant, entry), allowed=lambda: None)
        times.append((time.perf_counter() - started) * 1e6)
        if refused:
            raise SystemExit(refused)
    return percentiles(times)


if __name__ == "__main__":
    main()
