"""What conformance cannot bring about with real engines: graphs that find too few, and repairs without end."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import numpy as np
import pytest

from indexing.collection import EngineDisagrees, Scored
from indexing.engine import Hit
from indexing.remote import dense
from indexing.remote.dense import nearest
from indexing.remote.engines import REPAIR_PAUSE_LIMIT_S, REPAIR_PAUSE_S, RemoteEngines
from tenancy.errors import Unavailable
from tests.conformance.columns import COLUMNS
from tests.conformance.place import EAST, Place

VECTOR = np.array([1.0, 0.0], dtype=np.float32)
Answer = Callable[[int, bool], list[Hit]]


class Scripted:
    """An engine of one answer; `asked` are (k, whether all points are to be compared)."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.asked: list[tuple[int, bool]] = []

    def nearest(
        self, physical: str, vector: object, labels: object, where: object, k: int, *, readable: int
    ) -> list[Hit]:
        self.asked.append((k, readable == 0))
        return self._answer(k, readable == 0)


def ask(engine: Scripted, k: int, readable: int, unreadable: frozenset[int] = frozenset()) -> list[Scored]:
    return nearest(
        engine, "c", VECTOR, frozenset({1}), None, k,  # type: ignore[arg-type]
        readable=readable, is_readable=lambda ids: ~np.isin(ids, list(unreadable)),
    )  # fmt: skip


def test_where_the_graph_finds_too_few_all_points_are_compared() -> None:
    hits = [Hit(number, float(-number)) for number in range(1, 9)]
    engine = Scripted(lambda k, exact: hits[:k] if exact else hits[:2])
    assert ask(engine, 4, 8) == [Scored(*hit) for hit in hits[:4]]
    assert engine.asked == [(5, False), (5, True)]


def test_too_few_of_all_is_a_disagreement() -> None:
    engine = Scripted(lambda k, exact: [Hit(1, 1.0)])
    with pytest.raises(EngineDisagrees) as caught:
        ask(engine, 4, 3)
    assert caught.value.chunk_ids == ()


def test_an_unreadable_or_repeated_chunk_is_a_disagreement() -> None:
    with pytest.raises(EngineDisagrees) as caught:
        ask(Scripted(lambda k, exact: [Hit(1, 1.0), Hit(2, 0.5)]), 2, 2, frozenset({2}))
    assert caught.value.chunk_ids == (2,)
    with pytest.raises(EngineDisagrees, match="twice"):
        ask(Scripted(lambda k, exact: [Hit(1, 1.0), Hit(1, 1.0)]), 2, 2)


@pytest.mark.parametrize("wrong", [Hit(2, float("nan")), Hit(2, float("inf")), Hit(2**70, 0.5), Hit(-(2**63), 0.5)])
def test_an_id_or_a_score_that_is_none_is_a_disagreement(wrong: Hit) -> None:
    with pytest.raises(EngineDisagrees, match="is none"):
        ask(Scripted(lambda k, exact: [Hit(1, 1.0), wrong]), 2, 2)


def test_nothing_readable_asks_nobody() -> None:
    engine = Scripted(lambda k, exact: [Hit(1, 1.0)])
    assert ask(engine, 5, 0) == []
    assert engine.asked == []


def test_ties_beyond_all_measure_are_left_to_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense, "MOST_ASKED", 40)
    engine = Scripted(lambda k, exact: [Hit(number, 1.0) for number in range(k, 0, -1)])
    assert [found.chunk_id for found in ask(engine, 3, 1000)] == [1, 2, 3]
    assert [k for k, _ in engine.asked] == [4, 16, 40]
    engine.asked.clear()
    assert len(ask(engine, 100, 1000)) == 100
    assert [k for k, _ in engine.asked] == [101]


def test_a_repair_that_does_not_help_is_tried_ever_more_rarely(tmp_path: object) -> None:
    now = [0.0]
    with Place(COLUMNS["qdrant-edge"], tmp_path) as place:  # type: ignore[arg-type]
        place.shelf.put("a", "word", vectors=[EAST], allow=["tenant"])
        place.settle()
        remote = RemoteEngines(place.engines, clock=lambda: now[0])
        found = EngineDisagrees("wrong", item=place.collection().physical)
        repaired = []
        for _ in range(300):
            now[0] += 30.0
            written = place.engine.calls.count("put")
            with suppress(Unavailable):
                remote.repair(place.acme.handle, found)
            if place.engine.calls.count("put") > written:
                repaired.append(now[0])
        pauses = np.diff(repaired)
        assert pauses[:3].tolist() == [REPAIR_PAUSE_S, 2 * REPAIR_PAUSE_S, 4 * REPAIR_PAUSE_S]
        assert pauses.max() <= REPAIR_PAUSE_LIMIT_S
        with pytest.raises(Unavailable) as caught:
            remote.repair(place.acme.handle, found)
        assert caught.value.remedy
        remote.repair(place.acme.handle, EngineDisagrees("of another collection", item="c_other"))
