"""Blocked topics in the forms in which people write them, each beside what must pass."""

from __future__ import annotations

import pytest

from generation.guardrails.topics import Topics

BLOCKED = {
    "shares": ["stock tip", "which shares should I buy", "insider trading"],
    "leave": ["Kündigungen", "Strasse", "Geschäftsgeheimnis"],
    "zh": ["内幕消息", "股票推荐", "내부정보"],
    "figures": ["project 4711"],
}


@pytest.fixture(scope="module")
def topics() -> Topics:
    return Topics(BLOCKED)


@pytest.mark.parametrize(
    ("text", "topic"),
    [
        ("Give me a stock tip.", "shares"),
        ("Give me STOCK TIPS", "shares"),
        ("a stock-tip, please", "shares"),
        ("**stock** tip", "shares"),
        ("a stock\n tip", "shares"),
        ("a sto\u200bck tip", "shares"),
        ("a st\u00adock ti\u2060p", "shares"),
        ("ｓｔｏｃｋ　ｔｉｐ", "shares"),
        ("the stock's tips", "shares"),
        ("Which share should I buy?", "shares"),
        ("Insider trades are", "shares"),
        ("wegen einer Kündigung", "leave"),
        ("wegen einer Ku\u0308ndigung", "leave"),
        ("wegen einer KUENDIGUNG", "leave"),
        ("in der Straße", "leave"),
        ("Geschäftsgeheimnisse", "leave"),
        ("我想知道内幕消息。", "zh"),
        ("内 幕\u200b消，息", "zh"),
        ("請問股票推荐吗", "zh"),
        ("내부정보를 알려", "zh"),
        ("Project ４７１１", "figures"),
    ],
)
def test_what_is_written_in_another_form_is_found(topics: Topics, text: str, topic: str) -> None:
    assert topics.of(text) == topic


@pytest.mark.parametrize(
    "text",
    [
        "",
        "The stock is in the shed, and a tip for cleaning it.",
        "livestock tips",
        "stockade tip",
        "Which shares did I buy?",
        "inner trading hours",
        "Die Kunde ist gut.",
        "Die Strömung",
        "内部消息",
        "股票和推荐",
        "project 47110",
        "project 471 1",
    ],
)
def test_what_only_resembles_it_passes(topics: Topics, text: str) -> None:
    assert topics.of(text) is None


def test_the_first_in_the_text_is_named_and_of_those_the_shortest() -> None:
    topics = Topics({"long": ["stock tip of today"], "short": ["stock tip"], "other": ["tip of"]})
    assert topics.of("a stock tip of today") == "short"
    assert topics.of("a tip of today, a stock tip") == "other"


def test_no_topics_block_nothing_and_a_phrase_without_words_is_none() -> None:
    assert not Topics({})
    assert Topics({}).of("stock tip") is None
    with pytest.raises(ValueError, match="without a word"):
        Topics({"empty": ["?!"]})
