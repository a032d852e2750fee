"""Exports through the command line, and their verification where nothing of the product is."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.layout.scope_rule import ROOT
from tests.service.test_cli import Run, acme, cli, data

__all__ = ["acme", "cli"]

OFFLINE = ROOT / "audit" / "offline"


def key_of(cli: Run, manifest: Path) -> str:
    return str(json.loads(manifest.read_bytes())["keys"][0]["vkey"])


@pytest.fixture
def exported(acme: Run, tmp_path: Path) -> Path:
    target = tmp_path / "evidence"
    assert acme("ask", "--tenant", "acme", "--user", "ana", "How long is the notice period?")[0] == 0
    made = data(acme("audit", "export", "--tenant", "acme", str(target), "--json"))
    assert made["first"] == 0
    assert made["size"] > 4
    return target


def test_an_export_is_verified_by_the_command_and_says_so_in_the_log(acme: Run, exported: Path) -> None:
    key = key_of(acme, exported / "manifest-000001.json")
    code, out, err = acme("audit", "verify", str(exported), "--key", key)
    assert (code, err) == (0, "")
    assert out.startswith("ok: records 0 to ")
    told = data(acme("audit", "query", "--tenant", "acme", "--action", "audit.export", "--json"))["events"]
    assert [event["phase"] for event in told] == ["outcome", "intent"]
    digest = hashlib.sha256((exported / "manifest-000001.json").read_bytes()).hexdigest()
    assert told[0]["detail"]["manifest"] == digest


def test_the_next_export_adds_what_is_new(acme: Run, exported: Path) -> None:
    before = {path.name: path.read_bytes() for path in exported.iterdir()}
    made = data(acme("audit", "export", "--tenant", "acme", str(exported), "--json"))
    assert made["number"] == 2
    assert made["first"] == json.loads((exported / "manifest-000001.json").read_bytes())["size"]
    assert {path.name: path.read_bytes() for path in exported.iterdir() if path.name in before} == before
    key = key_of(acme, exported / "manifest-000001.json")
    (exported / "old.txt").write_text(json.loads((exported / "manifest-000001.json").read_bytes())["checkpoint"])
    found = acme("audit", "verify", str(exported), "--key", key, "--checkpoint", str(exported / "old.txt"), "--json")
    assert data(found)["agreed"] == [made["first"]]
    assert data(found)["unnamed"] == ["old.txt"]


def test_an_auditor_with_an_early_key_and_an_old_checkpoint(acme: Run, tmp_path: Path) -> None:
    """The key is noted and a checkpoint kept when the log is young; the key changes, and the export comes later."""
    early = str(data(acme("audit", "key", "--tenant", "acme", "--json"))[0]["key"])
    kept = tmp_path / "kept.txt"
    kept.write_text(acme("audit", "checkpoint", "--tenant", "acme")[1])
    assert acme("ask", "--tenant", "acme", "--user", "ana", "How long is the notice period?")[0] == 0
    assert acme("audit", "rotate-key", "--tenant", "acme")[0] == 0
    target = tmp_path / "evidence"
    assert acme("audit", "export", "--tenant", "acme", str(target))[0] == 0
    code, out, _ = acme("audit", "verify", str(target), "--key", early, "--checkpoint", str(kept))
    assert code == 0, out
    assert re.search(r"^the kept checkpoint of \d+ records agrees$", out, re.MULTILINE)
    # Another tenant's checkpoint, or a key that is none of this log, is no evidence about it.
    assert acme("tenant", "create", "globex")[0] == 0
    theirs = str(data(acme("audit", "key", "--tenant", "globex", "--json"))[0]["key"])
    code, out, _ = acme("audit", "verify", str(target), "--key", theirs)
    assert (code, out.partition(" ")[0]) == (1, "UNTRUSTED")
    kept.write_text(acme("audit", "checkpoint", "--tenant", "globex")[1])
    code, out, _ = acme("audit", "verify", str(target), "--key", early, "--checkpoint", str(kept))
    assert (code, out.partition(":")[0]) == (1, "CHECKPOINT")


def test_an_altered_export_fails(acme: Run, exported: Path) -> None:
    (part,) = exported.glob("records-*")
    part.write_bytes(part.read_bytes().replace(b'"allowed"', b'"refused"', 1))
    code, out, _ = acme("audit", "verify", str(exported), "--key", key_of(acme, exported / "manifest-000001.json"))
    assert code == 1
    assert out.startswith("EDITED at record ")


def test_an_export_without_a_key_proves_nothing(acme: Run, exported: Path) -> None:
    code, out, err = acme("audit", "verify", str(exported))
    assert (code, out) == (2, "")
    assert "public key" in err
    assert acme("audit", "verify", str(exported), "--tenant", "acme")[0] == 2
    assert acme("audit", "verify", "--key", "x")[0] == 2
    assert acme("audit", "verify", str(exported), "--key", "x")[0] == 2


def test_no_question_and_no_answer_is_in_an_export(acme: Run, exported: Path) -> None:
    everything = b"".join(path.read_bytes() for path in exported.iterdir())
    assert b"notice.md" in everything
    for text in (b"How long is", b"three months", b'"ana"'):
        assert text not in everything


def offline(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the verifier isolated: no product on the path, no environment, no user's packages."""
    environment = {"PATH": os.environ["PATH"]}
    command = [sys.executable, "-I", str(place), *words]
    return subprocess.run(command, cwd=place.parent, env=environment, capture_output=True, text=True, check=False)


