"""Personal data in questions: found by kind, kept to its asker, and nothing taken for it that is a rule."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from cache.lookup import Hit, Miss, Reach
from cache.policy import CachePolicy, TemplatePolicy
from cache.rungs import personal
from cache.rungs.personal import kind
from cache.store import NotStored, Stored
from cache.stores.local import LocalStore
from tests.cache.desk import Clock, Desk, unit
from tests.cache.personal_table import WITH, WITHOUT

SALARY = "My salary is 52,000 euro, what bonus do I get?"
RULE = "What bonus does pay grade 7 get?"


@pytest.mark.parametrize("found", WITH)
def test_questions_with_personal_data_are_found_by_kind(found: str) -> None:
    assert {question: kind(question) for question in WITH[found]} == dict.fromkeys(WITH[found], found)


def test_questions_about_rules_are_not() -> None:
    assert [question for question in WITHOUT if kind(question)] == []


@pytest.mark.parametrize(
    ("right", "wrong", "found"),
    [
        ("Is GB29NWBK60161331926819 ours?", "Is GB28NWBK60161331926819 ours?", personal.ACCOUNT),
        ("Is 5555555555554444 ours?", "Is 5555555555554445 ours?", personal.CARD),
        ("Is 12345678Z ours?", "Is 12345678A ours?", personal.NATIONAL),
    ],
)
def test_a_number_without_a_shape_counts_by_its_check_digit(right: str, wrong: str, found: str) -> None:
    assert (kind(right), kind(wrong)) == (found, None)


@pytest.mark.parametrize(
    "hostile",
    ["i " * 20_000, "my home " * 10_000, "1 " * 20_000, "0" * 40_000, "de89 " * 8_000, "我被" * 20_000, "a@" * 20_000,
     "my " + "full " * 20_000, "i have a mental " + "a " * 20_000, "+1" + " (" * 20_000],
    ids=range(10),
)  # fmt: skip
def test_no_question_takes_long_to_judge(hostile: str) -> None:
    begun = time.process_time()
    kind(hostile)
    assert time.process_time() - begun < 5


def test_an_answer_to_a_personal_question_is_its_askers_alone(ana: Desk, bo: Desk, handbook: int) -> None:
    assert isinstance(ana.put(SALARY, ana.answer(handbook)), Stored)
    assert isinstance(ana.exact(SALARY), Hit)
    assert isinstance(bo.exact(SALARY), Miss)
    assert ana.ask(SALARY).namespace.value != bo.ask(SALARY).namespace.value
    # Bo's own entry is another one, and neither has a vector by which a similar question would find it.
    assert isinstance(bo.put(SALARY, bo.answer(handbook, text="Another.")), Stored)
    served = [desk.exact(SALARY) for desk in (ana, bo)]
    assert all(isinstance(hit, Hit) for hit in served)
    assert b"Another." not in served[0].entry.payload  # type: ignore[union-attr]
    assert [hit.entry.vector for hit in served] == [b"", b""]  # type: ignore[union-attr]
    # The pair that differs in it alone: what says nothing of anybody is shared.
    assert isinstance(ana.put(RULE, ana.answer(handbook)), Stored)
    assert isinstance(bo.exact(RULE), Hit)
    assert ana.ask(RULE).namespace.value == bo.ask(RULE).namespace.value


def test_a_policy_keeps_personal_questions_out_of_the_cache(
    desk_of: Callable[[str], Desk], handbook: int, clock: Clock
) -> None:
    strict = LocalStore(CachePolicy(templates={"strict": TemplatePolicy(personal="none")}), clock=clock)
    ana = Desk(desk_of("ana").company, desk_of("ana").principal, strict)
    asked = ana.ask(SALARY, template="strict")
    assert asked.reach is Reach.NONE
    assert isinstance(ana.put(asked, ana.answer(handbook)), NotStored)
    assert ana.store.inspect(ana.company.handle) == []
    assert ana.ask(SALARY).reach is Reach.PRIVATE
    assert isinstance(ana.put(RULE, ana.answer(handbook, vector=unit(1.0)), template="strict"), Stored)
