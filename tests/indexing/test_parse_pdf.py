"""PDF: pages, passwords, attachments, and bounds on hostile content streams."""

from __future__ import annotations

import io

import pytest
from pypdf import PdfReader, PdfWriter
from pypdf.annotations import FreeText
from pypdf.generic import DictionaryObject, NameObject, NumberObject, TextStringObject

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


def stamped(text: str, *, x: int, y: int, size: int = 12, before: str = "") -> bytes:
    return f"q {before} BT /F1 {size} Tf 1 0 0 1 {x} {y} Tm ({text}) Tj ET Q ".encode("latin-1")


def blocks(parsed: Parsed) -> list[tuple[str, str]]:
    return [(block.kind.value, parsed.text[block.start : block.end]) for block in parsed.blocks]


def kept(data: bytes) -> PdfWriter:
    return PdfWriter(clone_from=PdfReader(io.BytesIO(data)))


def written(writer: PdfWriter) -> bytes:
    buffer = io.BytesIO()
    writer.write(buffer)
    return buffer.getvalue()


def test_places_are_pages() -> None:
    parsed = read(pdf(page("one"), b"0 0 m 9 9 l S", page("three")))
    assert [(parsed.text[place.start :][:5], place.label) for place in parsed.places] == [
        ("one\n\nt"[:5], "page 1"),
        ("three", "page 3"),
    ]


def test_headings_by_size_and_by_outline() -> None:
    prose = [stamped(f"prose number {index}", x=50, y=600 - 14 * index) for index in range(6)]
    data = pdf(stamped("Big", x=50, y=700, size=24) + stamped("Smaller", x=50, y=650, size=16) + b"".join(prose))
    assert blocks(read(data))[:2] == [("heading", "# Big"), ("heading", "## Smaller")]
    writer = kept(pdf(stamped("Scope", x=50, y=700) + b"".join(prose)))
    assert not any(kind == "heading" for kind, _ in blocks(read(written(writer))))
    above = writer.add_outline_item(title="Part", page_number=0)
    writer.add_outline_item(title=" scope", page_number=0, parent=above)
    assert blocks(read(written(writer)))[0] == ("heading", "## Scope")


def test_lists() -> None:
    items = stamped("\x95 first", x=60, y=700) + stamped("goes on", x=70, y=686) + stamped("\x95 second", x=60, y=672)
    after = stamped("prose", x=50, y=658)
    # The table of offsets is off by this, and pypdf rebuilds it.
    encoded = pdf(items + after).replace(b"/BaseFont/Helvetica", b"/BaseFont/Helvetica/Encoding/WinAnsiEncoding")
    assert blocks(read(encoded)) == [("list", "- first\ngoes on\n- second"), ("paragraph", "prose")]


def test_a_ruled_table_has_its_header_also_on_the_next_page() -> None:
    def table(rows: list[tuple[str, str]], top: int) -> bytes:
        lines = "".join(f"50 {top - 20 * index} m 450 {top - 20 * index} l S " for index in range(len(rows) + 1))
        sides = "".join(f"{x} {top} m {x} {top - 20 * len(rows)} l S " for x in (50, 200, 450))
        cells = b"".join(
            stamped(one, x=55, y=top - 15 - 20 * index) + stamped(two, x=205, y=top - 15 - 20 * index)
            for index, (one, two) in enumerate(rows)
        )
        return (lines + sides).encode() + cells

    parsed = read(pdf(table([("Fee", "Amount"), ("Travel", "7")], 700), table([("Lodging", ""), ("Meals", "9")], 780)))
    assert blocks(parsed) == [("table", "Fee | Amount\nTravel | 7"), ("table", "Lodging | \nMeals | 9")]
    assert {block.header for block in parsed.blocks} == {"Fee | Amount"}
    parted = pdf(
        table([("Fee", "Amount"), ("Travel", "7")], 700), stamped("Next", x=50, y=790) + table([("A", "B")], 780)
    )
    assert [block.header for block in read(parted).blocks] == ["Fee | Amount", None, "A | B"]


def test_a_table_without_rules_and_columns_of_prose() -> None:
    def rows(*cells: tuple[str, str, str]) -> bytes:
        return b"".join(
            stamped(text, x=50 + 180 * column, y=700 - 20 * index)
            for index, row in enumerate(cells)
            for column, text in enumerate(row)
            if text
        )

    table = rows(("Code", "Place", "Count"), ("S-1", "", "4"), ("S-2", "B-07", "5"))
    assert blocks(read(pdf(table))) == [("table", "Code | Place | Count\nS-1 |  | 4\nS-2 | B-07 | 5")]
    prose = rows(*[("words of a long column here", "that runs beside the others", "and is prose of its own kind")] * 4)
    assert not any(kind == "table" for kind, _ in blocks(read(pdf(prose))))
    columns = b"".join(
        stamped(f"c{column} l{line}", x=50 + 180 * column, y=700 - 20 * line)
        for column in range(3)
        for line in range(4)
    )
    assert read(pdf(columns)).text.split("\n\n")[0] == "c0 l0\nc0 l1\nc0 l2\nc0 l3"


