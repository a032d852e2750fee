"""The judge of a stored answer: what is the same, and each way of being wrong."""

from __future__ import annotations

import pytest

from cache.certificate import judge as judging
from cache.certificate.judge import Cited, Statement, excluded, judge

QUOTE = "The notice period is 12 weeks."


def said(text: str, *cited: tuple[str, int, int], quote: str = QUOTE, version: str = "v1") -> Statement:
    places = cited or (("handbook", 0, 30),)
    return Statement(text, tuple(Cited(document, version, start, end, quote) for document, start, end in places))


FRESH = said("The notice period is 12 weeks, and it begins when the letter arrives. [S1]")


@pytest.mark.parametrize(
    "stored",
    [
        "The notice period is 12 weeks, and it begins when the letter arrives. [S3]",
        "The notice period is twelve weeks; it begins when the letter arrives.",
        "The notice period is 84 days and begins when the letter arrives. A shorter one of 2 weeks holds on trial.",
    ],
)
def test_the_same_facts_in_other_words_are_the_same(stored: str) -> None:
    assert judge(FRESH, said(stored)) == judging.SAME


@pytest.mark.parametrize(
    ("stored", "reason"),
    [
        ("The notice period is 6 weeks, and it begins when the letter arrives.", "quantity differs"),
        ("The notice period begins when the letter arrives.", "quantity differs"),
        ("The notice period is 6 weeks; a leave lasts 12 weeks.", "quantity differs"),
        ("The notice period is not 12 weeks, and it begins when the letter arrives.", "polarity differs"),
        ("Costs of travel are paid after 12 weeks.", "other facts"),
        ("", "nothing to compare"),
        ("[S1]", "nothing to compare"),
    ],
)
def test_other_facts_are_wrong(stored: str, reason: str) -> None:
    found = judge(FRESH, said(stored))
    assert (found.wrong, found.reason) == (True, reason)


def test_what_the_stored_answer_says_beyond_is_no_fault_and_what_it_lacks_is() -> None:
    short, long = said("It costs EUR 40."), said("It costs EUR 40. Paid within 30 days, it costs EUR 35.")
    assert not judge(short, long).wrong
    assert judge(long, short).reason == "amount differs"


def test_other_people_are_wrong() -> None:
    fresh = said("In that season the team was led by Kuechly.")
    assert judge(fresh, said("In that season the team was led by Davis.")).reason == "name differs"
    assert not judge(fresh, said("In that season the team was led by Kuechly, ahead of Davis.")).wrong


def test_another_name_in_nearly_the_same_words_is_wrong() -> None:
    fresh = said("Their letters soon reached France, England and Spain as well.")
    other = said("Their letters soon reached Spain, England and Spain as well.")
    assert judge(fresh, other).reason == "name differs"
    assert not judge(fresh, said("As well, their letters soon reached France, England and Spain.")).wrong


def test_yes_is_not_no() -> None:
    assert judge(said("Yes, with a form."), said("No, without a form.")).wrong
    assert not judge(said("Yes, with a form."), said("Yes, with a form")).wrong


def test_the_evidence_has_to_be_the_same() -> None:
    text = "The notice period is 12 weeks."
    assert not judge(said(text), said(text, ("handbook", 20, 60))).wrong
    elsewhere = said(text, ("handbook", 400, 430), quote="It is 12 weeks.")
    assert judge(said(text), elsewhere).reason == "other evidence"
    assert judge(said(text), said(text, ("other", 0, 30), quote="It is 12 weeks.")).reason == "other evidence"
    assert judge(said(text), said(text, version="v2", quote="It is 12 weeks.")).reason == "other evidence"
    # A copy of the document says the same.
    assert not judge(said(text), said(text, ("copy", 0, 30))).wrong


def test_half_of_the_evidence_is_enough_and_less_is_not() -> None:
    two = said("The fee is EUR 5.", ("a", 0, 9), ("b", 0, 9), quote="x")
    three = said("The fee is EUR 5.", ("a", 0, 9), ("b", 0, 9), ("c", 0, 9), quote="x")
    one = said("The fee is EUR 5.", ("a", 0, 9), quote="y")
    assert not judge(two, one).wrong
    assert judge(three, one).wrong
    assert judge(Statement("The fee is EUR 5.", ()), one).wrong


