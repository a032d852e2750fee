"""Many small documents at one go: each is what it would be alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import select

from indexing import documents
from indexing.acl_rules import Decision
from indexing.batch import ingest_paths
from indexing.embed import EmbeddingSettings, load_embedder
from indexing.ingest import Pipeline, Source, embed, prepare, put_document, write
from indexing.parse import ParseFailure, ParseResult, parse
from indexing.terms import term_postings, unpack
from tenancy import schema
from tenancy.acl import AccessList, get_access_lists
from tenancy.tenant import TenantHandle
from tests.support.outcomes import word
from tests.support.people import NOW, Company

EMBEDDER = load_embedder(EmbeddingSettings(model="hashing:64"))
EVERYBODY = Decision(AccessList.of(["tenant"]), by="test")


def pipeline(**more: Any) -> Pipeline:
    return Pipeline(EMBEDDER, clock=lambda: NOW, **more)


class Parser:
    """Parses in this process, and notes what it was asked for."""

    def __init__(self, meanwhile: Any = lambda _names: None) -> None:
        self.asked: list[list[str]] = []
        self._meanwhile = meanwhile

    def one(self, _tenant: TenantHandle, name: str, content: Any, media_type: str | None) -> list[ParseResult]:
        self.asked.append([name])
        return parse(name, content if isinstance(content, bytes) else content.read(), media_type)

    def several(
        self, _tenant: TenantHandle, files: Sequence[tuple[str, bytes]]
    ) -> list[list[ParseResult] | ParseFailure]:
        names = [name for name, _ in files]
        self.asked.append(names)
        found: list[list[ParseResult] | ParseFailure] = []
        for name, content in files:
            try:
                found.append(parse(name, content))
            except ParseFailure as failure:
                found.append(failure)
        self._meanwhile(names)
        return found


def run(acme: Company, folder: Path, parser: Parser) -> dict[str, str]:
    used = pipeline(parse=parser.one, parse_all=parser.several)
    outcomes = ingest_paths(acme.handle, used, [folder], lambda _: EVERYBODY, lambda: None)
    return {outcome.document: word(outcome) for outcome in outcomes}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "share"
    root.mkdir()
    for number in range(20):
        (root / f"{number:02}.txt").write_text(f"number {number}")
    return root


def text_of(acme: Company, name: str) -> str:
    with acme.handle.reading() as view:
        stored = documents.find_stored(view, name)
        assert stored is not None
        query = select(schema.chunks.c.text).where(schema.chunks.c.document_id == stored.id)
        return str(view.execute(query).scalar_one())


@pytest.mark.both_storages
def test_each_of_many_new_documents_has_its_own_text_terms_vector_list_and_change(acme: Company) -> None:
    lines = "".join(f'{{"id": "{n}", "text": "word{n} again", "allow": ["user:u{n % 3}"]}}\n' for n in range(300))
    outcomes = write(
        acme.handle, pipeline(), embed(pipeline(), prepare(acme.handle, pipeline(), Source("a.jsonl", lines.encode())))
    )
    assert [word(outcome) for outcome in outcomes] == ["added"] * 300
    d, c, v = schema.documents.c, schema.chunks.c, schema.vectors.c
    query = select(d.id, d.name, c.text, c.terms, v.vector)
    query = query.select_from(schema.documents.join(schema.chunks).join(schema.vectors)).order_by(d.id)
    with acme.handle.reading() as view:
        rows = view.execute(query).all()
        lists = get_access_lists(view, [row.id for row in rows])
        changed = view.execute(select(schema.changes.c.document_id).order_by(schema.changes.c.seq)).scalars().all()
        recorded = view.execute(select(schema.versions.c.document, schema.versions.c.ordinal)).all()
        assert (view.epochs.corpus, view.epochs.changes) == (300, 300)
    assert [row.name for row in rows] == [outcome.document for outcome in outcomes]
    assert list(changed) == [row.id for row in rows]
    assert {tuple(row) for row in recorded} == {(row.name, 1) for row in rows}
    for number, row in enumerate(rows):
        assert row.text == f"word{number} again"
        assert np.array_equal(np.frombuffer(row.vector, dtype="<f4"), EMBEDDER.encode([row.text])[0])
        assert np.array_equal(unpack(row.terms).hashes, term_postings(row.text).hashes)
        assert lists[row.id] == AccessList.of([f"user:u{number % 3}"])


@pytest.mark.both_storages
def test_of_two_that_have_one_name_the_first_is_written(acme: Company) -> None:
    def draft(text: bytes) -> Any:
        return prepare(acme.handle, pipeline(), Source("a.txt", text, AccessList.of(["tenant"])))[0]

    drafts = [draft(b"first"), draft(b"second"), draft(b"first")]
    outcomes = write(acme.handle, pipeline(), embed(pipeline(), drafts))
    assert [word(outcome) for outcome in outcomes] == ["added", "failed", "unchanged"]
    assert text_of(acme, "a.txt") == "first"


def test_one_that_somebody_wrote_meanwhile_costs_the_others_nothing(acme: Company) -> None:
    drafts = [
        prepare(acme.handle, pipeline(), Source(name, b"ours", AccessList.of(["tenant"])))[0] for name in ("a", "b")
    ]
    put_document(acme.handle, pipeline(), Source("a", b"theirs", AccessList.of(["tenant"])))
    outcomes = write(acme.handle, pipeline(), embed(pipeline(), drafts))
    assert [word(outcome) for outcome in outcomes] == ["failed", "added"]
    assert (text_of(acme, "a"), text_of(acme, "b")) == ("theirs", "ours")


def test_small_files_are_parsed_together_and_what_did_not_change_is_not(acme: Company, folder: Path) -> None:
    (folder / "10.txt").write_bytes(b"")
    (folder / "99.txt").write_text("long " * 20_000)
    parser = Parser()
    found = run(acme, folder, parser)
    assert found == {f"{n:02}.txt": "empty" if n == 10 else "added" for n in [*range(20), 99]}
    assert sorted(map(len, parser.asked)) == [1, 4, 16]
    parser.asked.clear()
    (folder / "03.txt").write_text("number three")
    assert set(run(acme, folder, parser).values()) == {"unchanged", "updated", "empty"}
    assert sorted(name for names in parser.asked for name in names) == ["03.txt", "10.txt"]
    assert text_of(acme, "03.txt") == "number three"


def test_one_that_changes_while_others_are_parsed_is_read_again(acme: Company, folder: Path) -> None:
    def save(names: Sequence[str]) -> None:
        if "05.txt" in names:
            (folder / "05.txt").write_text("number five")

    parser = Parser(save)
    assert set(run(acme, folder, parser).values()) == {"added"}
    assert ["05.txt"] in parser.asked
    assert (text_of(acme, "05.txt"), text_of(acme, "06.txt")) == ("number five", "number 6")


def test_lists_of_more_documents_than_a_statement_takes(acme: Company, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenancy.acl._TOGETHER", 2)
    ids = [acme.document(f"d{number}", allow=[f"user:u{number}"]) for number in range(5)]
    with acme.handle.reading() as view:
        found = get_access_lists(view, [*ids, 10**6])
    assert found == {10**6: AccessList()} | {one: AccessList.of([f"user:u{n}"]) for n, one in enumerate(ids)}
