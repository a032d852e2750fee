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
_PREFIXES: Final = {"li": "- "} | {f"h{level}": "#" * level + " " for level in range(1, 7)}

_INVISIBLE = re.compile(
    r"display\s*:\s*none|visibility\s*:\s*hidden|(?:font-size|opacity)\s*:\s*0(?![.\d]*[1-9])"
    r"|(?:left|top|text-indent)\s*:\s*-\d{3,}|mso-hide\s*:\s*all",
    re.IGNORECASE,
)
_TAG = re.compile(r"<[a-z][^<>]{0,2000}", re.IGNORECASE)
_HIDDEN_ATTRIBUTE = re.compile(r"\shidden(?=[\s=/]|$)", re.IGNORECASE)


class Page(NamedTuple):
    """`hidden`: some of the text is invisible to a person who views the page."""

    text: str
    title: str | None
    hidden: bool


def walk(markup: str) -> Page:
    """Parse `markup` and gather its text. Iterative: nesting is as deep as the author likes."""
    tree = LexborHTMLParser(markup)
    title = tree.css_first("title")
    flow = _Flow()
    node: LexborNode | None = tree.body
    while node is not None:
        below = flow.enter(node)
        node = below if below is not None else _after(node, flow)
    return Page(flow.text(), title.text() if title is not None else None, flow.hidden)


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
    tag: str
    hidden: bool
    preformatted: bool


class _Flow:
    """Text in reading order. Breaks are lazy: they take effect when text follows them."""

    def __init__(self) -> None:
        self.hidden = False
        self._open: list[_Open] = []
        self._parts: list[str] = []
        self._line: list[str] = []
        self._raw = False
        self._before = 0
        self._gap = 0
        self._prefix = ""
        self._fresh_cell = False

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
        if tag in _CELLS:
            self._start_cell()
        else:
            self._separate(tag)
        below = node.first_child
        if below is not None:
            self._prefix = _PREFIXES.get(tag, self._prefix)
            outer = self._open[-1] if self._open else _Open("", False, False)
            preformatted = outer.preformatted or tag in {"pre", "textarea"}
            self._open.append(_Open(tag, outer.hidden or _is_hidden(node), preformatted))
        return below

    def leave(self) -> None:
        tag = self._open.pop().tag
        if tag in _CELLS:
            self._gap = 0
        else:
            self._separate(tag)
        if tag in _PREFIXES:
            self._prefix = ""

    def text(self) -> str:
        self._flush()
        return "".join(self._parts)

    def _take(self, text: str) -> None:
        state = self._open[-1]
        blank = not text or text.isspace()
        if blank and (self._gap or not self._line) and not state.preformatted:
            return
        if not blank:
            self.hidden |= state.hidden
            self._fresh_cell = False
            if self._gap:
                self._flush()
            if not self._line and self._prefix:
                self._line.append(self._prefix)
            self._prefix = ""
        self._raw |= state.preformatted
        self._line.append(text)

    def _start_cell(self) -> None:
        if self._line and not self._gap:
            self._line.append(" | ")
        self._fresh_cell = True

    def _separate(self, tag: str) -> None:
        if (self._fresh_cell or self._prefix) and tag not in _ROWS and tag not in _PREFIXES:
            return  # a paragraph that opens a cell or a list item stays on its line
        if tag in _PARAGRAPHS:
            self._gap = 2
        elif tag in _LINES:
            self._gap = max(self._gap, 1)
        if tag in _ROWS:
            self._fresh_cell = False

    def _flush(self) -> None:
        line = "".join(self._line)
        line = line.strip("\n") if self._raw else " ".join(line.split())
        if line.strip(" |"):
            if self._parts:
                self._parts.append("\n" * self._before)
            self._parts.append(line)
            self._before = 1
        self._before = max(self._before, self._gap)
        self._line.clear()
        self._gap, self._raw = 0, False


def _is_hidden(node: LexborNode) -> bool:
    attributes = node.attributes
    return "hidden" in attributes or _INVISIBLE.search(attributes.get("style") or "") is not None


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    sys.stdout.write(json.dumps(walk(sys.stdin.buffer.read().decode("utf-8"))))


if __name__ == "__main__":
    main()