def test_the_verifier_works_alone_wherever_it_is_copied_to(acme: Run, exported: Path, tmp_path: Path) -> None:
    alone = tmp_path / "elsewhere" / "verifier"
    shutil.copytree(OFFLINE, alone, ignore=shutil.ignore_patterns("__pycache__"))
    key = key_of(acme, exported / "manifest-000001.json")
    for place in (alone, OFFLINE):
        done = offline(place, str(exported), "--key", key)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        assert done.stdout.startswith("ok: ")
    (part,) = exported.glob("records-*")
    part.write_bytes(part.read_bytes()[:-10])
    done = offline(alone, str(exported), "--key", key, "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["finding"]["kind"] == "truncated"
    assert offline(alone, str(exported)).returncode == 2
    assert offline(alone, str(tmp_path / "nowhere"), "--key", key).returncode == 2


def test_the_verifier_imports_nothing_but_the_standard_library_and_cryptography() -> None:
    allowed = sys.stdlib_module_names | {"cryptography"}
    for path in OFFLINE.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                strangers = {alias.name.partition(".")[0] for alias in node.names} - allowed
            elif isinstance(node, ast.ImportFrom):
                own = node.level == 1 and (node.module or "").partition(".")[0] in {
                    one.stem for one in OFFLINE.glob("*.py")
                }
                strangers = set() if own else {(node.module or "").partition(".")[0]} - allowed
            else:
                continue
            assert not strangers, f"{path.name}:{node.lineno}"


@pytest.mark.slow
def test_an_export_that_is_killed_is_finished_by_the_next(acme: Run, tmp_path: Path) -> None:
    """Killed as soon as each number of parts is there; whatever there is then, the next run completes it."""
    target = tmp_path / "evidence"
    for _ in range(4):
        assert acme("group", "add", "--tenant", "acme", "staff", "ana")[0] == 0
    command = [
        sys.executable, "-c", "from service.cli import main; main()",
        "audit", "export", "--tenant", "acme", str(target), "--part-records", "1",
    ]  # fmt: skip
    killed = 0
    for parts in (1, 3, 5, 7):
        process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.DEVNULL)
        while process.poll() is None and len(list(target.glob("records-*"))) < parts:
            pass
        process.send_signal(signal.SIGKILL)
        killed += process.wait() == -signal.SIGKILL
    assert killed
    made = data(acme("audit", "export", "--tenant", "acme", str(target), "--json"))
    assert made["reused"] or made["number"] > 1
    assert acme("audit", "verify", str(target), "--key", key_of(acme, target / made["manifest"]))[0] == 0
    assert data(acme("audit", "verify", "--tenant", "acme", "--json"))[0]["verdict"] == "ok"
