"""The index of a namespace: the nearest are those of a plain computation, whatever the 8-bit copies rule out."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from cache.stores import coarse, vectors
from cache.stores.vectors import VectorIndex

Rows = npt.NDArray[np.float32]
DIMENSION = 64


def unit(rows: Rows) -> Rows:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)


def spread(generator: np.random.Generator, count: int) -> Rows:
    return unit(generator.normal(size=(count, DIMENSION)).astype(np.float32))


def crowded(generator: np.random.Generator, count: int) -> Rows:
    """Groups of rows that 8 bits can hardly tell apart, as the questions about one thing are."""
    centres = spread(generator, 20)[generator.integers(0, 20, count)]
    return unit(centres + 0.004 * generator.normal(size=(count, DIMENSION)).astype(np.float32))


def peaked(generator: np.random.Generator, count: int) -> Rows:
    """Rows that grow in their largest component: later ones are cut by the scale of the first."""
    rows = generator.normal(size=(count, DIMENSION)).astype(np.float32)
    rows[:, 0] += np.linspace(0, 30, count, dtype=np.float32)
    return unit(rows)


def filled(rows: Rows) -> VectorIndex:
    index = VectorIndex(DIMENSION, lambda _: None)
    index.append((seq + 1, row.tobytes()) for seq, row in enumerate(rows))
    return index


def scores_of(rows: Rows, query: Rows, numbers: list[int]) -> list[float]:
    return [float(rows[number - 1] @ query) for number in numbers]


@pytest.mark.parametrize("make", [spread, crowded, peaked])
def test_every_neighbour_is_found(make, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(vectors, "COARSE_FROM", 100)
    generator = np.random.default_rng(11)
    rows = make(generator, 3_000)
    index = filled(rows[:400])
    queries = [rows[7], *spread(generator, 30), *unit(rows[:30] + 0.01 * spread(generator, 30))]
    assert list(index.search(rows[7], 1)) == [8]
    index.append((seq + 1, rows[seq].tobytes()) for seq in range(400, 700))
    assert index._coarse is not None
    index.search(rows[7], 1)
    assert (len(index._coarse), index._coarse.began) == (700, 400)
    index.append((seq + 1, rows[seq].tobytes()) for seq in range(700, len(rows)))
    for query in queries:
        best = np.sort(rows @ query)[::-1][:5]
        found = list(index.search(query, 5))
        assert len(set(found)) == 5
        # By their products, since rows that are alike to the last digit may change places.
        assert scores_of(rows, query, found) == pytest.approx(list(best), abs=1e-6)


def test_most_rows_are_ruled_out_and_a_crowd_is_left_to_the_full_product() -> None:
    generator = np.random.default_rng(12)
    apart = spread(generator, 3_000)
    near = coarse.Coarse(apart).within(apart, apart[5], 5)
    assert near is not None
    assert 5 <= len(near) < 300
    alike = unit(spread(generator, 1) + 0.0001 * generator.normal(size=(3_000, DIMENSION)).astype(np.float32))
    assert coarse.Coarse(alike).within(alike, alike[5], 5) is None


@pytest.mark.parametrize("count", [200, 3_000])
def test_for_a_vector_that_is_not_finite_the_copies_rule_nothing_in(count: int) -> None:
    rows = spread(np.random.default_rng(13), count)
    near = coarse.Coarse(rows).within(rows, np.full(DIMENSION, np.nan, dtype=np.float32), 5)
    assert near is None or len(near) == 0


def test_rows_that_went_away_are_not_found_and_their_copies_neither(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "COARSE_FROM", 10)
    rows = spread(np.random.default_rng(14), 200)
    index = filled(rows)
    assert index.search(rows[3], 1) == [4]
    index.retain((seq for seq in range(1, 201) if seq != 4), 200)
    assert index.search(rows[3], 1) != [4]
    assert index.search(rows[4], 1) == [5]
    index.retain([], 200)
    assert index.search(rows[4], 1) == []


@pytest.mark.parametrize("coarse_from", [10, 10_000])
def test_forgotten_rows_are_passed_over_and_dropped_in_the_end(
    coarse_from: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors, "COARSE_FROM", coarse_from)
    rows = spread(np.random.default_rng(16), 300)
    index = filled(rows)
    gone: set[int] = set()
    for _ in range(40):
        query = rows[9]
        order = [int(position) + 1 for position in np.argsort(-(rows @ query))]
        expected = [number for number in order if number not in gone][:5]
        assert list(index.search(query, 5)) == expected
        gone |= set(expected[:3])
        index.forget(set(expected[:3]))
        assert len(index) == 300 - len(gone)
    assert index._count < 300
    index.forget(set(range(1, 301)))
    assert list(index.search(rows[9], 5)) == []


def test_what_an_index_takes_is_accounted_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "COARSE_FROM", 10)
    told: list[int] = []
    index = VectorIndex(DIMENSION, told.append)
    rows = spread(np.random.default_rng(15), 200)
    index.append((seq + 1, row.tobytes()) for seq, row in enumerate(rows))
    index.search(rows[0], 1)
    assert sum(told) == index.nbytes >= rows.nbytes * 5 // 4
    index.retain([1, 2], 200)
    index.search(rows[0], 1)
    assert sum(told) == index.nbytes < rows.nbytes
