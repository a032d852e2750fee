"""A document that is deleted is deleted everywhere: also in a collection that is kept to go back to, or half built."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from indexing.documents import delete_document
from indexing.engine import Engine
from indexing.engines.qdrant import QdrantEngine
from indexing.remote import elsewhere
from tenancy.contract import Contract
from tenancy.errors import Unavailable
from tests.indexing.test_moving import OTHER, TEXTS, Killed, World, world

__all__ = ["world"]


class Flaky:
    """An engine that refuses to take points away while `away`."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.away = False
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    def prune(self, physical: str, document_ids: Sequence[int], keep: Sequence[int]) -> None:
        self.calls += 1
        if self.away:
            raise Unavailable("away", item="qdrant")
        self.engine.prune(physical, document_ids, keep)


def held(world: World, state: str) -> set[int]:
    (found,) = [row for row in world.collections() if row.state == state and row.engine == "qdrant"]
    return {number for piece in world.qdrant.chunk_ids(found.physical) for number in piece}


def settled(world: World, name: str) -> None:
    delete_document(world.tenant, name, 0.0)
    assert world.path.path.collections.behind(world.tenant) is not None
    world.path.path.collections.settle(world.tenant)
    assert world.path.path.collections.behind(world.tenant) is None


def test_what_is_deleted_leaves_the_collection_that_is_kept(world: World) -> None:
    world.move("qdrant")
    world.mover().rollback(world.tenant)
    assert len(held(world, "previous")) == len(TEXTS)
    settled(world, "salary")
    assert len(held(world, "previous")) == len(TEXTS) - 1
    # A replaced document's older version goes; the newer one is not put there.
    world.put("travel", "Travel by air is not paid at all.")
    assert len(held(world, "previous")) == len(TEXTS) - 2
    world.mover().rollback(world.tenant)
    assert world.serving().engine == "qdrant"
    assert set(world.found(TEXTS["salary"])) == {"leave", "travel"}
    assert set(world.found("Travel by air")) == {"leave", "travel"}


def test_what_is_deleted_leaves_one_that_is_half_built(world: World) -> None:
    with pytest.raises(Killed):
        world.mover("caught up").build(world.tenant, "qdrant", OTHER)
    assert len(held(world, "building")) == len(TEXTS)
    settled(world, "salary")
    assert len(held(world, "building")) == len(TEXTS) - 1


def test_where_the_list_of_changes_does_not_reach_back_all_ids_are_compared(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.move("qdrant")
    world.mover().rollback(world.tenant)
    monkeypatch.setattr("tenancy.tenant.CHANGES_KEPT", 1)
    for name in ("salary", "travel"):
        delete_document(world.tenant, name, 0.0)
    world.path.path.collections.settle(world.tenant)
    assert len(held(world, "previous")) == 1


def test_an_engine_that_is_away_holds_up_no_write_and_is_cleared_later(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.move("qdrant")
    world.mover().rollback(world.tenant)
    flaky: Any = Flaky(world.qdrant)
    world.qdrant = flaky
    world.engines._connected["qdrant"] = flaky
    flaky.away = True
    settled(world, "salary")
    settled_again = flaky.calls
    world.put("travel", "Travel by air is not paid at all.")
    assert flaky.calls == settled_again == 1
    assert len(held(world, "previous")) == len(TEXTS)
    flaky.away = False
    monkeypatch.setattr(elsewhere, "PAUSE_S", 0.0)
    world.path.path.collections.settle(world.tenant)
    assert len(held(world, "previous")) == len(TEXTS) - 2


def test_a_tenant_that_moved_to_an_engine_of_its_own_can_drop_the_shared_one(world: World) -> None:
    world.move("qdrant")
    world.engines.dedicated["own"] = world.tenant.name
    own = QdrantEngine.local("own")
    world.engines._connect["own"] = lambda: own
    world.mover().confirm(world.tenant)
    world.move("own")
    world.tenant.contract = Contract(tier="dedicated", engine="own")
    with pytest.raises(Unavailable, match="engine of its own"):
        world.mover().rollback(world.tenant)
    previous = next(row.physical for row in world.collections() if row.state == "previous")
    world.mover().confirm(world.tenant)
    assert previous not in world.qdrant.collections()