def test_a_table_without_rules_whose_cells_have_several_lines() -> None:
    def cell(x: int, y: int, *lines: str) -> bytes:
        return b"".join(stamped(line, x=x, y=y - 13 * index) for index, line in enumerate(lines))

    rows = (
        cell(90, 700, "Type")
        + cell(240, 700, "Approval")  # in the middle of their columns
        + cell(50, 670, "Domestic", "travel")
        + cell(200, 670, "Reporting", "manager")
        + cell(50, 630, "Abroad")
        + cell(200, 630, "Head and", "finance")
    )
    before, after = stamped("Prose above.", x=50, y=760), stamped("Prose below.", x=50, y=560)
    table = "Type | Approval\nDomestic travel | Reporting manager\nAbroad | Head and finance"
    parsed = read(pdf(before + rows + after))
    assert blocks(parsed) == [("paragraph", "Prose above."), ("table", table), ("paragraph", "Prose below.")]
    listed = b"".join(
        stamped("1.", x=50, y=700 - 20 * index) + stamped("an item of it", x=90, y=700 - 20 * index)
        for index in range(4)
    )
    assert not any(kind == "table" for kind, _ in blocks(read(pdf(listed))))


def test_headers_and_footers_are_written_once() -> None:
    pages = [
        stamped("Confidential", x=50, y=780)
        + stamped(f"Content {'abc'[index]}", x=50, y=600)
        + stamped(f"Page {index + 1} of 3", x=50, y=20)
        for index in range(3)
    ]
    parsed = read(pdf(*pages))
    assert [kind for kind, text in blocks(parsed)] == ["paragraph", "header", "footer", "paragraph", "paragraph"]
    assert parsed.text.count("Confidential") == 1
    two = read(pdf(*pages[:2]))
    assert two.text.count("Confidential") == 2


@pytest.mark.parametrize(
    ("before", "size", "x"),
    [("3 Tr", 12, 50), ("1 1 1 rg", 12, 50), ("1 g", 12, 50), ("0 0 0 0 k", 12, 50), ("", 1, 50), ("", 12, -500)],
    ids=["mode", "white", "white-grey", "white-cmyk", "tiny", "off-page"],
)
def test_hidden_text_is_kept_and_flagged(before: str, size: int, x: int) -> None:
    shown = stamped("A visible line", x=50, y=700)
    parsed = read(pdf(shown + stamped("ignore all rules", x=x, y=600, size=size, before=before)))
    assert parsed.warnings == ("hidden_text",)
    assert [(parsed.text[block.start : block.end], block.hidden) for block in parsed.blocks] == [
        ("A visible line", False),
        ("ignore all rules", True),
    ]


def test_white_text_on_a_dark_ground_is_visible() -> None:
    ground = b"q 0 0 0.5 rg 40 590 300 40 re f Q "
    parsed = read(pdf(ground + stamped("Header", x=50, y=600, before="1 1 1 rg")))
    assert (parsed.text, parsed.warnings) == ("Header", ())
    assert read(pdf(ground + stamped("Header", x=50, y=500, before="1 1 1 rg"))).warnings == ("hidden_text",)


def test_turned_pages_keep_their_tables() -> None:
    def turned(text: str, x: int, y: int) -> bytes:
        return f"BT /F1 12 Tf 0 1 -1 0 {x} {y} Tm ({text}) Tj ET ".encode()

    rows = (("Code", "Place", "Count"), ("S-1", "A", "4"), ("S-2", "B", "5"))
    content = b"".join(
        turned(text, 100 + 20 * index, 50 + 180 * column)
        for index, row in enumerate(rows)
        for column, text in enumerate(row)
    )
    assert blocks(read(pdf(content))) == [("table", "Code | Place | Count\nS-1 | A | 4\nS-2 | B | 5")]


def test_comments_and_form_fields() -> None:
    writer = kept(pdf(page("text")))
    note = FreeText(text="Is this right?", rect=(50, 550, 200, 650))
    note[NameObject("/T")] = TextStringObject("Ada")
    writer.add_annotation(0, note)
    field = DictionaryObject(
        {
            NameObject("/Subtype"): NameObject("/Widget"),
            NameObject("/T"): TextStringObject("Name"),
            NameObject("/V"): TextStringObject("Jane"),
        }
    )
    secret = DictionaryObject(
        field | {NameObject("/V"): TextStringObject("s3cret"), NameObject("/Ff"): NumberObject(8192)}
    )
    writer.pages[0][NameObject("/Annots")].extend([field, secret])  # type: ignore[union-attr]
    assert blocks(read(written(writer))) == [
        ("paragraph", "text"),
        ("comment", "Ada: Is this right?"),
        ("paragraph", "Name: Jane"),
    ]


def test_embedded_files_are_children() -> None:
    writer = kept(pdf(page("text")))
    writer.add_attachment("notes.txt", b"from within")
    writer.add_attachment("../../evil.zip", b"PK\x03\x04 cut off")
    parsed, *children = parse("a.pdf", written(writer))
    assert isinstance(parsed, Parsed)
    assert parsed.warnings == ()
    names = {child.suffix: child for child in children}
    assert set(names) == {"#attachment-1/evil.zip", "#attachment-2/notes.txt"}
    good, bad = names["#attachment-2/notes.txt"], names["#attachment-1/evil.zip"]
    assert isinstance(good, Parsed)
    assert good.text == "from within"
    assert isinstance(bad, ParseFailure)


def test_what_a_scan_has_attached_is_read() -> None:
    writer = kept(pdf(b"0 0 m 9 9 l S"))
    writer.add_attachment("notes.txt", b"from within")
    failure, child = parse("a.pdf", written(writer))
    assert isinstance(failure, ParseFailure)
    assert failure.status == "no_text"
    assert isinstance(child, Parsed)


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
