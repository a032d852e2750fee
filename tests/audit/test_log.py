from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.engine import Connection
from sqlalchemy.exc import IntegrityError

from audit.log import AuditLog
from audit.logs import AuditLogs
from audit.merkle import Frontier, leaf_hash
from audit.record import Actor, Draft, Outcome, Policy, Request
from audit.tables import events, open_intents
from audit.verify import verify
from tenancy.control import Tenants
from tenancy.errors import AuditUnavailable, InvalidInput
from tenancy.identity import Principal
from tests.audit.conftest import ReadAll, payloads
from tests.audit.load import draft
from tests.support.people import Company

pytestmark = pytest.mark.both_storages

ROOT = Path(__file__).parents[2]


class FailingDatabase:
    """The log's own database, whose commits fail as on a full or broken disk while `failing` is set."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self.failing = True
        self.attempts = 0

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        with self._real.writing() as connection:
            yield connection
            self.attempts += 1
            if self.failing:
                raise OSError(28, "No space left on device")

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        with self._real.reading() as connection:
            yield connection


@contextmanager
def locked(log: AuditLog) -> Iterator[None]:
    """Another process holds the log's write lock."""
    with log.database.writing():
        yield


def intent(name: str) -> Draft:
    return Draft(
        action="answer",
        phase="intent",
        actor=Actor(kind="user", ref="u_1"),
        request=Request(id=name),
        policy=Policy(domain="pd_1"),
    )


def test_records_are_numbered_from_zero_and_hashed_as_stored(log: AuditLog) -> None:
    assert [log.append(partial(draft, name)) for name in "abc"] == [0, 1, 2]
    frontier = Frontier()
    frontier.extend(leaf_hash(payload) for payload in payloads(log))
    assert (log.head().size, log.head().root) == (3, frontier.root())


def test_an_empty_log_verifies(log: AuditLog) -> None:
    assert log.head().size == 0
    assert verify(log).ok


def test_each_tenant_has_its_own_sequence(logs: AuditLogs, acme: Company, globex: Company) -> None:
    here, there = logs.of(acme.principal("ana")), logs.of(globex.principal("ana"))
    assert [here.append(lambda: draft("a")), here.append(lambda: draft("b"))] == [0, 1]
    assert there.append(lambda: draft("c")) == 0
    assert here.head().root != there.head().root


def test_waiting_records_share_a_commit(log: AuditLog) -> None:
    counting = FailingDatabase(log.database)
    counting.failing = False
    log.database = counting  # type: ignore[assignment]
    started, go_on = threading.Event(), threading.Event()

    def slow() -> Draft:
        started.set()
        go_on.wait(10)
        return draft("slow")

    first = log.submit(slow)
    assert started.wait(10)
    rest = [log.submit(partial(draft, str(name))) for name in range(100)]
    go_on.set()
    assert [future.result(10) for future in (first, *rest)] == list(range(101))
    assert counting.attempts == 2


