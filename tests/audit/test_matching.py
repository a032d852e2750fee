"""Every filter is answered by an index, in the order asked for, whatever stands beside it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from copy import copy
from functools import partial
from itertools import repeat
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import event

from audit import spans
from audit.filters import Filters
from audit.log import AuditLog
from audit.matching import matching
from audit.query import query_log
from audit.record import Actor, CacheUse, Draft, Event, Request, Resource, decode
from audit.spans import Bounds, bounds
from audit.tables import events
from tenancy.errors import InvalidInput

OUTCOMES = ("allowed", "allowed", "refused", "aborted")
SIZE = 240


def draft(number: int) -> Draft:
    return Draft(
        action=("answer", "retrieve", "ingest")[number % 3],
        phase="outcome",
        outcome=OUTCOMES[number % 4],  # type: ignore[arg-type]
        actor=Actor(kind="user", ref=f"u_{number % 5}"),
        request=Request(id=f"r{number // 2}", root=f"root{number // 40}"),
        resources=(
            Resource(document=f"d{number % 7}", stage="in_prompt", chunk="c0"),
            Resource(document=f"d{number % 7}", stage="cited", chunk="c1"),
        ),
        cache=CacheUse(status=("hit", "miss")[number % 2], entry=f"e{number % 11}"),  # type: ignore[arg-type]
    )


@pytest.fixture
def filled(log: AuditLog, monkeypatch: pytest.MonkeyPatch) -> AuditLog:
    """A clock that is set back by fifty seconds twice, and stretches of eight records."""
    monkeypatch.setattr(spans, "SPAN", 8)
    times = itertools.chain((1_000.0 + number - (50 if number // 80 % 2 else 0) for number in range(SIZE)), repeat(2e9))
    log._clock = lambda: next(times)
    for number in range(SIZE):
        log.submit(partial(copy, draft(number)))
    log.flush()
    return log


def stored(log: AuditLog) -> list[Event]:
    with log.database.reading() as connection:
        return [decode(row.payload) for row in connection.execute(events.select().order_by(events.c.seq))]


def meets(one: Event, filters: Filters) -> bool:
    assert one.cache is not None
    return (
        all(
            wanted is None or wanted == found
            for wanted, found in (
                (filters.actor, one.actor.ref),
                (filters.action, one.action),
                (filters.phase, one.phase),
                (filters.outcome, one.outcome),
                (filters.cache_status, one.cache.status),
                (filters.cache_entry, one.cache.entry),
                (filters.request, one.request.id),
                (filters.root, one.request.root),
                (filters.document, filters.document and one.resources[0].document),
            )
        )
        and (filters.since is None or one.time >= filters.since)
        and (filters.until is None or one.time < filters.until)
    )


values = {
    "actor": st.sampled_from(["u_0", "u_3", "u_9"]),
    "action": st.sampled_from(["answer", "ingest", "none"]),
    "phase": st.sampled_from(["outcome", "intent"]),
    "outcome": st.sampled_from(["allowed", "refused", "error"]),
    "cache_status": st.sampled_from(["hit", "bypass"]),
    "cache_entry": st.sampled_from(["e0", "e7"]),
    "request": st.sampled_from(["r3", "r100"]),
    "root": st.sampled_from(["root0", "root4"]),
    "document": st.sampled_from(["d0", "d6", "d9"]),
    "since": st.floats(940, 1_250),
    "as_of": st.integers(0, SIZE),
    "order": st.sampled_from(["asc", "desc"]),
}


@pytest.mark.slow
@pytest.mark.both_storages
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_filters_together_give_what_a_plain_scan_gives(filled: AuditLog, data: st.DataObject) -> None:
    names = data.draw(st.sets(st.sampled_from(sorted(values)), max_size=4))
    given_: dict[str, Any] = {name: data.draw(values[name], label=name) for name in sorted(names)}
    if "since" in given_:
        given_["until"] = given_["since"] + data.draw(st.floats(0, 120))
    filters = Filters(**given_)
    expected = [one.seq for one in stored(filled)[: filters.as_of] if meets(one, filters)]
    found, cursor = list[int](), None
    while True:
        page = query_log(filled, filters, limit=50, after=cursor)
        found += [one.seq for one in page.events]
        cursor = page.cursor
        if cursor is None:
            break
    assert found == (expected if filters.order == "asc" else expected[::-1])


@pytest.fixture
def statements(filled: AuditLog) -> Iterator[list[tuple[str, Any]]]:
    seen: list[tuple[str, Any]] = []

    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        seen.append((statement, parameters))

    with filled.database.reading() as connection:
        engine = connection.engine
    event.listen(engine, "before_cursor_execute", note)
    yield seen
    event.remove(engine, "before_cursor_execute", note)


@pytest.mark.parametrize(
    ("given_", "index"),
    [
        ({"request": "r1", "actor": "u_1"}, "events_by_request"),
        ({"cache_entry": "e1", "actor": "u_1"}, "events_by_cache_entry"),
        ({"root": "root1", "action": "answer"}, "events_by_root"),
        ({"actor": "u_1"}, "events_by_actor"),
        ({"actor": "u_1", "action": "answer", "outcome": "refused"}, "events_by_actor"),
        ({"actor": "u_1", "cache_status": "hit", "since": 1_000.0}, "events_by_actor"),
        ({"outcome": "refused", "action": "answer"}, "events_by_outcome"),
        ({"outcome": "allowed", "action": "ingest"}, "events_by_action"),
        ({"action": "answer", "until": 1_100.0}, "events_by_action"),
        ({"cache_status": "hit", "action": "answer"}, "events_by_cache_status"),
        ({"document": "d1"}, "sqlite_autoindex_event_documents_1"),
        ({"document": "d1", "actor": "u_1", "outcome": "allowed"}, "sqlite_autoindex_event_documents_1"),
        ({"document": "d1", "action": "answer", "since": 1_000.0}, "sqlite_autoindex_event_documents_1"),
    ],
    ids=str,
)
def test_the_narrowest_filter_leads_and_nothing_is_sorted(
    filled: AuditLog, statements: list[tuple[str, Any]], given_: dict[str, Any], index: str
) -> None:
    for order in ("asc", "desc"):
        statements.clear()
        with filled.database.reading() as connection:
            matching(connection, Filters(**given_), Bounds(0, SIZE), descending=order == "desc", limit=10)
            statement, parameters = statements[-1]
            plan = [row[-1] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)]
        leading = plan[0].replace("PRIMARY KEY", "sqlite_autoindex_event_documents_1")
        assert index in leading, plan
        assert not [step for step in plan if "TEMP B-TREE" in step or step.startswith("SCAN")], plan


@pytest.mark.both_storages
def test_stretches_of_time_are_kept_while_writing_and_can_be_made_anew(filled: AuditLog) -> None:
    def kept() -> list[tuple[int, float, float]]:
        with filled.database.reading() as connection:
            return [tuple(row) for row in connection.execute(spans.spans.select().order_by(spans.spans.c.at))]

    before, times = kept(), [one.time for one in stored(filled)]
    assert before == [(at, min(times[at * 8 : at * 8 + 8]), max(times[at * 8 : at * 8 + 8])) for at in range(SIZE // 8)]
    with filled.database.writing() as connection:
        connection.execute(spans.spans.delete())
        assert bounds(connection, SIZE, 1_000.0, None) == Bounds(SIZE, SIZE)
        spans.rebuild(connection)
    assert kept() == before
    with filled.database.reading() as connection:
        for edge in (times[3], times[100], times[200]):
            inside = [seq for seq, time in enumerate(times) if time >= edge]
            assert bounds(connection, SIZE, edge, None).low <= inside[0] < bounds(connection, SIZE, edge, None).low + 8
            outside = [seq for seq, time in enumerate(times) if time < edge]
            assert bounds(connection, SIZE, None, edge).high > outside[-1]


def test_the_past_of_a_log_has_its_own_root_and_nothing_beyond_it(filled: AuditLog) -> None:
    page = query_log(filled, Filters(as_of=100), limit=1)
    assert (page.head.size, page.events[0].seq) == (100, 99)
    assert page.head.root != filled.head().root
    assert query_log(filled, Filters(as_of=SIZE)).head == filled.head()
    assert query_log(filled, Filters(as_of=0)).events == ()
    for beyond in (-1, SIZE + 1, 10**30):
        with pytest.raises(InvalidInput):
            query_log(filled, Filters(as_of=beyond))
