"""Access lists at ingestion from the command line: folders' own rules, owners and modes, and the look before."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.service.test_cli import Run, cli, data

__all__ = ["cli"]


@pytest.fixture
def acme(cli: Run, folder: Path) -> Run:
    """A tenant with users ana (in hr) and bo, and a folder of three files."""
    assert cli("doctor", "--create-master-key")[0] == 0
    assert cli("tenant", "create", "acme")[0] == 0
    assert cli("key", "create", "--tenant", "acme", "--user", "ana", "--group", "hr")[0] == 0
    assert cli("key", "create", "--tenant", "acme", "--user", "bo")[0] == 0
    docs = folder / "docs"
    (docs / "hr").mkdir(parents=True)
    for name in ("a.md", "hr/pay.md", "hr/board.md"):
        (docs / name).write_text(f"The text of {name}.")
    return cli


def lists(acme: Run) -> dict[str, list[str]]:
    rows = data(acme("document", "list", "--tenant", "acme", "--json"))
    return {row["name"]: data(acme("acl", "show", row["name"], "--tenant", "acme", "--json"))["allow"] for row in rows}


def previewed(acme: Run, *words: str) -> dict[str, dict[str, Any]]:
    _, out, _ = acme("ingest", "--tenant", "acme", *words, "--dry-run", "--json")
    return {row["document"]: row for row in json.loads(out)}


def rules(folder: Path, text: str) -> None:
    path = folder / ".strongroom.toml"
    path.write_text(text)
    path.chmod(0o644)


def test_a_folder_s_rules_hold_below_it_and_the_command_line_s_elsewhere(acme: Run, folder: Path) -> None:
    docs = folder / "docs"
    rules(docs / "hr", '[[rule]]\npath = "pay.md"\nallow = ["group:hr"]\n[default]\nallow = []\n')
    command = (str(docs), "--allow", "tenant")
    planned = previewed(acme, *command)
    assert {name: (row["readers"], row["who"], row["change"]) for name, row in planned.items()} == {
        "a.md": (2, ["ana", "bo"], "new"),
        "hr/board.md": (0, [], "new"),
        "hr/pay.md": (1, ["ana"], "new"),
    }
    assert planned["hr/pay.md"]["by"] == "hr/.strongroom.toml, rule 1"
    assert acme("document", "list", "--tenant", "acme", "--json")[1].strip() == "[]"
    assert acme("ingest", "--tenant", "acme", *command)[0] == 0
    assert lists(acme) == {"a.md": ["tenant"], "hr/board.md": [], "hr/pay.md": ["group:hr"]}
    assert {row["change"] for row in previewed(acme, *command).values()} == {"same"}
    rules(docs / "hr", "[default]\nallow = []\n")
    assert previewed(acme, *command)["hr/pay.md"]["change"] == "changed"
    assert acme("ingest", "--tenant", "acme", *command)[0] == 0
    assert lists(acme)["hr/pay.md"] == []
    acme("ingest", "--tenant", "acme", *command, "--no-folder-rules")
    assert lists(acme)["hr/pay.md"] == ["tenant"]


def test_below_a_broken_file_of_rules_nothing_comes_in_and_the_rest_does(acme: Run, folder: Path) -> None:
    docs = folder / "docs"
    rules(docs / "hr", "[default]\nallow = 7\n")
    assert acme("ingest", "--tenant", "acme", str(docs), "--allow", "tenant", "--dry-run")[0] == 1
    code, _, err = acme("ingest", "--tenant", "acme", str(docs), "--allow", "tenant")
    assert code == 1
    assert "hr/.strongroom.toml" in err
    assert lists(acme) == {"a.md": ["tenant"]}


def test_owners_and_modes_are_heeded_where_they_are_asked_for(acme: Run, folder: Path) -> None:
    docs, own = folder / "docs", os.getegid()
    for path in (folder, docs, docs / "hr"):
        path.chmod(0o755)
    (docs / "a.md").chmod(0o444)
    (docs / "hr" / "pay.md").chmod(0o440)
    (docs / "hr" / "board.md").chmod(0o400)
    (folder / "map.toml").write_text(f'everyone = ["tenant"]\n[groups]\n{own} = ["group:hr"]\n')
    assert acme("ingest", "--tenant", "acme", str(docs), "--posix", str(folder / "map.toml"))[0] == 0
    assert lists(acme) == {"a.md": ["group:hr", "tenant"], "hr/board.md": [], "hr/pay.md": ["group:hr"]}


def test_names_that_nobody_has_are_told_before_they_exist(acme: Run, folder: Path) -> None:
    planned = previewed(acme, str(folder / "docs"), "--allow", "group:hrr", "--deny", "user:ana")
    assert planned["a.md"]["hold_nobody"] == ["group:hrr"]
    assert planned["a.md"]["readers"] == 0
    assert "hrr" not in str(data(acme("group", "list", "--tenant", "acme", "--json")))


def test_names_that_nobody_has_are_told_also_once_a_list_has_them(acme: Run, folder: Path) -> None:
    command = (str(folder / "docs"), "--allow", "tenant", "--deny", "group:interms")
    assert acme("ingest", "--tenant", "acme", *command)[0] == 0
    assert "interms" in str(data(acme("group", "list", "--tenant", "acme", "--json")))
    assert previewed(acme, *command)["a.md"]["hold_nobody"] == ["group:interms"]
    assert acme("group", "add", "--tenant", "acme", "interms", "user:bo")[0] == 0
    planned = previewed(acme, *command)["a.md"]
    assert (planned["hold_nobody"], planned["who"]) == ([], ["ana"])


def test_a_preview_names_the_rules_that_fit_nothing_and_whose_readers_go(acme: Run, folder: Path) -> None:
    manifest, docs = folder / "manifest.csv", str(folder / "docs")
    assert acme("ingest", "--tenant", "acme", docs, "--allow", "tenant")[0] == 0
    manifest.write_text("path,allow\na.md,user:ana\nb.md,user:bo\n")
    command = ("ingest", "--tenant", "acme", docs, "--manifest", str(manifest))
    code, _, err = acme(*command, "--dry-run")
    assert (code, "manifest.csv, line 3 fits no document" in err, "line 2" in err) == (0, True, False)
    planned = previewed(acme, docs, "--manifest", str(manifest))
    assert {name: (row["change"], row["allow"]) for name, row in planned.items()} == {
        "a.md": ("changed", ["user:ana"]),
        "hr/board.md": ("changed", []),
        "hr/pay.md": ("changed", []),
    }
    assert acme(*command)[0] == 0
    assert lists(acme) == {name: row["allow"] for name, row in planned.items()}


def test_a_misspelt_path_is_told_before_anything_is_opened(cli: Run, folder: Path) -> None:
    # There is no master key, no tenant and no model here.
    for more in ((), ("--dry-run",)):
        code, out, err = cli("ingest", "--tenant", "acme", str(folder / "none"), "--allow", "tenant", *more)
        assert (code, out, "there is no such file or folder" in err) == (2, "", True)


def test_a_sweep_names_what_nobody_and_what_everybody_reads(acme: Run, folder: Path) -> None:
    rules(folder / "docs" / "hr", '[[rule]]\npath = "pay.md"\nallow = ["group:hr"]\n[default]\nallow = []\n')
    assert acme("ingest", "--tenant", "acme", str(folder / "docs"), "--allow", "tenant")[0] == 0
    rows = data(acme("acl", "sweep", "--tenant", "acme", "--json"))
    assert [(row["document"], row["reach"], row["readers"]) for row in rows] == [
        ("a.md", "everybody", 2),
        ("hr/board.md", "nobody", 0),
    ]
    rows = data(acme("acl", "sweep", "--tenant", "acme", "--all", "--json"))
    assert [row["readers"] for row in rows] == [2, 0, 1]
    code, out, err = acme("acl", "sweep", "--tenant", "acme")
    assert (code, "nobody reads 1 documents, everybody 1" in err) == (0, True)
    assert "board.md" in out


def test_rules_stand_beside_strange_names_and_a_refused_prune(acme: Run, folder: Path) -> None:
    docs = folder / "docs"
    (folder / "access.toml").write_text('[default]\nallow = ["tenant"]\n')
    for name in ("a\nindexed: b.md", "back\\slash.md", " blank.md "):
        (docs / name).write_text("Its name is no usual one.")
    command = ("ingest", "--tenant", "acme", str(docs), "--acl", str(folder / "access.toml"))
    code, out, err = acme(*command)
    assert (code, out.splitlines()[-2:]) == (0, ["indexed\t6", "6 added"])
    assert "indexed: a\\nindexed: b.md (uncertain_name)" in out.splitlines()
    assert err == ""
    (docs / "hr" / "pay.md").unlink()
    code, out, err = acme(*command, "--prune", "--prune-limit", "0")
    assert (code, out.splitlines()) == (1, ["unchanged\t5", "failed\t1", "nothing changed"])
    assert "nothing of it was removed" in err
