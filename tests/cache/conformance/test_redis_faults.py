"""Redis away, slow, silent, full, read-only or strange: a miss and a warning, never an error, never a stale serve."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cache.lookup import Hit, Miss, Reason
from cache.store import NotStored, Stored
from cache.stores.port import UnfitStore
from cache.stores.redis import RedisStore
from cache.stores.redis_link import Link
from cache.stores.selector import Selector
from tenancy.breaker import Breaker
from tenancy.errors import InvalidInput, Unavailable
from tenancy.redis_settings import RedisSettings
from tests.cache.conformance.rig import POLICY, running
from tests.cache.conformance.test_store_contract import agrees
from tests.cache.desk import Clock, Desk, unit
from tests.support.people import Company
from tests.support.redis_proxy import RedisProxy, certificate
from tests.support.redis_server import RedisServer

QUESTION = "How long is the notice period?"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    """One of its own: it is stopped, filled and changed."""
    with running(tmp_path / "redis", persistent=True) as made:
        yield made


def settings_of(server: RedisServer, **changes: Any) -> RedisSettings:
    values = {"url": server.url, "password_file": str(server.password_file), "timeout_s": 5.0, **changes}
    return RedisSettings(**values)


@pytest.fixture
def open_desk(
    server: RedisServer, acme: Company, handbook: int, clock: Clock
) -> Iterator[Callable[..., tuple[Desk, Link, Clock]]]:
    """A desk over a store with settings of its own, its link, and the clock of its breaker."""
    links = []

    def make(**changes: Any) -> tuple[Desk, Link, Clock]:
        pause = Clock(0.0)
        breaker = Breaker(2, 1.0, clock=pause, draw=lambda _low, high: high)
        link = Link(settings_of(server, **changes), breaker=breaker)
        links.append(link)
        desk = Desk(acme, acme.principal("ana"), RedisStore(link, POLICY, clock=clock))
        desk.open()
        return desk, link, pause

    yield make
    for link in links:
        link.close()


def is_away(desk: Desk, handbook: int) -> bool:
    """Every use of the cache says so, in its own way, and none raises."""
    exact, semantic = desk.exact(QUESTION), desk.semantic(QUESTION, unit(1.0))
    stored = desk.put("Another?", desk.answer(handbook))
    assert isinstance(exact, Miss)
    assert isinstance(semantic, Miss)
    assert exact.reason == semantic.reason == Reason.STORE_AWAY
    assert isinstance(stored, NotStored)
    return True


@pytest.fixture
def clock() -> Clock:
    return Clock(time.time())


def test_a_server_that_is_killed_is_a_miss_and_hits_resume_when_it_is_back(
    open_desk: Any, server: RedisServer, handbook: int, caplog: pytest.LogCaptureFixture
) -> None:
    desk, link, pause = open_desk()
    assert isinstance(desk.put(QUESTION, desk.answer(handbook)), Stored)
    assert isinstance(desk.exact(QUESTION), Hit)
    server.kill()
    with caplog.at_level(logging.WARNING, logger="cache"):
        assert is_away(desk, handbook)
        assert is_away(desk, handbook)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "notice" not in caplog.text
    assert not link.available
    counts = desk.store.health().counts
    assert (counts["outages"], counts["misses_while_away"] >= 4, counts["writes_dropped"] >= 2) == (1, True, True)
    server.start()
    # Left alone until its pause is over, then asked by one call.
    assert is_away(desk, handbook)
    pause.now += 1.1
    assert isinstance(desk.exact(QUESTION), Hit)
    assert isinstance(desk.put("Another?", desk.answer(handbook)), Stored)
    assert link.available
    assert desk.store.health().counts["recoveries"] == 1


def test_a_server_that_restarts_between_two_questions_is_not_noticed(
    open_desk: Any, server: RedisServer, handbook: int
) -> None:
    desk, link, _ = open_desk()
    desk.put(QUESTION, desk.answer(handbook))
    server.kill()
    server.start()
    assert isinstance(desk.exact(QUESTION), Hit)
    assert isinstance(desk.put("Another?", desk.answer(handbook)), Stored)
    assert link.available


@pytest.mark.slow
def test_a_server_that_hangs_costs_a_short_time_and_then_none(
    open_desk: Any, server: RedisServer, handbook: int
) -> None:
    desk, link, pause = open_desk(timeout_s=0.2)
    desk.put(QUESTION, desk.answer(handbook))
    server.pause()
    try:
        began = time.monotonic()
        assert is_away(desk, handbook)
        waited = time.monotonic() - began
        assert not link.available
        # Two calls ran into the timeout; the third was not made.
        assert 0.4 <= waited < 3.0
        before = link.counts["failed_TimeoutError"]
        for _ in range(50):
            assert is_away(desk, handbook)
        assert link.counts["failed_TimeoutError"] == before
    finally:
        server.resume()
    pause.now += 1.1
    found = desk.exact(QUESTION)
    while isinstance(found, Miss):
        pause.now += 31
        found = desk.exact(QUESTION)
    assert isinstance(found, Hit)


@pytest.mark.slow
def test_a_port_that_accepts_and_never_answers_is_away(open_desk: Any, server: RedisServer, handbook: int) -> None:
    proxy = RedisProxy(server.port, silent=True)
    try:
        desk, link, _ = open_desk(url=f"redis://127.0.0.1:{proxy.port}", timeout_s=0.2)
        for _ in range(10):
            assert is_away(desk, handbook)
        assert not link.available
        assert proxy.accepted <= 4
    finally:
        proxy.close()


def test_a_wrong_password_is_away_and_says_what_to_check(
    open_desk: Any, server: RedisServer, handbook: int, tmp_path: Path
) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("not the password")
    desk, link, _ = open_desk(password_file=str(wrong))
    with pytest.raises(Unavailable, match="password_file") as refused:
        link.check()
    assert "not the password" not in str(refused.value)
    assert is_away(desk, handbook)
    assert not link.available


def test_an_acl_user_that_may_not_write_is_away_and_one_that_may_is_served(
    open_desk: Any, server: RedisServer, handbook: int, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s3cret")
    rules = ["on", ">s3cret", "~sr:*", "resetchannels", "-@all", "+@read", "+@write", "+@scripting", "+@connection",
             "+info", "+time", "+vadd", "+vsim", "+vcard", "+vrem", "+vgetattr", "+vrandmember"]  # fmt: skip
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "strongroom", *rules)
        client.execute_command("ACL", "SETUSER", "reader", "on", ">s3cret", "~sr:*", "+@read", "+@connection", "+info")
    desk, _, _ = open_desk(username="strongroom", password_file=str(secret))
    assert isinstance(desk.put(QUESTION, desk.answer(handbook)), Stored)
    assert isinstance(desk.exact(QUESTION), Hit)
    assert desk.store.nearest(desk.company.handle, desk.ask(QUESTION).namespace, unit(1.0))
    assert desk.store.invalidate(desk.company.handle, Selector(everything=True)) == 1
    desk.store.sweep(desk.company.handle)
    reader, _, _ = open_desk(username="reader", password_file=str(secret))
    assert isinstance(reader.put(QUESTION, reader.answer(handbook)), NotStored)


def test_a_replica_serves_what_is_fresh_and_takes_no_writes(
    open_desk: Any, server: RedisServer, handbook: int, acme: Company
) -> None:
    desk, link, _ = open_desk()
    desk.put(QUESTION, desk.answer(handbook))
    with server.client() as client:
        client.execute_command("REPLICAOF", "127.0.0.1", "1")
    assert isinstance(desk.exact(QUESTION), Hit)
    assert isinstance(desk.put("Another?", desk.answer(handbook)), NotStored)
    with pytest.raises(Unavailable, match="name the primary"):
        desk.store.invalidate(acme.handle, Selector(everything=True))
    # The invalidation did not reach it, and does not need to.
    acme.document("handbook", allow=["group:staff"], version="sha256:2")
    missed = desk.exact(QUESTION)
    assert isinstance(missed, Miss)
    assert missed.reason is Reason.CHANGED
    assert link.available
    with server.client() as client:
        client.execute_command("REPLICAOF", "NO", "ONE")
    assert isinstance(desk.put("Another?", desk.answer(handbook)), (Stored, NotStored))


def test_a_log_that_ends_in_the_middle_of_a_write_has_none_of_it(
    open_desk: Any, server: RedisServer, handbook: int, acme: Company
) -> None:
    """As after a loss of power between metadata and vector: the effects of a script stand in the log as one."""
    desk, _, pause = open_desk()
    tenant, asked = acme.handle, desk.ask(QUESTION)
    assert isinstance(desk.put("Another?", desk.answer(handbook)), Stored)
    (log,) = (server.folder / "appendonlydir").glob("*.incr.aof")
    before = log.stat().st_size
    assert isinstance(desk.put(asked, desk.answer(handbook)), Stored)
    whole = log.read_bytes()
    marks = [before + 1, len(whole) - 1, *(whole.index(word, before) for word in (b"VADD", b"HSET", b"ZADD", b"SADD"))]
    for cut in sorted(marks):
        server.kill()
        log.write_bytes(whole[:cut])
        server.start()
        pause.now += 100
        assert agrees(desk.store, acme), cut
        assert desk.store.stats(tenant).entries == 1
        assert desk.store.get(tenant, asked.namespace, asked.exact) is None
        assert [entry.question for entry, _ in desk.store.nearest(tenant, asked.namespace, unit(1.0))] == ["Another?"]
    server.kill()
    log.write_bytes(whole)
    server.start()
    pause.now += 100
    assert isinstance(desk.exact(asked), Hit)
    assert desk.store.stats(tenant).entries == 2


def test_a_full_server_keeps_serving_and_drops_writes(open_desk: Any, server: RedisServer, handbook: int) -> None:
    desk, link, _ = open_desk()
    desk.put(QUESTION, desk.answer(handbook))
    with server.client() as client:
        client.config_set("maxmemory", "1mb")
        assert isinstance(desk.put("Another?", desk.answer(handbook)), NotStored)
        assert isinstance(desk.exact(QUESTION), Hit)
        assert link.available
        assert link.counts["failed_OutOfMemoryError"] >= 1
        # Nothing of the refused write is there.
        assert desk.store.stats(desk.company.handle).entries == 1
        client.config_set("maxmemory", "0")
    assert isinstance(desk.put("Another?", desk.answer(handbook)), Stored)


def test_invalidations_that_never_reached_redis_harm_nobody(
    open_desk: Any, server: RedisServer, handbook: int, acme: Company, clock: Clock
) -> None:
    """Document changed, access revoked, membership ended while Redis was away: what it still holds is not served."""
    desk, _, pause = open_desk()
    changes: list[Callable[[], object]] = [
        lambda: acme.document("handbook", allow=["group:staff"], version="sha256:2"),
        lambda: acme.access("handbook", allow=["group:board"]),
        lambda: acme.leave("staff", "user:ana"),
    ]
    for change in changes:
        document = acme.document("handbook", allow=["group:staff"])
        acme.member("staff", "user:ana")
        pause.now += 100
        assert isinstance(desk.put(QUESTION, desk.answer(document)), Stored)
        assert isinstance(desk.exact(QUESTION), Hit)
        server.kill()
        change()
        with pytest.raises(Unavailable):
            desk.store.invalidate(acme.handle, Selector(document=document))
        assert isinstance(desk.exact(QUESTION), Miss)
        server.start()
        pause.now += 100
        assert isinstance(desk.exact(QUESTION), Miss)
        assert isinstance(desk.semantic(QUESTION, unit(1.0)), Miss)
        assert desk.store.health().available
        # It was there all the time.
        assert desk.store.stats(acme.handle).entries >= 1
        desk.store.invalidate(acme.handle, Selector(everything=True))


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-lru", "volatile-ttl"])
def test_a_server_that_evicts_by_itself_is_refused_by_name_and_remedy(
    open_desk: Any, server: RedisServer, handbook: int, policy: str
) -> None:
    with server.client() as client:
        client.config_set("maxmemory-policy", policy)
        desk, link, pause = open_desk()
        with pytest.raises(UnfitStore, match=f"maxmemory-policy {policy}.*noeviction"):
            link.check()
        assert is_away(desk, handbook)
        client.config_set("maxmemory-policy", "noeviction")
    pause.now += 100
    assert link.check().startswith("8.")
    assert isinstance(desk.put(QUESTION, desk.answer(handbook)), Stored)


def test_an_old_server_and_one_without_vector_sets_are_refused(
    open_desk: Any, server: RedisServer, handbook: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk, link, pause = open_desk()
    told = link._client.info()
    monkeypatch.setattr(link._client, "info", lambda *_: {**told, "redis_version": "7.4.1"})
    with pytest.raises(UnfitStore, match=r"version 7\.4\.1.*Redis 8"):
        link.check()
    assert is_away(desk, handbook)
    monkeypatch.undo()
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "default", "-vcard")
    pause.now += 100
    with pytest.raises(Unavailable):
        link.check()


def test_tls_is_verified_against_the_file_and_the_name(
    open_desk: Any, server: RedisServer, handbook: int, tmp_path: Path
) -> None:
    both, trusted = certificate(tmp_path / "good")
    _, other = certificate(tmp_path / "other")
    strange, strange_trusted = certificate(tmp_path / "strange", "192.0.2.7")
    proxy, impostor = RedisProxy(server.port, tls=both), RedisProxy(server.port, tls=strange)
    try:
        url = f"rediss://127.0.0.1:{proxy.port}"
        desk, _, _ = open_desk(url=url, ca_file=str(trusted))
        assert isinstance(desk.put(QUESTION, desk.answer(handbook)), Stored)
        assert isinstance(desk.exact(QUESTION), Hit)
        for address, file in (
            (url, other),
            (f"rediss://127.0.0.1:{impostor.port}", strange_trusted),
            (f"redis://127.0.0.1:{proxy.port}", trusted),
        ):
            doubtful, _, _ = open_desk(url=address, ca_file=str(file), timeout_s=1.0)
            assert is_away(doubtful, handbook)
    finally:
        proxy.close()
        impostor.close()


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"url": "redis://cache.example:6379"}, "plain text"),
        ({"url": "redis://:secret@127.0.0.1"}, "no user and no password"),
        ({"url": "http://127.0.0.1"}, "no address of a Redis server"),
        ({"url": "redis://127.0.0.1:99999"}, "no address"),
        ({"url": "redis://127.0.0.1/zero"}, "no number"),
        ({"url": "redis://127.0.0.1?protocol=3"}, "no address of a Redis server"),
        ({"password_file": "/nowhere/at/all"}, "password file"),
        ({"url": "rediss://127.0.0.1", "ca_file": "/nowhere/at/all"}, "not there"),
    ],
)
def test_settings_that_cannot_be_used_say_which_and_what_to_do(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidInput, match=named) as refused:
        Link(RedisSettings(**changes))
    assert refused.value.item is not None
    assert refused.value.item.startswith("cache.redis.")
    assert refused.value.remedy
    assert "secret" not in str(refused.value)


def test_settings_that_can_be_used_are_taken() -> None:
    for changes in ({"url": "redis://cache.example:6379", "plaintext": True}, {"url": "rediss://cache.example/2"},
                    {"url": "unix:///run/redis.sock"}, {"url": "redis://[::1]:6380/0"}):  # fmt: skip
        Link(RedisSettings(**changes)).close()


def test_the_breaker_opens_after_its_failures_and_lets_one_probe_through() -> None:
    clock, pauses = Clock(0.0), []

    def draw(low: float, high: float) -> float:
        pauses.append((low, high))
        return high

    breaker = Breaker(3, 1.0, clock=clock, draw=draw)
    assert [breaker.failed(), breaker.failed(), breaker.admits()] == [False, False, True]
    breaker.succeeded()
    assert [breaker.failed(), breaker.failed(), breaker.failed()] == [False, False, True]
    assert not breaker.admits()
    for pause in (1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0):
        clock.now += pause - 0.001
        assert not breaker.admits()
        clock.now += 0.002
        assert [breaker.admits() for _ in range(5)] == [True, False, False, False, False]
        assert not breaker.failed()
    assert all(low == high / 2 for low, high in pauses)
    clock.now += 31
    assert breaker.admits()
    assert breaker.succeeded()
    assert all(breaker.admits() for _ in range(5))
    assert breaker.failed(at_once=True)
