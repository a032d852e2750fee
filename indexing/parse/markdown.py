"""Markdown: the source text itself, with its title, and a flag for what a rendered page does not show."""

from __future__ import annotations

import re

from markdown_it import MarkdownIt
from markdown_it.token import Token

from indexing.parse.decode import decode
from indexing.parse.html_text import conceals
from indexing.parse.model import (
    EMBEDDED_DATA_REMOVED,
    HIDDEN_TEXT,
    MAX_TITLE,
    UNCERTAIN_ENCODING,
    Parsed,
    ParseLimits,
    ParseResult,
    Source,
    clean,
    finish,
)

_FRONT_MATTER = re.compile(r"\A---[ \t]*\n(.*?\n)(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
_FRONT_TITLE = re.compile(r"^title:[ \t]*(.+)$", re.MULTILINE)
_DATA_URI = re.compile(r"data:[\w.+-]+/[\w.+-]+;base64,[A-Za-z0-9+/=]+")
_COMMENT = re.compile(r"<!--\s*[^\s>-]")


def read_markdown(source: Source, limits: ParseLimits) -> list[ParseResult]:
    """Headings stay as written ("# ..."), so that chunks know the heading that they are under."""
    del limits
    decoded = decode(source.data, source.charset)
    warnings = set() if decoded.certain else {UNCERTAIN_ENCODING}
    text, removed = _DATA_URI.subn("data:", clean(decoded.text))
    if removed:
        warnings.add(EMBEDDED_DATA_REMOVED)
    front = _FRONT_MATTER.match(text)
    # Only blocks are parsed: inline parsing is most of the time and adds nothing here.
    blocks = MarkdownIt("commonmark").disable("inline").parse(text[front.end() :] if front else text)
    if any(_hides(token) for token in blocks):
        warnings.add(HIDDEN_TEXT)
    title = _front_title(front) or _first_heading(blocks)
    return [finish(Parsed(text, title, "text/markdown", tuple(warnings)))]


def _front_title(front: re.Match[str] | None) -> str | None:
    found = _FRONT_TITLE.search(front.group(1)) if front else None
    return found.group(1).strip().strip("\"'") if found else None


def _first_heading(blocks: list[Token]) -> str | None:
    """The first heading of the highest level present, without its inline markup."""
    headings = [(token.tag, position) for position, token in enumerate(blocks) if token.type == "heading_open"]
    if not headings:
        return None
    source = blocks[min(headings)[1] + 1].content[:MAX_TITLE]
    children = MarkdownIt("commonmark").parseInline(source)[0].children or []
    return "".join(child.content if child.type != "softbreak" else " " for child in children)


def _hides(token: Token) -> bool:
    if token.type not in {"html_block", "inline"}:
        return False
    return _COMMENT.search(token.content) is not None or conceals(token.content)
