"""The model's context length, from the settings of a pool to the answer."""

from __future__ import annotations

from pathlib import Path

from tests.service.house import House, problem

NOTICE = "The notice period for employees is three months."
QUESTION = "How long is the notice period?"
HISTORY = [{"role": role, "content": f"{at} " + "leave " * 120} for at in range(3) for role in ("user", "assistant")]


def test_a_long_conversation_is_cut_and_said_so_and_a_long_question_refused(folder: Path) -> None:
    pools = '{default = {kind = "extractive", context_length = 900}}'
    house = House(folder, STRONGROOM_GENERATION__POOLS=pools)
    with house.client:
        house.put("acme", "notice.md", NOTICE, allow=["tenant"])
        key = house.key("acme", "ana")
        body = {"query": QUESTION, "max_tokens": 60}
        assert house.post("/v1/answers", key, body).json()["warnings"] == []
        long = house.post("/v1/answers", key, {**body, "history": HISTORY}).json()
        assert long["warnings"] == ["history-cut"]
        assert "three months" in long["answer"]
        cut = house.events("acme")[-1]["detail"]["history_cut"]
        assert 0 < cut < len(HISTORY)
        refused = house.post("/v1/answers", key, {**body, "query": "notice " * 1_000})
        assert problem(refused, 422, "invalid-input")["item"] == "query"
    house.close()


def test_nothing_is_cut_where_the_length_is_not_known(folder: Path) -> None:
    house = House(folder)
    with house.client:
        house.put("acme", "notice.md", NOTICE, allow=["tenant"])
        body = {"query": QUESTION, "max_tokens": 60, "history": HISTORY}
        assert house.post("/v1/answers", house.key("acme", "ana"), body).json()["warnings"] == []
        assert "history_cut" not in house.events("acme")[-1].get("detail", {})
    house.close()
