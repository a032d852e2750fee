"""What POST /v1/retrieve shows of passages: snippets, highlights, and copies behind what is new."""

from __future__ import annotations

from tests.service.house import House

NOTICE = "The cafeteria is open until four. The notice period is three months."


def test_snippets_and_highlights_are_where_they_say(house: House) -> None:
    house.put("acme", "a.md", f"# Work\n\n{NOTICE}", allow=["tenant"])
    house.put("acme", "zh.md", "通知期限为三个月。", allow=["tenant"])
    key = house.key("acme", "ana")
    for query, wanted in (("What is the notice period?", {"notice", "period"}), ("通知期限", {"通知期限"})):
        (best, *_) = house.post("/v1/retrieve", key, {"query": query}).json()["passages"]
        marked = [best["text"][one["start"] - best["start"] : one["end"] - best["start"]] for one in best["highlights"]]
        assert set(marked) == wanted
        assert best["start"] <= best["snippet"]["start"] < best["snippet"]["end"] <= best["end"]


def test_copies_do_not_push_out_what_else_there_is(house: House) -> None:
    for number in range(3):
        house.put("acme", f"copy{number}.md", NOTICE, allow=["tenant"])
    house.put("acme", "other.md", "Whoever leaves gives notice in writing.", allow=["tenant"])
    key = house.key("acme", "ana")
    found = house.post("/v1/retrieve", key, {"query": "notice", "top_k": 2}).json()["passages"]
    assert "other.md" in {one["document"] for one in found}
    found = house.post("/v1/retrieve", key, {"query": "notice", "top_k": 4}).json()["passages"]
    assert len(found) == 4


def test_a_copy_that_the_caller_may_not_read_hides_nothing(house: House) -> None:
    house.put("acme", "a-secret.md", NOTICE, allow=["user:bo"])
    house.put("acme", "b-open.md", NOTICE, allow=["tenant"])
    found = house.post("/v1/retrieve", house.key("acme", "ana"), {"query": "notice period", "top_k": 1}).json()
    assert [one["document"] for one in found["passages"]] == ["b-open.md"]
