"""Office files and PDFs that were damaged at random: each is read, or refused with a reason, and nothing else."""

from __future__ import annotations

import io
import random
import zipfile

import pytest
from lxml import etree

from indexing.parse import Parsed, ParseFailure, parse
from tests.indexing.office_files import cells, xlsx
from tests.indexing.parse_files import WORD, archive, docx, page, paragraph, part, pdf
from tests.indexing.test_parse_epub import epub
from tests.indexing.test_parse_epub import page as chapter
from tests.indexing.test_parse_odf import HIDING, odf, p, row
from tests.indexing.test_parse_pptx import deck, titled

ODDITIES = ("", "-1", "0", "9" * 20, "1e999", "NaN", "A1:B", "ZZZ9999999", "²", "../..", "\u202e", "1" * 3_000)
TABLE = (
    "<w:tbl><w:tr><w:tc><w:tcPr><w:gridSpan w:val='2'/><w:vMerge/></w:tcPr>" + paragraph("c") + "</w:tc></w:tr></w:tbl>"
)
COMMENT = part("comments", f'<w:comment w:id="1" w:author="Ada">{paragraph("why")}</w:comment>')
SHEET = (
    '<cols><col min="2" max="3" hidden="1"/></cols>'
    + cells(A1="a", B2="b", C3="c")
    + '<mergeCells><mergeCell ref="A1:B4"/></mergeCells>'
)
RTF = (
    rb"{\rtf1\ansi{\fonttbl{\f1\fcharset128 x;}}{\stylesheet{\s1 heading 1;}}\pard\s1 Head\par\f1\'93\'fa\u8364?"
    rb"{\footnote n}{\listtext a}b\par\trowd\intbl a\cell b\cell\row\pard{\v h}}"
)
FILES = {
    "a.docx": docx(paragraph("a") + TABLE, {"r1": ("comments", WORD + "comments+xml", COMMENT)}),
    "a.xlsx": xlsx(SHEET, styles='<numFmts><numFmt numFmtId="170" formatCode="yyyy"/></numFmts>'),
    "a.pptx": deck(titled("First", ("one", 0), ("two", 1)), layout=1),
    "a.odt": odf("text", p("x") + f"<table:table>{row('a', 'b')}</table:table>", styles=HIDING),
    "a.ods": odf("spreadsheet", f'<table:table table:name="T">{row("a", "b")}</table:table>'),
    "a.epub": epub(chapter("<h1>x</h1>"), chapter("<p>y</p>")),
    "a.rtf": RTF,
    "a.pdf": pdf(page("one", "two"), page("three"), extra=b"/Names<</EmbeddedFiles<</Names[]>>>>"),
}


def bytes_changed(data: bytes, chance: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.choice((1, 3, 12))):
        start = chance.randrange(len(changed))
        kind = chance.random()
        if kind < 0.5:
            changed[start] = chance.randrange(256)
        elif kind < 0.7:
            del changed[start : start + chance.randrange(1, 40)]
        else:
            changed[start:start] = chance.choice((b"99999999999", b"-1", b"<", b"{", b"}", b"\\", b"\xff", b"/"))
    return bytes(changed)


def tree_changed(data: bytes, chance: random.Random) -> bytes:
    """XML that is still well-formed, with elements and attributes that are not where or what they should be."""
    root = etree.fromstring(data)
    elements = [item for item in root.iter() if isinstance(item.tag, str)]
    for _ in range(chance.choice((1, 2, 5))):
        item = chance.choice(elements)
        kind = chance.random()
        if kind < 0.5 and item.attrib:
            item.set(chance.choice(list(item.attrib)), chance.choice(ODDITIES))
        elif kind < 0.7:
            chance.choice(elements).append(etree.fromstring(etree.tostring(item)))
        elif item.getparent() is not None:
            item.getparent().remove(item)
    return etree.tostring(root)


def damaged(name: str, chance: random.Random) -> bytes:
    data = FILES[name]
    if name.endswith(("rtf", "pdf")) or chance.random() < 0.1:
        return bytes_changed(data, chance)
    with zipfile.ZipFile(io.BytesIO(data)) as source:
        parts = {entry: source.read(entry) for entry in source.namelist()}
    chosen = chance.choice([entry for entry in parts if entry.endswith((".xml", ".rels", ".opf", ".part"))])
    change = tree_changed if chance.random() < 0.8 else bytes_changed
    return archive(parts | {chosen: change(parts[chosen], chance)})


@pytest.mark.parametrize("name", FILES)
def test_damage_is_never_more_than_a_failure(name: str) -> None:
    chance = random.Random(name)
    whole = 0
    failures: list[ParseFailure] = []
    for _ in range(60):
        try:
            whole += all(isinstance(result, Parsed | ParseFailure) for result in parse(name, damaged(name, chance)))
        except ParseFailure as failure:
            failures.append(failure)
    assert whole + len(failures) == 60
    assert whole
    assert all(failure.reason and failure.remedy for failure in failures)
