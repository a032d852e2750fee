"""The walk over WordprocessingML (ECMA-376 part 1, section 17) that gathers text in reading order.

Elements are told by their local name, so that the transitional and the strict namespaces both work, and so
do formulas and drawings, whose text elements are called `t` too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

Element = Any
"""An lxml element; lxml has no types."""

_SKIPPED: Final = frozenset(
    {"del", "moveFrom", "delText", "instrText", "delInstrText", "Fallback", "rt"}
    | {"pPr", "rPr", "tblPr", "tblGrid", "trPr", "tcPr", "sectPr", "sdtPr", "sdtEndPr"}
)
_FALSE: Final = frozenset({"0", "false", "off"})
_INLINE: Final = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-", "ptab": "\t"}
_NOTES: Final = frozenset({"footnoteReference", "endnoteReference"})
_TINY_HALF_POINTS: Final = 4


class Styles(NamedTuple):
    """Style ids: heading level by id, and the styles that hide their text."""

    headings: Mapping[str, int]
    hidden: frozenset[str]


def local(element: Element) -> str:
    """The local name; empty for comments and processing instructions."""
    tag = element.tag
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""


def attribute(element: Element, name: str) -> str | None:
    for key, value in element.attrib.items():
        if key.rpartition("}")[2] == name:
            return str(value)
    return None


def child(element: Element | None, name: str) -> Element | None:
    if element is None:
        return None
    return next((item for item in element if local(item) == name), None)


def read_styles(root: Element | None) -> Styles:
    headings: dict[str, int] = {}
    hidden: set[str] = set()
    for style in root if root is not None else ():
        identifier = attribute(style, "styleId")
        if local(style) != "style" or identifier is None:
            continue
        # The name is English in every language edition; the id is not.
        name = (_value(child(style, "name")) or "").lower()
        level = "1" if name == "title" else name.removeprefix("heading ") if name.startswith("heading ") else ""
        if level.isdecimal() and 1 <= int(level) <= 9:
            headings[identifier] = min(int(level), 6)
        if _conceals(child(style, "rPr")):
            hidden.add(identifier)
    return Styles(headings, frozenset(hidden))


class Story:
    """One part's text. `notes` gives the text of a note by its kind and id, `imported` that of an altChunk."""

    def __init__(self, styles: Styles, notes: Mapping[tuple[str, str], str], imported: Callable[[str], str]) -> None:
        self.hidden = False
        self._styles = styles
        self._notes = notes
        self._imported = imported

    def blocks(self, element: Element) -> Iterator[str]:
        """Paragraphs and tables below `element`, in order, blank ones left out."""
        for item in element:
            name = local(item)
            if name == "p":
                yield from self._paragraph(item)
            elif name == "tbl":
                rows = "\n".join(filter(None, self._rows(item)))
                if rows:
                    yield rows
            elif name == "altChunk":
                text = self._imported(attribute(item, "id") or "")
                if text:
                    yield text
            elif name and name not in _SKIPPED:
                yield from self.blocks(item)

    def _rows(self, table: Element) -> Iterator[str]:
        for item in table:
            if local(item) == "tr":
                cells = [" ".join(" / ".join(self.blocks(cell)).split()) for cell in _cells(item)]
                yield " | ".join(cells) if any(cells) else ""
            elif local(item) not in _SKIPPED:
                yield from self._rows(item)  # rows in content controls and tracked insertions

    def _paragraph(self, paragraph: Element) -> Iterator[str]:
        """The paragraph, then the text boxes anchored in it, then the notes that it refers to."""
        properties = child(paragraph, "pPr")
        style = _value(child(properties, "pStyle")) or ""
        pieces: list[str] = []
        after: list[str] = []
        self._inline(paragraph, pieces, after, hidden=style in self._styles.hidden)
        text = "".join(pieces).strip()
        if text:
            level = self._styles.headings.get(style) or _outline(properties)
            prefix = "#" * level + " " if level else "- " if child(properties, "numPr") is not None else ""
            yield prefix + (" ".join(text.split()) if level else text)
        yield from after

    def _inline(self, element: Element, pieces: list[str], after: list[str], *, hidden: bool) -> None:
        for item in element:
            name = local(item)
            if name == "t":
                text = item.text or ""
                self.hidden |= hidden and bool(text.strip())
                pieces.append(text)
            elif name in _INLINE:
                pieces.append(_INLINE[name])
            elif name == "txbxContent":
                after.extend(self.blocks(item))
            elif name in _NOTES:
                note = self._notes.get((name.removesuffix("Reference"), attribute(item, "id") or ""))
                if note:
                    after.append(note)
            elif name and name not in _SKIPPED:
                self._inline(item, pieces, after, hidden=hidden or (name == "r" and self._is_hidden(item)))

    def _is_hidden(self, run: Element) -> bool:
        properties = child(run, "rPr")
        return _conceals(properties) or (_value(child(properties, "rStyle")) or "") in self._styles.hidden


def _cells(row: Element) -> Iterator[Element]:
    for item in row:
        if local(item) == "tc":
            yield item
        elif local(item) not in _SKIPPED:
            yield from _cells(item)


def _value(element: Element | None) -> str | None:
    return None if element is None else attribute(element, "val")


def _conceals(properties: Element | None) -> bool:
    """Whether run properties make text invisible: `vanish`, or a size of two points at most."""
    vanish = child(properties, "vanish")
    if vanish is not None and (_value(vanish) or "true").lower() not in _FALSE:
        return True
    size = _value(child(properties, "sz")) or ""
    return size.isdecimal() and int(size) <= _TINY_HALF_POINTS


def _outline(properties: Element | None) -> int:
    """The level of a paragraph that is a heading by its outline level (0 to 8; 9 is body text), or 0."""
    level = _value(child(properties, "outlineLvl")) or ""
    return min(int(level) + 1, 6) if level.isdecimal() and int(level) < 9 else 0
