"""reStructuredText through docutils: nothing is included, fetched or run, and raw parts are left out.

Docutils keeps roles that a document defines for the whole process: they are taken back after each document, so that
none changes how the next one reads.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from threading import Lock
from typing import Any, Final

from docutils import nodes
from docutils.core import publish_doctree
from docutils.parsers.rst import roles

from indexing.parse.building import Building
from indexing.parse.decode import decode
from indexing.parse.failure import ParseFailure
from indexing.parse.model import (
    HIDDEN_TEXT,
    MALFORMED_PARTS,
    UNCERTAIN_ENCODING,
    Kind,
    Parsed,
    ParseLimits,
    ParseResult,
    Source,
    clean,
    finish,
)

MEDIA_TYPE: Final = "text/x-rst"
MAX_CHARACTERS: Final = 1_000_000
"""Docutils reads some 100 KB a second; a larger text is taken as it stands."""
_MAX_MARKS: Final = 50_000
_MAX_CORNERS: Final = 1_000
"""Of one drawn table."""
_DRAWN = re.compile(r"(?:^[ \t]*[+|][^\n]*\n?)+", re.MULTILINE)

_SETTINGS: Final = {
    "file_insertion_enabled": False,
    "raw_enabled": False,
    "_disable_config": True,
    "halt_level": 5,
    "report_level": 5,
    "warning_stream": io.StringIO(),
    "syntax_highlight": "none",
    "smart_quotes": False,
    "math_output": "text",
    "traceback": True,  # else it ends the process
    "line_length_limit": MAX_CHARACTERS,
    "doctitle_xform": False,
    "sectsubtitle_xform": False,
    "docinfo_xform": False,
}
_LOCK = Lock()

Node = Any


def read_rst(source: Source, limits: ParseLimits) -> list[ParseResult]:
    """What docutils cannot read is taken as the text that it is, with a warning."""
    decoded = decode(source.data, source.charset)
    warnings = set() if decoded.certain else {UNCERTAIN_ENCODING}
    text = clean(decoded.text)
    try:
        if _is_slow(text):
            raise ValueError("larger than docutils reads in seconds")
        building = Building(limits.max_characters)
        walk = _Walk(building)
        walk.all(_doctree(text))
        if building.is_empty:
            raise ValueError("nothing but markup")
        if building.hidden:
            warnings.add(HIDDEN_TEXT)
    except ParseFailure:
        raise
    except Exception:  # noqa: BLE001 (docutils raises whatever odd markup leads it into)
        return [finish(Parsed(text, None, MEDIA_TYPE, (*warnings, MALFORMED_PARTS)))]
    return [finish(Parsed(building.text(), walk.title, MEDIA_TYPE, tuple(warnings), blocks=building.blocks()))]


def _is_slow(text: str) -> bool:
    """Whether docutils may take minutes: it looks for each corner of a drawn table along all the others."""
    if len(text) > MAX_CHARACTERS or sum(text.count(mark) for mark in "*`|_[") > _MAX_MARKS:
        return True
    return any(drawn.group().count("+") > _MAX_CORNERS for drawn in _DRAWN.finditer(text))


def _doctree(text: str) -> Node:
    with _LOCK:
        known = dict(roles._roles)
        try:
            return publish_doctree(text, source_path="document", settings_overrides=_SETTINGS)
        finally:
            roles._roles.clear()
            roles._roles.update(known)


class _Walk:
    """Recursive: docutils itself has read the document recursively before."""

    def __init__(self, building: Building) -> None:
        self._building = building
        self.title: str | None = None

    def all(self, document: Node) -> None:
        for node in document.children:
            self._block(node, 0)

    def _block(self, node: Node, level: int) -> None:
        if isinstance(node, nodes.section):
            for child in node.children:
                self._block(child, level + 1)
        elif isinstance(node, nodes.title | nodes.subtitle | nodes.rubric):
            self._heading(node, max(level, 1))
        elif isinstance(node, nodes.bullet_list | nodes.enumerated_list | nodes.definition_list | nodes.field_list):
            self._building.add("\n".join(_items(node, 0)), Kind.LIST)
        elif isinstance(node, nodes.option_list):
            self._building.add("\n".join(f"- {_text(item)}" for item in node.children), Kind.LIST)
        elif isinstance(node, nodes.table):
            self._table(node)
        elif isinstance(node, nodes.literal_block | nodes.doctest_block | nodes.math_block):
            self._building.add(node.astext(), Kind.CODE)
        elif isinstance(node, nodes.line_block):
            self._building.add("\n".join(_lines(node)))
        elif isinstance(node, nodes.footnote | nodes.citation):
            self._building.add(_text(node), Kind.FOOTNOTE)
        elif isinstance(node, nodes.comment):
            self._building.add(node.astext(), Kind.COMMENT, hidden=True)
        elif isinstance(node, nodes.header | nodes.footer):
            self._building.add(_text(node), Kind.HEADER if isinstance(node, nodes.header) else Kind.FOOTER)
        elif isinstance(node, nodes.system_message | nodes.substitution_definition | nodes.target | nodes.pending):
            return
        elif isinstance(node, nodes.TextElement) or not hasattr(node, "children"):
            self._building.add(_text(node))
        elif isinstance(node, nodes.Element):
            for child in node.children:  # a quotation, an admonition, a figure
                self._block(child, level)

    def _heading(self, node: Node, level: int) -> None:
        text = _text(node)
        self.title = self.title or text
        self._building.add(text, Kind.HEADING, level=level)

    def _table(self, table: Node) -> None:
        for title in table.findall(nodes.title):
            self._building.add(_text(title))
        rows = [" | ".join(_text(entry) for entry in row.children) for row in table.findall(nodes.row)]
        self._building.add("\n".join(rows), Kind.TABLE, header=rows[0] if len(rows) > 1 else None)


def _items(node: Node, depth: int) -> Iterable[str]:
    """A line an item, lists in it further to the right."""
    for item in node.children:
        own: list[str] = []
        below: list[str] = []
        for child in item.children:
            if isinstance(child, nodes.definition | nodes.field_body):
                own += [_text(part) for part in child.children if not _is_list(part)]
                below += [line for part in child.children if _is_list(part) for line in _items(part, depth + 1)]
            elif _is_list(child):
                below += _items(child, depth + 1)
            else:
                own.append(_text(child))
        divider = ": " if isinstance(item, nodes.definition_list_item | nodes.field) else " "
        yield "  " * min(depth, 8) + "- " + divider.join(filter(None, own))
        yield from below


def _is_list(node: Node) -> bool:
    return isinstance(node, nodes.bullet_list | nodes.enumerated_list | nodes.definition_list | nodes.field_list)


def _lines(block: Node) -> Iterable[str]:
    for child in block.children:
        if isinstance(child, nodes.line_block):
            yield from _lines(child)
        else:
            yield _text(child)


def _text(node: Node) -> str:
    """Without what docutils has to say about the document."""
    if isinstance(node, nodes.system_message):
        return ""
    if isinstance(node, nodes.image):
        return str(node.get("alt", ""))
    if isinstance(node, nodes.TextElement | nodes.Text):
        return " ".join(_inline(node).split())
    return " ".join(filter(None, (_text(child) for child in node.children)))


def _inline(node: Node) -> str:
    if isinstance(node, nodes.Text):
        return str(node.astext())
    if isinstance(node, nodes.image):
        return str(node.get("alt", ""))
    return "".join(_inline(child) for child in node.children)
