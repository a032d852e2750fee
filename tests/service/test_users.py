"""Deleting a user: credentials, memberships and what the cache remembers of the user's questions go; others' stays."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select
from structlog.testing import capture_logs

from cache.certificate import evidence
from cache.certificate.evidence import Judged, Place
from cache.certificate.reports import asker_of
from cache.stores.local import LocalStore
from cache.stores.port import CacheStore
from cache.stores.selector import Selector
from service.cli import run
from service.cli.console import audited
from service.erasure import erase_user
from service.users import delete_user
from tenancy import directory, schema
from tenancy.errors import NotFound, Unavailable
from tenancy.identity import Role
from tests.cache.conformance.rig import running
from tests.service.house import House

QUESTION = {"query": "How long is the notice period?"}
MEMO = "The zanzibar memorandum says so."
SECRET = "What does the zanzibar memorandum say about the notice period?"


class Nobody:
    """A trail of which only the log is needed."""

    def __init__(self, house: House) -> None:
        control = house.services.control
        self.log = control.logs.of(control.authenticator.operator("acme"))
        self.detail: dict[str, Any] = {}

    def note(self, *, detail: dict[str, Any]) -> None:
        self.detail |= detail


@pytest.fixture(params=["local", "redis"])
def acme(request: pytest.FixtureRequest, folder: Path) -> Iterator[House]:
    """A company whose answers are remembered in files, and one with Redis, which keeps a log of its own."""
    with ExitStack() as stack:
        environment = {}
        if request.param == "redis":
            server = stack.enter_context(running(folder / "redis", persistent=True))
            environment = {
                "STRONGROOM_CACHE__STORE": "redis",
                "STRONGROOM_CACHE__REDIS__URL": server.url,
                "STRONGROOM_CACHE__REDIS__PASSWORD_FILE": str(server.password_file),
                "STRONGROOM_CACHE__REDIS__TIMEOUT_S": "10",
            }
        found = House(folder, **environment)
        stack.callback(found.close)
        stack.enter_context(found.client)
        found.put("acme", "notice.md", f"The notice period is three months. {MEMO}", allow=["tenant"])
        for user in ("ana", "bo"):
            found.key("acme", user)
        yield found


def asked(house: House, user: str, query: dict[str, Any] | None = None) -> dict[str, Any]:
    response = house.post("/v1/answers", house.key("acme", user), query or QUESTION)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def delete(house: House, user: str) -> tuple[Any, dict[str, Any]]:
    control = house.services.control
    trail = Nobody(house)
    principal = control.authenticator.operator("acme")
    return delete_user(control.tenants, house.services.path.cache, principal, user, trail), trail.detail  # type: ignore[arg-type]


def traces(house: House, user_id: str) -> int:
    """Cells of the tenant's database with the keyed hash of a person, as bytes or in hexadecimal."""
    tenant = house.services.control.tenants.open(house.services.control.authenticator.operator("acme"))
    known = asker_of(tenant, user_id)
    with tenant.reading() as view:
        rows = [row for table in schema.tenant.sorted_tables for row in view.execute(select(table)).all()]
    cells = [cell for row in rows for cell in row]
    return sum(known.hex() in cell if isinstance(cell, str) else cell == known for cell in cells)


def test_no_hash_of_a_deleted_user_stays_in_the_evidence(acme: House) -> None:
    control = acme.services.control
    tenant = control.tenants.open(control.authenticator.operator("acme"))
    with tenant.writing() as view:
        users = {name: directory.find_user(view, name) for name in ("ana", "bo")}
        for number, user in enumerate(users.values()):
            assert user is not None
            place = Place("default", "lv_1", "ns_1", 0.01)
            judged = Judged("uniform", "same", "", f"ce_{number}", asker=asker_of(tenant, user).hex())
            evidence.record(view, place, judged, 1.0)
    for name in users:
        answer = asked(acme, name)["request_id"]
        told = acme.post("/v1/feedback", acme.key("acme", name), {"answer_id": answer, "verdict": "good"})
        assert told.status_code == 200
    assert [traces(acme, user) for user in users.values() if user] == [2, 2]
    delete(acme, "ana")
    assert [traces(acme, user) for user in users.values() if user] == [0, 2]
    with tenant.reading() as view:
        assert evidence.counts(view, place).n == 2


def test_a_deleted_users_answers_keys_and_rights_are_gone_and_others_stay(acme: House) -> None:
    asked(acme, "ana", {"query": SECRET})
    asked(acme, "bo")
    assert asked(acme, "ana")["cache"]["status"] == "hit"
    assert asked(acme, "bo", {"query": SECRET})["cache"]["status"] == "hit"
    deleted, detail = delete(acme, "ana")
    assert (deleted.entries, deleted.keys) == (1, 1)
    assert detail["user"].startswith("u_")
    assert "ana" not in detail.values()
    assert acme.post("/v1/answers", acme.key("acme", "ana"), QUESTION).status_code == 401
    assert asked(acme, "bo")["cache"]["status"] == "hit"
    again = asked(acme, "bo", {"query": SECRET})
    assert (again["cache"]["status"], "three months" in again["answer"]) == ("miss", True)
    # Now it is bo's question, and is remembered as such.
    assert asked(acme, "bo", {"query": SECRET})["cache"]["status"] == "hit"
    with pytest.raises(NotFound):
        delete(acme, "ana")


