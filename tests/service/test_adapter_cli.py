"""`strongroom adapter`: add, list, show, revoke, on record; and what a backup and a restore make of adapters."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from service.cli import run
from service.cli.adapter import _progress
from tests.service.test_adapters import pools
from tests.support.lora import write_adapter

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def cli(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """A command in this process, with two tenants whose pool takes adapters; no server runs there."""
    for name in [name for name in os.environ if name.startswith("STRONGROOM_")]:
        monkeypatch.delenv(name)
    for name, value in {
        "DATA_DIR": str(folder / "data"),
        "MASTER_KEY_FILE": str(folder / "master.key"),
        "EMBEDDING__MODEL": "hashing:256",
        "GENERATION__POOLS": pools(main={"replicas": ["http://127.0.0.1:9"]}),
        "GENERATION__ROUTING": '{collection = ["main"]}',
        "GENERATION__ADAPTERS_DIR": str(folder / "engines"),
    }.items():
        monkeypatch.setenv(f"STRONGROOM_{name}", value)

    def go(*words: str) -> tuple[int, str, str]:
        code = run(words)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    assert go("doctor", "--create-master-key")[0] == 0
    for tenant in ("acme", "globex"):
        assert go("tenant", "create", tenant)[0] == 0
    return go


def data(result: tuple[int, str, str]) -> Any:
    code, out, err = result
    assert code == 0, err
    return json.loads(out)


def listed(cli: Run, tenant: str, *more: str) -> list[tuple[str, str]]:
    rows = data(cli("adapter", "list", "--tenant", tenant, "--json", *more))
    return [(row["name"], row["state"]) for row in rows]


def stored(folder: Path) -> int:
    return len([path for path in folder.rglob("*.safetensors") if "engines" in path.parts])


def test_an_adapter_is_added_listed_shown_and_revoked_on_record(cli: Run, folder: Path) -> None:
    source = str(write_adapter(folder / "voice"))
    made = data(cli("adapter", "add", "voice", source, "--tenant", "acme", "--allow", "group:legal", "--json"))
    assert (made["model"], made["rank"], made["modules"]) == ("tiny:voice", 4, ["q_proj", "v_proj"])
    assert made["allow"] == ["group:legal"]
    assert set(made["manifest"]) == {"adapter_config.json", "adapter_model.safetensors"}
    assert listed(cli, "acme") == [("voice", "usable")]
    assert listed(cli, "globex") == []
    assert data(cli("adapter", "show", "voice", "--tenant", "acme", "--json"))["files"] == "intact"
    gone = data(cli("adapter", "revoke", "voice", "--tenant", "acme", "--json"))
    assert gone == {"name": "voice", "revoked": [made["id"]]}
    assert listed(cli, "acme") == []
    assert listed(cli, "acme", "--revoked") == [("voice", "revoked")]
    assert stored(folder) == 0
    events = data(cli("audit", "query", "--tenant", "acme", "--json"))["events"]
    found = {event["action"]: event for event in events if event["phase"] == "outcome"}
    assert {"adapter.add", "adapter.list", "adapter.show", "adapter.revoke"} <= set(found)
    assert found["adapter.add"]["detail"]["adapter"] == found["adapter.revoke"]["detail"]["adapter"] == made["id"]
    assert found["adapter.add"]["detail"]["revision"] == made["revision"]


def test_what_cannot_be_done_is_said_with_what_to_do(cli: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = str(write_adapter(folder / "voice", rank=16))
    code, _, said = cli("adapter", "add", "voice", source, "--tenant", "acme")
    assert (code, "r: the adapter has rank 16" in said, "--max-lora-rank" in said) == (2, True, True)
    assert cli("adapter", "revoke", "voice", "--tenant", "acme")[0] == 1
    assert cli("adapter", "show", "voice", "--tenant", "acme")[0] == 1
    monkeypatch.delenv("STRONGROOM_GENERATION__ADAPTERS_DIR")
    monkeypatch.setenv("STRONGROOM_GENERATION__POOLS", "{}")
    monkeypatch.setenv("STRONGROOM_GENERATION__ROUTING", "{}")
    code, _, said = cli("adapter", "add", "voice", source, "--tenant", "acme")
    assert (code, "generation.adapters_dir" in said) == (2, True)


def test_damaged_files_are_shown(cli: Run, folder: Path) -> None:
    cli("adapter", "add", "voice", str(write_adapter(folder / "voice")), "--tenant", "acme")
    (weights,) = (folder / "engines").rglob("*.safetensors")
    weights.write_bytes(b"")
    code, out, said = cli("adapter", "show", "voice", "--tenant", "acme", "--json")
    assert (code, json.loads(out)["files"]) == (0, "missing or changed")
    assert "add it again" in said


def test_a_restored_copy_is_without_its_adapters_and_a_replaced_tenant_keeps_its_own(cli: Run, folder: Path) -> None:
    for name in ("kept", "gone"):
        cli("adapter", "add", name, str(write_adapter(folder / name)), "--tenant", "acme")
    backup = str(folder / "acme.backup")
    assert cli("backup", "--tenant", "acme", backup)[0] == 0
    cli("adapter", "revoke", "gone", "--tenant", "acme")
    copied = data(cli("restore", backup, "--as", "copy", "--json"))
    assert copied["adapters_to_add_again"] == 1
    assert copied["withdrawn_again"] == {"adapter": 1}
    assert listed(cli, "copy") == []
    assert cli("tenant", "suspend", "acme")[0] == 0
    replaced = data(cli("restore", backup, "--replace", "--json"))
    assert "adapters_to_add_again" not in replaced
    assert replaced["withdrawn_again"] == {"adapter": 1}
    assert cli("tenant", "resume", "acme")[0] == 0
    assert listed(cli, "acme") == [("kept", "usable")]
    assert data(cli("adapter", "show", "kept", "--tenant", "acme", "--json"))["files"] == "intact"


def test_a_change_of_the_tenants_key_leaves_adapters_as_they_are(cli: Run, folder: Path) -> None:
    cli("adapter", "add", "voice", str(write_adapter(folder / "voice")), "--tenant", "acme")
    assert cli("tenant", "rotate-key", "acme")[0] == 0
    assert data(cli("adapter", "show", "voice", "--tenant", "acme", "--json"))["files"] == "intact"


def test_a_bar_is_drawn_on_a_terminal_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_adapter(folder / "voice")
    with _progress(source) as progress:
        progress(100)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with _progress(source) as progress:
        progress(100)
    assert "voice" in capsys.readouterr().err


def test_doctor_looks_at_the_folder(cli: Run, folder: Path) -> None:
    def row() -> dict[str, Any]:
        rows = json.loads(cli("doctor", "--json")[1])
        return next(one for one in rows if one["check"] == "adapters")

    root = folder / "engines"
    assert (row()["state"], "no folder" in row()["finding"]) == ("wrong", True)
    root.mkdir()
    root.chmod(0o755)
    assert (row()["state"], "755" in row()["finding"]) == ("wrong", True)
    root.chmod(0o750)
    assert (row()["state"], row()["finding"]) == ("ok", f"{root}, for main")
