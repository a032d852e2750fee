"""Qdrant's own engine in process, behind the few methods of `AsyncQdrantClient` that the adapter calls.

No package carries a Qdrant server. `qdrant-edge-py` carries its storage and search engine: this stand-in hands it the
very filter objects that a server would get, so that their meaning and the recall of the graph are the real ones. What
is not tested with it: HTTP, the server's timeouts, and its optimiser running by itself.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import qdrant_edge as edge
from qdrant_client import models
from qdrant_client.http.exceptions import UnexpectedResponse

from indexing.engines.qdrant import QdrantEngine


def edge_engine(name: str, folder: Path, **options: Any) -> QdrantEngine:
    return QdrantEngine(name, lambda: EdgeClient(folder), **options)  # type: ignore[arg-type, return-value]


class EdgeClient:
    """Collections are folders below `folder`; each is opened once and closed by `close`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._shards: dict[str, edge.EdgeShard] = {}

    async def collection_exists(self, name: str) -> bool:
        return (self._folder / name).is_dir()

    async def create_collection(self, name: str, vectors_config: models.VectorParams) -> bool:
        path = self._folder / name
        if path.exists():
            raise _answer(409)
        assert vectors_config.distance == models.Distance.DOT
        path.mkdir()
        vectors = edge.EdgeVectorParams(size=vectors_config.size, distance=edge.Distance.Dot)
        self._shards[name] = edge.EdgeShard.create(str(path), edge.EdgeConfig(vectors=vectors))
        return True

    async def create_payload_index(
        self, name: str, field: str, field_schema: models.IntegerIndexParams, wait: bool
    ) -> None:
        schema = edge.IntegerIndexParams(lookup=field_schema.lookup, range=field_schema.range)
        self._shard(name).update(edge.UpdateOperation.create_field_index(field, schema))

    async def upsert(self, name: str, points: Sequence[models.PointStruct], wait: bool) -> None:
        converted = [edge.Point(point.id, point.vector, point.payload) for point in points]
        self._shard(name).update(edge.UpdateOperation.upsert_points(converted))

    async def delete(self, name: str, selector: models.PointIdsList | models.FilterSelector, wait: bool) -> None:
        if isinstance(selector, models.PointIdsList):
            operation = edge.UpdateOperation.delete_points(list(selector.points))
        else:
            operation = edge.UpdateOperation.delete_points_by_filter(converted_filter(selector.filter))
        self._shard(name).update(operation)

    async def query_points(
        self,
        name: str,
        query: list[float],
        query_filter: models.Filter,
        search_params: models.SearchParams,
        limit: int,
        with_payload: bool,
        with_vectors: bool,
    ) -> SimpleNamespace:
        request = edge.QueryRequest(
            limit=limit,
            query=edge.Query.Nearest(query),
            filter=converted_filter(query_filter),
            params=_params(search_params),
            with_payload=with_payload,
            with_vector=with_vectors,
        )
        return SimpleNamespace(points=self._shard(name).query(request))

    async def scroll(
        self, name: str, limit: int, offset: int | None, with_payload: bool, with_vectors: bool
    ) -> tuple[list[edge.Record], Any]:
        request = edge.ScrollRequest(offset=offset, limit=limit, with_payload=with_payload, with_vector=with_vectors)
        return self._shard(name).scroll(request)

    async def get_collections(self) -> SimpleNamespace:
        names = [path.name for path in self._folder.iterdir() if path.is_dir()]
        return SimpleNamespace(collections=[SimpleNamespace(name=name) for name in names])

    async def info(self) -> SimpleNamespace:
        return SimpleNamespace(version=f"edge {version('qdrant-edge-py')}")

    async def delete_collection(self, name: str) -> bool:
        shard = self._shards.pop(name, None)
        if shard is not None:
            shard.close()
        path = self._folder / name
        if not path.exists():
            return False
        shutil.rmtree(path)
        return True

    async def close(self) -> None:
        while self._shards:
            self._shards.popitem()[1].close()

    def optimize(self, name: str) -> None:
        """Build the graph, which a server does by itself."""
        self._shard(name).optimize()

    def _shard(self, name: str) -> edge.EdgeShard:
        if name not in self._shards:
            if not (self._folder / name).is_dir():
                raise _answer(404)
            self._shards[name] = edge.EdgeShard.load(str(self._folder / name))
        return self._shards[name]


def converted_filter(given: models.Filter) -> edge.Filter:
    """The same filter in the engine's own classes; an object that this does not know is an error, never left out."""
    assert given.min_should is None
    return edge.Filter(
        must=_conditions(given.must), should=_conditions(given.should), must_not=_conditions(given.must_not)
    )


def _conditions(given: Any) -> list[Any] | None:
    if given is None:
        return None
    return [_condition(item) for item in (given if isinstance(given, list) else [given])]


def _condition(given: Any) -> Any:
    if isinstance(given, models.Filter):
        return converted_filter(given)
    if isinstance(given, models.HasIdCondition):
        return edge.HasIdCondition(set(given.has_id))
    if isinstance(given, models.IsEmptyCondition):
        return edge.IsEmptyCondition(given.is_empty.key)
    assert isinstance(given, models.FieldCondition), type(given)
    assert {name for name, value in given if value is not None} <= {"key", "match", "range"}
    if given.match is not None:
        return edge.FieldCondition(given.key, match=_match(given.match))
    assert isinstance(given.range, models.Range), given
    bounds = {"gte": given.range.gte, "gt": given.range.gt, "lte": given.range.lte, "lt": given.range.lt}
    return edge.FieldCondition(given.key, range=edge.RangeFloat(**bounds))


def _params(given: models.SearchParams) -> edge.SearchParams:
    acorn = given.acorn and edge.AcornSearchParams(
        enable=bool(given.acorn.enable), max_selectivity=given.acorn.max_selectivity
    )
    return edge.SearchParams(hnsw_ef=given.hnsw_ef, exact=bool(given.exact), acorn=acorn)


def _match(given: Any) -> Any:
    if isinstance(given, models.MatchValue):
        return edge.MatchValue(given.value)
    assert isinstance(given, models.MatchAny), type(given)
    return edge.MatchAny(list(given.any))


def _answer(status: int) -> UnexpectedResponse:
    return UnexpectedResponse(status, "", b"", httpx.Headers())
