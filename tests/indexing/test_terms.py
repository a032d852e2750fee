from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexing.terms import count_terms, pack, term_count, term_postings, tokenize, unpack
from tenancy.errors import Corrupt


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("Überprüfung", "uberprufung"),
        ("STRASSE", "straße"),
        ("ＡＢＣ", "abc"),
        ("ﬁne", "fine"),
        ("Ёлка", "елка"),
        ("Café", "Cafe\u0301"),
        ("policies", "policy"),
        ("retry_after", "retry after"),
        ("ﾀﾜｰ", "タワー"),
        ("が", "か\u3099"),
    ],
)
def test_spellings_of_one_term_fall_together(text: str, same: str) -> None:
    assert tokenize(text) == tokenize(same)


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("notice", "notion"),
        ("か", "が"),
        ("ขาว", "ข้าว"),  # white, rice: a tone mark apart
        ("कल", "किल"),
        ("1,000", "1000"),
    ],
)
def test_different_words_stay_apart(text: str, other: str) -> None:
    assert tokenize(text) != tokenize(other)


def test_words_and_bigrams_of_mixed_text() -> None:
    assert tokenize("iPhone保修期 of 2024") == ["iphon", "保", "修", "期", "保修", "修期", "of", "2024"]
    assert tokenize("통지 기간") == ["통", "지", "통지", "기", "간", "기간"]
    assert tokenize("हिन्दी भाषा") == ["हिन्दी", "भाषा"]


def test_text_without_words_has_no_terms() -> None:
    for text in ("", " \n\t", "?!—…", "\ud800", "___"):
        assert tokenize(text) == []
        assert term_postings(text).length == 0
        assert len(term_postings(text).hashes) == 0


@given(st.text(max_size=200) | st.text(alphabet="abs Aé中文のก통 '-_1", max_size=200))
def test_postings_count_what_tokenize_gives(text: str) -> None:
    terms = tokenize(text)
    assert term_count(text) == len(terms)
    postings = term_postings(text)
    counted = count_terms(terms)
    assert postings.length == len(terms) == int(postings.counts.sum())
    assert np.array_equal(postings.hashes, counted.hashes)
    assert np.array_equal(postings.counts, counted.counts)
    assert np.all(postings.hashes[1:] > postings.hashes[:-1])
    assert len(postings.hashes) == len(set(terms))


@given(st.text(max_size=200))
def test_a_packed_vector_comes_back(text: str) -> None:
    before = term_postings(text)
    after = unpack(pack(before))
    assert after.hashes.dtype == np.uint64
    assert after.counts.dtype == np.uint16
    assert after.length == before.length
    assert np.array_equal(after.hashes, before.hashes)
    assert np.array_equal(after.counts, before.counts)


def test_damaged_bytes_are_refused() -> None:
    whole = pack(term_postings("one two three"))
    assert unpack(whole).length == 3
    for damaged in (b"", whole[:7], whole[:-1], whole + b"\x00"):
        with pytest.raises(Corrupt, match="ingest the document again"):
            unpack(damaged)


def test_counts_stop_at_their_type_and_the_length_does_not() -> None:
    terms = term_postings("word " * 70_000)
    assert terms.counts.tolist() == [65_535]
    assert terms.length == 70_000


def test_hashes_are_the_same_in_every_process() -> None:
    assert [int(value) for value in term_postings("strongroom").hashes] == [0x4FCA4786DCB68C0D]


def test_stemming_from_several_threads_gives_the_single_threaded_answer() -> None:
    texts = [" ".join(f"running{suffix}{n} nationalities{n}ing" for n in range(40)) for suffix in "abcdefgh"]
    expected = [tokenize(text) for text in texts]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(max_workers=8) as pool:
            assert list(pool.map(tokenize, texts)) == expected
    finally:
        sys.setswitchinterval(interval)
