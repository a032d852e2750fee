"""One tenant with as many chunks as asked for, in topics, and readers of a known share of them.

Vectors are unit: a topic's centre plus noise. Each reader may read one share, in one of two ways: documents at random
("random"), or all documents of some topics ("topic"), which is the hard case for a graph with a filter: the nearest
chunks of most questions are then all unreadable.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from sqlalchemy import select

from indexing import adding
from indexing.catalogue import EMBEDDED
from indexing.chunk import Chunk
from indexing.collection import Collections, CollectionSnapshot
from indexing.documents import Content
from indexing.embed import Fingerprint
from indexing.model import claim_model
from indexing.origin import API
from indexing.terms import pack, term_postings
from tenancy.acl import AccessList
from tenancy.control import Tenants
from tenancy.domain import PermissionDomain, permission_domain
from tenancy.identity import Authenticator, Principal, Role
from tenancy.schema import chunks as chunk_rows
from tenancy.tenant import TenantHandle

DIMENSION = 384
TOPICS = 1_000
CHUNKS_A_DOCUMENT = 10
SHARES = (0.1, 0.01, 0.001)
FINGERPRINT = Fingerprint(name="drawn", revision="1", dtype="float32", dimension=DIMENSION, normalised=True, window=512)
DOCUMENTS_A_TRANSACTION = 500

Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Reader:
    """Somebody who may read `rows` (positions in `Labelled.vectors`), a share of them, chosen by `labelling`."""

    labelling: str
    share: float
    principal: Principal
    rows: npt.NDArray[np.int64]


@dataclass
class Labelled:
    """`vectors` (chunks, dimension) and `chunk_ids` (chunks,) in the same order."""

    tenant: TenantHandle
    vectors: Vectors
    chunk_ids: npt.NDArray[np.int64]
    readers: list[Reader] = field(default_factory=list)

    def questions(self, count: int, seed: int = 11) -> Vectors:
        """Vectors near chunks of any topic, readable or not, (count, dimension)."""
        dice = np.random.default_rng(seed)
        near = self.vectors[dice.integers(len(self.vectors), size=count)]
        return _unit(near + dice.normal(scale=0.5 / DIMENSION**0.5, size=near.shape).astype(np.float32))

    def scope(self, reader: Reader, collections: Collections) -> tuple[PermissionDomain, CollectionSnapshot]:
        with collections.opened(self.tenant) as (view, snapshot):
            return permission_domain(reader.principal, view), snapshot

    def right(self, reader: Reader, vector: Vectors, k: int) -> tuple[set[int], float]:
        """Exact: the ids of the nearest `k` that `reader` may read, with all that tie, and the least score."""
        scores = self.vectors[reader.rows] @ vector
        wanted = min(k, len(scores))
        least = float(np.partition(scores, len(scores) - wanted)[len(scores) - wanted])
        return set(self.chunk_ids[reader.rows[scores >= least - 1e-6]].tolist()), least


def fill(tenants: Tenants, name: str, chunks: int, *, engine: str = EMBEDDED, seed: int = 5) -> Labelled:
    """Create the tenant and write its documents through the product's own writer."""
    tenants.create(name)
    authenticator = Authenticator(tenants)
    tenant = tenants.open(authenticator.operator(name))
    count = chunks // CHUNKS_A_DOCUMENT
    dice = np.random.default_rng(seed)
    topics = dice.integers(min(TOPICS, count), size=count)
    centres = _unit(dice.normal(size=(TOPICS, DIMENSION)).astype(np.float32))
    noise = dice.normal(scale=0.7 / DIMENSION**0.5, size=(count * CHUNKS_A_DOCUMENT, DIMENSION)).astype(np.float32)
    vectors = _unit(centres[np.repeat(topics, CHUNKS_A_DOCUMENT)] + noise)
    readable = dict(_readable(topics, dice))
    with tenant.writing() as view:
        model_id = claim_model(view, "drawn", FINGERPRINT, engine, time.time()).model.id
    for start in range(0, count, DOCUMENTS_A_TRANSACTION):
        with tenant.writing() as view:
            for number in range(start, min(start + DOCUMENTS_A_TRANSACTION, count)):
                held = [f"group:{group}" for group, flags in readable.items() if flags[number]]
                rows = vectors[number * CHUNKS_A_DOCUMENT : (number + 1) * CHUNKS_A_DOCUMENT]
                content = _content(number, rows, model_id)
                adding.add(view, f"d{number}", content, API, AccessList.of([*held, "group:all"]), time.time())
    with tenant.reading() as view:
        written = view.execute(select(chunk_rows.c.id).order_by(chunk_rows.c.document_id, chunk_rows.c.ordinal))
        chunk_ids = np.array([row.id for row in written], dtype=np.int64)
    labelled = Labelled(tenant, vectors, chunk_ids)
    for group, flags in {**readable, "all-1": np.ones(count, dtype=np.bool_)}.items():
        labelling, _, share = group.partition("-")
        groups = ["all"] if labelling == "all" else [group]
        key = tenants.create_key(name, f"reader-{group}", (Role.READER,), groups=groups)
        principal = authenticator.authenticate(key.text, "192.0.2.1")
        positions = np.flatnonzero(np.repeat(flags, CHUNKS_A_DOCUMENT)).astype(np.int64)
        labelled.readers.append(Reader(labelling, float(share), principal, positions))
    return labelled


def _readable(topics: npt.NDArray[np.int64], dice: np.random.Generator) -> Iterator[tuple[str, npt.NDArray[np.bool_]]]:
    """For each share, documents at random, and whole topics until the share is reached."""
    count = len(topics)
    for share in SHARES:
        wanted = max(1, round(share * count))
        flags = np.zeros(count, dtype=np.bool_)
        flags[dice.choice(count, wanted, replace=False)] = True
        yield f"random-{share}", flags
        order = dice.permutation(int(topics.max()) + 1)
        rank = np.argsort(order)[topics]
        chosen = np.zeros(count, dtype=np.bool_)
        chosen[np.argsort(rank, kind="stable")[:wanted]] = True
        yield f"topic-{share}", chosen


def _content(number: int, rows: Vectors, model_id: int) -> Content:
    texts = [f"Section {ordinal} of document {number}." for ordinal in range(len(rows))]
    return Content(
        version=f"sha256:{number:064x}",
        title=f"Document {number}",
        media_type="text/plain",
        metadata={},
        warnings=(),
        chunks=[Chunk(ordinal, 0, len(text), text) for ordinal, text in enumerate(texts)],
        terms=[pack(term_postings(text)) for text in texts],
        vectors=rows,
        model_id=model_id,
    )


def _unit(rows: Vectors) -> Vectors:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)


def percentiles_ms(seconds: Sequence[float]) -> dict[str, float]:
    """p50 and p99 in milliseconds."""
    found = np.percentile(np.array(seconds) * 1000, [50, 99])
    return {"p50": round(float(found[0]), 3), "p99": round(float(found[1]), 3)}
