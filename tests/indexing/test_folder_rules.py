"""Access rules that lie in the folders."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from indexing.acl_rules import AccessRules, Decision
from indexing.folder_rules import FILE, FolderRules
from tenancy.acl import AccessList
from tenancy.errors import InvalidInput


def put(root: Path, folder: str, text: str) -> Path:
    (root / folder).mkdir(parents=True, exist_ok=True)
    path = root / folder / FILE
    path.write_text(text)
    path.chmod(0o644)
    return path


def allowed(rules: FolderRules, path: str) -> tuple[set[str], str | None] | None:
    found = rules.decide(path)
    return None if found is None else (set(found.access.allow), found.by)


def test_the_nearest_file_that_decides_decides_alone(tmp_path: Path) -> None:
    put(tmp_path, "", '[default]\nallow = ["tenant"]\n')
    put(tmp_path, "hr", '[[rule]]\npath = "pay/**"\nallow = ["group:pay"]\ndeny = ["user:bo"]\n')
    put(tmp_path, "hr/pay/board", "[default]\nallow = []\n")
    rules = FolderRules(tmp_path)
    assert allowed(rules, "a.md") == ({"tenant"}, f"{FILE}, default")
    assert allowed(rules, "hr/a.md") == ({"tenant"}, f"{FILE}, default")
    assert allowed(rules, "hr/pay/a.md") == ({"group:pay"}, f"hr/{FILE}, rule 1")
    assert allowed(rules, "hr/pay/board/a.md") == (set(), f"hr/pay/board/{FILE}, default")
    decision = rules.decide("hr/pay/deep/er/a.md")
    assert decision is not None
    assert decision.access.deny == {"user:bo"}


def test_where_no_file_decides_the_rules_of_the_command_line_do(tmp_path: Path) -> None:
    put(tmp_path, "hr", '[[rule]]\npath = "pay.md"\nallow = ["group:pay"]\n')
    (tmp_path / "rules.toml").write_text('[default]\nallow = ["group:all"]\n')
    (tmp_path / "manifest.jsonl").write_text('{"path": "hr/pay.md", "deny": ["user:bo"]}\n')
    rules, folders = AccessRules(tmp_path / "rules.toml", tmp_path / "manifest.jsonl"), FolderRules(tmp_path)
    assert folders.decide("hr/other.md") is None
    assert rules.decide("hr/other.md", folders.decide("hr/other.md")).access.allow == {"group:all"}
    both = rules.decide("hr/pay.md", folders.decide("hr/pay.md"))
    assert (both.access, both.by) == (
        AccessList(frozenset({"group:pay"}), frozenset({"user:bo"})),
        "manifest.jsonl, line 1",
    )
    assert rules.decide("x.md", Decision(AccessList(), "nearer")).access.allow == frozenset()


@pytest.mark.parametrize(
    "text", ["[default]\nallow = 3\n", "allow = []\n", "[[rule]]\npath = '../x'\nallow = []\n", "[default", "\xff"]
)
def test_below_a_broken_file_nothing_is_decided(tmp_path: Path, text: str) -> None:
    put(tmp_path, "", '[default]\nallow = ["tenant"]\n')
    put(tmp_path, "hr", "").write_bytes(text.encode("latin-1"))
    rules = FolderRules(tmp_path)
    for path in ("hr/a.md", "hr/deep/b.md"):
        with pytest.raises(InvalidInput) as found:
            rules.decide(path)
        assert (found.value.item or "").startswith(f"hr/{FILE}")
        assert found.value.remedy
    assert allowed(rules, "a.md") == ({"tenant"}, f"{FILE}, default")


def test_a_file_that_everybody_may_write_or_that_is_none_decides_nothing(tmp_path: Path) -> None:
    put(tmp_path, "open", '[default]\nallow = ["tenant"]\n').chmod(0o666)
    put(tmp_path, "", '[default]\nallow = ["tenant"]\n')
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / FILE).symlink_to(tmp_path / FILE)
    (tmp_path / "folder" / FILE).mkdir(parents=True)
    os.mkfifo(tmp_path / "open" / "fifo")
    rules = FolderRules(tmp_path)
    for folder in ("open", "link", "folder"):
        with pytest.raises(InvalidInput) as found:
            rules.decide(f"{folder}/a.md")
        assert found.value.item == f"{folder}/{FILE}"


def test_each_file_is_read_once(tmp_path: Path) -> None:
    path = put(tmp_path, "hr", '[default]\nallow = ["tenant"]\n')
    rules = FolderRules(tmp_path)
    rules.decide("hr/a.md")
    path.unlink()
    assert allowed(rules, "hr/b.md") == ({"tenant"}, f"hr/{FILE}, default")
    assert FolderRules(tmp_path).decide("hr/b.md") is None
