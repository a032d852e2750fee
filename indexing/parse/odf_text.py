"""The walk over OpenDocument text (ODF 1.3 part 3, chapters 5 to 10) that gathers it in reading order."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from indexing.parse.building import Building
from indexing.parse.model import Kind
from indexing.parse.package import Element, attribute, child, children, local

_SPACES = re.compile(r"[ \t\r\n]+")
_MAX_SPACES: Final = 100
_SKIPPED: Final = frozenset(
    {"tracked-changes", "forms", "sequence-decls", "variable-decls", "user-field-decls", "bookmark-start", "ruby-text"}
    | {"event-listeners", "script", "desc", "title", "meta", "shapes", "notes", "table-of-content-source", "settings"}
)
_BLOCKS: Final = frozenset({"p", "h", "list", "table"})
_TINY_POINTS: Final = 2.0
_LENGTH = re.compile(r"([0-9.]+)\s*pt")


class Styles(NamedTuple):
    """Names of styles by what they do."""

    hidden_text: frozenset[str]
    hidden_tables: frozenset[str]
    hidden_pages: frozenset[str]


def read_styles(*roots: Element | None) -> Styles:
    """From the styles of content.xml and styles.xml; those that a style inherits from are not followed."""
    found: tuple[set[str], set[str], set[str]] = (set(), set(), set())
    for root in roots:
        for style in root.iter("{*}style") if root is not None else ():
            name = attribute(style, "name") or ""
            text = child(style, "text-properties")
            if text is not None and (attribute(text, "display") == "none" or _is_tiny(attribute(text, "font-size"))):
                found[0].add(name)
            table = child(style, "table-properties")
            if table is not None and attribute(table, "display") == "false":
                found[1].add(name)
            page = child(style, "drawing-page-properties")
            if page is not None and attribute(page, "visibility") == "hidden":
                found[2].add(name)
    return Styles(*(frozenset(names) for names in found))


class Paragraph:
    """One paragraph on its way: what is seen, what is hidden, and what comes after it as blocks of its own."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.hidden: list[str] = []
        self.after: list[tuple[Kind, Element]] = []


