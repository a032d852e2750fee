"""DOCX: everything that a reader of the file sees, in order."""

from __future__ import annotations

import io
import zipfile

import docx as python_docx
import pytest

from indexing.parse import Parsed, ParseFailure, ParseResult, parse
from tests.indexing.parse_files import WORD, archive, docx, paragraph, part

STYLES = part(
    "styles",
    '<w:style w:type="paragraph" w:styleId="berschrift2"><w:name w:val="heading 2"/></w:style>'
    '<w:style w:type="character" w:styleId="Ghost"><w:name w:val="Ghost"/><w:rPr><w:vanish/></w:rPr></w:style>',
)


def word(body: str, parts: dict[str, tuple[str, str, str]] | None = None) -> Parsed:
    (parsed,) = parse("a.docx", docx(body, parts))
    assert isinstance(parsed, Parsed)
    return parsed


def blocks(parsed: ParseResult) -> list[tuple[str, str, bool]]:
    assert isinstance(parsed, Parsed)
    return [(block.kind.value, parsed.text[block.start : block.end], block.hidden) for block in parsed.blocks]


def row(*cells: str) -> str:
    return "<w:tr>" + "".join(f"<w:tc>{paragraph(cell)}</w:tc>" for cell in cells) + "</w:tr>"


def test_a_file_of_python_docx_itself() -> None:
    document = python_docx.Document()
    document.core_properties.title = "On travel"
    document.add_heading("Travel", 1)
    document.add_paragraph("Book early.")
    document.add_table(1, 2).rows[0].cells[1].text = "cell"
    document.sections[0].header.paragraphs[0].text = "Confidential"
    buffer = io.BytesIO()
    document.save(buffer)
    (parsed,) = parse("a.docx", buffer.getvalue())
    assert isinstance(parsed, Parsed)
    assert parsed.title == "On travel"
    assert parsed.text == "# Travel\n\nBook early.\n\n | cell\n\nConfidential"


def test_body_in_order_with_tables_and_headings() -> None:
    body = (
        paragraph("Heading", style="berschrift2")
        + paragraph("one")
        + f"<w:tbl>{row('a', 'b')}<w:sdt><w:sdtContent>{row('c', 'd')}</w:sdtContent></w:sdt></w:tbl>"
        + paragraph("two")
    )
    parsed = word(body, {"r1": ("styles", WORD + "styles+xml", STYLES)})
    assert parsed.text == "## Heading\n\none\n\na | b\nc | d\n\ntwo"
    assert parsed.warnings == ()


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (f"<w:sdt><w:sdtContent>{paragraph('control')}</w:sdtContent></w:sdt>", "control"),
        ("<w:p><w:ins><w:r><w:t>added</w:t></w:r></w:ins></w:p>", "added"),
        (paragraph("left") + "<w:p><w:del><w:r><w:delText>gone</w:delText></w:r></w:del></w:p>", "left"),
        ("<w:p><w:hyperlink><w:r><w:t>link</w:t></w:r></w:hyperlink></w:p>", "link"),
        ("<w:p><w:r><w:t>a</w:t><w:tab/><w:t>b</w:t><w:br/><w:t>c</w:t></w:r></w:p>", "a\tb\nc"),
        ("<w:p><w:r><w:instrText>PAGE</w:instrText><w:t>7</w:t></w:r></w:p>", "7"),
        (
            f"<w:p><w:r><w:t>anchor</w:t><w:pict><w:txbxContent>{paragraph('box')}</w:txbxContent></w:pict></w:r></w:p>",
            "anchor\n\nbox",
        ),
        ("<w:p><w:pPr><w:numPr/></w:pPr><w:r><w:t>item</w:t></w:r></w:p>", "- item"),
    ],
)
def test_what_plain_libraries_leave_out(body: str, text: str) -> None:
    assert word(body).text == text


def test_headers_footers_and_footnotes() -> None:
    body = '<w:p><w:r><w:t>claim</w:t><w:footnoteReference w:id="2"/></w:r></w:p>' + paragraph("next")
    notes = f'<w:footnote w:type="separator" w:id="0">{paragraph("---")}</w:footnote>' + (
        f'<w:footnote w:id="2">{paragraph("source")}</w:footnote>'
    )
    parsed = word(
        body,
        {
            "r1": ("header", WORD + "header+xml", part("hdr", paragraph("top"))),
            "r2": ("header", WORD + "header+xml", part("hdr", paragraph("top"))),
            "r3": ("footer", WORD + "footer+xml", part("ftr", paragraph("bottom"))),
            "r4": ("footnotes", WORD + "footnotes+xml", part("footnotes", notes)),
        },
    )
    assert parsed.text == "claim\n\nsource\n\nnext\n\ntop\n\nbottom"


