"""A real verifier as a rung: what it says decides, and whatever stops it is a miss."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest

from cache.ladder import Ladder
from cache.lookup import Hit, Miss, Reason
from cache.policy import CachePolicy
from cache.store import Stored
from cache.verifier.pair import PairVerifier
from service.settings import VerifierSettings
from service.wiring import ladder
from tenancy.errors import Corrupt, InvalidInput
from tests.cache.desk import Desk, unit
from tests.cache.test_ladder import Fixed
from tests.cache.verifier.small import small_verifier

QUESTION = "How do I close my account?"
SAME = "How do I close my account please?"


@pytest.fixture
def verifier(tmp_path: Path) -> Iterator[PairVerifier]:
    small_verifier(tmp_path / "verifier")
    made = PairVerifier(tmp_path / "verifier", timeout_s=30)
    yield made
    made.close()


@pytest.fixture
def desk(ana: Desk, handbook: int, verifier: PairVerifier) -> Desk:
    ana.put(QUESTION, ana.answer(handbook))
    ana.open(0.9)
    ana.ladder = Ladder(score=Fixed(0.5), verifier=verifier)
    return ana


def _serves_from(verifier: PairVerifier, threshold: float) -> None:
    object.__setattr__(verifier, "threshold", threshold)


def test_what_it_holds_for_the_same_is_served_with_its_probability(desk: Desk, verifier: PairVerifier) -> None:
    probability = verifier.probability(SAME, QUESTION)
    _serves_from(verifier, probability)
    found = desk.semantic(SAME, unit(1.0))
    assert isinstance(found, Hit)
    assert found.verified == probability


def test_what_it_holds_for_different_is_not(desk: Desk, verifier: PairVerifier) -> None:
    _serves_from(verifier, verifier.probability(SAME, QUESTION) + 1e-6)
    found = desk.semantic(SAME, unit(1.0))
    assert isinstance(found, Miss)
    assert found.reason is Reason.UNVERIFIED


def test_late_or_closed_it_is_a_miss(desk: Desk, handbook: int, verifier: PairVerifier) -> None:
    _serves_from(verifier, 0.0001)
    go_on, logit = Event(), verifier._logit

    calls = []

    def held(first: str, second: str) -> float:
        calls.append(first)
        assert go_on.wait(30)
        return logit(first, second)

    for word in ("please", "thanks"):
        assert isinstance(desk.put(f"{QUESTION} {word}", desk.answer(handbook, vector=unit(1.0, 0.1))), Stored)
    verifier._logit, verifier.timeout_s = held, 0.01  # type: ignore[method-assign, misc]
    late = desk.semantic(SAME, unit(1.0))
    assert isinstance(late, Miss)
    assert [found.reason for found in late.candidates] == [Reason.VERIFIER_AWAY, Reason.UNASKED, Reason.UNASKED]
    assert len(calls) == 1
    go_on.set()
    verifier.timeout_s = 30  # type: ignore[misc]
    assert isinstance(desk.semantic(SAME, unit(1.0)), Hit)
    verifier.close()
    closed = desk.semantic(SAME, unit(1.0))
    assert isinstance(closed, Miss)
    assert closed.reason is Reason.VERIFIER_AWAY


def test_other_weights_are_another_version_of_the_ladder(desk: Desk, verifier: PairVerifier, tmp_path: Path) -> None:
    small_verifier(tmp_path / "other", seed=9)
    other = PairVerifier(tmp_path / "other")
    asked = desk.ask(SAME)
    versions = {Ladder(verifier=made).version(asked, None, CachePolicy()) for made in (verifier, other, None)}
    other.close()
    assert len(versions) == 3


def test_the_settings_name_a_verifier_or_none(tmp_path: Path) -> None:
    assert ladder(VerifierSettings(path="", timeout_s=0.2)).verifier is None
    small_verifier(tmp_path / "verifier")
    made = ladder(VerifierSettings(path=str(tmp_path / "verifier"), timeout_s=0.2)).verifier
    assert isinstance(made, PairVerifier)
    made.close()


def test_a_verifier_that_is_named_and_cannot_be_used_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no manifest"):
        ladder(VerifierSettings(path=str(tmp_path / "absent"), timeout_s=0.2))
    small_verifier(tmp_path / "verifier")
    (tmp_path / "verifier" / "tokenizer.json").write_text("{}")
    with pytest.raises(Corrupt, match="SHA-256"):
        ladder(VerifierSettings(path=str(tmp_path / "verifier"), timeout_s=0.2))
