"""Encrypted files, explicit transactions, lazy migration."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import Column, Integer, MetaData, Table, Text, insert, select
from sqlalchemy.engine import Connection
from sqlalchemy.exc import IntegrityError

from tenancy import database as module
from tenancy.database import ConnectionPools, Database, Retired
from tenancy.errors import Corrupt, SchemaTooNew, Unavailable

metadata = MetaData()
notes = Table("notes", metadata, Column("id", Integer, primary_key=True), Column("text", Text, nullable=False))
KEY = bytes(range(32))


def open_file(path: Path, key: bytes = KEY, pools: ConnectionPools | None = None) -> Database:
    return Database(path, key, metadata, pools or ConnectionPools())


def texts(database: Database) -> list[str]:
    with database.reading() as connection:
        return list(connection.execute(select(notes.c.text).order_by(notes.c.id)).scalars())


def add(database: Database, text: str) -> None:
    with database.writing() as connection:
        connection.execute(insert(notes).values(text=text))


def test_what_is_committed_is_there_after_reopening(tmp_path: Path) -> None:
    add(open_file(tmp_path / "a"), "kept")
    assert texts(open_file(tmp_path / "a")) == ["kept"]


def test_an_exception_rolls_everything_back(tmp_path: Path) -> None:
    database = open_file(tmp_path / "a")
    add(database, "before")
    with pytest.raises(IntegrityError), database.writing() as connection:
        connection.execute(insert(notes), [{"id": 7, "text": "lost"}, {"id": 7, "text": "twice"}])
    assert texts(database) == ["before"]


def test_writers_of_one_process_take_turns_and_hold_no_connection_meanwhile(tmp_path: Path) -> None:
    pools = ConnectionPools()
    database = open_file(tmp_path / "a", pools=pools)
    together = threading.Barrier(8)

    def write(number: int) -> None:
        together.wait()
        for turn in range(5):
            add(database, f"{number}-{turn}")

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(texts(database))) == 40
    assert pools.open == 1


def test_a_writer_does_not_wait_for_ever_and_a_failure_ends_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = open_file(tmp_path / "a")
    monkeypatch.setattr(module, "BUSY_TIMEOUT_MS", 20)
    with database.writing(), pytest.raises(Unavailable), database.writing():
        pass
    with pytest.raises(ZeroDivisionError), database.writing():
        raise ZeroDivisionError
    add(database, "after")
    assert texts(database) == ["after"]


def test_one_read_transaction_sees_one_state(tmp_path: Path) -> None:
    database = open_file(tmp_path / "a")
    add(database, "first")
    count = select(notes.c.id)
    with database.reading() as connection:
        assert len(connection.execute(count).all()) == 1
        add(database, "second")
        assert len(connection.execute(count).all()) == 1
    assert len(texts(database)) == 2


def test_neither_file_nor_log_holds_plain_text(tmp_path: Path) -> None:
    database = open_file(tmp_path / "a")
    with database.reading():
        add(database, "a remarkable sentence")
        written = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert len(written) > 4096
    assert b"remarkable" not in written
    assert b"SQLite format" not in written
    assert texts(database) == ["a remarkable sentence"]


def test_the_wrong_key_opens_nothing(tmp_path: Path) -> None:
    add(open_file(tmp_path / "a"), "kept")
    with pytest.raises(Corrupt):
        texts(open_file(tmp_path / "a", key=bytes(32)))
    assert texts(open_file(tmp_path / "a")) == ["kept"]


def test_a_file_that_is_no_database_is_corrupt_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"something else" * 1000)
    with pytest.raises(Corrupt):
        texts(open_file(tmp_path / "a"))
    assert (tmp_path / "a").read_bytes().startswith(b"something else")


def test_a_damaged_page_is_corrupt_and_names_the_file(tmp_path: Path) -> None:
    database = open_file(tmp_path / "a")
    with database.writing() as connection:
        connection.execute(insert(notes), [{"text": "long " * 100} for _ in range(100)])
    database.truncate_wal()
    database = open_file(tmp_path / "a")
    with (tmp_path / "a").open("r+b") as file:
        file.seek(5 * 4096)
        file.write(b"\xff" * 40_000)
    with pytest.raises(Corrupt) as caught:
        texts(database)
    assert (caught.value.item, "SELECT" in str(caught.value)) == ("a", False)


def test_a_full_disk_is_unavailable_and_changes_nothing(tmp_path: Path) -> None:
    database = open_file(tmp_path / "a")
    add(database, "before")
    with database.reading() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count = 6")
    with pytest.raises(Unavailable, match="the disk is full"), database.writing() as connection:
        connection.execute(insert(notes), [{"text": "x" * 1_000} for _ in range(100)])
    assert texts(database) == ["before"]


def test_a_file_that_cannot_be_opened_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(Unavailable):
        texts(open_file(tmp_path / "a"))


def test_concurrent_writers_all_succeed(tmp_path: Path) -> None:
    database = open_file(tmp_path / "a")
    threads = [threading.Thread(target=lambda: [add(database, "x") for _ in range(10)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(texts(database)) == 80


def test_a_connection_in_use_outlives_the_pools_of_its_file(tmp_path: Path) -> None:
    pools = ConnectionPools(limit=2)
    one, two = open_file(tmp_path / "a", pools=pools), open_file(tmp_path / "b", pools=pools)
    add(one, "a")
    with one.reading() as held:
        assert len(held.execute(select(notes.c.id)).all()) == 1
        for _ in range(2):
            add(two, "b")
            add(one, "a")
        assert len(held.execute(select(notes.c.id)).all()) == 1
    assert (texts(one), texts(two)) == (["a"] * 3, ["b"] * 2)


def _add_column(connection: Connection) -> None:
    connection.exec_driver_sql("ALTER TABLE notes ADD COLUMN author TEXT NOT NULL DEFAULT 'unknown'")


def test_an_older_file_is_migrated_at_its_next_opening_and_an_older_program_refuses_it(tmp_path: Path) -> None:
    add(open_file(tmp_path / "a"), "old")
    newer = Database(tmp_path / "a", KEY, metadata, ConnectionPools(), migrations=(_add_column,))
    with newer.reading() as connection:
        assert connection.exec_driver_sql("SELECT text, author FROM notes").all() == [("old", "unknown")]
    with pytest.raises(SchemaTooNew, match="newer program"):
        texts(open_file(tmp_path / "a"))


def test_a_failing_migration_changes_nothing(tmp_path: Path) -> None:
    def broken(connection: Connection) -> None:
        _add_column(connection)
        raise ZeroDivisionError

    add(open_file(tmp_path / "a"), "old")
    with (
        pytest.raises(ZeroDivisionError),
        Database(tmp_path / "a", KEY, metadata, ConnectionPools(), migrations=(broken,)).reading(),
    ):
        pass
    assert texts(open_file(tmp_path / "a")) == ["old"]


class Known:
    """A mark as the control plane keeps it."""

    def __init__(self, *, made: bool = False, moved: bool = False) -> None:
        self.is_made = made
        self.has_moved = moved

    def made(self) -> bool:
        return self.is_made

    def make(self) -> None:
        self.is_made = True

    def moved(self) -> bool:
        return self.has_moved


def known_file(path: Path, mark: Known) -> Database:
    return Database(path, KEY, metadata, ConnectionPools(), mark=mark)


def test_a_file_is_made_once_and_its_loss_is_no_new_beginning(tmp_path: Path) -> None:
    mark = Known()
    add(known_file(tmp_path / "a", mark), "kept")
    assert mark.is_made
    assert texts(known_file(tmp_path / "a", mark)) == ["kept"]
    whole = (tmp_path / "a").read_bytes()
    for name in ("a-wal", "a-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / "a").write_bytes(b"")
    with pytest.raises(Corrupt, match="restore it from a backup"):
        texts(known_file(tmp_path / "a", mark))
    (tmp_path / "a").unlink()
    with pytest.raises(Corrupt, match="missing or empty"):
        texts(known_file(tmp_path / "a", mark))
    assert not (tmp_path / "a").exists()
    (tmp_path / "a").write_bytes(whole)


def test_a_file_without_a_mark_may_be_lost(tmp_path: Path) -> None:
    add(open_file(tmp_path / "a"), "only a cache")
    (tmp_path / "a").unlink()
    assert texts(open_file(tmp_path / "a")) == []


def test_a_file_that_vanishes_while_it_is_open_is_not_made_anew(tmp_path: Path) -> None:
    mark, pools = Known(), ConnectionPools()
    database = Database(tmp_path / "a", KEY, metadata, pools, mark=mark)
    add(database, "kept")
    pools.close()
    (tmp_path / "a").unlink()
    with pytest.raises(Corrupt, match="missing"):
        texts(database)
    mark.has_moved = True
    with pytest.raises(Retired):
        texts(database)
    assert list(tmp_path.glob("a*")) == []


def test_a_retired_file_is_used_by_nobody_again(tmp_path: Path) -> None:
    old, beside = open_file(tmp_path / "a"), open_file(tmp_path / "a")
    add(beside, "kept")
    with old.writing() as connection:
        old.copy_to(tmp_path / "b", bytes(32))
        old.retire(connection)
    for database in (old, beside, open_file(tmp_path / "a")):
        with pytest.raises(Retired):
            texts(database)
        with pytest.raises(Retired):
            add(database, "lost")
    assert texts(open_file(tmp_path / "b", key=bytes(32))) == ["kept"]


def test_a_copy_is_one_state_and_keeps_numbers_from_being_used_again(tmp_path: Path) -> None:
    database = open_file(tmp_path / "a")
    add(database, "one")
    with database.writing() as connection:
        connection.execute(insert(notes).values(text="unfinished"))
        database.copy_to(tmp_path / "b", bytes(32))
    with pytest.raises(Corrupt):
        texts(open_file(tmp_path / "b"))
    assert texts(open_file(tmp_path / "b", key=bytes(32))) == ["one"]
    assert texts(database) == ["one", "unfinished"]


def test_a_file_that_a_newer_program_migrated_meanwhile_is_refused(tmp_path: Path) -> None:
    old = open_file(tmp_path / "a")
    add(old, "kept")
    newer = Database(tmp_path / "a", KEY, metadata, ConnectionPools(), migrations=(lambda _: None,))
    assert texts(newer) == ["kept"]
    with pytest.raises(SchemaTooNew):
        texts(old)


def test_a_new_file_that_another_process_holds_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both made it at once, and the other is still in its first transaction: no write-ahead log can begin yet."""
    database, paused = open_file(tmp_path / "a"), threading.Event()
    monkeypatch.setattr("tenancy.database.time.sleep", lambda _: paused.set())
    with closing(module.driver.connect(str(tmp_path / "a"), isolation_level=None)) as other:
        other.execute(f"PRAGMA key = \"x'{KEY.hex()}'\"")
        other.execute("CREATE TABLE before (x)")
        other.execute("BEGIN IMMEDIATE")
        with ThreadPoolExecutor(1) as pool:
            opened = pool.submit(texts, database)
            assert paused.wait(10)
            assert not opened.done()
            other.execute("COMMIT")
            assert opened.result(10) == []