def test_alt_chunks_are_read_in_place() -> None:
    body = paragraph("before") + '<w:altChunk r:id="r1"/><w:altChunk r:id="r2"/>'
    body += '<w:altChunk r:id="r3"/><w:altChunk r:id="r3"/><w:altChunk r:id="r4"/>' + paragraph("after")
    parsed = word(
        body,
        {
            "r1": ("aFChunk", "text/html", "<p>imported <b>page</b></p><script>x()</script>"),
            "r2": ("aFChunk", "application/rtf", "{\\rtf1 of RTF}"),
            "r3": ("aFChunk", "text/plain", "1 < 2"),
            "r4": ("aFChunk", "message/rfc822", "unread"),
        },
    )
    assert parsed.text == "before\n\nimported page\n\nof RTF\n\n1 < 2\n\nafter"
    assert parsed.warnings == ("attachments_not_read",)


@pytest.mark.parametrize(
    "run",
    [
        "<w:rPr><w:vanish/></w:rPr>",
        '<w:rPr><w:sz w:val="2"/></w:rPr>',
        '<w:rPr><w:rStyle w:val="Ghost"/></w:rPr>',
    ],
)
def test_hidden_text_is_kept_and_flagged(run: str) -> None:
    parsed = word(paragraph("shown") + paragraph("ignore", run=run), {"r1": ("styles", WORD + "styles+xml", STYLES)})
    assert parsed.text == "shown\n\nignore"
    assert parsed.warnings == ("hidden_text",)


def test_visible_text_is_not_flagged() -> None:
    assert word(paragraph("shown", run='<w:rPr><w:vanish w:val="0"/><w:sz w:val="20"/></w:rPr>')).warnings == ()


def test_visible_text_of_a_paragraph_stays_whole_beside_hidden_text() -> None:
    runs = "<w:r><w:t>Pay </w:t></w:r><w:r><w:rPr><w:vanish/></w:rPr><w:t>nobody</w:t></w:r><w:r><w:t>Ada</w:t></w:r>"
    assert blocks(word(f"<w:p>{runs}</w:p>")) == [("paragraph", "Pay Ada", False), ("paragraph", "nobody", True)]


def test_white_text_is_hidden_unless_its_ground_has_a_colour() -> None:
    white = '<w:rPr><w:color w:val="FFFFFF"/>{}</w:rPr>'
    assert word(paragraph("ghost", run=white.format(""))).warnings == ("hidden_text",)
    assert word(paragraph("shown", run=white.format('<w:shd w:fill="000000"/>'))).warnings == ()
    cell = paragraph("shown", run=white.format(""))
    assert word(f"<w:tbl><w:tr><w:tc>{cell}</w:tc></w:tr></w:tbl>").warnings == ()


def test_comments_follow_what_they_are_on() -> None:
    comments = part(
        "comments",
        f'<w:comment w:id="1" w:author="Ada">{paragraph("Really?")}</w:comment>'
        f'<w:comment w:id="2">{paragraph("lost")}</w:comment>',
    )
    body = '<w:p><w:r><w:t>text</w:t><w:commentReference w:id="1"/></w:r></w:p>' + paragraph("next")
    parsed = word(body, {"r1": ("comments", WORD + "comments+xml", comments)})
    assert blocks(parsed) == [
        ("paragraph", "text", False),
        ("comment", "Ada: Really?", False),
        ("paragraph", "next", False),
        ("comment", "lost", False),
    ]
    assert parsed.warnings == ()


def test_kinds_of_blocks() -> None:
    numbered = (
        '<w:p><w:pPr><w:numPr><w:ilvl w:val="{}"/><w:numId w:val="{}"/></w:numPr></w:pPr><w:r><w:t>{}</w:t></w:r></w:p>'
    )
    note = '<w:p><w:r><w:t>claim</w:t><w:endnoteReference w:id="2"/></w:r></w:p>'
    body = (
        paragraph("Own", style="Own")
        + numbered.format(0, 1, "one")
        + numbered.format(1, 1, "below")
        + numbered.format(0, 0, "no item")
        + paragraph("bullet", style="Bullet")
        + note
        + f"<w:tbl>{row('Fee', 'Amount')}{row('Travel', '7')}</w:tbl>"
    )
    styles = part(
        "styles",
        '<w:style w:styleId="H2"><w:name w:val="heading 2"/></w:style>'
        '<w:style w:styleId="Own"><w:name w:val="Own"/><w:basedOn w:val="H2"/></w:style>'
        '<w:style w:styleId="Bullet"><w:pPr><w:numPr><w:numId w:val="3"/></w:numPr></w:pPr></w:style>'
        '<w:style w:styleId="Loop"><w:basedOn w:val="Loop"/></w:style>',
    )
    notes = part("endnotes", f'<w:endnote w:id="2">{paragraph("source")}</w:endnote>')
    parsed = word(
        body,
        {
            "r1": ("styles", WORD + "styles+xml", styles),
            "r2": ("endnotes", WORD + "endnotes+xml", notes),
            "r3": ("footer", WORD + "footer+xml", part("ftr", paragraph("bottom"))),
        },
    )
    assert blocks(parsed) == [
        ("heading", "## Own", False),
        ("list", "- one\n  - below", False),
        ("paragraph", "no item", False),
        ("list", "- bullet", False),
        ("paragraph", "claim", False),
        ("footnote", "source", False),
        ("table", "Fee | Amount\nTravel | 7", False),
        ("footer", "bottom", False),
    ]
    assert parsed.blocks[6].header == "Fee | Amount"


