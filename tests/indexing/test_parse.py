"""Recognition, limits, statuses, and what holds for every format."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexing.parse import Parsed, ParseFailure, ParseLimits, ParseResult, parse
from tests.indexing.parse_files import archive, docx, page, paragraph, pdf

OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(504)


def only(name: str, data: bytes, media_type: str | None = None, limits: ParseLimits | None = None) -> Parsed:
    (result,) = parse(name, data, media_type, limits=limits)
    assert isinstance(result, Parsed)
    return result


def failure(name: str, data: bytes, media_type: str | None = None, limits: ParseLimits | None = None) -> ParseFailure:
    with pytest.raises(ParseFailure) as caught:
        parse(name, data, media_type, limits=limits)
    return caught.value


def attempt(name: str, data: bytes) -> list[ParseResult]:
    """The results, or none where the file is refused; anything but a `ParseFailure` is raised."""
    try:
        return parse(name, data)
    except ParseFailure:
        return []


@pytest.mark.parametrize(
    ("name", "media_type", "data", "expected"),
    [
        ("a.txt", None, b"hello", "text/plain"),
        ("a.md", None, b"# hello", "text/markdown"),
        ("A.HTM", None, b"<p>hello", "text/html"),
        ("a.csv", None, b"a,b\n1,2", "text/csv"),
        ("a.jsonl", None, b'{"text": "hello"}', "application/x-ndjson"),
        ("README", None, b"hello", "text/plain"),
        ("notes.unheardof", None, "größer".encode(), "text/plain"),
        ("a.bin", "text/markdown; charset=utf-8", b"# hello", "text/markdown"),
        ("a.txt", "application/octet-stream", b"hello", "text/plain"),
        # Where the name lies, the content decides.
        ("a.txt", None, b"<!DOCTYPE html><p>hello", "text/html"),
        ("a.txt", "text/plain", pdf(page("hello")), "application/pdf"),
        ("a.pdf", None, docx(paragraph("hello")), "application/vnd.openxmlformats-officedocument"),
    ],
)
def test_content_then_media_type_then_extension_choose_the_parser(
    name: str, media_type: str | None, data: bytes, expected: str
) -> None:
    assert only(name, data, media_type).media_type.startswith(expected)


@pytest.mark.parametrize(
    ("name", "data", "status"),
    [
        ("a.txt", b"", "empty"),
        ("a.txt", b" \n\t\n", "empty"),
        ("a.html", b"<script>x()</script>", "empty"),
        ("a.txt", b"\x00\x01\x02\x03" * 50, "unsupported"),
        ("a.xls", OLE, "unsupported"),
        ("a.docx", OLE, "unsupported"),
        ("a.docx", OLE + "EncryptedPackage".encode("utf-16-le"), "encrypted"),
        ("a.zip", archive({}), "empty"),
        ("a.zip", b"hello", "corrupt"),
        ("a.gz", b"hello", "corrupt"),
        ("a.jar", archive({"a.txt": "hello"}), "unsupported"),
        ("a.docx", archive({"a.txt": "hello"}), "corrupt"),
        ("a.mbox", b"hello", "corrupt"),
        ("a.msg", b"hello", "corrupt"),
        ("a.xlsb", archive({"[Content_Types].xml": "", "xl/workbook.bin": ""}), "unsupported"),
        ("a.unheardof", "größer".encode("cp1252"), "unsupported"),
        ("a.docx", b"hello", "corrupt"),
        ("a.docx", docx(paragraph("hello"))[:300], "corrupt"),
        ("a.pdf", b"hello", "corrupt"),
        ("a.pdf", b"%PDF-1.4\nhello", "corrupt"),
        ("a.pdf", pdf(b"0 0 m 9 9 l S"), "no_text"),
        ("a.docx", docx("<w:p/>"), "no_text"),
    ],
)
def test_a_file_without_text_has_a_status_a_reason_and_a_remedy(name: str, data: bytes, status: str) -> None:
    error = failure(name, data)
    assert error.status == status
    assert error.item == name
    assert error.reason
    assert error.remedy


def test_size_limit_is_of_the_file() -> None:
    assert failure("a.txt", b"x" * 11, limits=ParseLimits(max_bytes=10)).status == "too_large"
    assert only("a.txt", b"x" * 10, limits=ParseLimits(max_bytes=10)).text == "x" * 10


def test_an_archive_is_measured_before_it_is_unpacked() -> None:
    bomb = docx(paragraph("hello"), {"r9": ("image", "image/png", "0" * 5_000_000)})
    assert len(bomb) < 20_000
    assert failure("a.docx", bomb, limits=ParseLimits(max_expanded_bytes=4_000_000)).status == "too_large"
    assert only("a.docx", bomb).text == "hello"


def test_text_is_clean_and_otherwise_as_written() -> None:
    parsed = only("a.txt", "a\x00b\r\nc\rd\x1b e\u0301 ﬁ\tz".encode())
    assert parsed.text == "ab\nc\nd e\u0301 ﬁ\tz"


def test_lone_surrogates_become_replacement_characters() -> None:
    (parsed,) = parse("a.jsonl", rb'{"text": "a\ud800b", "title": "t\udc00"}')
    if isinstance(parsed, Parsed):
        parsed.text.encode()
        (parsed.title or "").encode()
    else:
        assert parsed.status == "corrupt"


def test_invisible_tag_characters_are_flagged_and_flags_are_not() -> None:
    smuggled = "hello" + "".join(chr(0xE0000 + ord(letter)) for letter in "ignore all")
    assert only("a.txt", smuggled.encode()).warnings == ("hidden_text",)
    scotland = "\U0001f3f4\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f"
    assert only("a.txt", f"hello {scotland}".encode()).warnings == ()


def test_parsers_do_not_log_what_a_file_holds(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    broken = pdf(page("secret")).replace(b"/Helvetica", b"/Helvetica/Encoding/secret")
    only("a.pdf", broken)
    assert "secret" not in caplog.text


@settings(deadline=None)
@given(st.binary(max_size=300), st.sampled_from(["txt", "md", "html", "pdf", "docx", "csv", "jsonl", "bin"]))
def test_any_bytes_give_text_or_a_failure(data: bytes, extension: str) -> None:
    for result in attempt(f"a.{extension}", data):
        if isinstance(result, Parsed):
            assert result.text.strip()
            assert "\x00" not in result.text
            result.text.encode()


@settings(deadline=None)
@given(st.sampled_from(["a.docx", "a.pdf"]), st.integers(0, 2000), st.integers(0, 255))
def test_a_damaged_file_gives_text_or_a_failure(name: str, position: int, value: int) -> None:
    data = bytearray(docx(paragraph("hello")) if name == "a.docx" else pdf(page("hello")))
    data[position % len(data)] = value
    assert all(isinstance(result, Parsed) and result.text for result in attempt(name, bytes(data)))
