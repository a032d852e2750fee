"""Qdrant behind the port of engines: one collection per tenant, the label filter inside the search.

Points hold integers beside their vector: `document`, the label ids `allow` and `deny`, and metadata by typed key.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
from qdrant_client import AsyncQdrantClient, models
from qdrant_client.common.client_exceptions import ResourceExhaustedResponse
from qdrant_client.http.exceptions import ApiException, UnexpectedResponse

from indexing.engine import MARK, Hit, Point
from indexing.engines.loop import EngineLoop
from indexing.engines.transport import authorities, checked_address, read_key
from tenancy.errors import EngineUnavailable, NotFound, Unavailable

if TYPE_CHECKING:
    from indexing.filters import SealedFilter

T = TypeVar("T")

DOCUMENT: Final = "document"
ALLOW: Final = "allow"
DENY: Final = "deny"

EXACT_BELOW: Final = 100_000
"""Up to so many readable points are compared one by one; see docs/operations/qdrant.md for the measurements."""

EF: Final = 256
"""Candidates that a search of the graph keeps."""

ACORN_SHARE: Final = 0.8
"""With a larger share of the points readable the graph is walked the ordinary way."""

TIMEOUT_SECONDS: Final = 10.0
BATCH_BYTES: Final = 4 << 20
SCROLL_POINTS: Final = 10_000
_ATTEMPTS: Final = 3
_BACKOFF_SECONDS: Final = 0.1
_NUMBER_BYTES: Final = 22
_POINT_BYTES: Final = 256
_IDS_A_CALL: Final = 20_000
_PHYSICAL: Final = re.compile(r"c_[0-9a-f]{32}")


class QdrantEngine:
    """See `indexing.engine.Engine`. `connect` makes the client, on the loop's thread.

    `timeout` in seconds holds for each call with its repetitions (for each batch of points). With up to `exact_below`
    readable points a search compares them all; above it walks the graph with `ef` candidates, more for a large `k`.
    `indexed` False is for the client's local mode, which compares all points and has no indexes.
    """

    def __init__(
        self,
        name: str,
        connect: Callable[[], AsyncQdrantClient],
        *,
        timeout: float = TIMEOUT_SECONDS,
        exact_below: int = EXACT_BELOW,
        ef: int = EF,
        batch_bytes: int = BATCH_BYTES,
        concurrency: int = 16,
        indexed: bool = True,
    ) -> None:
        self._name = name
        self._timeout = timeout
        self._exact_below = exact_below
        self._ef = ef
        self._batch_bytes = batch_bytes
        self._indexed = indexed
        self._loop = EngineLoop(name, concurrency=concurrency)
        try:
            self._client = self._loop.call(lambda: _made(connect), timeout)
        except BaseException:
            self._loop.close()
            raise

    @classmethod
    def server(
        cls,
        name: str,
        url: str,
        *,
        api_key_file: Path | None = None,
        ca_file: Path | None = None,
        plaintext: bool = False,
        **options: Any,
    ) -> QdrantEngine:
        """The engine at `url`; nothing is sent yet. `ca_file` (PEM) signs its certificate where nobody public does.

        Raises `InvalidInput` for an address that is not protected, and for files that cannot be used.
        """
        key = read_key(api_key_file, engine=name)
        address = checked_address(url, engine=name, authenticated=key is not None, plaintext=plaintext)
        trusted = authorities(ca_file, engine=name)
        # Without a port the client would choose 6333, also where the address means its scheme's own.
        port = None if re.search(r":\d+/?$", address) else (443 if address.startswith("https") else 80)

        def connect() -> AsyncQdrantClient:
            return AsyncQdrantClient(
                url=address,
                port=port,
                # As a header: with `api_key` the client warns of what `plaintext` has permitted.
                headers={} if key is None else {"api-key": key},
                timeout=math.ceil(float(options.get("timeout", TIMEOUT_SECONDS))),
                check_compatibility=False,
                verify=trusted,
                # A proxy of the environment would see every vector.
                trust_env=False,
            )

        return cls(name, connect, **options)

    @classmethod
    def local(cls, name: str, path: Path | None = None, **options: Any) -> QdrantEngine:
        """The client's own local mode, in memory or in a folder: for tests, not for service."""
        location, folder = (":memory:", None) if path is None else (None, str(path))
        return cls(name, lambda: AsyncQdrantClient(location=location, path=folder), indexed=False, **options)

    @property
    def name(self) -> str:
        return self._name

    def create(self, physical: str, dimension: int) -> None:
        self._call(lambda: self._create(_checked(physical), dimension))

    def put(self, physical: str, points: Sequence[Point]) -> None:
        for batch in _batches(points, self._batch_bytes):
            structs = [_struct(point) for point in batch]
            self._call(lambda structs=structs: self._client.upsert(physical, structs, wait=True))  # type: ignore[misc]

    def remove(self, physical: str, chunk_ids: Sequence[int]) -> None:
        for start in range(0, len(chunk_ids), _IDS_A_CALL):
            ids = models.PointIdsList(points=[int(number) for number in chunk_ids[start : start + _IDS_A_CALL]])
            self._call(lambda ids=ids: self._client.delete(physical, ids, wait=True))  # type: ignore[misc]

    def prune(self, physical: str, document_ids: Sequence[int], keep: Sequence[int]) -> None:
        if not document_ids:
            return
        owned = models.FieldCondition(key=DOCUMENT, match=models.MatchAny(any=[int(number) for number in document_ids]))
        kept = [models.HasIdCondition(has_id=[int(number) for number in keep])] if keep else []
        gone = models.FilterSelector(filter=models.Filter(must=[owned], must_not=list(kept)))
        self._call(lambda: self._client.delete(physical, gone, wait=True))

    def nearest(
        self,
        physical: str,
        vector: npt.NDArray[np.float32],
        labels: frozenset[int],
        where: SealedFilter | None,
        k: int,
        *,
        readable: int,
    ) -> list[Hit]:
        if not labels:
            return []
        query = vector.tolist()
        search = self._search_params(k, readable)
        filters = readable_filter(labels, where)
        found = self._call(
            lambda: self._client.query_points(
                physical, query=query, query_filter=filters, search_params=search, limit=k,
                with_payload=False, with_vectors=False,
            )
        )  # fmt: skip
        return [Hit(self._number(point.id), float(point.score)) for point in found.points]

    def chunk_ids(self, physical: str) -> Iterator[Sequence[int]]:
        offset: Any = MARK + 1
        while True:
            records, offset = self._call(
                lambda after=offset: self._client.scroll(  # type: ignore[misc]
                    physical, limit=SCROLL_POINTS, offset=after, with_payload=False, with_vectors=False
                )
            )
            yield [self._number(record.id) for record in records]
            if offset is None:
                return

    def drop(self, physical: str) -> None:
        try:
            self._call(lambda: self._client.delete_collection(_checked(physical)))
        except NotFound:
            return

    def collections(self) -> Sequence[str]:
        found = self._call(lambda: self._client.get_collections())
        return sorted(item.name for item in found.collections if _PHYSICAL.fullmatch(item.name))

    def version(self) -> str:
        return self._call(lambda: self._client.info()).version

    def close(self) -> None:
        try:
            self._loop.call(self._client.close, self._timeout)
        except Unavailable:
            pass
        finally:
            self._loop.close()

    def _search_params(self, k: int, readable: int) -> models.SearchParams | None:
        if not self._indexed:
            return None
        if readable <= self._exact_below:
            return models.SearchParams(exact=True)
        # ACORN looks past unreadable neighbours: without it a filter that leaves a third of the points tears holes.
        acorn = models.AcornSearchParams(enable=True, max_selectivity=ACORN_SHARE)
        return models.SearchParams(hnsw_ef=max(self._ef, 2 * k), acorn=acorn)

    async def _create(self, physical: str, dimension: int) -> None:
        if not await self._client.collection_exists(physical):
            try:
                await self._client.create_collection(
                    physical, vectors_config=models.VectorParams(size=dimension, distance=models.Distance.DOT)
                )
            except UnexpectedResponse as error:
                # Somebody else was first, or the answer to our own earlier attempt was lost.
                if error.status_code != 409:
                    raise
        if not self._indexed:
            return
        # Before any point: the graph gets links along the labels only if their index is there when it is built.
        for field in (ALLOW, DENY, DOCUMENT):
            index = models.IntegerIndexParams(type=models.IntegerIndexType.INTEGER, lookup=True, range=False)
            await self._client.create_payload_index(physical, field, field_schema=index, wait=True)

    def _call(self, work: Callable[[], Awaitable[T]]) -> T:
        """`work` on the loop, repeated while the server cannot be reached: every call here may be repeated."""
        try:
            return self._loop.call(lambda: _repeated(work, self._timeout), self._timeout)
        except ResourceExhaustedResponse as error:
            raise self._unavailable("asks for a pause", "try again later") from error
        except UnexpectedResponse as error:
            raise self._refused(error) from error
        except ApiException as error:
            raise self._unavailable("cannot be reached", "start it, or correct its address") from error
        except (json.JSONDecodeError, AssertionError):
            # What the client raises for an answer that is no JSON, and for one without a result.
            raise self._unreadable() from None
        except ValueError as error:
            # The local mode's way of saying 404; its other complaints would be faults of this module.
            if "not found" not in str(error):
                raise
            raise self._absent() from error

    def _refused(self, error: UnexpectedResponse) -> NotFound | EngineUnavailable:
        """A server's answer as an error; what it says may quote points, and is left out."""
        status = error.status_code or 0
        if status == 404:
            return self._absent()
        if status in {401, 403}:
            return self._unavailable("refuses the key", "correct its api_key_file")
        if status in {500, 507}:
            return self._unavailable("failed", "look at its log: its disk may be full")
        return self._unavailable(f"answered with HTTP status {status}", "look at its log")

    def _number(self, point_id: object) -> int:
        """A chunk id; other ids than numbers are none of ours."""
        if not isinstance(point_id, int):
            raise self._unreadable()
        return point_id

    def _unreadable(self) -> EngineUnavailable:
        return self._unavailable("gave an answer that cannot be read", "look whether its address is that of a Qdrant")

    def _absent(self) -> NotFound:
        return NotFound("the collection is not at the engine", item=self._name)

    def _unavailable(self, reason: str, remedy: str) -> EngineUnavailable:
        return EngineUnavailable(f"the vector engine {reason}", item=self._name, remedy=remedy)


