"""Chunks follow a document's blocks, its embedding model's tokens, and change only where the text does."""

from __future__ import annotations

import random
import re
import statistics
from collections import Counter
from dataclasses import dataclass, field
from itertools import count, pairwise
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexing import anchors
from indexing.chunk import Chunk, Chunking, Ruler, chunk, chunk_key, embedded_text, indexed_text, weigh
from indexing.parse.building import Building
from indexing.parse.model import Kind

SMALL = Chunking(target_chars=160, overlap_chars=40, target_tokens=32, overlap_tokens=8)
WORDS = ["the", "committee", "decides", "every", "case", "in", "writing", "and", "without", "delay", "after", "hearing"]


def words(text: str) -> npt.NDArray[np.int64]:
    """A tokenizer of words."""
    return np.array([match.start() for match in re.finditer(r"\w+|[^\w\s]", text)], dtype=np.int64)


@dataclass
class Made:
    """A document of blocks, as a parser would give it."""

    building: Building = field(default_factory=lambda: Building(10**7))

    def chunks(self, window: Chunking = SMALL, ruler: Ruler | None = None) -> list[Chunk]:
        made = self.building
        return chunk(made.text(), window, blocks=made.blocks(), places=made.places(), ruler=ruler)


def sentence(rng: random.Random) -> str:
    return " ".join(rng.choices(WORDS, k=rng.randrange(4, 14))).capitalize() + "."


def prose(rng: random.Random, paragraphs: int, *, divided: str = "\n\n") -> str:
    return divided.join(" ".join(sentence(rng) for _ in range(rng.randrange(1, 9))) for _ in range(paragraphs))


kinds = st.sampled_from(list(Kind))
blocks = st.lists(
    st.tuples(kinds, st.integers(1, 30), st.booleans(), st.sampled_from([None, "page 1", "page 2", "slide 3"])),
    max_size=8,
)


def built(shape: list[tuple[Kind, int, bool, str | None]]) -> Made:
    made, rng = Made(), random.Random(len(shape))
    for kind, size, hidden, place in shape:
        if place is not None:
            made.building.place(place)
        if kind is Kind.TABLE:
            rows = [f"{number} | {rng.choice(WORDS)} | {rng.random()}" for number in range(size)]
            made.building.add(
                "\n".join(["no | word | figure", *rows]), kind, header="no | word | figure", hidden=hidden
            )
        elif kind in {Kind.LIST, Kind.CODE}:
            made.building.add("\n".join(f"- {sentence(rng)}" for _ in range(size)), kind, hidden=hidden)
        else:
            text = " ".join(sentence(rng) for _ in range(1 if kind is Kind.HEADING else size))
            made.building.add(text[: 60 if kind is Kind.HEADING else None], kind, level=size % 4 + 1, hidden=hidden)
    return made


@settings(max_examples=30, deadline=None)
@given(blocks, st.booleans())
def test_whatever_the_blocks_offsets_are_exact_all_is_covered_and_room_is_kept(
    shape: list[tuple[Kind, int, bool, str | None]], counted: bool
) -> None:
    made = built(shape)
    text = made.building.text()
    chunks = made.chunks(ruler=Ruler(words, 512) if counted else None)
    covered = bytearray(len(text))
    seen: Counter[str] = Counter()
    for piece in chunks:
        assert text[piece.start : piece.end] == piece.text == piece.text.strip() != ""
        seen[piece.text] += 1
        assert piece.key == chunk_key(piece.text) + (f"-{seen[piece.text]}" if seen[piece.text] > 1 else "")
        assert (len(words(piece.text)) if counted else weigh(piece.text)) <= (32 if counted else 160)
        covered[piece.start : piece.end] = b"\1" * len(piece.text)
        flags = {
            block.hidden for block in made.building.blocks() if block.start < piece.end and piece.start < block.end
        }
        assert flags == {piece.hidden}, "no chunk holds what is seen and what is not"
        found = [place.label for place in made.building.places() if place.start <= piece.start]
        assert piece.place == (found[-1] if found else None)
        assert all(piece.start < turn.start < piece.end for turn in piece.turns)
    assert all(done or character.isspace() for done, character in zip(covered, text, strict=True))
    assert len({piece.key for piece in chunks}) == len(chunks)
    for before, after in pairwise(chunks):
        assert before.start < after.start
        assert before.end < after.end


