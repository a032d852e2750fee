"""Follow-up questions: those that lean on the history, and those that must stay as they are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from generation.prompt import Turn
from retrieval.followup import Rewritten, stand_alone

LEAVE = "How many days of annual leave do employees get?"
POLICY = "What is the leave policy?"


def after(previous: str, question: str) -> Rewritten:
    return stand_alone(question, [Turn("user", previous), Turn("assistant", "An answer about the moon. [S1]")])


@pytest.mark.parametrize(
    ("previous", "question", "expected", "rule"),
    [
        (LEAVE, "And in Germany?", "How many days of annual leave do employees get in Germany?", "ellipsis"),
        ("How many days are there in France?", "in Germany?", "How many days are there in Germany?", "ellipsis"),
        (LEAVE, "What about managers?", "How many days of annual leave do managers get?", "ellipsis"),
        ("Can I carry over casual leave?", "how about sick leave?", "Can I carry over sick leave?", "ellipsis"),
        ("When does Acme Corp pay salaries?", "And Globex?", "When does Globex pay salaries?", "ellipsis"),
        (POLICY, "What if I am ill?", "What is the leave policy, if I am ill?", "ellipsis"),
        ("Does it cover dental care?", "And glasses?", "Does it cover dental care, regarding glasses?", "ellipsis"),
        (POLICY, "Does it apply to interns?", "Does the leave policy apply to interns?", "pronoun"),
        (POLICY, "When was it updated?", "When was the leave policy updated?", "pronoun"),
        ("Who is Ana Lopez?", "What is her role?", "What is Ana Lopez's role?", "pronoun"),
        ("Who sets the limits?", "What are their exceptions?", "What are the limits' exceptions?", "pronoun"),
        (POLICY, "Who approved that?", "Who approved the leave policy?", "deictic"),
        (POLICY, "What documents does this require?", "What documents does the leave policy require?", "deictic"),
        (
            "How often must passwords change?",
            "Is that mandatory?",
            "Is that mandatory? (How often must passwords change)",
            "deictic",
        ),
        ("Is encashment of leave allowed?", "Why?", "Why is encashment of leave allowed?", "wh-only"),
        ("Who approves the budget?", "Since when?", "Who approves the budget, since when?", "wh-only"),
        ("中国的年假有几天？", "那德国呢？", "德国的年假有几天？", "chinese"),
        ("员工可以休几天年假？", "经理呢？", "经理可以休几天年假？", "chinese"),
        ("年假政策是什么？", "它适用于谁？", "年假政策适用于谁？", "chinese"),
        ("密码多久更换一次？", "为什么？", "密码多久更换一次，为什么？", "chinese"),
    ],
)  # fmt: skip
def test_a_follow_up_stands_alone(previous: str, question: str, expected: str, rule: str) -> None:
    assert after(previous, question) == Rewritten(expected, True, rule)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("previous", "question"),
    [
        (POLICY, "How many vacation days do I get?"),
        (POLICY, "Is it possible to work from home?"),
        (POLICY, "How long does it take to get a reply?"),
        (POLICY, "If an employee loses their badge, what happens?"),
        (POLICY, "What does the travel policy say about its exceptions?"),
        (POLICY, "Which documents show that the claim is valid?"),
        (POLICY, "Does this policy apply to interns?"),
        (POLICY, "And how do I request a badge?"),
        (POLICY, "Thanks"),
        (POLICY, ""),
        ("年假政策是什么？", "产假有几天？"),
        ("年假政策是什么？", "其他假期有哪些规定？"),
    ],
)
def test_a_question_that_stands_alone_is_left_alone(previous: str, question: str) -> None:
    assert after(previous, question) == Rewritten(question, False, "none")


def test_without_a_history_nothing_changes() -> None:
    assert stand_alone("And in Germany?", []) == Rewritten("And in Germany?", False, "none")
    assert not stand_alone("Does it apply?", [Turn("assistant", "The leave policy is long.")]).changed


def test_a_chain_keeps_its_topic() -> None:
    history = [Turn("user", "How many days do employees get in France?"), Turn("user", "and in Germany?")]
    assert stand_alone("What about managers?", history).text == "How many days do managers get in Germany?"
    history = [Turn("user", POLICY), Turn("user", "When was it updated?")]
    assert stand_alone("Who approved it?", history).text == "Who approved the leave policy?"


def test_very_long_questions_are_left_alone() -> None:
    assert not after("the policy " * 200, "Does it apply?").changed
    assert not after(POLICY, "Does it apply " * 200).changed


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("previous", "question"),
    [
        ("in " + "a" * 900 + ",", "in Germany?"),
        ("in " + "a " * 450 + ",", "in Germany?"),
        (POLICY, "and" + " " * 900 + "?x"),
        (POLICY, "and " + "\n" * 900 + "?x"),
        (POLICY, "from " + "\n" * 900 + "?x"),
        (POLICY, "and, " * 190 + "?x"),
        ("the " + "a-" * 450, "Is it " + "A." * 450),
    ],
)
def test_no_question_takes_long(previous: str, question: str) -> None:
    """Questions are rewritten on the event loop: one of these patterns once stopped it for all tenants."""
    history = [Turn("user", previous)] * 25
    assert stand_alone(question, history).text


@pytest.mark.parametrize("question", ["and  ?", "what about  ?", "also \u2003\u2003?", "from  ?"])
def test_a_follow_up_without_words_is_left_alone(question: str) -> None:
    assert after(POLICY, question) == Rewritten(question, False, "none")


@given(st.lists(st.text(max_size=40), max_size=3), st.text(max_size=40))
def test_any_text_is_handled(turns: list[str], question: str) -> None:
    rewritten = stand_alone(question, [Turn("user", text) for text in turns])
    assert rewritten.changed == (rewritten.rule != "none")
    if not rewritten.changed:
        assert rewritten.text == question.strip() or rewritten.text == question
