"""Small files that the parser tests build: one page of PDF, Word packages with chosen parts."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Mapping
from xml.sax.saxutils import escape

W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
R = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006"
WORD = "application/vnd.openxmlformats-officedocument.wordprocessingml."


def pdf(*pages: bytes, extra: bytes = b"") -> bytes:
    """A PDF with one compressed content stream a page; `extra` goes into the catalogue."""
    kids = b" ".join(b"%d 0 R" % (4 + 2 * index) for index in range(len(pages)))
    objects = [
        b"<</Type/Catalog/Pages 2 0 R%s>>" % extra,
        b"<</Type/Pages/Kids[%s]/Count %d>>" % (kids, len(pages)),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    ]
    for index, content in enumerate(pages):
        stream = zlib.compress(content)
        resources = b"/MediaBox[0 0 600 800]/Resources<</Font<</F1 3 0 R>>>>"
        objects.append(b"<</Type/Page/Parent 2 0 R/Contents %d 0 R%s>>" % (5 + 2 * index, resources))
        objects.append(b"<</Length %d/Filter/FlateDecode>>stream\n%s\nendstream" % (len(stream), stream))
    out = bytearray(b"%PDF-1.4\n")
    offsets = []
    for number, body in enumerate(objects, 1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    start = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    out += b"trailer<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % (len(objects) + 1, start)
    return bytes(out)


def page(*lines: str) -> bytes:
    """A content stream that shows `lines` one below the other."""
    shown = b"".join(b"(%s) Tj 0 -20 Td " % line.encode("latin-1") for line in lines)
    return b"BT /F1 12 Tf 10 700 Td %s ET" % shown


def paragraph(text: str, *, style: str | None = None, run: str = "") -> str:
    properties = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    return f'<w:p>{properties}<w:r>{run}<w:t xml:space="preserve">{escape(text)}</w:t></w:r></w:p>'


def docx(body: str, parts: Mapping[str, tuple[str, str, str | bytes]] | None = None, *, prolog: str = "") -> bytes:
    """A Word package. `parts`: relation id -> (kind, content type, content)."""
    parts = parts or {}
    overrides = "".join(
        f'<Override PartName="/word/{key}.part" ContentType="{media}"/>' for key, (_, media, _) in parts.items()
    )
    relations = "".join(
        f'<Relationship Id="{key}" Type="{R}/{kind}" Target="{key}.part"/>' for key, (kind, _, _) in parts.items()
    )
    files: dict[str, str | bytes] = {
        "[Content_Types].xml": f'<Types xmlns="{PACKAGE}/content-types">'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Override PartName="/word/document.xml" ContentType="{WORD}document.main+xml"/>{overrides}</Types>',
        "_rels/.rels": f'<Relationships xmlns="{PACKAGE}/relationships"><Relationship Id="r1" '
        f'Type="{R}/officeDocument" Target="word/document.xml"/></Relationships>',
        "word/_rels/document.xml.rels": f'<Relationships xmlns="{PACKAGE}/relationships">{relations}</Relationships>',
        "word/document.xml": f'{prolog}<w:document xmlns:w="{W}" xmlns:r="{R}"><w:body>{body}</w:body></w:document>',
        **{f"word/{key}.part": content for key, (_, _, content) in parts.items()},
    }
    return archive(files)


def part(root: str, content: str) -> str:
    return f'<w:{root} xmlns:w="{W}" xmlns:r="{R}">{content}</w:{root}>'


def archive(files: Mapping[str, str | bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as target:
        for name, content in files.items():
            target.writestr(name, content)
    return buffer.getvalue()
