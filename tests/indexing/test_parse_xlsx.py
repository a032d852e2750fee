"""XLSX: what a person sees in the sheets, with the cells that it stands in."""

from __future__ import annotations

import datetime
import io
import time

import openpyxl
import pytest
from openpyxl.comments import Comment
from openpyxl.styles import numbers

from indexing.parse import Parsed, ParseFailure, ParseLimits, parse
from indexing.parse.sheet import cell_of, letters
from indexing.parse.xlsx_values import Format, format_of, number
from tests.indexing.office_files import cells, links, xlsx
from tests.indexing.parse_files import archive


def read(data: bytes, limits: ParseLimits | None = None) -> Parsed:
    (parsed,) = parse("a.xlsx", data, limits=limits)
    assert isinstance(parsed, Parsed)
    return parsed


def blocks(parsed: Parsed) -> list[tuple[str, str, bool]]:
    return [(block.kind.value, parsed.text[block.start : block.end], block.hidden) for block in parsed.blocks]


def saved(book: openpyxl.Workbook) -> bytes:
    buffer = io.BytesIO()
    book.save(buffer)
    return buffer.getvalue()


def test_a_workbook_of_openpyxl() -> None:
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = "Costs"
    sheet.append(["Item", "Share", "Due", "Paid"])
    sheet.append(["Rent", 0.125, datetime.date(2024, 2, 29), True])
    sheet.append(["Food", 0.1 + 0.2, datetime.datetime(2024, 3, 1, 9, 30), False])
    sheet["B2"].number_format = numbers.FORMAT_PERCENTAGE_00
    sheet["A3"].comment = Comment("Why so much?", "Ada")
    sheet.oddHeader.center.text = "Internal"
    book.properties.title = "Budget"
    parsed = read(saved(book))
    assert parsed.title == "Budget"
    assert blocks(parsed) == [
        ("heading", "# Costs", False),
        (
            "table",
            "Item | Share | Due | Paid\nRent | 12.5% | 2024-02-29 | TRUE\nFood | 0.3 | 2024-03-01 09:30 | FALSE",
            False,
        ),
        ("header", "Internal", False),
        ("comment", "A3, Ada: Why so much?", False),
    ]
    assert parsed.blocks[1].header == "Item | Share | Due | Paid"
    assert [place.label for place in parsed.places] == [
        "sheet Costs",
        "sheet Costs!A1:D3",
        "sheet Costs",
        "sheet Costs!A3",
    ]
    assert parsed.warnings == ()


def test_formulas_are_their_cached_values() -> None:
    sheet = '<sheetData><row><c><f>1+1</f><v>2</v></c><c t="str"><f>X</f><v>two</v></c></row></sheetData>'
    assert "2 | two" in read(xlsx(sheet)).text
    bare = '<sheetData><row r="1"><c r="A1"><f>SUM(B1:B3)</f></c></row></sheetData>'
    parsed = read(xlsx(bare))
    assert parsed.text.endswith("=SUM(B1:B3)")
    assert parsed.warnings == ("formulas_not_computed",)


def test_shared_strings_without_their_readings() -> None:
    strings = "<si><r><t>東</t></r><r><t>京</t></r><rPh sb='0' eb='2'><t>トウキョウ</t></rPh></si>"
    sheet = '<sheetData><row><c t="s"><v>0</v></c><c t="s"><v>7</v></c><c t="e"><v>#N/A</v></c></row></sheetData>'
    assert read(xlsx(sheet, strings=strings)).text.endswith("東京 | #N/A")


def test_a_title_above_a_table_and_two_ranges() -> None:
    parsed = read(xlsx(cells(A1="Title", A2="x", B2="y", A3="1", B3="2", C6="p", D6="q")))
    assert blocks(parsed)[1:] == [
        ("paragraph", "Title", False),
        ("table", "x | y\n1 | 2", False),
        ("table", "p | q", False),
    ]
    assert [place.label for place in parsed.places] == [
        "sheet S1",
        "sheet S1!A1",
        "sheet S1!A2:B3",
        "sheet S1!C6:D6",
    ]


def test_merged_cells_name_each_row_that_they_cover() -> None:
    sheet = cells(A1="Region", B1="City", A2="North", B2="Kiel", B3="Husum", A4="South", B4="Ulm")
    merged = '<mergeCells count="2"><mergeCell ref="A2:A3"/><mergeCell ref="nonsense"/></mergeCells>'
    assert read(xlsx(sheet + merged)).text.endswith("North | Kiel\nNorth | Husum\nSouth | Ulm")


