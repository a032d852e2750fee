"""OpenAI's official client, through the service, on a real SGLang server: stream, usage, and leaving in the middle."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI, OpenAI

from tenancy.identity import Role
from tests.service.desk import Desk, serving
from tests.support.sglang_server import ADMIN_KEY, API_KEY, MODEL, RunningServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

QUESTION = "How long is the notice period?"


@pytest.fixture(scope="module")
def desk(sglang: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    folder: Path = tmp_path_factory.mktemp("openai")
    for name, key in (("api.key", API_KEY), ("admin.key", ADMIN_KEY)):
        (folder / name).write_text(key)
        (folder / name).chmod(0o600)
    with serving(
        folder,
        spoken=False,
        STRONGROOM_GENERATION__KIND="sglang",
        STRONGROOM_GENERATION__BASE_URL=sglang.base_url,
        STRONGROOM_GENERATION__MODEL=MODEL,
        STRONGROOM_GENERATION__REVISION="r1",
        STRONGROOM_GENERATION__API_KEY_FILE=str(folder / "api.key"),
        STRONGROOM_GENERATION__ADMIN_KEY_FILE=str(folder / "admin.key"),
        STRONGROOM_GENERATION__TOKENIZER=str(sglang.model),
    ) as found:
        key = found.house.key("acme", "loader", Role.INGEST)
        stored = httpx.put(
            f"{found.address}/v1/documents/notice.md",
            headers={"Authorization": f"Bearer {key}"},
            json={"text": "The notice period is three months.", "allow": ["tenant"]},
        )
        assert stored.status_code == 200
        found.done()
        yield found


def settings(desk: Desk) -> dict[str, Any]:
    return {"base_url": f"{desk.address}/v1", "api_key": desk.house.key("acme", "ana"), "max_retries": 0}


def metric(server: RunningServer, name: str) -> float:
    text = httpx.get(f"{server.base_url}/metrics", trust_env=False).text
    return sum(float(value) for value in re.findall(rf"^{re.escape(name)}{{.*}} (\S+)$", text, re.MULTILINE))


def test_a_stream_of_the_engine_reaches_the_client_with_its_usage(desk: Desk) -> None:
    with OpenAI(**settings(desk)) as client:
        assert [model.id for model in client.models.list()] == [MODEL]
        desk.done()
        *chunks, used = client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": QUESTION}],
            max_tokens=12,
            stream=True,
            stream_options={"include_usage": True},
        )
    assert sum(1 for chunk in chunks if chunk.choices[0].delta.content) > 1
    assert chunks[-1].choices[0].finish_reason in {"stop", "length"}
    assert used.usage is not None
    assert 0 < used.usage.completion_tokens <= 12
    assert used.usage.prompt_tokens_details is None
    desk.done()
    generation = desk.house.events("acme")[-1]["generation"]
    assert (used.usage.prompt_tokens, used.usage.completion_tokens) == (generation["input"], generation["output"])


def test_a_client_that_leaves_ends_the_generation_at_the_engine(desk: Desk, sglang: RunningServer) -> None:
    before = metric(sglang, "sglang:num_aborted_requests_total")

    async def leave(number: int) -> None:
        async with AsyncOpenAI(**settings(desk)) as client:
            stream = await client.chat.completions.create(
                model=MODEL,
                messages=[{"role": "user", "content": f"{QUESTION} {number}"}],
                max_tokens=512,
                stream=True,
            )
            async for chunk in stream:
                if chunk.choices[0].delta.content:
                    break
            await stream.close()

    async def all_leave() -> None:
        await asyncio.gather(*(leave(number) for number in range(4)))

    desk.forget()
    asyncio.run(all_leave())
    left = time.monotonic()
    desk.done(4)
    ended = time.monotonic() - left
    while metric(sglang, "sglang:num_aborted_requests_total") < before + 4 or metric(sglang, "sglang:num_running_reqs"):
        assert time.monotonic() < left + 30
    print(f"after the clients left: service done {ended:.2f} s, engine idle {time.monotonic() - left:.2f} s")
    outcomes = [event["outcome"] for event in desk.house.events("acme") if event["phase"] == "outcome"]
    assert outcomes[-4:] == ["aborted"] * 4
