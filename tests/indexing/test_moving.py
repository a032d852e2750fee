"""Moving a tenant: killed between any two steps, exactly one collection serves and questions are answered."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path as FilePath

import numpy as np
import pytest
from sqlalchemy import func, select

from indexing.catalogue import EMBEDDED, Collection, all_collections, serving
from indexing.comparing import sampled
from indexing.documents import change_access, delete_document
from indexing.embed import EmbeddingSettings
from indexing.embedding import Embedders
from indexing.engine import Engine, Hit
from indexing.engines.qdrant import QdrantEngine
from indexing.engines.registry import Engines
from indexing.ingest import Pipeline, Source, at_present, embed, prepare, write
from indexing.moving import Mover
from tenancy.acl import AccessList
from tenancy.contract import Contract
from tenancy.control import Tenants
from tenancy.errors import Conflict, InvalidInput, ModelMismatch, Unavailable
from tenancy.identity import Authenticator, Principal
from tenancy.keys import MasterKey
from tenancy.schema import models, vectors
from tests.support.path import Path
from tests.support.people import Company

OTHER = "hashing:64"
TEXTS = {
    "leave": "Annual leave is thirty days a year for everybody.",
    "travel": "Travel by train is paid in second class.",
    "salary": "Salaries are paid on the last working day of the month.",
}


class Killed(BaseException):
    """As if the process ended here: nothing below it cleans up but the database's own rollback."""


class World:
    """One company with a few documents, an engine beside FAISS, and two embedding models."""

    def __init__(self, company: Company) -> None:
        self.company = company
        self.tenant = company.handle
        self.qdrant: Engine = QdrantEngine.local("qdrant")
        self.engines = Engines({"qdrant": lambda: self.qdrant})
        self.path = Path(company.tenants, engines=self.engines, also=(OTHER,))
        self.pipeline = Pipeline(self.path.embedder, embedder_of=self.path.embedders.of)
        self.ana = company.principal("ana")
        for name, text in TEXTS.items():
            self.put(name, text)

    def put(self, name: str, text: str, *allow: str) -> None:
        source = Source(name, text.encode(), AccessList.of(allow or ["tenant"]), media_type="text/plain")
        pipeline = at_present(self.tenant, self.pipeline)
        (outcome,) = write(self.tenant, pipeline, embed(pipeline, prepare(self.tenant, pipeline, source)))
        assert outcome.error is None, outcome
        self.path.path.collections.settle(self.tenant)

    def mover(self, at: str | None = None, nth: int = 1) -> Mover:
        """A mover; with `at`, one that is killed when it reaches this step for the `nth` time."""
        reached = iter(range(1, 10_000))

        def step(name: str, done: int, of: int) -> None:
            if name == at and next(reached) == nth:
                raise Killed(name)

        return Mover(self.engines, self.path.embedders, step)

    def collections(self) -> list[Collection]:
        with self.tenant.reading() as view:
            return all_collections(view)

    def serving(self) -> Collection:
        with self.tenant.reading() as view:
            found = serving(view)
        assert found is not None
        return found

    def found(self, query: str, principal: Principal | None = None, mode: str = "dense") -> list[str]:
        retrieved = self.path.retrieve(principal or self.ana, query, mode=mode)
        return [passage.document for passage in retrieved.passages]

    def check(self) -> None:
        """Exactly one collection serves, and every document is found by its own words."""
        assert [row.state for row in self.collections()].count("serving") == 1
        for name, text in TEXTS.items():
            assert self.found(text)[0] == name
            assert set(self.found(text)) == set(TEXTS)

    def move(self, engine: str, spec: str | None = None) -> None:
        mover = self.mover()
        mover.build(self.tenant, engine, spec)
        compared = mover.compare(self.tenant)
        assert compared.failure(1.0) is None
        mover.switch(self.tenant)


@pytest.fixture
def world(acme: Company) -> Iterator[World]:
    made = World(acme)
    yield made
    made.path.close()
    made.engines.close()


@pytest.mark.parametrize(("engine", "spec"), [("qdrant", None), (EMBEDDED, OTHER), ("qdrant", OTHER)])
def test_a_tenant_moves_and_comes_back(world: World, engine: str, spec: str | None) -> None:
    first = world.serving()
    world.move(engine, spec)
    moved = world.serving()
    assert (moved.engine, moved.model.spec) == (engine, spec or "hashing:256")
    world.check()
    assert world.mover().rollback(world.tenant).id == first.id
    world.check()
    assert world.serving().physical == first.physical
    # The other one is now what can be confirmed away.
    world.mover().confirm(world.tenant)
    assert [row.id for row in world.collections()] == [first.id]
    assert list(world.qdrant.collections()) == []
    world.check()


