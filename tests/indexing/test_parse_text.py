"""Decoding, plain text and Markdown."""

from __future__ import annotations

import base64
import codecs
import time
from pathlib import Path

import pytest

from indexing.parse import Parsed, parse
from indexing.parse.decode import decode

GERMAN = "Größe und Öffnung: die Straße führt über die Brücke. Für Übergänge gilt die Regel."
ENGLISH = "All human beings are born free and equal in dignity and rights. They are endowed with reason."
RUSSIAN = "Все люди рождаются свободными и равными в своем достоинстве и правах. Они наделены разумом и совестью."
JAPANESE = "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。"


@pytest.mark.parametrize(
    "data",
    [
        GERMAN.encode(),
        codecs.BOM_UTF8 + GERMAN.encode(),
        codecs.BOM_UTF16_LE + GERMAN.encode("utf-16-le"),
        codecs.BOM_UTF16_BE + GERMAN.encode("utf-16-be"),
        codecs.BOM_UTF32_LE + GERMAN.encode("utf-32-le"),
        GERMAN.encode("utf-16-le"),
        GERMAN.encode("utf-16-be"),
    ],
)
def test_unicode_is_decoded_for_certain(data: bytes) -> None:
    assert decode(data)[::2] == (GERMAN, True)


@pytest.mark.parametrize(
    ("text", "encoding"),
    [(GERMAN, "cp1252"), (RUSSIAN, "cp866"), (RUSSIAN, "koi8-r"), (JAPANESE, "shift_jis"), (ENGLISH, "cp500")],
)
def test_a_guess_is_right_and_says_that_it_is_a_guess(text: str, encoding: str) -> None:
    assert decode(text.encode(encoding))[::2] == (text, False)


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("נדרשת חתימה על הבקשה לרישום", "iso8859_8"),
        ("Tesla - נדרשת חתימה על הבקשה", "cp1255"),
        ("Просьба подписать заявление", "cp1251"),
        ("Просьба подписать заявление", "cp866"),
        ("Παρακαλώ υπογράψτε την αίτηση", "cp1253"),
        ("المطلوب التوقيع على الطلب", "cp1256"),
    ],
)
def test_one_line_is_told_by_how_frequent_its_letters_are(text: str, encoding: str) -> None:
    assert decode(text.encode(encoding))[::2] == (text, False)


@pytest.mark.parametrize(
    ("text", "encoding", "label"),
    [
        (RUSSIAN, "cp1251", "windows-1251"),
        (JAPANESE, "shift_jis", "Shift_JIS"),
        (GERMAN, "cp1252", "ISO-8859-1"),
        (JAPANESE, "iso2022_jp", None),
    ],
)
def test_a_declared_charset_that_fits_is_certain(text: str, encoding: str, label: str | None) -> None:
    assert decode(text.encode(encoding), label)[::2] == (text, True)


@pytest.mark.parametrize("label", ["iso-8859-1", "utf-16", "no-such-charset", "hex", "idna", ""])
def test_bytes_that_are_utf8_overrule_what_is_declared(label: str) -> None:
    assert decode(GERMAN.encode(), label)[::2] == (GERMAN, True)


@pytest.mark.parametrize("label", ["utf-8", "ascii", "windows-1252", "hex"])
def test_a_declared_charset_that_does_not_fit_is_a_guess(label: str) -> None:
    decoded = decode(RUSSIAN.encode("koi8-r"), label)
    assert (decoded.text, decoded.certain) == (RUSSIAN, False)


def test_utf8_with_a_damaged_byte_stays_utf8() -> None:
    decoded = decode((GERMAN * 5).encode() + b"\xff" + GERMAN.encode())
    assert decoded == (GERMAN * 5 + "\ufffd" + GERMAN, "utf-8", False)


def test_truncated_utf16_keeps_its_text() -> None:
    decoded = decode(codecs.BOM_UTF16_LE + GERMAN.encode("utf-16-le") + b"x")
    assert decoded.text.startswith(GERMAN)
    assert not decoded.certain


def test_a_doubtful_decoding_is_kept_with_a_warning() -> None:
    (parsed,) = parse("a.txt", GERMAN.encode("cp1252"))
    assert isinstance(parsed, Parsed)
    assert parsed.text == GERMAN
    assert parsed.warnings == ("uncertain_encoding",)


def test_a_file_that_is_base64_as_a_whole_is_decoded_and_flagged_as_hidden() -> None:
    text = "נדרשת חתימה על הבקשה לרישום עד סוף השבוע"
    (parsed,) = parse("a.txt", base64.encodebytes(text.encode("iso8859_8")))
    assert isinstance(parsed, Parsed)
    assert parsed.text == text
    assert parsed.warnings == ("hidden_text", "uncertain_encoding")
    assert [block.hidden for block in parsed.blocks] == [True]


@pytest.mark.parametrize(
    "data",
    [
        base64.b64encode(bytes(range(128, 256)) + bytes(range(32))),  # no text comes out
        b"key: " + base64.b64encode(b"a key of forty bytes or a little more than that"),
        b"https" * 20,
        b"AVeryLongNameOfAFunctionThatIsNoBase64/OrAPathToAFile/12/34",
        b"deadbeef" * 16,
    ],
)
def test_a_text_that_looks_like_base64_stays_as_it_is(data: bytes) -> None:
    (parsed,) = parse("a.txt", data)
    assert isinstance(parsed, Parsed)
    assert parsed.text == data.decode()
    assert parsed.warnings == ()


