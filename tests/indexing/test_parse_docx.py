"""DOCX: everything that a reader of the file sees, in order."""

from __future__ import annotations

import io

import docx as python_docx
import pytest

from indexing.parse import Parsed, ParseFailure, parse
from tests.indexing.parse_files import WORD, docx, paragraph, part

STYLES = part(
    "styles",
    '<w:style w:type="paragraph" w:styleId="berschrift2"><w:name w:val="heading 2"/></w:style>'
    '<w:style w:type="character" w:styleId="Ghost"><w:name w:val="Ghost"/><w:rPr><w:vanish/></w:rPr></w:style>',
)


def word(body: str, parts: dict[str, tuple[str, str, str]] | None = None) -> Parsed:
    (parsed,) = parse("a.docx", docx(body, parts))
    assert isinstance(parsed, Parsed)
    return parsed


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
    body = paragraph("before") + '<w:altChunk r:id="r1"/><w:altChunk r:id="r2"/>' + paragraph("after")
    parsed = word(
        body,
        {
            "r1": ("aFChunk", "text/html", "<p>imported <b>page</b></p><script>x()</script>"),
            "r2": ("aFChunk", "application/rtf", "{\\rtf1 unread}"),
        },
    )
    assert parsed.text == "before\n\nimported page\n\nafter"
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


def test_comments_are_named_as_unread() -> None:
    comments = part("comments", paragraph("between us"))
    parsed = word(paragraph("text"), {"r1": ("comments", WORD + "comments+xml", comments)})
    assert (parsed.text, parsed.warnings) == ("text", ("comments_not_read",))


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
