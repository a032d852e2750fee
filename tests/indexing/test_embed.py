"""One suite for every embedder, and what is particular to each."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import numpy as np
import pytest

from indexing.embed import Embedder, EmbeddingSettings, TokenReader, load_embedder
from tenancy.errors import InvalidInput

HASHING = "hashing:256"
MINILM = "packaged:all-MiniLM-L6-v2"
LANGUAGES = [
    "What is the notice period for tenants?",
    "Wie hoch ist die Kündigungsfrist?",
    "通知期是多久？",
    "해지 통지 기간은 얼마입니까?",
    "ระยะเวลาแจ้งล่วงหน้าคือเท่าไร",
    "ما هي مدة الإشعار؟",
    "\u202eabc\x00def 👩‍👩‍👧 ﷽",
]


@lru_cache(maxsize=4)
def loaded(model: str) -> Embedder:
    return load_embedder(EmbeddingSettings(model=model, device="cpu", batch_size=4))


@pytest.fixture(params=[HASHING, pytest.param(MINILM, marks=pytest.mark.slow)])
def embedder(request: pytest.FixtureRequest) -> Embedder:
    return loaded(request.param)


class TestEveryEmbedder:
    def test_rows_are_float32_of_length_one_in_every_script(self, embedder: Embedder) -> None:
        vectors = embedder.encode(LANGUAGES)
        assert vectors.shape == (len(LANGUAGES), embedder.fingerprint.dimension)
        assert vectors.dtype == np.float32
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)

    def test_no_texts_give_no_rows(self, embedder: Embedder) -> None:
        vectors = embedder.encode([])
        assert vectors.shape == (0, embedder.fingerprint.dimension)
        assert vectors.dtype == np.float32

    def test_rows_keep_the_order_of_the_texts(self, embedder: Embedder) -> None:
        texts = [f"clause {n} " + "of the lease " * (n * 7 % 11) for n in range(11)]
        together = embedder.encode(texts)
        alone = np.stack([embedder.encode([text])[0] for text in texts])
        np.testing.assert_allclose(together, alone, atol=1e-5)

    def test_the_same_call_gives_the_same_bytes(self, embedder: Embedder) -> None:
        assert embedder.encode(LANGUAGES).tobytes() == embedder.encode(LANGUAGES).tobytes()

    def test_a_question_lies_where_the_same_passage_lies(self, embedder: Embedder) -> None:
        vector = embedder.encode_query(LANGUAGES[0])
        assert vector.shape == (embedder.fingerprint.dimension,)
        np.testing.assert_allclose(vector, embedder.encode([LANGUAGES[0]])[0], atol=1e-5)

    def test_what_belongs_together_is_closer(self, embedder: Embedder) -> None:
        question = embedder.encode_query("How long is the notice period of the lease?")
        near, far = embedder.encode(["The notice period of the lease is three months.", "Whales sing at night."])
        assert question @ near > question @ far + 0.2

    def test_only_the_window_reaches_the_vector(self, embedder: Embedder) -> None:
        inside = "rent " * embedder.fingerprint.window
        a, b, other = embedder.encode([inside + "whales " * 50, inside + "taxes " * 50, "whales " * 50])
        np.testing.assert_allclose(a, b, atol=1e-5)
        assert a @ other < 0.9
        assert embedder.token_count(inside + "rent " * 50) == embedder.fingerprint.window + 50

    def test_a_question_within_the_window_reaches_the_vector_to_its_last_word(self, embedder: Embedder) -> None:
        window = embedder.fingerprint.window
        fitting = max(
            (count for count in range(window + 1) if embedder.question_length("rent " * count) <= window - 1), default=0
        )
        a, b = (embedder.encode_query("rent " * fitting + last) for last in ("whales", "taxes"))
        assert embedder.question_length("rent " * fitting + "taxes") == window
        assert not np.allclose(a, b, atol=1e-5)
        a, b = (embedder.encode_query("rent " * (fitting + 1) + last) for last in ("whales", "taxes"))
        assert embedder.question_length("rent " * (fitting + 1) + "taxes") == window + 1
        np.testing.assert_allclose(a, b, atol=1e-5)

    def test_an_empty_text_has_a_vector_and_no_tokens(self, embedder: Embedder) -> None:
        vector = embedder.encode([""])[0]
        assert vector.shape == (embedder.fingerprint.dimension,)
        assert np.isfinite(vector).all()
        assert embedder.token_count("") == 0

    def test_a_lone_surrogate_is_refused_and_its_replacement_is_not(self, embedder: Embedder) -> None:
        with pytest.raises(InvalidInput, match="text 1: the text is not valid Unicode"):
            embedder.encode(["fine", "broken \ud800 half"])
        with pytest.raises(InvalidInput):
            embedder.encode_query("\udfff")
        assert embedder.encode(["broken \ufffd half"]).shape[0] == 1

    def test_threads_get_their_own_rows(self, embedder: Embedder) -> None:
        calls = [[f"{topic} number {n}" for n in range(9)] for topic in ("lease", "whale", "tax", "ship")]
        expected = [embedder.encode(texts) for texts in calls]
        with ThreadPoolExecutor(max_workers=4) as pool:
            counting = pool.map(embedder.token_count, ["a b c"] * 50)
            for vectors, alone in zip(pool.map(embedder.encode, calls), expected, strict=True):
                np.testing.assert_allclose(vectors, alone, atol=1e-5)
            assert set(counting) == {3}

    def test_covers_is_a_share(self, embedder: Embedder) -> None:
        for text in [*LANGUAGES, "", "42"]:
            assert 0 <= embedder.covers(text) <= 1


def test_the_hashing_fingerprint_says_what_it_is() -> None:
    fingerprint = load_embedder(EmbeddingSettings(model=HASHING, dtype="bfloat16", window=64)).fingerprint
    assert (fingerprint.name, fingerprint.dimension, fingerprint.window) == (HASHING, 256, 64)
    assert fingerprint.dtype == "float32"


def test_a_text_without_words_hashes_to_zero_and_resembles_nothing() -> None:
    vectors = loaded(HASHING).encode(["", "?!", "rent"])
    assert not vectors[:2].any()
    assert vectors[2] @ vectors[2] == pytest.approx(1)


@pytest.mark.parametrize("model", ["hashing:", "hashing:0", "hashing:15", "hashing:70000", "hashing:1e3", "hashing:٣٢"])
def test_a_hashing_dimension_out_of_range_is_refused(model: str) -> None:
    with pytest.raises(InvalidInput, match="from 16 to 65,536"):
        load_embedder(EmbeddingSettings(model=model))


@pytest.mark.parametrize(("field", "value"), [("batch_size", 0), ("window", 0), ("window", 7)])
def test_sizes_that_cannot_work_are_refused(field: str, value: int) -> None:
    with pytest.raises(InvalidInput, match=f"embedding.{field}"):
        load_embedder(EmbeddingSettings(model=HASHING, **{field: value}))  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_text_is_read_token_by_token_with_its_offsets() -> None:
    embedder = loaded(MINILM)
    assert isinstance(embedder, TokenReader)
    texts = ["Parental leave is  ten days.", "", "word " * 400]
    first, empty, cut = embedder.read(texts)
    assert [texts[0][start:end] for start, end in first.spans] == ["Parental", "leave", "is", "ten", "days", "."]
    assert first.vectors.shape == (6, embedder.fingerprint.dimension)
    assert np.linalg.norm(first.vectors, axis=1) == pytest.approx(np.ones(6), abs=1e-5)
    assert len(empty.spans) == len(empty.vectors) == 0
    # Two special tokens have the rest of the window.
    assert len(cut.spans) == len(cut.vectors) == embedder.fingerprint.window - 2
    asked = embedder.read(["How long is leave for new parents?"], question=True)[0]
    nearest = (asked.vectors @ embedder.read(["The leave of a parent.", "The price of a tablet."])[0].vectors.T).max()
    assert nearest > (asked.vectors @ embedder.read(["The price of a tablet."])[0].vectors.T).max()
    assert not isinstance(loaded(HASHING), TokenReader)
