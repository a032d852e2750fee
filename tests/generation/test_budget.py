"""How the model's context is divided: all of a prompt and its answer fit, and what is cut is the oldest."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from generation.budget import Room, divide
from generation.generator import prompt_tokens
from generation.prompt import Template, Turn, render
from generation.tokens import estimate
from retrieval.context import assemble
from tenancy.errors import InvalidInput
from tests.retrieval.passages import passage

TEMPLATE = Template("default", "Answer from the sources.")
TURNS = tuple(Turn("user" if at % 2 == 0 else "assistant", f"turn {at} " + "word " * 30) for at in range(10))


def _byte_pairs() -> Callable[[str], int]:
    """A small byte-level tokenizer like those of the models, which joins characters across our delimiters."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=600, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    sample = '</source>\n<source id="S1" document="a" title="b">\nword 年&lt;[S1]</turn>\n<turn role="user">'
    tokenizer.train_from_iterator([sample * 3, "turn word word\nHow long?"], trainer)
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)


COUNTS = {"estimate": estimate, "byte pairs": _byte_pairs()}


def divided(
    length: int,
    *,
    history: tuple[Turn, ...] = (),
    question: str = "How long?",
    answer: int = 200,
    count: Callable[[str], int] = estimate,
) -> Room:
    return divide(TEMPLATE, question, history, length=length, sources=1_000, answer=answer, count=count, mark="zqmark")


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


@settings(deadline=None)
@given(
    st.sampled_from(sorted(COUNTS)),
    st.integers(400, 4_000),
    st.lists(st.text(alphabet="ab <[&年\n", max_size=400), max_size=8),
    st.text(alphabet="ab <[&年", min_size=1, max_size=100),
    st.integers(1, 2_000),
)
def test_the_prompt_and_its_answer_fit_together(
    counter: str, length: int, turns: list[str], question: str, answer: int
) -> None:
    history = tuple(Turn("user", text) for text in turns)
    count = COUNTS[counter]
    try:
        room = divided(length, history=history, question=question, answer=answer, count=count)
    except InvalidInput:
        return
    passages = [passage(f"{turn} 年 word", document=f"d{at}", document_id=at) for at, turn in enumerate(turns)]
    context = assemble(passages, room.sources, count)
    prompt = render(TEMPLATE, question, context.prompt_sources, room.history, mark="zqmark")
    assert prompt_tokens(prompt, count) + room.answer <= length
    assert room.history == history[len(history) - len(room.history) :]
    assert room.cut == len(history) - len(room.history)
    assert room.sources >= min(1_000, length // 16) - 16