def test_what_a_crash_left_of_a_deleted_users_answers_is_not_served(acme: House) -> None:
    asked(acme, "ana", {"query": SECRET})
    handle = acme.services.control.tenants.open(acme.services.control.authenticator.operator("acme"))
    assert asked(acme, "bo", {"query": SECRET})["cache"]["status"] == "hit"
    with handle.writing() as view:
        directory.delete_user(view, "ana")
    assert len(acme.services.path.cache.inspect(handle)) == 1
    assert asked(acme, "bo", {"query": SECRET})["cache"]["status"] == "miss"
    refused = [event["cache"] for event in acme.events("acme") if event.get("cache", {}).get("status") == "miss"]
    assert refused[-1]["reason"] == "the user whose question it answers was deleted"
    assert refused[-1]["entry"].startswith("ce_")


def test_where_the_cache_is_away_nothing_is_deleted_yet(acme: House, monkeypatch: pytest.MonkeyPatch) -> None:
    asked(acme, "ana")

    def away(self: CacheStore, tenant: object, selector: Selector) -> int:
        raise Unavailable("the cache is out of reach")

    with monkeypatch.context() as patched:
        patched.setattr(type(acme.services.path.cache), "invalidate", away)
        with pytest.raises(Unavailable):
            delete(acme, "ana")
    assert asked(acme, "ana")["cache"]["status"] == "hit"
    assert delete(acme, "ana")[0].entries == 1


def test_no_file_holds_the_text_of_a_question_before_or_after_its_erasure(acme: House, folder: Path) -> None:
    canary = "zanzibar memorandum"
    with capture_logs() as logs:
        asked(acme, "ana", {"query": SECRET})
        assert asked(acme, "bo", {"query": SECRET})["cache"]["status"] == "hit"
        assert found_in(folder, canary) == []
        handle = acme.services.control.tenants.open(acme.services.control.authenticator.operator("acme"))
        log = handle.directory / "cache.sqlite-wal"
        local = isinstance(acme.services.path.cache, LocalStore)
        assert not local or log.stat().st_size > 0
        assert delete(acme, "ana")[0].entries == 1
        # The write-ahead log had the page with the question: it is empty now, and its page was overwritten.
        assert not local or log.stat().st_size == 0
        assert found_in(folder, canary) == []
    assert "zanzibar" not in json.dumps(logs, default=str)
    # The control: what is written in the clear is found, also by the server that keeps the cache.
    (folder / "note").write_text(SECRET)
    if not local:
        acme.services.path.cache.link.call(lambda client: client.set("note", SECRET))  # type: ignore[attr-defined]
    found = found_in(folder, canary)
    assert "note" in found
    assert len(found) == (1 if local else 2)


def test_every_entry_of_a_user_goes_by_the_operators_word_alone(acme: House) -> None:
    """`cache invalidate --user`: the user stays, and asks on."""
    asked(acme, "ana", {"query": SECRET})
    asked(acme, "bo")
    response = acme.send("DELETE", "/v1/cache/entries?user=ana", acme.key("acme", "root", Role.ADMIN))
    assert (response.status_code, response.json()) == (200, {"removed": 1})
    assert asked(acme, "bo")["cache"]["status"] == "hit"
    assert asked(acme, "ana", {"query": SECRET})["cache"]["status"] == "miss"


def test_an_erased_users_answers_go_wherever_they_are_remembered(acme: House) -> None:
    asked(acme, "ana", {"query": SECRET})
    asked(acme, "bo")
    control, store = acme.services.control, acme.services.path.cache
    principal = control.authenticator.operator("acme")
    receipt = audited(
        control, principal, "user.erase", lambda trail: erase_user(control, store, principal, "ana", trail)
    )
    assert receipt["destroyed"]["cache_entries"] == {"count": 1, "where": f"cache ({store.health().kind})"}
    assert "zanzibar" not in json.dumps(acme.events("acme"))
    assert [entry.question for entry in store.inspect(control.tenants.open(principal))] == [QUESTION["query"]]
    assert asked(acme, "bo")["cache"]["status"] == "hit"


def found_in(folder: Path, text: str) -> list[str]:
    """The files with `text` in UTF-8 or UTF-16 in them."""
    forms = (text.encode(), text.encode("utf-16-le"))
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    assert len(files) > 5
    return [path.name for path in files if any(form in path.read_bytes() for form in forms)]


def test_the_command_deletes_and_says_what_went(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setenv("STRONGROOM_DATA_DIR", str(folder / "data"))
    monkeypatch.setenv("STRONGROOM_MASTER_KEY_FILE", str(folder / "master.key"))
    monkeypatch.setenv("STRONGROOM_EMBEDDING__MODEL", "hashing:256")
    run(["doctor", "--create-master-key"])
    run(["tenant", "create", "acme"])
    run(["key", "create", "--tenant", "acme", "--user", "ana"])
    (folder / "notice.md").write_text("The notice period is three months.")
    run(["ingest", "--tenant", "acme", str(folder / "notice.md"), "--allow", "tenant"])
    run(["ask", QUESTION["query"], "--tenant", "acme", "--user", "ana"])
    capsys.readouterr()
    assert run(["user", "delete", "ana", "--tenant", "acme", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"user": "ana", "deleted": True, "keys": 1, "entries": 1}
    assert run(["user", "delete", "ana", "--tenant", "acme"]) == 1
    run(["audit", "query", "--tenant", "acme", "--action", "user.delete", "--json"])
    events = json.loads(capsys.readouterr().out)["events"]
    assert [event["outcome"] for event in events if event["phase"] == "outcome"] == ["refused", "allowed"]
