"""Audit and cache over HTTP."""

from __future__ import annotations

import pytest

from retrieval.question import PathSettings
from tenancy.identity import Role
from tests.service.house import House, problem

QUESTION = {"query": "How long is the notice period?"}


@pytest.fixture
def auditor(house: House) -> str:
    house.put("acme", "notice.md", "The notice period is three months.", allow=["tenant"])
    for user in ("ana", "bo"):
        house.post("/v1/answers", house.key("acme", user), QUESTION)
    return house.key("acme", "audit", Role.AUDITOR)


def test_an_auditor_sees_who_asked_what_and_what_was_shown(house: House, auditor: str) -> None:
    page = house.get("/v1/audit/events?action=answer&phase=intent&order=asc", auditor).json()
    users = [event["content"]["user"]["text"] for event in page["events"]]
    assert users == ["ana", "bo"]
    assert page["events"][0]["content"]["question"]["text"] == QUESTION["query"]
    assert [event["cache"]["status"] for event in page["events"]] == ["miss", "hit"]
    (settings,) = {event["policy"]["config"] for event in page["events"]}
    assert settings == house.services.path.settings.revision != PathSettings(top_k=3).revision
    assert PathSettings(top_k=3).revision == PathSettings(top_k=3).revision
    assert page["checkpoint"]["size"] > len(page["events"])
    assert page["since"] <= page["until"]


def test_filters_narrow_and_the_cursor_goes_on(house: House, auditor: str) -> None:
    everything = house.get("/v1/audit/events?order=asc", auditor).json()["events"]
    assert [event["seq"] for event in everything] == list(range(len(everything)))
    by_bo = house.get("/v1/audit/events?actor=bo", auditor).json()["events"]
    assert {event["actor"]["ref"] for event in by_bo} == {by_bo[0]["actor"]["ref"]}
    assert house.get(f"/v1/audit/events?actor={by_bo[0]['actor']['ref']}", auditor).json()["events"] == by_bo
    hits = house.get("/v1/audit/events?cache.status=hit", auditor).json()["events"]
    assert {event["cache"]["status"] for event in hits} == {"hit"}
    touched = house.get("/v1/audit/events?document=notice.md&limit=1", auditor).json()
    assert len(touched["events"]) == 1
    rest = house.get("/v1/audit/events", auditor, params={"document": "notice.md", "after": touched["after"]}).json()
    assert rest["events"][0]["seq"] < touched["events"][0]["seq"]
    other = house.get("/v1/audit/events", auditor, params={"document": "x", "after": touched["after"]})
    problem(other, 422, "invalid-input")
    one = house.get("/v1/audit/events/0", auditor).json()
    assert one["seq"] == 0
    problem(house.get("/v1/audit/events/99999", auditor), 404, "not-found")


@pytest.mark.parametrize(
    ("parameters", "status", "code"),
    [
        ("limit=0", 422, "invalid-input"),
        ("limit=1001", 422, "invalid-input"),
        ("limit=many", 422, "invalid-input"),
        ("since=yesterday", 422, "invalid-input"),
        ("since=2026-01-02&until=2026-01-01", 422, "invalid-input"),
        ("outcome=fine", 422, "invalid-input"),
        ("order=up", 422, "invalid-input"),
        ("actor=nobody", 404, "not-found"),
        ("after=zzz", 422, "invalid-input"),
        ("resource=x", 400, "unknown-parameter"),
        ("tenant=globex", 403, "forbidden"),
    ],
)
def test_a_bad_filter_is_never_ignored(shared: House, parameters: str, status: int, code: str) -> None:
    problem(shared.get(f"/v1/audit/events?{parameters}", shared.key("acme", "audit", Role.AUDITOR)), status, code)


def test_another_tenants_log_is_another_log(house: House, auditor: str) -> None:
    other = house.key("globex", "eve", Role.AUDITOR)
    events = house.get("/v1/audit/events", other).json()["events"]
    assert [event["action"] for event in events] == ["audit.query"]
    problem(house.get("/v1/audit/events?actor=bo", other), 404, "not-found")


def test_an_administrator_sees_entries_without_their_text_and_removes_them(house: House, auditor: str) -> None:
    admin = house.key("acme", "root", Role.ADMIN)
    response = house.get("/v1/cache/entries", admin)
    (entry,) = response.json()["entries"]
    assert "notice" not in response.text
    assert entry["documents"] == 1
    problem(house.send("DELETE", "/v1/cache/entries", admin), 422, "invalid-input")
    problem(house.send("DELETE", "/v1/cache/entries?document=none", admin), 404, "not-found")
    assert house.send("DELETE", "/v1/cache/entries?entry=ce_other", admin).json() == {"removed": 0}
    assert house.send("DELETE", "/v1/cache/entries?user=bo", admin).json() == {"removed": 0}
    assert house.send("DELETE", "/v1/cache/entries?document=notice.md", admin).json() == {"removed": 1}
    assert house.get("/v1/cache/entries", admin).json()["entries"] == []
    last = house.events("acme")[-3]
    assert (last["action"], last["detail"]["removed"]) == ("cache.invalidate", 1)
