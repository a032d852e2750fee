"""32 threads, two processes, kill -9 at any moment: no hit dangles, sizes agree, no tenant suffers from another."""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from cache.policy import CachePolicy
from cache.stores.port import CacheStore
from cache.stores.selector import Selector
from tenancy.identity import Role
from tests.cache.conformance.churn import Churn
from tests.cache.conformance.conftest import SERVERS
from tests.cache.conformance.rig import Rig
from tests.cache.conformance.test_store_contract import agrees, entry_of, fill, ids_of
from tests.cache.desk import Clock, Desk, unit
from tests.layout.scope_rule import ROOT
from tests.support.people import Company

THREADS = 32
STEPS = 25
MOST = 40

pytestmark = pytest.mark.slow


@pytest.fixture
def clock() -> Clock:
    """Real time, as in the other process."""

    class Now(Clock):
        def __call__(self) -> float:
            return time.time()

    return Now()


def neighbour(globex: Company, store: CacheStore) -> tuple[set[str], Company]:
    """Another tenant, full to its quota, whose entries must all still be there afterwards."""
    gil = Desk(globex, globex.principal("gil"), store)
    return set(fill(gil, MOST, globex.document("notes", allow=["tenant"]))), globex


def whole_after_repair(store: CacheStore, company: Company) -> None:
    store.repair(company.handle)
    assert agrees(store, company)
    assert store.stats(company.handle).entries <= MOST


def test_32_threads_put_evict_invalidate_and_look_up(rig: Rig, acme: Company, globex: Company, handbook: int) -> None:
    store = rig.open(CachePolicy(max_entries=MOST))
    kept, other = neighbour(globex, store)
    desk = Desk(acme, acme.principal("ana"), store)
    churns = [Churn(desk, handbook, seed) for seed in range(THREADS)]
    failures: list[BaseException] = []

    def work(churn: Churn) -> None:
        try:
            churn.run(STEPS)
        except BaseException as error:  # noqa: BLE001  whatever it is, the test has to see it
            failures.append(error)

    threads = [threading.Thread(target=work, args=(churn,)) for churn in churns]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    seen = sum((churn.seen for churn in churns), Counter())
    assert seen["away"] == 0 or (rig.server is None and seen["away"] < THREADS)
    assert seen["found"] > 100
    assert seen["put"] > 200
    # Before any repair the totals agree already: every step is atomic.
    assert agrees(store, acme)
    whole_after_repair(store, acme)
    assert ids_of(store, other) == kept


@contextlib.contextmanager
def beside(
    rig: Rig, company: Company, key: str, document: int, data: Path, seed: int
) -> Iterator[subprocess.Popen[str]]:
    """Another process that does everything at once to the same tenant's cache, until it is killed."""
    server = [] if rig.server is None else [str(rig.server.port), str(rig.server.password_file)]
    arguments = [str(data), company.name, key, str(document), str(seed), str(MOST), *server]
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.cache.conformance.churn", *arguments],
        cwd=ROOT, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def test_two_processes_and_kill_9_of_one_in_the_middle_of_its_work(
    rig: Rig, acme: Company, globex: Company, handbook: int, tmp_path: Path
) -> None:
    store = rig.open(CachePolicy(max_entries=MOST))
    kept, other = neighbour(globex, store)
    desk = Desk(acme, acme.principal("ana"), store)
    key = acme.tenants.create_key("acme", "ana", (Role.READER,)).text
    draw, found = random.Random(1), 0
    for seed in range(3):
        churn = Churn(desk, handbook, 100 + seed)
        with beside(rig, acme, key, handbook, tmp_path / "data", seed) as process:
            churn.run(40)
            # Anywhere in a write: the moment is drawn, and a dozen more follow it at this side.
            time.sleep(draw.uniform(0.0, 0.05))
            process.kill()
            process.wait()
            churn.run(20)
        found += churn.seen["found"]
        assert agrees(store, acme)
        whole_after_repair(store, acme)
    assert found > 30
    assert ids_of(store, other) == kept


def test_kill_9_between_the_decision_and_the_end_of_a_write_leaves_the_old_entry_whole(
    rig: Rig, acme: Company, handbook: int, tmp_path: Path
) -> None:
    store = rig.open(CachePolicy(max_entries=MOST))
    desk = Desk(acme, acme.principal("ana"), store)
    churn = Churn(desk, handbook, 0, questions=1)
    entry = entry_of(desk, churn.asked[0], handbook)
    assert store.put(acme.handle, entry, allowed=lambda: None) is None
    key = acme.tenants.create_key("acme", "ana", (Role.READER,)).text
    server = [] if rig.server is None else [str(rig.server.port), str(rig.server.password_file)]
    died = subprocess.run(
        [sys.executable, "-m", "tests.cache.conformance.churn", str(tmp_path / "data"), "acme", key, str(handbook),
         "-1", str(MOST), *server],
        cwd=ROOT, check=False, timeout=120,
    )  # fmt: skip
    assert died.returncode == -signal.SIGKILL
    found = store.get(acme.handle, churn.asked[0].namespace, churn.asked[0].exact)
    assert found == entry
    assert [near for near, _ in store.nearest(acme.handle, churn.asked[0].namespace, unit(1.0))] == [entry]
    assert agrees(store, acme)


@pytest.mark.parametrize("rig", list(SERVERS), indirect=True)
def test_kill_9_of_the_server_in_the_middle_of_writes_leaves_whole_entries(
    rig: Rig, acme: Company, globex: Company, handbook: int
) -> None:
    """The local store has no server; kill -9 of its process is above."""
    assert rig.server is not None
    store = rig.open(CachePolicy(max_entries=MOST), failures=1_000_000)
    kept, other = neighbour(globex, store)
    desk = Desk(acme, acme.principal("ana"), store)
    draw = random.Random(2)
    for seed in range(3):
        stop = threading.Event()
        acknowledged: list[str] = []

        def write(seed: int = seed, stop: threading.Event = stop, done: list[str] = acknowledged) -> None:
            number = 1_000 * seed
            while not stop.is_set():
                with contextlib.suppress(AssertionError):
                    done += fill(desk, 1, handbook, start=number)
                number += 1

        writer = threading.Thread(target=write)
        writer.start()
        while len(acknowledged) < draw.randint(5, 15):
            time.sleep(0.001)
        rig.server.kill()
        stop.set()
        writer.join()
        rig.server.start()
        assert agrees(store, acme)
        there = ids_of(store, acme)
        if rig.durable:
            # The newest that were acknowledged are there, as far as the quota allows, and nothing but whole entries.
            assert set(acknowledged[-5:]) <= there
            assert ids_of(store, other) == kept
        else:
            assert there == set()
        Churn(desk, handbook, 200 + seed).run(40)
        whole_after_repair(store, acme)
        store.invalidate(acme.handle, Selector(everything=True))
