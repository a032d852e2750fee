"""Contracts and moves on the command line, beside what they change: answers, limits, the audit log."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from indexing.engines.qdrant import QdrantEngine
from indexing.engines.registry import Engines
from service import engines, wiring
from service.cli import run

OTHER = "hashing:64"
Result = tuple[int, str, str]


class Console:
    """Commands in this process, over one data directory, with an engine called "vectors" that is in memory."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capsys = capsys

    def __call__(self, *words: str) -> Result:
        code = run(words)
        captured = self._capsys.readouterr()
        return code, captured.out, captured.err

    def done(self, *words: str) -> Any:
        code, out, err = self(*words, "--json")
        assert code == 0, err
        return json.loads(out) if out.strip() else None

    def contract(self, text: str) -> str:
        path = self.folder / "contract.toml"
        path.write_text(text)
        return str(path)

    def found(self, question: str = "How long is the notice period?") -> str:
        answer: str = self.done("ask", "--tenant", "acme", "--user", "ana", "--cache", "bypass", question)["answer"]
        return answer


@pytest.fixture
def console(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Console:
    for name in [name for name in os.environ if name.startswith("STRONGROOM_")]:
        monkeypatch.delenv(name)
    settings = tmp_path / "settings.toml"
    settings.write_text(
        f'data_dir = "{tmp_path}/data"\nmaster_key_file = "{tmp_path}/master.key"\n'
        f'[embedding]\nmodel = "hashing:256"\nalso = ["{OTHER}"]\n'
        '[collections.engines.vectors]\nkind = "qdrant"\nurl = "http://127.0.0.1:1"\n'
        '[collections.engines.own]\nkind = "qdrant"\nurl = "http://127.0.0.1:2"\ndedicated_to = "globex"\n'
    )
    monkeypatch.setenv("STRONGROOM_CONFIG", str(settings))
    local = QdrantEngine.local("vectors")

    def built(_settings: object) -> Engines:
        made = Engines({"vectors": lambda: local, "own": lambda: local}, dedicated={"own": "globex"})
        made.close = lambda: None  # type: ignore[method-assign]
        return made

    monkeypatch.setattr(engines, "build_engines", built)
    monkeypatch.setattr(wiring, "build_engines", built)
    made = Console(tmp_path, capsys)
    made.done("doctor", "--create-master-key")
    return made


@pytest.fixture
def acme(console: Console) -> Console:
    console.done("tenant", "create", "acme")
    console("key", "create", "--tenant", "acme", "--user", "ana")
    (console.folder / "docs").mkdir()
    (console.folder / "docs" / "notice.md").write_text("The notice period is three months.")
    assert console("ingest", "--tenant", "acme", str(console.folder / "docs"), "--allow", "tenant")[0] == 0
    return console


def actions(console: Console) -> list[str]:
    return [row["action"] for row in console.done("audit", "query", "--tenant", "acme")["events"]]


def states(console: Console) -> dict[str, tuple[str, str]]:
    return {row["state"]: (row["engine"], row["model"]) for row in console.done("tenant", "moves", "acme")}


def test_a_tenant_is_made_moved_and_confirmed(acme: Console) -> None:
    first = acme.found()
    assert "three months" in first
    compared = acme.done("tenant", "move", "acme", "--engine", "vectors", "--model", OTHER)
    assert (compared["missing"], compared["overlap"]) == (0, 1.0)
    assert states(acme) == {"serving": ("vectors", OTHER), "previous": ("faiss", "hashing:256")}
    assert "three months" in acme.found()
    assert acme.done("tenant", "contract", "show", "acme") == {"engine": "vectors", "model": OTHER}
    (acme.folder / "docs" / "parking.md").write_text("Parking is free.")
    assert acme("ingest", "--tenant", "acme", str(acme.folder / "docs"), "--allow", "tenant")[0] == 0
    assert "Parking is free" in acme.found("Is parking free?")
    assert acme.done("tenant", "rollback", "acme")["state"] == "serving"
    assert states(acme) == {"previous": ("vectors", OTHER), "serving": ("faiss", "hashing:256")}
    assert "Parking is free" in acme.found("Is parking free?")
    acme.done("tenant", "confirm", "acme")
    assert states(acme) == {"serving": ("faiss", "hashing:256")}
    assert {"tenant.move", "tenant.rollback", "tenant.confirm"} <= set(actions(acme))


def test_the_same_command_again_says_that_it_is_done(acme: Console) -> None:
    acme.done("tenant", "move", "acme", "--engine", "vectors")
    code, _, err = acme("tenant", "move", "acme", "--engine", "vectors")
    assert code == 0
    assert "already" in err


def test_a_failed_comparison_is_said_and_the_old_one_serves(acme: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(QdrantEngine, "nearest", lambda *_args, **_kwargs: [])
    code, _, err = acme("tenant", "move", "acme", "--engine", "vectors")
    assert code == 1
    assert "of the best 10" in err
    assert states(acme)["serving"] == ("faiss", "hashing:256")
    acme.done("tenant", "move", "acme", "--abort")
    assert states(acme) == {"serving": ("faiss", "hashing:256")}
    assert "tenant.move_abort" in actions(acme)


def test_a_contract_shapes_the_tenant_from_its_first_document_on(console: Console) -> None:
    file = console.contract(f'engine = "vectors"\nmodel = "{OTHER}"\n[admission.user]\nrequests_per_minute = 0\n')
    console.done("tenant", "create", "acme", "--contract", file)
    console("key", "create", "--tenant", "acme", "--user", "ana")
    (console.folder / "docs").mkdir()
    (console.folder / "docs" / "notice.md").write_text("The notice period is three months.")
    assert console("ingest", "--tenant", "acme", str(console.folder / "docs"), "--allow", "tenant")[0] == 0
    assert states(console) == {"serving": ("vectors", OTHER)}
    code, _, err = console("ask", "--tenant", "acme", "--user", "ana", "How long?")
    assert code != 0
    assert "limit of 0 requests a minute" in err
    console.done("tenant", "contract", "set", "acme", console.contract(f'engine = "vectors"\nmodel = "{OTHER}"\n'))
    assert "three months" in console.found()
    assert "tenant.contract" in actions(console)


def test_a_contract_is_not_emptied_by_a_forgotten_argument(acme: Console) -> None:
    acme.done("tenant", "contract", "set", "acme", acme.contract('retention = "ten years"'))
    for words in ((), (acme.contract(""), "--empty")):
        code, _, err = acme("tenant", "contract", "set", "acme", *words)
        assert (code, "--empty" in err) == (2, True)
    assert acme.done("tenant", "contract", "show", "acme") == {"retention": "ten years"}
    assert acme.done("tenant", "contract", "set", "acme", "--empty") == {}
    assert acme.done("tenant", "contract", "show", "acme") == {}


def test_doctor_names_tenants_that_these_settings_do_not_serve(acme: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    def finding() -> tuple[str, str]:
        rows = json.loads(acme("doctor", "--json")[1])
        (row,) = [row for row in rows if row["check"] == "control plane"]
        return row["state"], row["finding"]

    assert finding() == ("ok", "1 of 1 tenants active")
    with monkeypatch.context() as changed:
        changed.setenv("STRONGROOM_EMBEDDING__MODEL", "hashing:32")
        assert finding()[0] == "wrong"
        assert "acme: its collection is of the embedding model hashing:256" in finding()[1]
    acme.done("tenant", "move", "acme", "--engine", "vectors")
    assert finding()[0] == "ok"
    path = acme.folder / "settings.toml"
    path.write_text(path.read_text().partition("[collections.engines.vectors]")[0])
    assert "acme: engine: this deployment has no such engine" in finding()[1]
    acme.done("tenant", "suspend", "acme")
    assert finding() == ("ok", "0 of 1 tenants active")


def test_a_contract_that_needs_a_move_names_the_command(acme: Console) -> None:
    for text, options in (
        ('engine = "vectors"', "--engine vectors"),
        (f'model = "{OTHER}"', f"--engine faiss --model {OTHER}"),
        (f'engine = "vectors"\nmodel = "{OTHER}"', f"--engine vectors --model {OTHER}"),
    ):
        code, _, err = acme("tenant", "contract", "set", "acme", acme.contract(text))
        assert code == 1
        assert f"strongroom tenant move acme {options}" in err
    assert acme.done("tenant", "contract", "show", "acme") == {}
    acme.done("tenant", "contract", "set", "acme", acme.contract('engine = "faiss"\nmodel = "hashing:256"'))


def test_what_the_deployment_cannot_keep_is_refused_before_anything_is_made(console: Console) -> None:
    for text in ('engine = "own"', 'tier = "dedicated"\nengine = "vectors"', 'model = "hashing:1024"', "tear = 1"):
        code, _, err = console("tenant", "create", "acme", "--contract", console.contract(text))
        assert code == 2
        assert err.startswith("error: ")
    assert console.done("tenant", "list") == []


def test_a_move_to_anothers_engine_is_refused(acme: Console) -> None:
    code, _, err = acme("tenant", "move", "acme", "--engine", "own")
    assert code == 1
    assert "serves another tenant alone" in err
    assert states(acme) == {"serving": ("faiss", "hashing:256")}


def test_questions_of_the_tenant_are_read_from_a_file(acme: Console) -> None:
    path = acme.folder / "questions.txt"
    path.write_text("How long is the notice period?\n\nWhen may I leave?\n")
    compared = acme.done("tenant", "move", "acme", "--engine", "vectors", "--questions", str(path))
    assert compared["questions"] == 2
    path.write_text("\n")
    assert acme("tenant", "move", "acme", "--engine", "faiss", "--questions", str(path))[0] == 2