MOVES = {
    ("qdrant", OTHER): "begun embedded copied built compared filled switching switched",
    (EMBEDDED, OTHER): "begun embedded built compared filled switching switched",
    ("qdrant", None): "begun copied built compared filled switching switched",
}


@pytest.mark.slow
@pytest.mark.parametrize(("move", "step"), [(move, step) for move, steps in MOVES.items() for step in steps.split()])
def test_killed_at_any_step_one_collection_serves_and_the_next_try_goes_on(
    world: World, move: tuple[str, str | None], step: str
) -> None:
    first, mortal = world.serving(), world.mover(step)

    def moved() -> None:
        mortal.build(world.tenant, *move)
        mortal.compare(world.tenant)
        mortal.switch(world.tenant)

    with pytest.raises(Killed):
        moved()
    world.check()
    assert (world.serving().id == first.id) == (step != "switched")
    world.put("late", "Parking spaces are assigned by lot.")
    if step != "switched":
        world.move(*move)
    assert world.serving().id != first.id
    assert set(world.found("parking")) == {*TEXTS, "late"}
    assert len(world.collections()) == 2


@pytest.mark.parametrize("step", ["dropped", "forgotten"])
@pytest.mark.parametrize("what", ["confirm", "abort"])
def test_killed_while_the_old_one_is_dropped_it_is_dropped_by_the_next_try(world: World, step: str, what: str) -> None:
    if what == "confirm":
        world.move("qdrant", OTHER)
        world.mover().rollback(world.tenant)
    else:
        world.mover().build(world.tenant, "qdrant", OTHER)
    with pytest.raises(Killed):
        getattr(world.mover(step), what)(world.tenant)
    world.check()
    if step == "dropped":
        getattr(world.mover(), what)(world.tenant)
    assert len(world.collections()) == 1
    assert list(world.qdrant.collections()) == []
    with world.tenant.reading() as view:
        assert view.execute(select(models.c.spec)).scalars().all() == ["hashing:256"]
        assert view.execute(select(func.count()).select_from(vectors)).scalar_one() == len(TEXTS)


@pytest.mark.parametrize("step", ["begun", "embedded", "copied", "built", "compared", "filled", "switched"])
def test_documents_and_revocations_during_a_move_hold(world: World, step: str) -> None:
    """Whatever happens between two steps holds at once, and when the new collection serves."""
    bo = world.company.principal("bo")
    done: list[str] = []

    def meanwhile(name: str, _done: int, _of: int) -> None:
        if name != step or done:
            return
        done.append(name)
        world.put("late", "Parking spaces are assigned by lot.")
        change_access(world.tenant, "salary", AccessList.of(["user:bo"]), 1.0)
        delete_document(world.tenant, "travel", 1.0)
        assert "salary" not in world.found("salaries")
        assert "salary" in world.found("salaries", bo)

    mover = replace(world.mover(), step=meanwhile)
    mover.build(world.tenant, "qdrant", OTHER)
    assert mover.compare(world.tenant).failure(1.0) is None
    mover.switch(world.tenant)
    assert done == [step]
    assert set(world.found("parking salaries train")) == {"leave", "late"}
    assert set(world.found("parking salaries train", bo)) == {"leave", "late", "salary"}


def test_going_back_after_new_documents_finds_them_all(world: World) -> None:
    world.move("qdrant", OTHER)
    world.put("late", "Parking spaces are assigned by lot.")
    world.put("leave", "Annual leave is now forty days.")
    delete_document(world.tenant, "travel", 1.0)
    world.mover().rollback(world.tenant)
    assert world.serving().engine == EMBEDDED
    assert set(world.found("parking leave")) == {"late", "leave", "salary"}
    assert "forty" in world.path.retrieve(world.ana, "annual leave").passages[0].text
    # And forward again, by the same way.
    world.put("later", "The canteen opens at noon.")
    world.mover().rollback(world.tenant)
    assert world.serving().engine == "qdrant"
    assert set(world.found("parking leave")) == {"late", "later", "leave", "salary"}


