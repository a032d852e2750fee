"""The client against a real SGLang server on the CPU. Its model answers noise; counts, streams and salts are real."""

from __future__ import annotations

import asyncio
import json
import secrets
import subprocess
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from generation.endpoint import Endpoint
from generation.generator import Delta, Finish, Generator, GeneratorRefused, prompt_tokens
from generation.pool import Pool
from generation.prompt import Prompt, PromptSource
from generation.replica import Adapter, AdapterRefused, Replica, Request
from tenancy.errors import Unavailable
from tests.generation.prompts import finish_of, first_delta, pieces, prompt, soon, text_of
from tests.support.sglang_server import ADMIN_KEY, API_KEY, MODEL, RunningServer
from tests.support.sglang_stand_in import recording

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

LONG = PromptSource("S1", "long.md", "Long", " ".join(f"Sentence {number} of a long source." for number in range(60)))


def on(server: RunningServer, test: Callable[[Pool], Awaitable[Any]], **changes: Any) -> Any:
    settings: dict[str, Any] = {
        "base_url": server.base_url,
        "model": MODEL,
        "revision": "r1",
        "api_key": API_KEY,
        "admin_key": ADMIN_KEY,
        "tokenizer": server.model,
        **changes,
    }

    loads = settings.pop("loads", False)

    async def run() -> Any:
        client = Pool([Replica(Endpoint(**settings))], loader=Lent() if loads else None)
        try:
            return await test(client)
        finally:
            await client.aclose()

    return asyncio.run(run())


def body_of(client: Pool, salt: str, engine_request: str, max_tokens: int) -> dict[str, Any]:
    asked = Request(prompt=prompt(), salt=salt, request_id="r", max_tokens=max_tokens, deadline=soon())
    return client.replicas[0].body(asked, engine_request)


@dataclass(frozen=True)
class Lora:
    server_name: str
    revision: str
    path: Path
    manifest: Mapping[str, str] = field(default_factory=dict)


class Lent:
    """Whatever it is asked for is said to be loaded."""

    def lent(self, replica: Replica, adapter: Adapter, deadline: float) -> AbstractAsyncContextManager[None]:
        return nullcontext()


async def finish(client: Generator, asked: Prompt, salt: str) -> Finish:
    stream = client.generate(asked, salt=salt, request_id="r", max_tokens=4, deadline=soon(60))
    async with aclosing(stream):
        return finish_of([piece async for piece in stream])


def metric(server: RunningServer, name: str) -> float:
    lines = httpx.get(f"{server.base_url}/metrics", trust_env=False).text.splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"{name}{{"))


def test_it_streams_an_answer_and_counts_as_we_do(sglang: RunningServer) -> None:
    async def ask(client: Pool) -> None:
        given = await pieces(client, salt=secrets.token_hex(32), max_tokens=16)
        done = finish_of(given)
        assert done.reason in {"stop", "length"}
        assert done.detail is None
        assert text_of(given)
        assert 0 < done.usage.output <= 16
        counted = prompt_tokens(prompt(), client.count)
        assert done.usage.input <= counted <= done.usage.input + 20

    on(sglang, ask)


def test_the_estimate_without_a_tokenizer_differs_from_the_count(sglang: RunningServer) -> None:
    async def count(client: Pool) -> tuple[int, str]:
        return client.count(LONG.text), client.identity.tokenizer

    exact, exact_name = on(sglang, count)
    estimated, estimate_name = on(sglang, count, tokenizer=None)
    assert exact_name.startswith("sha256:")
    assert estimate_name == "estimate-1"
    assert estimated > 0.8 * exact


def test_only_the_same_salt_shares_kv_memory(sglang: RunningServer) -> None:
    async def ask(client: Pool) -> None:
        asked = prompt("What does the long source say?", LONG)
        first, other = secrets.token_hex(32), secrets.token_hex(32)
        cold = await finish(client, asked, first)
        warm = await finish(client, asked, first)
        stranger = await finish(client, asked, other)
        assert cold.usage.cached_input == 0
        assert warm.usage.cached_input > 0.9 * warm.usage.input
        assert stranger.usage.cached_input == 0
        assert cold.usage.input == warm.usage.input == stranger.usage.input

    on(sglang, ask)


