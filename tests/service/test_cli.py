from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from admission.roots import Terms, minted, signed
from retrieval.roots import root_key
from service.cli import app, run
from service.cli.console import DEFAULT, print_json, show_table
from service.control import open_control
from service.settings import load_settings
from tests.layout.scope_rule import ROOT

Run = Callable[..., tuple[int, str, str]]
HANDBOOK = "The notice period is three months."


@pytest.fixture
def cli(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command in this process; gives exit code, standard output and standard error."""
    for name in [name for name in os.environ if name.startswith("STRONGROOM_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("STRONGROOM_DATA_DIR", str(folder / "data"))
    monkeypatch.setenv("STRONGROOM_MASTER_KEY_FILE", str(folder / "master.key"))
    monkeypatch.setenv("STRONGROOM_EMBEDDING__MODEL", "hashing:256")

    def go(*words: str) -> tuple[int, str, str]:
        code = run(words)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return go


def test_a_reader_that_goes_away_is_no_error(cli: Run) -> None:
    program = [sys.executable, "-c", "from service.cli import main; main()", "doctor", "--settings"]
    for unbuffered in ("", "1"):
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": unbuffered}
        reading, writing = os.pipe()
        os.close(reading)
        done = subprocess.run(program, env=environment, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
        os.close(writing)
        assert (done.returncode, done.stderr) == (141, "")


@pytest.fixture
def acme(cli: Run, folder: Path) -> Run:
    """A tenant with one document for the group staff, of which ana is a member and bo is not."""
    assert cli("doctor", "--create-master-key")[0] == 0
    assert cli("tenant", "create", "acme")[0] == 0
    assert cli("key", "create", "--tenant", "acme", "--user", "ana", "--group", "staff")[0] == 0
    assert cli("key", "create", "--tenant", "acme", "--user", "bo")[0] == 0
    (folder / "docs").mkdir()
    (folder / "docs" / "notice.md").write_text(HANDBOOK)
    assert cli("ingest", "--tenant", "acme", str(folder / "docs"), "--allow", "group:staff")[0] == 0
    return cli


def data(result: tuple[int, str, str]) -> Any:
    code, out, err = result
    assert code == 0, err
    return json.loads(out)


def test_without_a_master_key_the_remedy_is_said(cli: Run) -> None:
    code, out, err = cli("tenant", "create", "acme")
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert "strongroom doctor --create-master-key" in err


def test_a_master_key_is_private_and_never_overwritten(cli: Run, folder: Path) -> None:
    assert cli("doctor", "--create-master-key")[0] == 0
    key = folder / "master.key"
    assert key.stat().st_mode & 0o777 == 0o600
    before = key.read_bytes()
    assert cli("doctor", "--create-master-key")[0] == 1
    assert key.read_bytes() == before
    assert cli("tenant", "create", "acme")[0] == 0
    key.unlink()
    code, _, err = cli("doctor", "--create-master-key")
    assert (code, "another master key" in err) == (1, True)


def test_tenants_from_creation_to_the_certificate(cli: Run) -> None:
    cli("doctor", "--create-master-key")
    assert data(cli("tenant", "create", "acme", "--json"))["status"] == "active"
    assert [row["name"] for row in data(cli("tenant", "list", "--json"))] == ["acme"]
    assert cli("tenant", "list")[1].split("\t")[0] == "acme"
    assert data(cli("tenant", "list", "--after", "acme", "--json")) == []
    assert cli("tenant", "create", "acme")[2].startswith("error: acme: a tenant of this name exists")
    assert data(cli("tenant", "suspend", "acme", "--json"))["status"] == "suspended"
    assert data(cli("tenant", "show", "acme", "--json"))["status"] == "suspended"
    assert cli("group", "list", "--tenant", "acme")[0] == 1
    assert data(cli("tenant", "resume", "acme", "--json"))["status"] == "active"
    code, _, err = cli("tenant", "delete", "acme")
    assert (code, "--yes" in err) == (2, True)
    certificate = data(cli("tenant", "delete", "acme", "--yes"))
    assert certificate["tenant"] == "acme"
    assert certificate["signature"]
    assert data(cli("tenant", "list", "--json")) == []
    system = data(cli("audit", "query", "--system", "--json"))["events"]
    assert [event["action"] for event in system if event["phase"] == "outcome"] == [
        "tenant.delete", "tenant.create", "tenant.create",
    ]  # fmt: skip
    assert [event["outcome"] for event in system if event["phase"] == "outcome"] == ["allowed", "refused", "allowed"]


def test_keys_are_shown_once_and_revoked(acme: Run) -> None:
    made = data(acme("key", "create", "-t", "acme", "--user", "cy", "--role", "ingest", "--days", "1", "--json"))
    assert made["key"].startswith(f"sr_live_{made['id']}_")
    listed = acme("key", "list", "--tenant", "acme", "--json")
    assert made["key"] not in listed[1]
    row = next(row for row in data(listed) if row["id"] == made["id"])
    assert (row["user"], row["roles"], row["revoked"]) == ("cy", ["ingest"], None)
    assert row["expires"] > row["created"]
    assert acme("key", "revoke", made["id"], "--tenant", "acme")[0] == 0
    row = next(row for row in data(acme("key", "list", "--tenant", "acme", "--json")) if row["id"] == made["id"])
    assert row["revoked"]
    assert acme("key", "revoke", "nothing", "--tenant", "acme")[0] == 1
    assert acme("key", "create", "--tenant", "acme", "--user", "x", "--role", "boss")[0] == 2
    assert acme("key", "create", "--tenant", "acme", "--user", "x", "--days", "0")[0] == 2


def test_what_a_user_may_read_follows_groups_and_lists(acme: Run) -> None:
    def cited(user: str) -> list[str]:
        found = data(acme("ask", "How long is the notice period?", "--tenant", "acme", "--user", user, "--json"))
        return [citation["document"] for citation in found["citations"]]

    assert (cited("ana"), cited("bo")) == (["notice.md"], [])
    assert data(acme("group", "add", "staff", "bo", "--tenant", "acme", "--json")) == {"group": "staff", "added": 1}
    assert cited("bo") == ["notice.md"]
    assert data(acme("group", "list", "--tenant", "acme", "--json")) == [
        {"group": "staff", "members": ["user:ana", "user:bo"]}
    ]
    assert acme("acl", "set", "notice.md", "--tenant", "acme", "--allow", "tenant", "--deny", "user:ana")[0] == 0
    assert (cited("ana"), cited("bo")) == ([], ["notice.md"])
    shown = data(acme("acl", "show", "notice.md", "--tenant", "acme", "--json"))
    assert shown == {"document": "notice.md", "allow": ["tenant"], "deny": ["user:ana"]}
    assert data(acme("group", "remove", "staff", "bo", "nobody", "--tenant", "acme", "--json"))["removed"] == 1
    assert acme("acl", "show", "none.md", "--tenant", "acme")[0] == 1
    assert acme("acl", "set", "notice.md", "--tenant", "acme", "--allow", "everyone")[0] == 2
    assert acme("ask", "anything", "--tenant", "acme", "--user", "nobody")[0] == 1
    assert acme("ask", "", "--tenant", "acme", "--user", "ana")[0] == 2


def test_a_question_at_the_console_draws_on_its_user_s_root(acme: Run) -> None:
    with closing(open_control(load_settings())) as control:
        ana = control.authenticator.operator("acme", "ana")
        tenant = control.tenants.open(ana)
        terms = {calls: Terms(calls=calls, until=time.time() + 600) for calls in (0, 1)}
        none, one = (
            signed(minted(given), root_key(tenant), ana.tenant_id, ana.user_id) for given in terms.values()
        )  # fmt: skip
    words = ("ask", "How long is the notice period?", "--tenant", "acme", "--user")
    assert acme(*words, "ana", "--root", one)[0] == 0
    code, _, err = acme(*words, "ana", "--root", none)
    assert (code, "the root's limit of 0 requests" in err) == (1, True)
    for wrong in ((*words, "bo", "--root", one), (*words, "ana", "--root", "sr_root.x.y")):
        code, _, err = acme(*wrong)
        assert (code, "this root id was not minted for this user" in err) == (1, True)


def test_a_new_group_in_a_list_is_pointed_out(acme: Run) -> None:
    _, _, err = acme("acl", "set", "notice.md", "--tenant", "acme", "--allow", "group:stafff")
    assert "note: there was no group stafff yet" in err


def test_an_answer_for_people_shows_its_source_and_no_control_characters(acme: Run, folder: Path) -> None:
    (folder / "docs" / "evil.md").write_text("The escape sequence of the day is \x1b]0;owned\x07 clear.")
    acme("ingest", "--tenant", "acme", str(folder / "docs"), "--allow", "tenant")
    code, out, _ = acme("ask", "How long is the notice period?", "--tenant", "acme", "--user", "ana")
    assert code == 0
    assert "three months" in out
    assert "notice.md" in out
    code, out, _ = acme("ask", "What is the escape sequence of the day?", "--tenant", "acme", "--user", "ana")
    assert (code, "\x1b" in out, "\x07" in out) == (0, False, False)


def test_ingestion_names_each_failure_and_goes_on(acme: Run, folder: Path) -> None:
    docs = folder / "docs"
    (docs / "broken.pdf").write_bytes(b"%PDF-1.7 nothing")
    (docs / "second.md").write_text("Holidays are thirty days.")
    code, out, err = acme("ingest", "--tenant", "acme", str(docs), "--allow", "tenant")
    assert code == 1
    assert "corrupt: broken.pdf: " in err
    assert "indexed: second.md" in out
    assert out.splitlines()[-4:] == ["indexed\t1", "unchanged\t1", "corrupt\t1", "1 added, 1 acl_updated"]
    code, out, _ = acme("ingest", "--tenant", "acme", str(docs), "--json")
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line["status"] for line in lines[:-1]] == ["corrupt", "unchanged", "unchanged"]
    assert (lines[-1]["unchanged"], lines[-1]["corrupt"], code) == (2, 1, 1)
    for name in ("broken.pdf", "second.md"):
        (docs / name).unlink()
    code, out, _ = acme("ingest", "--tenant", "acme", str(docs), "--prune")
    assert (code, "removed: second.md" in out) == (0, True)


def test_the_summary_counts_what_lost_all_readers_and_what_another_folder_gave(acme: Run, folder: Path) -> None:
    docs, other = folder / "docs", folder / "other"
    (docs / "second.md").write_text("Holidays are thirty days.")
    words = ["ingest", "--tenant", "acme"]
    code, _, err = acme(*words, str(docs), "--allow", "tenant")
    assert (code, "lost all readers" in err, "another folder" in err) == (0, False, False)
    manifest = folder / "part.csv"
    manifest.write_text("path,allow\nsecond.md,tenant\n")
    code, out, err = acme(*words, str(docs), "--manifest", str(manifest), "--json")
    last = json.loads(out.splitlines()[-1])
    assert (code, last["lost_all_readers"], last["from_other_folders"]) == (0, 1, 0)
    assert "1 of the known documents lost all readers in this run" in err
    assert "--manifest" in err
    other.mkdir()
    (other / "second.md").write_text("Holidays are forty days.")
    code, _, err = acme(*words, str(other))
    assert (code, "1 of the documents replaced" in err, str(docs.resolve()) in err) == (0, True, True)
    assert "lost all readers" not in err


def test_items_are_listed_by_status_and_pruning_has_a_limit(acme: Run, folder: Path) -> None:
    docs = folder / "docs"
    (docs / "broken.pdf").write_bytes(b"%PDF-1.7 nothing")
    acme("ingest", "--tenant", "acme", str(docs))
    found = data(acme("document", "list", "--tenant", "acme", "--status", "corrupt", "--json"))
    assert [(one["name"], one["status"], bool(one["reason"])) for one in found] == [("broken.pdf", "corrupt", True)]
    assert acme("document", "list", "--tenant", "acme", "--status", "added")[0] == 2
    for path in docs.iterdir():
        path.unlink()
    words = ["ingest", "--tenant", "acme", str(docs), "--prune"]
    code, _, err = acme(*words)
    assert (code, "1 of its 1 documents have no file any more" in err) == (1, True)
    code, out, _ = acme(*words, "--prune-limit", "1")
    assert (code, "removed: notice.md" in out) == (0, True)
    assert [
        one["name"] for one in data(acme("document", "list", "--tenant", "acme", "--status", "removed", "--json"))
    ] == ["notice.md"]
    assert acme("ingest", "--tenant", "acme", str(docs), "--prune-limit", "1")[0] == 2


def test_ingestion_says_that_nobody_reads_what_no_rule_names(acme: Run, folder: Path) -> None:
    docs = folder / "docs"
    (docs / "faq.jsonl").write_text('{"text": "Visitors park on P2."}\n{"text": "Lunch is at noon."}\n')
    (docs / "secret.md").write_text("The code is in the safe.")
    rules = folder / "access.toml"
    rules.write_text('[[rule]]\npath = "faq.jsonl"\nallow = ["tenant"]\n')
    code, _, err = acme("ingest", "--tenant", "acme", str(docs), "--acl", str(rules))
    told, lost = err.splitlines()
    assert (code, told) == (
        0,
        "note: nobody reads 1 of the new documents: no --allow, rule, manifest or folder names them",
    )
    assert "1 of the known documents lost all readers" in lost
    (docs / "new.md").write_text("New.")
    assert "nobody reads 1 of" in acme("ingest", "--tenant", "acme", str(docs))[2]
    assert acme("ingest", "--tenant", "acme", str(docs))[2] == ""


def test_ingestion_takes_rules_and_says_which_fit_nothing(acme: Run, folder: Path) -> None:
    docs = folder / "docs"
    rules = docs / "access.toml"
    rules.write_text('[[rule]]\npath = "*.md"\nallow = ["user:bo"]\n[[rule]]\npath = "hr/**"\nallow = ["group:hr"]\n')
    code, out, err = acme("ingest", "--tenant", "acme", str(docs), "--acl", str(rules))
    assert (code, "access.toml, rule 2 fits no document" in err) == (0, True)
    assert "access.toml" not in out
    assert data(acme("acl", "show", "notice.md", "--tenant", "acme", "--json"))["allow"] == ["user:bo"]
    assert acme("ingest", "--tenant", "acme", str(docs), "--acl", str(rules), "--allow", "tenant")[0] == 2
    assert acme("ingest", "--tenant", "acme", str(docs / "nowhere"))[0] == 2
    assert acme("ingest", "--tenant", "nobody", str(docs))[0] == 1


def test_the_cache_is_shown_invalidated_and_opened_loudly(acme: Run) -> None:
    for _ in range(2):
        acme("ask", "How long is the notice period?", "--tenant", "acme", "--user", "ana")
    assert data(acme("cache", "stats", "--tenant", "acme", "--json"))["entries"] == 1
    (entry,) = data(acme("cache", "inspect", "--tenant", "acme", "--json"))
    assert "question" not in entry
    (entry,) = data(acme("cache", "inspect", "--tenant", "acme", "--questions", "--json"))
    assert entry["question"] == "How long is the notice period?"
    assert acme("cache", "invalidate", "--tenant", "acme")[0] == 2
    assert data(acme("cache", "invalidate", "--tenant", "acme", "--user", "ana", "--json")) == {"removed": 1}
    opening = ("cache", "open", "--tenant", "acme", "--threshold", "0.9", "--reason", "trial")
    assert acme(*opening)[0] == 2
    code, _, err = acme(*opening, "--uncertified", "--template", "defualt")
    assert (code, "may name default" in err) == (2, True)
    code, _, err = acme(*opening, "--uncertified")
    assert (code, "UNCERTIFIED" in err) == (0, True)
    stats = data(acme("cache", "stats", "--tenant", "acme", "--json"))
    assert [one["state"] for one in stats["open_templates"]] == ["uncertified"]
    (line,) = (line for line in acme("cache", "stats", "--tenant", "acme")[1].splitlines() if "open_templates" in line)
    assert json.loads(line.partition(": ")[2])["reason"] == "trial"
    assert acme("cache", "close", "--tenant", "acme")[0] == 0
    assert acme("cache", "close", "--tenant", "acme")[0] == 1


def test_the_audit_is_queried_and_verified(acme: Run) -> None:
    acme("ask", "How long is the notice period?", "--tenant", "acme", "--user", "ana")
    page = data(acme("audit", "query", "--tenant", "acme", "--action", "answer", "--json"))
    assert [event["phase"] for event in page["events"]] == ["outcome", "intent"]
    table = acme("audit", "query", "--tenant", "acme", "--actor", "ana", "--limit", "1")[1]
    assert "more: --after " in table
    # The outcome alone fits the page; who asked what comes from its intent.
    assert "\tana\tanswer\tallowed\tmiss\tHow long is the notice period?\tnotice.md (cited)" in table
    rows = acme("audit", "query", "--tenant", "acme", "--document", "notice.md")[1].splitlines()
    assert [row.split("\t")[3] for row in rows] == ["answer", "ingest"]
    by_document = data(acme("audit", "query", "--tenant", "acme", "--document", "notice.md", "--json"))["events"]
    assert {event["action"] for event in by_document} == {"answer", "ingest"}
    for words in (("--tenant", "acme"), ()):
        rows = data(acme("audit", "verify", *words, "--json"))
        assert {row["verdict"] for row in rows} == {"ok"}
    assert acme("audit", "query")[0] == 2
    assert acme("audit", "query", "--tenant", "acme", "--limit", "0")[0] == 2
    assert acme("audit", "query", "--tenant", "acme", "--actor", "nobody")[0] == 1


def test_every_mutating_command_is_on_record(acme: Run, folder: Path) -> None:
    acme("group", "add", "staff", "bo", "--tenant", "acme")
    acme("group", "remove", "staff", "bo", "--tenant", "acme")
    acme("acl", "set", "notice.md", "--tenant", "acme", "--allow", "tenant")
    key = data(acme("key", "create", "--tenant", "acme", "--user", "cy", "--json"))["id"]
    acme("key", "revoke", key, "--tenant", "acme")
    acme("cache", "open", "--tenant", "acme", "--threshold", "0.9", "--reason", "trial", "--uncertified")
    acme("cache", "close", "--tenant", "acme")
    acme("cache", "invalidate", "--tenant", "acme", "--all")
    acme("ingest", "--tenant", "acme", str(folder / "docs"))
    acme("tenant", "suspend", "acme")
    acme("tenant", "resume", "acme")
    events = data(acme("audit", "query", "--tenant", "acme", "--order", "asc", "--limit", "1000", "--json"))["events"]
    done = [event["action"] for event in events if event["phase"] == "outcome" and event["outcome"] == "allowed"]
    assert done == [
        "key.create", "key.create", "ingest", "group.add", "group.remove", "acl.set", "key.create", "key.revoke",
        "cache.open", "cache.close", "cache.invalidate", "ingest", "tenant.suspend", "tenant.resume",
    ]  # fmt: skip
    assert {event["phase"] for event in events} == {"intent", "outcome"}
    # Whom a change concerns is not in the clear.
    assert '"user:' not in json.dumps(events)


def test_doctor_finds_nothing_wrong_and_then_something(acme: Run, folder: Path) -> None:
    rows = data(acme("doctor", "--json"))
    assert {row["state"] for row in rows} <= {"ok", "note"}
    assert {"master key", "sqlite", "fsync", "descriptors", "pool default", "engines", "prices"} <= {
        row["check"] for row in rows
    }
    (folder / "master.key").chmod(0o644)
    code, out, _ = acme("doctor", "--json")
    wrong = [row for row in json.loads(out) if row["state"] == "wrong"]
    assert (code, [row["check"] for row in wrong]) == (1, ["master key"])
    assert "chmod 600" in wrong[0]["remedy"]
    (folder / "master.key").write_text("A" * 43 + "=\n")
    code, out, _ = acme("doctor", "--json")
    assert (code, "control plane" in [row["check"] for row in json.loads(out) if row["state"] == "wrong"]) == (1, True)


def test_doctor_says_which_price_lists_cannot_be_read(cli: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    cli("doctor", "--create-master-key")
    for key, value, said in (("FOLDER", "/nowhere", "/nowhere"), ("PLAN", "gold", "the plans are example, none")):
        with monkeypatch.context() as change:
            change.setenv(f"STRONGROOM_PRICES__{key}", value)
            code, out, _ = cli("doctor", "--json")
        (row,) = [row for row in json.loads(out) if row["check"] == "prices"]
        assert (code, row["state"]) == (1, "wrong")
        assert said in f"{row['finding']} {row['remedy']}"


def test_doctor_says_that_a_generator_is_away(cli: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    cli("doctor", "--create-master-key")
    for key, value in {"KIND": "sglang", "BASE_URL": "http://127.0.0.1:9", "MODEL": "m", "REVISION": "r"}.items():
        monkeypatch.setenv(f"STRONGROOM_GENERATION__{key}", value)
    code, out, _ = cli("doctor", "--json")
    pool, row = [row for row in json.loads(out) if row["check"] in {"pool default", "replica default"}]
    assert (code, row["state"], pool["state"]) == (1, "wrong", "wrong")
    assert pool["finding"] == "m, trust level shared, 0 of 1 replicas answer"
    assert row["finding"].startswith("http://127.0.0.1:9: the generator cannot be reached")


def test_doctor_lists_the_settings(cli: Run) -> None:
    rows = {row["setting"]: row["value"] for row in data(cli("doctor", "--settings", "--json"))}
    assert rows["embedding.model"] == "hashing:256"
    assert rows["server.port"] == 8080


@pytest.mark.parametrize(
    "words",
    [
        (), ("nonsense",), ("tenant", "nonsense"), ("tenant", "show"), ("key", "list"), ("ask", "x"),
        ("tenant", "list", "--jsno"), ("audit", "query", "--limit", "many", "--system"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_wrong_usage_is_2_and_on_standard_error(cli: Run, words: tuple[str, ...]) -> None:
    cli("doctor", "--create-master-key")
    code, out, err = cli(*words)
    if not words:
        assert (code, "Usage: strongroom" in out) == (0, True)
        return
    assert (code, out) == (2, "")
    assert err.startswith("error: ")


@pytest.mark.parametrize(
    ("words", "missing"),
    [
        (("ingest", "docs"), "--tenant"), (("ingest", "docs", "--tenant"), "the value of --tenant"),
        (("ask", "-t", "acme", "--user", "ana"), "QUESTION"), (("key", "revoke", "--tenant", "acme"), "KEY"),
    ],
)  # fmt: skip
def test_what_is_missing_is_named_with_the_help_that_explains_it(
    cli: Run, words: tuple[str, ...], missing: str
) -> None:
    code, _, err = cli(*words)
    assert code == 2
    assert err.startswith(f"error: {missing} is missing (`strongroom {words[0]}")


@pytest.mark.parametrize(
    ("words", "command"),
    [(("audit", "query", "--outcome", "denied"), "audit query "), (("audit", "qury"), "audit "), (("nix",), "")],
)
def test_wrong_usage_points_at_the_help_of_its_own_command(cli: Run, words: tuple[str, ...], command: str) -> None:
    code, _, err = cli(*words)
    assert (code, f"(`strongroom {command}--help` shows" in err) == (2, True)


def test_a_misspelt_setting_is_2(cli: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRONGROOM_SERVER__PROT", "1")
    code, _, err = cli("tenant", "list")
    assert (code, "did you mean server.port?" in err) == (2, True)


@pytest.mark.parametrize("terminal", [True, False])
def test_json_writes_nothing_strange_to_a_terminal_and_has_a_form_for_all(
    terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    value = {"name": "é\x9b2J\x7f\u202e\udce9", "lines": "a\nb"}
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    print_json(value)
    said = capsys.readouterr().out
    assert json.loads(said) == value
    assert said.encode()
    assert "é" in said
    assert not terminal or not {"\x9b", "\x7f", "\u202e"} & set(said)


def test_the_help_teaches_and_covers_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    text = capsys.readouterr().out
    for word in ("First steps", "Exit codes", "STRONGROOM_CONFIG", *(name for name in app if not name.startswith("-"))):
        assert word in text


def test_a_light_command_loads_nothing_heavy(tmp_path: Path) -> None:
    code = (
        "import sys; from service.cli import run; run(['tenant', 'list']); "
        "sys.exit(sorted({'torch', 'faiss', 'litestar', 'uvicorn', 'httpx', 'sentence_transformers'} "
        "& set(sys.modules)) or 0)"
    )
    environment = {**os.environ, "STRONGROOM_DATA_DIR": str(tmp_path / "d"), "STRONGROOM_MASTER_KEY": "A" * 43 + "="}
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr


def test_tenants_are_listed_in_pages_and_streamed(cli: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from service.cli import listing
    from tenancy import control

    cli("doctor", "--create-master-key")
    for name in ("a", "b", "c", "d", "e"):
        assert cli("tenant", "create", name)[0] == 0
    monkeypatch.setattr(listing, "MOST_LISTED", 2)
    monkeypatch.setattr(control.Tenants.page, "__defaults__", ("", 2))
    assert [row["name"] for row in data(cli("tenant", "list", "--json"))] == ["a", "b", "c", "d", "e"]
    assert [line.split("\t")[0] for line in cli("tenant", "list")[1].splitlines()] == ["a", "b", "c", "d", "e"]
    page = ("tenant", "list", "--after", "b", "--limit", "2", "--json")
    assert [row["name"] for row in data(cli(*page))] == ["c", "d"]
    assert cli("tenant", "list", "--after", "e")[1:] == ("", "note: nothing found\n")
    assert cli("tenant", "list", "--limit", "0")[0] == 2


def test_doctor_says_how_many_tenants_the_limit_of_open_files_permits(
    acme: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit, state, tenants in ((1_024, "note", 64), (20_000, "ok", 256)):
        monkeypatch.setattr("service.diagnosis.raise_limit", lambda limit=limit: limit)
        found = {row["check"]: row for row in json.loads(acme("doctor", "--json")[1])}["descriptors"]
        assert (found["state"], f"{limit} open files" in found["finding"]) == (state, True)
        assert f"{tenants} tenants" in found["finding"]
        assert (found["remedy"] is None) == (state == "ok")


def test_a_table_that_would_break_words_is_shown_as_records(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"seq": 1, "user": "operator:root", "documents": "contracts/lease.md (cited)"}]
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "30")
    show_table(DEFAULT, rows, list(rows[0]))
    assert capsys.readouterr().out == "seq: 1\nuser: operator:root\ndocuments: contracts/lease.md (cited)\n\n"
    monkeypatch.setenv("COLUMNS", "80")
    show_table(DEFAULT, rows, list(rows[0]))
    assert "contracts/lease.md (cited)" in capsys.readouterr().out.splitlines()[1]
