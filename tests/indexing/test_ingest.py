"""One document, top to bottom."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
from sqlalchemy import func, select

from generation.links import links_in
from indexing import documents, model
from indexing import pipeline as pipeline_module
from indexing.chunk import Chunking
from indexing.embed import Embedder, EmbeddingSettings, Vectors, load_embedder
from indexing.ingest import Pipeline, Source, put_document
from indexing.outcome import Status
from indexing.parse import ParseFailure
from indexing.terms import TERMS_REVISION, term_postings, unpack
from tenancy.acl import AccessList
from tenancy.errors import Conflict, InvalidInput, ModelMismatch, NotFound, Unavailable
from tenancy.schema import changes, chunks, vectors, versions
from tenancy.tenant import Epochs
from tests.support.outcomes import word
from tests.support.people import NOW, Company

pytestmark = pytest.mark.both_storages

EVERYBODY = AccessList.of(["tenant"])


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    return load_embedder(EmbeddingSettings(model="hashing:64"))


@pytest.fixture
def pipeline(embedder: Embedder) -> Pipeline:
    return Pipeline(embedder, clock=lambda: NOW)


class Spy:
    """The hashing embedder, counting texts, and doing something else between embedding and writing."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self.spec = embedder.spec
        self.fingerprint = embedder.fingerprint
        self.texts: list[str] = []
        self.batch: Sequence[str] = ()
        self.meanwhile = lambda: None

    def encode(self, texts: Sequence[str]) -> Vectors:
        self.texts += texts
        self.batch = texts
        vectors = self._embedder.encode(texts)
        self.meanwhile()
        return vectors

    def encode_query(self, text: str) -> Vectors:
        return self._embedder.encode_query(text)

    def token_count(self, text: str) -> int:
        return self._embedder.token_count(text)

    def token_starts(self, text: str) -> npt.NDArray[np.int64] | None:
        return self._embedder.token_starts(text)

    def question_length(self, text: str) -> int:
        return self._embedder.question_length(text)

    def covers(self, text: str) -> float:
        return self._embedder.covers(text)


def put(company: Company, pipeline: Pipeline, name: str, text: str | bytes, **more: object) -> list[tuple[str, str]]:
    data = text.encode() if isinstance(text, str) else text
    outcomes = put_document(company.handle, pipeline, Source(name, data, **{"access": EVERYBODY, **more}))  # type: ignore[arg-type]
    return [(outcome.document, word(outcome)) for outcome in outcomes]


def epochs(company: Company) -> Epochs:
    with company.handle.reading() as view:
        return view.epochs


def test_a_document_is_written_with_vectors_terms_access_and_epochs(acme: Company, pipeline: Pipeline) -> None:
    before = epochs(acme)
    assert put(acme, pipeline, "notes/a.md", "# Leave\n\nTwenty days of leave.") == [("notes/a.md", "added")]
    shown = documents.show_document(acme.handle, "notes/a.md")
    assert shown.record.title == "Leave"
    assert shown.record.version.startswith("sha256:")
    assert shown.access == EVERYBODY
    with acme.handle.reading() as view:
        row = view.execute(select(chunks, vectors.c.vector).join(vectors)).one()
        assert view.epochs.corpus == before.corpus + 1
        assert view.execute(select(func.count()).select_from(changes)).scalar_one() == view.epochs.changes
    vector = np.frombuffer(row.vector, dtype="<f4")
    assert np.array_equal(vector, pipeline.embedder.encode([row.text])[0])
    assert np.array_equal(unpack(row.terms).hashes, term_postings(row.text).hashes)


def test_the_same_content_is_skipped_and_not_embedded(acme: Company, embedder: Embedder) -> None:
    spy = Spy(embedder)
    pipeline = Pipeline(spy)
    assert put(acme, pipeline, "a.txt", "apple")[0][1] == "added"
    before, embedded = epochs(acme), len(spy.texts)
    assert put(acme, pipeline, "a.txt", "apple")[0][1] == "unchanged"
    assert (epochs(acme), len(spy.texts)) == (before, embedded)
    assert put(acme, pipeline, "a.txt", "pear")[0][1] == "updated"
    assert len(spy.texts) == embedded + 1