def test_closing_the_stream_frees_the_engine(sglang: RunningServer) -> None:
    async def ask(client: Pool) -> None:
        aborted = metric(sglang, "sglang:num_aborted_requests_total")
        stream = client.generate(
            prompt(), salt=secrets.token_hex(32), request_id="r", max_tokens=3500, deadline=soon(60)
        )
        async with aclosing(stream):
            await first_delta(stream)
            assert metric(sglang, "sglang:num_aborted_requests_total") == aborted
        until = soon(20)
        while metric(sglang, "sglang:num_aborted_requests_total") == aborted:
            assert soon(0) < until, "the engine never counted an abort"
        # The engine works at once for the next: had the abandoned one gone on, it would hold 3,500 tokens.
        await finish(client, prompt(), secrets.token_hex(32))

    on(sglang, ask)


def test_every_field_that_we_send_is_a_field_of_the_server(sglang: RunningServer) -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import cpu_torch, json;"
        "from sglang.srt.entrypoints.openai.protocol import ChatCompletionRequest as R, StreamOptions as S;"
        "print(json.dumps([sorted(R.model_fields), sorted(S.model_fields)]))"
    )
    shims = "tests/support/sglang_cpu/shims"
    done = subprocess.run([str(sglang.python), "-c", code, shims], capture_output=True, text=True, check=True)
    fields, stream_fields = json.loads(done.stdout.splitlines()[-1])

    async def body(client: Pool) -> dict[str, Any]:
        return body_of(client, "a", "0" * 32, 5)

    sent = on(sglang, body)
    assert set(sent) <= set(fields)
    assert set(sent["stream_options"]) <= set(stream_fields)
    assert "cache_salts" not in fields  # the check can fail


@pytest.mark.parametrize(("change", "said"), [({"api_key": "wrong"}, "401"), ({"model": "other"}, "serves the model")])
def test_wrong_keys_and_models_are_refused(sglang: RunningServer, change: dict[str, str], said: str) -> None:
    async def ask(client: Pool) -> None:
        with pytest.raises(GeneratorRefused, match=said):
            await pieces(client)

    on(sglang, ask, **change)


def test_a_prompt_beyond_the_context_is_refused(sglang: RunningServer) -> None:
    async def ask(client: Pool) -> None:
        with pytest.raises(GeneratorRefused, match="400"):
            await pieces(client, max_tokens=100_000)

    on(sglang, ask)


def shape(value: Any) -> Any:
    """The names in a value, without what they hold."""
    if isinstance(value, dict):
        return {name: shape(inner) for name, inner in value.items()}
    return [shape(inner) for inner in value[:1]] if isinstance(value, list) else None


def events(lines: list[str]) -> set[str]:
    found = [line.removeprefix("data: ") for line in lines if line.startswith("data: {")]
    return {json.dumps(shape(json.loads(line)), sort_keys=True) for line in found}


@pytest.mark.parametrize(
    ("name", "key", "path", "change"),
    [
        ("stream", API_KEY, "/v1/chat/completions", {}),
        ("unauthorized", "", "/v1/chat/completions", {}),
        ("too_long", API_KEY, "/v1/chat/completions", {"max_tokens": 100_000}),
        ("abort_needs_admin", API_KEY, "/abort_request", {}),
    ],
)
def test_the_recordings_of_the_stand_in_are_still_true(
    sglang: RunningServer, name: str, key: str, path: str, change: dict[str, Any]
) -> None:
    async def make(client: Pool) -> dict[str, Any]:
        return body_of(client, secrets.token_hex(32), secrets.token_hex(16), 4)

    body = {**on(sglang, make), **change}
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    answer = httpx.post(f"{sglang.base_url}{path}", json=body, headers=headers, timeout=60, trust_env=False)
    recorded = recording(name)
    assert (answer.status_code, answer.headers["content-type"]) == (recorded["status"], recorded["content_type"])
    if "lines" in recorded:
        assert events(answer.text.splitlines()) == events(recorded["lines"])
    else:
        assert shape(json.loads(answer.text)) == shape(json.loads(recorded["body"]))


