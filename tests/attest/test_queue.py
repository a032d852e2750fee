"""The queue's layer against a served house, whole and broken on purpose."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from admission import gate, local
from admission.counters import Refused
from admission.scopes import Scope
from service.attest import queue
from service.attest.stage import Stage
from tenancy.errors import LimitExceeded
from tests.attest.place import Place, claim, plain, staged

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def fresh(place: Place) -> Iterator[Stage]:
    """Canaries that nobody asked yet."""
    with staged(place) as stage:
        yield stage


def test_it_passes(fresh: Stage) -> None:
    found = queue.examine(fresh)
    assert found.verdict == "PASS", plain(found)
    assert all(one.probes >= 2 and one.held == one.controls > 0 for one in found.claims), plain(found)


def test_tenants_that_share_a_counter_fail_it(fresh: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "tenant_scope", lambda _: Scope("tenant", "all", "all"))
    found = queue.examine(fresh)
    assert claim(found, "use up nothing").verdict == "FAIL", plain(found)
    assert claim(found, "waits or runs").verdict == "FAIL", plain(found)


def test_a_limit_of_one_that_another_meets_fails_it(fresh: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reaches a limit closes the service for everybody."""
    original, closed = local._refusal, []

    def refused(*given: object, **more: object) -> Refused | None:
        found = original(*given, **more)  # type: ignore[arg-type]
        closed.extend([] if found is None else [found])
        return closed[0] if closed else None

    monkeypatch.setattr(local, "_refusal", refused)
    found = queue.examine(fresh)
    assert claim(found, "and no other").verdict == "FAIL", plain(found)


def test_a_refusal_that_names_another_tenant_fails_it(fresh: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    other = fresh.right.name
    monkeypatch.setattr(
        gate, "refusal", lambda one: LimitExceeded(f"waits for {other}", scope=one.scope.kind, retry_after=1.0)
    )
    found = queue.examine(fresh)
    assert claim(found, "names nothing").verdict == "FAIL", plain(found)
    assert other not in plain(found)


def test_limits_that_nobody_keeps_show_nothing(fresh: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_refusal", lambda *_, **__: None)
    found = queue.examine(fresh)
    assert claim(found, "and no other").verdict == "INCONCLUSIVE", plain(found)
    assert claim(found, "names nothing").verdict == "INCONCLUSIVE", plain(found)
