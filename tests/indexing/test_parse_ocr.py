"""Text in pictures and scans, recognised by Tesseract where it is installed with data for English."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from indexing.parse import Parsed, ParseFailure, ParseLimits, ParseResult, ocr, parse
from tests.indexing.parse_files import archive, page, pdf

SENTENCE = "Travel expenses are repaid"

needs_tesseract = pytest.mark.skipif(ocr.missing() is not None, reason=f"text recognition: {ocr.missing()}")


def picture(*lines: str, kind: str = "PNG", pages: int = 1) -> bytes:
    image = pytest.importorskip("PIL.Image")
    draw = pytest.importorskip("PIL.ImageDraw")
    font = pytest.importorskip("PIL.ImageFont").load_default(36)
    sheets = []
    for number in range(pages):
        sheet = image.new("RGB", (700, 80 + 60 * len(lines)), "white")
        text = "\n".join(lines).replace("PAGE", f"page {number + 1}")
        draw.Draw(sheet).text((30, 30), text, fill="black", font=font)
        sheets.append(sheet)
    buffer = io.BytesIO()
    more = {"save_all": True, "append_images": sheets[1:]} if pages > 1 else {}
    sheets[0].save(buffer, kind, **more)
    return buffer.getvalue()


def only(results: list[ParseResult]) -> Parsed:
    (parsed,) = results
    assert isinstance(parsed, Parsed)
    return parsed


@needs_tesseract
@pytest.mark.parametrize("name", ["a.png", "a.jpg", "noname"])
def test_the_text_of_a_picture_is_read_and_marked_as_recognised(name: str) -> None:
    parsed = only(parse(name, picture(SENTENCE, kind="JPEG" if name == "a.jpg" else "PNG")))
    assert parsed.text == SENTENCE
    assert parsed.warnings == ("recognised_text",)
    assert parsed.media_type == ("image/jpeg" if name == "a.jpg" else "image/png")


@needs_tesseract
@pytest.mark.slow
def test_the_pages_of_a_scan_are_places() -> None:
    tiff = only(parse("a.tiff", picture(SENTENCE, "on PAGE", kind="TIFF", pages=2)))
    scan = only(parse("a.pdf", picture(SENTENCE, "on PAGE", kind="PDF", pages=2)))
    for parsed in (tiff, scan):
        assert [place.label for place in parsed.places] == ["page 1", "page 2"]
        assert parsed.text.count(SENTENCE) == 2
        assert parsed.warnings == ("recognised_text",)
    # A page that has text is not looked at as a picture.
    assert only(parse("a.pdf", pdf(page("hello")))).warnings == ()


@needs_tesseract
def test_a_picture_within_an_archive_is_a_child() -> None:
    parsed = only(parse("a.zip", archive({"scan.png": picture(SENTENCE)})))
    assert (parsed.suffix, parsed.text) == ("#member/scan.png", SENTENCE)


@needs_tesseract
def test_a_picture_without_text_has_none() -> None:
    with pytest.raises(ParseFailure) as caught:
        parse("a.png", picture(" "))
    assert caught.value.status == "no_text"


@needs_tesseract
def test_no_time_is_spent_beyond_the_limit() -> None:
    with pytest.raises(ParseFailure) as caught:
        parse("a.png", picture(SENTENCE), limits=ParseLimits(seconds=0))
    assert caught.value.status == "no_text"


def test_without_the_extra_a_picture_has_no_text_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ocr, "_DATA", (Path("/nowhere"),))
    for name, data in (("a.png", b"\x89PNG\r\n..."), ("a.pdf", pdf(b"0 0 m 9 9 l S"))):
        with pytest.raises(ParseFailure) as caught:
            parse(name, data)
        assert caught.value.status == "no_text"
        assert "text recognition" in caught.value.reason
        assert "extra ocr" in str(caught.value.remedy)


@needs_tesseract
@pytest.mark.parametrize("data", [b"\x89PNG\r\n" + bytes(100), b"GIF89a", b"II*\0" + bytes(50)])
def test_a_damaged_picture_is_corrupt(data: bytes) -> None:
    with pytest.raises(ParseFailure) as caught:
        parse("a.png", data)
    assert caught.value.status == "corrupt"


@needs_tesseract
def test_a_picture_that_unpacks_to_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ocr, "MAX_PIXELS", 1_000)
    with pytest.raises(ParseFailure) as caught:
        parse("a.png", picture(SENTENCE))
    assert caught.value.status == "too_large"
