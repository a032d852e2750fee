"""HTML: the text that a page carries, in order, with headings as "# ..." and table cells as "a | b".

Scripts and styles are dropped, nothing is fetched. Text that the markup hides from view is kept and
flagged, since a generator would read it and a person would not see it.

Two measures bound the parser, whose HTML 5 algorithm is worse than linear on hostile input (75 KB of
unclosed `<b id=..><p>` took 15 s, twice that all memory). Formatting elements, whose reconstruction is the
cause, are renamed to `span`; and a page of more than `MAX_MARKUP` tags is parsed in a process of its own
that can be stopped (`html_worker`).
"""

from __future__ import annotations

import re
from typing import Final

from indexing.parse import html_worker
from indexing.parse.building import Building
from indexing.parse.decode import decode
from indexing.parse.html_text import Page, walk
from indexing.parse.model import (
    HIDDEN_TEXT,
    UNCERTAIN_ENCODING,
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

MAX_MARKUP: Final = 20_000

_FORMATTING = re.compile(r"<(/?)(?:a|b|big|code|em|font|i|nobr|s|small|strike|strong|tt|u)(?=[\s/>])", re.IGNORECASE)
_CHARSET = re.compile(
    rb"""(?:<meta[^>]{0,200}?charset|<\?xml[^>]{0,100}?encoding)\s{0,9}=\s{0,9}["']?\s{0,9}([\w.:-]+)""",
    re.IGNORECASE,
)


def read_html(source: Source, limits: ParseLimits) -> list[ParseResult]:
    """Raises `ParseFailure` ("too_large") where parsing takes more time than `limits` grant."""
    decoded = decode(source.data, source.charset or declared_charset(source.data))
    page = extract(decoded.text, limits.seconds)
    building = Building(limits.max_characters)
    add_page(building, page)
    warnings = set() if decoded.certain else {UNCERTAIN_ENCODING}
    if page.hidden:
        warnings.add(HIDDEN_TEXT)
    metadata: dict[str, Scalar] = {**stated(page.language)}
    return [
        finish(Parsed(building.text(), page.title, "text/html", tuple(warnings), metadata, blocks=building.blocks()))
    ]


def add_page(building: Building, page: Page, *, hidden: bool = False) -> None:
    """The blocks of a page as part of a document; all of them `hidden` where nobody sees the page."""
    for segment in page.segments:
        kind = Kind(segment.kind)
        building.add(segment.text, kind, level=segment.level, header=segment.header, hidden=hidden or segment.hidden)


def declared_charset(data: bytes) -> str | None:
    found = _CHARSET.search(data[:4096])
    return found.group(1).decode("ascii", "ignore") if found else None


def extract(markup: str, seconds: float) -> Page:
    """The text of an HTML page. Raises `ParseFailure` ("too_large") after `seconds`."""
    markup = _FORMATTING.sub(r"<\1span", clean(markup))
    return html_worker.run(markup, seconds) if markup.count("<") > MAX_MARKUP else walk(markup)
