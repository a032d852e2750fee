"""An edit embeds what it changed, and nothing else; text, vectors and versions never mix."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from sqlalchemy import insert, select, update

from indexing import documents
from indexing import pipeline as pipeline_module
from indexing.catalogue import add_model
from indexing.chunk import Chunking, embedded_text
from indexing.embed import Embedder, EmbeddingSettings, load_embedder
from indexing.ingest import Pipeline, Source, embed, prepare, put_document, write
from indexing.outcome import Outcome
from tenancy.acl import AccessList
from tenancy.errors import Conflict
from tenancy.schema import chunks, vectors
from tests.indexing.test_ingest import Spy
from tests.support.path import open_path
from tests.support.people import NOW, Company

pytestmark = pytest.mark.both_storages

EVERYBODY = AccessList.of(["tenant"])
PARAGRAPHS = [
    f"Rule {number}. {'The committee decides about it in writing. ' * (number % 5 + 3)}" for number in range(60)
]
SMALL = Chunking(target_chars=300, overlap_chars=40)


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    return load_embedder(EmbeddingSettings(model="hashing:64"))


@pytest.fixture
def spy(embedder: Embedder) -> Spy:
    return Spy(embedder)


@pytest.fixture
def pipeline(spy: Spy) -> Pipeline:
    return Pipeline(spy, SMALL, clock=lambda: NOW)


def put(company: Company, pipeline: Pipeline, text: str, name: str = "rules.txt") -> Outcome:
    (outcome,) = put_document(company.handle, pipeline, Source(name, text.encode(), EVERYBODY))
    return outcome


def require_true(company: Company, pipeline: Pipeline, text: str) -> dict[str, int]:
    """Every chunk is of `text` and has its own vector, one of it; returns the ids by key."""
    with company.handle.reading() as view:
        rows = view.execute(select(chunks, vectors.c.vector).join(vectors).order_by(chunks.c.ordinal)).all()
        assert len(rows) == len(view.execute(select(chunks.c.id)).all())
    made = pipeline.embedder.encode([embedded_text(row.text, row.context) for row in rows])
    for row, vector in zip(rows, made, strict=True):
        assert text[row.start : row.end] == row.text
        assert np.array_equal(np.frombuffer(row.vector, dtype="<f4"), vector)
    assert [row.ordinal for row in rows] == list(range(len(rows)))
    return {row.key: row.id for row in rows}


def edited(rng: random.Random, text: str) -> str:
    at = text.index(" ", rng.randrange(len(text) - 200))
    return text[:at] + rng.choice([" not", " never and in no case whatever"]) + text[at + rng.choice([0, 0, 9]) :]


def test_an_edit_embeds_little_and_leaves_text_and_vectors_true(acme: Company, pipeline: Pipeline, spy: Spy) -> None:
    text, rng = "\n\n".join(PARAGRAPHS), random.Random(1)
    first = put(acme, pipeline, text)
    assert first.embedded == first.chunks > 50
    keys = require_true(acme, pipeline, text)
    shares: list[float] = []
    for _ in range(6):
        text = edited(rng, text)
        spy.texts.clear()
        outcome = put(acme, pipeline, text)
        assert (outcome.embedded, outcome.tokens > 0) == (len(spy.texts), True)
        shares.append(outcome.embedded / outcome.chunks)
        before, keys = keys, require_true(acme, pipeline, text)
        assert len(before.keys() & keys.keys()) >= len(keys) - outcome.embedded
        assert set(before.values()).isdisjoint(keys.values()), "a row is of one version"
    assert 0 < np.mean(shares) < 0.08


def test_what_is_said_twice_and_then_once_is_right_both_times(acme: Company, pipeline: Pipeline, spy: Spy) -> None:
    paragraph = "The same words again. " * 13
    put(acme, pipeline, f"{paragraph}\n\n# Two\n\n{paragraph}\n\n# Three\n\n{paragraph}")
    spy.texts.clear()
    text = f"{paragraph}\n\n# Three\n\n{paragraph}"
    assert put(acme, pipeline, text).embedded == 0
    require_true(acme, pipeline, text)


def test_another_heading_embeds_what_stands_under_it_and_not_its_subsections(acme: Company, pipeline: Pipeline) -> None:
    sections = ["\n\n".join([f"## Part {number}", *PARAGRAPHS[number * 10 : number * 10 + 10]]) for number in range(5)]
    put(acme, pipeline, "\n\n".join(["# Handbook of 2023", *PARAGRAPHS[50:], *sections]), "rules.md")
    text = "\n\n".join(["# Handbook of 2024", *PARAGRAPHS[50:], *sections])
    outcome = put(acme, pipeline, text, "rules.md")
    assert 5 < outcome.embedded < outcome.chunks / 4
    require_true(acme, pipeline, text)
    with acme.handle.reading() as view:
        contexts = set(view.execute(select(chunks.c.context)).scalars())
    assert "Handbook of 2024 > Part 3" in contexts
    assert not any("2023" in (context or "") for context in contexts)


def test_another_title_alone_embeds_nothing(acme: Company, pipeline: Pipeline) -> None:
    text = "\n\n".join(PARAGRAPHS[:10])
    put(acme, pipeline, text)
    source = Source("rules.txt", text.encode(), EVERYBODY, title="Rules")
    (outcome,) = put_document(acme.handle, pipeline, source)
    assert (outcome.change, outcome.embedded) == ("updated", 0)
    require_true(acme, pipeline, text)


def test_rows_from_before_there_were_keys_are_taken_for_what_they_hold(
    acme: Company, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "\n\n".join(PARAGRAPHS[:10])
    put(acme, pipeline, text)
    with acme.handle.writing() as view:
        view.execute(update(chunks).values(key=None))
    monkeypatch.setattr(pipeline_module, "CHUNKER_REVISION", "a later one")
    outcome = put(acme, pipeline, text)
    assert (outcome.change, outcome.embedded) == ("updated", 0)
    require_true(acme, pipeline, text)


def test_a_document_that_somebody_else_edits_meanwhile_takes_nothing_over(
    acme: Company, pipeline: Pipeline, embedder: Embedder, spy: Spy
) -> None:
    text = "\n\n".join(PARAGRAPHS[:10])
    put(acme, pipeline, text)
    theirs = text + "\n\nTheir last word."
    spy.meanwhile = lambda: put(acme, Pipeline(embedder, SMALL), theirs) and None
    with pytest.raises(Conflict):
        put(acme, pipeline, text + "\n\nOur last word.")
    spy.meanwhile = lambda: None
    require_true(acme, pipeline, theirs)


def test_without_the_vector_that_was_to_be_taken_over_all_is_embedded_again(acme: Company, pipeline: Pipeline) -> None:
    text = "\n\n".join(PARAGRAPHS[:10])
    put(acme, pipeline, text)
    text += "\n\nA last word."
    source = Source("rules.txt", text.encode(), EVERYBODY)
    embedded = embed(pipeline, prepare(acme.handle, pipeline, source))
    with acme.handle.writing() as view:
        some = view.execute(select(chunks.c.id).order_by(chunks.c.id).limit(2)).scalars().all()
        view.execute(vectors.delete().where(vectors.c.chunk_id.in_(some)))
    (outcome,) = write(acme.handle, pipeline, embedded)
    assert outcome.embedded == outcome.chunks
    require_true(acme, pipeline, text)


def test_vectors_of_a_model_that_the_tenant_moves_to_are_taken_over_too(acme: Company, pipeline: Pipeline) -> None:
    text = "\n\n".join(PARAGRAPHS[:10])
    put(acme, pipeline, text)
    other = load_embedder(EmbeddingSettings(model="hashing:32"))
    with acme.handle.writing() as view:
        model = add_model(view, other.spec, other.fingerprint, NOW)
        rows = view.execute(select(chunks.c.id, chunks.c.text)).all()
        made = [{"chunk_id": row.id, "model_id": model.id, "vector": row.text.encode()} for row in rows]
        view.execute(insert(vectors), made)
    outcome = put(acme, pipeline, text + "\n\nA last word.")
    with acme.handle.reading() as view:
        query = select(chunks.c.text, vectors.c.vector).join(vectors).where(vectors.c.model_id == model.id)
        kept = view.execute(query).all()
    assert len(kept) == outcome.chunks - outcome.embedded > 3
    assert all(row.vector == row.text.encode() for row in kept)


def test_text_that_an_edit_took_out_leaves_the_log_of_the_database(
    acme: Company, pipeline: Pipeline, storage: str
) -> None:
    put(acme, pipeline, "\n\n".join(PARAGRAPHS))
    put(acme, pipeline, "\n\n".join(PARAGRAPHS[1:]))
    if not storage:
        assert (acme.handle.directory / "tenant.sqlite-wal").stat().st_size == 0


def test_a_remembered_answer_does_not_outlive_the_version_that_it_cites(acme: Company) -> None:
    """Also where the passage that it rests on is in the new version, under the same name and with the same vector."""
    rules = [*PARAGRAPHS[:10], "The notice period for employees is three months to the end of a quarter."]
    with open_path(acme.tenants) as path:
        ana = acme.principal("ana")
        pipeline = Pipeline(path.embedder, SMALL)
        put(acme, pipeline, "\n\n".join(rules))
        asked = "What is the notice period for employees?"
        first = path.ask(ana, asked)
        assert [one.quote for one in first.citations] == [rules[-1]]
        assert path.ask(ana, asked).cache.status == "hit"
        text = "\n\n".join(["Rule 0 is repealed as of today, for good and all.", *rules[1:]])
        outcome = put(acme, pipeline, text)
        assert outcome.embedded < outcome.chunks
        again = path.ask(ana, asked)
        assert again.cache.status == "miss"
        (before,), (now,) = first.citations, again.citations
        assert (now.chunk, now.quote) == (before.chunk, before.quote)
        assert now.version != before.version
        assert text[now.start : now.end] == now.quote
        assert now.chunk_id != before.chunk_id


def test_chunks_are_called_the_same_in_another_tenant(
    acme: Company, globex: Company, pipeline: Pipeline, embedder: Embedder
) -> None:
    text = "\n\n".join(PARAGRAPHS[:20])

    def keys(company: Company, name: str) -> Sequence[str | None]:
        put(company, replace(pipeline, embedder=embedder), text, name)
        with company.handle.reading() as view:
            return view.execute(select(chunks.c.key).order_by(chunks.c.ordinal)).scalars().all()

    assert keys(acme, "rules.txt") == keys(globex, "other/name.txt")
    assert documents.show_document(globex.handle, "other/name.txt").chunks > 5
