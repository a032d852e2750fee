"""A server that lies, floods or sends what is no answer: it is refused, and takes no memory and no books along."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
import tracemalloc
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from generation.generator import GeneratorRefused, Misfit
from generation.pool import Pool
from generation.wire import _LONGEST_LINE, _MOST_BYTES
from tenancy.errors import Unavailable
from tests.generation.prompts import finish_of, pieces, text_of
from tests.generation.test_sglang_faults import endpoint
from tests.support.sglang_stand_in import Connection, Fault, StandIn, recorded_lines, stand_in, stream, tampered

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n"
DEEP = '{"model": "tiny", "x": ' + "[" * 100_000 + "]" * 100_000 + "}"
MUCH = 96 << 20


def with_pool(test: Callable[[Pool, StandIn], Awaitable[None]], *faults: Fault, **controls: Fault) -> StandIn:
    async def run() -> StandIn:
        async with stand_in(*faults) as server:
            server.controls = {f"/{path.replace('__', '/')}": fault for path, fault in controls.items()}
            pool = Pool.of(endpoint(server))
            try:
                await test(pool, server)
            finally:
                server.release.set()
                await pool.aclose()
            return server

    return asyncio.run(run())


def flood(head: bytes, unit: bytes, *, before: bytes = b"") -> Fault:
    """As much of `unit` as anybody takes."""

    async def fault(connection: Connection) -> None:
        await connection.write(head + b"\r\n" + before)
        for _ in range(MUCH // len(unit)):
            await connection.write(unit)

    return fault


def packed(connection: Connection) -> bytes:
    body = "".join(f"{line}\n\n" for line in recorded_lines("stream", connection))
    return gzip.compress(body.encode() + b" " * MUCH)


def spoken(content: str, **more: Any) -> str:
    choice = {"index": 0, "delta": {"content": content}, "finish_reason": None}
    return f"data: {json.dumps({'model': 'tiny', 'choices': [choice], **more})}"


def counted(**usage: Any) -> str:
    return f"data: {json.dumps({'model': 'tiny', 'choices': [], 'usage': usage})}"


def most_memory(test: Callable[[], object]) -> int:
    """Bytes at one time. The stand-in sends without keeping."""
    tracemalloc.start()
    try:
        test()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


async def refused(pool: Pool, _: StandIn) -> None:
    with pytest.raises(Unavailable):
        await pieces(pool)


@pytest.mark.parametrize(
    "fault",
    [
        flood(HEAD, b"x" * 65_536),
        flood(HEAD, b"x" * 65_536, before=b"data: "),
        flood(b"HTTP/1.1 500 X\r\nConnection: close\r\n", b"x" * 65_536),
    ],
)
def test_a_line_or_an_error_without_an_end_takes_no_memory(fault: Fault) -> None:
    assert most_memory(lambda: with_pool(refused, fault)) < 8 * _LONGEST_LINE


def test_a_description_without_an_end_takes_no_memory() -> None:
    async def looked_at(pool: Pool, _: StandIn) -> None:
        with pytest.raises(GeneratorRefused, match="longer"):
            await pool.replicas[0].check()

    endless = flood(HEAD, b" " * 65_536)
    assert most_memory(lambda: with_pool(looked_at, server_info=endless)) < 4 * _MOST_BYTES


def test_of_what_a_control_endpoint_says_only_the_beginning_is_read() -> None:
    async def loaded(pool: Pool, _: StandIn) -> None:
        await pool.replicas[0].load_adapter("ad_1", "/x")

    endless = flood(HEAD, b" " * 65_536)
    assert most_memory(lambda: with_pool(loaded, load_lora_adapter=endless)) < 4 * _MOST_BYTES


def test_nothing_is_unpacked() -> None:
    async def bomb(connection: Connection) -> None:
        await connection.write(HEAD + b"Content-Encoding: gzip\r\n\r\n" + packed(connection))

    async def asked(pool: Pool, server: StandIn) -> None:
        with pytest.raises(Misfit, match="compressed"):
            await pieces(pool)
        assert {request.headers["accept-encoding"] for request in server.received} == {"identity"}

    with_pool(asked, bomb)


@pytest.mark.parametrize("at", [0, 3])
def test_an_event_that_is_nested_without_end_is_malformed(at: int) -> None:
    async def asked(pool: Pool, _: StandIn) -> None:
        if at == 0:
            with pytest.raises(GeneratorRefused, match="malformed"):
                await pieces(pool)
            return
        assert finish_of(await pieces(pool)).reason == "error"

    with_pool(asked, tampered(at, f"data: {DEEP}"))


@pytest.mark.parametrize("info", [DEEP, '{"version": "' + "9" * 5_000 + '.1.1"}', '{"version": "٠.٥.٢٣"}'])
def test_a_description_that_is_none_is_a_misfit(info: str) -> None:
    async def looked_at(pool: Pool, _: StandIn) -> None:
        with pytest.raises(Misfit) as caught:
            await pool.replicas[0].check()
        assert len(caught.value.reason) < 300

    with_pool(looked_at, server_info=lambda connection: connection.respond(200, info))


def test_a_list_of_models_that_is_none_is_refused() -> None:
    async def listed(pool: Pool, _: StandIn) -> None:
        with pytest.raises(GeneratorRefused):
            await pool.replicas[0].adapters(time.monotonic() + 20)

    with_pool(listed, v1__models=lambda connection: connection.respond(200, DEEP))


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": -1, "completion_tokens": 1},
        {"prompt_tokens": 1, "completion_tokens": -1_000_000},
        {"prompt_tokens": 2**70, "completion_tokens": 1},
        {"prompt_tokens": 1, "completion_tokens": 10**9},
        {"prompt_tokens": 1, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": -5}},
    ],
)
def test_counts_that_cannot_be_are_not_booked(usage: dict[str, Any]) -> None:
    async def lie(connection: Connection) -> None:
        lines = recorded_lines("stream", connection)
        await stream(connection, [*lines[:-2], counted(**usage), lines[-1]])

    async def asked(pool: Pool, _: StandIn) -> None:
        finish = finish_of(await pieces(pool))
        assert finish.reason == "error"
        assert 0 < finish.usage.input < 1_000
        assert 0 < finish.usage.output < 100

    with_pool(asked, lie)


def test_text_behind_the_limit_of_tokens_ends_the_answer() -> None:
    async def talkative(connection: Connection) -> None:
        await connection.begin_stream()
        for _ in range(10_000):
            await connection.send(spoken("word " * 20))

    async def asked(pool: Pool, server: StandIn) -> None:
        given = await pieces(pool, max_tokens=4)
        assert finish_of(given).reason == "error"
        assert len(text_of(given)) <= 4 * 256
        assert len(server.aborts) == 1

    with_pool(asked, talkative)


@pytest.mark.parametrize("sign", ["\u2028", "\u2029", "\x85", "\x1c", "\x0b"])
def test_a_sign_that_ends_lines_elsewhere_is_part_of_an_answer(sign: str) -> None:
    async def raw(connection: Connection) -> None:
        lines = recorded_lines("stream", connection)
        said = spoken("one@two").replace("@", sign if sign > "\x1f" else json.dumps(sign)[1:-1])
        await stream(connection, [lines[0], said, *lines[-3:]])

    async def asked(pool: Pool, _: StandIn) -> None:
        assert f"one{sign}two" in text_of(await pieces(pool))

    with_pool(asked, raw)


def test_lines_may_come_in_any_pieces() -> None:
    async def byte_by_byte(connection: Connection) -> None:
        body = "".join(f"{line}\r\n\r\n" for line in recorded_lines("stream", connection)).encode()
        await connection.write(HEAD + b"\r\n")
        for at in range(0, len(body), 7):
            await connection.write(body[at : at + 7])
            await asyncio.sleep(0)

    async def asked(pool: Pool, _: StandIn) -> None:
        assert text_of(await pieces(pool)) == "urn:]EN attribute"

    with_pool(asked, byte_by_byte)
