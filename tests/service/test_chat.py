"""POST /v1/chat/completions byte for byte: what is refused and how that is told, the form of a stream, leaving."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from audit.query import Filters, query_log, view
from generation.generator import Delta
from service.bodies import MAX_FRAME, MAX_QUERY, MAX_TURN, decode_body
from service.openai_errors import LASTING
from service.openai_request import (
    ENGINE_FIELDS,
    MAX_EARLIER,
    ChatMessage,
    ChatRequest,
    explained,
    question_of,
    recorded_field,
)
from service.problems import TABLE
from service.routes.answers import AnswerResponse
from service.routes.completions import Provenance
from tenancy.errors import InvalidInput, Unavailable
from tenancy.identity import Role
from tests.service.house import House, problem
from tests.support.spent import spent

CHAT = "/v1/chat/completions"
MODEL = "extractive-1"
QUESTION = "How long is the notice period?"
NOTICE = "The notice period is three months. Holidays are thirty days."
ASKED: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": QUESTION}]}


@pytest.fixture
def key(house: House) -> str:
    house.put("acme", "notice.md", NOTICE, allow=["tenant"])
    return house.key("acme", "ana")


def failure(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """The error of a response, checked for its form."""
    assert response.status_code == status, f"{response.status_code}: {response.text}"
    assert response.headers["content-type"] == "application/json"
    body = response.json()
    assert set(body) == {"error"}
    error: dict[str, Any] = body["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    assert error["code"] == code
    return error


def content(*parts: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(parts)}]}


def message(role: str, text: Any = "x", **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": role, "content": text, **more}, *ASKED["messages"]]}


def recorded(house: House, response: httpx.Response) -> dict[str, Any]:
    """The last audit event of a request to acme."""
    control = house.services.control
    log = control.logs.of(control.authenticator.operator("acme"))
    page = query_log(log, Filters(request=response.headers["x-request-id"], order="desc"), limit=1)
    (stored,) = page.events
    return view(stored, log.subjects)


# What is refused

REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"wrong": 1}, "wrong", "unknown_parameter"),
    ({"tenant": "acme"}, "tenant", "unknown_parameter"),
    ({"template": "default"}, "template", "unknown_parameter"),
    ({"filter": {}}, "filter", "unknown_parameter"),
    ({"metadata": {"user": "bo"}}, "metadata.user", "unknown_parameter"),
    ({"stream_options": {"wrong": 1}, "stream": True}, "stream_options.wrong", "unknown_parameter"),
    (message("user", wrong=1), "messages[0].wrong", "unknown_parameter"),
    (content({"type": "text", "text": "a", "cache_control": {}}), "messages[0].content[0].cache_control",
     "unknown_parameter"),
    ({"tools": []}, "tools", "unsupported_parameter"),
    ({"tool_choice": "auto"}, "tool_choice", "unsupported_parameter"),
    ({"functions": [{"name": "f"}]}, "functions", "unsupported_parameter"),
    ({"logit_bias": {"50256": -100}}, "logit_bias", "unsupported_parameter"),
    ({"top_logprobs": 2}, "top_logprobs", "unsupported_parameter"),
    ({"seed": 1}, "seed", "unsupported_parameter"),
    ({"stop": "a"}, "stop", "unsupported_parameter"),
    ({"prompt_cache_key": "a"}, "prompt_cache_key", "unsupported_parameter"),
    ({"safety_identifier": "a"}, "safety_identifier", "unsupported_parameter"),
    ({"web_search_options": {}}, "web_search_options", "unsupported_parameter"),
    (message("user", name="bo"), "messages[0].name", "unsupported_parameter"),
    (message("assistant", None, tool_calls=[{"id": "1"}]), "messages[0].tool_calls", "unsupported_parameter"),
    (message("assistant", None, audio={"id": "a"}), "messages[0].audio", "unsupported_parameter"),
    ({"logprobs": True}, "logprobs", "unsupported_value"),
    ({"store": True}, "store", "unsupported_value"),
    ({"n": 2}, "n", "unsupported_value"),
    ({"temperature": 0.7}, "temperature", "unsupported_value"),
    ({"temperature": -1}, "temperature", "unsupported_value"),
    ({"top_p": 0.5}, "top_p", "unsupported_value"),
    ({"presence_penalty": 1}, "presence_penalty", "unsupported_value"),
    ({"service_tier": "flex"}, "service_tier", "unsupported_value"),
    ({"modalities": ["text", "audio"]}, "modalities[1]", "unsupported_value"),
    ({"response_format": {"type": "json_object"}}, "response_format.type", "unsupported_value"),
    ({"stream": True, "stream_options": {"include_obfuscation": True}}, "stream_options.include_obfuscation",
     "unsupported_value"),
    (content({"type": "image_url", "image_url": {"url": "https://a.example"}}), "messages[0].content[0].type",
     "unsupported_value"),
    (content({"image_url": {"url": "https://a.example"}, "type": "image_url"}), "messages[0].content[0].image_url",
     "unsupported_parameter"),
    (content({"type": "text", "text": "a"}, {"type": "input_audio", "input_audio": {}}),
     "messages[0].content[1].type", "unsupported_value"),
    (message("tool", tool_call_id="1"), "messages[0].role", "unsupported_value"),
    (message("function"), "messages[0].role", "unsupported_value"),
    (message("root"), "messages[0].role", "unsupported_value"),
    ({"stream_options": {"include_usage": True}}, "stream_options", "invalid_value"),
    ({"max_tokens": 5, "max_completion_tokens": 6}, "max_tokens", "invalid_value"),
    ({"max_tokens": 0}, "max_tokens", "invalid_value"),
    ({"max_completion_tokens": "5"}, "max_completion_tokens", "invalid_value"),
    ({"stream": "yes"}, "stream", "invalid_value"),
    ({"temperature": "0"}, "temperature", "invalid_value"),
    ({"model": ""}, "model", "invalid_value"),
    ({"model": None}, "model", "invalid_value"),
    ({"messages": []}, "messages", "invalid_value"),
    ({"messages": "a"}, "messages", "invalid_value"),
    ({"messages": [{"role": "user"}]}, "messages[0].content", "invalid_value"),
    ({"messages": [{"content": "a"}]}, "messages[0].role", "invalid_value"),
    ({"messages": [{"role": "user", "content": " \n"}]}, "messages[0].content", "invalid_value"),
    ({"messages": [{"role": "user", "content": "a\x00"}]}, "content", "invalid_value"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content", "invalid_value"),
    ({"messages": [*ASKED["messages"], {"role": "assistant", "content": "Three"}]}, "messages[1].role",
     "invalid_value"),
    ({"messages": [*ASKED["messages"], {"role": "system", "content": "Obey"}]}, "messages[1].role", "invalid_value"),
    (message("system", None), "messages[0].content", "invalid_value"),
    ({"metadata": {"root": "a\nb"}}, "metadata.root", "invalid_value"),
    ({"metadata": {"feature": 5}}, "metadata.feature", "invalid_value"),
    ({"messages": [*ASKED["messages"] * (MAX_EARLIER + 2)]}, "messages", "context_length_exceeded"),
    ({"messages": [{"role": "user", "content": "x" * (MAX_QUERY + 1)}]}, "messages[0].content",
     "context_length_exceeded"),
    (message("assistant", "x" * (MAX_TURN + 1)), "messages[0].content", "context_length_exceeded"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "param", "code"), REFUSED, ids=lambda value: str(value)[:50])
def test_a_field_or_value_is_refused_by_name_and_on_record(
    shared: House, change: dict[str, Any], param: str, code: str
) -> None:
    response = shared.post(CHAT, shared.key("acme", "ana"), ASKED | change)
    error = failure(response, 400, code)
    assert (error["param"], error["type"]) == (param, "invalid_request_error")
    assert error["message"].startswith(f"{param}: ")
    assert param != "response_format.type" or "the answer is text" in error["message"]
    event = recorded(shared, response)
    assert (event["action"], event["outcome"]) == ("answer", "refused")
    assert event["detail"]["field"] in {*re.findall("[a-z_]+", param), "other"}


@pytest.mark.parametrize("value", ["x", None])
@pytest.mark.parametrize("field", sorted(ENGINE_FIELDS))
def test_what_engines_share_memory_by_is_refused_even_as_null(shared: House, field: str, value: Any) -> None:
    response = shared.post(CHAT, shared.key("acme", "ana"), ASKED | {field: value})
    assert failure(response, 400, "unknown_parameter")["param"] == field
    event = recorded(shared, response)
    assert (event["reason"], event["detail"]) == ("engine-parameter", {"field": field})


def test_the_fields_that_the_design_names_are_among_them() -> None:
    named = {"cache_salt", "extra_key", "priority", "rid", "session_params", "lora_path", "custom_params", "input_ids"}
    assert named | {"data_parallel_rank", "return_hidden_states"} <= ENGINE_FIELDS
    assert not ENGINE_FIELDS & {*ChatRequest.__struct_fields__, *ChatMessage.__struct_fields__}


def test_a_made_up_field_is_told_to_the_caller_and_not_to_the_audit(shared: House) -> None:
    name = "salary_of_mrs_smith"
    response = shared.post(CHAT, shared.key("acme", "ana"), ASKED | {name: 1})
    assert failure(response, 400, "unknown_parameter")["param"] == name
    event = recorded(shared, response)
    assert event["detail"] == {"field": "other"}
    assert name not in json.dumps(event)


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 400, "malformed"),
        (b"{", 400, "malformed"),
        (b"\xff", 400, "malformed"),
        (b'{"model": NaN}', 400, "malformed"),
        (b"[]", 400, "invalid_value"),
        (b"null", 400, "invalid_value"),
        (b"{}", 400, "invalid_value"),
        (b'{"model": "a", "model": "b", "messages": [{"role": "user", "content": "q"}]}', 400, "invalid_value"),
        (b'{"model": "a", "messages": [{"role": "system", "role": "user", "content": "q"}]}', 400, "invalid_value"),
        (b'{"model": "\\ud800", "messages": []}', 400, "invalid_value"),
        (b'{"model": "a", "messages": [], "\\ud800": 1}', 400, "invalid_value"),
        (b'{"messages": ' + b"[" * 50_000, 400, "invalid_value"),
        (json.dumps(ASKED | {"model": "a" * MAX_FRAME}).encode(), 413, "too_large"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_body_that_is_no_request_is_told_in_the_clients_form(
    shared: House, body: bytes, status: int, code: str
) -> None:
    failure(shared.send("POST", CHAT, shared.key("acme", "ana"), content=body), status, code)


def test_every_refusal_of_the_edge_has_the_clients_form(shared: House) -> None:
    key = shared.key("acme", "ana")
    failure(shared.post(CHAT, None, ASKED), 401, "invalid_api_key")
    failure(shared.post(f"{CHAT}/", None, ASKED), 401, "invalid_api_key")
    failure(shared.post(CHAT, "sr_live_nonsense", ASKED), 401, "invalid_api_key")
    failure(shared.post(CHAT, shared.key("acme", "loader", Role.INGEST), ASKED), 403, "forbidden")
    failure(shared.post(f"{CHAT}?tenant=globex", key, ASKED), 403, "forbidden")
    failure(shared.post(f"{CHAT}?model=x", key, ASKED), 400, "unknown_parameter")
    failure(shared.post(CHAT, key, ASKED, headers={"X-Tenant": "globex"}), 403, "forbidden")
    assert failure(shared.get(CHAT, key), 405, "method_not_allowed")["type"] == "invalid_request_error"
    text = shared.send("POST", CHAT, key, content=b"{}", headers={"Content-Type": "text/plain"})
    failure(text, 415, "unsupported_media_type")
    assert shared.post(CHAT, key, ASKED).status_code == 200


def test_the_list_of_models_tells_an_error_in_both_forms(shared: House) -> None:
    found = problem(shared.get("/v1/models"), 401, "unauthenticated")
    assert found["error"]["code"] == "invalid_api_key"
    assert "error" not in problem(shared.get("/v1/documents"), 401, "unauthenticated")


def test_a_role_is_asked_for_before_a_field_is_told(shared: House) -> None:
    response = shared.post(CHAT, shared.key("acme", "loader", Role.INGEST), ASKED | {"cache_salt": "x"})
    failure(response, 403, "forbidden")
    assert recorded(shared, response)["reason"] == "forbidden"


def test_of_conflicts_only_a_revocation_is_worth_another_try() -> None:
    """The official client tries each 409 three times; what was withheld would be generated three times."""
    conflicts = {code for code, kind in TABLE.items() if kind.status == 409}
    assert conflicts - LASTING == {"revoked"}


def test_an_unforeseen_error_says_nothing(house: House, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise ValueError("private text")

    monkeypatch.setattr(house.services.control.tenants, "open", fail)
    with capture_logs():
        response = house.post(CHAT, key, ASKED)
    assert failure(response, 500, "error")["type"] == "server_error"
    assert "private" not in response.text


# Whatever a field is called, it is not accepted

FIELDS = st.one_of(
    st.text(min_size=1, max_size=30),
    st.from_regex(r"[a-z][a-z_]{0,20}", fullmatch=True),
    st.sampled_from(sorted(ENGINE_FIELDS)),
    st.sampled_from(["Model", "MESSAGES", "stream ", "user\u200b", "temperature\x00", "ｎ", "cache-salt", "__class__"]),
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)
PLACES: dict[str, tuple[set[str], Any]] = {
    "top": ({*ChatRequest.__struct_fields__}, lambda body: body),
    "message": ({*ChatMessage.__struct_fields__}, lambda body: body["messages"][0]),
    "part": ({"type", "text"}, lambda body: body["messages"][0]["content"][0]),
    "stream_options": ({"include_usage", "include_obfuscation"}, lambda body: body["stream_options"]),
    "metadata": ({"feature", "root"}, lambda body: body["metadata"]),
    "response_format": ({"type"}, lambda body: body["response_format"]),
}


def full() -> dict[str, Any]:
    return {
        "model": MODEL,
        "messages": [{"role": "user", "content": [{"type": "text", "text": QUESTION}]}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "metadata": {"feature": "tests"},
        "response_format": {"type": "text"},
    }


def test_the_request_of_the_property_is_accepted_without_more() -> None:
    assert decode_body(json.dumps(full()).encode(), ChatRequest).model == MODEL


@settings(max_examples=120, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(place=st.sampled_from(sorted(PLACES)), name=FIELDS, value=VALUES)
def test_no_unknown_field_is_ever_accepted(place: str, name: str, value: Any) -> None:
    known, at = PLACES[place]
    assume(name not in known)
    body = full()
    at(body)[name] = value
    with pytest.raises(InvalidInput) as found:
        decode_body(json.dumps(body).encode(), ChatRequest)
    assert explained(found.value).item
    if name in ENGINE_FIELDS:
        assert recorded_field(found.value) == name


@settings(max_examples=120, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(fields=st.dictionaries(st.sampled_from(sorted(ChatRequest.__struct_fields__)), VALUES, max_size=4))
def test_no_value_of_a_known_field_reaches_further_than_the_question(fields: dict[str, Any]) -> None:
    """Whatever is accepted asks the same question of the same model, with no template, filter or cache mode."""
    fields = {name: value for name, value in fields.items() if name not in {"messages", "model", "user"}}
    try:
        data = decode_body(json.dumps(ASKED | fields).encode(), ChatRequest)
        found = question_of(data, None, "f" * 32)  # type: ignore[arg-type]
    except InvalidInput:
        return
    assert (found.query, found.model, found.history) == (QUESTION, MODEL, ())
    assert (found.template, found.adapter, found.filter, found.cache, found.top_k, found.mode) == (None,) * 6


# What is accepted as if it were not there


@pytest.mark.parametrize(
    "fields",
    [
        {name: None for name in ChatRequest.__struct_fields__ if name not in {"model", "messages"}},
        {"n": 1, "temperature": 0, "top_p": 1, "presence_penalty": 0, "frequency_penalty": 0.0, "logprobs": False},
        {"store": False, "stream": False, "modalities": ["text"], "response_format": {"type": "text"}},
        {"service_tier": "auto", "metadata": {}, "max_tokens": 100, "max_completion_tokens": 100},
        message("assistant", "", refusal=None, annotations=[], audio=None, function_call=None, tool_calls=None),
        message("assistant", None),
        message("system", "Be brief."),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_means_nothing_is_accepted(shared: House, fields: dict[str, Any]) -> None:
    shared.put("acme", "notice.md", NOTICE, allow=["tenant"])
    response = shared.post(CHAT, shared.key("acme", "ana"), ASKED | fields)
    assert response.status_code == 200, response.text
    assert "three months" in response.json()["choices"][0]["message"]["content"]


def test_own_ids_are_on_record(house: House, key: str) -> None:
    house.post(CHAT, key, ASKED | {"metadata": {"feature": "search-box", "root": "job-7"}})
    event = house.events("acme")[-1]
    assert (event["request"]["root"], event["detail"]["feature"]) == ("job-7", "search-box")


def test_it_answers_as_the_other_route_does(house: House, key: str) -> None:
    plain = house.post("/v1/answers", key, {"query": QUESTION}).json()
    response = house.post(CHAT, key, ASKED)
    assert response.headers["cache-status"] == "strongroom; hit; detail=exact; age=0"
    found = response.json()
    assert found["choices"][0]["message"] == {"content": plain["answer"], "role": "assistant", "refusal": None}
    assert found["strongroom"]["citations"] == plain["citations"]
    assert found["id"] == f"chatcmpl-{response.headers['x-request-id']}"
    assert set(found) == {"id", "created", "model", "choices", "usage", "strongroom", "object"}
    assert set(found["usage"]) == {"prompt_tokens", "completion_tokens", "total_tokens"}


def test_nothing_that_the_other_route_tells_is_left_out() -> None:
    elsewhere = {"answer", "usage", "created"}
    assert {*Provenance.__struct_fields__} == {*AnswerResponse.__struct_fields__} - elsewhere


def test_a_long_conversation_is_taken_up_to_its_bound(house: House, key: str) -> None:
    said = [{"role": ("user", "assistant")[turn % 2], "content": "Good."} for turn in range(MAX_EARLIER)]
    asked = ASKED | {"messages": [*said, *ASKED["messages"]]}
    assert house.post(CHAT, key, asked).status_code == 200
    failure(
        house.post(CHAT, key, asked | {"messages": [*said[:1], *asked["messages"]]}), 400, "context_length_exceeded"
    )


def test_a_question_that_the_path_refuses_is_told_by_a_field_of_the_request(
    house: House, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise InvalidInput("the question leaves no room for sources in the model's context", item="query")

    monkeypatch.setattr(house.services.path.routes, "choose", full)
    assert failure(house.post(CHAT, key, ASKED), 400, "invalid_value")["param"] == "messages"


def test_a_follow_up_is_understood_from_the_conversation(house: House, key: str) -> None:
    said = [{"role": "system", "content": "You are a helpful assistant. Who are you?"}, *ASKED["messages"]]
    said += [{"role": "assistant", "content": "Three months."}, {"role": "user", "content": "And the holidays?"}]
    found = house.post(CHAT, key, ASKED | {"messages": said}).json()
    asked = {"query": "And the holidays?", "history": [{"role": "user", "content": QUESTION}]}
    assert found["strongroom"]["rewritten"] == house.post("/v1/answers", key, asked).json()["rewritten"]
    assert found["strongroom"]["rewritten"]


# Streams


def test_a_stream_is_unnamed_events_to_the_end_mark(house: House, key: str) -> None:
    response = house.post(CHAT, key, ASKED | {"stream": True})
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    blocks = response.text.split("\n\n")
    assert blocks[-2:] == ["data: [DONE]", ""]
    for block in blocks[:-2]:
        assert block.startswith("data: {")
        assert "\n" not in block
        chunk = json.loads(block.removeprefix("data: "))
        assert chunk["object"] == "chat.completion.chunk"
        assert "usage" not in chunk


@pytest.mark.parametrize(
    ("change", "status"), [({"model": "none such"}, 404), ({"cache_salt": "x"}, 400), ({"user": "bo"}, 403)]
)
def test_an_error_before_the_first_byte_has_its_status(
    house: House, key: str, change: dict[str, Any], status: int
) -> None:
    response = house.post(CHAT, key, ASKED | {"stream": True} | change)
    assert response.status_code == status
    assert set(response.json()) == {"error"}


def test_an_error_after_the_first_byte_is_the_last_event(
    house: House, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: Any, **__: Any) -> Any:
        yield Delta("The notice")
        raise Unavailable("the generator's stream was cut", item="private")

    monkeypatch.setattr(house.generator, "generate", broken)
    response = house.post(CHAT, key, ASKED | {"stream": True})
    assert response.status_code == 200
    *chunks, last, end = response.text.split("\n\n")
    assert (len(chunks), end) == (2, "")
    error = json.loads(last.removeprefix("data: "))["error"]
    assert (error["type"], error["code"], error["param"]) == ("server_error", "unavailable", None)
    assert "[DONE]" not in response.text
    assert house.events("acme")[-1]["outcome"] == "error"


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_ends_the_generation_and_is_on_record(house: House, key: str, stream: bool) -> None:
    reached = asyncio.Event()
    closed: list[bool] = []

    async def held(*_: Any, **__: Any) -> Any:
        try:
            yield Delta("The")
            reached.set()
            await asyncio.Event().wait()
        finally:
            closed.append(True)

    house.generator.generate = held  # type: ignore[method-assign]
    sent: list[dict[str, Any]] = []

    async def visit() -> None:
        messages = asyncio.Queue[dict[str, Any]]()
        messages.put_nowait({"type": "http.request", "body": json.dumps(ASKED | {"stream": stream}).encode()})

        async def send(message: Any) -> None:
            sent.append(message)

        task = asyncio.create_task(house.app(scope(key), messages.get, send))  # type: ignore[arg-type]
        await asyncio.wait_for(reached.wait(), 10)
        messages.put_nowait({"type": "http.disconnect"})
        await asyncio.wait_for(task, 10)

    with capture_logs():
        asyncio.run(visit())
    assert closed == [True]
    last = house.events("acme")[-1]
    assert (last["action"], last["phase"], last["outcome"]) == ("answer", "outcome", "aborted")
    assert spent(house.services.path.admission, *ids(house, key)).concurrent == 0


def ids(house: House, key: str) -> tuple[str, str]:
    principal = house.services.control.authenticator.authenticate(key, "192.0.2.1")
    return principal.tenant_id, principal.user_id


def scope(key: str) -> dict[str, Any]:
    return {
        "type": "http", "method": "POST", "path": CHAT, "raw_path": CHAT.encode(), "query_string": b"",
        "root_path": "", "scheme": "http", "http_version": "1.1", "client": ("192.0.2.1", 1), "server": ("x", 80),
        "headers": [(b"authorization", f"Bearer {key}".encode()), (b"content-type", b"application/json")],
        "extensions": {},
    }  # fmt: skip


def test_log_lines_hold_no_text(house: House, key: str) -> None:
    with capture_logs() as lines:
        house.post(CHAT, key, ASKED)
        house.post(CHAT, key, ASKED | {"salary": 1})
    assert [line["status"] for line in lines if line.get("route") == CHAT] == [200, 400]
    logged = json.dumps(lines)
    for secret in ("notice", "three months", "salary", key):
        assert secret not in logged
