"""Files and folders into one tenant."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from indexing import batch, documents
from indexing.acl_rules import AccessRules, Decision
from indexing.batch import ingest_paths
from indexing.embed import EmbeddingSettings, Vectors, load_embedder
from indexing.embedders.hashing import HashingEmbedder
from indexing.ingest import Pipeline
from indexing.opening import opened
from indexing.outcome import Outcome
from indexing.run import PruneLimit
from indexing.walk import Found, files
from tenancy.acl import AccessList
from tenancy.errors import InvalidInput, NotFound, TenantSuspended
from tenancy.identity import Authenticator
from tests.support.outcomes import word
from tests.support.people import NOW, Company

PIPELINE = Pipeline(load_embedder(EmbeddingSettings(model="hashing:64")), clock=lambda: NOW)


def everybody(_entry: Found) -> Decision:
    return Decision(AccessList.of(["tenant"]), by="test")


def run(company: Company, *paths: Path, pipeline: Pipeline = PIPELINE, **more: Any) -> list[tuple[str, str]]:
    options = {"decide": everybody, "still_open": lambda: None, **more}
    return [(outcome.document, word(outcome)) for outcome in ingest_paths(company.handle, pipeline, paths, **options)]


def names(company: Company) -> list[str]:
    return [record.name for record in documents.list_documents(company.handle)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "handbook"
    (root / "hr").mkdir(parents=True)
    (root / "b.txt").write_text("banana")
    (root / "hr" / "pay.md").write_text("# Pay\n\nMonthly.")
    (root / "a.txt").write_text("apple")
    return root


def test_a_folder_in_order_of_names_and_again_unchanged(acme: Company, folder: Path) -> None:
    assert run(acme, folder) == [("a.txt", "added"), ("b.txt", "added"), ("hr/pay.md", "added")]
    assert run(acme, folder) == [("a.txt", "unchanged"), ("b.txt", "unchanged"), ("hr/pay.md", "unchanged")]
    (folder / "b.txt").write_text("bananas")
    assert [status for _, status in run(acme, folder)] == ["unchanged", "updated", "unchanged"]


def test_a_single_file_is_named_as_it_is_in_its_folder(acme: Company, folder: Path) -> None:
    assert run(acme, folder / "a.txt", folder / "hr" / "pay.md") == [("a.txt", "added"), ("pay.md", "added")]
    assert run(acme, folder)[0] == ("a.txt", "unchanged")


def test_decisions_give_access_title_and_metadata(acme: Company, folder: Path) -> None:
    def decide(entry: Found) -> Decision | None:
        if entry.lies == "a.txt":
            return Decision(AccessList.of(["user:ana"], ["user:bo"]), "rule 1", "Apples", {"year": 2024})
        return None

    run(acme, folder, decide=decide)
    shown = documents.show_document(acme.handle, "a.txt")
    assert (shown.access, shown.record.title) == (AccessList.of(["user:ana"], ["user:bo"]), "Apples")
    assert shown.metadata["year"] == 2024
    assert documents.show_document(acme.handle, "b.txt").access == AccessList()
    assert run(acme, folder, decide=decide)[0] == ("a.txt", "unchanged")
    assert run(acme, folder)[:2] == [("a.txt", "acl_updated"), ("b.txt", "acl_updated")]
    assert run(acme, folder, decide=lambda _: None)[0] == ("a.txt", "unchanged")


def test_hidden_and_excluded_files_and_foreign_links_are_left_out(acme: Company, folder: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("secret")
    (folder / ".hidden.txt").write_text("hidden")
    (folder / ".git").mkdir()
    (folder / ".git" / "config.txt").write_text("hidden")
    (folder / "rules.toml").write_text("")
    (folder / "y-out.txt").symlink_to(outside)
    (folder / "y-outside").symlink_to(tmp_path)
    (folder / "y-in.txt").symlink_to(folder / "a.txt")
    (folder / "y-inside").symlink_to(folder / "hr")
    (folder / "z-gone.txt").symlink_to(folder / "nowhere")
    found = run(acme, folder, exclude=[folder / "rules.toml"])
    assert found == [
        ("a.txt", "added"),
        ("b.txt", "added"),
        ("hr/pay.md", "added"),
        ("y-in.txt", "added"),
        ("y-out.txt", "failed"),
        ("y-outside", "failed"),
        ("z-gone.txt", "failed"),
    ]


def test_a_link_is_read_under_the_rules_of_where_its_file_lies(acme: Company, folder: Path) -> None:
    """Whoever may write into a public folder must not publish what it cannot read."""
    (folder / "public").mkdir()
    (folder / "public" / "note.md").symlink_to(folder / "hr" / "pay.md")
    rules = {"hr/pay.md": AccessList.of(["group:hr"])}

    def decide(entry: Found) -> Decision:
        return Decision(rules.get(entry.lies, AccessList.of(["tenant"])), "rule")

    assert ("public/note.md", "added") in run(acme, folder, decide=decide)
    assert documents.show_document(acme.handle, "public/note.md").access == rules["hr/pay.md"]


def test_links_and_names_that_cannot_be_followed_stop_nothing(acme: Company, folder: Path) -> None:
    (folder / ".hidden").mkdir()
    (folder / ".hidden" / "key.txt").write_text("secret")
    (folder / "a-loop").symlink_to("a-loop")
    (folder / "a-hidden.txt").symlink_to(folder / ".hidden" / "key.txt")
    os.mkfifo(folder / "a-pipe.txt")
    Path(os.fsdecode(bytes(folder / "hr") + b"/a\xff.txt")).write_text("latin")
    outcomes = list(ingest_paths(acme.handle, PIPELINE, [folder], everybody, lambda: None))
    failed = {outcome.document: outcome.reason for outcome in outcomes if outcome.error is not None}
    assert failed == {
        "a-hidden.txt": "the link leads to a hidden file",
        "a-loop": "the link leads to itself",
        "a-pipe.txt": "this is not a file",
    }
    assert {outcome.document for outcome in outcomes} - failed.keys() == {"a.txt", "b.txt", "hr/aÿ.txt", "hr/pay.md"}
    with pytest.raises(InvalidInput):
        list(ingest_paths(acme.handle, PIPELINE, [folder / "a-loop"], everybody, lambda: None))


def test_what_comes_into_a_files_place_is_not_read(acme: Company, folder: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")

    entry = next(files(folder))
    entry.path.unlink()
    entry.path.symlink_to(secret)
    with pytest.raises(InvalidInput, match="symbolic"), opened(entry, 100):
        pass
    entry.path.unlink()
    os.mkfifo(entry.path)
    with pytest.raises(InvalidInput, match="not a file"), opened(entry, 100):
        pass


def test_a_failing_file_is_reported_and_the_rest_goes_on(acme: Company, folder: Path) -> None:
    (folder / "a.txt").write_bytes(b"")
    (folder / "a.pdf").write_bytes(b"%PDF-1.4 nonsense")
    outcomes = list(ingest_paths(acme.handle, PIPELINE, [folder], everybody, lambda: None))
    assert [(outcome.document, word(outcome)) for outcome in outcomes] == [
        ("a.pdf", "corrupt"),
        ("a.txt", "empty"),
        ("b.txt", "added"),
        ("hr/pay.md", "added"),
    ]
    assert all(outcome.reason and outcome.remedy for outcome in outcomes[:2])


@pytest.mark.parametrize(("broken", "status"), [(b"", "empty"), (b"\x00\x01\x02" * 100, "unsupported")])
def test_new_rules_hold_for_a_document_whose_file_cannot_be_read_now(
    acme: Company, folder: Path, broken: bytes, status: str
) -> None:
    run(acme, folder)
    (folder / "a.txt").write_bytes(broken)
    nobody = Decision(AccessList.of(["user:ana"]), by="test")

    def decide(entry: Found) -> Decision:
        return nobody if entry.lies == "a.txt" else everybody(entry)

    first = next(ingest_paths(acme.handle, PIPELINE, [folder], decide, lambda: None))
    assert (first.document, first.status.value, first.change.value) == ("a.txt", status, "acl_updated")
    assert first.reason
    assert documents.show_document(acme.handle, "a.txt").access == nobody.access
    assert run(acme, folder, decide=lambda _: None)[:2] == [("a.txt", status), ("b.txt", "unchanged")]


def test_prune_removes_what_is_gone_from_that_folder_alone(acme: Company, folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "o.txt").write_text("other")
    (folder / "lines.jsonl").write_text('{"text": "one"}\n{"text": "two"}\n')
    run(acme, folder, other)
    (folder / "a.txt").unlink()
    (folder / "lines.jsonl").unlink()
    (other / "o.txt").unlink()
    assert ("a.txt", "removed") not in run(acme, folder)
    assert run(acme, folder / "b.txt", prune=True) == [("b.txt", "unchanged")]
    assert sorted(run(acme, folder, prune=True)) == [
        ("a.txt", "removed"),
        ("b.txt", "unchanged"),
        ("hr/pay.md", "unchanged"),
        ("lines.jsonl#1", "removed"),
        ("lines.jsonl#2", "removed"),
    ]
    assert names(acme) == ["b.txt", "hr/pay.md", "o.txt"]
    assert run(acme, other, prune=True) == [(str(other), "failed")]
    assert run(acme, other, prune=True, prune_limit=PruneLimit(1)) == [("o.txt", "removed")]


def test_prune_keeps_what_fails_or_could_not_be_seen(
    acme: Company, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(acme, folder)
    (folder / "a.txt").write_bytes(b"")
    assert run(acme, folder, prune=True)[0] == ("a.txt", "empty")
    assert names(acme) == ["a.txt", "b.txt", "hr/pay.md"]
    scan = os.scandir
    (folder / "b.txt").unlink()

    def locked(path: Path) -> Any:
        if path.name == "hr":
            raise PermissionError(13, "Permission denied")
        return scan(path)

    monkeypatch.setattr(os, "scandir", locked)
    assert run(acme, folder, prune=True) == [("a.txt", "empty"), ("hr", "failed")]
    assert names(acme) == ["a.txt", "b.txt", "hr/pay.md"]
    monkeypatch.undo()
    assert ("b.txt", "removed") in run(acme, folder, prune=True)


def test_a_document_that_moved_to_another_folder_of_the_run_stays(acme: Company, folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    run(acme, folder)
    (folder / "a.txt").rename(other / "a.txt")
    assert ("a.txt", "removed") not in run(acme, folder, other, prune=True)
    assert names(acme) == ["a.txt", "b.txt", "hr/pay.md"]
    assert ("a.txt", "removed") not in run(acme, folder, prune=True)
    assert run(acme, other, prune=True) == [("a.txt", "unchanged")]


def test_two_files_of_one_name_do_not_replace_each_other(acme: Company, folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "a.txt").write_text("another apple")
    found = run(acme, folder, other, folder)
    assert [status for name, status in found if name == "a.txt"] == ["added", "failed"]
    assert len(found) == 4


def test_a_path_that_is_not_there_is_refused_before_anything_happens(acme: Company, folder: Path) -> None:
    with pytest.raises(InvalidInput, match="no such file"):
        run(acme, folder, folder / "missing")
    assert names(acme) == []


def test_a_tenant_that_is_suspended_or_deleted_ends_the_run_with_that_error(
    acme: Company, authenticator: Authenticator, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "BATCH_CHUNKS", 1)
    operator = authenticator.operator("acme")
    outcomes = ingest_paths(acme.handle, PIPELINE, [folder], everybody, lambda: acme.tenants.open(operator))
    assert next(outcomes).change.value == "added"
    acme.tenants.set_status("acme", "suspended")
    with pytest.raises(TenantSuspended):
        list(outcomes)
    acme.tenants.set_status("acme", "active")
    assert len(names(acme)) < 3
    outcomes = ingest_paths(acme.handle, PIPELINE, [folder], everybody, lambda: acme.tenants.open(operator))
    assert next(outcomes).status.value == "unchanged"
    acme.tenants.delete("acme")
    with pytest.raises(NotFound, match="does not exist any more"):
        list(outcomes)


def test_a_run_that_is_left_early_keeps_what_it_reported_and_tells_all_that_it_wrote(
    acme: Company, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "BATCH_CHUNKS", 1)
    told: list[str] = []

    def written(outcomes: Sequence[Outcome]) -> None:
        told.extend(outcome.document for outcome in outcomes)

    outcomes = ingest_paths(acme.handle, PIPELINE, [folder], everybody, lambda: None, written=written)
    assert next(outcomes).document == "a.txt"
    outcomes.close()
    assert names(acme)[0] == "a.txt"
    assert names(acme) == told
    assert len(run(acme, folder)) == 3
    assert names(acme) == ["a.txt", "b.txt", "hr/pay.md"]


def test_chunks_of_several_documents_are_embedded_in_one_call(
    acme: Company, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    encode = HashingEmbedder.encode

    def counted(self: HashingEmbedder, texts: Sequence[str]) -> Vectors:
        calls.append(len(texts))
        return encode(self, texts)

    monkeypatch.setattr(HashingEmbedder, "encode", counted)
    monkeypatch.setattr(batch, "BATCH_CHUNKS", 8)
    for number in range(9):
        (folder / "hr" / f"{number}.txt").write_text(f"document {number}")
    assert len(run(acme, folder)) == 12
    assert calls == [8, 4]


def test_names_with_joiners_outer_blanks_and_what_nobody_sees_are_indexed(acme: Company, tmp_path: Path) -> None:
    plain = ["نامه\u200cها.txt", "\U0001f468\u200d\U0001f469\u200d\U0001f467.txt", " blank.txt ", "back\\slash.txt"]
    told = {
        "line\nfeed.txt": "line\\nfeed.txt",
        "re\u200bport.txt": "re\\u200bport.txt",
        "re\u200dport.txt": "re\\u200dport.txt",
    }
    docs = tmp_path / "docs"
    docs.mkdir()
    for name in (*plain, *told):
        (docs / name).write_text(f"The text of {name!a}.")
    rules = AccessRules(written(tmp_path / ".rules.toml", '[[rule]]\npath = "*.txt*"\nallow = ["tenant"]\n'))
    expected = sorted([*plain, *told.values()])
    for status in ("added", "unchanged"):
        found = run(acme, docs, decide=lambda entry: rules.decide(entry.lies))
        assert sorted(found) == [(name, status) for name in expected]
    shown = {name: documents.show_document(acme.handle, name) for name in expected}
    assert {name for name, detail in shown.items() if "uncertain_name" in detail.warnings} == set(told.values())
    assert all(detail.access == AccessList.of(["tenant"]) for detail in shown.values())


def test_a_copy_of_a_file_whose_name_is_written_out_is_no_move_while_watching(acme: Company, tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "re\u200bport.txt").write_text("The text.")
    run(acme, docs)
    copy = docs / "copy.txt"
    copy.write_text("The text.")
    assert run(acme, docs, only=[copy]) == [("copy.txt", "added")]
    assert names(acme) == ["copy.txt", "re\\u200bport.txt"]


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path
