"""The context: within its budget, best first, nothing twice."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from generation.extractive import ExtractiveGenerator
from generation.prompt import source_block
from retrieval.context import assemble
from retrieval.passage import Passage
from tests.retrieval.passages import passage

count = ExtractiveGenerator().count
LEAVE = passage("Employees have 27 days of leave. Managers approve it.")
TRAVEL = passage("Flights are booked by the travel office.", document="travel.md", document_id=2)
LONG = passage("Very long text. " * 200, document="long.md", document_id=3)


def tokens_of(*passages: Passage) -> int:
    return assemble(passages, 100_000, count).tokens


def test_sources_keep_the_order_of_relevance() -> None:
    context = assemble([TRAVEL, LEAVE], 1_000, count)
    assert [(source.key, source.passage) for source in context.sources] == [("S1", TRAVEL), ("S2", LEAVE)]
    assert context.text == "\n".join(source_block(source) for source in context.prompt_sources)
    assert context.tokens == count(context.text)


def test_what_does_not_fit_is_left_out_and_a_shorter_one_follows() -> None:
    context = assemble([LEAVE, LONG, TRAVEL], tokens_of(LEAVE, TRAVEL), count)
    assert [source.passage for source in context.sources] == [LEAVE, TRAVEL]


def test_the_least_relevant_goes_first() -> None:
    context = assemble([LEAVE, TRAVEL], tokens_of(LEAVE, TRAVEL) - 1, count)
    assert [source.passage for source in context.sources] == [LEAVE]


def test_the_best_passage_is_cut_at_a_sentence_and_keeps_its_offsets() -> None:
    late = passage(LEAVE.text, start=100)
    context = assemble([late], tokens_of(late) - 1, count)
    (source,) = context.sources
    assert source.passage.text == "Employees have 27 days of leave."
    assert (source.passage.start, source.passage.end) == (100, 100 + len(source.passage.text))


def test_no_room_and_no_passages_give_no_sources() -> None:
    for context in (assemble([LEAVE], 3, count), assemble([], 100, count), assemble([LEAVE], 0, count)):
        assert (context.sources, context.text, context.tokens) == ((), "", 0)


def test_an_overlapping_chunk_of_the_same_document_is_dropped() -> None:
    text = "One two three four five six seven eight nine ten."
    whole, inside = passage(text), passage(text[10:45], start=10, ordinal=1)
    assert [source.passage for source in assemble([whole, inside], 1_000, count).sources] == [whole]


def test_a_chunk_that_overlaps_little_is_kept() -> None:
    text = "One two three four five six seven eight nine ten."
    first, second = passage(text[:30]), passage(text[20:], start=20, ordinal=1)
    assert len(assemble([first, second], 1_000, count).sources) == 2


def test_the_same_text_of_another_document_is_dropped() -> None:
    copy = passage(f" {LEAVE.text}\n", document="copy.md", document_id=9)
    assert [source.passage for source in assemble([LEAVE, copy, TRAVEL], 1_000, count).sources] == [LEAVE, TRAVEL]


def test_the_same_offsets_of_another_document_are_kept() -> None:
    assert len(assemble([LEAVE, TRAVEL], 1_000, count).sources) == 2


def test_sources_carry_their_audience_into_the_prompt() -> None:
    context = assemble([LEAVE, TRAVEL], 1_000, count, {1: "tenant"})
    assert [source.audience for source in context.sources] == ["tenant", None]
    assert 'audience="tenant"' in context.text
    assert context.text.count("audience=") == 1


bodies = st.text(alphabet="aB .\n<[年。", max_size=60)
many = st.lists(st.tuples(bodies, st.integers(1, 3), st.integers(0, 50)), max_size=6)


@given(many, st.integers(min_value=0, max_value=200))
def test_the_budget_holds_and_equal_inputs_agree(given_passages: list[tuple[str, int, int]], budget: int) -> None:
    passages = [
        passage(text, document=f"d{document}", document_id=document, start=start, ordinal=at)
        for at, (text, document, start) in enumerate(given_passages)
    ]
    context = assemble(passages, budget, count)
    assert context.tokens <= budget
    assert count(context.text) == context.tokens
    assert [source.key for source in context.sources] == [f"S{at}" for at in range(1, len(context.sources) + 1)]
    assert context == assemble(passages, budget, count)
    chunks = [source.passage.chunk for source in context.sources]
    assert chunks == sorted(chunks)
    by_chunk = {one.chunk: one for one in passages}
    for source in context.sources:
        original = by_chunk[source.passage.chunk]
        assert original.text.startswith(source.passage.text)
        assert source.passage.end - source.passage.start == len(source.passage.text)