def test_answers_of_before_are_not_served_after_a_change_of_model(world: World) -> None:
    question = "How many days of annual leave are there?"
    assert world.path.ask(world.ana, question).cache.status == "miss"
    assert world.path.ask(world.ana, question).cache.status == "hit"
    epoch = _corpus(world)
    world.move(EMBEDDED, OTHER)
    assert _corpus(world) == epoch + 1
    assert world.path.ask(world.ana, question).cache.status == "miss"


def test_documents_prepared_before_the_switch_are_embedded_again_behind_it(world: World) -> None:
    source = Source("late", b"Parking spaces are assigned by lot.", AccessList.of(["tenant"]), media_type="text/plain")
    embedded = embed(world.pipeline, prepare(world.tenant, world.pipeline, source))
    world.move(EMBEDDED, OTHER)
    (outcome,) = write(world.tenant, world.pipeline, embedded)
    assert outcome.error is None
    assert set(world.found("parking")) == {*TEXTS, "late"}


def test_a_question_between_two_models_is_embedded_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tenant moves after the question was embedded: never a vector of one model among those of the other."""
    encode = world.path.embedder.encode_query
    asked: list[str] = []

    def moving(text: str) -> np.ndarray:
        if not asked:
            asked.append(text)
            world.move(EMBEDDED, OTHER)
        return encode(text)

    monkeypatch.setattr(world.path.embedder, "encode_query", moving)
    assert world.found(TEXTS["leave"])[0] == "leave"
    assert asked
    assert world.serving().model.spec == OTHER


class Wrong:
    """An engine that leaves out a point, or finds the wrong ones."""

    def __init__(self, inner: Engine, *, hides: bool = False, worst: bool = False) -> None:
        self._inner, self._hides, self._worst = inner, hides, worst

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def chunk_ids(self, physical: str) -> Iterator[list[int]]:
        for piece in self._inner.chunk_ids(physical):
            yield list(piece)[1:] if self._hides else list(piece)

    def nearest(self, physical, vector, labels, where, k, *, readable) -> list[Hit]:  # type: ignore[no-untyped-def]
        hits = self._inner.nearest(physical, vector, labels, where, k, readable=readable)
        return hits[len(hits) // 2 :] if self._worst else hits


@pytest.mark.parametrize(("fault", "reason"), [("hides", "missing"), ("worst", "of the best")])
def test_a_failed_comparison_leaves_the_old_one_serving(world: World, fault: str, reason: str) -> None:
    world.qdrant = Wrong(world.qdrant, **{fault: True})  # type: ignore[assignment]
    first = world.serving()
    world.mover().build(world.tenant, "qdrant")
    compared = world.mover().compare(world.tenant)
    assert reason in (compared.failure(1.0) or "")
    assert world.serving().id == first.id
    world.check()
    world.mover().abort(world.tenant)
    assert world.collections() == [first]


def test_the_comparison_counts_and_asks(world: World) -> None:
    world.mover().build(world.tenant, "qdrant", OTHER)
    compared = world.mover().compare(world.tenant, ["annual leave", "train"])
    assert (compared.chunks, compared.missing, compared.surplus, compared.questions) == (3, 0, 0, 2)
    assert compared.overlap == 1.0
    assert compared.agreement == 1.0
    assert not compared.same_model
    with world.tenant.reading() as view:
        assert len(sampled(view)) == 3


def test_one_move_at_a_time_and_none_to_where_it_is(world: World) -> None:
    mover = world.mover()
    with pytest.raises(Conflict, match="already"):
        mover.build(world.tenant, EMBEDDED)
    with pytest.raises(InvalidInput):
        mover.build(world.tenant, EMBEDDED, "hashing:128")
    with pytest.raises(Unavailable, match="does not have"):
        mover.build(world.tenant, "elsewhere")
    for step in (mover.compare, mover.switch, mover.abort, mover.confirm, mover.rollback):
        with pytest.raises(Conflict):
            step(world.tenant)
    mover.build(world.tenant, "qdrant")
    with pytest.raises(Conflict, match="another move"):
        mover.build(world.tenant, EMBEDDED, OTHER)
    mover.switch(world.tenant)
    with pytest.raises(Conflict, match="not been ended"):
        mover.build(world.tenant, EMBEDDED, OTHER)
    with world.tenant.exclusive("move"), pytest.raises(Unavailable):
        mover.confirm(world.tenant)


def test_a_move_to_an_engine_that_is_away_can_be_given_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> None:
        raise Unavailable("the engine is away", item="qdrant")

    left: list[str] = []
    monkeypatch.setattr(world.qdrant, "create", away)
    monkeypatch.setattr(world.qdrant, "drop", away)
    mover = Mover(world.engines, world.path.embedders)
    with pytest.raises(Unavailable):
        mover.build(world.tenant, "qdrant")
    with pytest.raises(Unavailable):
        mover.abort(world.tenant)
    mover = Mover(world.engines, world.path.embedders, leave=lambda _, gone: left.append(gone.physical))
    assert left == [mover.abort(world.tenant).physical]
    mover.build(world.tenant, EMBEDDED, OTHER)
    mover.switch(world.tenant)
    assert world.path.retrieve(world.ana, "leave").passages


def test_an_engine_for_another_tenant_alone_is_never_used(world: World) -> None:
    theirs = Engines({"qdrant": lambda: world.qdrant}, dedicated={"qdrant": "globex"})
    with pytest.raises(Unavailable, match="another tenant"):
        Mover(theirs, world.path.embedders).build(world.tenant, "qdrant")
    world.move("qdrant")
    # A row that names it all the same, as after a change of the settings: nothing is asked of it.
    other = Path(world.company.tenants, engines=theirs, also=(OTHER,))
    try:
        with pytest.raises(Unavailable, match="another tenant"):
            other.retrieve(world.ana, "leave")
    finally:
        other.close()


def test_a_tenant_that_was_promised_its_own_engine_is_served_at_no_other(world: World) -> None:
    world.company.tenants.set_contract("acme", Contract(tier="dedicated", engine="qdrant"))
    with pytest.raises(Unavailable, match="promises"):
        world.path.retrieve(world.ana, "leave")
    own = Engines({"qdrant": lambda: world.qdrant}, dedicated={"qdrant": "acme"})
    Mover(own, world.path.embedders).build(world.tenant, "qdrant")
    Mover(own, world.path.embedders).switch(world.tenant)
    path = Path(world.company.tenants, engines=own)
    try:
        assert path.retrieve(world.ana, TEXTS["leave"]).passages
    finally:
        path.close()


def test_without_the_old_model_there_is_no_way_back_until_it_is_configured(world: World) -> None:
    world.move(EMBEDDED, OTHER)
    world.put("late", "Parking spaces are assigned by lot.")
    without = Embedders(EmbeddingSettings(model=OTHER))
    with pytest.raises(ModelMismatch, match="not configured"):
        Mover(world.engines, without).rollback(world.tenant)
    assert set(world.found("parking")) == {*TEXTS, "late"}


@pytest.mark.slow
@pytest.mark.parametrize("step", ["embedded", "built", "switching", "switched"])
def test_kill_9_between_two_steps(tmp_path: FilePath, step: str) -> None:
    """A real process that dies at the step; another one finds one serving collection and finishes the move."""
    master = MasterKey(bytes(range(32)))
    tenants = Tenants(tmp_path, master)
    world = World(Company(tenants, Authenticator(tenants), "acme"))
    world.path.close()
    tenants.close()
    child = os.fork()
    if child == 0:
        try:
            inner = Tenants(tmp_path, master)
            tenant = inner.open(Authenticator(inner).operator("acme"))

            def die(name: str, _done: int, _of: int) -> None:
                if name == step:
                    os.kill(os.getpid(), signal.SIGKILL)

            mover = Mover(world.engines, world.path.embedders, die)
            mover.build(tenant, EMBEDDED, OTHER)
            mover.switch(tenant)
        finally:
            os._exit(3)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    again = Tenants(tmp_path, master)
    tenant = again.open(Authenticator(again).operator("acme"))
    with tenant.reading() as view:
        states = [row.state for row in all_collections(view)]
        assert states.count("serving") == 1
        assert (states == ["previous", "serving"]) == (step == "switched")
    if step != "switched":
        mover = Mover(world.engines, world.path.embedders)
        mover.build(tenant, EMBEDDED, OTHER)
        mover.switch(tenant)
    path = Path(again, also=(OTHER,))
    ana = Authenticator(again).operator("acme", "ana")
    assert len(path.retrieve(ana, TEXTS["leave"]).passages) == 3
    path.close()
    again.close()


def _corpus(world: World) -> int:
    with world.tenant.reading() as view:
        return view.epochs.corpus
