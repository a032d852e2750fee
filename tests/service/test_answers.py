from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from generation.generator import Delta
from service.edge import Edge
from tenancy.errors import Unavailable
from tenancy.identity import Role
from tests.service.house import House, problem, stream_events

QUESTION = "How long is the notice period?"
NOTICE = "The notice period is three months. Holidays are thirty days."


@pytest.fixture
def key(house: House) -> str:
    house.put("acme", "notice.md", NOTICE, allow=["group:staff"])
    return house.key("acme", "ana", groups=("staff",))


def test_an_answer_cites_the_document_word_for_word(house: House, key: str) -> None:
    response = house.post("/v1/answers", key, {"query": QUESTION})
    body = response.json()
    assert "three months" in body["answer"]
    (citation,) = body["citations"]
    assert NOTICE[citation["start"] : citation["end"]] == citation["quote"]
    assert body["finish"] == "stop"
    assert body["request_id"] == response.headers["x-request-id"]
    assert house.events("acme")[body["audit"]["seq"]]["request"]["id"] == body["request_id"]


def test_who_may_not_read_gets_no_answer_and_no_title(house: House, key: str) -> None:
    body = house.post("/v1/answers", house.key("acme", "bo"), {"query": QUESTION}).json()
    assert (body["finish"], body["citations"], body["nearest"]) == ("abstain", [], [])
    assert "three months" not in json.dumps(body)


def test_a_repeated_question_says_that_it_was_remembered(house: House, key: str) -> None:
    first = house.post("/v1/answers", key, {"query": QUESTION})
    again = house.post("/v1/answers", key, {"query": QUESTION})
    assert first.headers["cache-status"] == "strongroom; fwd=miss; stored"
    assert again.headers["cache-status"] == "strongroom; hit; detail=exact; age=0"
    served = again.json()["cache"]
    assert served.pop("cached_from").startswith("ce_")
    assert served == {"status": "hit", "kind": "exact", "age_s": 0, "certified": None}
    assert again.json()["answer"] == first.json()["answer"]
    assert again.json()["request_id"] != first.json()["request_id"]
    bypass = house.post("/v1/answers", key, {"query": QUESTION, "cache": "bypass"})
    assert bypass.headers["cache-status"] == "strongroom; fwd=bypass"
    refresh = house.post("/v1/answers", key, {"query": QUESTION, "cache": "refresh"})
    assert refresh.headers["cache-status"].startswith("strongroom; fwd=request")


def test_the_cache_can_be_switched_off(folder: Path) -> None:
    house = House(folder, STRONGROOM_CACHE__ENABLED="false")
    with house.client:
        house.put("acme", "notice.md", NOTICE, allow=["tenant"])
        key = house.key("acme", "ana")
        statuses = [house.post("/v1/answers", key, {"query": QUESTION}).json()["cache"]["status"] for _ in range(2)]
        assert statuses == ["bypass", "bypass"]
    house.close()


def test_a_stream_has_the_answer_of_the_json_form(house: House, key: str) -> None:
    whole = house.post("/v1/answers", key, {"query": QUESTION, "cache": "bypass"}).json()
    response = house.post("/v1/answers", key, {"query": QUESTION, "cache": "bypass", "stream": True})
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert response.headers["x-request-id"]
    events = list(stream_events(response.text))
    names = [name for name, _ in events]
    assert names[-2:] == ["usage", "done"]
    assert names.count("citation") == len(whole["citations"])
    assert "".join(data["text"] for name, data in events if name == "delta") == whole["answer"]
    done = events[-1][1]
    assert {**done, "request_id": "", "audit": {}} == {**whole, "request_id": "", "audit": {}}


def test_a_remembered_answer_streams_too(house: House, key: str) -> None:
    house.post("/v1/answers", key, {"query": QUESTION})
    events = dict(stream_events(house.post("/v1/answers", key, {"query": QUESTION, "stream": True}).text))
    assert events["done"]["cache"]["status"] == "hit"


@pytest.mark.parametrize("stream", [False, True])
def test_an_error_before_the_first_byte_has_its_status(house: House, key: str, stream: bool) -> None:
    body = {"query": QUESTION, "stream": stream, "template": "none such"}
    problem(house.post("/v1/answers", key, body), 404, "not-found")