def test_another_access_list_alone_touches_no_vector(acme: Company, embedder: Embedder) -> None:
    spy = Spy(embedder)
    pipeline = Pipeline(spy)
    put(acme, pipeline, "a.txt", "apple")
    with acme.handle.reading() as view:
        content = documents.find_stored(view, "a.txt")
    before = epochs(acme)
    assert put(acme, pipeline, "a.txt", "apple", access=AccessList.of(["user:ana"]))[0][1] == "acl_updated"
    assert len(spy.texts) == 1
    assert (epochs(acme).acl, epochs(acme).corpus) == (before.acl + 1, before.corpus)
    with acme.handle.reading() as view:
        now = documents.find_stored(view, "a.txt")
    assert content is not None
    assert now is not None
    assert now.first_chunk == content.first_chunk
    assert put(acme, pipeline, "a.txt", "apple", access=None)[0][1] == "unchanged"
    assert documents.show_document(acme.handle, "a.txt").access == AccessList.of(["user:ana"])


def test_a_new_document_without_an_access_list_is_read_by_nobody(acme: Company, pipeline: Pipeline) -> None:
    put(acme, pipeline, "a.txt", "apple", access=None)
    assert documents.show_document(acme.handle, "a.txt").access == AccessList()


def test_another_chunker_or_term_revision_makes_the_chunks_again(
    acme: Company, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "One sentence of words. " * 20
    put(acme, pipeline, "a.txt", text)
    put(acme, pipeline, "b.txt", text)
    narrow = Pipeline(pipeline.embedder, Chunking(target_chars=100, overlap_chars=0))
    assert put(acme, narrow, "a.txt", text)[0][1] == "updated"
    assert put(acme, narrow, "a.txt", text)[0][1] == "unchanged"
    assert put(acme, narrow, "b.txt", text)[0][1] == "updated"
    assert documents.show_document(acme.handle, "b.txt").chunks > 1
    monkeypatch.setattr(pipeline_module, "TERMS_REVISION", TERMS_REVISION + "+")
    assert put(acme, narrow, "b.txt", text)[0][1] == "updated"


def test_replacement_retires_the_version_and_all_its_chunks(acme: Company, pipeline: Pipeline) -> None:
    put(acme, pipeline, "a.txt", "apple " * 1000)
    old = documents.show_document(acme.handle, "a.txt")
    assert old.chunks > 1
    put(acme, pipeline, "a.txt", "pear")
    with acme.handle.reading() as view:
        assert view.execute(select(chunks.c.text)).scalars().all() == ["pear"]
        history = view.execute(select(versions.c.version, versions.c.chunks, versions.c.retired)).all()
    assert [(row.version, row.chunks, row.retired is None) for row in history] == [
        (old.record.version, old.chunks, False),
        (documents.show_document(acme.handle, "a.txt").record.version, 1, True),
    ]


def test_a_document_written_meanwhile_is_not_overwritten(acme: Company, embedder: Embedder) -> None:
    spy, plain = Spy(embedder), Pipeline(embedder)
    spy.meanwhile = lambda: put(acme, plain, "a.txt", "theirs") and None
    with pytest.raises(Conflict, match="meanwhile"):
        put(acme, Pipeline(spy), "a.txt", "mine")
    with acme.handle.reading() as view:
        assert view.execute(select(chunks.c.text)).scalars().all() == ["theirs"]
    spy.meanwhile = lambda: put(acme, plain, "b.txt", "the same") and None
    assert put(acme, Pipeline(spy), "b.txt", "the same")[0][1] == "unchanged"


def test_a_revocation_during_ingestion_stays(acme: Company, embedder: Embedder) -> None:
    spy = Spy(embedder)
    put(acme, Pipeline(spy), "a.txt", "one")
    spy.meanwhile = lambda: acme.access("a.txt", allow=["tenant"], deny=["user:bo"])
    put(acme, Pipeline(spy), "a.txt", "two", access=None)
    assert documents.show_document(acme.handle, "a.txt").access == AccessList.of(["tenant"], ["user:bo"])


def test_another_model_is_refused_before_anything_is_embedded(acme: Company, pipeline: Pipeline) -> None:
    put(acme, pipeline, "a.txt", "apple")
    spy = Spy(load_embedder(EmbeddingSettings(model="hashing:32")))
    with pytest.raises(ModelMismatch):
        put(acme, Pipeline(spy), "b.txt", "pear")
    assert spy.texts == []
    assert put(acme, pipeline, "b.txt", "pear")[0][1] == "added"


def line(identity: str, text: str, **more: object) -> str:
    return json.dumps({"id": identity, "text": text, **more}) + "\n"


def test_lines_are_documents_with_their_own_versions_and_lists(acme: Company, embedder: Embedder) -> None:
    spy = Spy(embedder)
    pipeline = Pipeline(spy)
    first = line("1", "apple") + line("2", "pear", allow=["user:ana"], title="Pears") + line("3", "plum")
    assert put(acme, pipeline, "f.jsonl", first) == [(f"f.jsonl#{n}", "added") for n in "123"]
    assert documents.show_document(acme.handle, "f.jsonl#2").access == AccessList.of(["user:ana"])
    assert documents.show_document(acme.handle, "f.jsonl#2").record.title == "Pears"
    # An answer shows titles, and takes out what looks like an address.
    title = documents.show_document(acme.handle, "f.jsonl#1").record.title
    assert (title, list(links_in(title)), list(links_in("f.jsonl#1")) != []) == ("f.jsonl 1", [], True)
    assert documents.show_document(acme.handle, "f.jsonl#1").access == EVERYBODY
    second = line("1", "apple") + line("2", "pears", allow=["user:ana"], title="Pears") + line("4", "fig")
    assert put(acme, pipeline, "f.jsonl", second) == [
        ("f.jsonl#1", "unchanged"),
        ("f.jsonl#2", "updated"),
        ("f.jsonl#4", "added"),
        ("f.jsonl#3", "removed"),
    ]
    assert spy.texts == ["apple", "pear", "plum", "pears", "fig"]


def test_a_bad_line_costs_the_others_nothing_and_removes_nothing(acme: Company, pipeline: Pipeline) -> None:
    put(acme, pipeline, "f.jsonl", line("1", "apple") + line("2", "pear"))
    found = put(acme, pipeline, "f.jsonl", line("1", "apples") + "{broken\n")
    assert found == [("f.jsonl#1", "updated"), ("f.jsonl#line-2", "corrupt")]
    assert documents.show_document(acme.handle, "f.jsonl#2").chunks == 1


def test_a_neighbour_whose_name_looks_like_a_child_stays(acme: Company, pipeline: Pipeline) -> None:
    put(acme, pipeline, "f.jsonl#9", "a file of that name")
    put(acme, pipeline, "f.jsonl", line("1", "apple"))
    put(acme, pipeline, "f.jsonl", line("2", "pear"))
    assert [record.name for record in documents.list_documents(acme.handle)] == ["f.jsonl#2", "f.jsonl#9"]
    assert documents.delete_document(acme.handle, "f.jsonl", NOW) == ["f.jsonl#2"]


def test_delete_removes_rows_and_traces_and_moves_the_epochs(acme: Company, pipeline: Pipeline, storage: str) -> None:
    put(acme, pipeline, "a.txt", "apple")
    put(acme, pipeline, "b.txt", "pear")
    before = epochs(acme)
    assert documents.delete_document(acme.handle, "a.txt", NOW) == ["a.txt"]
    assert epochs(acme).corpus == before.corpus + 1
    assert epochs(acme).kv == before.kv + 1
    with acme.handle.reading() as view:
        assert view.execute(select(chunks.c.text)).scalars().all() == ["pear"]
    if not storage:
        assert (acme.handle.directory / "tenant.sqlite-wal").stat().st_size == 0
    with pytest.raises(NotFound):
        documents.delete_document(acme.handle, "a.txt", NOW)
    with pytest.raises(NotFound):
        documents.show_document(acme.handle, "a.txt")


def test_a_list_goes_on_behind_a_name(acme: Company, pipeline: Pipeline) -> None:
    for name in ("c", "a", "b"):
        put(acme, pipeline, name, name)
    assert [record.name for record in documents.list_documents(acme.handle, limit=2)] == ["a", "b"]
    assert [record.name for record in documents.list_documents(acme.handle, after="b")] == ["c"]
    with pytest.raises(InvalidInput):
        documents.list_documents(acme.handle, limit=0)


@pytest.mark.parametrize(
    ("name", "data", "error"),
    [
        ("", b"x", InvalidInput),
        ("a\nb", b"x", InvalidInput),
        ("x" * 1001, b"x", InvalidInput),
        ("a.txt", b"", ParseFailure),
        ("a.txt", b"  \n ", ParseFailure),
        ("a.zip", b"PK\x03\x04", ParseFailure),
    ],
)
def test_a_bad_source_changes_nothing(
    acme: Company, pipeline: Pipeline, name: str, data: bytes, error: type[Exception]
) -> None:
    put(acme, pipeline, "kept.txt", "apple")
    before = epochs(acme)
    with pytest.raises(error):
        put(acme, pipeline, name, data)
    assert epochs(acme) == before
    assert [record.name for record in documents.list_documents(acme.handle)] == ["kept.txt"]


def test_only_the_document_that_cannot_be_embedded_fails(acme: Company, embedder: Embedder) -> None:
    spy = Spy(embedder)

    def fail() -> None:
        if "pear" in spy.batch:
            raise Unavailable("not finite")

    spy.meanwhile = fail
    found = put(acme, Pipeline(spy), "f.jsonl", line("1", "apple") + line("2", "pear"))
    assert found == [("f.jsonl#1", "added"), ("f.jsonl#2", "failed")]
    with pytest.raises(Unavailable):
        put(acme, Pipeline(spy), "p.txt", "pear")
    assert Status.FAILED == "failed"


def test_another_title_or_kind_of_file_is_a_change(acme: Company, pipeline: Pipeline) -> None:
    put(acme, pipeline, "a", "<p>apple</p>", media_type="text/plain", title="One")
    assert documents.show_document(acme.handle, "a").record.title == "One"
    assert put(acme, pipeline, "a", "<p>apple</p>", media_type="text/plain", title="One")[0][1] == "unchanged"
    assert put(acme, pipeline, "a", "<p>apple</p>", media_type="text/plain", title="Two")[0][1] == "updated"
    assert put(acme, pipeline, "a", "<p>apple</p>", media_type="text/html; charset=utf-8")[0][1] == "updated"
    with acme.handle.reading() as view:
        assert view.execute(select(chunks.c.text)).scalar_one() == "apple"
        assert model.require_model(view, pipeline.embedder.fingerprint)


def test_no_text_of_a_document_carries_nul_into_the_database(acme: Company, pipeline: Pipeline) -> None:
    """PostgreSQL takes none in text; what a caller puts into metadata is kept as it is."""
    lines = json.dumps({"text": "ap\0ple", "title": "A\0", "metadata": {"kind": "fru\0it"}, "id": "1"})
    assert put(acme, pipeline, "l.jsonl", lines, media_type="application/x-ndjson") == [("l.jsonl#1", "added")]
    assert put(acme, pipeline, "a.txt", "The pear\0 is ripe and sweet.", metadata={"kind": "r\0w"}) == [
        ("a.txt", "added")
    ]
    with acme.handle.reading() as view:
        assert view.execute(select(chunks.c.text).order_by(chunks.c.id)).scalars().all() == [
            "apple",
            "The pear is ripe and sweet.",
        ]
    assert documents.show_document(acme.handle, "l.jsonl#1").metadata == {"kind": "fruit"}
    assert documents.show_document(acme.handle, "a.txt").metadata == {"kind": "r\0w"}
    with pytest.raises((NotFound, InvalidInput)):
        documents.show_document(acme.handle, "a\0.txt")
