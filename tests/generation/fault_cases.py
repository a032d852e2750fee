"""What happens when a generator fails: each case with what the asker sees, what is on record, and what is sent.

`test_fault_table.py` plays every case through the HTTP API, as a whole and streamed, and compares; the command
`python -m tests.generation.fault_table` prints the table.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from generation.replica import Adapter, Replica
from tests.generation.stage import Stage
from tests.support.sglang_stand_in import (
    Connection,
    Fault,
    hang_up,
    recorded_lines,
    replay,
    silent,
    status,
    stream,
)

WORDS = "The notice period is three months, in this case and in every other one. "
OTHER_MODEL = 'data: {"model": "other", "choices": [{"index": 0, "delta": {"content": "x"}}]}'
ERROR = 'data: {"error": {"message": "secret words of the prompt", "code": 500}}'

Prepare = Callable[[Stage], Any]


@dataclass(frozen=True, slots=True)
class Case:
    """`whole` and `streamed` are what the asker sees of each of `asks` questions (the same one, where `again`), `audit`
    what the outcome of the tenant's log says, `sent` how often engines were asked to generate and to abort, `then` what
    the next question gets when the fault is over. `prepare` brings the fault about.
    """

    fault: str
    prepare: Prepare
    whole: str
    streamed: str
    audit: str
    sent: str
    then: str = "200 length"
    asks: int = 1
    again: bool = False
    leaves: bool = False


def at_main(*faults: Any, **contract: Any) -> Prepare:
    """The first replica of `main` has the first fault, the second the last."""

    def prepare(stage: Stage) -> None:
        stage.always(*faults)
        if contract:
            stage.agree(**contract)

    return prepare


def first_only(fault: Any) -> Prepare:
    """Whichever replica of `main` is asked first has the fault, once."""

    def prepare(stage: Stage) -> None:
        left = [fault]

        async def once(connection: Connection) -> None:
            await (left.pop() if left else speak)(connection)

        stage.always(once)

    return prepare


def spoken(connection: Connection) -> list[str]:
    """The recorded stream with whole sentences in its events, so that text leaves before the end."""
    lines = recorded_lines("stream", connection)
    return [re.sub(r'"content":"[^"]+"', f'"content":"{WORDS}"', line) for line in lines]


async def speak(connection: Connection) -> None:
    await stream(connection, spoken(connection))


def cut_after(events: int) -> Fault:
    async def fault(connection: Connection) -> None:
        await connection.begin_stream()
        for line in spoken(connection)[:events]:
            await connection.send(line)

    return fault


def stall_after(events: int) -> Fault:
    async def fault(connection: Connection) -> None:
        lines = spoken(connection)
        await connection.begin_stream()
        for line in lines[:events]:
            await connection.send(line)
        await connection.server.release.wait()

    return fault


def tampered(at: int, line: str) -> Fault:
    async def fault(connection: Connection) -> None:
        lines = spoken(connection)
        await stream(connection, [*lines[:at], line, *lines[at + 1 :]])

    return fault


async def late(connection: Connection) -> None:
    """The first token takes a while, and comes in time."""
    await connection.begin_stream()
    await asyncio.sleep(0.2)
    for line in spoken(connection):
        await connection.send(line)
    await connection.end_stream()


async def usage_twice(connection: Connection) -> None:
    *said, usage, end = spoken(connection)
    await stream(connection, [*said, usage, usage, end])


def left_alone(stage: Stage) -> None:
    for one in stage.pools["main"].replicas:
        one.breaker.trip()


def left_alone_with(**contract: Any) -> Prepare:
    def prepare(stage: Stage) -> None:
        stage.agree(**contract)
        left_alone(stage)

    return prepare


@dataclass(frozen=True)
class _Lora:
    server_name: str = "x7"
    revision: str = "r9"
    path: Path = Path("/adapters/x7")
    manifest: Mapping[str, str] = field(default_factory=dict)


class _Loading:
    @asynccontextmanager
    async def lent(self, at: Replica, adapter: Adapter, deadline: float) -> AsyncIterator[None]:
        del deadline
        await at.load_adapter(adapter.server_name, adapter.path)
        yield


def adapter_refused(stage: Stage) -> None:
    """The tenant's route is that of an adapter which the engines do not load."""
    pool = stage.pools["main"]
    pool.loader = _Loading()
    there = stage.routes.deployment
    stage.routes.deployment = replace(there, generators={**there.generators, "main": pool.adapted(_Lora())})
    for server in stage.main:
        server.controls["/load_lora_adapter"] = replay("adapter_refused")


