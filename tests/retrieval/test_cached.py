"""A stored answer is checked again once it is on record and before its first byte; what changed meanwhile is a miss."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from audit.query import Filters, query_log
from audit.record import Event, decode
from audit.verify import verify
from cache.openings import open_template
from cache.policy import CachePolicy
from cache.stores.local import LocalStore
from cache.stores.selector import Selector
from indexing.documents import delete_document
from tenancy import directory, pauses
from tenancy.errors import TenantSuspended
from tenancy.identity import Principal
from tests.cache.desk import Clock
from tests.support.path import Path, open_path
from tests.support.people import NOW, Company

NOTICE = "Notice periods. The notice period for employees is three months to the end of a quarter."
ASKED = "What is the notice period for employees?"
PARAPHRASE = "Which notice period is there for employees?"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def path(acme: Company, clock: Clock) -> Iterator[Path]:
    acme.member("staff", "user:bo")
    with open_path(acme.tenants, cache=LocalStore(CachePolicy(), clock=clock)) as opened:
        opened.put(acme.handle, "notice.txt", NOTICE, "group:staff")
        # Both labels stay in use, so that bo's domain survives a change of the notice.
        opened.put(acme.handle, "canteen.txt", "The canteen opens at noon.", "group:staff")
        opened.put(acme.handle, "board.txt", "Minutes of the board.", "group:board")
        with acme.handle.writing() as view:
            open_template(view, "default", threshold=0.5, opened_by="operator", reason="test", now=NOW)
        yield opened


@pytest.fixture
def bo(acme: Company) -> Principal:
    return acme.principal("bo")


@pytest.fixture
def at_hit() -> Iterator[Callable[[Callable[[], None]], list[str]]]:
    """Do something once, between the intent of a hit and its last check; returns the points that were reached."""
    reached: list[str] = []

    def arm(change: Callable[[], None]) -> list[str]:
        def hold(point: pauses.Point) -> None:
            reached.append(point)
            if point == "hit" and reached.count("hit") == 1:
                change()

        pauses.hold_at(hold)
        return reached

    yield arm
    pauses.hold_at(None)


def events(path: Path, principal: Principal) -> list[Event]:
    page = query_log(path.logs.of(principal), Filters(order="asc"), limit=1000)
    return [decode(stored.payload) for stored in page.events]


def _update(path: Path, acme: Company, clock: Clock) -> None:
    path.put(acme.handle, "notice.txt", NOTICE.replace("three", "four"), "group:staff")


def _delete(path: Path, acme: Company, clock: Clock) -> None:
    delete_document(acme.handle, "notice.txt", 0.0)


def _revoke(path: Path, acme: Company, clock: Clock) -> None:
    acme.access("notice.txt", allow=["group:board"])


def _deny(path: Path, acme: Company, clock: Clock) -> None:
    acme.access("notice.txt", allow=["group:staff"], deny=["user:bo"])


def _leave(path: Path, acme: Company, clock: Clock) -> None:
    acme.leave("staff", "user:bo")


def _join(path: Path, acme: Company, clock: Clock) -> None:
    acme.member("board", "user:bo")


def _expire(path: Path, acme: Company, clock: Clock) -> None:
    clock.now += 86_400


def _invalidate(path: Path, acme: Company, clock: Clock) -> None:
    path.path.cache.invalidate(acme.handle, Selector(template="default"))


def _erase(path: Path, acme: Company, clock: Clock) -> None:
    with acme.handle.reading() as view:
        user = directory.find_user(view, "bo")
    path.path.cache.invalidate(acme.handle, Selector(user=user))


@pytest.mark.parametrize("asked", [ASKED, PARAPHRASE], ids=["exact", "semantic"])
@pytest.mark.parametrize(
    ("change", "reason", "again"),
    [
        (_update, "changed", "four months"),
        (_delete, "changed", None),
        (_revoke, "changed", None),
        (_deny, "stale_domain", None),
        (_leave, "stale_domain", None),
        (_join, "stale_domain", "three months"),
        (_expire, "expired", "three months"),
        (_invalidate, "gone", "three months"),
        (_erase, "gone", "three months"),
    ],
)
def test_what_changes_between_the_record_and_the_first_byte_is_not_served(
    path: Path,
    acme: Company,
    clock: Clock,
    bo: Principal,
    at_hit: Callable[[Callable[[], None]], list[str]],
    asked: str,
    change: Callable[[Path, Company, Clock], None],
    reason: str,
    again: str | None,
) -> None:
    path.ask(bo, ASKED)
    reached = at_hit(lambda: change(path, acme, clock))
    found = path.ask(bo, asked)
    assert reached.count("hit") == 1
    assert found.cache.status == "miss"
    assert ("three months" in found.text) is (again == "three months")
    assert (again in found.text) if again else (found.finish == "abstain")
    withdrawn, answered = [event for event in events(path, bo) if event.phase == "outcome"][-2:]
    assert (withdrawn.outcome, withdrawn.reason, answered.outcome) == ("revoked", reason, "allowed")
    assert withdrawn.request.id == answered.request.id
    assert withdrawn.cache is not None
    assert withdrawn.cache.status == "hit"
    assert found.audit_seq == answered.intent
    intent = next(event for event in events(path, bo) if event.seq == answered.intent)
    assert intent.content is not None
    assert intent.content.question is not None
    assert not any(resource.stage == "replayed" for resource in intent.resources)
    assert verify(path.logs.of(bo)).ok


@pytest.mark.parametrize("asked", [ASKED, PARAPHRASE], ids=["exact", "semantic"])
def test_what_does_not_change_is_served_from_one_intent(
    path: Path, bo: Principal, at_hit: Callable[[Callable[[], None]], list[str]], asked: str
) -> None:
    path.ask(bo, ASKED)
    reached = at_hit(lambda: None)
    found = path.ask(bo, asked)
    assert found.cache.status == "hit"
    assert [point for point in reached if point.startswith("hit")] == ["hit", "hit-checked"]
    assert [event.phase for event in events(path, bo)][-2:] == ["intent", "outcome"]
    assert len(events(path, bo)) == 4


def test_a_tenant_that_is_suspended_meanwhile_gets_nothing(
    path: Path, acme: Company, bo: Principal, at_hit: Callable[[Callable[[], None]], list[str]]
) -> None:
    path.ask(bo, ASKED)
    at_hit(lambda: acme.tenants.set_status("acme", "suspended"))
    with pytest.raises(TenantSuspended):
        path.ask(bo, ASKED)
    acme.tenants.set_status("acme", "active")
    assert path.ask(bo, ASKED).cache.status == "hit", "hits resume"


def test_a_hit_resumes_once_access_is_given_back(
    path: Path, acme: Company, bo: Principal, at_hit: Callable[[Callable[[], None]], list[str]]
) -> None:
    path.ask(bo, ASKED)
    at_hit(lambda: acme.access("notice.txt", allow=["group:board"]))
    assert path.ask(bo, ASKED).finish == "abstain"
    acme.access("notice.txt", allow=["group:staff"])
    assert path.ask(bo, ASKED).cache.status == "hit"
