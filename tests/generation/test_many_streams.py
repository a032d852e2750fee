"""Crowds of streams through the HTTP API, of which half leave: what the engine is told, what the audit says, and what
is still held afterwards. Whoever stays gets the whole answer.
"""

from __future__ import annotations

import json
import re
import statistics
import time
from collections import Counter
from pathlib import Path

import httpx
import pytest

from tests.generation.crowd import LEAVE_TOKENS, Visit, Watch, beside, come, crowded, draw, held, outcomes, pool_of
from tests.generation.stage import standing
from tests.service.desk import Desk
from tests.support.sglang_server import ADMIN_KEY, API_KEY, MODEL, RunningServer
from tests.support.sglang_stand_in import Connection, recorded_lines, replay

REST_S = 20.0
SEED = 20


def told(watch: Watch, visits: list[Visit]) -> tuple[list[float], list[float]]:
    """Seconds from each leaving until its abort is sent, and until the engine has answered it, each sorted. Checks that
    everybody was aborted once who left when an engine had the request, and nobody else.
    """
    left = {watch.engine_ids[one.question]: one for one in visits if one.left_at and one.question in watch.engine_ids}
    assert watch.aborts.keys() == left.keys()
    assert {len(times) for times in watch.aborts.values()} <= {1}
    times = [(watch.aborts[rid][0], one.left_at or 0.0) for rid, one in left.items()]
    return sorted(sent - at for (sent, _), at in times), sorted(answered - at for (_, answered), at in times)


def spread(seconds: list[float]) -> str:
    at_once = sum(second < 1 for second in seconds)
    return f"p50 {statistics.median(seconds):.2f} s, last {seconds[-1]:.2f} s, {at_once} within a second"


def check_record(desk: Desk, watch: Watch, visits: list[Visit]) -> Counter[str]:
    """Every visit has one outcome, which agrees with what its client saw."""
    found = outcomes(desk)
    record: Counter[str] = Counter()
    for one in visits:
        events = found.get(one.root, [])
        assert len(events) == 1, (one, events)
        record[events[0]["outcome"]] += 1
        if one.left_at:
            assert events[0]["outcome"] == "aborted", one
        elif one.done:
            assert (events[0]["outcome"], events[0]["generation"]["finish"]) == ("allowed", one.done["finish"]), one
        else:
            assert events[0]["outcome"] in {"refused", "error"}, one
    return record


def check_answers(visits: list[Visit]) -> int:
    """Whoever stayed has a whole answer. Returns how many did."""
    stayed = [one for one in visits if one.moment == "stays"]
    for one in stayed:
        assert one.done, one
        assert one.done["finish"] in {"stop", "length"}
        assert one.done["answer"] == "".join(one.texts)
        assert 0 < one.done["usage"]["output_tokens"] <= one.max_tokens
    return len(stayed)


def await_rest(desk: Desk, watch: Watch, tasks_and_threads: tuple[int, int]) -> None:
    until = time.monotonic() + REST_S
    while any(held(desk).values()) or beside(watch) > tasks_and_threads:
        assert time.monotonic() < until, (held(desk), beside(watch), tasks_and_threads)


async def talk(connection: Connection) -> None:
    """Answer who asks for little; say some words to the others and then nothing, whatever becomes of the socket."""
    if connection.request.body["max_tokens"] < LEAVE_TOKENS:
        await replay("stream")(connection)
        return
    first, line, *_ = recorded_lines("stream", connection)
    event = json.loads(line.removeprefix("data: "))
    event["choices"][0]["delta"]["content"] = "word "
    await connection.begin_stream()
    for said in (first, *[f"data: {json.dumps(event)}"] * 4):
        await connection.send(said)
    await connection.server.release.wait()


def test_a_crowd_at_an_engine_that_ignores_closed_sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with standing(1) as ((server,), loop), crowded(tmp_path, pool_of(server.base_url), monkeypatch) as (desk, watch):
        server.usual = talk
        come(desk, watch, draw(4, SEED, first=1_000))
        before = beside(watch)
        watch.clear()
        visits = draw(40, SEED)
        come(desk, watch, visits)
        sent, answered = told(watch, visits)
        print(f"sent {spread(sent)}; answered {spread(answered)}")
        assert set(server.aborts) >= watch.aborts.keys()
        record = check_record(desk, watch, visits)
        assert record.keys() == {"allowed", "aborted"}
        assert check_answers(visits) == record["allowed"]
        await_rest(desk, watch, before)
        loop.call_soon_threadsafe(server.release.set)


def engine(server: RunningServer, name: str) -> float:
    text = httpx.get(f"{server.base_url}/metrics", trust_env=False).text
    return sum(float(value) for value in re.findall(rf"^sglang:{name}{{.*}} (\S+)$", text, re.MULTILINE))


@pytest.mark.load
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_hundred_streams_at_a_real_engine(
    sglang: RunningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, key in (("api.key", API_KEY), ("admin.key", ADMIN_KEY)):
        (tmp_path / name).write_text(key)
    pool = pool_of(
        sglang.base_url,
        model=MODEL,
        tokenizer=str(sglang.model),
        api_key_file=str(tmp_path / "api.key"),
        admin_key_file=str(tmp_path / "admin.key"),
    )
    with crowded(tmp_path, pool, monkeypatch) as (desk, watch):
        come(desk, watch, draw(4, SEED, first=1_000))
        before = beside(watch)
        aborted = engine(sglang, "num_aborted_requests_total")
        watch.clear()
        visits = draw(200, SEED)
        begun = time.monotonic()
        come(desk, watch, visits)
        seconds, left = time.monotonic() - begun, time.monotonic()
        while engine(sglang, "num_running_reqs") or engine(sglang, "num_queue_reqs"):
            assert time.monotonic() < left + REST_S, "an abandoned generation goes on"
        sent, answered = told(watch, visits)
        record = check_record(desk, watch, visits)
        stayed = check_answers(visits)
        await_rest(desk, watch, before)
        assert engine(sglang, "num_aborted_requests_total") > aborted
    print(
        f"{seconds:.0f} s: {dict(record)}, {len(watch.engine_ids)} reached the engine; {len(sent)} aborts, "
        f"sent {spread(sent)}, answered {spread(answered)} after the client left"
    )
    assert record.keys() == {"allowed", "aborted"}
    assert stayed == record["allowed"]
    assert statistics.median(sent) < 1
