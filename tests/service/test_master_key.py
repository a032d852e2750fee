"""The master key as an operator changes and recovers it: the commands of docs/operations/master-key.md, run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.layout.scope_rule import ROOT

PAGE = ROOT / "docs/operations/master-key.md"


def script(heading: str) -> str:
    section = PAGE.read_text(encoding="utf-8").partition(f"## {heading}\n")[2]
    found = re.search(r"```sh\n(.*?)```", section, re.DOTALL)
    assert found is not None
    return found.group(1)


def shell(folder: Path, lines: str) -> subprocess.CompletedProcess[str]:
    """Run lines as in the page; only the programs' names differ."""
    program = f"{sys.executable} -c 'import sys; from service.cli import main; main()'"
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("STRONGROOM_")},
        "STRONGROOM_DATA_DIR": str(folder / "data"),
        "STRONGROOM_MASTER_KEY_FILE": str(folder / "master.key"),
        "PYTHONPATH": str(ROOT),
        "ESCROW": str(folder / "escrow"),
    }
    text = f'set -e\nstrongroom() {{ {program} "$@"; }}\n{lines}'
    return subprocess.run(
        ["bash", "-c", text], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture
def installed(folder: Path) -> Path:
    found = shell(folder, "strongroom doctor --create-master-key\nstrongroom tenant create acme\n")
    assert found.returncode == 0, found.stderr
    (folder / "escrow").mkdir()
    shutil.copy(folder / "master.key", folder / "escrow/master.key")
    shutil.copy(folder / "data/keyring.json", folder / "escrow/keyring.json")
    return folder


@pytest.mark.slow
def test_the_drill_as_documented(installed: Path) -> None:
    done = shell(installed, script("The drill"))
    assert done.returncode == 0, done.stderr
    assert "as expected" in done.stdout
    assert "fits: yes" in done.stdout
    assert "acme" in done.stdout.partition("fits")[2]
    assert (installed / "data/keyring.json").exists()


@pytest.mark.slow
def test_the_key_is_changed_as_documented_and_the_old_escrow_still_opens(installed: Path) -> None:
    before = (installed / "master.key").read_bytes()
    done = shell(installed, script("Changing it"))
    assert done.returncode == 0, done.stderr
    assert "fits: yes" in done.stdout
    assert (installed / "master.key").read_bytes() != before
    assert "acme" in shell(installed, "strongroom tenant list").stdout
    assert shell(installed, script("The drill")).returncode == 0


@pytest.mark.slow
def test_between_the_two_steps_a_command_says_which_key_is_needed(installed: Path) -> None:
    lines = script("Changing it").partition("mv ")[0]
    done = shell(installed, f"{lines}\nstrongroom tenant list && exit 3\nstrongroom master show && exit 4\nexit 0")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "did not wrap the keyring" in done.stderr
    assert "fits: no" in done.stdout