def test_what_a_merged_cell_covers_is_hidden() -> None:
    sheet = cells(A1="shown", B1="below", C1="x", A2="too", C2="y")
    parsed = read(xlsx(sheet + '<mergeCells><mergeCell ref="A1:B2"/></mergeCells>'))
    assert blocks(parsed)[1:] == [("table", "shown | x\nshown | y", False), ("paragraph", "below\ntoo", True)]
    assert parsed.warnings == ("hidden_text",)


def test_what_is_hidden_is_flagged() -> None:
    columns = '<cols><col min="2" max="2" hidden="1"/></cols>'
    sheet = cells(A1="Name", B1="Salary", A2="Ada", B2="9", A3="Bob", B3="8").replace(
        '<row r="3">', '<row r="3" hidden="1">'
    )
    parsed = read(xlsx(columns + sheet, cells(A1="vault"), cells(A1="shown"), states={2: "veryHidden"}))
    assert parsed.warnings == ("hidden_text",)
    assert blocks(parsed) == [
        ("heading", "# S1", False),
        ("table", "Name\nAda", False),
        ("table", "Salary\n9", True),
        ("table", "Bob | 8", True),
        ("heading", "# S2", True),
        ("table", "vault", True),
        ("heading", "# S3", False),
        ("table", "shown", False),
    ]
    assert parsed.blocks[3].header == "Name | Salary"


def test_a_long_table_is_cut_where_its_rows_say() -> None:
    def parts(rows: list[str]) -> list[str]:
        parsed = read(xlsx(cells(**{f"A{index}": text for index, text in enumerate(rows, 1)})))
        assert {block.header for block in parsed.blocks if block.header} == {rows[0]}
        assert "".join(parsed.text[block.start : block.end] + "\n" for block in parsed.blocks[1:]).split() == rows
        return [parsed.text[block.start : block.end] for block in parsed.blocks[1:]]

    rows = ["head", *(f"row{index}" for index in range(400))]
    before = parts(rows)
    after = parts([*rows[:200], "new", *rows[200:]])
    assert len(before) > 6
    assert len(set(after) - set(before)) <= 2


def test_text_boxes_and_charts() -> None:
    drawing = (
        '<wsDr xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"><sp><txBody><a:p><a:r><a:t>A box</a:t>'
        "</a:r></a:p></txBody></sp></wsDr>"
    )
    chart = (
        '<c:chartSpace xmlns:c="c" xmlns:a="a"><c:title><c:tx><a:p><a:r><a:t>Sales</a:t></a:r></a:p></c:tx></c:title>'
        '<c:ser><c:tx><c:pt idx="0"><c:v>North</c:v></c:pt></c:tx><c:cat><c:pt idx="0"><c:v>May</c:v></c:pt></c:cat>'
        '<c:val><c:pt idx="0"><c:v>7</c:v></c:pt><c:pt idx="999999999"><c:v>8</c:v></c:pt></c:val></c:ser>'
        "</c:chartSpace>"
    )
    parsed = read(
        xlsx(
            cells(A1="x"),
            parts={
                "xl/worksheets/_rels/sheet1.xml.rels": links(("d", "drawing", "../drawings/d.xml")),
                "xl/drawings/d.xml": drawing,
                "xl/drawings/_rels/d.xml.rels": links(("c", "chart", "/xl/charts/c.xml"), ("e", "chart", "lost.xml")),
                "xl/charts/c.xml": chart,
            },
        )
    )
    assert blocks(parsed)[2:] == [
        ("paragraph", "A box", False),
        ("paragraph", "Sales", False),
        ("table", " | North\nMay | 7", False),
    ]


def test_threads_of_comments_are_read_once() -> None:
    notes = (
        '<comments><authors><author>tc={1}</author></authors><commentList><comment ref="A1" authorId="0"><text><t>'
        "[Threaded comment] Really?</t></text></comment></commentList></comments>"
    )
    threads = '<ThreadedComments><threadedComment ref="A1"><text>Really?</text></threadedComment></ThreadedComments>'
    parsed = read(
        xlsx(
            cells(A1="x"),
            parts={
                "xl/worksheets/_rels/sheet1.xml.rels": links(
                    ("a", "comments", "../comments1.xml"), ("b", "threadedComment", "../threads.xml")
                ),
                "xl/comments1.xml": notes,
                "xl/threads.xml": threads,
            },
        )
    )
    assert [text for kind, text, _ in blocks(parsed) if kind == "comment"] == ["A1, Really?"]


def test_embedded_files_are_children() -> None:
    parsed, child = parse("a.xlsx", xlsx(cells(A1="x"), parts={"xl/embeddings/inner.xlsx": xlsx(cells(A1="within"))}))
    assert isinstance(parsed, Parsed)
    assert isinstance(child, Parsed)
    assert (child.suffix, "within" in child.text) == ("#attachment-1/inner.xlsx", True)


