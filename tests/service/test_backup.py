"""One tenant out of a data directory and back, or to another: consistent, complete, and without what was withdrawn."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from service.backup import back_up
from service.cli import run
from service.control import open_control
from service.settings import load_settings
from tenancy import adoption, directory, schema
from tenancy.storage import DATA_FILE

Run = Callable[..., tuple[int, str, str]]
HANDBOOK = "The notice period is three months."
SALARIES = "The salary of the director is seven thousand."


class Node:
    """A data directory with its own keys; a call runs a command there."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._patch = monkeypatch
        self._capsys = capsys
        folder.mkdir(parents=True)
        self.data("doctor", "--create-master-key")

    def __call__(self, *words: str | Path) -> tuple[int, str, str]:
        for name, value in self.environment.items():
            self._patch.setenv(name, value)
        self._capsys.readouterr()
        code = run([str(word) for word in words])
        captured = self._capsys.readouterr()
        return code, captured.out, captured.err

    @property
    def environment(self) -> dict[str, str]:
        return {
            "STRONGROOM_DATA_DIR": str(self.folder / "data"),
            "STRONGROOM_MASTER_KEY_FILE": str(self.folder / "master.key"),
            "STRONGROOM_EMBEDDING__MODEL": "hashing:256",
        }

    def data(self, *words: str | Path) -> Any:
        code, out, err = self(*words, "--json")
        assert code == 0, err
        return json.loads(out) if out.strip() else None

    def fails(self, *words: str | Path) -> str:
        code, _, err = self(*words)
        assert code in {1, 2}, err
        return err

    def done(self, *words: str | Path) -> str:
        code, out, err = self(*words)
        assert code == 0, err
        return out

    def cited(self, user: str, question: str, tenant: str = "acme") -> list[str]:
        found = self.data("ask", question, "--tenant", tenant, "--user", user)
        return sorted({citation["document"] for citation in found["citations"]})

    def tenant_id(self, name: str = "acme") -> str:
        return str(self.data("tenant", "show", name)["id"])

    def files(self) -> set[str]:
        return {str(path.relative_to(self.folder / "data")) for path in (self.folder / "data").rglob("*")}


@pytest.fixture
def nodes(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[str], Node]:
    for name in [name for name in os.environ if name.startswith("STRONGROOM_")]:
        monkeypatch.delenv(name)
    return lambda name: Node(folder / name, monkeypatch, capsys)


@pytest.fixture
def here(nodes: Callable[[str], Node]) -> Node:
    """A node with a tenant: a handbook for the staff, salaries for ana and bo, who are both of the staff."""
    node = nodes("here")
    node.done("tenant", "create", "acme")
    for user in ("ana", "bo"):
        node.done("key", "create", "--tenant", "acme", "--user", user, "--group", "staff")
    (node.folder / "docs").mkdir()
    (node.folder / "docs/notice.md").write_text(HANDBOOK)
    (node.folder / "pay").mkdir()
    (node.folder / "pay/salaries.md").write_text(SALARIES)
    node.done("ingest", "--tenant", "acme", node.folder / "docs", "--allow", "group:staff")
    node.done("ingest", "--tenant", "acme", node.folder / "pay", "--allow", "user:ana", "--allow", "user:bo")
    return node


NOTICE, SALARY = "How long is the notice period?", "What is the salary of the director?"


@pytest.mark.slow
def test_a_copy_under_another_name_is_a_tenant_of_its_own(here: Node) -> None:
    made = here.data("backup", here.folder / "b", "--tenant", "acme")
    assert (made["documents"], made["users"], made["recovery"]) == (2, 2, False)
    assert (here.folder / "b").stat().st_mode & 0o777 == 0o600
    found = here.data("restore", here.folder / "b", "--as", "copy")
    assert found["tenant_id"] != found["backup_of"] == here.tenant_id()
    assert here.cited("ana", NOTICE, "copy") == ["notice.md"]
    assert here.cited("bo", SALARY, "copy") == ["salaries.md"]
    assert here.data("key", "list", "--tenant", "copy") == []
    assert here.data("cache", "stats", "--tenant", "copy")["entries"] == 1 + 1
    here.done("acl", "set", "notice.md", "--tenant", "copy")
    assert here.cited("ana", NOTICE, "copy") == []
    assert here.cited("ana", NOTICE) == ["notice.md"]
    assert here.data("audit", "verify", "--tenant", "copy")[0]["verdict"] == "ok"
    assert not [name for name in here.files() if name.startswith(("staging/", "arriving/"))]


