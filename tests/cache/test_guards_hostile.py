"""Hostile questions: long, of unusual scripts, with letters that hide, turn or only resemble; and damaged rules."""

from __future__ import annotations

import gzip
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cache.guards import RULES_REVISION, Language, compare, read, rules
from cache.guards.words import MAX_CHARACTERS
from tenancy.errors import Corrupt

HIDDEN = [
    ("zero width space", "Is the account\u200b open to all?"),
    ("zero width joiner between letters", "Is the acc\u200dount open to all?"),
    ("override of direction", "Is the \u202eaccount\u202c open to all?"),
    ("mark of direction", "Is the account\u200e open to all?"),
    ("soft hyphen", "Is the ac\u00adcount open to all?"),
    ("byte order mark", "\ufeffIs the account open to all?"),
    ("control", "Is the\x07 account open to all?"),
    ("Cyrillic a", "Is the \u0430ccount open to all?"),
    ("Greek omicron", "Is the acc\u03bfunt open to all?"),
    ("Latin alpha of phonetics", "Is the \u0251ccount open to all?"),
    ("small capital", "Is the ac\u1d04ount open to all?"),
    ("dotless i", "Is the l\u0131mit open to all?"),
    ("stacked marks", "Is the acco\u0335u\u0335nt open to all?"),
    ("mark over a digit", "Is the limit 5\u0338 for all?"),
    ("Arabic digits", "Is the limit \u0665 for all?"),
    ("Devanagari digits", "Is the limit \u096b for all?"),
    ("Han among kana", "育児休暇はいつですか"),
    ("Chinese with a Cyrillic letter", "账户\u0430怎么开?"),
]


@pytest.mark.parametrize(("what", "text"), HIDDEN)
def test_text_that_is_not_what_it_seems_has_no_rules(what: str, text: str) -> None:
    plain = "Is the account open to all?"
    assert read(text).language is Language.UNKNOWN, what
    assert not compare(read(text), read(plain)).passed
    assert not compare(read(plain), read(text)).passed
    assert compare(read(text), read(text)).passed


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("Is the limit ５ for all?", "Is the limit 5 for all?"),
        ("Ｉｓ the account open to all?", "Is the account open to all?"),
        ("Is the caf\u00e9 open to all?", "Is the cafe\u0301 open to all?"),
        ("Isn\u2019t the account open to all?", "Isn't the account open to all?"),
        ("Is the \U0001f468\u200d\U0001f469\u200d\U0001f467 ticket open to all?",) * 2,
        ("Is a pre\u2011paid ticket open to all?", "Is a pre-paid ticket open to all?"),
    ],
)
def test_other_forms_of_the_same_letters_pass(one: str, two: str) -> None:
    assert read(one).language is Language.ENGLISH
    assert compare(read(one), read(two)).passed


def hostile(length: int) -> list[str]:
    """Questions of about `length` characters that pull at one pattern each."""
    units = (
        "a", "1", "1,", "1.", "1 000 ", "1-", "one ", "hundred ", "不", "一", "万", "é", "\u0301", "'", '"', "\u201c",
        "@a.", "a@a", "+1 ",
        "0 ", "(", "3/4/", "12:3", "v1.", "not ", "more less ", "from a to b ", "Aa ", "I ", "is 5 by ", "http://",
        "www.", "`", "5 kg ", "$5 ",
        "US ", "than ", "used to ", "at least ", "de89 3704 ", "4111 ", "# ", "非", "三月", "\u200d", "½", "\ufdfa",
    )  # fmt: skip
    return ["is the " + unit * (length // len(unit)) + " x" for unit in units]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("text", hostile(20_000))
def test_twenty_thousand_characters_are_turned_away_at_once(text: str) -> None:
    before = time.process_time()
    verdict = compare(read(text), read(text + "y"))
    assert not verdict.passed
    assert time.process_time() - before < 0.5


@pytest.mark.timeout(120)
@pytest.mark.parametrize("text", hostile(MAX_CHARACTERS - 60))
def test_the_longest_text_that_is_read_takes_no_long_time(text: str) -> None:
    """The bound is generous for a busy machine; a pattern that goes back over its steps takes hours."""
    before = time.process_time()
    compare(read(text), read(f"{text} y"))
    assert time.process_time() - before < 2.0


@settings(max_examples=200, deadline=None)
@given(one=st.text(max_size=80), two=st.text(max_size=80))
def test_any_text_has_a_verdict_that_quotes_nothing(one: str, two: str) -> None:
    verdict = compare(read(one), read(two))
    assert len(verdict.reason) < 60
    assert verdict.passed == compare(read(two), read(one)).passed


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("en.toml", b"revision = ["),
        ("en.toml", b"revision = 4\nunknown = 1\n"),
        ("en.toml", b"\xff\xfe"),
        ("values.toml", b"revision = 'four'\n"),
    ],
)
def test_damaged_rules_stop_the_start(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(Corrupt) as caught:
        rules.read_toml(name, rules.English if name == "en.toml" else rules.Values, tmp_path)
    assert caught.value.item == name
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("list.txt", b"cafe\xcc\x81\n"),
        ("list.txt", b"no\xe2\x80\x8bt\n"),
        ("list.txt", b"a" * (rules.MAX_BYTES + 1)),
        ("list.txt", b"a" * (rules.MAX_WORD + 1)),
        ("list.txt", b"\xff"),
        ("list.txt.gz", b"no gzip"),
        ("list.txt.gz", gzip.compress(b"a\n" * rules.MAX_BYTES)),
    ],
)
def test_damaged_lists_stop_the_start(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(Corrupt):
        rules.read_lines(name, tmp_path)


def test_missing_rules_stop_the_start(tmp_path: Path) -> None:
    with pytest.raises(Corrupt, match="missing"):
        rules.read_toml("en.toml", rules.English, tmp_path)


def test_a_sound_list_is_read(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("# a comment\nopen/shut\n")
    assert rules.read_lines("list.txt", tmp_path) == ["open/shut"]


def test_the_revision_names_the_state_of_every_file(tmp_path: Path) -> None:
    assert f"{rules.CODE}-{rules.digest()}" == RULES_REVISION
    for file in rules.FOLDER.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    assert rules.digest(tmp_path) == rules.digest()
    for file in sorted(tmp_path.iterdir()):
        if file.suffix in (".toml", ".txt", ".gz"):
            content = file.read_bytes()
            file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
            assert rules.digest(tmp_path) != rules.digest(), file.name
            file.write_bytes(content)


def test_the_rules_hold_what_they_are_for() -> None:
    known = msgspec.to_builtins(rules.ENGLISH)
    assert {family["name"] for family in known["families"]} >= {
        "conjunction",
        "quantifier",
        "aspect",
        "person",
        "qualifier",
    }
    assert {family.name for family in rules.CHINESE.families} >= {"conjunction", "quantifier", "aspect", "bound"}
