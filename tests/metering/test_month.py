"""A month of generated traffic: two revisions of the prices, corrections, remembered answers, on both token bases, and
every event delivered four times. The report is an independent sum to the microunit.
"""

from __future__ import annotations

import random
import secrets
from collections import Counter
from collections.abc import Callable

import msgspec
import pytest

from audit.log import AuditLog
from audit.record import Actor, Draft, Request, decode
from audit.tables import events
from metering.events import CORRECT, Correction, UsageEvent, month_of, usage_of
from metering.ledger import UsageLedger
from metering.prices import Basis
from metering.reconcile import reconcile
from metering.usage import report, spent
from tests.metering.traffic import FIRST, PRICES, SECOND, Day, a_day, price_list

Write = Callable[[Day], None]
REVISED = price_list(SECOND, "2026-12-b")


def corrected(day: Day, basis: Basis, dice: random.Random, count: int) -> tuple[list[Draft], Counter[str], int]:
    """Drafts that give back all or a part of what some events were charged; by feature, and in sum, what they add."""
    drafts, by_feature, total = [], Counter[str](), 0
    charged = [(one, *said) for one, said in day.events.items() if said[2] > 0]
    for event_id, feature, hop, microunits in dice.sample(charged, count):
        back = -dice.choice((microunits, max(1, microunits // 2)))
        said = Correction(
            corrects=event_id, microunits=back, hop=hop, why="agreed", feature=feature, prices="x", basis=basis
        )
        drafts.append(
            Draft(
                action=CORRECT,
                phase="outcome",
                outcome="allowed",
                actor=Actor(kind="operator", method="console"),
                request=Request(id=secrets.token_hex(16)),
                detail=msgspec.structs.asdict(said),
            )
        )
        by_feature[feature] += back
        total += back
    return drafts, by_feature, total


def delivered(log: AuditLog) -> list[UsageEvent]:
    with log.database.reading() as connection:
        found = connection.execute(events.select().order_by(events.c.seq)).all()
    return [one for row in found for one in usage_of(decode(row.payload))]


@pytest.mark.parametrize("basis", ["actual", "logical"])
def test_the_report_of_a_month_is_an_independent_sum_whatever_comes_how_often(
    ledger: UsageLedger, write: Write, basis: Basis
) -> None:
    dice = random.Random(11)
    first = a_day(60, basis, 1, table=FIRST, prices=PRICES)
    second = a_day(60, basis, 2, table=SECOND, prices=REVISED)
    given_back, features = 0, Counter[str]()
    for day in (first, second):
        write(day)
        drafts, by_feature, total = corrected(day, basis, dice, 12)
        with ledger.log.database.writing() as connection:
            ledger.log.append_in(connection, drafts)
        given_back += total
        features.update(day.by_feature)
        features.update(by_feature)
    charged = first.microunits + second.microunits + given_back
    assert given_back < 0

    assert ledger.catch_up() == first.hops + second.hops + 24
    again = delivered(ledger.log) * 3
    dice.shuffle(again)
    assert sum(ledger.book(again[start : start + 41]) for start in range(0, len(again), 41)) == 0
    assert ledger.place().conflicts == 0

    month = month_of(ledger.log.now())
    (row,) = report(ledger, "acme", ("tenant", "month"))
    assert (row["month"], row["events"], row["corrections"]) == (month, first.hops + second.hops, 24)
    assert row["microunits"] == charged == spent(ledger, month)
    assert row["saved"] == first.saved + second.saved > 0
    assert row["tokens_computed"] == first.computed + second.computed
    assert row["tokens_served"] == first.served + second.served > row["tokens_computed"]
    assert {one["feature"]: one["microunits"] for one in report(ledger, "acme", ("feature",))} == dict(features)
    by_list = {one["prices"]: one["microunits"] for one in report(ledger, "acme", ("prices",))}
    assert by_list == {PRICES.id: first.microunits, REVISED.id: second.microunits, "x": given_back}
    found = reconcile(ledger)
    assert found.agrees
    assert (found.audited, found.booked) == (charged, charged)


def test_what_one_basis_charges_the_other_does_not(ledger: UsageLedger, write: Write) -> None:
    """The same traffic costs more where what was served is charged, and saves as much on both."""
    actual, logical = a_day(80, "actual", 5), a_day(80, "logical", 5)
    assert (actual.computed, actual.served, actual.saved) == (logical.computed, logical.served, logical.saved)
    assert actual.microunits < logical.microunits
    write(logical)
    ledger.catch_up()
    assert spent(ledger, month_of(ledger.log.now())) == logical.microunits
