"""Changes below folders, as they are reported."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from indexing import watching
from indexing.walk import changed
from indexing.watching import Watched
from tenancy.errors import Unavailable

WAIT_S = 30.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "share"
    (root / "hr").mkdir(parents=True)
    return root


@pytest.fixture
def watched(folder: Path) -> Iterator[Watched]:
    found = Watched([folder])
    yield found
    found.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "ingest-watch"]


def until(watched: Watched, wanted: set[Path]) -> set[Path]:
    seen: set[Path] = set()
    while not wanted <= seen:
        found = watched.wait(WAIT_S)
        assert found, f"nothing more was reported than {seen}"
        seen |= found
    return seen


def test_what_is_saved_renamed_and_removed_is_told_and_what_is_hidden_is_not(folder: Path, watched: Watched) -> None:
    (folder / ".hidden").write_text("x")
    (folder / "hr" / "a.txt").write_text("apple")
    seen = until(watched, {folder / "hr" / "a.txt"})
    (folder / "hr" / "a.txt").rename(folder / "b.txt")
    seen |= until(watched, {folder / "hr" / "a.txt", folder / "b.txt"})
    (folder / "b.txt").unlink()
    seen |= until(watched, {folder / "b.txt"})
    assert folder / ".hidden" not in seen


def test_rules_in_a_folder_and_names_that_are_no_utf8_stand_for_their_folder(folder: Path, watched: Watched) -> None:
    (folder / "hr" / ".strongroom.toml").write_text("")
    until(watched, {folder / "hr"})
    Path(os.fsdecode(bytes(folder) + b"/\xb1\xa8.txt")).write_text("text")
    until(watched, {folder})
    assert len(list(changed(folder, [folder]))) == 1


def test_a_folder_that_comes_in_whole_is_looked_through(folder: Path, watched: Watched, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    (ready / "deep").mkdir(parents=True)
    (ready / "deep" / "a.txt").write_text("apple")
    ready.rename(folder / "came")
    until(watched, {folder / "came"})
    assert [entry.name for entry in changed(folder, [folder / "came"])] == ["came/deep/a.txt"]


def test_a_system_that_reports_nothing_is_told_about(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_paths: Any, **_options: Any) -> Any:
        raise OSError("OS file watch limit reached")

    monkeypatch.setattr(watching, "watch", refuse)
    with pytest.raises(Unavailable, match="watch limit") as refused:
        Watched([folder])
    assert "max_user_watches" in (refused.value.remedy or "")