def markdown(text: str) -> Parsed:
    (parsed,) = parse("a.md", text.encode())
    assert isinstance(parsed, Parsed)
    return parsed


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("text\n\n# The *first* `one`\n\n# Another", "The first one"),
        ("## Lower\n\n# Higher", "Higher"),
        ("Underlined\n===\n\ntext", "Underlined"),
        ("---\ntitle: 'Of the matter'\n---\n# Heading", "Of the matter"),
        ("```\n# code\n```\n", None),
        ("no heading", None),
    ],
)
def test_markdown_is_kept_as_written_and_titled(text: str, title: str | None) -> None:
    parsed = markdown(text)
    assert parsed.text == text
    assert parsed.title == title
    assert parsed.warnings == ()


@pytest.mark.parametrize(
    "text",
    [
        "text\n\n<!-- ignore what was said -->\n",
        "text <!-- ignore --> more",
        'text <span style="display: none">ignore</span>',
        "<div hidden>ignore</div>\n\ntext",
    ],
)
def test_markdown_that_a_rendered_page_hides_is_kept_and_flagged(text: str) -> None:
    parsed = markdown(text)
    assert "ignore" in parsed.text
    assert parsed.warnings == ("hidden_text",)


@pytest.mark.parametrize(
    "text", ["`<!-- shown -->` text".replace("`", "```\n", 1) + "\n```", "a hidden <b>b</b>", "x < y"]
)
def test_markdown_that_shows_markup_is_not_flagged(text: str) -> None:
    assert markdown(text).warnings == ()


def test_pictures_inside_markdown_are_left_out() -> None:
    parsed = markdown("before ![](data:image/png;base64,iVBORw0KGgo=) after")
    assert parsed.text == "before ![](data:) after"
    assert parsed.warnings == ("embedded_data_removed",)


def pieces(parsed: Parsed) -> list[tuple[str, str]]:
    return [(block.kind.value, parsed.text[block.start : block.end]) for block in parsed.blocks]


def test_markdown_has_blocks_with_offsets_into_the_source() -> None:
    parsed = markdown(
        "---\ntitle: T\n---\n# One *two*\n\ntext\nmore\n\n- a\n- b\n  - c\n\n| x | y |\n|---|---|\n| 1 | 2 |\n"
        "\n```py\ncode\n```\n\nUnder\n-----\n\n> quoted\n\n1. n\n"
    )
    assert pieces(parsed) == [
        ("heading", "# One *two*"),
        ("paragraph", "text\nmore"),
        ("list", "- a\n- b\n  - c"),
        ("table", "| x | y |\n|---|---|\n| 1 | 2 |"),
        ("code", "```py\ncode\n```"),
        ("heading", "Under\n-----"),
        ("paragraph", "> quoted"),
        ("list", "1. n"),
    ]
    assert [block.level for block in parsed.blocks] == [1, 0, 0, 0, 0, 2, 0, 0]
    assert parsed.blocks[3].header == "| x | y |"


def test_a_comment_in_markdown_is_a_hidden_block_beside_what_is_shown() -> None:
    parsed = markdown("shown <!-- ignore --> too\n\n<!-- all\nof it -->\n\n`<p hidden>`")
    hidden = [parsed.text[block.start : block.end] for block in parsed.blocks if block.hidden]
    assert hidden[:2] == ["<!-- ignore -->", "<!-- all\nof it -->"]
    assert ("paragraph", "shown ") in pieces(parsed)
    assert ("paragraph", " too") in pieces(parsed)


def rst(text: str) -> Parsed:
    (parsed,) = parse("a.rst", text.encode())
    assert isinstance(parsed, Parsed)
    return parsed


def test_restructured_text_has_structure() -> None:
    parsed = rst(
        "Title\n=====\n\nSome *text* with a `link <http://example.org>`_.\n\nPart\n----\n\n- one\n\n  - inner\n- two\n"
        "\nterm\n  its meaning\n\n=== ===\n A   B\n=== ===\n 1   2\n=== ===\n\n::\n\n  code\n"
        "   more\n\n.. note:: Care\n\n.. nobody sees this\n\n.. [#] a footnote\n"
    )
    assert parsed.title == "Title"
    assert pieces(parsed) == [
        ("heading", "# Title"),
        ("paragraph", "Some text with a link."),
        ("heading", "## Part"),
        ("list", "- one\n  - inner\n- two"),
        ("list", "- term: its meaning"),
        ("table", "A | B\n1 | 2"),
        ("code", "code\n more"),
        ("paragraph", "Care"),
        ("comment", "nobody sees this"),
        ("footnote", "1 a footnote"),
    ]
    assert parsed.blocks[5].header == "A | B"
    assert parsed.warnings == ("hidden_text",)


def test_restructured_text_includes_and_keeps_nothing_of_elsewhere(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("secret", encoding="utf-8")
    parsed = rst(
        f"text\n\n.. include:: {secret}\n\n.. raw:: html\n\n   <b>raw</b>\n\n.. csv-table::\n   :file: {secret}\n\n"
        ".. role:: strong\n\n.. default-role:: math\n"
    )
    assert "secret\n" not in parsed.text.replace(str(secret), "")
    assert "raw" not in parsed.text.replace(".. raw", "")
    # The roles of one document are not those of the next.
    assert rst("a **bold** :strong:`b` `c`").text == "a bold b c"
    assert rst(".. role:: own\n\na :own:`b`").text == "a b"
    assert rst("a :own:`b`").text == "a :own:`b`"


@pytest.mark.parametrize(
    "text", ["*" * 20_000, "+" + "-+" * 1000 + "\n|" + " |" * 1000 + "\n", "- " * 3000, "|x|_" * 9]
)
def test_odd_restructured_text_stays_as_it_is(text: str) -> None:
    started = time.process_time()
    assert rst(text).text.strip()
    assert time.process_time() - started < 5