def test_a_comparison_that_fails_counts_as_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(judging, "read", broken)
    found = judge(FRESH, said("The notice period is twelve weeks."))
    assert (found.wrong, found.reason) == (True, "comparison failed")


def test_chinese_answers_are_compared_too() -> None:
    fresh = said("通知期为12周，收到信后开始。")
    assert not judge(fresh, said("通知期为十二周，收到信后开始。")).wrong
    assert judge(fresh, said("通知期为6周，收到信后开始。")).wrong
    assert judge(said("员工可以远程工作。"), said("员工不可以远程工作。")).reason == "polarity differs"


@pytest.mark.parametrize(
    ("fresh", "stored"),
    [
        ("The fee is **4** EUR.", "The fee is 4 EUR."),
        ("The fee is `4 EUR`.", "The fee is 4 EUR."),
        ("The limit is _500_ EUR", "The limit is 500 EUR."),
        ("The fee is 4&nbsp;EUR.", "The fee is 4\u00a0EUR."),
        ("The fee is 1,200 EUR.", "The fee is EUR 1200."),
        ("## Steps\n1. Send the form.\n2. Wait for HR.", "Steps: Send the form. Wait for HR."),
        ("* Staff may park here\n* Guests may not", "Staff may park here; guests may not."),
        ("| Grade | Notice |\n|---|---|\n| A | 4 weeks |\n| B | 12 weeks |", "Grade, notice\nB, 12 weeks\nA, 4 weeks"),
        ("Yes, you may.", "You may."),
        ("No, you may not park here.", "You may not park here."),
        ("It costs 5 EUR and takes 3 days.", "It costs 5 EUR. It takes 3 days."),
        ("It costs 5 EUR. It takes 3 days.", "It costs 5 EUR and takes 3 days."),
        ("年假是**5天**。", "年假是5天"),
    ],
)
def test_layout_is_no_difference(fresh: str, stored: str) -> None:
    assert judge(said(fresh), said(stored)) == judging.SAME


@pytest.mark.parametrize(
    ("fresh", "stored", "reason"),
    [
        ("| A | 4 weeks |\n| B | 12 weeks |", "| A | 12 weeks |\n| B | 4 weeks |", "quantity differs"),
        ("年假是5天\n病假是10天", "年假是10天\n病假是5天", "quantity differs"),
        ("The notice is 4 weeks.", "The notice is 12 weeks; it used to be 4 weeks.", "quantity differs"),
        ("- Guests may not smoke\n- Staff may park", "- Guests may smoke\n- Staff may not park", "polarity differs"),
        ("Guests may not smoke; staff may park", "Guests may smoke; staff may not park", "polarity differs"),
        ("Leave may be moved.", "Leave may be moved. Leave may never be moved.", "polarity differs"),
        ("Up to 5 days.", "At least 5 days.", "bound differs"),
        ("The buyer pays the seller.", "The seller pays the buyer.", "role differs"),
        ("Staff get 4 weeks and guests get 12 weeks.", "Staff get 12 weeks and guests get 4 weeks.", "role differs"),
        ("甲方付款给乙方", "乙方付款给甲方", "role differs"),
        ("The deposit is refunded.", "The deposit is refunded only if the owner agrees.", "condition differs"),
    ],
)
def test_what_stands_elsewhere_is_not_said_here(fresh: str, stored: str, reason: str) -> None:
    found = judge(said(fresh), said(stored))
    assert (found.wrong, found.reason) == (True, reason)
    assert judge(said(fresh), said(fresh.replace(" ", "  "))) == judging.SAME


def test_long_answers_are_read_statement_by_statement() -> None:
    long = " ".join(f"Rule number {number} of the handbook holds for {number} weeks." for number in range(60))
    assert not judge(said(long), said(long.replace(". ", ".\n- "))).wrong
    assert judge(said(long), said(long.replace("for 41 weeks", "for 14 weeks"))).wrong


def test_pairs_that_the_guards_exclude() -> None:
    assert excluded("How long is the notice period?", "How long is the notice period for 2 people?")
    assert excluded("What is the limit for 1,200 EUR?", "What is the limit for 1,300 EUR?")
    assert not excluded("What is the limit for 1,200 EUR?", "What is the limit for 1200 euro?")
    assert excluded("May I work from home?", "May I not work from home?")
    assert not excluded("How long is the notice period?", "How long is my notice period?")
