"""The walk over an HTML tree that gathers its text in reading order. Also a script: markup in, a `Page` as JSON out."""

from __future__ import annotations

import json
import re
import resource
import sys
from typing import Final, NamedTuple

from selectolax.lexbor import LexborHTMLParser, LexborNode

MEMORY_BYTES: Final = 4 * 2**30
"""What the script may take."""

_DROPPED: Final = frozenset({"script", "style", "template", "head", "iframe", "object", "svg", "-comment"})
_PARAGRAPHS: Final = frozenset(
    {"address", "article", "aside", "blockquote", "body", "details", "dialog", "dl", "fieldset", "figcaption"}
    | {"figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "main", "nav", "ol", "p"}
    | {"pre", "section", "table", "ul"}
)
_LINES: Final = frozenset(["br", "caption", "dd", "div", "dt", "legend", "li", "option", "summary", "tr"])
_ROWS: Final = frozenset({"table", "tr", "caption"})
_CELLS: Final = frozenset({"td", "th"})
_HEADINGS: Final = {f"h{level}": level for level in range(1, 7)}
_LISTS: Final = frozenset({"ul", "ol"})
_PREFIXED: Final = frozenset({"li", *_HEADINGS})
_MAX_INDENT: Final = 8
_MAX_SPAN: Final = 100
_MAX_CELLS: Final = 20_000
"""Of a table that is looked at as a whole; a larger one is data in any case."""
_MAX_CELL: Final = 2_000
"""Characters. Tables with longer cells lay out a page."""

_INVISIBLE = re.compile(
    r"display\s*:\s*none|visibility\s*:\s*hidden|(?:font-size|opacity)\s*:\s*0(?![.\d]*[1-9])"
    r"|(?:left|top|text-indent)\s*:\s*-\d{3,}|mso-hide\s*:\s*all",
    re.IGNORECASE,
)
_TAG = re.compile(r"<[a-z][^<>]{0,2000}", re.IGNORECASE)
_HIDDEN_ATTRIBUTE = re.compile(r"\shidden(?=[\s=/]|$)", re.IGNORECASE)


class Segment(NamedTuple):
    """A block of the page; `kind` is a value of `indexing.parse.model.Kind`, which this script does not load."""

    text: str
    kind: str
    level: int = 0
    header: str | None = None
    hidden: bool = False


class Page(NamedTuple):
    title: str | None
    segments: list[Segment]
    language: str | None = None
    """As the page states it: a tag such as "de-AT", or what somebody wrote in its place."""

    @property
    def hidden(self) -> bool:
        """Some of the text is invisible to a person who views the page."""
        return any(segment.hidden for segment in self.segments)

    @property
    def text(self) -> str:
        return "\n\n".join(
            "#" * segment.level + " " + " ".join(segment.text.split()) if segment.level else segment.text
            for segment in self.segments
        )


def walk(markup: str) -> Page:
    """Parse `markup` and gather its text. Iterative: nesting is as deep as the author likes."""
    tree = LexborHTMLParser(markup)
    title = tree.css_first("title")
    flow = _Flow()
    node: LexborNode | None = tree.body
    while node is not None:
        below = flow.enter(node)
        node = below if below is not None else _after(node, flow)
    return Page(title.text() if title is not None else None, flow.segments(), _language(tree))


def _language(tree: LexborHTMLParser) -> str | None:
    # Not of "body": office programs write their own language there.
    root = tree.root
    attributes = root.attributes if root is not None else {}
    return attributes.get("lang") or attributes.get("xml:lang")


def conceals(markup: str) -> bool:
    """Whether a piece of markup hides one of its elements from view."""
    return any(
        _HIDDEN_ATTRIBUTE.search(tag) is not None or _INVISIBLE.search(tag) is not None for tag in _TAG.findall(markup)
    )


def _after(node: LexborNode, flow: _Flow) -> LexborNode | None:
    """The next node in document order that is not below `node`, leaving the elements that end before it."""
    at: LexborNode | None = node
    while at is not None and flow.depth:
        following = at.next
        if following is not None:
            return following
        at = at.parent
        flow.leave()
    return None


class _Open(NamedTuple):
    """An open element, with what it has from those around it. `table` numbers the data table that it is in."""

    tag: str
    hidden: bool = False
    preformatted: bool = False
    kind: str = "paragraph"
    level: int = 0
    lists: int = 0
    table: int = 0

    def under(self, tag: str, hidden: bool, table: int) -> _Open:
        kind, level = self.kind, self.level
        table = 0 if tag == "caption" else self.table or table
        if table:
            kind, level = "table", 0
        elif tag in _HEADINGS:
            kind, level = "heading", _HEADINGS[tag]
        elif tag in {"li", "pre", "textarea"}:
            kind, level = "list" if tag == "li" else "code", 0
        elif tag == "caption":
            kind = "paragraph"
        return _Open(
            tag,
            self.hidden or hidden,
            (self.preformatted or tag in {"pre", "textarea"}) and not table,
            kind,
            level,
            self.lists + (tag in _LISTS),
            table,
        )


class _Style(NamedTuple):
    """Lines of one style, and of one table, make a block."""

    kind: str
    level: int
    hidden: bool
    table: int


class _Flow:
    """Text in reading order. Breaks are lazy: they take effect when text follows them.

    The rows of a data table are one line each, whatever is in their cells. A table without that shape (one row, one
    column, another table inside) lays out the page, and its cells are read like everything else.
    """

    def __init__(self) -> None:
        self._open: list[_Open] = []
        self._done: list[Segment] = []
        self._lines: list[str] = []
        self._style = _Style("", 0, False, 0)
        self._line: list[str] = []
        self._line_style: _Style | None = None
        self._raw = False
        self._before = 0
        self._gap = 0
        self._prefix = ""
        self._line_prefix = ""
        self._fresh_cell = False
        self._row = _Row()
        self._tables = 0
        self._headers: dict[int, str] = {}

    @property
    def depth(self) -> int:
        return len(self._open)

    def enter(self, node: LexborNode) -> LexborNode | None:
        """Take in a node; the first child to go down to, if there is one."""
        tag = node.tag or ""
        if tag == "-text":
            self._take(node.text_content or "")
            return None
        if tag in _DROPPED:
            return None
        outer = self._open[-1] if self._open else _Open("")
        if tag in _CELLS:
            self._start_cell(node, outer)
        else:
            self._separate(tag, outer)
        below = node.first_child
        if below is not None:
            table = 0
            if tag == "table" and not outer.table and _holds_data(node):
                self._tables += 1
                table = self._tables
            state = outer.under(tag, _is_hidden(node), table)
            if tag in _PREFIXED and not state.table:
                self._prefix = "  " * min(state.lists - 1, _MAX_INDENT) + "- " if tag == "li" else ""
            self._open.append(state)
        return below

    def leave(self) -> None:
        state = self._open.pop()
        if state.tag in _CELLS:
            if not state.table:
                self._gap = 0
        else:
            self._separate(state.tag, self._open[-1] if self._open else _Open(""))
        if state.tag in _PREFIXED:
            self._prefix = ""

    def segments(self) -> list[Segment]:
        self._flush()
        self._close()
        return self._done

    def _take(self, text: str) -> None:
        state = self._open[-1]
        blank = not text or text.isspace()
        if blank and (self._gap or not self._line) and not state.preformatted:
            return
        if not blank:
            self._fresh_cell = False
            if self._line_style is not None and self._line_style.hidden != state.hidden and not state.table:
                self._gap = max(self._gap, 1)
            if self._gap:
                self._flush()
            if self._line_style is None:
                self._line_prefix, self._prefix = self._prefix, ""
                self._line_style = _Style(state.kind, state.level, state.hidden, state.table)
            elif state.hidden:
                self._line_style = self._line_style._replace(hidden=True)
            self._prefix = ""
        self._raw |= state.preformatted
        self._line.append(text)

    def _start_cell(self, node: LexborNode, row: _Open) -> None:
        if row.table:
            before = self._row.cells_before(_span(node, "colspan"), _span(node, "rowspan"))
            self._line.append(" | " * before)
        elif self._line and not self._gap:
            self._line.append(" | ")
        self._fresh_cell = True

    def _separate(self, tag: str, around: _Open) -> None:
        if around.table and tag not in _ROWS:
            self._line += [" "] if self._line else []
            return  # a row of a data table is one line
        if around.table and tag == "tr":
            self._flush()
            self._row.begin()
            return
        if (self._fresh_cell or self._prefix) and tag not in _ROWS and tag not in _PREFIXED:
            return  # a paragraph that opens a cell or a list item stays on its line
        if tag in _PARAGRAPHS and not (tag in _LISTS and around.lists):
            self._gap = 2
        elif tag in _LINES or tag in _LISTS:
            self._gap = max(self._gap, 1)
        if tag in _ROWS:
            self._fresh_cell = False

    def _flush(self) -> None:
        line = "".join(self._line)
        line = line.strip("\n") if self._raw else self._line_prefix + " ".join(line.split())
        style = self._line_style
        if style is not None and line.strip(" |"):
            if self._before > 1 or style != self._style:
                self._close()
            self._style = style
            if style.table:
                self._headers.setdefault(style.table, line)
            self._lines.append(line)
            self._before = 1
        self._before = max(self._before, self._gap)
        self._line.clear()
        self._line_style, self._line_prefix = None, ""
        self._gap, self._raw = 0, False

    def _close(self) -> None:
        if self._lines:
            kind, level, hidden, table = self._style
            self._done.append(Segment("\n".join(self._lines), kind, level, self._headers.get(table), hidden))
        self._lines = []


class _Row:
    """Where the cells of a data table stand: those that span rows or columns push others aside."""

    def __init__(self) -> None:
        self._column = 0
        self._taken: dict[int, int] = {}
        self._left = 0

    def begin(self) -> None:
        self._column, self._left = 0, 0

    def cells_before(self, columns: int, rows: int) -> int:
        """The separators between the cell before, or the row's start, and one of this width and height."""
        start = self._left
        while self._taken.get(self._column, 0) > 0:
            self._taken[self._column] -= 1
            self._column += 1
        for column in range(self._column, self._column + columns):
            self._taken[column] = rows - 1
        separators = self._column - start
        self._left = self._column
        self._column += columns
        return separators


def _span(cell: LexborNode, name: str) -> int:
    given = (cell.attributes.get(name) or "1").strip()
    return min(max(int(given), 1), _MAX_SPAN) if given.isascii() and given.isdigit() and len(given) < 6 else 1


def _holds_data(table: LexborNode) -> bool:
    """Whether a table has rows and columns, and neither headings, tables nor long texts in its cells."""
    rows = widest = cells = seen = length = 0
    node: LexborNode | None = table.first_child
    while node is not None and seen < _MAX_CELLS:
        seen += 1
        tag = node.tag or ""
        if tag == "table" or tag in _HEADINGS:
            return False
        if tag == "tr":
            rows, cells = rows + 1, 0
        elif tag in _CELLS:
            cells, length = cells + 1, 0
            widest = max(widest, cells)
        elif tag == "-text":
            length += len(node.text_content or "")
            if length > _MAX_CELL:
                return False
        node = node.first_child or _next_within(node, table)
    return rows > 1 and widest > 1


def _next_within(node: LexborNode, root: LexborNode) -> LexborNode | None:
    at: LexborNode | None = node
    while at is not None and at.mem_id != root.mem_id:
        if at.next is not None:
            return at.next
        at = at.parent
    return None


def _is_hidden(node: LexborNode) -> bool:
    attributes = node.attributes
    return "hidden" in attributes or _INVISIBLE.search(attributes.get("style") or "") is not None


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    sys.stdout.write(json.dumps(walk(sys.stdin.buffer.read().decode("utf-8"))))


if __name__ == "__main__":
    main()
