"""Expired answers leave the cache of every tenant in turn, whoever still asks and whosever file is damaged."""

from __future__ import annotations

import time

import pytest

from service import expiry
from service.expiry import Expiry
from tests.service.house import House

NAMES = ("alpha", "beta", "delta", "gamma")
DAY = 86_400.0


def fill(house: House) -> None:
    for name in NAMES:
        house.put(name, "notice.md", "The notice period is three months.", allow=["tenant"])
        answer = house.post("/v1/answers", house.key(name, "ana"), {"query": "How long is the notice period?"})
        assert answer.json()["citations"]


def entries(house: House, name: str) -> int:
    control = house.services.control
    tenant = control.tenants.open(control.authenticator.operator(name), suspended=True)
    return house.services.path.cache.stats(tenant).entries


def test_all_tenants_have_their_turn_and_what_has_not_expired_stays(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expiry, "TENANTS", 2)
    fill(house)
    house.key("empty", "ana")
    house.services.control.tenants.set_status("gamma", "suspended")
    store = house.services.path.cache
    rounds = Expiry(house.services.control, store)
    assert [rounds.step() for _ in range(4)] == [0, 0, 0, 0]
    assert [entries(house, name) for name in NAMES] == [1, 1, 1, 1]
    monkeypatch.setattr(store, "clock", lambda: time.time() + 2 * DAY)
    assert rounds.step() == 2
    assert [entries(house, name) for name in NAMES] == [0, 0, 1, 1]
    # Delta and the one that remembers nothing; the suspended one; then from the beginning.
    assert [rounds.step() for _ in range(3)] == [1, 1, 0]
    assert [entries(house, name) for name in NAMES] == [0, 0, 0, 0]
    tenant = house.services.control.authenticator.operator("empty").tenant_id
    assert not list((house.settings.data_path / "tenants" / tenant).glob("cache*"))


def test_a_damaged_cache_keeps_no_other_from_expiring(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(house)
    control, store = house.services.control, house.services.path.cache
    damaged = control.authenticator.operator("alpha").tenant_id
    control.tenants.storage.forget_tenant(damaged)
    for path in (house.settings.data_path / "tenants" / damaged).glob("cache*"):
        path.write_bytes(bytes(8192))
    monkeypatch.setattr(store, "clock", lambda: time.time() + 2 * DAY)
    assert Expiry(control, store).step() == len(NAMES) - 1
    assert [entries(house, name) for name in NAMES[1:]] == [0, 0, 0]
