"""Markdown: the source text itself, with its title and blocks, and a flag for what a rendered page does not show."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from enum import Enum
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.token import Token

from indexing.parse.decode import decode
from indexing.parse.html_text import conceals
from indexing.parse.model import (
    EMBEDDED_DATA_REMOVED,
    HIDDEN_TEXT,
    MAX_TITLE,
    UNCERTAIN_ENCODING,
    Block,
    Kind,
    Parsed,
    ParseLimits,
    ParseResult,
    Scalar,
    Source,
    clean,
    finish,
)
from indexing.parse.tags import stated

_FRONT_MATTER = re.compile(r"\A---[ \t]*\n(.*?\n)(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
_FRONT_TITLE = re.compile(r"^title:[ \t]*(.+)$", re.MULTILINE)
_FRONT_LANGUAGE = re.compile(r"^lang(?:uage)?:[ \t]*(.+)$", re.MULTILINE)
_DATA_URI = re.compile(r"data:[\w.+-]+/[\w.+-]+;base64,[A-Za-z0-9+/=]+")
_WHOLE_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_LINE_END = re.compile(r"\n")
_KINDS: Final = {
    "heading_open": Kind.HEADING,
    "paragraph_open": Kind.PARAGRAPH,
    "blockquote_open": Kind.PARAGRAPH,
    "html_block": Kind.PARAGRAPH,
    "bullet_list_open": Kind.LIST,
    "ordered_list_open": Kind.LIST,
    "table_open": Kind.TABLE,
    "fence": Kind.CODE,
    "code_block": Kind.CODE,
}
_COMMENT = re.compile(r"<!--\s*[^\s>-]")


def read_markdown(source: Source, limits: ParseLimits) -> list[ParseResult]:
    """The text stays as written, markup and all; blocks say what is a heading, a list, a table or code."""
    del limits
    decoded = decode(source.data, source.charset)
    warnings = set() if decoded.certain else {UNCERTAIN_ENCODING}
    text, removed = _DATA_URI.subn("data:", clean(decoded.text))
    if removed:
        warnings.add(EMBEDDED_DATA_REMOVED)
    front = _FRONT_MATTER.match(text)
    start = front.end() if front else 0
    # Only blocks are parsed: inline parsing is most of the time and adds nothing here.
    tokens = MarkdownIt("commonmark").enable("table").disable("inline").parse(text[start:])
    blocks = tuple(_blocks(text, start, tokens))
    if any(block.hidden for block in blocks):
        warnings.add(HIDDEN_TEXT)
    title = _front(_FRONT_TITLE, front) or _first_heading(tokens)
    metadata: dict[str, Scalar] = {**stated(_front(_FRONT_LANGUAGE, front))}
    return [finish(Parsed(text, title, "text/markdown", tuple(warnings), metadata, blocks=blocks))]


def _blocks(text: str, start: int, tokens: list[Token]) -> Iterator[Block]:
    """The outermost blocks, by the lines that they take."""
    lines = [start]
    lines += (found.end() for found in _LINE_END.finditer(text, start))
    lines.append(len(text))
    for position, token in enumerate(tokens):
        kind = _KINDS.get(token.type)
        if token.level or kind is None or token.map is None:
            continue
        first, last = lines[token.map[0]], lines[min(token.map[1], len(lines) - 1)]
        last = first + len(text[first:last].rstrip())
        if first >= last:
            continue
        header = text[first:last].partition("\n")[0].strip() if kind is Kind.TABLE else None
        block = Block(first, last, kind, int(token.tag[1]) if kind is Kind.HEADING else 0, header)
        yield from _shown_and_hidden(text, block, _hides(tokens, position))


def _shown_and_hidden(text: str, block: Block, hides: _Hides) -> Iterator[Block]:
    """A block, with the comments in it apart."""
    if hides is _Hides.NOTHING:
        yield block
    elif hides is _Hides.ALL:
        yield replace(block, hidden=True)
    else:
        at = block.start
        for comment in _WHOLE_COMMENT.finditer(text, block.start, block.end):
            if text[at : comment.start()].strip():
                yield replace(block, start=at, end=comment.start())
            yield replace(block, start=comment.start(), end=comment.end(), hidden=True)
            at = comment.end()
        if text[at : block.end].strip():
            yield replace(block, start=at)


def _front(entry: re.Pattern[str], front: re.Match[str] | None) -> str | None:
    found = entry.search(front.group(1)) if front else None
    return found.group(1).strip().strip("\"'") if found else None


def _first_heading(blocks: list[Token]) -> str | None:
    """The first heading of the highest level present, without its inline markup."""
    headings = [(token.tag, position) for position, token in enumerate(blocks) if token.type == "heading_open"]
    if not headings:
        return None
    source = blocks[min(headings)[1] + 1].content[:MAX_TITLE]
    children = MarkdownIt("commonmark").parseInline(source)[0].children or []
    return "".join(child.content if child.type != "softbreak" else " " for child in children)


class _Hides(Enum):
    NOTHING, COMMENTS, ALL = range(3)


def _hides(tokens: list[Token], position: int) -> _Hides:
    """Whether a rendered page hides some of a block: comments, or elements that their markup conceals."""
    found = _Hides.NOTHING
    level = 0
    for token in tokens[position:]:
        level += token.nesting
        if token.type in {"html_block", "inline"}:
            if conceals(token.content):
                return _Hides.ALL
            if _COMMENT.search(token.content) is not None:
                found = _Hides.COMMENTS
        if level <= 0:
            break
    return found