async def no_word(connection: Connection) -> None:
    """An abort that nobody answers as long as the test lasts."""
    await connection.server.release.wait()
    await connection.respond(200, "")


def deaf(stage: Stage) -> None:
    stage.always(stall_after(3))
    for server in stage.main:
        server.controls["/abort_request"] = no_word


FAILED = "503 unavailable"
CUT = "delta, error unavailable"
ERRORED = "error, unavailable, at main"
NOTED = "error, unavailable, at main; main, error, tokens booked"
STORED = "allowed; main, length, 112 in, 4 out"
GONE = ("gone", "gone", "aborted, cancelled")
STREAMED = "delta, usage, done"
ANSWERED = "200 length"

CASES = (
    Case("none", at_main(speak), ANSWERED, STREAMED, STORED, "1, 0"),
    Case("first token late, within patience", at_main(late), ANSWERED, STREAMED, STORED, "1, 0"),
    Case("no response at all", at_main(silent), FAILED, FAILED, ERRORED, "1, 1"),
    Case("response without a first token", at_main(stall_after(0)), FAILED, FAILED, ERRORED, "1, 1"),
    Case("stall in mid-stream", at_main(stall_after(3)), FAILED, CUT, NOTED, "1, 1"),
    Case("cut before the first token", first_only(cut_after(0)), ANSWERED, STREAMED, STORED, "2, 1"),
    Case("cut in mid-stream", at_main(cut_after(3)), FAILED, CUT, NOTED, "1, 1"),
    Case("503 once", first_only(status(503)), ANSWERED, STREAMED, STORED, "2, 0"),
    Case("queue full, as an event", first_only(replay("overloaded")), ANSWERED, STREAMED, STORED, "2, 0"),
    Case("storm of 503, 20 questions", at_main(status(503)), FAILED, FAILED, ERRORED, "6, 0", FAILED, asks=20),
    Case("500", at_main(status(500)), FAILED, FAILED, ERRORED, "1, 0"),
    Case("malformed event first", at_main(tampered(0, "data: {")), FAILED, FAILED, ERRORED, "1, 1"),
    Case("malformed event in mid-stream", at_main(tampered(3, "data: not json")), FAILED, CUT, NOTED, "1, 1"),
    Case("error event in mid-stream", at_main(tampered(3, ERROR)), FAILED, CUT, NOTED, "1, 0"),
    Case("end without a finish reason", at_main(tampered(5, "data: [DONE]")), FAILED, CUT, NOTED, "1, 1"),
    Case("wrong model in the answer", first_only(tampered(0, OTHER_MODEL)), FAILED, FAILED, ERRORED, "1, 1"),
    Case("wrong key", first_only(replay("unauthorized")), FAILED, FAILED, ERRORED, "1, 0"),
    Case("usage twice", at_main(usage_twice), ANSWERED, STREAMED, STORED, "1, 0"),
    Case("adapter not loaded", adapter_refused, FAILED, FAILED, ERRORED, "0, 0", then=FAILED),
    Case(
        "request that stops engines, asked 3 times",
        at_main(hang_up),
        "422 invalid-input",
        "422 invalid-input",
        "refused, invalid-input, at main",
        "2, 2",
        asks=3,
        again=True,
    ),
    Case("asker leaves, engine ignores its closed socket", at_main(stall_after(3)), *GONE, "1, 1", leaves=True),
    Case("the same, and engine ignores the abort", deaf, *GONE, "1, 1", leaves=True),
    Case("pool away", left_alone, FAILED, FAILED, ERRORED, "0, 0", then=FAILED),
    Case(
        "pool away, fallback agreed",
        left_alone_with(pools=["main", "spare"], fallback=True),
        ANSWERED,
        STREAMED,
        "allowed; spare for main, length, 112 in, 4 out",
        "1, 0",
    ),
    Case(
        "pool away, no fallback agreed",
        left_alone_with(pools=["main", "spare"]),
        FAILED,
        FAILED,
        ERRORED,
        "0, 0",
        then=FAILED,
    ),
    Case(
        "contract with pools of two trust levels",
        left_alone_with(pools=["main", "vault"], fallback=True),
        FAILED,
        FAILED,
        "error, unavailable",
        "0, 0",
        then=FAILED,
    ),
)