class Story:
    """Writes text into `building`. `linked` reads an embedded object by its path and writes what it holds."""

    def __init__(self, building: Building, styles: Styles, linked: Callable[[str], None]) -> None:
        self._building = building
        self._styles = styles
        self._linked = linked
        self._unseen: list[str] = []

    def blocks(self, element: Element, kind: Kind = Kind.PARAGRAPH, *, hidden: bool = False) -> None:
        """Write everything below `element`, paragraphs as blocks of `kind`."""
        for item in element:
            name = local(item)
            if name == "h":
                self._heading(item, hidden=hidden)
            elif name == "p":
                self._paragraph(item, kind, hidden=hidden)
            elif name == "list":
                self._list(item, kind, hidden=hidden)
            elif name == "table":
                self._table(item, hidden=hidden)
            elif name in {"object", "object-ole"}:
                self._linked(attribute(item, "href") or "")
            elif name == "annotation":
                self._building.add(self.comment(item), Kind.COMMENT)
            elif name and name not in _SKIPPED:
                self.blocks(item, kind, hidden=hidden or _is_hidden_section(item))

    def text(self, element: Element) -> str:
        """What is seen below `element`, in one line, with its notes; what is hidden waits for `write_unseen`."""
        return " ".join(self.lines(element, "\n").split())

    def lines(self, element: Element, joint: str = "\n") -> str:
        pieces = []
        for item in _paragraphs(element):
            part = Paragraph()
            self._inline(item, part, hidden=False)
            pieces.append("".join(part.seen).strip())
            self._unseen.append("".join(part.hidden).strip())
            pieces.extend(self.lines(extra) for kind, extra in part.after if kind is not Kind.COMMENT)
        return joint.join(filter(None, pieces))

    def write_unseen(self) -> None:
        """Write what `text` and `lines` met that is hidden."""
        self._building.add("\n".join(filter(None, self._unseen)), hidden=True)
        self._unseen.clear()

    def comment(self, element: Element) -> str:
        author = child(element, "creator")
        text = self.lines(element)
        name = (author.text or "").strip() if author is not None else ""
        return f"{name}: {text}" if name and text else text

    def _heading(self, element: Element, *, hidden: bool) -> None:
        part = self._read(element, hidden=hidden)
        level = attribute(element, "outline-level") or "1"
        self._building.add("".join(part.seen), Kind.HEADING, level=int(level) if level.isdecimal() else 1)
        self._close(part)

    def _paragraph(self, element: Element, kind: Kind, *, hidden: bool) -> None:
        part = self._read(element, hidden=hidden)
        self._building.add("".join(part.seen).strip(), kind)
        self._close(part)

    def _read(self, element: Element, *, hidden: bool) -> Paragraph:
        part = Paragraph()
        self._inline(element, part, hidden=hidden or attribute(element, "style-name") in self._styles.hidden_text)
        return part

    def _close(self, part: Paragraph) -> None:
        self._building.add("".join(part.hidden).strip(), hidden=True)
        for kind, element in part.after:
            if kind is Kind.COMMENT:
                self._building.add(self.comment(element), kind)
            elif local(element) in {"object", "object-ole"}:
                self._linked(attribute(element, "href") or "")
            else:
                self.blocks(element, kind)

    def _list(self, element: Element, kind: Kind, *, hidden: bool) -> None:
        """A list as one block, and notes and tables in its items after it."""
        seen: list[str] = []
        after = Paragraph()
        for level, first, item in _items(element, 0):
            part = self._read(item, hidden=hidden)
            text = "".join(part.seen).strip()
            if text:
                seen.append("  " * level + ("- " if first else "  ") + text)
            after.hidden.extend((*part.hidden, "\n") if part.hidden else ())
            after.after.extend(part.after)
        self._building.add("\n".join(seen), Kind.LIST if kind is Kind.PARAGRAPH else kind)
        self._close(after)
        for table in element.iter("{*}table"):
            if next(table.iterancestors("{*}table"), None) is None:
                self._table(table, hidden=hidden)

    def _table(self, element: Element, *, hidden: bool) -> None:
        hidden = hidden or attribute(element, "style-name") in self._styles.hidden_tables
        rows = []
        for row in table_rows(element):
            cells = [self.text(cell) for cell in row if local(cell) in {"table-cell", "covered-table-cell"}]
            if any(cells):
                rows.append(" | ".join(cells))
        if rows:
            self._building.add("\n".join(rows), Kind.TABLE, header=rows[0], hidden=hidden)
        self.write_unseen()
        for note in element.iter("{*}annotation"):
            self._building.add(self.comment(note), Kind.COMMENT)

    def _inline(self, element: Element, part: Paragraph, *, hidden: bool) -> None:
        """Text nodes, spans and fields; white space counts as one blank unless an element says otherwise."""
        target = part.hidden if hidden else part.seen
        target.append(_SPACES.sub(" ", element.text or ""))
        for item in element:
            name = local(item)
            if name == "s":
                count = attribute(item, "c") or "1"
                target.append(" " * min(int(count) if count.isdecimal() else 1, _MAX_SPACES))
            elif name == "tab":
                target.append("\t")
            elif name == "line-break":
                target.append("\n")
            elif name == "note":
                part.after.extend((Kind.FOOTNOTE, body) for body in children(item, "note-body"))
            elif name == "annotation":
                part.after.append((Kind.COMMENT, item))
            elif name in {"frame", "text-box", "object", "object-ole", "g", "custom-shape"}:
                part.after.append((Kind.PARAGRAPH, item))
            elif name in {"hidden-text", "hidden-paragraph"}:
                part.hidden.append(attribute(item, "string-value") or "".join(item.itertext()))
            elif name and name not in _SKIPPED:
                unseen = hidden or attribute(item, "style-name") in self._styles.hidden_text
                self._inline(item, part, hidden=unseen)
            target.append(_SPACES.sub(" ", item.tail or ""))


def table_rows(element: Element) -> Iterator[Element]:
    """The rows of a table, those in groups and headers too."""
    for item in element:
        name = local(item)
        if name == "table-row":
            yield item
        elif name in {"table-header-rows", "table-rows", "table-row-group"}:
            yield from table_rows(item)


def _items(element: Element, level: int) -> Iterator[tuple[int, bool, Element]]:
    """Level, whether it opens its item, and element of each paragraph of a list."""
    for item in element:
        if local(item) in {"list-item", "list-header"}:
            first = True
            for part in item:
                name = local(part)
                if name in {"p", "h"}:
                    yield level, first, part
                    first = False
                elif name == "list":
                    yield from _items(part, level + 1)


def _paragraphs(element: Element) -> Iterator[Element]:
    """The outermost paragraphs below `element`."""
    for item in element:
        name = local(item)
        if name in {"p", "h"}:
            yield item
        elif name and name not in _SKIPPED and name != "annotation":
            yield from _paragraphs(item)


def _is_hidden_section(element: Element) -> bool:
    return local(element) == "section" and attribute(element, "display") == "none"


def _is_tiny(size: str | None) -> bool:
    found = _LENGTH.fullmatch(size or "")
    try:
        return found is not None and 0 < float(found.group(1)) <= _TINY_POINTS
    except ValueError:
        return False
