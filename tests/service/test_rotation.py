"""A server goes on when commands beside it change keys, or put an older state in a tenant's place."""

from __future__ import annotations

from pathlib import Path

from service.backup import back_up
from service.control import open_control
from service.restore import Wish, restore_tenant
from tests.service.house import MASTER, House

QUESTION = {"query": "How long is the notice period?"}
TEXT = "The notice period is three months."


def cited(house: House, key: str) -> list[str]:
    response = house.post("/v1/answers", key, QUESTION)
    assert response.status_code == 200, response.text
    return [citation["document"] for citation in response.json()["citations"]]


def test_a_changed_data_key_is_not_noticed_except_by_the_cache(house: House) -> None:
    house.put("acme", "notice.md", TEXT, allow=["tenant"])
    key = house.key("acme", "ana")
    assert cited(house, key) == cited(house, key) == ["notice.md"]
    beside = open_control(house.settings, MASTER)
    beside.tenants.rotate_key("acme")
    first = house.post("/v1/answers", key, QUESTION).json()
    assert [citation["document"] for citation in first["citations"]] == ["notice.md"]
    assert first["cache"]["status"] != "hit"
    assert house.post("/v1/answers", key, QUESTION).json()["cache"]["status"] == "hit"
    house.put("acme", "notice.md", "The notice period is one month.", allow=["tenant"])
    beside.tenants.rotate_key("acme")
    assert "one month" in house.post("/v1/answers", key, QUESTION).json()["answer"]
    beside.close()


def test_an_older_state_put_in_place_is_what_the_server_answers_from(house: House, folder: Path) -> None:
    house.put("acme", "notice.md", TEXT, allow=["tenant"])
    key = house.key("acme", "ana")
    beside = open_control(house.settings, MASTER)
    back_up(beside, "acme", folder / "b")
    house.put("acme", "notice.md", "The notice period is one month.", allow=["tenant"])
    house.put("acme", "extra.md", "The notice period of the director is a year.", allow=["tenant"])
    assert set(cited(house, key)) == {"notice.md", "extra.md"}
    beside.tenants.set_status("acme", "suspended")
    restore_tenant(beside, folder / "b", Wish(replace=True))
    beside.tenants.set_status("acme", "active")
    found = house.post("/v1/answers", key, QUESTION).json()
    assert [citation["document"] for citation in found["citations"]] == ["notice.md"]
    assert "three months" in found["answer"]
    # The server writes on in the restored state, under numbers that it has not seen.
    house.put("acme", "again.md", "The notice period of the clerk is a week.", allow=["tenant"])
    fresh = house.post("/v1/answers", key, {**QUESTION, "cache": "bypass"}).json()
    assert {citation["document"] for citation in fresh["citations"]} == {"notice.md", "again.md"}
    beside.close()
