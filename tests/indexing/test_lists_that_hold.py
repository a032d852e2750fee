"""Access lists where files, folders and what lies in them do not stay as they were, or cannot be read."""

from __future__ import annotations

import io
import os
import unicodedata
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from indexing import documents
from indexing.acl_rules import Decision
from indexing.batch import ingest_paths
from indexing.deciding import Access
from indexing.embed import EmbeddingSettings, load_embedder
from indexing.folder_rules import FILE, FolderRules
from indexing.ingest import Pipeline
from indexing.opening import opened
from indexing.posix_rules import PosixRules
from indexing.prepared import Wanted
from indexing.walk import Found, files
from tenancy.acl import AccessList
from tenancy.errors import InvalidInput
from tests.support.outcomes import word
from tests.support.people import NOW, Company

PIPELINE = Pipeline(load_embedder(EmbeddingSettings(model="hashing:64")), clock=lambda: NOW)
ALL = AccessList.of(["tenant"])
HR = AccessList.of(["group:hr"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "folder").mkdir(mode=0o755)
    return tmp_path / "folder"


def load(company: Company, folder: Path, access: AccessList) -> dict[str, str]:
    outcomes = ingest_paths(company.handle, PIPELINE, [folder], lambda _: Decision(access, "test"), lambda: None)
    return {outcome.document: word(outcome) for outcome in outcomes}


def access(company: Company, name: str) -> AccessList:
    return documents.show_document(company.handle, name).access


def packed(members: Mapping[str, bytes]) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return data.getvalue()


@pytest.mark.parametrize("form", ["NFD", "GBK"])
def test_rules_hold_in_a_folder_that_is_written_otherwise_on_the_disk(tmp_path: Path, form: str) -> None:
    """Also where another folder is written as the document's name is."""
    name = "Gehälter" if form == "NFD" else "工资"
    own = unicodedata.normalize("NFD", name) if form == "NFD" else os.fsdecode(name.encode("gbk"))
    for folder, label in ((own, "group:hr"), (name, "tenant")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / FILE).write_text(f'[[rule]]\npath = "*.md"\nallow = ["{label}"]\n')
        (tmp_path / folder / FILE).chmod(0o644)
    (tmp_path / own / "a.md").write_text("x")
    (entry,) = files(tmp_path)
    assert entry.lies == f"{name}/a.md"
    decision = Access(None, Decision(ALL, "--allow")).decide(entry)
    assert decision is not None
    assert (decision.access, decision.by) == (HR, f"{name}/{FILE}, rule 1")


@pytest.mark.parametrize("text", ["a = " + "[" * 100_000, "a = " + "1" * 5_000, "#" + "x" * 2**20])
def test_a_file_of_rules_that_is_too_much_costs_its_folder_alone(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    (tmp_path / FILE).chmod(0o644)
    with pytest.raises(InvalidInput) as found:
        FolderRules(tmp_path).decide("a.md")
    assert found.value.item == FILE
    (tmp_path / "map.toml").write_text(text)
    if not text.startswith("#"):
        with pytest.raises(InvalidInput):
            PosixRules(tmp_path / "map.toml")


@pytest.mark.parametrize("broken", [b"PK\x03\x04 nonsense", b""])
def test_new_rules_hold_for_the_members_of_an_archive_that_cannot_be_read_now(
    acme: Company, folder: Path, broken: bytes
) -> None:
    (folder / "a.zip").write_bytes(packed({"pay.txt": b"pay", "deep/plan.txt": b"plan"}))
    load(acme, folder, ALL)
    (folder / "a.zip").write_bytes(broken)
    assert len(load(acme, folder, HR)) == 3
    assert access(acme, "a.zip#member/pay.txt") == access(acme, "a.zip#member/deep/plan.txt") == HR


def test_new_rules_hold_for_members_that_are_gone_or_broken_in_an_archive_that_is_not_whole(
    acme: Company, folder: Path
) -> None:
    lines = b'{"id": 1, "text": "one"}\n'
    (folder / "a.zip").write_bytes(packed({"b.txt": b"b", "gone.txt": b"gone", "c.jsonl": lines}))
    load(acme, folder, ALL)
    (folder / "a.zip").write_bytes(packed({"b.txt": b"", "new.txt": b"new"}))
    found = load(acme, folder, HR)
    assert (found["a.zip#member/b.txt"], found["a.zip#member/new.txt"]) == ("acl_updated", "added")
    for name in ("b.txt", "gone.txt", "c.jsonl#1", "new.txt"):
        assert access(acme, f"a.zip#member/{name}") == HR


def test_lines_with_lists_of_their_own_keep_them_while_their_file_cannot_be_read(acme: Company, folder: Path) -> None:
    (folder / "a.jsonl").write_text('{"id": "member/1", "text": "one", "allow": ["user:ana"]}\n')
    load(acme, folder, ALL)
    (folder / "a.jsonl").write_text("")
    load(acme, folder, ALL)
    assert access(acme, "a.jsonl#member/1") == AccessList.of(["user:ana"])


def test_a_link_in_a_folders_place_is_not_followed(tmp_path: Path) -> None:
    root = tmp_path / "root"
    for folder in ("root/open", "secret"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "a.txt").write_text(folder)
    (entry,) = files(root)
    with opened(entry, 100) as file:
        assert (file.content, file.stayed()) == (b"root/open", True)
        (root / "open").rename(root / "away")
        (root / "open").symlink_to(tmp_path / "secret")
        assert not file.stayed()
    with pytest.raises(InvalidInput), opened(entry, 100):
        pass


@pytest.mark.parametrize("how", ["replaced", "chmod"])
def test_who_may_read_is_decided_of_the_file_that_is_read(
    acme: Company, folder: Path, tmp_path: Path, how: str
) -> None:
    (folder / "a.txt").write_text("lunch")
    (folder / "a.txt").chmod(0o644)
    (tmp_path / "map.toml").write_text('everyone = ["tenant"]\n')
    rules = PosixRules(tmp_path / "map.toml")
    decided: list[bool] = []

    def decide(entry: Found) -> Decision:
        decision = rules.decide(entry.root.path, entry.target)
        if not decided:
            if how == "replaced":
                (tmp_path / "secret").write_text("wages")
                (tmp_path / "secret").chmod(0o600)
                (tmp_path / "secret").rename(folder / "a.txt")
            else:
                (folder / "a.txt").chmod(0o600)
        decided.append(True)
        return decision

    assert [word(one) for one in ingest_paths(acme.handle, PIPELINE, [folder], decide, lambda: None)] == ["added"]
    assert (len(decided), access(acme, "a.txt")) == (2, AccessList())


def test_a_document_that_moves_out_of_its_rules_is_read_by_nobody(acme: Company, folder: Path) -> None:
    (folder / "open").mkdir()
    (folder / "open" / FILE).write_text('[default]\nallow = ["tenant"]\n')
    (folder / "open" / FILE).chmod(0o644)
    (folder / "open" / "a.txt").write_text("apple")
    for name in ("open/a.txt", "b.txt"):
        for _ in ingest_paths(acme.handle, PIPELINE, [folder], Access().decide, lambda: None):
            pass
        assert access(acme, name) == (ALL if name == "open/a.txt" else AccessList())
        if name == "open/a.txt":
            (folder / "open" / "a.txt").rename(folder / "b.txt")
    documents.change_access(acme.handle, "b.txt", HR, NOW)
    (folder / "b.txt").rename(folder / "c.txt")
    for _ in ingest_paths(acme.handle, PIPELINE, [folder], Access().decide, lambda: None):
        pass
    assert access(acme, "c.txt") == HR


@pytest.mark.parametrize("instead", ["empty", "loop", "nowhere"])
def test_nobody_reads_a_document_because_something_else_took_its_files_place(
    acme: Company, folder: Path, instead: str
) -> None:
    """Whoever may write the open folder may put a link there, and then something of their own in its place."""
    for name, label in (("hr", "group:hr"), ("open", "tenant")):
        (folder / name).mkdir()
        (folder / name / FILE).write_text(f'[default]\nallow = ["{label}"]\ndeny = ["user:{name}"]\n')
        (folder / name / FILE).chmod(0o644)
    (folder / "hr" / "pay.txt").write_text("pay")
    link = folder / "open" / "x.txt"
    link.symlink_to(folder / "hr" / "pay.txt")
    for _ in ingest_paths(acme.handle, PIPELINE, [folder], Access().decide, lambda: None):
        pass
    assert access(acme, "open/x.txt") == AccessList.of(["group:hr"], ["user:hr"])
    link.unlink()
    if instead == "empty":
        link.write_bytes(b"")
    else:
        link.symlink_to(link if instead == "loop" else folder / "nothing")
    for _ in ingest_paths(acme.handle, PIPELINE, [folder], Access().decide, lambda: None):
        pass
    assert access(acme, "open/x.txt") == AccessList.of(["group:hr"], ["user:hr", "user:open"])


def test_a_narrower_list_holds_those_whom_both_let_read() -> None:
    stored = AccessList.of(["group:a", "group:b"], ["user:x"])
    assert Wanted(frozenset({"group:b", "group:c"}), None, narrower=True).over(stored).allow == {"group:b"}
    assert Wanted(frozenset({"tenant"}), frozenset(), narrower=True).over(stored) == stored
    assert Wanted(None, frozenset({"user:y"}), narrower=True).over(stored).deny == {"user:x", "user:y"}
    assert Wanted(frozenset({"group:c"}), None, narrower=True).over(ALL).allow == {"group:c"}
