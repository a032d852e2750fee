"""JSON and XML as outlines, and what hostile ones may not do."""

from __future__ import annotations

import json
import time
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexing.parse import Parsed, ParseFailure, ParseLimits, parse


def only(name: str, data: str | bytes) -> Parsed:
    (parsed,) = parse(name, data if isinstance(data, bytes) else data.encode())
    assert isinstance(parsed, Parsed)
    return parsed


def status(name: str, data: str, limits: ParseLimits | None = None) -> str:
    with pytest.raises(ParseFailure) as caught:
        parse(name, data.encode(), limits=limits)
    assert caught.value.remedy
    return caught.value.status


def test_json_is_an_outline_with_places() -> None:
    parsed = only(
        "a.json",
        '{"title": "T", "price": 1.50, "big": 12345678901234567890, "on": true, "none": null,'
        ' "address": {"city": "Oslo", "geo": [1, 2]}, "tags": ["a", {"b": "c", "d": []}], "title": "again"}',
    )
    assert parsed.text == (
        "title: T\nprice: 1.50\nbig: 12345678901234567890\non: true\nnone:\n\naddress:\n  city: Oslo\n  geo:"
        "\n    - 1\n    - 2\n\ntags:\n  - a\n  -\n    b: c\n    d:\n\ntitle: again"
    )
    assert parsed.title == "T"
    assert [place.label for place in parsed.places] == ["/title", "/address", "/tags", "/title"]
    assert len(parsed.blocks) == 4


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ('[{"a": 1}, {"a": 2}]', "a: 1\n\na: 2"),
        ('{"a": 1}\n{"a": 2}\n', "a: 1\n\na: 2"),
        ('["x", "y"]', "- x\n- y"),
        ('"just text"', "just text"),
        ("[[1, 2], [3]]", "- 1\n- 2\n\n- 3"),
    ],
)
def test_lists_and_lines_of_json(data: str, text: str) -> None:
    assert only("a.json", data).text == text


def test_a_list_of_records_names_no_readers() -> None:
    parsed = only("a.json", '[{"text": "x", "allow": ["tenant"]}]')
    assert (parsed.allow, parsed.deny) == (None, None)


def test_broken_json_is_text_and_says_so() -> None:
    parsed = only("a.json", '{"name": "Ana", ')
    assert (parsed.text, parsed.warnings) == ('{"name": "Ana", ', ("malformed_parts",))
    assert only("a.txt", '{"name": "Ana", ').warnings == ()


def test_pictures_in_json_are_left_out() -> None:
    parsed = only("a.json", json.dumps({"png": "iVBORw0KGgo" * 100, "text": "long " * 200}))
    assert parsed.text.startswith("png:\ntext: long long")
    assert parsed.warnings == ("embedded_data_removed",)


@pytest.mark.parametrize(
    "data",
    [
        "[" * 100_000,
        "[" * 100_000 + "]" * 100_000,
        '{"a":' * 700 + "1" + "}" * 700,
    ],
)
def test_json_nested_without_end_is_refused_quickly(data: str) -> None:
    started = time.process_time()
    assert status("a.json", data) == "too_large"
    assert time.process_time() - started < 2


def test_an_outline_is_bounded() -> None:
    data = json.dumps({"n" * 500: [[1] * 10] * 100})
    assert status("a.json", data, ParseLimits(max_characters=2_000)) == "too_large"


def test_xml_is_an_outline_with_places_and_prose() -> None:
    parsed = only(
        "a.xml",
        '<?xml version="1.0" encoding="windows-1251"?><!DOCTYPE cat SYSTEM "http://127.0.0.1:1/x.dtd"><!-- c -->'
        '<cat xmlns="urn:x" year="2024"><title>Каталог</title><book id="7"><price>5</price><note>a <b>bold</b> text'
        "</note></book><book><price>6 &amp; 7</price><empty/></book></cat>".encode("cp1251"),
    )
    assert parsed.text == (
        "year: 2024\n\n# Каталог\n\nbook:\n  id: 7\n  price: 5\n\na bold text\n\nbook:\n  price: 6 & 7"
    )
    assert parsed.title == "Каталог"
    assert [place.label for place in parsed.places] == ["/cat/title[1]", "/cat/book[1]", "/cat/book[2]"]
    assert parsed.warnings == ()


def test_a_web_page_in_xml_is_read_as_a_page() -> None:
    parsed = only("a.xml", '<html xmlns="http://www.w3.org/1999/xhtml"><body><h1>Head</h1><p>text</p></body></html>')
    assert parsed.text == "# Head\n\ntext"


LAUGHS = "".join(f'<!ENTITY l{level} "{f"&l{level - 1};" * 10}">' for level in range(1, 10))


def test_no_entity_is_expanded_and_no_file_read() -> None:
    parsed = only(
        "a.xml", '<!DOCTYPE a [<!ENTITY x "boom"><!ENTITY f SYSTEM "file:///etc/hostname">]><a>1 &x; &f; 2</a>'
    )
    assert parsed.text == "1 &x; &f; 2"
    assert parsed.warnings == ("malformed_parts",)


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        (f'<!DOCTYPE a [<!ENTITY l0 "lol">{LAUGHS}]><a>&l9;</a>', "too_large"),
        (f'<!DOCTYPE a [<!ENTITY l0 "lol">{LAUGHS}]><a b="&l9;">x</a>', "too_large"),
        ('<!DOCTYPE a [<!ENTITY l0 "&l1;"><!ENTITY l1 "&l0;">]><a b="&l0;">x</a>', "too_large"),
        ("<!DOCTYPE a [" + "<!ENTITY e SYSTEM 'x'>" * 1001 + "]><a>x</a>", "too_large"),
        ("<a>" * 100_000, "too_large"),
        ("<a>" * 300 + "x" + "</a>" * 300, "too_large"),
        ("<a><b></a>", "corrupt"),
        ("<a/>", "empty"),
        ("text", "corrupt"),
    ],
)
def test_hostile_or_broken_xml_is_refused_quickly(data: str, wanted: str) -> None:
    started = time.process_time()
    assert status("a.xml", data) == wanted
    assert time.process_time() - started < 2


def test_xml_beyond_its_limit_is_refused() -> None:
    assert status("a.xml", "<a>" + "x" * 100 + "</a>", ParseLimits(max_xml_bytes=50)) == "too_large"


VALUES = st.none() | st.booleans() | st.integers() | st.text(max_size=10)


@settings(deadline=None, max_examples=40)
@given(st.recursive(VALUES, lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=5), inner), max_leaves=10))
def test_any_json_gives_text_or_a_failure(value: object) -> None:
    with suppress(ParseFailure):
        assert only("a.json", json.dumps(value)).text


@settings(deadline=None, max_examples=40)
@given(st.binary(max_size=200), st.sampled_from(["json", "xml", "rst", "md", "txt"]))
def test_any_bytes_give_text_or_a_failure(data: bytes, extension: str) -> None:
    for start in (b"", b"<a>", b'{"a":'):
        with suppress(ParseFailure):
            assert parse(f"a.{extension}", start + data)
