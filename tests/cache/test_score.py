"""The score: what it follows, what it refuses to judge, and what its revision names."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from cache.guards import Language, compare, contrast, read
from cache.guards.thesaurus import Relation, thesaurus
from cache.score import FittedScore, default_score
from cache.score.features import NAMES, features
from cache.score.fitted import CHINESE, PATH
from tenancy.errors import Corrupt

SCORE = default_score()


def probability(one: str, two: str, similarity: float) -> float:
    question, cached = read(one), read(two)
    verdict = compare(question, cached)
    return SCORE.probability(question, cached, similarity, verdict.near) if verdict.passed else 0.0


def changed(**fields: Any) -> bytes:
    return msgspec.json.encode(msgspec.json.decode(PATH.read_bytes()) | fields)


@pytest.mark.parametrize(
    ("one", "two", "similarity"),
    [
        ("How do I book a blood test?", "How can I book a blood test?", 0.97),
        ("What is the notice period?", "um what is the notice period please", 0.93),
        ("Where can I find my payslip?", "Hi, where can I find my payslip? Thanks!", 0.94),
        ("When will I receive my invoice?", "When will I get my invoice?", 0.96),
    ],
)
def test_the_same_question_in_other_words_is_served(one: str, two: str, similarity: float) -> None:
    assert probability(one, two, similarity) >= SCORE.threshold


@pytest.mark.parametrize(
    ("one", "two", "similarity"),
    [
        ("When must I send the laptop?", "How many laptops were returned by the team?", 0.75),
        ("How much notice must the firm give me?", "I am leaving, what do I owe the firm in notice?", 0.72),
        ("What is the corkage charge for wine?", "If we bring a cake, is there a fee to serve it?", 0.4),
    ],
)
def test_questions_about_the_same_things_are_not(one: str, two: str, similarity: float) -> None:
    assert probability(one, two, similarity) < SCORE.threshold


def test_a_replaced_word_is_refused_whatever_small_words_stand_around_it() -> None:
    asked = read("How long is parental leave for new parents please?")
    assert compare(asked, read("How long is the parental leave for new parents?")).passed
    verdict = compare(asked, read("How long is the parental leave for adoptive parents?"))
    assert (verdict.name, verdict.passed) == ("contrast", False)


def test_what_stands_before_a_general_question_may_differ() -> None:
    asked = read("My pet snail eats carrots. Is it normal for animals to eat carrots?")
    assert compare(asked, read("My pet horse eats carrots. Is it normal for animals to eat carrots?")).passed
    injured = "I hurt my {} last time I played golf. Is it normal to hurt this part of the body?"
    pair = read(injured.format("ankle")), read(injured.format("wrist"))
    assert not contrast.check(*pair, Language.ENGLISH).passed


def test_it_never_falls_as_the_similarity_rises() -> None:
    question, cached = read("How do I cancel a booking?"), read("What is the way to cancel my reservation?")
    found = [SCORE.probability(question, cached, step / 50, ()) for step in range(51)]
    assert found == sorted(found)
    assert found[0] < found[-1]


def test_it_is_the_same_both_ways_round() -> None:
    one, two = read("Which papers does a visitor need?"), read("What does a guest have to show at the door?")
    assert SCORE.probability(one, two, 0.8, ()) == SCORE.probability(two, one, 0.8, ())


@pytest.mark.parametrize("similarity", [math.nan, math.inf, -math.inf, 1.5, -2.0])
def test_a_similarity_that_is_no_cosine_is_never_served(similarity: float) -> None:
    question, cached = read("How do I book a test?"), read("How can I book a test?")
    assert SCORE.probability(question, cached, similarity, ()) == 0.0
    assert SCORE.probability(question, cached, 1.0000001, ()) >= SCORE.threshold


def test_it_fits_the_model_that_it_was_fitted_with_and_no_other() -> None:
    revision = SCORE.embedder.rpartition("@")[2]
    assert SCORE.fits(f'{{"dimension":384,"name":"a copy of it","revision":"{revision}"}}')
    for other in (f'{{"revision":"{revision}0"}}', '{"name":"all-MiniLM-L6-v2"}', revision, SCORE.embedder, "", "{"):
        assert not SCORE.fits(other)


def test_a_language_without_rules_is_never_served() -> None:
    german = read("Wie lange ist die Frist für die Kündigung?"), read("Wie lang ist die Frist für eine Kündigung?")
    assert SCORE.probability(*german, 1.0, ()) == 0.0
    assert SCORE.probability(read("How long is the notice period?"), german[0], 1.0, ()) == 0.0


def test_chinese_passes_with_the_same_characters_alone() -> None:
    asked = read("请问经理可以报销多少?")
    assert SCORE.probability(asked, read("经理可以报销多少呢?"), 0.9, ()) == CHINESE
    assert SCORE.probability(asked, read("经理能报多少钱?"), 0.99, ()) == 0.0


def test_features_have_names_and_are_numbers() -> None:
    pairs = [("a", "?"), ("How?", "How do I do it?"), ("STOP", "What is the fee. Is it 5 EUR? Why!")]
    for one, two in pairs:
        row = features(read(one), read(two), 0.5, (), thesaurus())
        assert len(row) == len(NAMES)
        assert all(map(math.isfinite, row))


def test_the_revision_names_the_data() -> None:
    assert FittedScore(PATH.read_bytes()).revision == SCORE.revision
    other = FittedScore(changed(serve=SCORE.threshold - 0.01))
    assert other.revision != SCORE.revision
    assert other.threshold == pytest.approx(SCORE.threshold - 0.01)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        PATH.read_bytes()[:1000],
        changed(format=2),
        changed(features=list(NAMES[1:])),
        changed(roots=[10**9]),
        changed(left=[0]),
        changed(slope=-1.0),
        changed(serve=0.0),
        changed(depth=0),
        changed(text="a question"),
    ],
)
def test_damaged_coefficients_stop_the_start(raw: bytes) -> None:
    with pytest.raises(Corrupt, match=r"score\.json"):
        FittedScore(raw)


def test_words_relate_the_same_both_ways_round() -> None:
    words = thesaurus()
    for one, two, relation in (
        ("buy", "purchase", Relation.SYNONYM),
        ("formation", "form", Relation.DERIVED),
        ("england", "scotland", Relation.SISTER),
        ("rice", "quinoa", Relation.NONE),
        ("hot", "cold", Relation.OPPOSITE),
    ):
        assert words.relation(one, two) == words.relation(two, one) == relation
    assert words.word("qqzzx").rarity == 1.0
    assert words.word("account").rarity < words.word("quinoa").rarity
