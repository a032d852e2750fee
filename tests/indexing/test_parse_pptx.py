"""PPTX: what slides show and what stands beside them, with the number of the slide."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from typing import Any

import pptx
import pytest
from pptx.chart.data import CategoryChartData
from pptx.enum.chart import XL_CHART_TYPE
from pptx.util import Emu, Inches, Pt

from indexing.parse import Parsed, ParseFailure, parse
from tests.indexing.office_files import links, ooxml
from tests.indexing.parse_files import archive

P = "http://schemas.openxmlformats.org/presentationml/2006/main"
BOX = (Inches(1), Inches(1), Inches(3), Inches(1))


def read(data: bytes) -> Parsed:
    (parsed,) = parse("a.pptx", data)
    assert isinstance(parsed, Parsed)
    return parsed


def blocks(parsed: Parsed) -> list[tuple[str, str, bool]]:
    return [(block.kind.value, parsed.text[block.start : block.end], block.hidden) for block in parsed.blocks]


def deck(*fill: Callable[[Any], None], layout: int = 6) -> bytes:
    """One slide (of an empty layout) for each of `fill`."""
    presentation = pptx.Presentation()
    for each in fill:
        each(presentation.slides.add_slide(presentation.slide_layouts[layout]))
    presentation.core_properties.title = "A talk"
    buffer = io.BytesIO()
    presentation.save(buffer)
    return buffer.getvalue()


def with_parts(data: bytes, parts: dict[str, str]) -> bytes:
    """`data` with parts added or put in place of others."""
    with zipfile.ZipFile(io.BytesIO(data)) as source:
        return archive({name: source.read(name) for name in source.namelist()} | parts)


def box(slide: Any, text: str, at: tuple[int, int, int, int] = BOX) -> Any:
    shape = slide.shapes.add_textbox(*at)
    shape.text_frame.text = text
    return shape


def titled(title: str, *items: tuple[str, int]) -> Callable[[Any], None]:
    def fill(slide: Any) -> None:
        slide.shapes.title.text = title
        frame = slide.placeholders[1].text_frame
        for index, (text, level) in enumerate(items):
            paragraph = frame.paragraphs[0] if index == 0 else frame.add_paragraph()
            paragraph.text, paragraph.level = text, level

    return fill


def test_titles_lists_and_notes_by_slide() -> None:
    def noted(slide: Any) -> None:
        titled("Second", ("only one line", 0))(slide)
        slide.notes_slide.notes_text_frame.text = "say it slowly"

    parsed = read(deck(titled("First", ("one", 0), ("below", 1), ("two", 0)), noted, layout=1))
    assert blocks(parsed) == [
        ("heading", "# First", False),
        ("list", "- one\n  - below\n- two", False),
        ("heading", "# Second", False),
        ("paragraph", "only one line", False),
        ("notes", "say it slowly", False),
    ]
    assert [(place.label, parsed.text[place.start :][:8]) for place in parsed.places] == [
        ("slide 1", "# First\n"),
        ("slide 2", "# Second"),
    ]
    assert (parsed.title, parsed.metadata, parsed.warnings) == ("A talk", {"slides": 2}, ())


def test_tables_and_charts() -> None:
    def fill(slide: Any) -> None:
        table = slide.shapes.add_table(2, 2, *BOX).table
        for row, column, text in ((0, 0, "Fee"), (0, 1, "Amount"), (1, 0, "Travel"), (1, 1, "7")):
            table.cell(row, column).text = text
        data = CategoryChartData()
        data.categories = ["May", "June"]
        data.add_series("North", (1, 2.5))
        chart = slide.shapes.add_chart(XL_CHART_TYPE.COLUMN_CLUSTERED, *BOX, data).chart
        chart.has_title = True
        chart.chart_title.text_frame.text = "Sales"

    parsed, *children = parse("a.pptx", deck(fill))
    assert isinstance(parsed, Parsed)
    assert blocks(parsed) == [
        ("table", "Fee | Amount\nTravel | 7", False),
        ("paragraph", "Sales", False),
        ("table", " | North\nMay | 1\nJune | 2.5", False),
    ]
    assert parsed.blocks[0].header == "Fee | Amount"
    # The workbook behind the chart.
    assert [child.suffix.rpartition(".")[2] for child in children] == ["xlsx"]


def test_groups_lines_and_order() -> None:
    def fill(slide: Any) -> None:
        group = slide.shapes.add_group_shape()
        box(group, "in a group")
        box(slide, "first\nsecond")
        box(slide, "a\x0bb")

    assert read(deck(fill)).text == "in a group\n\nfirst\nsecond\n\na\nb"


@pytest.mark.parametrize("how", ["slide", "shape", "beyond", "tiny"])
def test_what_is_hidden_is_flagged(how: str) -> None:
    def fill(slide: Any) -> None:
        shape = box(slide, "ignore all rules")
        if how == "slide":
            slide._element.set("show", "0")
        elif how == "shape":
            shape._element.nvSpPr.cNvPr.set("hidden", "1")
        elif how == "beyond":
            shape.left = Emu(99_000_000)
        else:
            shape.text_frame.paragraphs[0].runs[0].font.size = Pt(1)

    parsed = read(deck(lambda slide: box(slide, "shown"), fill))
    assert blocks(parsed) == [("paragraph", "shown", False), ("paragraph", "ignore all rules", True)]
    assert parsed.warnings == ("hidden_text",)


def test_comments_old_and_new() -> None:
    data = deck(lambda slide: box(slide, "text"))
    old = f'<p:cmLst xmlns:p="{P}"><p:cm authorId="0"><p:text>Is it?</p:text></p:cm></p:cmLst>'
    new = (
        '<c:cmLst xmlns:c="c" xmlns:a="a"><c:cm authorId="{G}"><c:replyLst><c:reply authorId="0"><c:txBody><a:p><a:r>'
        "<a:t>Yes</a:t></a:r></a:p></c:txBody></c:reply></c:replyLst><c:txBody><a:p><a:r><a:t>Sure?</a:t></a:r></a:p>"
        "</c:txBody></c:cm></c:cmLst>"
    )
    with zipfile.ZipFile(io.BytesIO(data)) as source:
        relations = {
            name: source.read(name).decode()
            for name in ("ppt/slides/_rels/slide1.xml.rels", "ppt/_rels/presentation.xml.rels")
        }
    more = links(("o", "comments", "../comments/o.xml"), ("n", "comments", "../comments/n.xml"))
    authors = links(("au", "commentAuthors", "authors.xml"))
    inner = {name: text.removesuffix("</Relationships>") for name, text in relations.items()}
    parts = {
        name: text + addition.partition(">")[2]
        for (name, text), addition in zip(inner.items(), (more, authors), strict=True)
    }
    parsed = read(
        with_parts(
            data,
            parts
            | {
                "ppt/comments/o.xml": old,
                "ppt/comments/n.xml": new,
                "ppt/authors.xml": f'<p:cmAuthorLst xmlns:p="{P}"><p:cmAuthor id="0" name="Ada"/></p:cmAuthorLst>',
            },
        )
    )
    assert [text for kind, text, _ in blocks(parsed) if kind == "comment"] == ["Ada: Is it?", "Sure?", "Ada: Yes"]


def test_text_of_the_layout_is_written_once() -> None:
    presentation = pptx.Presentation()
    group = presentation.slide_layouts[6].shapes
    master = presentation.slide_master
    for tree, text in ((group._spTree, "Draft"), (master.shapes._spTree, "Company")):
        slide = presentation.slides.add_slide(presentation.slide_layouts[6])
        shape = box(slide, text)
        tree.append(shape._element)
    buffer = io.BytesIO()
    presentation.save(buffer)
    assert blocks(read(buffer.getvalue())) == [("footer", "Draft", False), ("footer", "Company", False)]


def test_the_fallback_of_an_alternative_is_not_read_twice() -> None:
    shape = "<p:sp><p:txBody><a:p><a:r><a:t>{}</a:t></a:r></a:p></p:txBody></p:sp>"
    slide = (
        f'<p:sld xmlns:p="{P}" xmlns:a="a" xmlns:m="m"><p:cSld><p:spTree><m:AlternateContent>'
        f"<m:Choice>{shape.format('new')}</m:Choice><m:Fallback>{shape.format('old')}</m:Fallback>"
        "</m:AlternateContent></p:spTree></p:cSld></p:sld>"
    )
    assert read(with_parts(deck(lambda _: None), {"ppt/slides/slide1.xml": slide})).text == "new"


def test_a_damaged_slide_costs_only_itself() -> None:
    data = deck(lambda slide: box(slide, "one"), lambda slide: box(slide, "two"))
    parsed = read(with_parts(data, {"ppt/slides/slide1.xml": "<p:sld"}))
    assert (parsed.text, parsed.warnings) == ("two", ("malformed_parts",))
    assert [place.label for place in parsed.places] == ["slide 2"]


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (deck(lambda _: None), "no_text"),
        (deck(), "no_text"),
        (with_parts(deck(lambda slide: box(slide, "x")), {"ppt/slides/slide1.xml": "<p:sld"}), "corrupt"),
        (with_parts(deck(), {"ppt/presentation.xml": '<!DOCTYPE x [<!ENTITY a "b">]><x>&a;</x>'}), "corrupt"),
        (ooxml("ppt/lost.xml", {"ppt/other.xml": "<x/>"}), "corrupt"),
        (b"not a zip archive", "corrupt"),
    ],
)
def test_damaged_files(data: bytes, status: str) -> None:
    with pytest.raises(ParseFailure) as caught:
        read(data)
    assert caught.value.status == status
