"""The bookkeeping of search on a device, with indexes of the processor in its place (tests/gpu has the real one)."""

from __future__ import annotations

import gc
from typing import Any

import faiss
import numpy as np
import pytest

from indexing.collections.open import OpenCollections
from indexing.gpu import MAX_K, GpuSearch
from tests.support.people import Company
from tests.support.shelf import FINGERPRINT, Shelf

DIMENSION = 8
ROWS = np.random.default_rng(3).normal(size=(40, DIMENSION)).astype(np.float32)
VECTOR = ROWS[11].copy()


class Owner:
    """A readable set."""


def device(budget: int = 1 << 20, make: Any = faiss.IndexFlatIP) -> GpuSearch:
    return GpuSearch(make, budget, min_rows=10)


def best(gpu: GpuSearch, owner: object, rows: np.ndarray = ROWS, k: int = 5) -> list[int] | None:
    found = gpu.nearest(owner, lambda: rows, len(rows), VECTOR, k)
    return None if found is None else found[1].tolist()


def test_only_gathered_rows_are_searched() -> None:
    gpu, owner = device(), Owner()
    readable = np.delete(np.arange(40), 11)
    found = best(gpu, owner, ROWS[readable])
    assert found == np.argsort(-(ROWS[readable] @ VECTOR))[:5].tolist()
    assert 11 in (best(gpu, Owner()) or [])


def test_an_index_is_made_once_and_dies_with_its_readable_set() -> None:
    made: list[int] = []
    gpu = device(make=lambda dimension: made.append(dimension) or faiss.IndexFlatIP(dimension))
    made.clear()
    owner = Owner()
    best(gpu, owner)
    best(gpu, owner)
    assert made == [DIMENSION]
    assert gpu.nbytes == ROWS.nbytes
    del owner
    gc.collect()
    assert gpu.nbytes == 0


def test_the_least_recently_used_index_makes_room() -> None:
    gpu = device(budget=2 * ROWS.nbytes)
    owners = [Owner() for _ in range(3)]
    for owner in owners:
        assert best(gpu, owner)
    assert gpu.nbytes == 2 * ROWS.nbytes


def test_the_processor_searches_what_does_not_fit_or_does_not_pay() -> None:
    owner = Owner()
    assert best(device(budget=ROWS.nbytes - 1), owner) is None
    assert best(device(), owner, ROWS[:9]) is None
    assert best(device(), owner, ROWS, MAX_K + 1) is None
    assert best(device(), owner) is not None


class Failing:
    """An index of a device that breaks after the canary."""

    broken = False

    def __init__(self, dimension: int) -> None:
        self._index = faiss.IndexFlatIP(dimension)

    def add(self, rows: Any) -> None:
        self._index.add(rows)

    def search(self, vector: Any, k: int) -> Any:
        if Failing.broken:
            raise RuntimeError("CUDA error 719")
        return self._index.search(vector, k)


def test_a_device_that_fails_is_left_to_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, owner = device(make=Failing), Owner()
    assert best(gpu, owner)
    monkeypatch.setattr(Failing, "broken", True)
    assert best(gpu, owner) is None
    assert gpu.nbytes == 0


class Empty(Failing):
    """What FAISS makes where there is no device: rows go in and none comes out."""

    def add(self, rows: Any) -> None:
        pass


def test_a_device_that_does_not_honour_the_readable_set_is_refused() -> None:
    with pytest.raises(ValueError, match="canary"):
        device(make=Empty)


def test_without_gpu_support_there_is_no_search_on_a_device() -> None:
    if hasattr(faiss, "StandardGpuResources"):
        pytest.skip("faiss-gpu is installed: tests/gpu covers it")
    assert GpuSearch.start(1 << 30) is None


def test_a_snapshot_gives_the_same_with_a_device(acme: Company) -> None:
    """The device sees the readable rows alone; ties go to the processor."""
    shelf = Shelf(acme)
    ana = acme.principal("ana")
    for number in range(30):
        vector = [float(number % 7), float(number), 1.0, 0.0]
        shelf.put(f"d{number}", "word", vectors=[vector], allow=["tenant"] if number % 3 else ["user:bo"])
    shelf.put("twin", "word", vectors=[[1.0, 29.0, 1.0, 0.0]], allow=["tenant"])
    question = [0.0, 1.0, 0.5, 0.0]
    without = [shelf.dense(ana, question, k) for k in (1, 5, 50)]
    asked: list[int] = []

    class Device(faiss.IndexFlatIP):
        def search(self, vectors: Any, k: int) -> Any:
            asked.append(k)
            return super().search(vectors, k)

    gpu = GpuSearch(Device, 1 << 20, min_rows=10)
    asked.clear()
    shelf.collections = OpenCollections(FINGERPRINT, 2**30, gpu=gpu)
    assert [shelf.dense(ana, question, k) for k in (1, 5, 50)] == without
    assert len(asked) == 3
    assert len(without[2]) == 21
