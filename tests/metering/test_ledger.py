"""Each hop is booked once, whatever is delivered how often; a month's report is exact to the microunit."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import msgspec
import pytest
from sqlalchemy import select, update

from audit.log import AuditLog
from audit.logs import AuditLogs
from audit.record import decode
from audit.tables import events
from metering.events import UsageEvent, month_of, usage_of
from metering.ledger import UsageLedger, rebuilt
from metering.prices import Basis
from metering.reconcile import Tokens, engine_totals, generation, reconcile
from metering.tables import position, usage
from metering.usage import csv_lines, events_of, grouped, report, spent
from tenancy.control import Tenants
from tenancy.errors import Conflict, Corrupt, InvalidInput
from tests.metering.traffic import PRICES, Day, a_day

Write = Callable[[Day], None]


def delivered(log: AuditLog) -> list[UsageEvent]:
    with log.database.reading() as connection:
        found = connection.execute(events.select().order_by(events.c.seq)).all()
    return [one for row in found for one in usage_of(decode(row.payload))]


@pytest.mark.parametrize("basis", ["actual", "logical"])
def test_a_months_report_is_an_independent_sum_to_the_microunit(
    ledger: UsageLedger, write: Write, basis: Basis
) -> None:
    day = a_day(120, basis)
    write(day)
    assert ledger.catch_up() == day.hops
    month = month_of(ledger.log.now())
    (row,) = report(ledger, "acme", ("tenant", "month"))
    assert (row["tenant"], row["month"], row["events"]) == ("acme", month, day.hops)
    assert row["microunits"] == day.microunits == spent(ledger, month)
    assert row["saved"] == day.saved
    assert (row["tokens_computed"], row["tokens_served"]) == (day.computed, day.served)
    features = {one["feature"]: one["microunits"] for one in report(ledger, "acme", ("feature",))}
    assert features == dict(day.by_feature)
    hops = {one["hop"]: one["microunits"] for one in report(ledger, "acme", ("hop",))}
    assert hops == dict(day.by_hop)
    assert {one["prices"] for one in report(ledger, "acme", ("prices",))} == {PRICES.id}
    # Another sum of the same rows, from the finest groups.
    by = ("tenant", "feature", "model", "hop", "month", "version", "adapter", "user", "prices", "basis")
    assert sum(one["microunits"] for one in report(ledger, "acme", by)) == day.microunits
    found = reconcile(ledger)
    assert found.agrees
    assert (found.audited, found.booked, found.records) == (day.microunits, day.microunits, len(day.drafts))
    sums = [sum(column) for column in zip(*day.generation, strict=True)]
    assert generation(ledger) == Tokens(*sums)
    both = generation(ledger, estimated=True) + generation(ledger, estimated=False)
    assert both == generation(ledger)
    assert generation(ledger, estimated=True).prompt > 0


@pytest.mark.both_storages
def test_delivered_four_times_in_any_order_counts_once(ledger: UsageLedger, write: Write) -> None:
    day = a_day(40, "actual")
    write(day)
    said = delivered(ledger.log) * 4
    random.Random(3).shuffle(said)
    for first in range(0, len(said), 37):
        ledger.book(said[first : first + 37])
    assert spent(ledger, month_of(ledger.log.now())) == day.microunits
    # And once more by the log, whose events are all known.
    assert ledger.catch_up() == 0
    assert ledger.place().conflicts == 0
    assert spent(ledger, month_of(ledger.log.now())) == day.microunits


def test_catching_up_from_many_threads_books_once(ledger: UsageLedger, write: Write, logs: AuditLogs) -> None:
    day = a_day(40, "actual")
    write(day)
    threads = [threading.Thread(target=UsageLedger(ledger.log).catch_up) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (row,) = report(ledger, "acme", ("tenant",))
    assert (row["events"], row["microunits"]) == (day.hops, day.microunits)
    assert ledger.place().next == len(day.drafts)


@pytest.mark.both_storages
def test_whoever_is_alone_with_a_ledger_writes_the_log_and_lets_nobody_else_book(
    ledger: UsageLedger, write: Write
) -> None:
    write(a_day(3, "actual"))
    draft = a_day(1, "actual", seed=8).drafts[0][0]
    done: list[str] = []

    def follow() -> None:
        UsageLedger(ledger.log).catch_up()
        done.append("booked")

    follower = threading.Thread(target=follow)
    with ledger.alone() as connection:
        assert connection.execute(select(position.c.next)).scalar() == ledger.log.head().size
        seq = ledger.log.append(lambda: draft)
        follower.start()
        follower.join(0.2)
        assert done == []
        assert connection.execute(select(position.c.next)).scalar() == seq
        done.append("alone")
    follower.join()
    assert done == ["alone", "booked"]
    assert ledger.place().next == seq + 1


def test_an_event_that_comes_again_with_other_content_is_counted_and_changes_nothing(
    ledger: UsageLedger, write: Write
) -> None:
    day = a_day(3, "actual")
    write(day)
    ledger.catch_up()
    one = delivered(ledger.log)[0]
    assert ledger.book([msgspec.structs.replace(one, microunits=one.microunits + 1)]) == 0
    assert ledger.place().conflicts == 1
    assert not reconcile(ledger).agrees
    assert spent(ledger, month_of(ledger.log.now())) == day.microunits


@pytest.mark.parametrize("tampering", ["amount", "removed", "added"])
def test_reconciliation_names_a_row_that_is_not_as_the_log_says(
    ledger: UsageLedger, write: Write, tampering: str
) -> None:
    day = a_day(10, "actual")
    write(day)
    assert reconcile(ledger).agrees
    one = delivered(ledger.log)[0]
    with ledger.database.writing() as connection:
        here = usage.c.id == one.id
        if tampering == "amount":
            connection.execute(update(usage).where(here).values(microunits=usage.c.microunits + 1))
        elif tampering == "removed":
            connection.execute(usage.delete().where(here))
        else:
            connection.execute(usage.insert().values(msgspec.structs.asdict(one) | {"id": "made-up", "seq": 0}))
    found = reconcile(ledger)
    assert not found.agrees
    named = {"amount": found.altered, "removed": found.missing, "added": found.strange}[tampering]
    assert set(named) == {"made-up" if tampering == "added" else one.id}


def test_records_that_were_pruned_before_they_were_booked_are_told(ledger: UsageLedger, write: Write) -> None:
    day, later = a_day(4, "actual"), a_day(4, "actual", seed=8)
    write(day)
    with ledger.log.database.writing() as connection:
        connection.execute(update(events).where(events.c.seq == 0).values(payload=b""))
    # There was no ledger yet that could miss it.
    assert reconcile(ledger).agrees
    write(later)
    with ledger.log.database.writing() as connection:
        connection.execute(update(events).where(events.c.seq == len(day.drafts)).values(payload=b""))
    ledger.catch_up()
    assert ledger.place().missed == 1
    assert not reconcile(ledger).agrees


def test_a_lost_ledger_is_made_again_from_the_log_and_never_silently(
    open_tenants: Callable[[], Tenants], write: Write, ledger: UsageLedger
) -> None:
    day = a_day(10, "actual")
    write(day)
    ledger.catch_up()
    with pytest.raises(Conflict):
        rebuilt(ledger.log)
    with ledger.log.database.writing() as connection:
        connection.execute(update(events).where(events.c.seq == len(day.drafts) - 1).values(payload=b""))
    directory, log_id = ledger.log.files.directory, ledger.log.log_id
    for path in directory.glob("usage.sqlite*"):
        path.unlink()
    logs = AuditLogs(open_tenants(), deadline_s=60.0)
    try:
        with pytest.raises(Corrupt):
            UsageLedger(logs.of_id(log_id)).catch_up()
        made = rebuilt(logs.of_id(log_id))
        assert (made.place().next, made.place().missed) == (len(day.drafts), 1)
        # The record that is gone said nothing that the one before it had not said.
        assert 0 < spent(made, month_of(ledger.log.now())) <= day.microunits
        assert UsageLedger(logs.of_id(log_id)).catch_up() == 0
    finally:
        logs.close()


def test_rows_outlive_the_records_that_they_were_booked_from(ledger: UsageLedger, write: Write) -> None:
    day = a_day(10, "actual")
    write(day)
    ledger.catch_up()
    with ledger.log.database.writing() as connection:
        connection.execute(update(events).values(payload=b""))
    found = reconcile(ledger)
    assert found.agrees
    assert (found.kept, found.audited) == (day.microunits, 0)
    assert spent(ledger, month_of(ledger.log.now())) == day.microunits


def test_a_window_takes_its_beginning_and_not_its_end(ledger: UsageLedger, write: Write) -> None:
    write(a_day(3, "actual"))
    ledger.catch_up()
    moments = sorted({one.at for one in delivered(ledger.log)})
    last = moments[-1]
    before, after = report(ledger, "acme", (), until=last), report(ledger, "acme", (), since=last)
    (whole,) = report(ledger, "acme", ())
    assert sum(row["microunits"] for row in (*before, *after)) == whole["microunits"]
    assert report(ledger, "acme", (), since=last + 1) == []


def test_events_are_listed_page_by_page_in_the_order_of_the_log(ledger: UsageLedger, write: Write) -> None:
    day = a_day(6, "actual")
    write(day)
    ledger.catch_up()
    listed: list[UsageEvent] = []
    while page := events_of(ledger, after=listed[-1].id if listed else "", limit=5):
        listed += page
    assert [one.seq for one in listed] == sorted(one.seq for one in listed)
    assert len({one.id for one in listed}) == len(listed) == day.hops
    assert sum(one.microunits for one in listed) == day.microunits


def test_groups_that_there_are_not_are_refused() -> None:
    assert grouped("tenant, hop") == ("tenant", "hop")
    for text in ("tenant,colour", "hop,hop"):
        with pytest.raises(InvalidInput):
            grouped(text)


@pytest.mark.parametrize("sign", ["=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20"])
def test_a_csv_has_a_line_a_row_and_no_formula(ledger: UsageLedger, sign: str) -> None:
    event = UsageEvent(id="a", seq=0, at=1.0, month="2026-11", request="r", hop="embed", feature=f"{sign}1+1")
    parts = msgspec.structs.replace(event, id="c", feature=f"z;{sign}1+1;z")
    ledger.book([event, msgspec.structs.replace(event, id="b", feature=f"help {sign}"), parts])
    lines = sorted(csv_lines(report(ledger, "acme", ("feature",)), ("feature",)))
    assert lines[0].startswith(f"'{sign}1+1,1,0,0,0,")
    assert lines[1].startswith("feature,events,corrections,tokens_computed,")
    assert lines[2].startswith(f"help {sign},1,0,0,0,")
    assert lines[3].startswith(f"z;'{sign}1+1;z,1,0,0,0,")
    assert len(lines) == 4


def test_counters_of_an_engine_are_added_over_their_labels() -> None:
    text = (
        "# HELP sglang:prompt_tokens_total x\n"
        'sglang:prompt_tokens_total{model_name="a",tp="0"} 100.0\n'
        'sglang:prompt_tokens_total{model_name="b"} 1e2\n'
        'sglang:generation_tokens_total{model_name="a"} 30.0\n'
        'sglang:cached_tokens_total{model_name="a"} 7.0\n'
        'sglang:other_total{model_name="a"} 9.0\n'
    )
    assert engine_totals(text) == Tokens(200, 7, 30)
    with pytest.raises(InvalidInput):
        engine_totals("sglang:prompt_tokens_total 5\n")
