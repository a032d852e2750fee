"""Limits, weights and objectives of contracts, kept and broken on purpose."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from admission.fair import Party
from service.attest import conformance, promises
from service.attest.claims import Layer
from service.metrics.judge import _draft
from service.metrics.objectives import Breach
from tenancy.billing import UsageTerms
from tenancy.contract import Contract
from tenancy.limits import Limits, TenantLimits
from tenancy.objectives import Objectives
from tests.attest.place import Place, claim, plain, verdicts

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

AGREED = Contract(
    weight=4, admission=TenantLimits(user=Limits(concurrent=3)), objectives=Objectives(p99_s=30.0, availability=0.9)
)


@contextmanager
def agreed(place: Place, contract: Contract) -> Iterator[None]:
    place.control.tenants.set_contract("acme", contract)
    try:
        yield
    finally:
        place.control.tenants.set_contract("acme", Contract())


def examined(place: Place) -> Layer:
    return conformance.examine(place.control, ["acme"])


def test_what_is_agreed_and_kept_passes(place: Place) -> None:
    with agreed(place, AGREED):
        said = verdicts(examined(place))
    assert said["limits are those agreed"] == "PASS"
    assert said["shares of a queue are by the weights agreed"] == "PASS"
    assert said["objectives agreed were met in the last 30 days"] == "PASS"
    assert said["limits on money are limits on something that has a price"] == "NOT BUILT"
    assert verdicts(examined(place))["objectives agreed were met in the last 30 days"] == "NOT BUILT"


def test_limits_of_the_deployment_in_their_place_fail_it(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Contract, "limits", lambda _, deployment: deployment)
    with agreed(place, AGREED):
        found = examined(place)
    assert claim(found, "limits are those agreed").verdict == "FAIL", plain(found)


def test_a_limit_on_money_where_all_is_free_fails_it(place: Place) -> None:
    limited = TenantLimits(tenant=Limits(money_per_month=1_000))
    with agreed(place, Contract(admission=limited)):
        found = examined(place)
    assert claim(found, "has a price").verdict == "FAIL", plain(found)
    with agreed(place, Contract(admission=limited, usage=UsageTerms(prices="example"))):
        found = examined(place)
    assert claim(found, "has a price").verdict == "PASS", plain(found)


def test_a_queue_without_weights_fails_it(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(promises, "Party", lambda tenant, user, _weight=1.0: Party(tenant, user))
    with agreed(place, AGREED):
        found = examined(place)
    assert claim(found, "by the weights").verdict == "FAIL", plain(found)


def test_an_objective_that_was_missed_fails_it(place: Place) -> None:
    now = time.time()
    with agreed(place, AGREED):
        log = place.control.logs.of(place.control.authenticator.operator("acme"))
        log.append(partial(_draft, Breach("p99_s", 30.0, 41.0, 200, now - 300, now)))
        found = examined(place)
    assert claim(found, "objectives agreed").verdict == "FAIL", plain(found)
