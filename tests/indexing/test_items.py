"""What became of each item: on record, listed, and mended by the next run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from indexing import documents
from indexing.acl_rules import Decision
from indexing.batch import ingest_paths
from indexing.embed import EmbeddingSettings, load_embedder
from indexing.ingest import Pipeline, Source, put_document
from indexing.items import list_items
from tenancy.acl import AccessList
from tenancy.errors import InvalidInput, NotFound
from tenancy.tenant import TenantHandle
from tests.support.people import NOW, Company

PIPELINE = Pipeline(load_embedder(EmbeddingSettings(model="hashing:64")), clock=lambda: NOW)
EVERYBODY = Decision(AccessList.of(["tenant"]), by="test")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "files"
    root.mkdir()
    (root / "a.txt").write_text("apple")
    (root / "empty.txt").write_bytes(b"")
    (root / "broken.pdf").write_bytes(b"%PDF-1.4 nonsense")
    return root


def run(company: Company, folder: Path, **more: Any) -> None:
    for _ in ingest_paths(company.handle, PIPELINE, [folder], lambda _: EVERYBODY, lambda: None, **more):
        pass


def names(company: Company, status: str) -> list[str]:
    return [item.name for item in list_items(company.handle, status)]


def test_each_item_is_listed_under_its_status_with_reason_and_remedy(acme: Company, folder: Path) -> None:
    run(acme, folder)
    assert names(acme, "indexed") == ["a.txt"]
    (empty,) = list_items(acme.handle, "empty")
    assert (empty.name, empty.reason, bool(empty.remedy), empty.title) == ("empty.txt", "is an empty file", True, None)
    (broken,) = list_items(acme.handle, "corrupt")
    assert (broken.name, broken.seen) == ("broken.pdf", NOW)
    (indexed,) = list_items(acme.handle, "indexed")
    assert (indexed.title, indexed.media_type) == ("a.txt", "text/plain")
    assert names(acme, "partial") == []


def test_a_file_that_breaks_keeps_its_document_and_tells_so_until_it_is_whole_again(
    acme: Company, folder: Path
) -> None:
    run(acme, folder)
    (folder / "a.txt").write_bytes(b"")
    run(acme, folder)
    assert (names(acme, "indexed"), names(acme, "empty")) == ([], ["a.txt", "empty.txt"])
    (item,) = [item for item in list_items(acme.handle, "empty") if item.name == "a.txt"]
    assert item.version == documents.show_document(acme.handle, "a.txt").record.version
    # A new access list alone says nothing of the file.
    other = Decision(AccessList.of(["user:ana"]), by="test")
    for _ in ingest_paths(acme.handle, PIPELINE, [folder], lambda _: other, lambda: None):
        pass
    assert documents.show_document(acme.handle, "a.txt").access == other.access
    assert names(acme, "empty") == ["a.txt", "empty.txt"]
    (folder / "a.txt").write_text("apple")
    run(acme, folder)
    assert (names(acme, "indexed"), names(acme, "empty")) == (["a.txt"], ["empty.txt"])


def test_what_is_gone_is_removed_or_forgotten(acme: Company, folder: Path) -> None:
    run(acme, folder)
    (folder / "broken.pdf").unlink()
    run(acme, folder)
    assert names(acme, "corrupt") == []
    (folder / "a.txt").unlink()
    run(acme, folder)
    assert names(acme, "indexed") == ["a.txt"]
    run(acme, folder, prune=True)
    assert (names(acme, "indexed"), names(acme, "removed")) == ([], ["a.txt"])
    (folder / "a.txt").write_text("apple again")
    run(acme, folder)
    assert (names(acme, "indexed"), names(acme, "removed")) == (["a.txt"], [])
    documents.delete_document(acme.handle, "a.txt", NOW)
    assert names(acme, "removed") == ["a.txt"]


def test_a_run_without_news_writes_nothing(acme: Company, folder: Path) -> None:
    run(acme, folder)
    (folder / "empty.txt").unlink()
    (folder / "broken.pdf").unlink()
    run(acme, folder)
    writing = []
    begin = TenantHandle.writing

    with pytest.MonkeyPatch.context() as patch:

        def noted(self: Any) -> Any:
            writing.append(1)
            return begin(self)

        patch.setattr(TenantHandle, "writing", noted)
        run(acme, folder)
        assert writing == []
        (folder / "empty.txt").write_bytes(b"")
        run(acme, folder)
        assert writing == [1]


def test_lists_go_on_and_refuse_what_is_no_status(acme: Company, folder: Path) -> None:
    (folder / "b.txt").write_text("pear")
    run(acme, folder)
    assert [item.name for item in list_items(acme.handle, "indexed", limit=1)] == ["a.txt"]
    assert [item.name for item in list_items(acme.handle, "indexed", after="a.txt")] == ["b.txt"]
    for status in ("added", "unchanged", ""):
        with pytest.raises(InvalidInput) as refused:
            list_items(acme.handle, status)
        assert refused.value.remedy


def test_a_deleted_file_leaves_no_word_of_its_parts_that_gave_no_document(acme: Company, folder: Path) -> None:
    (folder / "a.txt").write_text("apple")
    (folder / "b.jsonl").write_text('{"id": 1, "text": "one"}\n{"id": 2, "text": ""}\n{"id": 3}\n')
    run(acme, folder)
    parts = {"b.jsonl#2", "b.jsonl#line-3"}
    assert parts <= {*names(acme, "empty"), *names(acme, "corrupt")}
    assert documents.delete_document(acme.handle, "b.jsonl", NOW) == ["b.jsonl#1"]
    assert documents.delete_document(acme.handle, "broken.pdf", NOW) == []
    assert names(acme, "empty") == ["empty.txt"]
    assert names(acme, "corrupt") == []
    assert (names(acme, "removed"), names(acme, "indexed")) == (["b.jsonl#1"], ["a.txt"])
    with pytest.raises(NotFound):
        documents.delete_document(acme.handle, "broken.pdf", NOW)


def test_a_document_from_elsewhere_is_as_it_was_written_once_the_file_that_failed_is_gone(
    acme: Company, folder: Path
) -> None:
    put_document(acme.handle, PIPELINE, Source("empty.txt", b"whole"))
    run(acme, folder)
    assert names(acme, "empty") == ["empty.txt"]
    (folder / "empty.txt").unlink()
    run(acme, folder)
    assert (names(acme, "empty"), names(acme, "indexed")) == ([], ["a.txt", "empty.txt"])


def test_a_refused_prune_is_listed_until_a_run_removes_nothing(acme: Company, folder: Path) -> None:
    run(acme, folder)
    for path in folder.iterdir():
        path.unlink()
    run(acme, folder, prune=True)
    assert names(acme, "failed") == [str(folder.resolve())]
    run(acme, folder)
    assert names(acme, "failed") == []
