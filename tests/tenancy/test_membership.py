"""Membership from a file: as a whole, or as it was."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenancy import directory
from tenancy.errors import InvalidInput
from tenancy.membership import Changes, bring_in, last_import, note_failure, read_membership
from tests.support.people import NOW, Company

CSV = b"group,member\nhr,ana\nhr,bo\nhr,group:payroll\npayroll,user:cy\nempty,\n"
LINES = (
    b'{"group": "hr", "members": ["ana", "user:bo", "group:payroll"]}\n'
    b'{"group": "payroll", "members": ["cy"]}\n{"group": "empty", "members": []}\n{"end": true, "groups": 3}\n'
)
WANTED = {"empty": [], "hr": ["group:payroll", "user:ana", "user:bo"], "payroll": ["user:cy"]}


def groups(acme: Company) -> dict[str, list[str]]:
    with acme.handle.reading() as view:
        return directory.list_groups(view)


def come_in(acme: Company, data: bytes, name: str = "groups.csv", **named: bool | float) -> Changes:
    wanted = read_membership(data, name)
    with acme.handle.writing() as view:
        return bring_in(view, wanted, NOW, **named)  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "data"), [("groups.csv", CSV), ("groups.jsonl", LINES)])
def test_the_directory_becomes_what_the_file_says(acme: Company, name: str, data: bytes) -> None:
    acme.member("other", "zoe")
    come_in(acme, data, name)
    assert groups(acme) == WANTED | {"other": ["user:zoe"]}
    assert come_in(acme, data, name) == Changes(before=5)
    with acme.handle.reading() as view:
        epochs = view.epochs
    come_in(acme, data, name)
    with acme.handle.reading() as view:
        assert view.epochs == epochs


def test_one_of_three_who_is_left_out_leaves_alone_and_at_once(acme: Company) -> None:
    acme.document("pay.md", allow=["group:hr"])
    ana, bo, cy = (acme.principal(user) for user in ("ana", "bo", "cy"))
    come_in(acme, b"group,member\nhr,ana\nhr,bo\nhr,cy\n")
    assert not any(acme.domain(one).is_empty for one in (ana, bo, cy))
    changes = come_in(acme, b"group,member\nhr,ana\nhr,cy\n")
    assert (changes.added, changes.removed) == ((), (("hr", ("user", "bo")),))
    assert [acme.domain(one).is_empty for one in (ana, bo, cy)] == [False, True, False]


BROKEN = {
    "cut in a line": ("g.csv", CSV[:-3]),
    "cut behind a line, and its end is told": ("g.jsonl", b"".join(LINES.splitlines(keepends=True)[1:])),
    "cut behind a line of CSV": ("g.csv", b"group,member\nhr,ana\n#end,2\n"),
    "behind its end": ("g.csv", b"group,member\nhr,ana\n#end,1\nhr,bo\n"),
    "an open quote": ("g.csv", b'group,member\nhr,"ana\n'),
    "no header": ("g.csv", b"hr,ana\n"),
    "three cells": ("g.csv", b"group,member\nhr,ana,bo\n"),
    "half an object": ("g.jsonl", b'{"group": "hr", "members": ["ana"\n'),
    "a group twice": ("g.jsonl", b'{"group": "hr", "members": []}\n{"group": "hr", "members": ["bo"]}\n'),
    "an unknown field": ("g.jsonl", b'{"group": "hr", "members": [], "owner": "ana"}\n'),
    "members that are no list": ("g.jsonl", b'{"group": "hr", "members": "ana"}\n'),
    "a member of an unknown kind": ("g.csv", b"group,member\nhr,robot:ana\n"),
    "a name with a control character": ("g.csv", b"group,member\nhr,a\x07na\n"),
    "UTF-16": ("g.csv", CSV.decode().encode("utf-16")),
    "empty": ("g.csv", b""),
    "the header alone": ("g.csv", b"group,member\n"),
    "an error page": ("g.csv", b"<html><body>502 Bad Gateway</body></html>\n"),
    "another kind of file": ("g.txt", CSV),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_file_changes_nothing_and_is_named(acme: Company, case: str) -> None:
    come_in(acme, CSV)
    name, data = BROKEN[case]
    with pytest.raises(InvalidInput) as found:
        come_in(acme, data, name)
    assert (found.value.item or "").startswith(name)
    assert found.value.remedy
    assert groups(acme) == WANTED


@given(cut=st.integers(min_value=0, max_value=len(LINES) - 1))
def test_where_an_end_is_required_no_cut_is_taken_for_the_whole(cut: int) -> None:
    assert read_membership(LINES, "g.jsonl", require_end=True).groups
    with pytest.raises(InvalidInput):
        read_membership(LINES[:cut], "g.jsonl", require_end=True)


def test_many_who_leave_at_once_take_a_word(acme: Company) -> None:
    lines = [f"hr,user{number}\n" for number in range(100)]
    come_in(acme, "".join(["group,member\n", *lines]).encode())
    half = "".join(["group,member\n", *lines[:50]]).encode()
    before = groups(acme)
    with pytest.raises(InvalidInput, match="50 of 100"):
        come_in(acme, half)
    assert groups(acme) == before
    one = "".join(["group,member\n", *lines[:99]]).encode()
    with pytest.raises(InvalidInput, match="1 of 100"):
        come_in(acme, one, most_removed=0)
    assert groups(acme) == before
    assert len(come_in(acme, half, most_removed=0.5).removed) == 50
    assert len(groups(acme)["hr"]) == 50


def test_a_complete_file_empties_the_groups_that_it_leaves_out(acme: Company) -> None:
    acme.member("left", "zoe")
    come_in(acme, CSV)
    assert groups(acme)["left"] == ["user:zoe"]
    come_in(acme, CSV, complete=True)
    assert groups(acme) == WANTED | {"left": []}


def test_names_in_two_spellings_are_one_member(acme: Company) -> None:
    come_in(acme, "group,member\nhr,Zoe\u0308\n".encode())
    assert come_in(acme, "group,member\nhr,Zo\u00eb\n".encode()).added == ()
    assert groups(acme) == {"hr": ["user:Zo\u00eb"]}


def test_the_last_good_import_is_remembered_beside_the_refusal(acme: Company) -> None:
    with acme.handle.reading() as view:
        assert last_import(view) is None
    come_in(acme, CSV)
    with acme.handle.writing() as view:
        note_failure(view, "cut", NOW + 5)
    with acme.handle.reading() as view:
        found = last_import(view)
    assert found is not None
    assert (found["at"], found["groups"], found["added"], found["failed"]["reason"]) == (NOW, 3, 4, "cut")
    come_in(acme, CSV)
    with acme.handle.reading() as view:
        found = last_import(view)
    assert found is not None
    assert found["failed"] is None


def test_nested_groups_may_go_round_in_a_circle(acme: Company) -> None:
    acme.document("pay.md", allow=["group:a"])
    ana = acme.principal("ana")
    come_in(acme, b"group,member\na,group:b\nb,group:a\nb,ana\n")
    assert not acme.domain(ana).is_empty
    come_in(acme, b"group,member\na,group:b\nb,group:a\n")
    assert acme.domain(ana).is_empty
