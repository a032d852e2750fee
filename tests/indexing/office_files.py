"""Small office files that the parser tests build part by part."""

from __future__ import annotations

from collections.abc import Mapping

from tests.indexing.parse_files import PACKAGE, R, archive

SHEET = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"


def links(*relations: tuple[str, str, str]) -> str:
    """The relations of a part: (id, kind, target) each."""
    inner = "".join(
        f'<Relationship Id="{key}" Type="{R}/{kind}" Target="{target}"/>' for key, kind, target in relations
    )
    return f'<Relationships xmlns="{PACKAGE}/relationships">{inner}</Relationships>'


def ooxml(main: str, parts: Mapping[str, str | bytes]) -> bytes:
    """An OOXML package whose main part is `main`."""
    return archive(
        {
            "[Content_Types].xml": f'<Types xmlns="{PACKAGE}/content-types"/>',
            "_rels/.rels": links(("r1", "officeDocument", main)),
            **parts,
        }
    )


def xlsx(
    *sheets: str,
    states: Mapping[int, str] | None = None,
    parts: Mapping[str, str | bytes] | None = None,
    strings: str = "",
    styles: str = "",
    properties: str = "",
) -> bytes:
    """A workbook with sheets S1, S2, ... of these contents of `worksheet`; `states` are those of hidden sheets."""
    states = states or {}
    listed = "".join(
        f'<sheet name="S{number}" sheetId="{number}" r:id="s{number}" state="{states.get(number, "visible")}"/>'
        for number in range(1, len(sheets) + 1)
    )
    relations = [(f"s{number}", "worksheet", f"worksheets/sheet{number}.xml") for number in range(1, len(sheets) + 1)]
    relations += [("strings", "sharedStrings", "sharedStrings.xml")] if strings else []
    relations += [("styles", "styles", "styles.xml")] if styles else []
    workbook = f'<workbook xmlns="{SHEET}" xmlns:r="{R}">{properties}<sheets>{listed}</sheets></workbook>'
    return ooxml(
        "xl/workbook.xml",
        {
            "xl/workbook.xml": workbook,
            "xl/_rels/workbook.xml.rels": links(*relations),
            **({"xl/sharedStrings.xml": f'<sst xmlns="{SHEET}">{strings}</sst>'} if strings else {}),
            **({"xl/styles.xml": f'<styleSheet xmlns="{SHEET}">{styles}</styleSheet>'} if styles else {}),
            **{
                f"xl/worksheets/sheet{number}.xml": f'<worksheet xmlns="{SHEET}" xmlns:r="{R}">{content}</worksheet>'
                for number, content in enumerate(sheets, 1)
            },
            **(parts or {}),
        },
    )


def cells(**values: str) -> str:
    """`sheetData` with inline text by cell: cells(A1="x", B2="y"), row by row."""
    rows: dict[str, list[str]] = {}
    for reference, text in values.items():
        row = "".join(mark for mark in reference if mark.isdecimal())
        rows.setdefault(row, []).append(f'<c r="{reference}" t="inlineStr"><is><t>{text}</t></is></c>')
    return (
        "<sheetData>"
        + "".join(f'<row r="{row}">{"".join(items)}</row>' for row, items in rows.items())
        + "</sheetData>"
    )
