"""Guard rails over HTTP: statuses, codes, streams and their ends, in both forms; and contracts that name them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from generation.guardrails import stages
from tenancy.contract import Contract, GenerationTerms, GuardTerms, check_contract, read_contract
from tenancy.errors import InvalidInput
from tests.service.house import House, problem, stream_events

NOTICE = (
    "The notice period of employees is three months, says bob@example.com. "
    "For the notice period of directors a stock tip is no reason."
)
ASKED = "How long is the notice period of employees?"
BLOCKED = {"shares": ["stock tip", "内幕消息"]}


@pytest.fixture
def ana(house: House) -> str:
    house.put("acme", "notice.md", NOTICE, allow=["tenant"])
    return house.key("acme", "ana")


def agree(house: House, **terms: Any) -> None:
    guards = GuardTerms(**terms)
    house.services.control.tenants.set_contract("acme", Contract(generation=GenerationTerms(guards=guards)))


def chat(content: str, **more: Any) -> dict[str, Any]:
    return {"model": "extractive-1", "messages": [{"role": "user", "content": content}], **more}


def test_a_blocked_question_is_403_and_names_the_topic_alone(house: House, ana: str) -> None:
    agree(house, blocked=BLOCKED)
    refused = house.post("/v1/answers", ana, {"query": "有内幕消息吗?"})
    assert problem(refused, 403, "blocked-topic")["item"] == "shares"
    assert "内幕" not in refused.text
    streamed = house.post("/v1/answers", ana, {"query": "any stock tips?", "stream": True})
    problem(streamed, 403, "blocked-topic")
    assert house.post("/v1/answers", ana, {"query": ASKED}).status_code == 200
    for stream in (False, True):
        answered = house.post("/v1/chat/completions", ana, chat("any stock tips?", stream=stream))
        assert answered.status_code == 403
        assert answered.json()["error"]["code"] == "blocked_topic"
        assert answered.json()["error"]["param"] == "shares"
    event = house.events("acme")[-1]
    assert (event["outcome"], event["detail"]["rail_question"]) == ("refused", "refused")


def test_a_blocked_answer_ends_in_an_error(house: House, ana: str) -> None:
    agree(house, blocked=BLOCKED)
    query = "What is no reason for the notice period of directors?"
    whole = house.post("/v1/answers", ana, {"query": query})
    problem(whole, 403, "blocked-answer")
    assert "stock" not in whole.text
    events = list(stream_events(house.post("/v1/answers", ana, {"query": query, "stream": True}).text))
    assert [name for name, _ in events] == ["delta", "error"]
    assert events[0][1]["text"].endswith("directors a ")
    assert events[-1][1]["code"] == "blocked-answer"
    completion = house.post("/v1/chat/completions", ana, chat(query, stream=True)).text
    assert "stock" not in completion
    assert "blocked_answer" in completion
    assert "[DONE]" not in completion
    agree(house)
    assert "stock tip" in house.post("/v1/answers", ana, {"query": query}).json()["answer"]


def test_masked_data_leaves_in_no_form(house: House, ana: str) -> None:
    def everything() -> str:
        bodies: list[dict[str, Any]] = [{}, {}, {"stream": True, "cache": "refresh"}, {"stream": True}]
        texts = [house.post("/v1/answers", ana, {"query": ASKED, **body}).text for body in bodies]
        return "".join(texts) + house.post("/v1/chat/completions", ana, chat(ASKED)).text

    assert "bob@example.com" in everything()
    agree(house, mask_output=["email"])
    masked = everything()
    assert "example.com" not in masked
    assert masked.count("[email removed]") >= 10
    hit = house.post("/v1/answers", ana, {"query": ASKED}).json()
    assert hit["cache"]["status"] == "hit"
    (citation,) = hit["citations"]
    assert "bob@example.com" in NOTICE[citation["start"] : citation["end"]]
    passages = house.post("/v1/retrieve", ana, {"query": ASKED}).json()["passages"]
    assert passages[0]["text"] == NOTICE


def test_a_rail_that_breaks_is_503(house: House, ana: str, monkeypatch: pytest.MonkeyPatch) -> None:
    agree(house, mask_output=["email"])

    def broken(*args: object, **kwargs: object) -> Any:
        raise RuntimeError("bob@example.com")

    monkeypatch.setattr(stages, "runs", broken)
    refused = house.post("/v1/answers", ana, {"query": ASKED})
    assert problem(refused, 503, "rail-failed")["item"] == "mask_output"
    assert "bob" not in refused.text
    event = house.events("acme")[-1]
    assert (event["outcome"], event["detail"]["rail_failed"]) == ("error", "mask_output")
    monkeypatch.undo()
    assert house.post("/v1/answers", ana, {"query": ASKED}).status_code == 200


@pytest.mark.parametrize("phrases", ['["?!"]', "[]", '["a "]', '["__"]'])
def test_a_topic_that_could_block_nothing_is_no_contract(tmp_path: Path, phrases: str) -> None:
    file = tmp_path / "contract.toml"
    file.write_text(f"[generation.guards.blocked]\nshares = {phrases}\n")
    with pytest.raises(InvalidInput) as caught:
        read_contract(file)
    assert caught.value.item == "generation.guards.blocked.shares"
    guards = {"blocked": {"shares": ["内幕"]}}
    assert check_contract({"generation": {"guards": guards}}).generation.guards.blocked == {"shares": ["内幕"]}
