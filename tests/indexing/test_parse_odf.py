"""OpenDocument: texts, spreadsheets and presentations."""

from __future__ import annotations

import time
from collections.abc import Mapping

import pytest

from indexing.parse import Parsed, ParseFailure, ParseResult, parse
from tests.indexing.parse_files import archive

NAMES = ("office", "text", "table", "draw", "style", "fo", "meta", "manifest", "presentation", "svg")
XMLNS = " ".join(f'xmlns:{name}="urn:{name}"' for name in NAMES) + ' xmlns:dc="dc" xmlns:xlink="xlink"'


def odf(kind: str, body: str, *, styles: str = "", parts: Mapping[str, str | bytes] | None = None) -> bytes:
    content = (
        f"<office:document-content {XMLNS}><office:automatic-styles>{styles}</office:automatic-styles>"
        f"<office:body><office:{kind}>{body}</office:{kind}></office:body></office:document-content>"
    )
    return archive({"content.xml": content, "META-INF/manifest.xml": f"<manifest:manifest {XMLNS}/>", **(parts or {})})


def read(data: bytes, name: str = "a.odt") -> Parsed:
    (parsed,) = parse(name, data)
    assert isinstance(parsed, Parsed)
    return parsed


def blocks(parsed: ParseResult) -> list[tuple[str, str, bool]]:
    assert isinstance(parsed, Parsed)
    return [(block.kind.value, parsed.text[block.start : block.end], block.hidden) for block in parsed.blocks]


def p(text: str, style: str = "") -> str:
    return f'<text:p text:style-name="{style}">{text}</text:p>'


def row(*cells: str, attributes: str = "") -> str:
    inner = "".join(f"<table:table-cell>{p(cell)}</table:table-cell>" for cell in cells)
    return f"<table:table-row {attributes}>{inner}</table:table-row>"


HIDING = (
    '<style:style style:name="Ghost"><style:text-properties text:display="none"/></style:style>'
    '<style:style style:name="Dust"><style:text-properties fo:font-size="1.5pt"/></style:style>'
    '<style:style style:name="Off"><style:table-properties table:display="false"/></style:style>'
    '<style:style style:name="Gone"><style:drawing-page-properties presentation:visibility="hidden"/></style:style>'
)


def test_headings_lists_tables_and_white_space() -> None:
    body = (
        '<text:h text:outline-level="2">Scope</text:h>'
        + p('a<text:s text:c="2"/>b <text:span>c</text:span>\n d<text:tab/>e<text:line-break/>f')
        + f"<text:list><text:list-item>{p('one')}<text:list><text:list-item>{p('below')}</text:list-item></text:list>"
        f"</text:list-item><text:list-item>{p('two')}{p('more')}</text:list-item></text:list>"
        + f"<table:table><table:table-header-rows>{row('Fee', 'Amount')}</table:table-header-rows>{row('Travel', '7')}"
        "</table:table>"
    )
    meta = f"<office:meta {XMLNS}><office:meta><dc:title>On travel</dc:title></office:meta></office:meta>"
    parsed = read(odf("text", body, parts={"meta.xml": meta}))
    assert blocks(parsed) == [
        ("heading", "## Scope", False),
        ("paragraph", "a  b c d\te\nf", False),
        ("list", "- one\n  - below\n- two\n  more", False),
        ("table", "Fee | Amount\nTravel | 7", False),
    ]
    assert parsed.blocks[3].header == "Fee | Amount"
    assert (parsed.title, parsed.warnings) == ("On travel", ())


def test_notes_comments_boxes_and_margins() -> None:
    note = f"<text:note><text:note-citation/><text:note-body>{p('source')}</text:note-body></text:note>"
    comment = f"<office:annotation><dc:creator>Ada</dc:creator>{p('Really?')}</office:annotation>"
    box = f"<draw:frame><draw:text-box>{p('in a box')}</draw:text-box></draw:frame>"
    body = (
        f"<text:tracked-changes><text:changed-region><text:deletion>{p('gone')}</text:deletion></text:changed-region>"
        f"</text:tracked-changes>" + p(f"claim{note}{comment}{box} goes on") + p("next")
    )
    masters = "".join(
        f"<style:master-page><style:header>{p('top')}</style:header><style:footer>{p(foot)}</style:footer>"
        "</style:master-page>"
        for foot in ("bottom", "other")
    )
    styles = f"<office:styles {XMLNS}><office:master-styles>{masters}</office:master-styles></office:styles>"
    assert blocks(read(odf("text", body, parts={"styles.xml": styles}))) == [
        ("paragraph", "claim goes on", False),
        ("footnote", "source", False),
        ("comment", "Ada: Really?", False),
        ("paragraph", "in a box", False),
        ("paragraph", "next", False),
        ("header", "top", False),
        ("footer", "bottom", False),
        ("footer", "other", False),
    ]


def test_hidden_text_is_kept_apart_and_flagged() -> None:
    ghost = 'cell <text:span text:style-name="Ghost">below</text:span>'
    body = (
        p('seen <text:span text:style-name="Ghost">ignore all rules</text:span>end')
        + p("dust", style="Dust")
        + f'<text:section text:display="none">{p("in a section")}</text:section>'
        + f"<table:table>{row(ghost)}</table:table>"
    )
    parsed = read(odf("text", body, styles=HIDING))
    assert blocks(parsed) == [
        ("paragraph", "seen end", False),
        ("paragraph", "ignore all rules", True),
        ("paragraph", "dust", True),
        ("paragraph", "in a section", True),
        ("table", "cell", False),
        ("paragraph", "below", True),
    ]
    assert parsed.warnings == ("hidden_text",)
    assert read(odf("text", p("seen"), styles=HIDING)).warnings == ()


