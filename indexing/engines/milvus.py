"""Milvus behind the port of engines: one collection per tenant, the label filter inside the search.

Shown against Milvus 2.3.5; docs/operations/milvus.md has the settings, the limits and what was measured.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import grpc
import numpy as np
import numpy.typing as npt
from pymilvus import AsyncMilvusClient
from pymilvus.client.connection_manager import AsyncConnectionManager
from pymilvus.exceptions import MilvusException

from indexing.engine import MARK, Hit, Point
from indexing.engines import milvus_schema as schema
from indexing.engines.loop import EngineLoop
from indexing.engines.milvus_errors import as_error, is_passing, is_unloaded, silence_client
from indexing.engines.milvus_filter import readable_expression
from indexing.engines.transport import checked_address, read_key
from tenancy.errors import Corrupt, EngineUnavailable, NotFound, TooLarge, Unavailable

if TYPE_CHECKING:
    from indexing.filters import SealedFilter

T = TypeVar("T")
Consistency = Literal["bounded", "strong"]

OLDEST: Final = (2, 3, 2)
"""The first server with arrays."""
BATCH_BYTES: Final = 8 << 20
"""Of points in one call. A server takes messages of 64 MB."""
MAX_EXPRESSION_BYTES: Final = 2 << 20
"""Of labels and filter: about 50,000 labels, which take more than a second."""
MOST_HITS: Final = 16_384
"""Hits that a server returns for one question."""
EF: Final = 512
"""Candidates that a search of the graph keeps."""

_IDS_A_CALL: Final = 10_000
_DOCUMENTS_A_CALL: Final = 1_000
_ATTEMPTS: Final = 4
_BACKOFF_SECONDS: Final = 0.1
_FRESH_SECONDS: Final = 10.0
# gRPC by itself waits up to two minutes before it looks again for a server that was away.
_CHANNEL: Final = {"grpc.initial_reconnect_backoff_ms": 100, "grpc.max_reconnect_backoff_ms": 500}
_LEVELS: Final[dict[Consistency, str]] = {"bounded": "Bounded", "strong": "Strong"}


class MilvusEngine:
    """See `indexing.engine.Engine`. `connect` makes the client, on the loop's thread, when it is first needed.

    `timeout` in seconds holds for each call with its repetitions, `write_timeout` for each batch that is written and
    for making a collection, which takes Milvus seconds. Up to `graph_from` points (None: always) a search compares
    all of them; beyond that a graph is built once, and `nearest` compares all that are readable where they are few.

    A write returns once the server shows it to a reader who asks for the newest state. So a search may ask for the
    state of some seconds ago ("bounded") and see it: asking for the newest ("strong") takes 0.2 to 0.4 s each time,
    since the server waits for its clock to tick. After a connection was made or lost, searches ask for the newest.
    """

    def __init__(
        self,
        name: str,
        connect: Callable[[], AsyncMilvusClient],
        *,
        timeout: float = 10.0,
        write_timeout: float = 60.0,
        graph_from: int | None = None,
        consistency: Consistency = "bounded",
        ef: int = EF,
        batch_bytes: int = BATCH_BYTES,
        concurrency: int = 16,
    ) -> None:
        silence_client()
        self._name = name
        self._connect = connect
        self._timeout = timeout
        self._write_timeout = write_timeout
        self._graph_from = graph_from
        self._consistency = consistency
        self._ef = ef
        self._batch_bytes = batch_bytes
        self._loop = EngineLoop(name, concurrency=concurrency)
        self._client: AsyncMilvusClient | None = None
        self._connecting = asyncio.Lock()
        self._newest_until = 0.0

    @classmethod
    def server(
        cls,
        name: str,
        url: str,
        *,
        api_key_file: Path | None = None,
        ca_file: Path | None = None,
        plaintext: bool = False,
        database: str = "",
        **options: Any,
    ) -> MilvusEngine:
        """The engine at `url`; nothing is sent yet. Raises `InvalidInput` for an address that is not protected.

        `api_key_file` holds a token or USER:PASSWORD, `ca_file` (PEM) who signs the server's certificate where the
        public authorities do not. `database` has to be there.
        """
        key = read_key(api_key_file, engine=name)
        address = checked_address(url, engine=name, authenticated=key is not None, plaintext=plaintext)
        trust = {"server_pem_path": str(ca_file)} if ca_file is not None else {}
        return cls(
            name,
            lambda: AsyncMilvusClient(
                address, token=key or "", db_name=database, timeout=float(options.get("timeout", 10.0)),
                dedicated=True, grpc_options=_CHANNEL, **trust,
            ),
            **options,
        )  # fmt: skip

    @property
    def name(self) -> str:
        return self._name

    def create(self, physical: str, dimension: int) -> None:
        schema.checked(physical)
        self._call(lambda client: self._create(client, physical, dimension), self._write_timeout)

    def put(self, physical: str, points: Sequence[Point]) -> None:
        for batch in schema.batches(points, self._batch_bytes):
            rows = [schema.row(point) for point in batch]
            self._call(lambda client, rows=rows: client.upsert(physical, rows, retry_times=0), self._write_timeout)  # type: ignore[misc]
        self._await_state(physical, sorted({point.chunk_id for point in points}), held=True)
        if self._graph_from is not None and points:
            self._call(lambda client: self._build_graph(client, physical), self._write_timeout, physical)

    def remove(self, physical: str, chunk_ids: Sequence[int]) -> None:
        numbers = sorted({int(number) for number in chunk_ids})
        for piece in _pieces(numbers, _IDS_A_CALL):
            self._call(
                lambda client, piece=piece: client.delete(physical, ids=list(piece), retry_times=0),  # type: ignore[misc]
                self._write_timeout,
            )
        self._await_state(physical, numbers, held=False)

    def prune(self, physical: str, document_ids: Sequence[int], keep: Sequence[int]) -> None:
        kept = np.asarray(sorted(keep), dtype=np.int64)
        for piece in _pieces(sorted({int(number) for number in document_ids}), _DOCUMENTS_A_CALL):
            held = list(self._ids(physical, f"{schema.DOCUMENT} in {list(piece)}"))
            gone = np.setdiff1d(np.concatenate(held) if held else kept[:0], kept)
            self.remove(physical, gone.tolist())

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
        expression = readable_expression(labels, where)
        if len(expression) > MAX_EXPRESSION_BYTES:
            raise TooLarge(
                f"{len(labels)} labels and the filter are more than the engine can be asked about",
                item=self._name,
                remedy="use fewer groups, or choose another engine for the tenant",
            )
        limit, ef = self._effort(k, readable)
        query = np.ascontiguousarray(vector, dtype=np.float32)
        found = self._call(
            lambda client: client.search(
                physical, [query], filter=expression, limit=limit, anns_field=schema.VECTOR,
                search_params={"metric_type": "IP", "params": {"ef": ef}},
                consistency_level=self._level(), retry_times=0,
            ),
            self._timeout,
            physical,
        )  # fmt: skip
        return [Hit(int(hit["id"]), float(hit["distance"])) for hit in found[0][:k]]

    def chunk_ids(self, physical: str) -> Iterator[Sequence[int]]:
        for ids in self._ids(physical, ""):
            yield ids.tolist()

    def drop(self, physical: str) -> None:
        schema.checked(physical)
        try:
            self._call(lambda client: client.drop_collection(physical, retry_times=0), self._timeout)
        except NotFound:
            return

    def collections(self) -> Sequence[str]:
        found = self._call(lambda client: client.list_collections(retry_times=0), self._timeout)
        return sorted(name for name in found if schema.is_physical(name))

    def version(self) -> str:
        return str(self._call(lambda client: client.get_server_version(retry_times=0), self._timeout))

    def close(self) -> None:
        try:
            self._loop.call(self._disconnect, self._timeout)
        except Unavailable:
            pass
        finally:
            self._loop.close()

    def _effort(self, k: int, readable: int) -> tuple[int, int]:
        """How many hits to ask for, and how many candidates a graph keeps.

        Milvus leaves the graph and compares all readable points of a segment where half of them or more are asked
        for (knowhere: kHnswSearchBFTopkThreshold), which is the one way to tell it to. Without a graph it always does.
        """
        if self._graph_from is None:
            return k, self._ef
        wanted = max(k, -(-readable // 2)) if readable else MOST_HITS
        limit = wanted if wanted <= MOST_HITS else k
        return limit, max(self._ef, 2 * limit)

    def _level(self) -> str:
        return "Strong" if time.monotonic() < self._newest_until else _LEVELS[self._consistency]

    def _await_state(self, physical: str, chunk_ids: Sequence[int], *, held: bool) -> None:
        """Returns when the newest state holds all of the ids, or none. Raises `Unavailable` where it does not."""
        for piece in _pieces(chunk_ids, _IDS_A_CALL):
            expression = f"{schema.CHUNK} in {list(piece)}"
            found = self._call(
                lambda client, expression=expression: _queried(client, physical, expression),  # type: ignore[misc]
                self._write_timeout,
                physical,
            )
            if len(found) != (len(piece) if held else 0):
                raise EngineUnavailable(
                    "the vector engine does not show what was written to it",
                    item=self._name,
                    remedy="try again; if it stays so, look at its log",
                )

    def _ids(self, physical: str, condition: str) -> Iterator[npt.NDArray[np.int64]]:
        """Ids of the points that meet `condition`, ascending, in pieces."""
        after = MARK
        while True:
            expression = f"{schema.CHUNK} > {after}" + (f" and {condition}" if condition else "")
            found = self._call(
                lambda client, expression=expression: _queried(client, physical, expression, limit=_IDS_A_CALL),  # type: ignore[misc]
                self._write_timeout,
                physical,
            )
            ids = np.fromiter((record[schema.CHUNK] for record in found), dtype=np.int64, count=len(found))
            if not len(ids):
                return
            if np.any(np.diff(ids) <= 0):
                raise Corrupt("the vector engine lists ids out of order", item=self._name)
            yield ids
            after = int(ids[-1])

    async def _create(self, client: AsyncMilvusClient, physical: str, dimension: int) -> None:
        if not await client.has_collection(physical, retry_times=0):
            await client.create_collection(
                physical, schema=schema.schema(dimension), consistency_level="Strong", retry_times=0
            )
        schema.require_dimension(await client.describe_collection(physical, retry_times=0), dimension, self._name)
        if await _index_of(client, physical) is None:
            await client.create_index(physical, schema.index(schema.FLAT), retry_times=0)
        await client.load_collection(physical, retry_times=0)

    async def _build_graph(self, client: AsyncMilvusClient, physical: str) -> None:
        """Once a collection is large. An index is replaced out of service: questions fail meanwhile, for minutes where
        there are many points. `_make_ready` goes on where this was interrupted.
        """
        held = await _index_of(client, physical)
        if held is None or held.get("index_type") == schema.GRAPH:
            return
        counted = await client.query(
            physical, filter="", output_fields=["count(*)"], consistency_level="Strong", retry_times=0
        )
        if self._graph_from is None or int(counted[0]["count(*)"]) < self._graph_from:
            return
        await client.flush(physical, retry_times=0)
        await client.release_collection(physical, retry_times=0)
        await client.drop_index(physical, held["index_name"], retry_times=0)
        await client.create_index(physical, schema.index(schema.GRAPH), retry_times=0)
        await client.load_collection(physical, retry_times=0)

    async def _make_ready(self, client: AsyncMilvusClient, physical: str) -> None:
        """Index and load a collection that is there and out of service, unless its index is being built."""
        held = await _index_of(client, physical)
        if held is None:
            kind = schema.FLAT if self._graph_from is None else schema.GRAPH
            await client.create_index(physical, schema.index(kind), retry_times=0)
        elif held.get("state") != "Finished":
            return
        await client.load_collection(physical, retry_times=0)

    def _call(
        self, work: Callable[[AsyncMilvusClient], Awaitable[T]], seconds: float, physical: str | None = None
    ) -> T:
        """`work` on the loop, repeated while the server cannot be reached: every call here may be repeated.

        `physical` is the collection that has to be in service for it.
        """
        try:
            return self._loop.call(lambda: self._repeated(work, seconds, physical), seconds)
        except (MilvusException, grpc.RpcError) as error:
            self._newest_until = time.monotonic() + _FRESH_SECONDS
            raise as_error(error, self._name) from None
        except Unavailable:
            self._newest_until = time.monotonic() + _FRESH_SECONDS
            raise

    async def _repeated(
        self, work: Callable[[AsyncMilvusClient], Awaitable[T]], seconds: float, physical: str | None
    ) -> T:
        deadline = time.monotonic() + seconds
        unloaded = False
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                client = await self._connected()
                if unloaded and physical is not None:
                    await self._make_ready(client, physical)
                return await work(client)
            except (MilvusException, grpc.RpcError) as error:
                unloaded = is_unloaded(error)
                # Jitter, so that many callers do not come back together.
                pause = _BACKOFF_SECONDS * 2**attempt * random.uniform(0.5, 1.0)  # noqa: S311
                if attempt == _ATTEMPTS or not is_passing(error) or time.monotonic() + pause > deadline:
                    raise
            await asyncio.sleep(pause)
        raise AssertionError("unreachable")

    async def _connected(self) -> AsyncMilvusClient:
        async with self._connecting:
            if self._client is None:
                client = self._connect()
                self._require_version(await client.get_server_version(retry_times=0))
                self._newest_until = time.monotonic() + _FRESH_SECONDS
                self._client = client
            return self._client

    def _require_version(self, version: str) -> None:
        numbers = re.match(r"v?(\d+)\.(\d+)\.(\d+)", version)
        if numbers is not None and tuple(map(int, numbers.groups())) < OLDEST:
            raise EngineUnavailable(
                "the vector engine is an older Milvus than 2.3.2", item=self._name, remedy="update the server"
            )

    async def _disconnect(self) -> None:
        if self._client is not None:
            await self._client.close()
        # The client keeps one of these per event loop, by the loop's address, which a later loop may get.
        AsyncConnectionManager._instances.pop(id(asyncio.get_running_loop()), None)


async def _index_of(client: AsyncMilvusClient, physical: str) -> dict[str, Any] | None:
    """The index of the vectors: `index_name`, `index_type`, `state`; None where there is none."""
    for name in await client.list_indexes(physical, schema.VECTOR, retry_times=0):
        described: dict[str, Any] | None = await client.describe_index(physical, name, retry_times=0)
        return described
    return None


async def _queried(
    client: AsyncMilvusClient, physical: str, expression: str, limit: int | None = None
) -> Sequence[dict[str, Any]]:
    bounds = {} if limit is None else {"limit": limit}
    found: Sequence[dict[str, Any]] = await client.query(
        physical, filter=expression, output_fields=[schema.CHUNK], consistency_level="Strong", retry_times=0, **bounds
    )
    return found


def _pieces(numbers: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    for start in range(0, len(numbers), size):
        yield numbers[start : start + size]
