"""What only PostgreSQL can get wrong: schemas, locks between writers, a server that is away."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import Column, MetaData, Select, Table, func, insert, select, text
from sqlalchemy.engine import Connection
from sqlalchemy.exc import IntegrityError, ProgrammingError

from tenancy import directory, schema
from tenancy.control import Tenants
from tenancy.errors import Corrupt, InvalidInput, NotFound, SchemaTooNew, Unavailable
from tenancy.identity import Authenticator
from tenancy.keyring import rotate_master
from tenancy.keys import MasterKey
from tenancy.postgres import PostgresDatabase
from tenancy.postgres_storage import PostgresStorage
from tenancy.postgres_url import PostgresSettings, server_url
from tenancy.storage import Place
from tenancy.types import Integer, Text, among
from tests.support.people import Company
from tests.support.postgres import fresh_database, postgres_storage

metadata = MetaData()
notes = Table("notes", metadata, Column("id", Integer, primary_key=True), Column("text", Text, nullable=False))
PLACE = Place("audit", "t_1", "notes.sqlite")


@pytest.fixture
def url() -> Iterator[str]:
    with fresh_database() as made:
        yield made


@pytest.fixture
def storage(url: str, tmp_path: Path) -> Iterator[PostgresStorage]:
    made = postgres_storage(url, tmp_path)
    yield made
    made.close()


def database(storage: PostgresStorage, owner: str = "t_1") -> PostgresDatabase:
    return storage.database(Place("audit", owner, "notes.sqlite"), bytes(32), metadata)


def texts(of: PostgresDatabase) -> list[str]:
    with of.reading() as connection:
        return list(connection.execute(select(notes.c.text).order_by(notes.c.id)).scalars())


def add(to: PostgresDatabase, *values: str) -> None:
    with to.writing() as connection:
        connection.execute(insert(notes), [{"text": value} for value in values])


def test_two_schemas_share_statements_and_no_rows(storage: PostgresStorage) -> None:
    one, two = database(storage, "t_1"), database(storage, "t_2")
    add(one, "of one")
    add(two, "of two")
    assert (texts(one), texts(two)) == (["of one"], ["of two"])


def test_an_exception_undoes_all_and_no_number_is_given_again(storage: PostgresStorage) -> None:
    notebook = database(storage)
    add(notebook, "first", "second")
    with notebook.writing() as connection:
        connection.execute(notes.delete().where(notes.c.id == 2))
    with pytest.raises(IntegrityError), notebook.writing() as connection:
        connection.execute(insert(notes), [{"id": 7, "text": "lost"}, {"id": 1, "text": "taken"}])
    add(notebook, "third")
    with notebook.reading() as connection:
        assert connection.execute(select(notes.c.id, notes.c.text).order_by(notes.c.id)).all() == [
            (1, "first"), (3, "third"),
        ]  # fmt: skip


def test_a_read_transaction_sees_one_state_and_cannot_write(storage: PostgresStorage) -> None:
    notebook = database(storage)
    add(notebook, "first")
    with notebook.reading() as connection:
        assert connection.execute(select(func.count()).select_from(notes)).scalar_one() == 1
        add(notebook, "second")
        assert connection.execute(select(func.count()).select_from(notes)).scalar_one() == 1
    with pytest.raises(Unavailable), notebook.reading() as connection:
        connection.execute(insert(notes).values(text="smuggled"))
    assert texts(notebook) == ["first", "second"]


def test_a_writer_sees_what_was_committed_while_it_waited(storage: PostgresStorage, url: str, tmp_path: Path) -> None:
    """The reason for READ COMMITTED behind the lock: the count before one's own row is that of the predecessor."""
    beside = postgres_storage(url, tmp_path)
    rounds, counts = 20, []

    def write(through: PostgresDatabase) -> None:
        for _ in range(rounds):
            with through.writing() as connection:
                before = connection.execute(select(func.count()).select_from(notes)).scalar_one()
                connection.execute(insert(notes).values(text="row"))
                counts.append(before)

    threads = [threading.Thread(target=write, args=(database(one),)) for one in (storage, beside)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(counts) == list(range(2 * rounds))
    beside.close()


def test_a_writer_that_does_not_end_lets_the_next_one_go_and_another_schema_write(url: str, tmp_path: Path) -> None:
    storage = postgres_storage(url, tmp_path, lock_timeout_s=0.1)
    notebook, other = database(storage, "t_1"), database(storage, "t_2")
    with notebook.writing():
        with pytest.raises(Unavailable, match="another writer"):
            add(notebook, "late")
        add(other, "elsewhere")
    add(notebook, "in time")
    assert (texts(notebook), texts(other)) == (["in time"], ["elsewhere"])
    storage.close()


def test_order_and_comparison_are_those_of_code_points(storage: PostgresStorage) -> None:
    notebook = database(storage)
    add(notebook, "b", "B", "a#2", "a$", "a", "a#", "ä", "Z")
    with notebook.reading() as connection:
        found = list(connection.execute(select(notes.c.text).order_by(notes.c.text)).scalars())
        family = select(notes.c.text).where(notes.c.text >= "a#", notes.c.text < "a$").order_by(notes.c.text)
        assert connection.execute(family).scalars().all() == ["a#", "a#2"]
    assert found == sorted(found)


def test_a_list_is_one_parameter_also_when_it_is_empty(storage: PostgresStorage) -> None:
    notebook = database(storage)
    add(notebook, "a", "b", "c")
    query = select(notes.c.text).where(among(notes.c.id, "ids")).order_by(notes.c.id)
    with notebook.reading() as connection:
        assert connection.execute(query, {"ids": {3, 1}}).scalars().all() == ["a", "c"]
        assert connection.execute(query, {"ids": []}).scalars().all() == []
        assert len(connection.execute(query, {"ids": range(-50_000, 50_000)}).all()) == 3


def test_text_with_nul_is_refused_by_name(storage: PostgresStorage) -> None:
    notebook = database(storage)
    with pytest.raises(InvalidInput, match=r"U\+0000"):
        add(notebook, "a\0b")
    add(notebook, "ab")
    assert texts(notebook) == ["ab"]


def test_a_dropped_schema_is_not_found_and_not_made_again(storage: PostgresStorage) -> None:
    notebook = database(storage)
    add(notebook, "first")
    with storage._server.rare.begin() as connection:
        connection.execute(text("DROP SCHEMA sr_notes_t_1 CASCADE"))
    for opened in (notebook, PostgresDatabase(storage._server, "sr_notes_t_1", metadata)):
        with pytest.raises(NotFound, match="deleted"):
            texts(opened)
        with pytest.raises(NotFound, match="deleted"):
            add(opened, "second")
    assert not storage.holds(PLACE)


def test_an_error_of_a_statement_stays_what_it_is(storage: PostgresStorage) -> None:
    with pytest.raises(ProgrammingError), database(storage).reading() as connection:
        connection.execute(text("SELECT * FROM nowhere_at_all"))


def test_a_newer_program_migrates_once_and_the_older_one_refuses(storage: PostgresStorage) -> None:
    def add_table(connection: Connection) -> None:
        Table("more", MetaData(), Column("id", Integer, primary_key=True)).create(connection)

    older = database(storage)
    add(older, "kept")
    for _ in range(2):
        newer = storage.database(PLACE, bytes(32), metadata, migrations=(add_table,))
        assert texts(newer) == ["kept"]
    for opened in (older, database(storage)):
        with pytest.raises(SchemaTooNew):
            texts(opened)
        with pytest.raises(SchemaTooNew):
            add(opened, "too old")


def test_a_failed_migration_leaves_the_schema_as_it_was(storage: PostgresStorage) -> None:
    def broken(connection: Connection) -> None:
        Table("more", MetaData(), Column("id", Integer, primary_key=True)).create(connection)
        raise RuntimeError("power cut")

    older = database(storage)
    add(older, "kept")
    with pytest.raises(RuntimeError), storage.database(PLACE, bytes(32), metadata, migrations=(broken,)).reading():
        pass
    assert texts(older) == ["kept"]


def test_no_free_connection_and_a_cut_one_are_unavailable_and_pass(url: str, tmp_path: Path) -> None:
    storage = postgres_storage(url, tmp_path, pool_size=2, lock_timeout_s=0.1)
    notebook = database(storage)
    add(notebook, "first")
    with notebook.reading(), notebook.reading(), pytest.raises(Unavailable, match="pool"):
        texts(notebook)
    with pytest.raises(Unavailable, match="away"), notebook.reading() as connection:
        connection.execute(_cut_all(url))
    assert texts(notebook) == ["first"]
    storage.close()


def test_as_many_who_withdraw_as_the_pool_has_connections_all_end(url: str, tmp_path: Path) -> None:
    """Each holds a connection to its tenant while it writes the ledger and looks into the control plane."""
    count = 3
    storage = postgres_storage(url, tmp_path, pool_size=count, lock_timeout_s=3.0)
    tenants = Tenants(tmp_path, MasterKey(bytes(32)), storage=storage)
    companies = [Company(tenants, Authenticator(tenants), f"t{number}") for number in range(count)]
    for company in companies:
        company.member("legal", "user:ana")
    all_hold_one = threading.Barrier(count)

    def withdraw(company: Company) -> None:
        with company.handle.writing() as view:
            all_hold_one.wait(30)
            directory.remove_members(view, "legal", ["user:ana"])

    with ThreadPoolExecutor(count) as threads:
        list(threads.map(withdraw, companies))
    for company in companies:
        with company.handle.reading() as view:
            assert view.execute(select(schema.members)).all() == []
    tenants.close()


def test_pooled_connections_that_died_are_replaced_unnoticed(url: str, storage: PostgresStorage) -> None:
    """As after a restart of the server, between two transactions."""
    notebook = database(storage)
    add(notebook, "first")
    _cut_all(url)
    assert texts(notebook) == ["first"]
    _cut_all(url)
    add(notebook, "second")
    _cut_all(url)
    assert storage.holds(PLACE)
    assert texts(notebook) == ["first", "second"]


def test_commits_are_durable_where_the_servers_default_is_not(url: str, storage: PostgresStorage) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute(f'ALTER DATABASE "{name}" SET synchronous_commit = off'.encode())
    with database(storage).reading() as connection:
        assert connection.execute(text("SHOW synchronous_commit")).scalar_one() == "on"


def test_a_server_that_is_not_there_is_unavailable(tmp_path: Path) -> None:
    storage = postgres_storage("postgresql://u@localhost:1/none", tmp_path)
    with pytest.raises(Unavailable, match="away"):
        database(storage)


@pytest.mark.parametrize(
    ("url", "mode"),
    [
        ("postgresql://u@db.example/x?sslrootcert=/ca.pem", "verify-full"),
        ("postgresql://u@localhost/x", "prefer"),
        ("postgresql://u@127.0.0.1:5432/x", "prefer"),
        ("postgresql://u@[::1]/x", "prefer"),
        ("postgresql://u@/x?host=/run/postgresql", "prefer"),
        ("postgresql://u@/x?host=localhost:5432&host=db.example:5432", "verify-full"),
        ("postgresql://u@localhost/x?host=db.example", "verify-full"),
        ("postgresql://u@localhost.example/x", "verify-full"),
    ],
)
def test_what_leaves_the_machine_is_verified(url: str, mode: str) -> None:
    assert server_url(PostgresSettings(url=url)).query["sslmode"] == mode
    assert server_url(PostgresSettings(url=url, plaintext=True)).query["sslmode"] == "prefer"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "db.example",
        "sqlite:///x",
        "mysql://u@h/x",
        "postgresql://u:secret@h/x",
        "postgresql://u@h",
        "postgresql://u@h/x?sslmode=disable",
        "postgresql://u@localhost/x?hostaddr=203.0.113.5",
        "postgresql://u@h/x?passfile=/x",
        "postgresql://u@h/x?options=-csynchronous_commit%3Doff",
    ],
)
def test_a_bad_address_is_refused_and_never_quoted(url: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        server_url(PostgresSettings(url=url))
    assert "secret" not in str(refused.value)


def test_the_password_comes_from_its_file_and_shows_nowhere(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("s3cret\n")
    settings = PostgresSettings(url="postgresql://u@db.example/x", password_file=str(tmp_path / "password"))
    url = server_url(settings)
    assert url.password == "s3cret"
    assert "s3cret" not in repr(settings) + str(url)
    with pytest.raises(InvalidInput, match="password file"):
        server_url(PostgresSettings(url="postgresql://u@db.example/x", password_file=str(tmp_path / "none")))


def _cut_all(url: str) -> Select[Any]:
    """End all other connections; returns a statement."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    return select(notes)


def test_the_keyring_is_one_row_and_the_master_key_can_change_beside_a_server(
    url: str, storage: PostgresStorage, tmp_path: Path
) -> None:
    beside = postgres_storage(url, tmp_path)
    old, new = MasterKey(bytes(32)), MasterKey(bytes([1]) * 32)
    first = Tenants(tmp_path, old, storage=storage)
    made = first.create("acme")
    rotate_master(beside.keyring, old, new)
    assert first.show("acme") == made
    with pytest.raises(InvalidInput, match="did not wrap"):
        Tenants(tmp_path, old, storage=beside)
    second = Tenants(tmp_path, new, storage=beside)
    assert second.show("acme") == made
    second.close()


def test_a_lost_keyring_or_control_plane_is_no_new_beginning(
    url: str, storage: PostgresStorage, tmp_path: Path
) -> None:
    master = MasterKey(bytes(32))
    tenants = Tenants(tmp_path, master, storage=storage)
    tenants.create("acme")
    _run(url, "DELETE FROM sr_control.keyring")
    with pytest.raises(Corrupt, match="keyring is missing"):
        Tenants(tmp_path, master, storage=storage)
    _run(url, "DROP SCHEMA sr_control CASCADE")
    beside = postgres_storage(url, tmp_path)
    with pytest.raises(Corrupt, match="control plane is missing"):
        Tenants(tmp_path, master, storage=beside)
    beside.close()


def test_a_deleted_tenant_has_no_schema_and_an_interrupted_deletion_is_finished(
    url: str, storage: PostgresStorage, tmp_path: Path
) -> None:
    tenants = Tenants(tmp_path, MasterKey(bytes(32)), storage=storage)
    authenticator = Authenticator(tenants)
    acme, globex = Company(tenants, authenticator, "acme"), Company(tenants, authenticator, "globex")
    acme.document("paper", allow=["tenant"])
    globex.document("paper", allow=["tenant"])
    tenants.delete("acme")
    gone, stays = f"sr_{acme.handle.tenant_id}", f"sr_{globex.handle.tenant_id}"
    assert gone not in storage._schemas()
    assert stays in storage._schemas()
    _run(url, f'CREATE SCHEMA "{gone}"')
    assert tenants.sweep() == [acme.handle.tenant_id]
    assert gone not in storage._schemas()
    assert not globex.domain(globex.principal("ana")).is_empty


def test_the_server_tells_what_it_is_like(storage: PostgresStorage) -> None:
    about = storage._server.examine(3)
    assert (about.tls, about.unsafe) == (None, None)
    assert about.version.split(".")[0].isdigit()
    assert about.round_trip_ms > 0
    assert about.free_connections > 0


def _run(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())
