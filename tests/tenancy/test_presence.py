"""Who is alive, over files and over PostgreSQL."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from tenancy.database import ConnectionPools
from tenancy.presence import Presence
from tenancy.storage import SqliteStorage, Storage
from tests.support.postgres import fresh_database, postgres_storage

ROOT = Path(__file__).parents[2]
Join = Callable[[], Presence]


@pytest.fixture
def join(tmp_path: Path, storage: str) -> Iterator[Join]:
    """Makes one more process instance, each over connections of its own."""
    opened: list[Storage] = []

    def one() -> Presence:
        opened.append(postgres_storage(storage, tmp_path) if storage else SqliteStorage(tmp_path, ConnectionPools()))
        return opened[-1].presence()

    yield one
    for each in opened:
        each.close()


@pytest.mark.both_storages
def test_an_instance_is_alive_until_it_closes(join: Join) -> None:
    first, second = join(), join()
    assert first.id != second.id
    assert second.alive(first.id)
    assert first.alive(second.id)
    assert second.alive(second.id)
    assert second.ended() == []
    first.close()
    assert not second.alive(first.id)
    assert second.alive(second.id)
    assert second.ended() == []
    second.close()


@pytest.mark.both_storages
def test_an_instance_that_never_was_is_not_alive(join: Join) -> None:
    live = join()
    assert not live.alive("w_" + "0" * 20)
    live.close()


@pytest.mark.both_storages
def test_who_closes_with_something_left_is_among_the_ended(join: Join) -> None:
    living, leaving = join(), join()
    leaving.mark("t_1")
    leaving.mark("t_2")
    leaving.unmark(["t_2"])
    leaving.close(settled=False)
    assert living.ended() == [leaving.id]
    assert living.marked(leaving.id) == ["t_1"]
    living.forget([leaving.id])
    assert living.ended() == living.marked(leaving.id) == []
    living.close()


@pytest.mark.both_storages
def test_who_is_killed_is_named_until_it_is_forgotten(join: Join, tmp_path: Path, storage: str) -> None:
    living, here = join(), join()
    words = [sys.executable, "-m", "tests.support.present", str(tmp_path), storage]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        other = process.stdout.readline().strip()
        assert here.alive(other)
        assert here.ended() == []
        process.kill()
        process.wait()
    # A server notices a moment after the process has ended.
    while here.alive(other):
        pass
    assert here.ended() == living.ended() == [other]
    assert here.marked(other) == ["t_1"]
    here.forget([other])
    assert here.ended() == here.marked(other) == []
    assert here.alive(living.id)
    living.close()
    here.close()


def test_behind_a_cut_connection_it_takes_its_identity_back(tmp_path: Path) -> None:
    with fresh_database() as url:
        one, two = postgres_storage(url, tmp_path), postgres_storage(url, tmp_path)
        first, second = one.presence(), two.presence()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        # The second one is back first, and sees the first one gone until that does something.
        assert second.ended() == [first.id]
        second.forget([first.id])
        assert first.alive(second.id)
        assert second.alive(first.id)
        assert second.ended() == []
        first.close(settled=False)
        assert second.ended() == [first.id]
        second.close()
        one.close()
        two.close()
