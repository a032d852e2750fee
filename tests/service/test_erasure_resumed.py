"""Erasures that were cut short: what the next run finds, finishes and says; and what nobody else does in between."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from audit.retention import PLACED, hold_subject
from cache.stores.tables import FILE as CACHE_FILE
from service import erasure
from service.erasure import erase_user
from service.expiry import Expiry
from tenancy import database, directory, schema
from tenancy.deletion import verify
from tenancy.errors import NotFound, Unavailable
from tenancy.storage import DATA_FILE
from tests.audit.test_pruning import placed
from tests.service.house import House
from tests.support.pages import contents

NAME = "ana.zanzibari"
QUESTION = "What does the marzipan memorandum say about the notice period?"


@pytest.fixture
def house(house: House) -> House:
    house.put("acme", "notice.md", "The notice period is three months.", allow=["tenant"])
    response = house.post("/v1/answers", house.key("acme", NAME), {"query": QUESTION})
    assert response.status_code == 200, response.text
    return house


def erase(house: House, named: str) -> dict[str, Any]:
    from service.cli.console import audited

    control, store = house.services.control, house.services.path.cache
    principal = control.authenticator.operator("acme")
    return audited(control, principal, "user.erase", lambda trail: erase_user(control, store, principal, named, trail))


def cut_short(house: House, monkeypatch: pytest.MonkeyPatch, *, where: str) -> None:
    """An erasure that fails, in `service.erasure` where `where` is called."""

    def fails(*_: Any, **__: Any) -> None:
        raise Unavailable("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(erasure, where, fails)
        with pytest.raises(Unavailable):
            erase(house, NAME)


def subject_of(house: House, name: str = NAME) -> str:
    control = house.services.control
    log = control.logs.of(control.authenticator.operator("acme"))
    user = control.tenants.find_user(log.log_id, name)
    assert user is not None
    return log.subjects.ref(user)


def test_a_hold_that_comes_in_between_neither_hides_what_is_gone_nor_forgets_who_it_was(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = house.services.control
    log = control.logs.of(control.authenticator.operator("acme"))
    subject = subject_of(house)
    cut_short(house, monkeypatch, where="unlink")
    held = hold_subject(log, subject, placed, reason="case 17", by="root")
    assert PLACED in {event["action"] for event in house.events("acme")}
    receipt = erase(house, NAME)
    assert (receipt["outcome"], receipt["subject"], receipt["destroyed"]) == ("held", subject, {})
    assert list(receipt["retained"]) == ["what_was_left"]
    assert receipt["begun"] <= receipt["requested"]
    assert verify(receipt, base64.b64decode(control.tenants.public_key))
    # Where the directory has forgotten the name by then, the name finds the person all the same.
    with control.tenants.open(control.authenticator.operator("acme")).writing() as view:
        directory.delete_user(view, NAME)
    assert erase(house, NAME)["outcome"] == "held"
    log.subjects.holds.release(held.id, by="root")
    done = erase(house, NAME)
    assert (done["outcome"], done["subject"]) == ("erased", subject)
    assert done["begun"] == receipt["begun"]
    assert "not counted" in done["note"]
    with pytest.raises(NotFound, match="user receipts"):
        erase(house, NAME)


def test_a_receipt_of_one_run_says_nothing_of_an_earlier_one(house: House) -> None:
    receipt = erase(house, NAME)
    assert receipt["destroyed"]["audit_texts"]["keys"] == 1
    assert not {"begun", "note"} & receipt.keys()


def test_who_has_the_same_name_afterwards_does_not_keep_the_first_from_being_finished(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = subject_of(house)
    cut_short(house, monkeypatch, where="_destroyed")
    house._keys.clear()
    house.key("acme", NAME)
    second = subject_of(house)
    assert second != first
    assert erase(house, NAME)["subject"] == second
    log = house.services.control.logs.of(house.services.control.authenticator.operator("acme"))
    assert [one["subject"] for one in log.subjects.receipts()] == [first, second]
    (event,) = [
        event for event in house.events("acme") if event["action"] == "user.erase" and event.get("outcome") == "allowed"
    ]
    assert event["detail"]["finished"] == log.subjects.receipts(subject=first)[0]["id"]


def test_no_receipt_while_somebody_reads_a_state_of_before(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An export or a backup under way keeps the old pages in the write-ahead log."""
    monkeypatch.setattr(database, "BUSY_TIMEOUT_MS", 200)
    house = House(folder)
    with house.client:
        house.put("acme", "notice.md", "The notice period is three months.", allow=["tenant"])
        house.post("/v1/answers", house.key("acme", NAME), {"query": QUESTION})
        control = house.services.control
        tenant = control.tenants.open(control.authenticator.operator("acme"))
        path, key = tenant.directory / DATA_FILE, tenant.keys.purpose(f"file/{DATA_FILE}")
        log = control.logs.of(control.authenticator.operator("acme"))
        with tenant.reading() as view:
            assert view.execute(select(schema.users.c.name)).scalars().all()
            with pytest.raises(Unavailable, match="no receipt yet"):
                erase(house, NAME)
            assert NAME.encode() in contents(path, key)
            assert log.subjects.receipts() == []
        assert erase(house, NAME)["outcome"] == "erased"
        assert NAME.encode() not in contents(path, key)
    house.close()


def test_each_server_takes_out_of_its_own_cache_what_users_asked_who_are_gone(house: House) -> None:
    """Another server erased the user, and knows nothing of this one's file."""
    response = house.post("/v1/answers", house.key("acme", "bo"), {"query": "How long is the pistachio notice period?"})
    assert response.status_code == 200
    control, store = house.services.control, house.services.path.cache
    tenant = control.tenants.open(control.authenticator.operator("acme"))
    path, key = tenant.directory / CACHE_FILE, tenant.keys.purpose(f"file/{CACHE_FILE}")
    expiry = Expiry(control, store)
    assert expiry.step() == 0
    assert b"marzipan" in contents(path, key)
    with tenant.writing() as view:
        directory.delete_user(view, NAME)
    # It takes the tenants in turn.
    assert expiry.step() + expiry.step() == 1
    held = contents(path, key)
    assert b"marzipan" not in held
    assert b"pistachio" in held