def readable_filter(labels: frozenset[int], where: SealedFilter | None) -> models.Filter:
    """Allowed by one of `labels`, denied by none, and matching `where`. Raises `ValueError` for no labels."""
    if not labels:
        raise ValueError("an empty set of labels reads nothing; no engine is asked")
    held = sorted(labels)
    must: list[Any] = [models.FieldCondition(key=ALLOW, match=models.MatchAny(any=held))]
    if where is not None:
        from indexing.engines.qdrant_filter import compile_filter

        must.append(compile_filter(where))
    return models.Filter(must=must, must_not=[models.FieldCondition(key=DENY, match=models.MatchAny(any=held))])


async def _made(connect: Callable[[], AsyncQdrantClient]) -> AsyncQdrantClient:
    return connect()


async def _repeated(work: Callable[[], Awaitable[T]], seconds: float) -> T:
    deadline = time.monotonic() + seconds
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return await work()
        except ApiException as error:
            pause = _BACKOFF_SECONDS * 2**attempt
            if attempt == _ATTEMPTS or not _passing(error) or time.monotonic() + pause > deadline:
                raise
            await asyncio.sleep(pause)
    raise AssertionError("unreachable")


def _passing(error: ApiException) -> bool:
    """Whether the same call may do better in a moment."""
    return not isinstance(error, UnexpectedResponse) or error.status_code in {408, 429, 502, 503, 504}


def _struct(point: Point) -> models.PointStruct:
    payload = {
        **point.metadata,
        DOCUMENT: int(point.document_id),
        ALLOW: [int(label) for label in point.allow],
        DENY: [int(label) for label in point.deny],
    }
    return models.PointStruct(id=int(point.chunk_id), vector=point.vector.tolist(), payload=payload)


def _batches(points: Sequence[Point], limit: int) -> Iterator[Sequence[Point]]:
    """Pieces of about `limit` bytes as JSON, at least one point each."""
    size = 0
    batch: list[Point] = []
    for point in points:
        fields = len(point.allow) + len(point.deny) + 4 * len(point.metadata)
        cost = _POINT_BYTES + _NUMBER_BYTES * (len(point.vector) + fields)
        if batch and size + cost > limit:
            yield batch
            size, batch = 0, []
        size += cost
        batch.append(point)
    if batch:
        yield batch


def _checked(physical: str) -> str:
    if not _PHYSICAL.fullmatch(physical):
        raise ValueError("physical names come from a tenant's own records")
    return physical
