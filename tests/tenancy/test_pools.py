"""Open connections stay within what the process may open, whoever uses them, and a refusal is bounded and clear."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import Column, Integer, MetaData, Table, insert, select

from tenancy import pools as pools_module
from tenancy.database import ConnectionPools, Database
from tenancy.errors import InvalidInput, Unavailable
from tenancy.pools import DESCRIPTORS_A_CONNECTION, connections_within, raise_limit

ROOT = Path(__file__).parents[2]
metadata = MetaData()
numbers = Table("numbers", metadata, Column("id", Integer, primary_key=True))


def files(folder: Path, count: int, pools: ConnectionPools) -> list[Database]:
    return [Database(folder / f"f{number}", bytes(32), metadata, pools) for number in range(count)]


def use(database: Database) -> int:
    with database.writing() as connection:
        connection.execute(insert(numbers))
    with database.reading() as connection:
        return len(connection.execute(select(numbers)).all())


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_idle_connections_make_room_for_others(tmp_path: Path) -> None:
    pools = ConnectionPools(limit=3, wait_s=0)
    before = open_files()
    databases = files(tmp_path, 12, pools)
    for turn in range(1, 4):
        assert [use(database) for database in databases] == [turn] * 12
        assert pools.open <= 3
        assert open_files() - before <= 3 * DESCRIPTORS_A_CONNECTION
    pools.close()
    assert (pools.open, open_files() - before) == (0, 0)


def test_connections_in_use_count_and_one_more_is_refused_with_the_remedy(tmp_path: Path) -> None:
    pools = ConnectionPools(limit=2, wait_s=0)
    one, two, three = files(tmp_path, 3, pools)
    for database in (one, two, three):
        use(database)
    with one.reading(), two.reading():
        with pytest.raises(Unavailable, match="2 connections") as caught:
            use(three)
        assert "ulimit" in (caught.value.remedy or "")
        assert pools.open == 2
    assert use(three) == 2


def test_a_caller_waits_for_a_connection_that_comes_back(tmp_path: Path) -> None:
    pools = ConnectionPools(limit=1, wait_s=30)
    one, two = files(tmp_path, 2, pools)
    use(one)
    with ThreadPoolExecutor(1) as pool:
        with one.reading():
            waiting = pool.submit(use, two)
            with pytest.raises(TimeoutError):
                waiting.result(0.05)
        assert waiting.result(10) == 1


def test_a_file_that_cannot_be_opened_gives_its_place_back(tmp_path: Path) -> None:
    pools = ConnectionPools(limit=2, wait_s=0)
    (tmp_path / "f0").mkdir()
    broken, works = files(tmp_path, 2, pools)
    for _ in range(5):
        with pytest.raises(Unavailable):
            use(broken)
    assert (use(works), pools.open) == (1, 1)


def test_threads_over_many_files_never_open_more_than_the_limit(tmp_path: Path) -> None:
    pools = ConnectionPools(limit=4, wait_s=30)
    databases = files(tmp_path, 16, pools)
    seen: list[int] = []
    lock = threading.Lock()

    def work(number: int) -> None:
        database = databases[number % 16]
        use(database)
        with lock:
            seen.append(pools.open)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(160)))
    assert max(seen) <= 4
    assert [use(database) for database in databases] == [11] * 16


def test_files_below_a_directory_are_closed_alone(tmp_path: Path) -> None:
    pools = ConnectionPools(limit=8)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        use(files(tmp_path / name, 1, pools)[0])
    assert pools.directories() == {tmp_path / "a", tmp_path / "b"}
    pools.close(tmp_path / "a")
    assert (pools.open, pools.directories()) == (1, {tmp_path / "b"})


def test_the_number_of_connections_follows_from_the_limit_of_open_files() -> None:
    assert [connections_within(limit) for limit in (16, 128, 1_024, 20_000, 1 << 20)] == [4, 21, 256, 1_024, 1_024]
    with pytest.raises(InvalidInput):
        ConnectionPools(limit=0)


def test_the_soft_limit_is_raised_to_the_hard_one_where_that_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = [1_024, 4_096]
    monkeypatch.setattr(resource, "getrlimit", lambda _: tuple(limits))
    monkeypatch.setattr(resource, "setrlimit", lambda _, found: limits.__setitem__(slice(None), list(found)))
    assert raise_limit() == 4_096 == limits[0]
    limits[:] = [1_024, resource.RLIM_INFINITY]
    assert raise_limit() == 65_536 == limits[0]
    limits[:] = [1_024, 4_096]

    def forbidden(*_: object) -> None:
        raise ValueError

    monkeypatch.setattr(resource, "setrlimit", forbidden)
    assert raise_limit() == 1_024
    assert pools_module.connections_within(raise_limit()) == 256


TRAFFIC = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, ({limit}, {limit}))
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tenancy.control import Tenants
from tenancy.identity import Authenticator
from tenancy.keys import MasterKey
from tests.support.files import most_open

tenants = Tenants(Path(sys.argv[1]), MasterKey(bytes(32)))
authenticator = Authenticator(tenants)
names = [f"t{{number}}" for number in range({count})]

def create(name):
    tenants.create(name)
    tenants.create_key(name, "ana", [])

def ask(name):
    principal = authenticator.operator(name, "ana")
    tenant = tenants.open(principal)
    with tenant.reading() as view:
        epochs = view.epochs
    with tenant.writing() as view:
        view.bump_acl()
    return epochs.acl

with ThreadPoolExecutor(8) as pool, most_open() as most:
    list(pool.map(create, names))
    for turn in range(3):
        assert list(pool.map(ask, names)) == [turn] * len(names)
print(most.count)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("limit", "count"), [(128, 200), (1_024, 400)])
def test_hundreds_of_tenants_in_traffic_under_a_low_limit(limit: int, count: int, tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", TRAFFIC.format(limit=limit, count=count), str(tmp_path / "data")],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-2000:]
    assert "open" not in run.stderr
    most = int(re.findall(r"\d+", run.stdout)[-1])
    assert connections_within(limit) < most < limit