def test_the_recordings_of_adapters_and_models_are_still_true(sglang: RunningServer) -> None:
    name = secrets.token_hex(16)
    folder = str(sglang.model.with_name(f"{sglang.model.name}-lora-a"))
    asked: list[tuple[str, str, str, dict[str, str]]] = [
        ("models", "GET", "/v1/models", {}),
        ("adapter_loaded", "POST", "/load_lora_adapter", {"lora_name": name, "lora_path": folder}),
        ("adapter_refused", "POST", "/load_lora_adapter", {"lora_name": "other", "lora_path": "/nowhere"}),
        ("adapter_unloaded", "POST", "/unload_lora_adapter", {"lora_name": name}),
    ]
    with httpx.Client(base_url=sglang.base_url, trust_env=False, timeout=60) as client:
        for recording_name, method, path, body in asked:
            headers = {"Authorization": f"Bearer {API_KEY if method == 'GET' else ADMIN_KEY}"}
            answer = client.request(method, path, json=body or None, headers=headers)
            recorded = recording(recording_name)
            assert (answer.status_code, answer.headers["content-type"]) == (
                recorded["status"],
                recorded["content_type"],
            )
            assert set(answer.json()) == set(json.loads(recorded["body"]))
        refused = client.post("/load_lora_adapter", json={}, headers={"Authorization": f"Bearer {API_KEY}"})
        assert refused.status_code == 401, "with both keys, the user's opens no control endpoint"


def test_a_replica_loads_names_and_unloads_an_adapter(sglang: RunningServer) -> None:
    async def ask(client: Pool) -> None:
        lora = Lora(secrets.token_hex(16), "r1", sglang.model.with_name(f"{sglang.model.name}-lora-a"))
        (replica,) = client.replicas
        with pytest.raises(GeneratorRefused, match="400"):
            await finish(client.adapted(lora), prompt(), secrets.token_hex(32))
        await replica.load_adapter(lora.server_name, lora.path)
        with pytest.raises(AdapterRefused):
            await replica.load_adapter(lora.server_name, lora.path)
        given = await pieces(client.adapted(lora), salt=secrets.token_hex(32), max_tokens=8)
        assert finish_of(given).detail is None
        assert text_of(given) != text_of(await pieces(client, salt=secrets.token_hex(32), max_tokens=8))
        await replica.unload_adapter(lora.server_name)
        with pytest.raises(AdapterRefused):
            await replica.unload_adapter(lora.server_name)

    on(sglang, ask, loads=True)


def test_a_replica_is_checked_watched_and_drained(sglang: RunningServer) -> None:
    async def ask(client: Pool) -> None:
        (replica,) = client.replicas
        await replica.check()
        assert await replica.healthy()
        stream = client.generate(prompt(), salt=secrets.token_hex(32), request_id="r", max_tokens=40, deadline=soon(60))
        async with aclosing(stream):
            await first_delta(stream)
            drained = asyncio.create_task(client.drain(replica))
            assert finish_of([Delta(""), *[piece async for piece in stream]]).reason in {"stop", "length"}
        await asyncio.wait_for(drained, 30)
        with pytest.raises(Unavailable, match="no replica"):
            await finish(client, prompt(), secrets.token_hex(32))

    on(sglang, ask)


def test_the_recorded_description_is_still_true(sglang: RunningServer) -> None:
    headers = {"Authorization": f"Bearer {API_KEY}"}
    info = httpx.get(f"{sglang.base_url}/server_info", headers=headers, timeout=60, trust_env=False).json()
    recorded = json.loads(recording("server_info")["body"])
    assert {name: info.get(name) for name in recorded} == recorded
