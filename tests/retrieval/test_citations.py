"""Citations: verbatim, at the right place, and none for what no source says."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from generation.extractive import ExtractiveGenerator
from generation.generator import Delta, Finish, Quote
from generation.prompt import Templates, render
from retrieval.citations import Cited, verify
from retrieval.context import Source, assemble
from tests.generation.prompts import soon
from tests.retrieval.passages import passage

LEAVE = Source(
    "S1",
    passage(
        "Employees have 27 days of annual leave. Managers approve each request. AT&T staff follow their own rules.",
        start=500,
        ordinal=4,
        title="Leave policy",
    ),
)
TRAVEL = Source("S2", passage("Flights are booked by the travel office.", document="travel.md", document_id=2))
SOURCES = (LEAVE, TRAVEL)


def quotes_of(cited: Cited) -> list[tuple[str, str]]:
    return [(citation.source, citation.quote) for citation in cited.citations]


def require_exact(cited: Cited, sources: tuple[Source, ...] = SOURCES) -> None:
    passages = {source.key: source.passage for source in sources}
    for citation in cited.citations:
        found = passages[citation.source]
        assert found.text[citation.start - found.start : citation.end - found.start] == citation.quote
        assert citation.quote
        assert (citation.document, citation.version, citation.chunk) == (found.document, found.version, found.chunk)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("There are 27 days of leave [S1].", [("S1", "Employees have 27 days of annual leave.")]),
        ("There are 27 days of leave. [S1]", [("S1", "Employees have 27 days of annual leave.")]),
        ("Managers approve requests【S1】。", [("S1", "Managers approve each request.")]),
        (
            "Leave is 27 days [S1]. Flights come from the travel office [S2].",
            [("S1", "Employees have 27 days of annual leave."), ("S2", "Flights are booked by the travel office.")],
        ),
        (
            "Managers approve flights of the travel office [S1][S2].",
            [("S1", "Managers approve each request."), ("S2", "Flights are booked by the travel office.")],
        ),
        (
            "Managers approve flights of the travel office [S1, S2].",
            [("S1", "Managers approve each request."), ("S2", "Flights are booked by the travel office.")],
        ),
        ('It says "27 days of annual leave" [S1].', [("S1", "27 days of annual leave")]),
        ("AT&amp;T staff have rules [S1].", [("S1", "AT&T staff follow their own rules.")]),
        ("27 days of leave [S1]. As said, 27 days of leave [S1].", [("S1", "Employees have 27 days of annual leave.")]),
    ],
)
def test_a_mark_becomes_the_sentence_that_supports_its_statement(text: str, expected: list[tuple[str, str]]) -> None:
    cited = verify(text, SOURCES)
    assert quotes_of(cited) == expected
    assert cited.text == text
    assert (cited.unknown, cited.unsupported) == (0, 0)
    require_exact(cited)


def test_offsets_are_into_the_document() -> None:
    (citation,) = verify("Managers approve it [S1].", SOURCES).citations
    assert citation.start == 500 + LEAVE.passage.text.index("Managers")
    assert (citation.chunk, citation.title, citation.document_id) == ("c4", "Leave policy", 1)


@pytest.mark.parametrize(
    ("text", "unknown", "unsupported"),
    [
        ("Leave is 27 days [S3].", 1, 0),
        ("Leave is 27 days [S0]. Flights too [S99].", 2, 0),
        ("Bananas are yellow [S1].", 0, 1),
        ("[S1]", 0, 1),
        ("Leave is 27 days.", 0, 0),
        ("See [1] and [Source 1] and [s1].", 0, 0),
        ("", 0, 0),
    ],
)
def test_what_no_source_says_is_not_cited(text: str, unknown: int, unsupported: int) -> None:
    assert verify(text, SOURCES) == Cited(text, (), unknown, unsupported)


def test_good_marks_survive_beside_bad_ones() -> None:
    cited = verify("Leave is 27 days [S1][S7]. Bananas are yellow [S2].", SOURCES)
    assert quotes_of(cited) == [("S1", "Employees have 27 days of annual leave.")]
    assert (cited.unknown, cited.unsupported) == (1, 1)


def quote(key: str, text: str, start: int) -> Quote:
    return Quote(key, start, start + len(text), text)


def test_quotes_are_checked_against_their_source() -> None:
    right = quote("S1", "Managers approve each request.", LEAVE.passage.text.index("Managers"))
    moved = quote("S2", "Flights are booked by the travel office.", 7)
    altered = quote("S1", "Employees have 28 days of annual leave.", 0)
    foreign = quote("S2", "Managers approve each request.", 0)
    unknown = quote("S9", "Managers", 0)
    empty, negative = quote("S1", "", 3), Quote("S1", -5, -1, "own ")
    cited = verify("text [S1] [S1]", SOURCES, [right, moved, altered, foreign, unknown, empty, negative])
    assert [text for _, text in quotes_of(cited)] == [right.text, moved.text, "own "]
    assert (cited.unknown, cited.unsupported) == (1, 3)
    require_exact(cited)


def test_the_extractive_generator_is_cited_whole() -> None:
    passages = [source.passage for source in SOURCES]
    context = assemble(passages, 1_000, ExtractiveGenerator().count)
    asked = render(Templates().get(), "How many days of annual leave do employees have?", context.prompt_sources)

    async def run() -> tuple[str, Finish]:
        stream = ExtractiveGenerator().generate(asked, salt="", request_id="r", max_tokens=200, deadline=soon())
        text = ""
        async with aclosing(stream):
            async for piece in stream:
                if isinstance(piece, Delta):
                    text += piece.text
                else:
                    finish = piece
        return text, finish

    text, finish = asyncio.run(run())
    cited = verify(text, context.sources, finish.quotes)
    assert ("S1", "Employees have 27 days of annual leave.") in quotes_of(cited)
    assert len(cited.citations) == len(finish.quotes)
    assert (cited.unknown, cited.unsupported) == (0, 0)
    require_exact(cited, context.sources)


fragments = st.sampled_from(
    [
        "leave",
        "27 days",
        "[S1]",
        "[S2]",
        "[S3]",
        "【S1，S2】",
        ".",
        "。",
        "\n",
        '"',
        "Managers approve",
        "年假",
        "[S",
        " ",
    ]
)
bodies = st.lists(fragments, max_size=25).map(" ".join)


@given(bodies, bodies, bodies, st.integers(0, 1000), st.lists(st.tuples(st.integers(-3, 30), st.integers(-3, 30))))
def test_every_citation_is_verbatim(
    text: str, first: str, second: str, start: int, spans: list[tuple[int, int]]
) -> None:
    sources = (
        Source("S1", passage(first, start=start)),
        Source("S2", passage(second, document="b", document_id=2, start=2 * start)),
    )
    require_exact(verify(text, sources), sources)
    quotes = [Quote(f"S{1 + at % 3}", a, b, first[max(0, a) : max(0, b)]) for at, (a, b) in enumerate(spans)]
    require_exact(verify(text, sources, quotes), sources)


@pytest.mark.parametrize("claim", ["There are 27 days of leave [S1][S2]. ", "{} employees have leave [S1]. "])
def test_an_answer_of_marks_takes_no_time(claim: str) -> None:
    said = "".join(claim.format(number) for number in range(5_000))
    long = " ".join([LEAVE.passage.text] * 10)
    sources = (Source("S1", passage(long)), Source("S2", passage(long, document="travel.md", document_id=2)))
    began = time.process_time()
    assert verify(said, sources).citations
    assert time.process_time() - began < 10
