"""The verifier, fed with what was never an export: it says so in a bounded time, and writes nothing strange."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from audit.offline import chain
from audit.offline.check import check
from audit.offline.command import main
from audit.offline.manifest import Manifest

EXAMPLE = Path("docs/audit-format-example")
KEY = "strongroom/t_686961cb30f9839b71b52b112c7ae28b+e5b0a193+AX3FXcDN6/EyYv8pAeUKHR3ylqeJszMxN65uGBxzzfyW"
PARTS = sorted(path.name for path in EXAMPLE.glob("records-*"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(EXAMPLE, tmp_path / "export"))


def rewrite(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    body = json.loads(path.read_bytes())
    change(body)
    path.write_bytes(json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode() + b"\n")


def finding(folder: Path) -> str | None:
    found = check(folder, [KEY]).finding
    return None if found is None else found.kind


def pipe(path: Path) -> None:
    os.mkfifo(path)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def inside(path: Path) -> None:
    path.mkdir()


@pytest.mark.timeout(30)
@pytest.mark.parametrize("name", ["manifest-000001.json", "manifest-000002.json", *PARTS])
@pytest.mark.parametrize("instead", [pipe, endless, inside])
def test_what_is_no_file_is_not_read(folder: Path, name: str, instead: Callable[[Path], None]) -> None:
    (folder / name).unlink()
    instead(folder / name)
    assert finding(folder) == "edited"


@pytest.mark.parametrize("name", PARTS)
def test_no_more_of_a_line_is_read_than_its_part_had(folder: Path, name: str) -> None:
    with (folder / name).open("wb") as file:
        file.truncate(1 << 40)
    assert finding(folder) == "edited"


def test_a_huge_manifest_is_not_read(folder: Path) -> None:
    with (folder / "manifest-000002.json").open("ab") as file:
        file.truncate(chain.MAX_MANIFEST + 1)
    assert finding(folder) == "edited"


@pytest.mark.parametrize("pruned", [[[]], [[0]], [{}], [5], ["ab"], 5, {"a": 1}])
def test_ranges_that_are_none_are_refused(folder: Path, pruned: object) -> None:
    path = folder / "manifest-000001.json"
    rewrite(path, lambda body: body["parts"][0].update(pruned=pruned))
    with pytest.raises(ValueError, match=r"."):
        Manifest.read(path.read_bytes())
    assert finding(folder) == "edited"


def test_nothing_of_a_strangers_export_reaches_the_terminal(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "a\x1b[2Jb").write_text("")
    Path(os.fsdecode(os.fsencode(folder) + b"/caf\xe9")).write_text("")
    assert main([str(folder), "--key", KEY]) == 0
    rewrite(folder / "manifest-000002.json", lambda body: body.update(signer="\x1b]0;owned\x07\u202e"))
    assert main([str(folder), "--key", KEY]) == 1
    said = capsys.readouterr()
    assert not {"\x1b", "\x07", "\u202e"} & set(said.out + said.err)
    assert "not part of the export" in said.out
    assert "UNTRUSTED" in said.out