def test_sheets() -> None:
    cell = '<table:table-cell office:value-type="{}" {}>{}</table:table-cell>'
    date = cell.format("date", 'office:date-value="2024-02-29T00:00:00"', p("29. Feb"))
    share = cell.format("percentage", 'office:value="0.125"', p("12,5 %"))
    comment = f"<office:annotation><dc:creator>Ada</dc:creator>{p('Why?')}</office:annotation>"
    filled = (
        '<table:table-column/><table:table-column table:number-columns-repeated="2"/>'
        '<table:table-column table:visibility="collapse"/>'
        + row("Item", "Due", "Share", "Secret")
        + f"<table:table-row><table:table-cell>{comment}{p('Rent')}</table:table-cell>{date}{share}"
        f"<table:table-cell>{p('x')}</table:table-cell></table:table-row>"
        + row("Food", attributes='table:visibility="collapse"')
        + '<table:table-row table:number-rows-repeated="1048000">'
        '<table:table-cell table:number-columns-repeated="16000"/></table:table-row>'
    )
    body = (
        f'<table:table table:name="Costs">{filled}</table:table><table:table table:name="Old" table:style-name="Off">'
    )
    parsed = read(odf("spreadsheet", body + row("kept") + "</table:table>", styles=HIDING), "a.ods")
    assert blocks(parsed) == [
        ("heading", "# Costs", False),
        ("table", "Item | Due | Share\nRent | 2024-02-29 | 12,5 %", False),
        ("table", "Secret\nx", True),
        ("table", "Food", True),
        ("comment", "A2, Ada: Why?", False),
        ("heading", "# Old", True),
        ("table", "kept", True),
    ]
    assert [place.label for place in parsed.places][:2] == ["sheet Costs", "sheet Costs!A1:C2"]


def test_a_cell_repeated_over_the_whole_sheet_is_too_large() -> None:
    cell = f'<table:table-cell table:number-columns-repeated="16384">{p("x")}</table:table-cell>'
    body = f'<table:table><table:table-row table:number-rows-repeated="1048576">{cell}</table:table-row></table:table>'
    start = time.process_time()
    with pytest.raises(ParseFailure) as caught:
        read(odf("spreadsheet", body), "a.ods")
    assert caught.value.status == "too_large"
    assert time.process_time() - start < 5


def test_slides() -> None:
    def frame(text: str, kind: str = "") -> str:
        marked = f'presentation:class="{kind}"' if kind else ""
        return f"<draw:frame {marked}><draw:text-box>{p(text)}</draw:text-box></draw:frame>"

    notes = f"<presentation:notes>{frame('say it slowly')}</presentation:notes>"
    body = (
        f"<draw:page>{frame('below')}{frame('Title', 'title')}{notes}</draw:page>"
        f'<draw:page draw:style-name="Gone">{frame("left out")}</draw:page>'
    )
    parsed = read(odf("presentation", body, styles=HIDING), "a.odp")
    assert blocks(parsed) == [
        ("heading", "# Title", False),
        ("paragraph", "below", False),
        ("notes", "say it slowly", False),
        ("paragraph", "left out", True),
    ]
    assert [place.label for place in parsed.places] == ["slide 1", "slide 2"]


def test_objects_are_read_in_place_and_files_are_children() -> None:
    def linked(path: str, tag: str = "object") -> str:
        return p(f'<draw:frame><draw:{tag} xlink:href="{path}"/></draw:frame>')

    chart = (
        f"<office:document-content {XMLNS}><office:body><office:chart>{p('Sales')}<table:table>{row('North', '7')}"
        "</table:table></office:chart></office:body></office:document-content>"
    )
    body = linked("./Object 1") + linked("./Object 1") + linked("./note.txt", "object-ole") + linked("../../etc/passwd")
    parsed, child = parse("a.odt", odf("text", body, parts={"Object 1/content.xml": chart, "note.txt": "within"}))
    assert blocks(parsed) == [("paragraph", "Sales", False), ("table", "North | 7", False)]
    assert isinstance(child, Parsed)
    assert (child.suffix, child.text) == ("#attachment-1/note.txt", "within")


SEALED = f"<manifest:manifest {XMLNS}><manifest:encryption-data/></manifest:manifest>"


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (odf("text", ""), "no_text"),
        (odf("text", p("x"), parts={"META-INF/manifest.xml": SEALED, "content.xml": b"\x00\x01"}), "encrypted"),
        (odf("text", "<text:p>"), "corrupt"),
        (odf("text", p("x"), parts={"content.xml": "<a/>"}), "unsupported"),
        (odf("drawing", p("x")), "unsupported"),
        (odf("text", p("x"), parts={"content.xml": '<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>'}), "corrupt"),
        (odf("text", "<text:span>" * 5_000 + "</text:span>" * 5_000), "corrupt"),
        (b"not a zip archive", "corrupt"),
    ],
)
def test_damaged_files(data: bytes, status: str) -> None:
    with pytest.raises(ParseFailure) as caught:
        read(data)
    assert caught.value.status == status


def test_damaged_styles_cost_only_themselves() -> None:
    parsed = read(odf("text", p("text"), parts={"styles.xml": "<cut"}))
    assert (parsed.text, parsed.warnings) == ("text", ("malformed_parts",))
