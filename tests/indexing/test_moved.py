"""Files that were renamed, moved, touched or reordered: the same documents, with the access lists of where they lie."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from indexing import documents
from indexing.acl_rules import Decision
from indexing.batch import ingest_paths
from indexing.embed import EmbeddingSettings, Vectors, load_embedder
from indexing.embedders.hashing import HashingEmbedder
from indexing.ingest import Pipeline
from indexing.outcome import Outcome
from indexing.walk import Found
from tenancy.acl import AccessList
from tenancy.contract import Contract
from tenancy.schema import chunks, vectors, versions
from tests.support.outcomes import word
from tests.support.path import open_path
from tests.support.people import NOW, Company

PIPELINE = Pipeline(load_embedder(EmbeddingSettings(model="hashing:64")), clock=lambda: NOW)


def by_folder(entry: Found) -> Decision:
    return Decision(AccessList.of([f"group:{entry.lies.partition('/')[0]}"]), by="test")


def run(company: Company, *paths: Path, **more: Any) -> list[Outcome]:
    options = {"decide": by_folder, "still_open": lambda: None, **more}
    return list(ingest_paths(company.handle, PIPELINE, paths, **options))


def words(outcomes: Sequence[Outcome]) -> list[tuple[str, str]]:
    return [(outcome.document, word(outcome)) for outcome in outcomes]


def rows(company: Company) -> dict[str, tuple[int, list[int], list[bytes]]]:
    """Each document's id, the ids of its chunks, and their vectors."""
    with company.handle.reading() as view:
        found: dict[str, tuple[int, list[int], list[bytes]]] = {}
        for record in documents.list_documents(company.handle):
            stored = documents.find_stored(view, record.name)
            assert stored is not None
            query = select(chunks.c.id, vectors.c.vector).join(vectors).where(chunks.c.document_id == stored.id)
            mine = view.execute(query.order_by(chunks.c.ordinal)).all()
            found[record.name] = (stored.id, [row.id for row in mine], [row.vector for row in mine])
        return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "share"
    for name in ("hr/pay.md", "hr/leave.md", "open/lunch.md"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"# {name}\n\n" + f"All about {name}. " * 200)
    return root


@pytest.fixture
def embedded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    texts: list[str] = []
    encode = HashingEmbedder.encode

    def noted(self: HashingEmbedder, given: Sequence[str]) -> Vectors:
        texts.extend(given)
        return encode(self, given)

    monkeypatch.setattr(HashingEmbedder, "encode", noted)
    return texts


def test_a_moved_file_keeps_its_document_under_the_list_of_its_new_place(
    acme: Company, folder: Path, embedded: list[str]
) -> None:
    run(acme, folder)
    before = rows(acme)
    embedded.clear()
    (folder / "hr" / "pay.md").rename(folder / "open" / "wages.md")
    moved = run(acme, folder)
    assert ("open/wages.md", "moved") in words(moved)
    assert [outcome.moved_from for outcome in moved if outcome.moved_from] == ["hr/pay.md"]
    after = rows(acme)
    assert after.keys() == {"hr/leave.md", "open/lunch.md", "open/wages.md"}
    assert after["open/wages.md"] == before["hr/pay.md"]
    assert embedded == []
    assert documents.show_document(acme.handle, "open/wages.md").access == AccessList.of(["group:open"])
    with acme.handle.reading() as view:
        row = view.execute(
            select(versions).where(versions.c.retired.is_(None) & (versions.c.document == "open/wages.md"))
        )
        assert row.one().document_id == before["hr/pay.md"][0]
    assert set(dict(words(run(acme, folder, prune=True))).values()) == {"unchanged"}


def test_a_file_that_moved_is_found_by_the_metadata_of_its_new_place(
    acme: Company, folder: Path, embedded: list[str]
) -> None:
    acme.tenants.set_contract("acme", Contract(metadata={"team": "string"}))

    def described(entry: Found) -> Decision:
        return Decision(AccessList.of(["tenant"]), by="test", metadata={"team": entry.lies.partition("/")[0]})

    with open_path(acme.tenants) as path:
        pipeline, ana = Pipeline(path.embedder, clock=lambda: NOW), acme.principal("ana")

        def ingested() -> list[tuple[str, str]]:
            return words(list(ingest_paths(acme.handle, pipeline, [folder], described, lambda: None)))

        def found(team: str) -> set[str]:
            where = {"field": "team", "eq": team}
            return {one.document for one in path.retrieve(ana, "All about lunch", filter=where, top_k=50).passages}

        ingested()
        before = rows(acme)
        assert found("hr") == {"hr/pay.md", "hr/leave.md"}
        embedded.clear()
        (folder / "hr" / "pay.md").rename(folder / "open" / "wages.md")
        assert ("open/wages.md", "moved") in ingested()
        assert embedded == []
        assert rows(acme)["open/wages.md"][::2] == before["hr/pay.md"][::2]
        assert found("open") == {"open/lunch.md", "open/wages.md"}
        assert found("hr") == {"hr/leave.md"}


