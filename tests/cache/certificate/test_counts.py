"""How labels move a certificate: what it takes, what ends it, and what must not move it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cache.certificate import drift
from cache.certificate.counts import EMPTY, Counts, Label

ALPHA = 0.01


def fed(counts: Counts, *labels: Label, alpha: float = ALPHA, **options: Any) -> Counts:
    for label in labels:
        counts = counts.after(label, alpha, **options)
    return counts


def labels(*pattern: Label, number: int) -> list[Label]:
    return [*pattern] * number


def right(number: int, counts: Counts = EMPTY) -> Counts:
    return fed(counts, *labels("same", number=number))


def test_enough_right_labels_certify_and_one_fewer_does_not() -> None:
    almost = right(409)
    assert (almost.state, almost.standing(ALPHA)) == ("uncertified", "uncertified")
    enough = almost.after("same", ALPHA)
    assert enough.state == "certified"
    assert (enough.n, enough.k) == (410, 0)
    assert enough.upper <= ALPHA


def test_a_stricter_target_holds_at_once_and_a_looser_one_too() -> None:
    certified = right(410)
    assert certified.standing(0.009) == "uncertified"
    assert right(64).standing(0.05) == "certified"


def test_a_wrong_label_takes_a_fresh_certificate_away() -> None:
    lost = right(410).after("wrong", ALPHA)
    assert lost.state == "uncertified"
    assert lost.n == 411


def test_many_wrong_labels_suspend_and_right_ones_do_not_bring_it_back() -> None:
    wrong = fed(EMPTY, *labels("wrong", "same", number=10))
    assert (wrong.state, wrong.why) == ("suspended", "limit")
    assert right(5_000, wrong).state == "suspended"


def test_a_pair_that_the_guards_exclude_suspends_alone_but_only_if_it_was_wrong() -> None:
    certified = right(2_000)
    assert certified.after("same", ALPHA, excluded=True).state == "certified"
    held = certified.after("wrong", ALPHA, excluded=True)
    assert (held.state, held.why) == ("suspended", "veto class")
    assert certified.after("wrong", ALPHA).state == "uncertified"


def test_a_wrong_label_raises_a_doubt_that_right_ones_end() -> None:
    certified = right(2_000)
    doubted = certified.after("wrong", ALPHA)
    assert (doubted.state, doubted.why, doubted.n) == ("uncertified", "doubt", 2_001)
    assert doubted.upper <= ALPHA
    assert right(20, doubted).state == "uncertified"
    assert (right(100, doubted).state, right(100, doubted).why) == ("certified", "")
    assert right(100, doubted).restarts == 0


def test_missing_labels_count_against_a_certificate_and_not_for_a_suspension() -> None:
    gone = fed(EMPTY, *labels("missing", number=100))
    assert gone.state == "uncertified"
    assert (gone.n, gone.k, gone.missing) == (100, 100, 100)
    assert right(410, gone.after("missing", ALPHA)).state == "uncertified"
    assert gone.lower == 0.0


def test_what_the_service_could_not_answer_is_no_label() -> None:
    counts = fed(EMPTY, *labels("unanswered", number=50))
    assert (counts.n, counts.k, counts.unanswered) == (0, 0, 50)
    assert right(410, counts).state == "certified"


def test_wrong_labels_that_come_closely_begin_the_evidence_anew() -> None:
    certified = right(5_000)
    labels: list[Label] = []
    while certified.restarts == 0:
        label: Label = "wrong" if len(labels) % 10 == 0 else "same"
        labels.append(label)
        certified = certified.after(label, ALPHA)
    # 1 of 10 is wrong: the limits of 5,000 labels would have needed some 500 more to say so.
    assert len(labels) < 120
    assert (certified.state, certified.why, certified.n, certified.restarts) == ("uncertified", "drift", 0, 1)


def test_an_alarm_begins_the_evidence_anew() -> None:
    alarmed = replace(right(2_000), bets=(6.0, 8.0, 9.0)).after("wrong", ALPHA)
    assert (alarmed.state, alarmed.why, alarmed.n, alarmed.restarts, alarmed.bets) == ("uncertified", "drift", 0, 1, ())


def test_evidence_that_began_anew_needs_more_labels_than_the_first() -> None:
    assert right(410, EMPTY.anew("drift")).state == "uncertified"
    assert right(800, EMPTY.anew("drift")).state == "certified"
    levels = [replace(EMPTY, restarts=restarts).level for restarts in range(1_000)]
    assert sum(levels) < 0.05 * np.pi**2 / 6


def test_drift_is_not_seen_before_a_certificate() -> None:
    assert EMPTY.bets == ()
    assert fed(EMPTY, "wrong", "same").restarts == 0


@pytest.mark.parametrize(("share", "least", "most"), [(0.005, 0, 6), (0.03, 46, 50)])
def test_drift_is_seen_where_there_is_some_and_seldom_where_there_is_none(share: float, least: int, most: int) -> None:
    """Of 50 runs over 2,000 labels: alarms at half the target, and at three times the target."""
    rng = np.random.default_rng(3)
    alarms = 0
    for _ in range(50):
        bets = drift.CALM
        for wrong in rng.random(2_000) < share:
            bets = drift.after(bets, wrong=bool(wrong), alpha=ALPHA)
            if drift.alarm(bets):
                alarms += 1
                break
    assert least <= alarms <= most
