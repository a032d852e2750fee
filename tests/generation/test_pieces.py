"""Long prompts that are read in pieces: what is sent, what is charged, and who is served in between."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise, takewhile
from typing import Any

import pytest

from admission.fair import Party
from generation.breaker import BreakerTerms
from generation.generator import Finish, Piece, Usage, prompt_tokens
from generation.lanes import LaneTerms
from generation.pieces import Pauses, beginnings
from generation.pool import Pool
from generation.prompt import PromptSource
from generation.quarantine import Quarantined
from tests.generation.prompts import finish_of, prompt, soon, text_of
from tests.generation.test_pool import ANSWER, at_rest, pool_of, run, until
from tests.support.sglang_stand_in import (
    Connection,
    Fault,
    StandIn,
    cut_after,
    recorded_lines,
    stall_after,
    status,
    stream,
)

LONG = prompt("How many days?", PromptSource("S1", "a.md", "A", " ".join(f"rule {number}" for number in range(3_000))))
TERMS = LaneTerms(slots=8, small_tokens=1_000, piece_tokens=2_000, piece_pause=4)


def said(body: Any) -> str:
    return "".join(message["content"] for message in body["messages"])


def shared(one: str, other: str) -> int:
    """How long their common beginning is."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def remembering() -> Fault:
    """Answers like the recorded server, and counts a token a character, of which it keeps all that it read."""
    kept: dict[str, list[str]] = {}

    async def fault(connection: Connection) -> None:
        body, lines = connection.request.body, recorded_lines("stream", connection)
        text, before = said(body), kept.setdefault(body["cache_salt"], [])
        cached = max((shared(text, one) for one in before), default=0)
        before.append(text)
        if body["max_tokens"] == 1:
            lines = [*lines[:2], *lines[-3:]]
        await stream(connection, [_counted(line, len(text), cached, body["max_tokens"]) for line in lines])

    return fault


def _counted(line: str, tokens: int, cached: int, most: int) -> str:
    if "usage" not in line:
        return line
    event = json.loads(line.removeprefix("data: "))
    if event.get("usage"):
        usage = event["usage"]
        usage["completion_tokens"] = min(usage["completion_tokens"], most)
        usage |= {"prompt_tokens": tokens, "total_tokens": tokens + usage["completion_tokens"]}
        usage["prompt_tokens_details"] = {"cached_tokens": min(cached, tokens - 1)}
    return f"data: {json.dumps(event)}"


async def ask(pool: Pool, what: Any = LONG, party: Party | None = None) -> list[Piece]:
    generator = pool.serving(party) if party else pool
    given = generator.generate(what, salt="a" * 64, request_id="0" * 32, max_tokens=64, deadline=soon())
    return [piece async for piece in given]


def bodies(servers: list[StandIn]) -> list[Any]:
    return [request.body for server in servers for request in server.generations]


def test_beginnings_grow_to_all_but_the_last_piece() -> None:
    found = [
        said({"messages": [{"content": one.content} for one in part.messages]}) for part in beginnings(LONG, 10, 3)
    ]
    whole = "".join(message.content for message in LONG.messages)
    assert [round(10 * len(text) / len(whole)) for text in found] == [3, 6, 9]
    assert all(whole.startswith(text) for text in found)
    assert not list(beginnings(LONG, 3, 3))


