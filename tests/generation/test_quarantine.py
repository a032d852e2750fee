"""Requests under which servers stopped."""

from __future__ import annotations

import pytest

from generation.quarantine import Quarantine, Quarantined
from tests.generation.prompts import LEAVE, prompt
from tests.generation.test_breaker import Clock


def digest(quarantine: Quarantine, question: str = "Why?", **changes: object) -> bytes:
    asked = prompt(question, LEAVE)
    terms = {"tenant": "t1", "model": "m", "max_tokens": 5, **changes}
    return quarantine.digest(asked, **terms)  # type: ignore[arg-type]


def test_two_crashes_refuse_a_request_for_a_while() -> None:
    clock = Clock()
    quarantine = Quarantine(60, clock=clock)
    asked = digest(quarantine)
    assert not quarantine.suspected(asked)
    quarantine.crashed(asked)
    quarantine.require_free(asked, "r")
    assert quarantine.suspected(asked)
    quarantine.crashed(asked)
    with pytest.raises(Quarantined, match="stopped under this request twice") as caught:
        quarantine.require_free(asked, "r")
    assert "Why" not in str(caught.value)
    clock.now += 61
    quarantine.require_free(asked, "r")
    assert not quarantine.suspected(asked)


def test_nobody_else_is_refused_with_it() -> None:
    quarantine = Quarantine()
    asked = digest(quarantine)
    quarantine.crashed(asked)
    quarantine.crashed(asked)
    for other in (
        digest(quarantine, "What?"), digest(quarantine, tenant="t2"), digest(quarantine, model="n"),
        digest(quarantine, max_tokens=6), digest(Quarantine()),
    ):  # fmt: skip
        assert other != asked
        quarantine.require_free(other, "r")
    assert digest(quarantine) == asked


def test_an_answer_to_the_end_clears_it() -> None:
    quarantine = Quarantine()
    asked = digest(quarantine)
    for _ in range(5):
        quarantine.crashed(asked)
        quarantine.cleared(asked)
        quarantine.require_free(asked, "r")


def test_the_oldest_are_forgotten() -> None:
    quarantine = Quarantine()
    first = digest(quarantine, "0")
    for number in range(1_100):
        quarantine.crashed(digest(quarantine, "0", max_tokens=number + 5))
    assert not quarantine.suspected(first)
    assert quarantine.suspected(digest(quarantine, "0", max_tokens=1_104))