def test_merged_cells_name_each_row_that_they_cover() -> None:
    def cell(text: str, properties: str = "") -> str:
        return f"<w:tc><w:tcPr>{properties}</w:tcPr>{paragraph(text)}</w:tc>"

    start, goes_on = '<w:vMerge w:val="restart"/>', "<w:vMerge/>"
    rows = (
        cell("wide", '<w:gridSpan w:val="2"/>') + cell("c"),
        cell("a") + cell("b", start) + cell("x"),
        cell("d") + cell("", goes_on) + cell("y"),
        cell("e") + cell("covered", goes_on) + cell("z"),
    )
    body = "<w:tbl>" + "".join(f"<w:tr>{inner}</w:tr>" for inner in rows) + "</w:tbl>"
    assert blocks(word(body)) == [
        ("table", "wide | c\na | b | x\nd | b | y\ne | b | z", False),
        ("paragraph", "covered", True),
    ]


def test_what_a_merged_cell_covers_is_hidden() -> None:
    start, goes_on = ('<w:tcPr><w:vMerge w:val="restart"/></w:tcPr>', "<w:tcPr><w:vMerge/></w:tcPr>")
    cells = (f"<w:tc>{merge}{paragraph(text)}</w:tc>" for merge, text in ((start, "seen"), (goes_on, "covered")))
    parsed = word("<w:tbl>" + "".join(f"<w:tr>{cell}</w:tr>" for cell in cells) + "</w:tbl>")
    assert blocks(parsed) == [("table", "seen\nseen", False), ("paragraph", "covered", True)]
    assert parsed.warnings == ("hidden_text",)


def test_notes_in_a_table_follow_it() -> None:
    inner = '<w:p><w:r><w:t>cell</w:t><w:footnoteReference w:id="2"/></w:r></w:p>'
    notes = part("footnotes", f'<w:footnote w:id="2">{paragraph("source")}</w:footnote>')
    parsed = word(
        f"<w:tbl><w:tr><w:tc>{inner}</w:tc></w:tr></w:tbl>", {"r1": ("footnotes", WORD + "footnotes+xml", notes)}
    )
    assert blocks(parsed) == [("table", "cell", False), ("footnote", "source", False)]


def test_embedded_files_and_imported_word_files() -> None:
    inner = docx(paragraph("within") + "<w:tbl>" + row("a", "b") + "</w:tbl>")
    chunk = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
    data = docx('<w:altChunk r:id="r1"/>', {"r1": ("aFChunk", chunk, inner)})
    (parsed,) = parse("a.docx", data)
    assert blocks(parsed) == [("paragraph", "within", False), ("table", "a | b", False)]
    buffer = io.BytesIO(docx(paragraph("text")))
    with zipfile.ZipFile(buffer, "a") as target:
        target.writestr("word/embeddings/inner.docx", inner)
    parsed, child = parse("a.docx", buffer.getvalue())
    assert isinstance(child, Parsed)
    assert (child.suffix, child.text) == ("#attachment-1/inner.docx", "within\n\na | b")


def test_a_package_with_links_to_nothing_is_read() -> None:
    data = docx(paragraph("text"), {"r1": ("header", WORD + "header+xml", "")})
    assert word(paragraph("text"), {"r1": ("header", WORD + "header+xml", "")}).text == "text"
    with zipfile.ZipFile(io.BytesIO(data)) as source:
        parts = {name: source.read(name) for name in source.namelist() if name != "word/r1.part"}
    (parsed,) = parse("a.docx", archive(parts))
    assert isinstance(parsed, Parsed)
    assert (parsed.text, parsed.warnings) == ("text", ("malformed_parts",))


def test_a_damaged_side_part_costs_only_itself() -> None:
    parsed = word(paragraph("text"), {"r1": ("footnotes", WORD + "footnotes+xml", "<w:footnotes")})
    assert (parsed.text, parsed.warnings) == ("text", ("malformed_parts",))


@pytest.mark.parametrize(
    "prolog",
    [
        '<!DOCTYPE x [<!ENTITY a "lol"><!ENTITY b "' + "&a;" * 1000 + '"><!ENTITY c "' + "&b;" * 1000 + '">]>',
        '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/hostname">]>',
    ],
)
def test_entities_are_refused(prolog: str) -> None:
    name = "c" if "ENTITY c" in prolog else "a"
    body = paragraph("text").replace("text", f"text &{name};")
    with pytest.raises(ParseFailure) as caught:
        parse("a.docx", docx(body, prolog=prolog))
    assert caught.value.status == "corrupt"
