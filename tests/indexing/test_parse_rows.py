"""CSV and JSON Lines."""

from __future__ import annotations

import json

import pytest

from indexing.parse import Parsed, ParseFailure, ParseLimits, ParseResult, parse
from indexing.parse.model import Kind


def csv(text: str, name: str = "a.csv") -> Parsed:
    (parsed,) = parse(name, text.encode())
    assert isinstance(parsed, Parsed)
    return parsed


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name,city\nana,Oslo\nbo,Rome\n", "name | city\nana | Oslo\nbo | Rome"),
        ("name;city\nana;Oslo, Norway", "name | city\nana | Oslo, Norway"),
        ('name,note\nana,"a ""quoted"",\nlong note"', 'name | note\nana | a "quoted", long note'),
        ("name,\nana,x", "name |\nana | x"),
        ("name,city\nana\n\n,Rome", "name | city\nana\n| Rome"),
        ("\n\nname,city\nana,Oslo", "name | city\nana | Oslo"),
        ("name,city", "name | city"),
        ("sep=;\nname;city\nana;a,b,c", "name | city\nana | a,b,c"),
        ('"last, first";age\n"lee, ana";"1,5"\n"roe, bo";"2,5"', "last, first | age\nlee, ana | 1,5\nroe, bo | 2,5"),
    ],
)
def test_a_table_is_a_row_a_line_under_its_header(text: str, expected: str) -> None:
    parsed = csv(text)
    assert parsed.text == expected
    assert parsed.warnings == ()
    (block,) = parsed.blocks
    assert (block.kind, block.start, block.end) == (Kind.TABLE, 0, len(expected))
    assert block.header == expected.partition("\n")[0]


def test_a_title_above_the_table_is_not_its_header() -> None:
    parsed = csv("Cups won,,\nTeam,City,Cups\nBlues,STL,1")
    assert parsed.text == "Cups won\n\nTeam | City | Cups\nBlues | STL | 1"
    assert (parsed.title, parsed.blocks[1].header) == ("Cups won", "Team | City | Cups")
    assert csv("name\nana\nbo").blocks[0].header == "name"


def test_tabs() -> None:
    assert csv("a, b\tc\n1\t2", "a.tsv").text == "a, b | c\n1 | 2"
    assert csv("a\tb\n1\t2").text == "a | b\n1 | 2"


@pytest.mark.parametrize(
    ("text", "header"),
    [
        ("1,apple,3\n2,pear,4", None), ("1|apple\n2|pear", None), ("2024-01-31;ok\n2024-02-29;ok", None),
        ("31.01.2024,5\n01.02.2024,6", None), ("2024-01-31T10:00:00Z,5", None), ("apple,1.5\npear,2.25", None),
        ("apple,$ 3.50\npear,$ 4.00", None), ("-3,4\n5,6", None), ("12%,x\n13%,y", None), ('"1,200",x\n7,y', None),
        ("Region,2023,2024\nWest,1,2", "Region | 2023 | 2024"), ("Day,1,2\nx,3,4", "Day | 1 | 2"),
        ("name,born\nana,1990", "name | born"), ("1st,2nd\n3,4", "1st | 2nd"), ("Q1 2024,v1.5\n3,4", "Q1 2024 | v1.5"),
        ("name,2024-01-31\nana,5", "name | 2024-01-31"),
    ],
)  # fmt: skip
def test_values_in_the_first_row_are_no_header(text: str, header: str | None) -> None:
    parsed = csv(text)
    assert parsed.blocks[0].header == header
    assert parsed.metadata == {"rows": text.count("\n") + (header is None)}


def test_cells_beyond_the_header_are_kept_and_flagged() -> None:
    parsed = csv("a,b\n1,2,3\n4")
    assert parsed.text == "a | b\n1 | 2 | 3\n4"
    assert parsed.warnings == ("inconsistent_columns",)
    assert parsed.metadata == {"rows": 2}


