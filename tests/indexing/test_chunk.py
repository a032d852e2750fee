"""Chunks: exact offsets, nothing lost, size held, breaks where people would break."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexing.chunk import Chunk, Chunking, chunk, chunk_key, weigh
from tenancy.errors import InvalidInput

SMALL = Chunking(target_chars=80, overlap_chars=20)
ENGLISH = "The first rule is simple. The second one is not! Is there a third? There is, and it is long. "
CHINESE = "人人生而自由，在尊严和权利上一律平等。他们赋有理性和良心，并应以兄弟关系的精神相对待。"
JAPANESE = "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。"
FAMILY = "👩‍👩‍👧‍👦"
THAI = "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ"

pieces = st.one_of(
    st.sampled_from([ENGLISH, CHINESE, JAPANESE, THAI, "\n\n", "\n", " "]),
    st.sampled_from(["# Heading\n", "```\n", "a" * 200, FAMILY, "e\u0301"]),
    st.text(max_size=40),
)
texts = st.lists(pieces, max_size=30).map("".join)
windows = st.builds(
    lambda target, share: Chunking(target, int(target * share / 4)), st.integers(64, 1000), st.floats(0, 1)
)


@given(texts, windows)
def test_every_visible_character_is_covered_by_true_and_bounded_chunks(text: str, window: Chunking) -> None:
    chunks = chunk(text, window)
    covered = bytearray(len(text))
    for position, piece in enumerate(chunks):
        assert piece.ordinal == position
        assert text[piece.start : piece.end] == piece.text
        assert piece.text == piece.text.strip() != ""
        assert weigh(piece.text) <= window.target_chars
        covered[piece.start : piece.end] = b"\1" * len(piece.text)
    assert all(done or character.isspace() for done, character in zip(covered, text, strict=True))
    assert chunk(text, window) == chunks


@given(texts, windows)
def test_chunks_advance_and_overlap_by_no_more_than_asked(text: str, window: Chunking) -> None:
    chunks = chunk(text, window)
    for before, after in pairwise(chunks):
        assert before.start < after.start
        assert before.end < after.end
        assert weigh(text[after.start : before.end]) <= window.overlap_chars


@given(st.text(alphabet=" \n\t\r\u2028\u3000\x1f", max_size=300))
def test_blank_text_has_no_chunks(text: str) -> None:
    assert chunk(text, SMALL) == []


def test_a_short_text_is_one_chunk() -> None:
    assert chunk("  hello\n") == [Chunk(0, 2, 7, "hello", key=chunk_key("hello"))]


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("word " * 10 + "end.\n\n" + "more words " * 10, "word " * 10 + "end."),
        ("One is here now and then. Two is there for all to see. " + "Three goes on " * 9,
         "One is here now and then. Two is there for all to see."),
        ("a line of words that is rather long\nanother one of about the same size\nand another", None),
        ("word " * 40, ("word " * 16).strip()),
        ("x" * 200, "x" * 80),
        (CHINESE, "人人生而自由，在尊严和权利上一律平等。"),
    ],
)  # fmt: skip
def test_breaks_at_paragraph_then_sentence_then_line_then_word_then_anywhere(text: str, first: str | None) -> None:
    expected = first or "\n".join(text.split("\n")[:2])
    assert chunk(text, SMALL)[0].text == expected


def test_overlap_begins_at_a_sentence_or_word() -> None:
    chunks = chunk(ENGLISH * 5, Chunking(200, 50))
    assert len(chunks) > 2
    for before, after in pairwise(chunks):
        assert after.start < before.end
        assert after.text.startswith(("The", "Is", "There"))
    assert all(piece.text[0] == "w" for piece in chunk("word " * 100, SMALL))
    assert chunk("x" * 200, Chunking(80, 0))[1].start == 80


def test_no_visible_character_is_torn() -> None:
    for unit in (FAMILY, "e\u0301\u0323", "ก็"):
        for piece in chunk(unit * 60, SMALL):
            assert piece.text == unit * (len(piece.text) // len(unit))


def test_chinese_characters_take_more_room_than_letters() -> None:
    lengths = [len(piece.text) for piece in chunk(CHINESE * 40)]
    assert 150 < max(lengths) <= 225
    assert max(len(piece.text) for piece in chunk(ENGLISH * 40)) > 700


def test_headings_break_and_are_known() -> None:
    text = (
        "an introduction of some words, more than forty\n\n# One #\n"
        + "first part. " * 5
        + "\n\n## Two\n"
        + "second part. " * 12
        + "\n```\n# code\n```\nlast"
    )
    chunks = chunk(text, SMALL)
    assert chunks[0].heading is None
    assert chunks[0].text == "an introduction of some words, more than forty"
    starts = {piece.heading: piece.text for piece in reversed(chunks)}
    assert set(starts) == {None, "One", "Two"}
    assert starts["One"].startswith("# One #")
    assert starts["Two"].startswith("## Two")
    assert chunks[-1].text.endswith("last")


@pytest.mark.parametrize(("target", "overlap"), [(63, 0), (80, 21), (80, -1), (0, 0)])
def test_impossible_windows_are_refused(target: int, overlap: int) -> None:
    with pytest.raises(InvalidInput):
        Chunking(target, overlap)


@pytest.mark.parametrize(
    "unit", ["words and more. ", "x", "黑", "\n", " ", "# a\n", "`", ".", ". ", '."', "e\u0301", "\u0301", "\n \n"]
)
def test_time_is_linear_in_the_text(unit: str) -> None:
    text = "a" + unit * (500_000 // len(unit)) + "z"
    started = time.process_time()
    chunk(text)
    assert time.process_time() - started < 3, "half a megabyte takes about 0.05 s"