def test_a_taken_name_a_taken_file_and_a_foreign_backup_are_refused(here: Node, nodes: Callable[[str], Node]) -> None:
    here.done("backup", here.folder / "b", "--tenant", "acme")
    before = here.files()
    assert "a tenant of this name exists" in here.fails("restore", here.folder / "b")
    assert "there already" in here.fails("backup", here.folder / "b", "--tenant", "acme")
    assert "begins with a letter" in here.fails("restore", here.folder / "b", "--as", "../x")
    there = nodes("there")
    assert "made on another data directory" in there.fails("restore", here.folder / "b")
    assert "suspend" in here.fails("restore", here.folder / "b", "--replace")
    assert {name for name in here.files() - before if not name.startswith(("live/", "audit/"))} <= {"staging"}


def test_what_was_withdrawn_after_the_backup_stays_withdrawn(here: Node) -> None:
    here.done("ingest", "--tenant", "acme", here.folder / "docs", "--allow", "group:staff")
    here.done("backup", here.folder / "b", "--tenant", "acme")
    here.done("acl", "set", "salaries.md", "--tenant", "acme", "--allow", "user:bo", "--allow", "user:cy")
    here.done("group", "remove", "staff", "ana", "--tenant", "acme")
    found = here.data("restore", here.folder / "b", "--as", "copy")
    assert found["withdrawals"] == "this data directory"
    assert found["withdrawn_again"] == {"allow": 1, "member": 1}
    assert here.cited("ana", SALARY, "copy") == here.cited("ana", NOTICE, "copy") == []
    assert here.cited("bo", SALARY, "copy") == ["salaries.md"]
    assert here.cited("bo", NOTICE, "copy") == ["notice.md"]
    # A right that was given after the backup does not come with it.
    listed = here.data("acl", "show", "salaries.md", "--tenant", "copy")
    assert listed["allow"] == ["user:bo"]


def test_a_deleted_document_is_not_in_the_restored_files(here: Node) -> None:
    here.done("backup", here.folder / "b", "--tenant", "acme")
    (here.folder / "pay/salaries.md").unlink()
    here.done("ingest", "--tenant", "acme", here.folder / "pay", "--prune", "--prune-limit", "1")
    found = here.data("restore", here.folder / "b", "--as", "copy")
    assert found["withdrawn_again"] == {"document": 1}
    assert found["documents"] == 1
    assert here.cited("ana", SALARY, "copy") == []
    # A document that is deleted and comes again is another one.
    (here.folder / "pay/salaries.md").write_text(SALARIES)
    here.done("ingest", "--tenant", "acme", here.folder / "pay", "--allow", "user:ana")
    here.done("backup", here.folder / "b2", "--tenant", "acme")
    assert here.data("restore", here.folder / "b2", "--as", "again")["documents"] == 2


@pytest.mark.slow
def test_a_tenant_that_was_suspended_comes_back_suspended(here: Node) -> None:
    here.done("backup", here.folder / "active", "--tenant", "acme")
    here.done("tenant", "suspend", "acme")
    here.done("backup", here.folder / "suspended", "--tenant", "acme")
    for state in ("active", "suspended"):
        here.done("restore", here.folder / state, "--as", f"copy-{state}")
        assert here.data("tenant", "show", f"copy-{state}")["status"] == state
    assert "suspended" in here.fails("ask", NOTICE, "--tenant", "copy-suspended", "--user", "bo")


