"""A prompt that was fitted by the model's own tokenizer is taken by a real server whose context is exactly so long."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import aclosing

import httpx
import pytest

from generation.budget import divide
from generation.endpoint import Endpoint
from generation.generator import GeneratorRefused
from generation.pool import Pool
from generation.prompt import Prompt, PromptSource, Template, Turn, render
from generation.replica import Replica
from retrieval.context import assemble
from tests.generation.prompts import finish_of, soon
from tests.retrieval.passages import passage
from tests.support.sglang_server import ADMIN_KEY, API_KEY, MODEL, RunningServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ANSWER = 8
WORDS = "Die Kündigungsfrist beträgt drei Monate. 合同期限为三个月。 Notice <b>&amp;</b> [S1] "


def test_a_fitted_prompt_fills_the_model_and_is_answered(sglang: RunningServer) -> None:
    headers = {"Authorization": f"Bearer {API_KEY}"}
    models = httpx.get(f"{sglang.base_url}/v1/models", headers=headers, trust_env=False).json()
    length = int(models["data"][0]["max_model_len"])
    history = tuple(Turn("user" if at % 2 == 0 else "assistant", f"{at}. {WORDS * 10}") for at in range(40))
    passages = [passage(f"{at}. {WORDS * 2}", document=f"d{at}", document_id=at) for at in range(40)]
    template = Template("default", "Answer from the sources.")

    async def ask() -> None:
        endpoint = Endpoint(
            base_url=sglang.base_url, model=MODEL, revision="r1", api_key=API_KEY, admin_key=ADMIN_KEY,
            tokenizer=sglang.model,
        )  # fmt: skip
        pool = Pool([Replica(endpoint)])

        async def used(prompt: Prompt) -> int:
            stream = pool.generate(
                prompt, salt=secrets.token_hex(32), request_id="r", max_tokens=ANSWER, deadline=soon(400)
            )
            async with aclosing(stream):
                return finish_of([piece async for piece in stream]).usage.input

        try:
            room = divide(
                template, "How long?", history, length=length, sources=100_000, answer=ANSWER, count=pool.count,
                mark="zqmark",
            )  # fmt: skip
            assert 0 < room.cut < len(history)
            context = assemble(passages, room.sources, pool.count)
            assert 1 < len(context.sources) < len(passages)
            taken = await used(render(template, "How long?", context.prompt_sources, room.history, mark="zqmark"))
            assert length * 0.8 < taken + ANSWER <= length
            whole = render(template, "How long?", (PromptSource("S1", "d", "t", WORDS * 400),), history)
            with pytest.raises(GeneratorRefused):
                await used(whole)
        finally:
            await pool.aclose()

    asyncio.run(ask())
