from __future__ import annotations

import base64
import unicodedata
from collections.abc import Callable
from copy import copy
from functools import partial

import msgspec
import pytest

from audit.log import AuditLog
from audit.logs import AuditLogs
from audit.query import Filters, Page, Stored, fetch, query, query_log, view
from audit.record import Actor, CacheUse, Content, Draft, Event, Request, Resource, decode
from tenancy.errors import Forbidden, InvalidInput, NotFound
from tenancy.identity import Principal, Role
from tenancy.names import nfc_name
from tests.audit.load import draft
from tests.support.people import Company

pytestmark = pytest.mark.both_storages

Write = Callable[..., int]


@pytest.fixture
def filled(log: AuditLog) -> AuditLog:
    """Sixty records, one a second from 1000.0 on."""
    now = iter(range(1_000, 2_000))
    log._clock = lambda: float(next(now))
    statuses = ("hit", "miss", "bypass")
    for number in range(60):
        made = Draft(
            action="answer" if number % 2 else "retrieve",
            phase="outcome",
            outcome="refused" if number % 5 == 0 else "allowed",
            actor=Actor(kind="user", ref=f"u_{number % 3}"),
            request=Request(id=f"r{number}", root=f"root{number // 10}"),
            resources=(
                Resource(document=f"d{number % 4}", chunk="c0", stage="retrieved"),
                Resource(document=f"d{number % 4}", chunk="c1", stage="cited"),
            ),
            cache=CacheUse(status=statuses[number % 3], entry=f"e{number % 7}"),  # type: ignore[arg-type]
        )
        log.submit(partial(copy, made))
    log.flush()
    return log


def numbers(page: Page) -> list[int]:
    return [stored.seq for stored in page.events]


def events_of(page: Page) -> list[Event]:
    return [decode(stored.payload) for stored in page.events]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, lambda n: True),
        ({"actor": "u_1"}, lambda n: n % 3 == 1),
        ({"action": "answer"}, lambda n: n % 2 == 1),
        ({"outcome": "refused"}, lambda n: n % 5 == 0),
        ({"phase": "outcome"}, lambda n: True),
        ({"phase": "intent"}, lambda n: False),
        ({"document": "d2"}, lambda n: n % 4 == 2),
        ({"cache_status": "hit"}, lambda n: n % 3 == 0),
        ({"cache_entry": "e4"}, lambda n: n % 7 == 4),
        ({"request": "r17"}, lambda n: n == 17),
        ({"root": "root3"}, lambda n: n // 10 == 3),
        ({"since": 1030.0}, lambda n: n >= 30),
        ({"until": 1030.0}, lambda n: n < 30),
        ({"since": 1010.0, "until": 1020.0, "action": "answer", "actor": "u_2"}, lambda n: n in (11, 17)),
        ({"document": "d2", "outcome": "allowed", "cache_status": "miss"}, lambda n: n % 12 == 10 and n % 5 != 0),
        ({"actor": "ana"}, lambda n: False),
        ({"document": "d2' OR 1=1 --"}, lambda n: False),
        ({"document": "%"}, lambda n: False),
    ],
)
def test_filters_give_what_a_plain_scan_gives(
    filled: AuditLog, filters: dict[str, str], expected: Callable[[int], bool]
) -> None:
    scan = [number for number in range(60) if expected(number)]
    for order in ("asc", "desc"):
        page = query_log(filled, Filters(**filters, order=order))  # type: ignore[arg-type]
        assert numbers(page) == (scan if order == "asc" else scan[::-1])


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_pages_are_stable_while_the_log_grows(filled: AuditLog, order: str) -> None:
    filters = Filters(document="d1", order=order)  # type: ignore[arg-type]
    seen, cursor = [], None
    while True:
        page = query_log(filled, filters, limit=4, after=cursor)
        seen += numbers(page)
        assert page.head.size >= 60
        filled.append(lambda: draft("more"))
        if page.cursor is None:
            break
        cursor = page.cursor
    expected = [number for number in range(60) if number % 4 == 1]
    assert seen == (expected if order == "asc" else expected[::-1])


def test_a_cursor_is_bound_to_its_filters_and_its_log(filled: AuditLog, logs: AuditLogs, globex: Company) -> None:
    filters = Filters(action="answer")
    cursor = query_log(filled, filters, limit=5).cursor
    assert cursor is not None
    other = logs.of(globex.principal("bo"))
    other.append(lambda: draft("a"))
    data = base64.urlsafe_b64decode(cursor)
    moved = base64.urlsafe_b64encode(bytes([data[7] ^ 1]).rjust(8, b"\0") + data[8:]).decode()
    for log, used, text in [
        (filled, Filters(action="retrieve"), cursor),
        (filled, Filters(action="answer", order="asc"), cursor),
        (other, filters, cursor),
        (filled, filters, moved),
        (filled, filters, ""),
        (filled, filters, "not base64"),
        (filled, filters, "é"),
        (filled, filters, cursor + "A"),
    ]:
        with pytest.raises(InvalidInput):
            query_log(log, used, after=text)
    assert numbers(query_log(filled, filters, limit=5, after=cursor)) == [49, 47, 45, 43, 41]
    assert numbers(query_log(filled, filters, limit=1, after=cursor)) == [49]