@pytest.mark.slow
def test_a_damaged_tenant_is_replaced_and_keeps_keys_and_log(here: Node) -> None:
    here.done("backup", here.folder / "b", "--tenant", "acme")
    here.done("group", "remove", "staff", "ana", "--tenant", "acme")
    keys = here.data("key", "list", "--tenant", "acme")
    tenant_id = here.tenant_id()
    (here.folder / "data/tenants" / tenant_id / DATA_FILE).write_bytes(b"ruin" * 5000)
    assert "restore it from a backup" in here.fails("group", "list", "--tenant", "acme")
    here.done("tenant", "suspend", "acme")
    found = here.data("restore", here.folder / "b", "--replace")
    here.done("backup", here.folder / "suspended", "--tenant", "acme")
    here.done("export", here.folder / "suspended-export", "--tenant", "acme")
    assert found["tenant_id"] == tenant_id
    here.done("tenant", "resume", "acme")
    assert here.cited("bo", NOTICE) == ["notice.md"]
    assert here.cited("ana", NOTICE) == []
    assert here.data("key", "list", "--tenant", "acme") == keys
    assert here.data("audit", "verify", "--tenant", "acme")[0]["verdict"] == "ok"
    # The next backup knows of all that; restoring it takes nothing away.
    here.done("group", "add", "staff", "ana", "--tenant", "acme")
    here.done("backup", here.folder / "b2", "--tenant", "acme")
    assert here.data("restore", here.folder / "b2", "--as", "copy")["withdrawn_again"] == {}
    assert here.cited("ana", NOTICE, "copy") == ["notice.md"]


@pytest.mark.slow
def test_a_deleted_tenant_comes_back_only_on_purpose_and_under_its_id(here: Node) -> None:
    here.done("backup", here.folder / "b", "--tenant", "acme")
    here.done("group", "remove", "staff", "ana", "--tenant", "acme")
    tenant_id = here.tenant_id()
    here.done("tenant", "delete", "acme", "--yes")
    for words in ([], ["--as", "copy"]):
        assert "deleted on purpose" in here.fails("restore", here.folder / "b", *words)
    found = here.data("restore", here.folder / "b", "--although-deleted")
    assert (found["tenant_id"], found["withdrawn_again"]) == (tenant_id, {"member": 1})
    assert here.cited("bo", NOTICE) == ["notice.md"]
    assert here.cited("ana", NOTICE) == []
    assert here.data("key", "list", "--tenant", "acme") == []
    events = here.data("audit", "query", "--tenant", "acme", "--limit", "1000")["events"]
    actions = {event["action"] for event in events}
    assert {"ingest", "tenant.delete", "tenant.restore"} <= actions
    assert here.data("audit", "verify", "--tenant", "acme")[0]["verdict"] == "ok"


def test_another_node_needs_the_recovery_key_and_says_what_it_does_not_know(
    here: Node, nodes: Callable[[str], Node]
) -> None:
    key = here.folder / "desk.pem"
    here.done("master", "recovery-key", key)
    here.done("backup", here.folder / "b", "--tenant", "acme", "--for", f"{key}.pub")
    there = nodes("there")
    assert "--key" in there.fails("restore", here.folder / "b")
    assert "no private recovery key" in there.fails("restore", here.folder / "b", "--key", f"{key}.pub")
    code, out, err = there("restore", here.folder / "b", "--key", key)
    assert code == 0, err
    assert "withdrawals: unknown" in out
    assert there.data("tenant", "show", "acme")["restored"]["withdrawals"] == "unknown"
    assert "is not known here" in err
    assert there.tenant_id() == here.tenant_id()
    assert there.cited("ana", SALARY) == ["salaries.md"]
    assert there.data("audit", "verify", "--tenant", "acme")[0]["verdict"] == "ok"
    events = there.data("audit", "query", "--tenant", "acme", "--limit", "1000")["events"]
    sealed = [event["content"] for event in events if "content" in event and event["action"] == "ingest"]
    # The subjects' keys stayed at home: names and questions of the time before cannot be read here.
    assert sealed
    assert all("text" not in value for content in sealed for value in content.values())