def test_a_copy_is_a_document_of_its_own(acme: Company, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # What is read ahead is known to be there; the original is further away.
    monkeypatch.setattr("indexing.run._AHEAD_FILES", 1)
    run(acme, folder)
    # One is met before the original, one after it.
    for name in ("hr/a copy.md", "open/copy.md"):
        (folder / name).write_bytes((folder / "hr" / "pay.md").read_bytes())
    found = words(run(acme, folder))
    assert {("hr/a copy.md", "added"), ("open/copy.md", "added"), ("hr/pay.md", "unchanged")} <= set(found)
    assert {"hr/a copy.md", "hr/pay.md", "open/copy.md"} <= rows(acme).keys()


def test_a_file_that_moved_out_of_what_is_looked_at_is_no_move(acme: Company, folder: Path) -> None:
    """Whether the old place is empty is known only where the whole folder is ingested."""
    run(acme, folder)
    target = folder / "open" / "wages.md"
    (folder / "hr" / "pay.md").rename(target)
    assert words(run(acme, target)) == [("wages.md", "added")]
    assert "hr/pay.md" in rows(acme)


def test_a_moved_and_edited_file_is_another_document(acme: Company, folder: Path) -> None:
    run(acme, folder)
    (folder / "hr" / "pay.md").rename(folder / "open" / "wages.md")
    (folder / "open" / "wages.md").write_text("Other text.")
    found = words(run(acme, folder, prune=True))
    assert ("open/wages.md", "added") in found
    assert ("hr/pay.md", "removed") in found


def test_two_files_that_changed_places_are_two_updates(acme: Company, folder: Path) -> None:
    run(acme, folder)
    one, other = folder / "hr" / "pay.md", folder / "open" / "lunch.md"
    aside = folder / "aside"
    one.rename(aside)
    other.rename(one)
    aside.rename(other)
    assert words(run(acme, folder)) == [
        ("hr/leave.md", "unchanged"), ("hr/pay.md", "updated"), ("open/lunch.md", "updated"),
    ]  # fmt: skip
    assert documents.show_document(acme.handle, "hr/pay.md").access == AccessList.of(["group:hr"])


def test_rows_of_a_renamed_file_move_each_to_its_own_name(acme: Company, folder: Path, embedded: list[str]) -> None:
    lines = folder / "open" / "faq.jsonl"
    lines.write_text("".join(f'{{"id": "{n}", "text": "same text"}}\n' for n in "123"))
    run(acme, folder)
    before = rows(acme)
    embedded.clear()
    lines.rename(folder / "open" / "questions.jsonl")
    found = words(run(acme, folder, prune=True))
    assert [line for line in found if "jsonl" in line[0]] == [(f"open/questions.jsonl#{n}", "moved") for n in "123"]
    after = rows(acme)
    assert [after[f"open/questions.jsonl#{n}"] for n in "123"] == [before[f"open/faq.jsonl#{n}"] for n in "123"]
    assert embedded == []
    assert "open/faq.jsonl#1" not in after


def test_without_a_decision_a_moved_document_keeps_its_list(acme: Company, folder: Path) -> None:
    run(acme, folder)
    (folder / "hr" / "pay.md").rename(folder / "open" / "wages.md")
    run(acme, folder, decide=lambda _: None)
    assert documents.show_document(acme.handle, "open/wages.md").access == AccessList.of(["group:hr"])


def test_touched_and_found_in_another_order_nothing_changes(acme: Company, folder: Path) -> None:
    run(acme, folder)
    before = rows(acme)
    for path in folder.rglob("*.md"):
        os.utime(path, (1, 1))
    other = list(folder.rglob("*.md"))
    random.Random(3).shuffle(other)
    assert set(dict(words(run(acme, folder))).values()) == {"unchanged"}
    assert rows(acme) == before


def test_two_machines_that_load_the_same_folder_give_the_same_names_and_chunks(
    acme: Company, globex: Company, folder: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "other machine" / "mount"
    for path in sorted(folder.rglob("*.md"), reverse=True):
        target = elsewhere / path.relative_to(folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    run(acme, folder)
    run(globex, elsewhere)

    def keys(company: Company) -> list[Any]:
        with company.handle.reading() as view:
            return list(view.execute(select(chunks.c.key, chunks.c.text).order_by(chunks.c.key, chunks.c.text)).all())

    assert keys(acme) == keys(globex)
    assert rows(acme).keys() == rows(globex).keys()
    # The same tenant from the other machine: the same documents, which come from there now.
    before = rows(acme)
    assert set(dict(words(run(acme, elsewhere))).values()) == {"unchanged"}
    assert rows(acme) == before
