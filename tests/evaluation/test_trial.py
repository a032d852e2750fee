"""A change is tried on a tenant's own set: nothing that serves moves, and nobody's permissions widen."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from pathlib import Path as Folder

import pytest
from sqlalchemy import func, select

from evaluation.change import Change, check_change
from evaluation.running import Withdrawn
from evaluation.sets import Case
from evaluation.trial import Trial, Tried
from indexing.beside import fill
from indexing.chunk import Chunking
from indexing.ingest import Pipeline, Source, put_document
from indexing.parse import Parsed
from indexing.parse.building import Building
from tenancy import schema
from tenancy.acl import AccessList
from tenancy.contract import Contract
from tenancy.control import Tenants
from tenancy.errors import InvalidInput, StrongroomError
from tenancy.identity import Authenticator
from tests.support.path import Path, open_path
from tests.support.people import NOW, Company

SUBJECTS = ("notice", "travel", "pension", "parking", "overtime")
SMALL = "hashing:16"


@pytest.fixture
def path(tenants: Tenants, acme: Company) -> Iterator[Path]:
    for user in ("ana", "bo"):
        acme.principal(user)
    with open_path(tenants, also=(SMALL,)) as found:
        for number, subject in enumerate(SUBJECTS):
            text = f"The {subject} rule. Every person has {number + 11} units of {subject} in each calendar year."
            found.put(acme.handle, f"{subject}.md", text, "tenant")
        yield found


CASES = [
    *(Case(question=f"How many units of {one} in a year?", documents=(f"{one}.md",), asker="ana") for one in SUBJECTS),
    Case(question="Which ceiling is blue?", unanswerable=True, asker="ana"),
]


def change(**parts: object) -> Change:
    return check_change(parts, Folder())


Asks = Callable[[Change], Tried]


@pytest.fixture
def tried(path: Path, acme: Company, authenticator: Authenticator) -> Asks:
    def asks(one: Change) -> Tried:
        trial = Trial(path.path, lambda name: authenticator.operator("acme", name), one)
        return asyncio.run(trial.on(acme.handle, CASES))

    return asks


def _state(acme: Company) -> tuple[object, ...]:
    with acme.handle.reading() as view:
        counts = [
            view.execute(select(func.count()).select_from(table)).scalar_one() for table in schema.tenant.sorted_tables
        ]
        return (
            view.epochs,
            *counts,
            sorted(file.name for file in acme.handle.directory.glob("*.sqlite")),
        )


@pytest.mark.parametrize(
    "parts",
    [
        {
            "retrieval": {"threshold": 0.99},
            "template": {"name": "default", "system": "Answer in one word."},
            "generation": {"pools": ["default"]},
        },
        {"embedding": {"model": SMALL}},
        {"chunking": {"target_chars": 64, "overlap_chars": 0}},
    ],
    ids=lambda parts: next(iter(parts)),
)
def test_nothing_that_serves_moves_by_any_kind_of_trial(
    tried: Asks, path: Path, acme: Company, authenticator: Authenticator, parts: dict[str, object]
) -> None:
    ana = authenticator.operator("acme", "ana")
    answer = path.ask(ana, CASES[0].question)
    before, contract = _state(acme), acme.handle.contract
    found = tried(change(**parts))
    assert len(found.before) == len(found.after) == len(CASES)
    assert all(one.failed is None for one in found.after.values())
    assert _state(acme) == before
    assert acme.handle.contract == contract
    again = path.ask(ana, CASES[0].question)
    assert (again.cache.status, again.text) == ("hit", answer.text)


def test_a_threshold_that_declines_everything_is_worse(tried: Asks) -> None:
    found = tried(change(retrieval={"threshold": 1.0}))
    assert found.gate.verdict == "worse"
    assert found.gate.lost == len(SUBJECTS)
    assert all(one.declined for one in found.after.values())


def test_the_same_again_is_not_worse_as_far_as_the_set_can_tell(tried: Asks) -> None:
    found = tried(change(retrieval={"top_k": 8}))
    assert (found.gate.lost, found.gate.gained, found.gate.verdict) == (0, 0, "cannot tell")


@pytest.mark.both_storages
def test_another_model_is_really_searched(tried: Asks) -> None:
    """Sixteen dimensions hold little of these texts: the ranking of the dense leg changes."""
    dense = {"mode": "dense", "top_k": 1}
    found = tried(change(embedding={"model": SMALL}, retrieval=dense))
    assert found.gate.after < found.gate.before


def test_documents_are_really_cut_anew(tried: Asks, acme: Company, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    from evaluation import trial

    def counted(tenant: object, copy: object, *rest: object) -> object:
        as_of = original(tenant, copy, *rest)  # type: ignore[arg-type]
        with copy.reading() as view:  # type: ignore[attr-defined]
            seen.append(view.execute(select(func.count()).select_from(schema.chunks)).scalar_one())
        return as_of

    original = trial.fill
    monkeypatch.setattr(trial, "fill", counted)
    tried(change(chunking={"target_chars": 64, "overlap_chars": 0}))
    assert seen[0] == len(SUBJECTS)
    assert seen[1] > len(SUBJECTS)


def test_a_copy_gives_an_asker_no_more_than_the_tenant_does(
    path: Path, acme: Company, authenticator: Authenticator
) -> None:
    path.put(acme.handle, "salary.md", "The salary of the director is 90,000.", "user:bo")
    question = "What is the salary of the director?"
    cases = [Case(question=question, documents=("salary.md",), asker=user) for user in ("ana", "bo")]
    trial = Trial(path.path, lambda name: authenticator.operator("acme", name), change(embedding={"model": SMALL}))
    found = asyncio.run(trial.on(acme.handle, cases))
    assert [one.recall for one in found.after.values()] == [0.0, 1.0]


@pytest.mark.parametrize("withdrawal", ["access", "deletion"])
def test_what_is_withdrawn_meanwhile_ends_the_trial(
    path: Path, acme: Company, authenticator: Authenticator, withdrawal: str
) -> None:
    def told(name: str, done: int, of: int) -> None:
        if name == "asked after" and done == 2:
            if withdrawal == "access":
                acme.access("notice.md", allow=["user:bo"])
            else:
                from indexing.documents import delete_document

                delete_document(acme.handle, "notice.md", NOW)

    trial = Trial(path.path, lambda name: authenticator.operator("acme", name), change(embedding={"model": SMALL}))
    with pytest.raises(Withdrawn):
        asyncio.run(trial.on(acme.handle, CASES, told))
    assert not list(acme.handle.directory.glob("beside.*.sqlite*"))


def test_what_is_only_added_meanwhile_does_not(path: Path, acme: Company, authenticator: Authenticator) -> None:
    def told(name: str, done: int, of: int) -> None:
        if name == "asked after" and done == 2:
            path.put(acme.handle, "new.md", "A new rule.", "tenant")

    trial = Trial(path.path, lambda name: authenticator.operator("acme", name), change(embedding={"model": SMALL}))
    assert asyncio.run(trial.on(acme.handle, CASES, told)).gate.pairs == len(CASES)


def test_what_this_deployment_does_not_have_is_no_score(tried: Asks) -> None:
    with pytest.raises(InvalidInput, match="no such embedding model"):
        tried(change(embedding={"model": "hashing:32"}))


def test_a_copy_of_a_dead_process_is_removed_by_the_next(acme: Company) -> None:
    left = acme.handle.directory / "beside.dead.sqlite"
    left.write_bytes(random.Random(1).randbytes(64))
    with acme.handle.beside(Contract()) as copy, copy.reading() as view:
        assert not left.exists()
        assert view.execute(select(func.count()).select_from(schema.documents)).scalar_one() == 0
        with pytest.raises(StrongroomError), acme.handle.beside(Contract()):
            pass
    assert not list(acme.handle.directory.glob("beside.*.sqlite*"))


def test_what_is_hidden_stays_hidden_in_a_copy_that_is_cut_otherwise(path: Path, acme: Company) -> None:
    building = Building(10_000)
    building.add("# Notice\n\nThe notice period is three months.")
    building.add("# Veiled\n\n" + "The secret period is one day, say what you like. " * 60, hidden=True)
    building.add("Travel is paid by the firm.")
    parsed = Parsed(building.text(), "t", "text/plain", (), blocks=building.blocks(), places=building.places())
    source = Source("veiled.txt", building.text().encode(), AccessList.of(["tenant"]))
    put_document(acme.handle, Pipeline(path.embedder, parse=lambda *_: [parsed]), source)
    with acme.handle.beside(Contract()) as copy:
        fill(acme.handle, copy, path.embedder, Chunking(target_chars=300, overlap_chars=60), lambda *_: None)
        with copy.reading() as view:
            columns = schema.chunks.c
            rows = view.execute(select(columns.text, columns.hidden, columns.context)).all()
    assert {row.hidden for row in rows if "secret" in row.text or "Veiled" in row.text} == {True}
    assert {row.hidden for row in rows if "months" in row.text or "paid" in row.text} == {False}
    assert not [row for row in rows if not row.hidden and "Veiled" in (row.context or "")]
    assert [row.context for row in rows if "paid" in row.text] == ["Notice"], "headings that are seen still count"
