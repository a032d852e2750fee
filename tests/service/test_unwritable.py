"""Commands that write files, where the file cannot be written or holds nonsense: item, reason, remedy, nothing left."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tests.service.test_backup import Node, here, nodes

__all__ = ["here", "nodes"]


@pytest.mark.slow
def test_a_place_that_takes_no_file_is_named(here: Node) -> None:
    missing = here.folder / "none" / "file"
    for words in (
        ("backup", "--tenant", "acme", missing),
        ("backup", "--tenant", "acme", "/proc/file"),
        ("backup", "--tenant", "acme", "--ledger-only", missing),
        ("master", "create", "/proc/file"),
        ("master", "recovery-key", missing),
        ("export", "--tenant", "acme", "--no-vectors", "/proc/file"),
    ):
        said = here.fails(*words)
        assert str(words[-1]) in said, said
        assert "cannot be written (" in said, said
    assert not missing.parent.exists()


@pytest.mark.slow
def test_a_full_disk_leaves_no_half_of_a_file(here: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {path.name for path in here.folder.iterdir()}

    synced = os.fsync

    def full(descriptor: int) -> None:
        if (here.folder / "data") in Path(f"/proc/self/fd/{descriptor}").readlink().parents:
            synced(descriptor)
            return
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for words in (
        ("backup", "--tenant", "acme", here.folder / "b"),
        ("master", "create", here.folder / "m"),
        ("master", "recovery-key", here.folder / "r"),
        ("export", "--tenant", "acme", "--no-vectors", here.folder / "e"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            assert "No space left" in here.fails(*words), words
        assert {path.name for path in here.folder.iterdir()} == before, words


def test_half_a_pair_of_keys_is_never_left(here: Node, tmp_path: Path) -> None:
    (tmp_path / "desk.pub").write_text("another")
    assert "desk.pub" in here.fails("master", "recovery-key", tmp_path / "desk")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["desk.pub"]
    assert (tmp_path / "desk.pub").read_text() == "another"


@pytest.mark.parametrize("content", ["a = " + "[" * 100_000, "a = " + "1" * 5_000, "a = \x00", "\udcff"])
def test_a_contract_of_nonsense_is_refused(here: Node, tmp_path: Path, content: str) -> None:
    file = tmp_path / "contract.toml"
    file.write_bytes(content.encode("utf-8", "surrogateescape"))
    assert "contract.toml: the contract is" in here.fails("tenant", "create", "x", "--contract", file)
    assert [row["name"] for row in here.data("tenant", "list")] == ["acme"]
