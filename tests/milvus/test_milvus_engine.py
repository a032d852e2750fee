"""The Milvus adapter against a real server: what the suite that is the same for every engine leaves out."""

from __future__ import annotations

import random
import secrets
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from pymilvus import AsyncMilvusClient

from indexing.engine import Hit, Point
from indexing.engines import milvus as milvus_engine
from indexing.engines.milvus import MilvusEngine
from indexing.engines.milvus_schema import MAX_LABELS
from indexing.filters import All, Any, Bound, Not, OneOf, SealedFilter
from tenancy.errors import Corrupt, NotFound, TooLarge, Unavailable
from tests.support.milvus_server import MilvusServer

pytestmark = [pytest.mark.milvus, pytest.mark.slow]

DIMENSION = 16
KEYS = ["m00000000000000aa", "m00000000000000bb"]


@pytest.fixture
def place(engine: MilvusEngine) -> Iterator[str]:
    """An empty collection."""
    physical = f"c_{secrets.token_hex(16)}"
    engine.create(physical, DIMENSION)
    yield physical
    engine.drop(physical)


def points(count: int, seed: int = 0, *, first: int = 1) -> list[Point]:
    """Whole numbers as vectors, so that scores are exact: label 1 may read a third, label 2 the others, 9 is denied."""
    dice = np.random.default_rng(seed)
    vectors = dice.integers(-4, 5, (count, DIMENSION)).astype(np.float32)
    return [
        Point(first + row, (first + row) // 5, vectors[row], (1 if row % 3 else 2,), (9,) if row % 4 == 0 else ())
        for row in range(count)
    ]


def expected(stored: list[Point], vector: np.ndarray, labels: set[int], k: int) -> list[float]:
    """Scores of the best `k`; which of several equal ones an engine returns is its own matter."""
    scores = [float(p.vector @ vector) for p in stored if labels & set(p.allow) and not labels & set(p.deny)]
    return sorted(scores, reverse=True)[:k]


def scores(hits: list[Hit]) -> list[float]:
    return [hit.score for hit in hits]


def held(engine: MilvusEngine, physical: str) -> list[int]:
    return [number for piece in engine.chunk_ids(physical) for number in piece]


QUESTION = np.arange(DIMENSION, dtype=np.float32) - 7


def test_nearest_is_exact_under_labels_and_deny(engine: MilvusEngine, place: str) -> None:
    stored = points(3000)
    engine.put(place, stored)
    by_id = {point.chunk_id: point for point in stored}
    for labels in ({1}, {2}, {1, 2}, {1, 9}, {3}):
        for k in (1, 10, 5000):
            hits = engine.nearest(place, QUESTION, frozenset(labels), None, k, readable=3000)
            assert scores(hits) == expected(stored, QUESTION, labels, k)
            assert all(float(by_id[hit.chunk_id].vector @ QUESTION) == hit.score for hit in hits)
    assert engine.nearest(place, QUESTION, frozenset(), None, 10, readable=0) == []


def test_k_is_filled_where_nearer_points_are_unreadable(engine: MilvusEngine, place: str) -> None:
    near = [Point(number, number, 9 * QUESTION, (2,), ()) for number in range(1, 2001)]
    mine = [Point(5000 + number, 1, -QUESTION, (1,), ()) for number in range(20)]
    engine.put(place, [*near, *mine])
    hits = engine.nearest(place, QUESTION, frozenset({1}), None, 20, readable=20)
    assert sorted(hit.chunk_id for hit in hits) == [point.chunk_id for point in mine]


def test_a_point_is_replaced_whole(engine: MilvusEngine, place: str) -> None:
    first = [Point(number, 1, QUESTION, (1,), (), {KEYS[0]: 1}) for number in range(1, 51)]
    engine.put(place, first)
    engine.put(place, [Point(7, 1, 2 * QUESTION, (2,), (1,), {KEYS[1]: 1}), Point(7, 1, 3 * QUESTION, (2,), (1,))])
    norm = float(QUESTION @ QUESTION)
    assert engine.nearest(place, QUESTION, frozenset({2}), None, 10, readable=1) == [Hit(7, 3 * norm)]
    assert 7 not in {hit.chunk_id for hit in engine.nearest(place, QUESTION, frozenset({1}), None, 99, readable=50)}
    assert held(engine, place) == list(range(1, 51))


def test_removed_points_are_gone_at_once_and_pruned_ones_too(engine: MilvusEngine, place: str) -> None:
    stored = points(200)
    engine.put(place, stored)
    engine.remove(place, [1, 2, 3, 10_000])
    engine.remove(place, [1, 2, 3])
    assert held(engine, place) == list(range(4, 201))
    engine.prune(place, [2, 3], [12])
    assert held(engine, place) == [*range(4, 10), 12, *range(20, 201)]
    engine.prune(place, [2, 3], [])
    left = [point for point in stored if point.chunk_id in {*range(4, 10), *range(20, 201)}]
    hits = engine.nearest(place, QUESTION, frozenset({1, 2}), None, 500, readable=200)
    assert scores(hits) == expected(left, QUESTION, {1, 2}, 500)


def test_ids_come_in_pieces(engine: MilvusEngine, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(milvus_engine, "_IDS_A_CALL", 70)
    numbers = random.Random(1).sample(range(1, 10**12), 400)
    engine.put(place, [Point(number, 1, QUESTION, (1,), ()) for number in numbers])
    pieces = list(engine.chunk_ids(place))
    assert [number for piece in pieces for number in piece] == sorted(numbers)
    assert max(map(len, pieces)) == 70


def test_five_thousand_labels(engine: MilvusEngine, place: str) -> None:
    dice = random.Random(3)
    labels = frozenset(dice.sample(range(10, 2**62), 4999)) | {2}
    stored = points(1000)
    engine.put(place, stored)
    hits = engine.nearest(place, QUESTION, labels, None, 10, readable=1000)
    assert scores(hits) == expected(stored, QUESTION, set(labels), 10)
    assert engine.nearest(place, QUESTION, labels - {2}, None, 10, readable=1000) == []
    with pytest.raises(TooLarge):
        engine.nearest(place, QUESTION, frozenset(range(2**40, 2**40 + 200_000)), None, 10, readable=1000)


def test_an_access_list_beyond_the_limit_names_its_document(engine: MilvusEngine, place: str) -> None:
    longest = tuple(range(1, MAX_LABELS + 1))
    engine.put(place, [Point(1, 77, QUESTION, longest, ())])
    assert len(engine.nearest(place, QUESTION, frozenset({MAX_LABELS}), None, 10, readable=1)) == 1
    for allow, deny in (((*longest, 5000), ()), ((1,), (*longest, 5000))):
        with pytest.raises(TooLarge) as caught:
            engine.put(place, [Point(2, 78, QUESTION, allow, deny)])
        assert caught.value.item == "document 78"
        assert caught.value.remedy
    assert held(engine, place) == [1]


def test_filters_act_inside_the_search(engine: MilvusEngine, place: str) -> None:
    """Chains of hundreds of comparisons, the limits of numbers, and keys that are missing."""
    largest = 2**63 - 1
    metadata = [{KEYS[0]: largest}, {KEYS[0]: largest - 1}, {KEYS[0]: -largest}, {KEYS[1]: 10}, {KEYS[1]: -(2**53)}, {}]
    engine.put(place, [Point(row + 1, row, QUESTION, (1,), (), values) for row, values in enumerate(metadata)])
    deep: SealedFilter = OneOf(KEYS[0], (largest,))
    for _ in range(8):
        deep = Not(All((Any((Not(deep), OneOf(KEYS[1], (7,)))), Bound(KEYS[0], "gt", 0))))
    cases: list[tuple[SealedFilter, list[int]]] = [
        (OneOf(KEYS[0], (largest,)), [1]),
        (OneOf(KEYS[0], (largest - 1, 5)), [2]),
        (Bound(KEYS[0], "ge", 0), [1, 2]),
        (Bound(KEYS[0], "gt", largest - 1), [1]),
        (Bound(KEYS[0], "le", -largest), [3]),
        (All((Bound(KEYS[1], "ge", 10), Bound(KEYS[1], "le", 10))), [4]),
        (Bound(KEYS[1], "lt", -(2**53) + 1), [5]),
        (Not(Bound(KEYS[0], "ge", -largest)), [4, 5, 6]),
        (Any(tuple(All((Bound(KEYS[1], "ge", n), Bound(KEYS[1], "le", n))) for n in range(200))), [4]),
        (All(tuple(Not(OneOf(KEYS[0], (n,))) for n in range(300))), [1, 2, 3, 4, 5, 6]),
    ]
    for where, ids in cases:
        hits = engine.nearest(place, QUESTION, frozenset({1}), where, 10, readable=6)
        assert sorted(hit.chunk_id for hit in hits) == ids
        assert engine.nearest(place, QUESTION, frozenset({2}), where, 10, readable=6) == []
    assert {hit.chunk_id for hit in engine.nearest(place, QUESTION, frozenset({1}), deep, 10, readable=6)} >= {3, 4}


def test_collections_are_made_found_and_dropped_once(engine: MilvusEngine, place: str) -> None:
    engine.put(place, points(5))
    engine.create(place, DIMENSION)
    assert held(engine, place) == [1, 2, 3, 4, 5]
    with pytest.raises(Corrupt):
        engine.create(place, DIMENSION + 1)
    assert place in engine.collections()
    engine.drop(place)
    engine.drop(place)
    assert place not in engine.collections()
    for call in (
        lambda: engine.nearest(place, QUESTION, frozenset({1}), None, 3, readable=3),
        lambda: engine.put(place, points(1)),
        lambda: engine.remove(place, [1]),
        lambda: held(engine, place),
    ):
        with pytest.raises(NotFound):
            call()
    with pytest.raises(ValueError, match="physical"):
        engine.create("acme", DIMENSION)


def test_another_process_finds_what_one_has_written(server: MilvusServer, engine: MilvusEngine, place: str) -> None:
    """No search asks for the newest state here: what a write waited for is enough."""
    other = MilvusEngine.server("milvus", server.url)
    other.collections()
    other._newest_until = 0.0
    for number in range(1, 31):
        engine.put(place, [Point(number, 1, QUESTION, (number,), ())])
        assert len(other.nearest(place, QUESTION, frozenset({number}), None, 3, readable=1)) == 1
        engine.remove(place, [number])
        assert other.nearest(place, QUESTION, frozenset({number}), None, 3, readable=1) == []
    other.close()


def test_writers_and_readers_at_the_same_time(engine: MilvusEngine, place: str) -> None:
    """Each writer replaces its own points, label and vector together: no reader sees half of one."""
    done = threading.Event()
    norm = float(QUESTION @ QUESTION)

    def write(writer: int) -> None:
        for turn in range(1, 9):
            first = writer * 100
            engine.put(place, [Point(first + n, writer, turn * QUESTION, (turn,), ()) for n in range(20)])

    def read() -> int:
        seen = 0
        while not done.is_set():
            for turn in range(1, 9):
                hits = engine.nearest(place, QUESTION, frozenset({turn}), None, 200, readable=200)
                assert {hit.score for hit in hits} <= {turn * norm}
                assert len({hit.chunk_id for hit in hits}) == len(hits)
                seen += len(hits)
        return seen

    with ThreadPoolExecutor(8) as pool:
        readers = [pool.submit(read) for _ in range(3)]
        try:
            list(pool.map(write, range(1, 5)))
        finally:
            done.set()
        assert sum(reader.result() for reader in readers) > 0
    assert len(engine.nearest(place, QUESTION, frozenset({8}), None, 200, readable=80)) == 80
    assert len(held(engine, place)) == 80


def test_a_paused_server_is_unavailable_in_time_and_comes_back(server: MilvusServer, place: str) -> None:
    engine = MilvusEngine.server("milvus", server.url, timeout=1.0, write_timeout=20.0)
    engine.put(place, points(10))
    server.pause()
    try:
        began = time.monotonic()
        with pytest.raises(Unavailable) as caught:
            engine.nearest(place, QUESTION, frozenset({1}), None, 3, readable=10)
        assert time.monotonic() - began < 3
        assert caught.value.item == "milvus"
        assert caught.value.remedy
        with pytest.raises(Unavailable):
            engine.collections()
    finally:
        server.resume()
    engine.put(place, [Point(11, 3, QUESTION, (1,), ())])
    assert held(engine, place) == list(range(1, 12))
    engine.close()


def test_callers_beyond_the_concurrency_are_refused_and_not_kept(server: MilvusServer, place: str) -> None:
    engine = MilvusEngine.server("milvus", server.url, timeout=4.0, concurrency=2)
    engine.collections()
    server.pause()
    try:
        with ThreadPoolExecutor(8) as pool:
            began = time.monotonic()
            waits = [pool.submit(_seconds_until_unavailable, engine, place, began) for _ in range(8)]
            seconds = sorted(wait.result() for wait in waits)
        assert seconds[5] < 3
        assert seconds[-1] < 8
    finally:
        server.resume()
        engine.close()


def _seconds_until_unavailable(engine: MilvusEngine, place: str, began: float) -> float:
    with pytest.raises(Unavailable):
        engine.nearest(place, QUESTION, frozenset({1}), None, 3, readable=10)
    return time.monotonic() - began


def test_a_killed_server_loses_no_acknowledged_write(server: MilvusServer, engine: MilvusEngine, place: str) -> None:
    """kill -9 while a writer writes: every put and remove that returned is there when the server is back."""
    returned: list[int] = []
    started = threading.Event()

    def write() -> None:
        for number in range(1, 1000):
            try:
                engine.put(place, [Point(number, number, QUESTION, (1,), ())])
                if number % 5 == 0:
                    engine.remove(place, [number - 1])
            except Unavailable:
                return
            returned.append(number)
            if number >= 7:
                started.set()

    writer = threading.Thread(target=write)
    writer.start()
    assert started.wait(60)
    server.kill()
    writer.join(120)
    assert not writer.is_alive()
    began = time.monotonic()
    with pytest.raises(Unavailable):
        engine.nearest(place, QUESTION, frozenset({1}), None, 3, readable=10)
    assert time.monotonic() - began < 12
    server.start()
    _until_available(engine, place)
    kept = {number for number in returned if (number + 1) % 5 or number + 1 > returned[-1]}
    found = set(held(engine, place))
    assert kept <= found
    assert found - kept <= {returned[-1] + 1}
    hits = engine.nearest(place, QUESTION, frozenset({1}), None, 1000, readable=1000)
    assert {hit.chunk_id for hit in hits} == found
    engine.put(place, [Point(5000, 1, QUESTION, (1,), ())])
    assert 5000 in held(engine, place)


def _until_available(engine: MilvusEngine, place: str) -> None:
    """A server that is healthy still loads its collections for a while."""
    until = time.monotonic() + 60
    while True:
        try:
            engine.nearest(place, QUESTION, frozenset({1}), None, 3, readable=10)
            return
        except Unavailable:
            if time.monotonic() > until:
                raise


def test_a_collection_out_of_service_is_taken_into_service(
    server: MilvusServer, engine: MilvusEngine, place: str
) -> None:
    """Released by an operator, or left without an index by a process that died while it built another one."""
    stored = points(50)
    engine.put(place, stored)
    for without_index in (False, True):
        _take_out_of_service(engine, place, without_index=without_index)
        hits = engine.nearest(place, QUESTION, frozenset({1}), None, 10, readable=50)
        assert scores(hits) == expected(stored, QUESTION, {1}, 10)
        _take_out_of_service(engine, place, without_index=without_index)
        engine.put(place, points(1, first=100 + without_index))
        assert 100 + without_index in held(engine, place)
        engine.remove(place, [100 + without_index])


def _take_out_of_service(engine: MilvusEngine, place: str, *, without_index: bool) -> None:
    async def release(client: AsyncMilvusClient) -> None:
        await client.release_collection(place)
        if without_index:
            await client.drop_index(place, (await client.list_indexes(place))[0])

    engine._call(release, 30.0)


def test_a_large_collection_gets_a_graph_and_keeps_its_recall(server: MilvusServer) -> None:
    engine = MilvusEngine.server("milvus", server.url, write_timeout=120.0, graph_from=4000)
    physical = f"c_{secrets.token_hex(16)}"
    engine.create(physical, DIMENSION)
    dice = np.random.default_rng(5)
    vectors = dice.standard_normal((6000, DIMENSION)).astype(np.float32)
    stored = [Point(row + 1, row, vectors[row], (int(row % 50 == 0) + 1,), ()) for row in range(6000)]
    engine.put(physical, stored[:3000])
    engine.put(physical, stored[3000:5500])
    engine.put(physical, stored[5500:])
    assert held(engine, physical) == list(range(1, 6001))
    good = 0
    for labels, readable in (({1}, 5880), ({2}, 120), ({1, 2}, 6000)):
        for _ in range(20):
            question = dice.standard_normal(DIMENSION).astype(np.float32)
            hits = engine.nearest(physical, question, frozenset(labels), None, 10, readable=readable)
            best = expected(stored, question, labels, 10)
            assert len(hits) == 10
            good += sum(hit.score >= best[-1] - 1e-4 for hit in hits)
    assert good / 600 >= 0.99
    engine.drop(physical)
    engine.close()