@settings(max_examples=30, deadline=None)
@given(blocks)
def test_no_row_is_torn_or_without_its_header(shape: list[tuple[Kind, int, bool, str | None]]) -> None:
    made = built(shape)
    text = made.building.text()
    tables = [block for block in made.building.blocks() if block.kind is Kind.TABLE]
    for piece in made.chunks():
        for table in tables:
            if table.start <= piece.start < table.end:
                assert piece.start == table.start or text[piece.start - 1] == "\n"
                header = (piece.context or "").endswith("no | word | figure")
                assert header == (piece.start > table.start)
            if table.start < piece.end < table.end:
                assert text[piece.end] == "\n"


def test_the_headings_above_are_the_context_and_the_own_one_is_not() -> None:
    made = Made()
    for level, title in ((1, "Handbook"), (2, "Leave"), (3, "Parents")):
        made.building.add(title, Kind.HEADING, level=level)
    made.building.add(prose(random.Random(1), 12))
    made.building.add("Travel", Kind.HEADING, level=2)
    made.building.add(prose(random.Random(2), 12))
    contexts = [piece.context for piece in made.chunks()]
    assert contexts[0] is None
    assert set(contexts) == {None, "Handbook > Leave > Parents", "Handbook", "Handbook > Travel"}
    begins = next(piece for piece in made.chunks() if piece.text.startswith("## Travel"))
    assert (begins.context, begins.heading) == ("Handbook", "Travel")


def test_what_is_embedded_and_indexed_begins_with_what_the_text_needs() -> None:
    header = "a | b"
    assert embedded_text("1 | 2", f"Handbook > Rates\n{header}") == f"Rates\n{header}\n1 | 2"
    assert indexed_text("1 | 2", f"Handbook > Rates\n{header}") == f"Handbook > Rates\n{header}\n1 | 2"
    assert embedded_text("Words.", None) == indexed_text("Words.", None) == "Words."
    assert embedded_text("## Travel\n\nBy rail.", "Handbook") == "## Travel\n\nBy rail."
    assert len(embedded_text("", "y" * 200 + "\n" + "x" * 400)) < 250


def test_tokens_decide_where_there_is_a_tokenizer_and_its_window_limits_them() -> None:
    text = prose(random.Random(3), 30)
    large = Chunking(target_tokens=100, overlap_tokens=10)
    assert 60 < statistics.mean(len(words(piece.text)) for piece in chunk(text, large, ruler=Ruler(words, 512))) <= 100
    narrow = chunk(text, large, ruler=Ruler(words, 54))
    assert max(len(words(piece.text)) for piece in narrow) <= 41
    assert all(len(words(text[after.start : before.end])) <= 10 for before, after in pairwise(narrow))
    without = chunk(text, large, ruler=Ruler(lambda _text: None, 54))
    assert without == chunk(text, large)


def test_a_word_without_end_is_cut_however_few_tokens_it_has() -> None:
    pieces = chunk("x" * 10_000, Chunking(), ruler=Ruler(lambda _text: np.array([0], dtype=np.int64), 512))
    assert max(len(piece.text) for piece in pieces) <= 1_800


@pytest.mark.parametrize("divided", ["\n\n", "\n", " "])
def test_an_edit_changes_few_chunks_and_no_name_elsewhere(divided: str) -> None:
    rng = random.Random(1)
    text = prose(rng, 120, divided=divided)
    before = {piece.key for piece in chunk(text, SMALL)}
    changed = []
    for _ in range(12):
        at = text.index(" ", rng.randrange(len(text) - 300))
        gone = rng.choice([0, 0, 7, 150])
        edited = text[:at] + rng.choice(["", " not", " and something else"]) + text[at + gone :]
        after = {piece.key for piece in chunk(edited, SMALL)}
        changed.append(len(after - before))
    assert statistics.mean(changed) < 4, f"of {len(before)}"
    assert max(changed) < 0.2 * len(before)


def test_behind_the_next_anchor_nothing_moves_whatever_is_put_before_it() -> None:
    """Not by chance: what lies between two anchors is cut by itself, but for what it repeats of the chunk before."""
    text = prose(random.Random(5), 100)
    found = anchors.anchors(text, (), (), SMALL.target_chars, lambda begin, end: end - begin, lambda _at: False)
    assert len(found) > 10
    for length in range(0, 160, 23):
        edited = "y" * length + " " + text
        behind = [piece.text for piece in chunk(edited, SMALL) if piece.start > found[2] + length + 1]
        assert behind == [piece.text for piece in chunk(text, SMALL) if piece.start > found[2]], length


def test_text_made_to_be_cut_often_is_not() -> None:
    """A line whose checksum makes it an anchor, over and over."""
    lines = (f"line {number}" for number in count())
    line = next(line for line in lines if crc32("\n\n".join([line] * 9)[:48].encode()) < 1 << 20)
    text = "\n\n".join([line] * 500)
    assert len(chunk(text, SMALL)) < 3 * len(text) / SMALL.target_chars