def test_two_processes_of_many_threads_leave_one_dense_chain(
    log: AuditLog, tenants: Tenants, read_all: ReadAll, storage: str
) -> None:
    command = [sys.executable, "-m", "tests.audit.load", str(tenants.data_dir), "appends", "20", "25", storage]
    acked: dict[int, str] = {}
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"

        def run(thread: int) -> None:
            for number in range(25):
                name = f"here-{thread}-{number}"
                acked[log.append(partial(draft, name))] = name

        threads = [threading.Thread(target=run, args=(thread,)) for thread in range(20)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        for line in child.stdout:
            _, seq, name = line.split()
            acked[int(seq)] = name
    assert child.returncode == 0
    assert sorted(acked) == list(range(1000))
    assert {event.seq: event.request.id for event in read_all(log)} == acked
    assert len({event.writer for event in read_all(log)}) == 2
    assert verify(log).ok


def test_a_locked_database_is_unavailable_and_nothing_is_acknowledged(log: AuditLog) -> None:
    log.append(lambda: draft("before"))
    log._deadline_s = 0.1
    with locked(log), pytest.raises(AuditUnavailable):
        log.append(lambda: draft("during"))
    log._deadline_s = 10.0
    log.append(lambda: draft("after"))
    assert verify(log).ok


def test_a_failing_disk_is_unavailable_and_leaves_no_record(log: AuditLog, read_all: ReadAll) -> None:
    log.append(lambda: draft("before"))
    broken = FailingDatabase(log.database)
    log.database = broken  # type: ignore[assignment]
    with pytest.raises(AuditUnavailable):
        log.append(lambda: draft("during"))
    with pytest.raises(AuditUnavailable):
        asyncio.run(log.durable(log.submit(lambda: draft("during"))))
    broken.failing = False
    assert log.append(lambda: draft("after")) == 1
    assert [event.request.id for event in read_all(log)] == ["before", "after"]
    assert verify(log).ok


@pytest.mark.parametrize("steps", range(6))
def test_a_cancellation_that_comes_with_the_result_is_not_lost(log: AuditLog, steps: int) -> None:
    """`steps` of the event loop lie between the record's being durable and the cancellation."""

    async def leave() -> None:
        written: Future[int] = Future()
        waiting = asyncio.create_task(log.durable(written))
        await asyncio.sleep(0)
        written.set_result(7)
        for _ in range(steps):
            await asyncio.sleep(0)
        if waiting.done():
            assert await waiting == 7
            return
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(leave())


def test_a_kept_record_is_retried_until_it_is_written(log: AuditLog, read_all: ReadAll) -> None:
    broken = FailingDatabase(log.database)
    log.database = broken  # type: ignore[assignment]
    kept = log.submit(lambda: draft("kept"), fallback=lambda: draft("bare"))
    with pytest.raises(AuditUnavailable):
        log.append(lambda: draft("refused"))
    assert not kept.done()
    broken.failing = False
    assert kept.result(10) == 0
    assert [event.request.id for event in read_all(log)] == ["kept"]


def test_closing_a_log_that_cannot_be_written_says_so(log: AuditLog, caplog: pytest.LogCaptureFixture) -> None:
    broken = FailingDatabase(log.database)
    log.database = broken  # type: ignore[assignment]
    kept = log.submit(lambda: draft("kept"), fallback=lambda: draft("bare"))
    log._deadline_s = 0.1
    log.close()
    assert isinstance(kept.exception(10), AuditUnavailable)
    assert "1 records unwritten" in caplog.text
    with pytest.raises(AuditUnavailable):
        log.submit(lambda: draft("late"))


def test_a_full_queue_refuses_at_once_but_takes_what_must_not_get_lost(log: AuditLog, read_all: ReadAll) -> None:
    log._queue_limit = 2
    started, go_on = threading.Event(), threading.Event()

    def slow() -> Draft:
        started.set()
        go_on.wait(10)
        return draft("slow")

    log.submit(slow)
    assert started.wait(10)
    log.submit(lambda: draft("one"))
    log.submit(lambda: draft("two"))
    with pytest.raises(AuditUnavailable):
        log.submit(lambda: draft("three"))
    log.submit(lambda: draft("kept"), fallback=lambda: draft("bare"))
    go_on.set()
    assert [event.request.id for event in read_all(log)] == ["slow", "one", "two", "kept"]


def test_a_record_that_cannot_be_built_fails_alone(log: AuditLog, read_all: ReadAll) -> None:
    started, go_on = threading.Event(), threading.Event()

    def slow() -> Draft:
        started.set()
        go_on.wait(10)
        return draft("slow")

    def broken() -> Draft:
        raise ValueError("no draft")

    first = log.submit(slow)
    assert started.wait(10)
    bad: list[Future[int]] = [log.submit(broken), log.submit(lambda: draft("\ud800"))]
    good = log.submit(lambda: draft("good"))
    saved = log.submit(broken, fallback=lambda: draft("bare"))
    go_on.set()
    assert [future.result(10) for future in (first, good, saved)] == [0, 1, 2]
    assert [type(future.exception()) for future in bad] == [ValueError, InvalidInput]
    assert [event.request.id for event in read_all(log)] == ["slow", "good", "bare"]


def test_a_second_follower_of_one_record_is_refused(log: AuditLog) -> None:
    log.append(lambda: draft("a"))
    log.append(lambda: draft("b"))
    with log.database.reading() as connection:
        row = dict(connection.execute(events.select().where(events.c.seq == 1)).one()._mapping)
    with log.database.writing() as connection, pytest.raises(IntegrityError):
        connection.execute(events.insert().values({**row, "seq": 2, "leaf": bytes(32)}))
    assert verify(log).ok


def test_intents_of_a_dead_writer_are_closed_by_the_next_first_write(
    tenants: Tenants, ana: Principal, logs: AuditLogs, read_all: ReadAll
) -> None:
    died = AuditLogs(tenants)
    died.of(ana).append(lambda: intent("left open"))
    died.close()
    log = logs.of(ana)
    found = verify(log).finding
    assert (found and found.kind, found and found.seq) == ("unsettled", 0)
    log.append(lambda: draft("next"))
    closed, following = read_all(log)[1:]
    assert (closed.intent, closed.outcome, closed.reason) == (0, "aborted", "recovered")
    assert (closed.actor.ref, closed.request.id, closed.policy) == ("u_1", "left open", Policy(domain="pd_1"))
    assert following.request.id == "next"
    assert verify(log).ok


def test_recovery_leaves_intents_of_live_writers_alone(tenants: Tenants, ana: Principal, logs: AuditLogs) -> None:
    other = AuditLogs(tenants)
    other.of(ana).append(lambda: intent("theirs"))
    log = logs.of(ana)
    log.append(lambda: intent("ours"))
    assert log.recover() == 0
    assert verify(log).in_flight == 2
    assert verify(log).ok
    other.close()
    assert log.recover() == 1
    assert log.recover() == 0
    with log.database.reading() as connection:
        assert connection.execute(open_intents.select()).one().seq == 1
    assert verify(log).ok


def test_an_idle_log_holds_no_thread(logs: AuditLogs, acme: Company, globex: Company) -> None:
    for company in (acme, globex):
        for _ in range(20):
            logs.of(company.principal("ana")).append(lambda: draft("a"))
    assert len([thread for thread in threading.enumerate() if thread.name.startswith("audit")]) <= 8


def test_a_forgotten_log_goes_on_where_it_stopped(logs: AuditLogs, ana: Principal) -> None:
    assert logs.of(ana).append(lambda: draft("a")) == 0
    logs.forget(ana.tenant_id)
    assert logs.of(ana).append(lambda: draft("b")) == 1


def test_an_intent_that_recovery_closed_keeps_that_outcome(log: AuditLog, read_all: ReadAll) -> None:
    """What happens where this process was taken for dead, as it can be behind a cut connection."""
    opened, other = log.append(partial(intent, "one")), log.append(partial(intent, "two"))
    with log.database.writing() as connection:
        closed = log.append_in(connection, [_outcome(opened, "aborted")])
    assert log.append(partial(_outcome, opened, "allowed")) == closed[0]
    assert log.append(partial(_outcome, other, "allowed")) == 3
    assert [(event.intent, event.outcome) for event in read_all(log)[2:]] == [(opened, "aborted"), (other, "allowed")]
    assert verify(log).ok


def _outcome(seq: int, outcome: Outcome) -> Draft:
    return Draft(
        action="answer",
        phase="outcome",
        outcome=outcome,
        intent=seq,
        actor=Actor(kind="user", ref="u_1"),
        request=Request(id="r"),
    )