def test_a_long_prompt_is_sent_in_growing_pieces_and_then_whole() -> None:
    given: list[Piece] = []

    async def test(server: StandIn) -> None:
        server.usual = remembering()
        async with pool_of(server, lanes=TERMS) as pool:
            given.extend(await ask(pool, party=Party("acme", "ana")))
            assert pool._lanes.fair.running == 0
            tokens = prompt_tokens(LONG, pool.count)
        assert len(server.generations) == -(-tokens // 2_000)

    sent = bodies(run(1, test))
    assert [body["max_tokens"] for body in sent] == [1] * (len(sent) - 1) + [64]
    assert all(said(later).startswith(said(earlier)) for earlier, later in pairwise(sent))
    assert {body["cache_salt"] for body in sent} == {"a" * 64}
    assert len({body["rid"] for body in sent}) == len(sent)
    assert said(sent[-1]) == "".join(message.content for message in LONG.messages)
    assert text_of(given) == ANSWER, "nothing of the pieces' tokens is told"


def test_what_was_read_in_pieces_is_charged_as_read_and_once() -> None:
    finished: list[Finish] = []

    async def test(server: StandIn) -> None:
        server.usual = remembering()
        async with pool_of(server, lanes=TERMS) as pool:
            finished.append(finish_of(await ask(pool, party=Party("acme", "ana"))))
            finished.append(finish_of(await ask(pool, party=Party("acme", "ana"))))

    sent = bodies(run(1, test))
    whole = len(said(sent[-1]))
    assert finished[0].usage == Usage(whole, 0, finished[0].usage.output)
    assert finished[1].usage.cached_input == pytest.approx(whole, abs=len(sent)), "the second time it was there"


@pytest.mark.parametrize(
    ("tokens", "terms"),
    [("short", TERMS), ("long", LaneTerms()), ("long", LaneTerms(small_tokens=50_000, piece_tokens=2_000))],
)
def test_a_small_prompt_and_without_the_setting_any_is_sent_whole(tokens: str, terms: LaneTerms) -> None:
    async def test(server: StandIn) -> None:
        async with pool_of(server, lanes=terms) as pool:
            await ask(pool, LONG if tokens == "long" else prompt())

    assert len(bodies(run(1, test))) == 1


@pytest.mark.parametrize("fault", [status(503), status(400), cut_after(0), cut_after(2)])
def test_where_a_piece_fails_the_request_goes_on_whole(fault: Fault) -> None:
    async def test(server: StandIn) -> None:
        server.usual, server.faults = remembering(), [fault]
        async with pool_of(server, lanes=TERMS) as pool:
            assert text_of(await ask(pool)) == ANSWER
            assert pool._lanes.fair.running == 0

    assert [body["max_tokens"] for body in bodies(run(1, test))] == [1, 64]


def test_pieces_that_were_read_clear_no_request_under_which_the_server_stopped() -> None:
    async def test(server: StandIn) -> None:
        server.usual = remembering()
        async with pool_of(server, lanes=TERMS, breaker_terms=BreakerTerms(failures=9, pause_s=600)) as pool:
            pieces = len(list(beginnings(LONG, prompt_tokens(LONG, pool.count), 2_000)))
            for _ in range(2):
                server.faults = [*[remembering()] * pieces, cut_after(2)]
                assert finish_of(await ask(pool)).reason == "error"
            with pytest.raises(Quarantined):
                await ask(pool)

    run(1, test)


@pytest.mark.parametrize("stage", ["no slot", "a piece", "a pause", "the answer"])
def test_whoever_leaves_while_pieces_are_read_leaves_nothing_behind(stage: str) -> None:
    seen: dict[str, int] = {}

    async def test(server: StandIn) -> None:
        lanes = replace(TERMS, slots=1 if stage == "no slot" else 8)
        async with pool_of(server, lanes=lanes) as pool:
            server.usual = remembering()
            await ask(pool)
            before, other = len(server.generations), None
            if stage in {"no slot", "a pause"}:
                server.faults = [stall_after(3)]
                other = asyncio.create_task(ask(pool, prompt()))
                await until(lambda: pool.replicas[0].load.streaming == 1)
                before += 1
            server.faults = {"a piece": [remembering(), stall_after(0)]}.get(stage, [])
            if stage == "the answer":
                server.faults = [*[remembering()] * (before - 1), stall_after(3)]
            task = asyncio.create_task(ask(pool))
            read = {"no slot": 0, "a piece": 2, "a pause": 1, "the answer": before}[stage]
            await until(lambda: len(server.generations) == before + read)
            if stage == "no slot":
                await until(lambda: pool._lanes.waiting == 1)
            if stage == "a pause":
                await until(lambda: len(pool._lanes.pauses._running) == 1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            seen.update(sent=len(server.generations) - before, stopped=len(server.aborts))
            if other is not None:
                server.release.set()
                await other
            assert at_rest(pool)
            assert not pool._lanes.pauses._running
            assert not pool._lanes.fair.running
            server.faults, server.usual = [], remembering()
            assert text_of(await ask(pool)) == ANSWER

    (server,) = run(1, test)
    assert seen["stopped"] == (stage in {"a piece", "the answer"}), "the engine is told to stop where it does anything"
    assert set(server.aborts) <= {request.body["rid"] for request in server.generations}
    assert seen["sent"] == {"no slot": 0, "a piece": 2, "a pause": 1}.get(stage, seen["sent"])


def test_any_size_of_a_piece_and_any_script_gives_beginnings_of_the_same_text() -> None:
    text = "Urlaub 🏖️👩‍👩‍👧 é e\u0301 年假三十天 ‮abc‬ " * 40
    what = prompt("👩‍👩‍👧?", PromptSource("S1", "a.md", "A", text))
    whole = "".join(message.content for message in what.messages)
    for size in (1, 7, 1_000_000):
        before = ""
        for part in beginnings(what, 500, size):
            assert [message.role for message in part.messages] == [message.role for message in what.messages]
            found = "".join(message.content for message in part.messages)
            assert whole.startswith(found)
            assert len(found) >= len(before)
            before = found
        assert len(before) < len(whole)
    assert len(list(beginnings(what, 500, 1))) == 499
    assert not list(beginnings(what, 500, 1_000_000))


def test_all_pieces_go_to_the_replica_that_has_the_first() -> None:
    async def test(*servers: StandIn) -> None:
        for server in servers:
            server.usual = remembering()
        async with pool_of(*servers, lanes=TERMS) as pool:
            await ask(pool)

    assert sorted(bool(server.generations) for server in run(3, test)) == [False, False, True]


def test_a_pause_ends_when_each_answer_had_its_tokens_or_none_streams() -> None:
    async def test() -> None:
        streams = {"a": 2, "b": 1}
        pauses: Pauses[str] = Pauses(lambda seat: streams[seat])
        waiting = asyncio.create_task(pauses.wait("a", 4))
        await asyncio.sleep(0)
        over: Callable[[], Any] = waiting.done
        for seat, tokens, done in (("a", 7, False), ("b", 9, False), ("a", 1, True)):
            pauses.wrote(seat, tokens)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert over() == done
        waiting = asyncio.create_task(pauses.wait("b", 4))
        await asyncio.sleep(0)
        streams["b"] = 0
        pauses.wrote("b", 0)
        await waiting
        await pauses.wait("b", 4)

    asyncio.run(test())