def test_a_quote_that_never_closes_does_not_swallow_the_file() -> None:
    parsed = csv('size,item\n"5 inch,pipe\n6,hose\n7,tube')
    assert parsed.text == 'size | item\n"5 inch | pipe\n6 | hose\n7 | tube'
    assert parsed.warnings == ("unbalanced_quotes",)


def test_a_cell_may_be_long() -> None:
    assert len(csv("a,b\n" + "word " * 60_000 + ",x").text) > 290_000


def test_a_table_beyond_the_limit_is_refused() -> None:
    with pytest.raises(ParseFailure) as caught:
        parse("a.csv", b"a,b\n" + b"1,2\n" * 1000, limits=ParseLimits(max_characters=1000))
    assert caught.value.status == "too_large"


def lines(*records: object) -> list[ParseResult]:
    text = "\n".join(record if isinstance(record, str) else json.dumps(record) for record in records)
    return parse("a.jsonl", text.encode())


def test_each_line_is_a_child_of_its_own() -> None:
    first, second, third = lines(
        {"id": "p1", "title": "One", "text": "first", "metadata": {"year": 2024, "draft": None}, "allow": ["user:ana"]},
        "",
        {"text": "second", "allow": [], "deny": ["group:hr"]},
        {"_id": 7, "text": "third\u2028line", "title": ""},
    )
    assert isinstance(first, Parsed)
    assert (first.suffix, first.title, first.text) == ("#p1", "One", "first")
    assert first.metadata == {"year": 2024}
    assert (first.allow, first.deny) == (("user:ana",), None)
    assert first.source is not None
    assert json.loads(first.source)["id"] == "p1"
    assert isinstance(second, Parsed)
    assert (second.suffix, second.allow, second.deny) == ("#3", (), ("group:hr",))
    assert isinstance(third, Parsed)
    assert (third.suffix, third.text, third.title) == ("#7", "third\u2028line", None)


@pytest.mark.parametrize(
    ("bad", "suffix", "said"),
    [
        ('{"text": "cut off', "#line-2", "line 2"),
        ("[1, 2]", "#line-2", "array"),
        ({"id": "x"}, "#line-2", "text"),
        ({"id": "x", "text": 5}, "#line-2", "text"),
        ({"text": "t", "alow": ["tenant"]}, "#line-2", "alow"),
        ({"id": "x", "text": "t", "allow": ["everyone"]}, "#x", "label"),
        ({"id": "x", "text": "t", "deny": "user:bo"}, "#line-2", "deny"),
        ({"id": "x\n", "text": "t"}, "#line-2", "name"),
        ({"id": "x", "text": "  "}, "#x", "no text"),
        ({"id": "p1", "text": "again"}, "#line-2", "line 1"),
        ('{"text": "t", "metadata": ' + "[" * 100_000, "#line-2", "line 2"),
    ],
)
def test_a_bad_line_is_reported_and_the_others_go_on(bad: object, suffix: str, said: str) -> None:
    first, failed, last = lines({"id": "p1", "text": "first"}, bad, {"id": "p3", "text": "last"})
    assert isinstance(first, Parsed)
    assert isinstance(last, Parsed)
    assert isinstance(failed, ParseFailure)
    assert failed.suffix == suffix
    assert failed.item == "a.jsonl" + suffix
    assert said in failed.reason
    assert failed.remedy


def test_a_reason_does_not_quote_the_text() -> None:
    (failed,) = lines({"text": ["confidential"], "allow": ["tenant"]})
    assert isinstance(failed, ParseFailure)
    assert "confidential" not in str(failed)


def test_lines_beyond_the_limit_are_refused_before_they_take_memory() -> None:
    lines = b'{"text": "a"}\n' * 11
    with pytest.raises(ParseFailure) as caught:
        parse("a.jsonl", lines, limits=ParseLimits(max_children=10))
    assert caught.value.status == "too_large"
    assert len(parse("a.jsonl", lines, limits=ParseLimits(max_children=11))) == 11