@pytest.mark.slow
def test_a_ledger_brought_along_withdraws_elsewhere_too(here: Node, nodes: Callable[[str], Node]) -> None:
    key = here.folder / "desk.pem"
    here.done("master", "recovery-key", key)
    here.done("backup", here.folder / "old", "--tenant", "acme", "--for", f"{key}.pub", "--ledger-only")
    here.done("backup", here.folder / "b", "--tenant", "acme", "--for", f"{key}.pub")
    here.done("group", "remove", "staff", "ana", "--tenant", "acme")
    ledger = here.folder / "ledger"
    assert here.data("backup", ledger, "--tenant", "acme", "--for", f"{key}.pub", "--ledger-only")["withdrawals"] == 1
    there = nodes("there")
    restore = ["restore", here.folder / "b", "--key", key, "--ledger"]
    assert "older than the backup" in there.fails(*restore, here.folder / "old")
    assert "holds a tenant" in there.fails(*restore, here.folder / "b")
    assert there.data(*restore, ledger)["withdrawn_again"] == {"member": 1}
    assert there.cited("ana", NOTICE) == []
    # It lies there from now on: later backups and restores go on with it.
    there.done("group", "add", "staff", "ana", "--tenant", "acme")
    there.done("backup", there.folder / "b2", "--tenant", "acme")
    there.done("group", "remove", "staff", "bo", "--tenant", "acme")
    assert there.data("restore", there.folder / "b2", "--as", "copy")["withdrawn_again"] == {"member": 1}
    assert there.cited("ana", NOTICE, "copy") == ["notice.md"]
    assert there.cited("bo", NOTICE, "copy") == []


def test_the_ledger_of_a_deleted_tenant_tells_of_its_deletion(here: Node, nodes: Callable[[str], Node]) -> None:
    key = here.folder / "desk.pem"
    here.done("master", "recovery-key", key)
    here.done("backup", here.folder / "b", "--tenant", "acme", "--for", f"{key}.pub")
    tenant_id = here.tenant_id()
    here.done("tenant", "delete", "acme", "--yes")
    here.done("backup", here.folder / "ledger", "--tenant", tenant_id, "--for", f"{key}.pub", "--ledger-only")
    there = nodes("there")
    restore = ["restore", here.folder / "b", "--key", key, "--ledger", here.folder / "ledger"]
    assert "deleted on purpose" in there.fails(*restore)
    assert there.data(*restore, "--although-deleted")["tenant_id"] == tenant_id


