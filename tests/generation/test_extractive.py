"""The extractive generator: right sentences, exact quotes, a hard cap, abstention."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from generation.extractive import ExtractiveGenerator, Nearness, choose
from generation.generator import Finish, Piece
from generation.prompt import PromptSource, Templates, render
from generation.sentences import Sentence
from tests.generation.prompts import finish_of, pieces, soon, text_of

PASSWORDS = PromptSource(
    "S1",
    "passwords.md",
    "Password policy",
    "1. Purpose\nThis policy protects accounts of all\nemployees and contractors.\n\n3. Requirements\n"
    "Length At least 12 characters\nReuse The last 5 passwords\n\nAccounts lock after 6 failed attempts. "
    "Passwords must be changed every 90 days.\n\n"
    "The help desk:\n● resets passwords on request\n● checks the identity first\n",
)
LEAVE = PromptSource(
    "S2",
    "leave.md",
    "Leave policy",
    "Employees accrue annual leave monthly. Sick leave requires a certificate after 3 days. "
    "Casual leave cannot be carried over. Ana Lopez, the head of people, approves parental leave. "
    "The policy took effect in March 2024.",
)
ZH = PromptSource("S1", "leave-zh.md", "年假政策", "本政策适用于全体员工。员工每年享有15天年假。病假须提供证明。")
TH = PromptSource("S1", "leave-th.md", "", "พนักงานประจำมีสิทธิลาพักผ่อนประจำปีได้ปีละสิบวัน การลาป่วยต้องมีใบรับรองแพทย์")


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("What is the minimum password length?", "At least 12 characters"),
        ("How often must passwords be changed?", "every 90 days"),
        ("How many failed attempts lock an account?", "6 failed attempts"),
        ("Who approves parental leave?", "Ana Lopez"),
        ("Can casual leave be carried over?", "cannot be carried over"),
        ("When did the leave policy take effect?", "March 2024"),
        ("What does the help desk do?", "resets passwords on request\n● checks the identity first"),
    ],
)
def test_the_answering_sentence_comes_first(question: str, answer: str) -> None:
    assert answer in choose(question, [PASSWORDS, LEAVE])[0].text


@pytest.mark.parametrize(
    ("question", "source", "answer"),
    [("员工每年有多少天年假？", ZH, "15天年假"), ("ลาพักผ่อนประจำปีได้กี่วัน", TH, "สิบวัน")],
)
def test_other_scripts(question: str, source: PromptSource, answer: str) -> None:
    assert answer in choose(question, [source])[0].text


@pytest.mark.parametrize(
    "question", ["What is the capital of Mongolia?", "How many moons does Jupiter have?", "木星有多少颗卫星？", "?", ""]
)
def test_weak_evidence_gives_nothing(question: str) -> None:
    assert choose(question, [PASSWORDS, LEAVE, ZH]) == ()


def test_no_source_gives_nothing() -> None:
    assert choose("How often must passwords be changed?", []) == ()


def test_other_sources_do_not_hide_the_answer_and_keep_their_keys() -> None:
    quotes = choose("How often must passwords be changed?", [LEAVE, PASSWORDS])
    assert (quotes[0].key, quotes[0].text) == ("S1", "Passwords must be changed every 90 days.")


def test_nothing_is_said_twice() -> None:
    twin = PromptSource("S3", "copy.md", "Copy", LEAVE.text)
    texts = [quote.text for quote in choose("Can casual leave be carried over?", [LEAVE, twin])]
    assert len(texts) == len(set(texts))


def ask(question: str, *sources: PromptSource, max_tokens: int = 200) -> list[Piece]:
    async def run() -> list[Piece]:
        asked = render(Templates().get(), question, sources)
        stream = ExtractiveGenerator().generate(asked, salt="", request_id="r", max_tokens=max_tokens, deadline=soon())
        async with aclosing(stream):
            return [piece async for piece in stream]

    return asyncio.run(run())


def test_the_answer_is_cited_sentences_and_exact_quotes() -> None:
    given = ask("How often must passwords be changed?", PASSWORDS, LEAVE)
    finish = finish_of(given)
    assert text_of(given).startswith("Passwords must be changed every 90 days. [S1]")
    assert finish.reason == "stop"
    assert finish.quotes[0] == choose("How often must passwords be changed?", [PASSWORDS, LEAVE])[0]
    assert finish.usage.input > finish.usage.output > 0
    assert finish.usage.cached_input == 0


def test_wrapped_lines_read_on_in_the_answer_and_stay_in_the_quote() -> None:
    given = ask("Whose accounts does this policy protect?", PASSWORDS)
    assert "accounts of all employees and contractors. [S1]" in text_of(given)
    assert "accounts of all\nemployees" in finish_of(given).quotes[0].text


def test_abstaining_says_nothing() -> None:
    given = ask("What is the capital of Mongolia?", PASSWORDS)
    assert text_of(given) == ""
    assert finish_of(given) == Finish("abstain", finish_of(given).usage)


def test_equal_questions_get_equal_answers() -> None:
    assert ask("Who approves parental leave?", LEAVE) == ask("Who approves parental leave?", LEAVE)


@given(st.integers(min_value=0, max_value=60))
def test_an_answer_never_exceeds_its_tokens(limit: int) -> None:
    answered = ask("What must an employee know about sick leave and casual leave?", LEAVE, PASSWORDS, max_tokens=limit)
    generator = ExtractiveGenerator()
    finish = finish_of(answered)
    assert generator.count(text_of(answered)) <= limit
    assert finish.usage.output <= limit
    assert finish.reason == ("length" if limit < 20 else finish.reason)
    for quote in finish.quotes:
        source = {"S1": PASSWORDS, "S2": LEAVE}[quote.key]
        assert source.text[quote.start : quote.end] == quote.text


words_of_sources = st.sampled_from(["leave", "Leave", "days", "12", "password", ".", "\n", "●", ":", "年假", "。", " "])


@given(st.lists(st.lists(words_of_sources, max_size=30).map(" ".join), max_size=4), st.text(max_size=30))
def test_quotes_are_always_exact(bodies: list[str], question: str) -> None:
    sources = [PromptSource(f"S{at}", "d", "", body) for at, body in enumerate(bodies, 1)]
    for asked in (question, f"leave days {question}"):
        for quote in choose(asked, sources):
            assert sources[int(quote.key[1:]) - 1].text[quote.start : quote.end] == quote.text


def test_it_says_what_it_is() -> None:
    generator = ExtractiveGenerator()
    assert generator.identity.model == "extractive-1"
    assert generator.salted
    assert text_of(asyncio.run(pieces(generator, salt="")))
    asyncio.run(generator.aclose())


class Nearest:
    """A model that finds one sentence near, the others far; or that does not know the language."""

    revision = "nearest"

    def __init__(self, words: str | None, passage: float = 0.1) -> None:
        self.words = words
        self.passage = passage
        self.compared: list[str] = []

    def of(
        self, question: str, passages: Sequence[tuple[PromptSource, Sequence[Sentence]]]
    ) -> Sequence[Nearness] | None:
        del question
        self.compared += [source.key for source, _ in passages]
        if self.words is None:
            return None
        return [
            Nearness(
                self.passage if number else 0.1,
                tuple(0.9 if self.words in sentence.text else 0.1 for sentence in found),
            )
            for number, (_, found) in enumerate(passages)
        ]


def test_a_sentence_without_a_word_of_the_question_is_found_by_likeness() -> None:
    question = "May unused days off for personal matters be taken next year?"
    near = choose(question, [LEAVE], Nearest("Casual leave"))
    assert near[0].text == "Casual leave cannot be carried over."
    assert len(near) == 1
    assert choose(question, [LEAVE], Nearest(None)) == choose(question, [LEAVE])


def test_the_likeness_of_the_passage_counts_too() -> None:
    question = "Who approves parental leave?"
    assert choose(question, [PASSWORDS, LEAVE], Nearest("nothing of this"))[0].key == "S1"
    assert choose(question, [PASSWORDS, LEAVE], Nearest("nothing of this", passage=0.9))[0].key == "S2"
    assert choose(question, [PASSWORDS, LEAVE], Nearest("Length", passage=0.8))[0].text.startswith("Length")


def test_the_better_ranked_of_two_equals_comes_first() -> None:
    one = PromptSource("S1", "one.md", "", "Casual leave cannot be carried over.")
    other = PromptSource("S2", "other.md", "", "Casual leave is granted by a manager.")
    model = Nearest("Casual leave")
    assert [quote.key for quote in choose("What of casual leave?", [one, other], model)] == ["S1", "S2"]
    assert [quote.key for quote in choose("What of casual leave?", [other, one], model)] == ["S2", "S1"]


def test_what_is_compared_is_bounded_and_the_best_of_the_search() -> None:
    model = Nearest("6 failed attempts")
    last = PromptSource("S9", "last.md", "", "Accounts lock after 6 failed attempts.")
    others = [PromptSource(f"S{number}", f"{number}.md", "", "This is about bees.") for number in range(1, 7)]
    assert choose("How many failed attempts lock accounts?", [*others, last], model)[0].key != "S9"
    assert model.compared == [f"S{number}" for number in range(1, 7)]
    assert choose("How many failed attempts lock accounts?", [*others[:5], last], model)[0].key == "S9"


def test_another_model_of_likeness_is_another_revision() -> None:
    plain, other = ExtractiveGenerator().identity, ExtractiveGenerator(Nearest("x")).identity
    assert (plain.model, plain.revision) != (other.model, other.revision)
    assert plain.model == other.model
