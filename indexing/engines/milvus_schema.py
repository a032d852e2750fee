"""What a tenant's collection at Milvus looks like, and how points become its rows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
from pymilvus import AsyncMilvusClient, CollectionSchema, DataType
from pymilvus.milvus_client.index import IndexParams

from indexing.engine import Point
from indexing.engines.milvus_filter import ALLOW, DENY, METADATA
from tenancy.errors import Corrupt, TooLarge

CHUNK: Final = "chunk_id"
DOCUMENT: Final = "document"
VECTOR: Final = "vector"

MAX_LABELS: Final = 4096
"""What Milvus holds in an array; 2.3.5 takes more and promises nothing about it."""
MAX_METADATA_BYTES: Final = 65_536

FLAT: Final = "FLAT"
GRAPH: Final = "HNSW"
_GRAPH_BUILD: Final = {"M": 32, "efConstruction": 400}
_POINT_BYTES: Final = 128
_NUMBER_BYTES: Final = 10
_PHYSICAL: Final = re.compile(r"c_[0-9a-f]{32}")


def schema(dimension: int) -> CollectionSchema:
    made: CollectionSchema = AsyncMilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
    made.add_field(CHUNK, DataType.INT64, is_primary=True)
    made.add_field(DOCUMENT, DataType.INT64)
    made.add_field(ALLOW, DataType.ARRAY, element_type=DataType.INT64, max_capacity=MAX_LABELS)
    made.add_field(DENY, DataType.ARRAY, element_type=DataType.INT64, max_capacity=MAX_LABELS)
    made.add_field(METADATA, DataType.JSON)
    made.add_field(VECTOR, DataType.FLOAT_VECTOR, dim=dimension)
    return made


def index(kind: str) -> IndexParams:
    """FLAT compares all points; HNSW is a graph. Both score by inner product."""
    made: IndexParams = AsyncMilvusClient.prepare_index_params()
    made.add_index(VECTOR, index_type=kind, metric_type="IP", params=_GRAPH_BUILD if kind == GRAPH else {})
    return made


def require_dimension(described: dict[str, Any], dimension: int, engine: str) -> None:
    """Raises `Corrupt` for a collection that holds something else under this name."""
    held = {field["name"]: field.get("params", {}).get("dim") for field in described.get("fields", ())}
    if held.get(VECTOR) != dimension:
        raise Corrupt(
            f"a collection of this name is there already, and not for vectors of {dimension} dimensions",
            item=engine,
            remedy="rebuild the tenant's collection: it gets another name",
        )


def row(point: Point) -> dict[str, Any]:
    """Raises `TooLarge` for an access list or metadata beyond what Milvus holds."""
    for effect, labels in ((ALLOW, point.allow), (DENY, point.deny)):
        if len(labels) > MAX_LABELS:
            raise TooLarge(
                f"its {effect} list has {len(labels)} entries, and the engine holds {MAX_LABELS}",
                item=f"document {point.document_id}",
                remedy="grant to groups in place of single users, or choose another engine for the tenant",
            )
    metadata = dict(point.metadata)
    if len(msgspec.json.encode(metadata)) > MAX_METADATA_BYTES:
        raise TooLarge(
            f"its metadata is larger than the {MAX_METADATA_BYTES} bytes that the engine holds",
            item=f"document {point.document_id}",
            remedy="leave fields out that nobody filters by",
        )
    return {
        CHUNK: int(point.chunk_id),
        DOCUMENT: int(point.document_id),
        ALLOW: [int(label) for label in point.allow],
        DENY: [int(label) for label in point.deny],
        METADATA: metadata,
        VECTOR: point.vector,
    }


def batches(points: Sequence[Point], limit: int) -> Iterator[list[Point]]:
    """Pieces of about `limit` bytes on the wire, at least one point each; of two with one id the later counts."""
    size = 0
    batch: list[Point] = []
    for point in {point.chunk_id: point for point in points}.values():
        fields = len(point.allow) + len(point.deny) + 4 * len(point.metadata)
        cost = _POINT_BYTES + 4 * len(point.vector) + _NUMBER_BYTES * fields
        if batch and size + cost > limit:
            yield batch
            size, batch = 0, []
        size += cost
        batch.append(point)
    if batch:
        yield batch


def checked(physical: str) -> str:
    if not is_physical(physical):
        raise ValueError("physical names come from a tenant's own records")
    return physical


def is_physical(name: str) -> bool:
    return _PHYSICAL.fullmatch(name) is not None
