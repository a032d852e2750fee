"""PDF: pages, passwords, attachments, and bounds on hostile content streams."""

from __future__ import annotations

import io

import pytest
from pypdf import PdfReader, PdfWriter

from indexing.parse import Parsed, ParseFailure, ParseLimits, parse
from tests.indexing.parse_files import page, pdf


def read(data: bytes, limits: ParseLimits | None = None) -> Parsed:
    (parsed,) = parse("a.pdf", data, limits=limits)
    assert isinstance(parsed, Parsed)
    return parsed


def encrypted(user_password: str) -> bytes:
    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(pdf(page("secret")))))
    writer.add_metadata({"/Title": "Sealed"})
    writer.encrypt(user_password, "owner", algorithm="AES-256")
    buffer = io.BytesIO()
    writer.write(buffer)
    return buffer.getvalue()


def test_pages_are_paragraphs() -> None:
    parsed = read(pdf(page("one  ", "two"), page("three")))
    assert parsed.text == "one\ntwo\n\nthree"
    assert parsed.metadata == {"pages": 2}
    assert parsed.warnings == ()


def test_pages_without_text_are_flagged() -> None:
    assert read(pdf(page("one"), b"0 0 m 9 9 l S")).warnings == ("pages_without_text",)


def test_a_scan_is_no_text_and_not_an_empty_document() -> None:
    with pytest.raises(ParseFailure, match="scan") as caught:
        read(pdf(b"0 0 m 9 9 l S"))
    assert caught.value.status == "no_text"


def test_passwords() -> None:
    with pytest.raises(ParseFailure) as caught:
        read(encrypted("geheim"))
    assert caught.value.status == "encrypted"
    opened = read(encrypted(""))
    assert (opened.text, opened.title) == ("secret", "Sealed")


def test_attachments_are_named_as_unread() -> None:
    parsed = read(pdf(page("text"), extra=b"/Names<</EmbeddedFiles<</Names[]>>>>"))
    assert (parsed.text, parsed.warnings) == ("text", ("attachments_not_read",))


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b" " * 40_000_000, id="bytes"),
        pytest.param(b"0 0 m " * 200_000, id="operands", marks=pytest.mark.slow),
    ],
)
def test_a_page_that_unpacks_without_end_is_too_large(content: bytes) -> None:
    data = pdf(content)
    assert len(data) < 200_000
    with pytest.raises(ParseFailure) as caught:
        read(data)
    assert caught.value.status == "too_large"


def test_the_clock_is_looked_at_inside_a_page() -> None:
    data = pdf(page(*["hello"] * 50))
    with pytest.raises(ParseFailure) as caught:
        read(data, ParseLimits(seconds=0))
    assert caught.value.status == "too_large"
    assert read(data).text.count("hello") == 50
