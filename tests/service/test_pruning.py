"""`audit prune`: each log after the time of its own class, on record, and nothing that is younger."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import service.retention
from audit.retention import DAYS, cutoff
from service.cli import run
from service.control import open_from
from service.retention import class_of
from tenancy.contract import Retention

Commands = Any


@pytest.fixture
def command(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Commands:
    """Runs commands in a fresh data directory; gives their JSON, or what went wrong."""
    monkeypatch.setenv("STRONGROOM_DATA_DIR", str(folder / "data"))
    monkeypatch.setenv("STRONGROOM_MASTER_KEY_FILE", str(folder / "master.key"))
    monkeypatch.setenv("STRONGROOM_EMBEDDING__MODEL", "hashing:256")

    def command(*words: str | Path, code: int = 0) -> Any:
        capsys.readouterr()
        found = run([*(str(word) for word in words), "--json"])
        captured = capsys.readouterr()
        assert found == code, captured.err
        return json.loads(captured.out) if captured.out.strip() else captured.err

    command("doctor", "--create-master-key")
    return command


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Retention]:
    """Makes every record that there is so far old, and lists the classes that were asked about."""
    classes: list[Retention] = []

    def passed(retention: Retention, now: float) -> float:
        classes.append(retention)
        return cutoff(retention, now + DAYS[retention] * 86_400.0)

    monkeypatch.setattr(service.retention, "cutoff", passed)
    return classes


def with_contract(command: Commands, folder: Path, name: str, retention: str | None) -> None:
    if retention is None:
        command("tenant", "create", name)
    else:
        file = folder / f"{name}.toml"
        file.write_text(f'[audit]\nretention = "{retention}"\n')
        command("tenant", "create", name, "--contract", file)
    command("key", "create", "--tenant", name, "--user", "ana")


def test_young_records_stay(command: Commands, folder: Path) -> None:
    with_contract(command, folder, "acme", None)
    (row,) = command("audit", "prune", "--tenant", "acme")
    assert (row["retention"], row["records"], row["kept"]) == ("184-days", 0, {})


def test_each_log_has_the_class_of_its_contract(
    command: Commands, folder: Path, asked: list[Retention], monkeypatch: pytest.MonkeyPatch
) -> None:
    with_contract(command, folder, "acme", "6-years")
    with_contract(command, folder, "globex", None)
    monkeypatch.setenv("STRONGROOM_AUDIT__RETENTION", "12-months")
    rows = {row["log"]: row for row in command("audit", "prune")}
    assert {name: row["retention"] for name, row in rows.items()} == {
        "system": "12-months", "acme": "6-years", "globex": "12-months",
    }  # fmt: skip
    # Of a key's creation the intent and the outcome; the pruning's own intent is open and stays.
    assert {name: row["records"] for name, row in rows.items() if name != "system"} == {"acme": 2, "globex": 2}
    assert rows["acme"]["kept"] == {"open intent": 1}
    assert asked == ["12-months", "6-years", "12-months"]
    assert command("audit", "verify")[0]["verdict"] == "ok"
    assert [row["verdict"] for row in command("audit", "verify")] == ["ok"] * 3


def test_a_dry_run_changes_nothing_and_says_the_same(command: Commands, folder: Path, asked: list[Retention]) -> None:
    with_contract(command, folder, "acme", None)
    (dry,) = command("audit", "prune", "--tenant", "acme", "--dry-run")
    assert (dry["records"], dry["dry_run"]) == (2, True)
    events = command("audit", "query", "--tenant", "acme")["events"]
    assert {event["action"] for event in events} >= {"key.create", "audit.retention"}
    (done,) = command("audit", "prune", "--tenant", "acme")
    # By now the dry run and the query are on record too.
    assert (done["records"], done["dry_run"]) == (6, False)
    assert len(asked) == 2


def test_what_was_pruned_is_on_record_with_its_signature(
    command: Commands, folder: Path, asked: list[Retention]
) -> None:
    with_contract(command, folder, "acme", None)
    command("audit", "prune", "--tenant", "acme")
    assert asked
    events = command("audit", "query", "--tenant", "acme", "--action", "audit.prune")["events"]
    (detail,) = [event["detail"] for event in events]
    assert (detail["first"], detail["last"], len(detail["root"])) == (0, 1, 64)
    assert detail["signature"]
    runs = command("audit", "query", "--tenant", "acme", "--action", "audit.retention", "--outcome", "allowed")
    assert [event["detail"]["records"] for event in runs["events"]] == [2]


def test_the_log_of_a_deleted_tenant_is_kept_for_the_longest_class(
    command: Commands, folder: Path, asked: list[Retention]
) -> None:
    with_contract(command, folder, "acme", "184-days")
    deleted = command("tenant", "delete", "acme", "--yes")["tenant_id"]
    placed = command("audit", "hold", "--deleted", deleted, "--reason", "case 17")
    (row,) = command("audit", "prune", "--deleted", deleted)
    # The record of the hold is one of the time that it keeps.
    assert (row["retention"], row["records"], row["kept"]) == ("6-years", 0, {"legal hold": 5})
    command("audit", "release", placed["id"], "--deleted", deleted)
    (row,) = command("audit", "prune", "--deleted", deleted)
    assert (row["retention"], row["records"]) == ("6-years", 5)
    assert asked == ["6-years", "6-years"]


def test_one_log_has_to_be_named_for_a_hold(command: Commands, folder: Path) -> None:
    with_contract(command, folder, "acme", None)
    assert "name one log" in command("audit", "hold", "--reason", "case 17", code=2)
    assert "name one log" in command("audit", "holds", "--tenant", "acme", "--system", code=2)
    assert command("audit", "hold", "--system", "--reason", "case 17")["kind"] == "window"
    assert len(command("audit", "holds", "--system")) == 1


def test_an_unknown_class_is_refused(command: Commands, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = folder / "short.toml"
    file.write_text('[audit]\nretention = "30-days"\n')
    assert "audit.retention" in command("tenant", "create", "acme", "--contract", file, code=2)
    monkeypatch.setenv("STRONGROOM_AUDIT__RETENTION", "30-days")
    assert "audit.retention" in command("tenant", "list", code=2)


def test_the_contracts_class_holds_from_the_next_pruning_on(command: Commands, folder: Path) -> None:
    with_contract(command, folder, "acme", None)
    file = folder / "longer.toml"
    file.write_text('[audit]\nretention = "12-months"\n')
    control = open_from(None)
    try:
        assert class_of(control, "acme") == "184-days"
        command("tenant", "contract", "set", "acme", file)
        assert class_of(control, "acme") == "12-months"
        assert class_of(control, "acme", deleted=True) == "6-years"
        assert class_of(control, None) == "184-days"
    finally:
        control.close()