def test_one_cell_far_away_costs_one_cell() -> None:
    start = time.process_time()
    parsed = read(xlsx(cells(A1="near", XFD1048576="far")))
    assert "far" in parsed.text
    assert parsed.places[-1].label == "sheet S1!XFD1048576"
    diagonal = cells(**{f"{letters(index)}{index}": "x" for index in range(1, 3_000)})
    assert len(read(xlsx(diagonal)).text) < 20_000
    assert time.process_time() - start < 2


@pytest.mark.parametrize(
    "sheet",
    [
        '<sheetData><row r="1">' + '<c t="s"><v>0</v></c>' * 400 + "</row></sheetData>",
        "<sheetData>" + '<row><c t="s"><v>0</v></c></row>' * 400 + "</sheetData>",
    ],
    ids=["columns", "rows"],
)
def test_one_long_string_in_many_cells_is_too_large(sheet: str) -> None:
    data = xlsx(sheet, strings=f"<si><t>{'long ' * 2_000}</t></si>")
    assert len(data) < 10_000
    with pytest.raises(ParseFailure) as caught:
        read(data, ParseLimits(max_characters=1_000_000))
    assert caught.value.status == "too_large"


def test_many_large_merged_areas_are_bounded() -> None:
    areas = "<mergeCells>" + '<mergeCell ref="A1:XFD1048576"/>' * 20_000 + "</mergeCells>"
    start = time.process_time()
    assert read(xlsx(cells(**{f"A{index}": "x" for index in range(1, 500)}) + areas)).text
    assert time.process_time() - start < 2


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (xlsx("<sheetData><row><c"), "corrupt"),
        (xlsx(cells()), "no_text"),
        (xlsx(), "no_text"),
        (archive({"[Content_Types].xml": "<x/>", "xl/workbook.xml": "<workbook/>"}), "corrupt"),
        (b"not a zip archive", "corrupt"),
        (xlsx(cells(A1="x"))[:-200], "corrupt"),
    ],
)
def test_damaged_files(data: bytes, status: str) -> None:
    with pytest.raises(ParseFailure) as caught:
        read(data)
    assert caught.value.status == status


def test_a_damaged_sheet_costs_only_itself() -> None:
    parsed = read(xlsx("<sheetData><row><c", cells(A1="whole")))
    assert parsed.text.endswith("whole")
    assert parsed.warnings == ("malformed_parts",)


def test_entities_in_a_sheet_are_refused() -> None:
    sheet = (
        '<!DOCTYPE x [<!ENTITY a "b">]><worksheet><sheetData><row><c t="str"><v>x</v></c></row></sheetData></worksheet>'
    )
    parsed = read(xlsx(cells(A1="x"), cells(A1="whole"), parts={"xl/worksheets/sheet1.xml": sheet}))
    assert (parsed.text, parsed.warnings) == ("# S2\n\nwhole", ("malformed_parts",))


def test_entities_are_refused() -> None:
    data = xlsx(cells(A1="x"), parts={"xl/workbook.xml": '<!DOCTYPE x [<!ENTITY a "b">]><workbook>&a;</workbook>'})
    with pytest.raises(ParseFailure) as caught:
        read(data)
    assert caught.value.status == "corrupt"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("General", Format()),
        ('0.00 "days"', Format()),
        ("[$-409]d\\-mmm\\-yyyy;@", Format(date=True)),
        ("h:mm AM/PM", Format(time=True)),
        ("mm:ss", Format(time=True)),
        ("yyyy-mm-dd hh:mm", Format(date=True, time=True)),
        ("[h]:mm:ss", Format(time=True, duration=True)),
        ("[Red]0%;0", Format(percent=True)),
        ("mmmm", Format(date=True)),
        ("#,##0.00 [$€-407]", Format()),
    ],
)
def test_formats(code: str, expected: Format) -> None:
    assert format_of(code) == expected


@pytest.mark.parametrize(
    ("value", "style", "since_1904", "text"),
    [
        (1.0, Format(date=True), False, "1900-01-01"),
        (61.0, Format(date=True), False, "1900-03-01"),
        (0.0, Format(date=True), True, "1904-01-01"),
        (45351.5, Format(date=True, time=True), False, "2024-02-29 12:00"),
        (0.75, Format(time=True), False, "18:00"),
        (1.5, Format(time=True, duration=True), False, "36:00:00"),
        (1e300, Format(date=True), False, "1e+300"),
        (-3.0, Format(date=True), False, "-3"),
        (float("inf"), Format(), False, ""),
        (1234567.891, Format(), False, "1234567.891"),
    ],
)
def test_numbers(value: float, style: Format, since_1904: bool, text: str) -> None:
    assert number(value, style, since_1904) == text


def test_names_of_columns() -> None:
    for column in (1, 26, 27, 702, 703, 16_384):
        assert cell_of(f"{letters(column)}5") == (5, column)