def test_a_restore_that_dies_before_its_commit_leaves_nothing(here: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    here.done("backup", here.folder / "b", "--tenant", "acme")
    before = {name for name in here.files() if name.startswith("tenants/")}

    def dies(path: Path) -> None:
        if path.name == "tenants":
            raise KeyboardInterrupt

    monkeypatch.setattr(adoption, "sync_directory", dies)
    assert here("restore", here.folder / "b", "--as", "copy")[0] == 130
    monkeypatch.undo()
    assert {name for name in here.files() if name.startswith("tenants/")} == before
    assert [row["name"] for row in here.data("tenant", "list")] == ["acme"]
    assert here.data("restore", here.folder / "b", "--as", "copy")["documents"] == 2


def test_what_a_killed_restore_left_is_swept(here: Node) -> None:
    settings = load_settings(environment=here.environment)
    control = open_control(settings)
    data = here.folder / "data"
    (data / "tenants/t_orphan").mkdir()
    (data / "arriving").mkdir(exist_ok=True)
    known = here.tenant_id()
    for name in (f"tenants.{known}", "tenants.t_orphan", "tenants.t_none"):
        (data / "arriving" / name).touch()
    control.tenants.sweep()
    assert not (data / "tenants/t_orphan").exists()
    assert (data / "tenants" / known).exists()
    assert list((data / "arriving").iterdir()) == []
    control.close()


def test_no_server_takes_a_restored_state_for_one_that_it_holds(here: Node) -> None:
    here.done("backup", here.folder / "b", "--tenant", "acme")
    here.done("restore", here.folder / "b", "--as", "copy")
    control = open_control(load_settings(environment=here.environment))
    tenants, people = control.tenants, control.authenticator
    with tenants.open(people.operator("acme")).reading() as old, tenants.open(people.operator("copy")).reading() as new:
        assert new.epochs.changes > old.epochs.changes + 10**6
        assert new.epochs.corpus > old.epochs.corpus
        physical = [set(view.execute(select(schema.collections.c.physical)).scalars()) for view in (old, new)]
        assert physical[0].isdisjoint(physical[1])
        assert set(new.execute(select(schema.collections.c.applied)).scalars()) == {-1}
    control.close()


def test_a_backup_beside_an_ingestion_is_of_one_moment(here: Node) -> None:
    control = open_control(load_settings(environment=here.environment))
    handle = control.tenants.open(control.authenticator.operator("acme"))
    done, made = threading.Event(), threading.Event()

    def loads() -> None:
        number = 0
        while not done.is_set():
            # Two in one transaction: a backup has both or none.
            with handle.writing() as view:
                directory.ensure_user(view, f"pair{number}a", 0.0)
                directory.ensure_user(view, f"pair{number}b", 0.0)
            number += 1
            made.set()

    writer = threading.Thread(target=loads)
    writer.start()
    made.wait()
    try:
        for number in range(5):
            back_up(control, "acme", here.folder / f"b{number}")
    finally:
        done.set()
        writer.join()
    control.close()
    counts = [here.data("restore", here.folder / f"b{number}", "--as", f"copy{number}")["users"] for number in range(5)]
    assert all(count % 2 == 0 for count in counts)
    assert counts == sorted(counts)
    assert counts[0] >= 4


def test_the_export_is_complete_and_says_so(here: Node) -> None:
    import pyarrow.parquet as pq

    target = here.folder / "export"
    counts = here.data("export", target, "--tenant", "acme")
    assert {name: counts[name] for name in ("documents", "chunks", "users", "groups", "vectors")} == {
        "documents": 2, "chunks": 2, "users": 2, "groups": 1, "vectors": 2,
    }  # fmt: skip

    def lines(name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (target / name).read_text().splitlines()]

    documents, chunks = lines("documents.jsonl"), lines("chunks.jsonl")
    assert {one["name"]: (one["allow"], one["deny"]) for one in documents} == {
        "notice.md": (["group:staff"], []), "salaries.md": (["user:ana", "user:bo"], []),
    }  # fmt: skip
    assert {one["text"] for one in chunks} == {HANDBOOK, SALARIES}
    assert {one["document"] for one in chunks} == {"notice.md", "salaries.md"}
    assert lines("groups.jsonl") == [{"name": "staff", "members": ["user:ana", "user:bo"]}]
    table = pq.read_table(target / "vectors.parquet").to_pydict()
    assert table["chunk_id"] == [one["id"] for one in chunks]
    assert {len(vector) for vector in table["vector"]} == {256}
    manifest = json.loads((target / "manifest.json").read_text())
    assert set(manifest["files"]) | {"manifest.json"} == {path.name for path in target.iterdir()}
    for name, said in manifest["files"].items():
        content = (target / name).read_bytes()
        assert (len(content), hashlib.sha256(content).hexdigest()) == (said["bytes"], said["sha256"])
    assert "there already" in here.fails("export", target, "--tenant", "acme")


def test_an_export_without_pyarrow_says_what_is_missing(here: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.export.importlib.util.find_spec", lambda _: None)
    assert "strongroom[parquet]" in here.fails("export", here.folder / "e", "--tenant", "acme")
    assert not (here.folder / "e").exists()
    assert here.data("export", here.folder / "e", "--tenant", "acme", "--no-vectors")["documents"] == 2
    assert not (here.folder / "e/vectors.parquet").exists()


def test_an_export_that_fails_leaves_no_folder(here: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("service.export._manifest", fails)
    assert here("export", here.folder / "e", "--tenant", "acme")[0] == 130
    assert [path.name for path in here.folder.iterdir() if "partial" in path.name or path.name == "e"] == []


def test_a_tenants_key_is_changed_and_its_certificate_and_log_outlive_it(here: Node) -> None:
    assert here.data("tenant", "rotate-key", "acme") == {"name": "acme", "generation": 2}
    assert here.cited("ana", NOTICE) == ["notice.md"]
    here.done("backup", here.folder / "b", "--tenant", "acme")
    assert here.data("restore", here.folder / "b", "--as", "copy")["documents"] == 2
    public = here.data("doctor", "--public-key")["public_key"]
    assert here.done("doctor", "--public-key") == f"{public}\n"
    tenant_id = here.tenant_id()
    certificate = json.loads(here.done("tenant", "delete", "acme", "--yes"))
    assert certificate["public_key"] == public
    assert json.loads(here.done("tenant", "certificate", "acme")) == certificate
    assert json.loads(here.done("tenant", "certificate", tenant_id)) == certificate
    assert "was deleted" in here.fails("tenant", "certificate", "globex")
    events = here.data("audit", "query", "--deleted", tenant_id, "--limit", "1000")["events"]
    assert {"ingest", "answer", "tenant.rotate_key", "tenant.delete"} <= {event["action"] for event in events}
    (verdict,) = here.data("audit", "verify", "--deleted", tenant_id)
    assert (verdict["log"], verdict["verdict"]) == (tenant_id, "ok")
    assert verdict["records"] >= certificate["audit_log"]["size"]
    assert "--deleted" in here.fails("audit", "query")
    assert "no such tenant" in here.fails("audit", "query", "--deleted", "t_none")
    seen = here.data("audit", "query", "--system")["events"]
    assert "audit.query" in {event["action"] for event in seen}


@pytest.mark.slow
def test_a_lost_ledger_is_said_where_it_would_have_been_needed(here: Node) -> None:
    here.done("group", "remove", "staff", "bo", "--tenant", "acme")
    here.done("backup", here.folder / "b", "--tenant", "acme")
    (here.folder / "data/audit" / here.tenant_id() / "ledger.sqlite").write_bytes(b"")
    code, out, err = here("restore", here.folder / "b", "--as", "copy")
    assert (code, "withdrawals: lost" in out, "is not known here" in err) == (0, True, True)
    here.done("group", "remove", "staff", "ana", "--tenant", "acme")
    found = here.data("restore", here.folder / "b", "--as", "again")
    assert (found["withdrawals"], found["withdrawn_again"]) == ("lost in part", {"member": 1})
    here.done("backup", here.folder / "b2", "--tenant", "acme")
    assert here.data("restore", here.folder / "b2", "--as", "third")["withdrawals"] == "this data directory"


def test_a_document_deleted_by_command_is_gone_from_answers_files_and_backups(here: Node) -> None:
    here.done("backup", here.folder / "b", "--tenant", "acme")
    listed = here.data("document", "list", "--tenant", "acme")
    assert [row["name"] for row in listed] == ["notice.md", "salaries.md"]
    assert [row["name"] for row in here.data("document", "list", "--tenant", "acme", "--after", "notice.md")] == [
        "salaries.md"
    ]
    shown = here.data("document", "show", "salaries.md", "--tenant", "acme")
    assert (shown["allow"], shown["chunks"]) == (["user:ana", "user:bo"], 1)
    assert SALARIES not in json.dumps(shown)
    assert here.data("document", "delete", "salaries.md", "--tenant", "acme") == {"deleted": ["salaries.md"]}
    assert here.cited("ana", SALARY) == []
    assert "no such document" in here.fails("document", "show", "salaries.md", "--tenant", "acme")
    assert "no such document" in here.fails("document", "delete", "salaries.md", "--tenant", "acme")
    assert here.data("restore", here.folder / "b", "--as", "copy")["withdrawn_again"] == {"document": 1}
    assert [row["name"] for row in here.data("document", "list", "--tenant", "copy")] == ["notice.md"]
    events = here.data("audit", "query", "--tenant", "acme", "--document", "salaries.md")["events"]
    assert {"document.delete", "document.show"} <= {event["action"] for event in events}
