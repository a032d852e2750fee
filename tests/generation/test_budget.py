"""How the model's context is divided: all of a prompt and its answer fit, and what is cut is the oldest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from generation.budget import Room, divide
from generation.generator import prompt_tokens
from generation.prompt import PromptSource, Template, Turn, render
from generation.tokens import estimate
from tenancy.errors import InvalidInput

TEMPLATE = Template("default", "Answer from the sources.")
TURNS = tuple(Turn("user" if at % 2 == 0 else "assistant", f"turn {at} " + "word " * 30) for at in range(10))


def divided(length: int, *, history: tuple[Turn, ...] = (), question: str = "How long?", answer: int = 200) -> Room:
    return divide(
        TEMPLATE, question, history, length=length, sources=1_000, answer=answer, count=estimate, mark="zqmark"
    )


def test_where_there_is_room_everything_is_as_wished() -> None:
    room = divided(8_000, history=TURNS)
    assert (room.sources, room.answer, room.history, room.cut) == (1_000, 200, TURNS, 0)


def test_a_history_that_is_too_long_loses_its_oldest_turns() -> None:
    room = divided(1_200, history=TURNS)
    assert 0 < len(room.history) < len(TURNS)
    assert room.history == TURNS[-len(room.history) :]
    assert room.cut == len(TURNS) - len(room.history)
    assert room.sources > 0


def test_a_turn_that_is_too_long_alone_ends_the_history() -> None:
    assert divided(1_200, history=(*TURNS[:2], Turn("user", "long " * 5_000))).history == ()
    assert divided(1_200, history=(Turn("user", "long " * 5_000), *TURNS[:2])).history == TURNS[:2]


def test_an_answer_gets_at_most_half_of_the_context() -> None:
    assert divided(2_000, answer=30_000).answer == 1_000
    assert divided(2_000, answer=100).answer == 100


def test_a_question_that_leaves_no_room_is_refused_and_not_quoted() -> None:
    with pytest.raises(InvalidInput) as refused:
        divided(1_000, question="secret " * 900)
    assert "secret" not in str(refused.value)
    assert divided(4_000, question="secret " * 900).sources > 0


@given(
    st.integers(400, 4_000),
    st.lists(st.text(alphabet="ab <[&年\n", max_size=400), max_size=8),
    st.text(alphabet="ab <[&年", min_size=1, max_size=100),
    st.integers(1, 2_000),
)
def test_the_prompt_and_its_answer_fit_together(length: int, turns: list[str], question: str, answer: int) -> None:
    history = tuple(Turn("user", text) for text in turns)
    try:
        room = divided(length, history=history, question=question, answer=answer)
    except InvalidInput:
        return
    text = "a" * (4 * max(0, room.sources - estimate('<source id="S1" document="d" title="t">\n\n</source>') - 1))
    source = PromptSource("S1", "d", "t", text)
    prompt = render(TEMPLATE, question, (source,), room.history, mark="zqmark")
    assert prompt_tokens(prompt, estimate) + room.answer <= length
    assert room.history == history[len(history) - len(room.history) :]
    assert room.cut == len(history) - len(room.history)
    assert room.sources >= min(1_000, length // 16) - 16
