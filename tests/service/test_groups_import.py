"""`strongroom group import`, and what ends with a member or a user."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.service.test_cli import Run, cli, data

__all__ = ["cli"]

THREE = "group,member\nhr,ana\nhr,bo\nhr,cy\n"


@pytest.fixture
def acme(cli: Run) -> Run:
    assert cli("doctor", "--create-master-key")[0] == 0
    assert cli("tenant", "create", "acme")[0] == 0
    return cli


def members(acme: Run) -> list[str]:
    return data(acme("group", "list", "hr", "--tenant", "acme", "--json"))[0]["members"]  # type: ignore[no-any-return]


def test_one_of_three_is_taken_out(acme: Run, folder: Path) -> None:
    file = folder / "groups.csv"
    file.write_text(THREE)
    shown = data(acme("group", "import", str(file), "--tenant", "acme", "--json"))
    assert [row["member"] for row in shown] == ["user:ana", "user:bo", "user:cy"]
    file.write_text(THREE.replace("hr,bo\n", ""))
    before = members(acme)
    planned = data(acme("group", "import", str(file), "--tenant", "acme", "--dry-run", "--json"))
    assert members(acme) == before
    done = data(acme("group", "import", str(file), "--tenant", "acme", "--json"))
    assert planned == done == [{"change": "removed", "group": "hr", "member": "user:bo"}]
    assert members(acme) == ["user:ana", "user:cy"]


@pytest.mark.parametrize("broken", [THREE[:-2], "<html>", "", THREE + "#end,2\n"])
def test_a_broken_import_changes_nothing_and_says_so(acme: Run, folder: Path, broken: str) -> None:
    file = folder / "groups.csv"
    file.write_text(THREE)
    data(acme("group", "import", str(file), "--tenant", "acme", "--json"))
    file.write_text(broken)
    code, out, err = acme("group", "import", str(file), "--tenant", "acme")
    assert (code, out) == (2, "")
    assert err.startswith("error: groups.csv")
    assert members(acme) == ["user:ana", "user:bo", "user:cy"]
    status = data(acme("group", "status", "--tenant", "acme", "--json"))
    assert status["groups"] == 1
    assert status["imported"] <= status["refused"]
    assert status["reason"].startswith("groups.csv")


def test_many_who_would_leave_are_refused_beforehand_too(acme: Run, folder: Path) -> None:
    file = folder / "groups.csv"
    file.write_text("group,member\n" + "".join(f"hr,user{number}\n" for number in range(40)))
    command = ("group", "import", str(file), "--tenant", "acme")
    assert acme(*command)[0] == 0
    code, out, err = acme(*command)
    assert (code, out, err) == (0, "", "note: membership is the same already\n")
    file.write_text("group,member\n" + "".join(f"hr,user{number}\n" for number in range(29)))
    for more in (("--dry-run",), ()):
        code, out, err = acme(*command, *more)
        assert (code, "takes away 11 of 40 memberships" in err) == (2, True)
        assert len(out.splitlines()) == (11 if more else 0)
    assert acme(*command, "--dry-run", "--most-removed", "0.3")[0] == 0
    assert len(members(acme)) == 40


def test_an_absent_file_and_a_share_that_is_none(acme: Run, folder: Path) -> None:
    code, _, err = acme("group", "import", str(folder / "none.csv"), "--tenant", "acme")
    assert (code, "none.csv" in err) == (2, True)
    (folder / "groups.csv").write_text(THREE)
    code, _, err = acme("group", "import", str(folder / "groups.csv"), "--tenant", "acme", "--most-removed", "20")
    assert (code, "--most-removed" in err) == (2, True)


def test_the_audit_has_every_import_also_the_refused(acme: Run, folder: Path) -> None:
    file = folder / "groups.csv"
    for text in (THREE, "<html>"):
        file.write_text(text)
        acme("group", "import", str(file), "--tenant", "acme")
    events = data(acme("audit", "query", "--tenant", "acme", "--action", "group.import", "--json"))
    ended = [event for event in events["events"] if event["phase"] == "outcome"]
    assert sorted(event["outcome"] for event in ended) == ["allowed", "refused"]