def test_a_follow_up_shows_how_it_was_understood(house: House, key: str) -> None:
    history = [{"role": "user", "content": QUESTION}, {"role": "assistant", "content": "Three months."}]
    body = house.post("/v1/answers", key, {"query": "And the holidays?", "history": history}).json()
    assert body["rewritten"]
    assert house.post("/v1/answers", key, {"query": QUESTION}).json()["rewritten"] is None


@pytest.mark.parametrize(
    ("change", "item"),
    [
        ({"query": ""}, "query"),
        ({"query": "  \n"}, "query"),
        ({"query": "x" * 8001}, "query"),
        ({"query": 5}, "query"),
        ({"query": "a\x00"}, "query"),
        ({"top_k": 0}, "top_k"),
        ({"top_k": -1}, "top_k"),
        ({"top_k": 101}, "top_k"),
        ({"top_k": "5"}, "top_k"),
        ({"top_k": 5.5}, "top_k"),
        ({"mode": "magic"}, "mode"),
        ({"stream": 1}, "stream"),
        ({"cache": "always"}, "cache"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"history": [{"role": "system", "content": "x"}]}, "history[0].role"),
        ({"history": [{"role": "user", "content": "x", "name": "y"}]}, "history[0].name"),
        ({"filter": {"field": "year", "ge": 2024}}, "filter"),
        ({"filter": {}}, "filter"),
        ({"namespace": "ns"}, "namespace"),
        ({"cache_salt": "s"}, "cache_salt"),
        ({"root": "a\nb"}, "root id"),
        ({"feature": " x"}, "feature"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_bad_field_is_named(shared: House, change: dict[str, Any], item: str) -> None:
    key = shared.key("acme", "ana")
    found = problem(shared.post("/v1/answers", key, {"query": QUESTION, **change}), 422, "invalid-input")
    assert found["item"] == item


@pytest.mark.parametrize(
    ("content", "status", "code"),
    [
        (b"", 400, "malformed"),
        (b"{", 400, "malformed"),
        (b"\xff", 400, "malformed"),
        (b"\xef\xbb\xbf{}", 400, "malformed"),
        (b'{"query": "a", "filter": {"a": ' + b"[" * 50_000, 400, "malformed"),
        (b'{"query": NaN}', 400, "malformed"),
        (b"[]", 422, "invalid-input"),
        (b"null", 422, "invalid-input"),
        (b"{}", 422, "invalid-input"),
        (b'{"query": "\\ud800"}', 422, "invalid-input"),
        (b'{"query": "a", "\\ud800": 1}', 422, "invalid-input"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_body_that_is_no_json_is_told_from_json_that_does_not_fit(
    shared: House, content: bytes, status: int, code: str
) -> None:
    problem(shared.send("POST", "/v1/answers", shared.key("acme", "ana"), content=content), status, code)


def test_another_media_type_is_refused(shared: House) -> None:
    key, content = shared.key("acme", "ana"), b'{"query": "a"}'
    for media_type in ("text/plain", "application/x-www-form-urlencoded"):
        response = shared.send("POST", "/v1/answers", key, content=content, headers={"Content-Type": media_type})
        problem(response, 415, "unsupported-media-type")
    headers = {"Content-Type": "application/json; charset=utf-8"}
    assert shared.send("POST", "/v1/answers", key, content=content, headers=headers).status_code == 200


def test_a_limit_says_whose_and_when(folder: Path) -> None:
    house = House(folder, STRONGROOM_ADMISSION__USER__REQUESTS_PER_MINUTE="2")
    with house.client:
        key = house.key("acme", "ana")
        for _ in range(2):
            admitted = house.post("/v1/retrieve", key, {"query": QUESTION})
            assert admitted.status_code == 200
        assert '"user-requests_per_minute";q=2;w=61' in admitted.headers["ratelimit-policy"]
        assert '"user-requests_per_minute";r=0;t=' in admitted.headers["ratelimit"]
        response = house.post("/v1/retrieve", key, {"query": QUESTION})
        found = problem(response, 429, "limit-exceeded")
        assert (found["scope"], found["limit"], found["used"]) == ("user", 2, 2)
        assert (found["bound"], str(found["resets"])) == ("requests_per_minute", response.headers["retry-after"])
        assert 1 <= int(response.headers["retry-after"]) <= 61
        assert response.headers["ratelimit-policy"] == '"user-requests_per_minute";q=2;w=61'
        assert response.headers["ratelimit"] == f'"user-requests_per_minute";r=0;t={found["resets"]}'
        assert house.post("/v1/retrieve", house.key("acme", "bo"), {"query": QUESTION}).status_code == 200
        assert house.events("acme")[-3]["reason"] == "limit-exceeded"
    house.close()


def test_log_lines_name_tenant_and_request_and_no_text(house: House, key: str) -> None:
    with capture_logs() as lines:
        response = house.post("/v1/answers", key, {"query": QUESTION})
        house.get("/v1/documents/notice.md", house.key("acme", "loader", Role.INGEST))
        house.get("/v1/models", "sr_live_secret_secret_secret")
    (line,) = [line for line in lines if line.get("route") == "/v1/answers"]
    assert (line["tenant"], line["status"], line["method"]) == ("acme", 200, "POST")
    assert response.status_code == 200
    logged = json.dumps(lines)
    for secret in ("notice", "three months", key, "sr_live_secret"):
        assert secret not in logged


def test_an_unforeseen_error_is_a_500_without_details(house: House, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise ValueError("private text")

    monkeypatch.setattr(house.services.control.tenants, "open", fail)
    with capture_logs() as lines:
        found = problem(house.post("/v1/answers", key, {"query": QUESTION}), 500, "error")
    assert "private" not in json.dumps(found)
    (failed,) = [line for line in lines if line["event"] == "failed"]
    assert failed["exc_info"]


def test_an_error_after_the_first_byte_is_an_event(house: House, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: Any, **__: Any) -> Any:
        yield Delta("The notice")
        raise Unavailable("the generator's stream was cut", item="private")

    monkeypatch.setattr(house.generator, "generate", broken)
    response = house.post("/v1/answers", key, {"query": QUESTION, "stream": True})
    assert response.status_code == 200
    (first, _), (name, data) = stream_events(response.text)
    assert (first, name, data["code"], data["status"]) == ("delta", "error", "unavailable", 503)
    assert data["instance"] == response.headers["x-request-id"]
    assert house.events("acme")[-1]["outcome"] == "error"
    problem(house.post("/v1/answers", key, {"query": QUESTION}), 503, "unavailable")


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_ends_the_generation_and_is_on_record(house: House, key: str, stream: bool) -> None:
    """The generator is held after its first piece; the client leaves; the trail says `aborted`."""
    reached = asyncio.Event()
    closed: list[bool] = []
    original = house.generator.generate

    async def held(*arguments: Any, **options: Any) -> Any:
        try:
            async for piece in original(*arguments, **options):
                yield piece
                reached.set()
                await asyncio.Event().wait()
        finally:
            closed.append(True)

    house.generator.generate = held  # type: ignore[method-assign]
    body = json.dumps({"query": QUESTION, "stream": stream}).encode()
    sent: list[dict[str, Any]] = []

    async def visit() -> None:
        messages = asyncio.Queue[dict[str, Any]]()
        messages.put_nowait({"type": "http.request", "body": body, "more_body": False})

        async def send(message: Any) -> None:
            sent.append(message)

        task = asyncio.create_task(ask(house.app, key, messages.get, send))
        await asyncio.wait_for(reached.wait(), 10)
        messages.put_nowait({"type": "http.disconnect"})
        await asyncio.wait_for(task, 10)

    with capture_logs():
        asyncio.run(visit())
    assert closed == [True]
    assert [message["type"] for message in sent[:1]] == ["http.response.start"]
    last = house.events("acme")[-1]
    assert (last["action"], last["phase"], last["outcome"]) == ("answer", "outcome", "aborted")


async def ask(app: Edge, key: str, receive: Any, send: Any) -> None:
    scope = {
        "type": "http", "method": "POST", "path": "/v1/answers", "raw_path": b"/v1/answers", "query_string": b"",
        "root_path": "", "scheme": "http", "http_version": "1.1", "client": ("192.0.2.1", 1), "server": ("x", 80),
        "headers": [(b"authorization", f"Bearer {key}".encode()), (b"content-type", b"application/json")],
        "extensions": {},
    }  # fmt: skip
    await app(scope, receive, send)