def test_the_answer_says_which_window_and_which_state(filled: AuditLog) -> None:
    page = query_log(filled, Filters())
    assert (page.since, page.until, page.head) == (1000.0, 1059.0, filled.head())
    page = query_log(filled, Filters(since=1.0, until=1050.5))
    assert (page.since, page.until) == (1.0, 1050.5)


def test_an_empty_log_gives_an_empty_page(log: AuditLog) -> None:
    page = query_log(log, Filters())
    assert (page.events, page.cursor, page.since, page.until, page.head.size) == ((), None, None, None, 0)


@pytest.mark.parametrize("limit", [0, -1, 1001])
def test_limits_are_bounded(filled: AuditLog, limit: int) -> None:
    with pytest.raises(InvalidInput):
        query_log(filled, Filters(), limit=limit)
    assert len(query_log(filled, Filters(), limit=1000).events) == 60


@pytest.mark.parametrize(
    "bad",
    [
        {"outcome": "maybe"},
        {"phase": "x"},
        {"cache_status": "warm"},
        {"order": "random"},
        {"since": float("nan")},
        {"until": float("inf")},
        {"since": 2.0, "until": 1.0},
        {"actor": "a\0b"},
        {"document": "\ud800"},
    ],
)
def test_filters_that_no_event_can_meet_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        Filters(**bad)  # type: ignore[arg-type]
    Filters(since=1.0, until=1.0, outcome="allowed", phase="intent", cache_status="hit", order="asc")


@pytest.mark.parametrize("name", ["Q3\u00a0plan.md", "\u5831\u544a\u3000\u66f8.md", "\ue000.md", "caf\u00e9.md"])
def test_every_name_that_a_document_may_have_is_found(log: AuditLog, name: str) -> None:
    assert nfc_name(name, "document") == name
    made = msgspec.structs.replace(draft("r"), resources=(Resource(document=name, stage="written"),))
    log.append(lambda: made)
    for spelling in (name, unicodedata.normalize("NFD", name)):
        assert len(query_log(log, Filters(document=spelling)).events) == 1


def test_only_an_auditor_reads_and_only_its_own_tenant(
    logs: AuditLogs, acme: Company, globex: Company, log: AuditLog
) -> None:
    log.append(lambda: draft("acme's"))
    for role in set(Role) - {Role.AUDITOR}:
        with pytest.raises(Forbidden):
            query(acme.principal("bo", role), logs, Filters())
    assert numbers(query(acme.principal("eve", Role.AUDITOR), logs, Filters())) == [0]
    assert numbers(query(globex.principal("eve", Role.AUDITOR), logs, Filters())) == []


def test_one_event_by_number(filled: AuditLog) -> None:
    assert decode(fetch(filled, 17).payload).request.id == "r17"
    for absent in (-1, 60, 2**80):
        with pytest.raises(NotFound):
            fetch(filled, absent)


def test_an_empty_log_has_no_event(log: AuditLog) -> None:
    with pytest.raises(NotFound):
        fetch(log, 0)


def sealed_event(log: AuditLog, subject: str = "u_ana") -> Stored:
    content = Content(**log.subjects.seal(subject, {"question": "zebra?", "user": "ana"}))
    made = Draft(
        action="answer", phase="intent", actor=Actor(kind="user", ref=subject), request=Request(id="r"), content=content
    )
    return fetch(log, log.append(lambda: made))


def test_the_opened_view_shows_texts_and_the_redacted_one_does_not(log: AuditLog) -> None:
    stored = sealed_event(log)
    opened = view(stored, log.subjects)
    assert (opened["content"]["question"]["text"], opened["content"]["user"]["text"]) == ("zebra?", "ana")
    assert opened["redacted"] is False
    hidden = view(stored, None)
    assert hidden["redacted"] is True
    assert hidden["content"]["question"] == {"commit": opened["content"]["question"]["commit"], "redacted": True}
    assert set(hidden["content"]["user"]) == {"commit", "redacted"}
    assert "zebra" not in str(hidden)
    assert hidden["seq"] == opened["seq"] == 0


def test_erased_text_is_shown_as_erased(log: AuditLog) -> None:
    ana, bo = sealed_event(log), sealed_event(log, "u_bo")
    log.subjects.destroy("u_ana")
    assert set(view(ana, log.subjects)["content"]["question"]) == {"commit", "erased"}
    assert view(bo, log.subjects)["content"]["question"]["text"] == "zebra?"


def test_unreadable_text_does_not_hide_the_event(log: AuditLog) -> None:
    stored = sealed_event(log)
    other = Stored(0, stored.payload.replace(b'"ref":"u_ana"', b'"ref":"u_bob"'))
    assert view(other, log.subjects)["content"]["question"]["corrupt"] is True


def test_a_query_sees_what_this_process_submitted_before(log: AuditLog, ana: Principal, logs: AuditLogs) -> None:
    for number in range(50):
        log.submit(lambda: draft("queued"))
        assert query_log(logs.of(ana), Filters()).head.size == number + 1
