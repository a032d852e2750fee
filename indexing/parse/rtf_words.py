"""The control words of RTF 1.9.1 that text depends on."""

from __future__ import annotations

import re
from typing import Final

from indexing.parse.model import Kind

TOKEN: Final = re.compile(
    rb"\\([A-Za-z]{1,32})(-?[0-9]{1,10})?[ ]?"  # 1, 2: a word and its number
    rb"|\\'([0-9A-Fa-f]{2})"  # 3: a byte
    rb"|\\(\r\n|[^A-Za-z])"  # 4: a symbol
    rb"|([{}])"  # 5
    rb"|([^\\{}\r\n\x00]+)"  # 6: text
    rb"|[\r\n\x00]+|\\"
)

SYMBOLS: Final = {
    "tab": "\t",
    "line": "\n",
    "lbr": "\n",
    "softline": "\n",
    "emdash": "—",
    "endash": "–",
    "emspace": " ",
    "enspace": " ",
    "qmspace": " ",
    "bullet": "•",
    "lquote": "‘",
    "rquote": "’",
    "ldblquote": "“",
    "rdblquote": "”",
    "~": "\u00a0",
    "_": "-",
    "\\": "\\",
    "{": "{",
    "}": "}",
}
BREAKS: Final = frozenset({"par", "sect", "page", "column", "softpage", "\n", "\r", "\r\n"})

SKIPPED: Final = frozenset(
    {"colortbl", "pict", "nonshppict", "shprslt", "sn", "sv", "xe", "tc", "tcn", "rxe", "nonesttables", "do", "filetbl"}
    | {"fldinst", "objclass", "objname", "objdata", "objalias", "private", "template", "comment", "doccomm"}
)
"""Groups without text of the document."""
STARRED: Final = frozenset(
    {"shpinst", "shptxt", "annotation", "ud", "moMath", "moMathPara", "nesttableprops", "pntext", "footnote"}
)
"""Groups that a reader may skip (`\\*`) and that hold text."""
MARGINS: Final = frozenset({"header", "headerl", "headerr", "headerf", "footer", "footerl", "footerr", "footerf"})
NOTES: Final = {"footnote": Kind.FOOTNOTE, "annotation": Kind.COMMENT}
DESTINATIONS: Final = frozenset(
    {*SKIPPED, *MARGINS, *NOTES, "listtext", "pntext", "fonttbl", "stylesheet", "info", "title", "upr"}
)
EMBEDDED: Final = frozenset({"objdata", "objemb"})
TABLES: Final = frozenset({"cell", "row", "nestcell", "nestrow"})

CHARSETS: Final = {
    0: "cp1252",
    2: "cp1252",
    77: "mac_roman",
    128: "cp932",
    129: "cp949",
    130: "johab",
    134: "gbk",
    136: "cp950",
    161: "cp1253",
    162: "cp1254",
    163: "cp1258",
    177: "cp1255",
    178: "cp1256",
    186: "cp1257",
    204: "cp1251",
    222: "cp874",
    238: "cp1250",
    254: "cp437",
    255: "cp850",
}
"""What `\\fcharset` says of a font's bytes."""
DOCUMENT_CHARSETS: Final = {"ansi": "cp1252", "mac": "mac_roman", "pc": "cp437", "pca": "cp850"}


def code_page(number: int) -> str | None:
    """The codec of `\\ansicpg` and `\\cpg`, if Python has one."""
    name = {65001: "utf-8", 10000: "mac_roman", 936: "gbk"}.get(number, f"cp{number}")
    try:
        "".encode(name)
    except LookupError:
        return None
    return name
