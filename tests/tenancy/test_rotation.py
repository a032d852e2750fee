"""A tenant's data key is changed beside readers and writers, and wherever the process dies one generation is whole."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
from sqlalchemy import MetaData, select

from tenancy import directory, rotation, schema
from tenancy.control import Tenants
from tenancy.errors import Corrupt, NotFound
from tenancy.identity import Authenticator
from tenancy.keys import MasterKey
from tenancy.schema import wrapped_keys
from tenancy.tenant import TenantHandle
from tests.support.people import NOW, Company

POINTS = ["next key", "copied", "retired", "switched"]
KILLED = """
import os, signal, sys
from pathlib import Path
from tenancy import rotation
from tenancy.control import Tenants
from tenancy.keys import MasterKey

def reached(point):
    if point == sys.argv[2]:
        os.kill(os.getpid(), signal.SIGKILL)

rotation.reached = reached
Tenants(Path(sys.argv[1]), MasterKey(bytes(range(32)))).rotate_key("acme")
"""


def names(handle: TenantHandle) -> list[str]:
    with handle.reading() as view:
        return sorted(view.execute(select(schema.documents.c.name)).scalars())


def files(company: Company) -> set[str]:
    return {path.name for path in company.handle.directory.glob("*.sqlite")}


def data_key(tenants: Tenants, handle: TenantHandle) -> bytes:
    return tenants._key(handle.tenant_id, "data")


def test_everything_is_there_under_another_key_and_the_old_files_are_gone(acme: Company) -> None:
    acme.document("paper", allow=["tenant"])
    ana = acme.principal("ana")
    before, identity = data_key(acme.tenants, acme.handle), acme.domain(ana).labels
    acme.handle.database("cache.sqlite", MetaData()).truncate_wal()
    assert files(acme) == {"tenant.sqlite", "cache.sqlite"}
    assert acme.tenants.rotate_key("acme") == 2
    assert names(acme.handle) == ["paper"]
    assert acme.domain(ana).labels == identity
    assert files(acme) == {"tenant.2.sqlite"}
    assert data_key(acme.tenants, acme.handle) not in (before, b"")
    assert acme.tenants.rotate_key("acme") == 3
    acme.document("more", allow=["tenant"])
    assert names(acme.handle) == ["more", "paper"]
    assert files(acme) == {"tenant.3.sqlite"}
    assert acme.tenants.sweep() == []
    assert acme.handle.database("cache.sqlite", MetaData()).path.name == "cache.3.sqlite"


def test_the_old_key_is_gone_from_the_control_plane(acme: Company, master: MasterKey) -> None:
    before = data_key(acme.tenants, acme.handle)
    acme.tenants.rotate_key("acme")
    again = Tenants(acme.tenants.data_dir, master)
    with again._control.reading() as connection:
        rows = connection.execute(select(wrapped_keys)).all()
    kept = {again._root.unwrap(row.tenant_id, row.purpose, row.wrapped) for row in rows}
    assert len(kept) == 2
    assert before not in kept
    again.close()


def test_other_processes_go_on_in_the_new_file(acme: Company, master: MasterKey) -> None:
    beside = Tenants(acme.tenants.data_dir, master)
    handle = beside.open(Authenticator(beside).operator("acme"))
    acme.document("paper", allow=["tenant"])
    assert names(handle) == ["paper"]
    acme.tenants.rotate_key("acme")
    with handle.writing() as view:
        directory.ensure_user(view, "bo", NOW)
    with acme.handle.reading() as view:
        assert directory.find_user(view, "bo")
    assert handle.generation == acme.handle.generation == 2
    assert handle.keys == acme.handle.keys
    beside.close()


def test_a_reader_keeps_its_state_and_writers_lose_nothing(acme: Company, master: MasterKey) -> None:
    beside = Tenants(acme.tenants.data_dir, master)
    handle = beside.open(Authenticator(beside).operator("acme"))
    written: list[str] = []
    done = threading.Event()

    def writes() -> None:
        while not done.is_set():
            name = f"user{len(written)}"
            with handle.writing() as view:
                directory.ensure_user(view, name, NOW)
            written.append(name)

    writer = threading.Thread(target=writes)
    writer.start()
    with acme.handle.reading() as view:
        before = view.execute(select(schema.users.c.name)).scalars().all()
        for _ in range(3):
            beside_generation = Tenants(acme.tenants.data_dir, master)
            beside_generation.rotate_key("acme")
            beside_generation.close()
        assert view.execute(select(schema.users.c.name)).scalars().all() == before
    done.set()
    writer.join()
    with acme.handle.reading() as view:
        assert set(view.execute(select(schema.users.c.name)).scalars()) == set(written)
    assert acme.handle.generation == 4
    beside.close()


@pytest.mark.parametrize("point", POINTS)
def test_wherever_it_dies_one_generation_is_whole(acme: Company, point: str, master: MasterKey) -> None:
    acme.document("paper", allow=["tenant"])
    ended = subprocess.run([sys.executable, "-c", KILLED, acme.tenants.data_dir, point], check=False)
    assert ended.returncode == -9
    switched = POINTS.index(point) >= 2
    again = Tenants(acme.tenants.data_dir, master)
    for tenants in (acme.tenants, again):
        handle = tenants.open(Authenticator(tenants).operator("acme"))
        assert names(handle) == ["paper"]
        assert handle.generation == (2 if switched else 1)
    acme.document("later", allow=["tenant"])
    assert names(again.open(Authenticator(again).operator("acme"))) == ["later", "paper"]
    again.sweep()
    assert files(acme) == {"tenant.2.sqlite" if switched else "tenant.sqlite"}
    with again._control.reading() as connection:
        assert set(connection.execute(select(wrapped_keys.c.purpose)).scalars()) == {"data", "audit"}
    assert again.rotate_key("acme") == (3 if switched else 2)
    assert names(acme.handle) == ["later", "paper"]
    again.close()


def test_a_change_that_fails_leaves_neither_copy_nor_key(acme: Company, monkeypatch: pytest.MonkeyPatch) -> None:
    acme.document("paper", allow=["tenant"])

    def fails(point: str) -> None:
        if point == "copied":
            raise KeyboardInterrupt

    monkeypatch.setattr(rotation, "reached", fails)
    with pytest.raises(KeyboardInterrupt):
        acme.tenants.rotate_key("acme")
    assert (files(acme), names(acme.handle), acme.handle.generation) == ({"tenant.sqlite"}, ["paper"], 1)
    with acme.tenants._control.reading() as connection:
        assert set(connection.execute(select(wrapped_keys.c.purpose)).scalars()) == {"data", "audit"}


def test_a_retired_file_without_its_successor_is_corrupt(acme: Company, monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(point: str) -> None:
        if point == "retired":
            raise KeyboardInterrupt

    monkeypatch.setattr(rotation, "reached", dies)
    with pytest.raises(KeyboardInterrupt):
        acme.tenants.rotate_key("acme")
    assert (acme.handle.directory / "tenant.2.sqlite").exists()
    (acme.handle.directory / "tenant.2.sqlite").unlink()
    with pytest.raises(Corrupt, match="restore"):
        names(acme.handle)


def test_keys_of_unknown_and_deleted_tenants_are_not_changed(acme: Company) -> None:
    with pytest.raises(NotFound):
        acme.tenants.rotate_key("globex")
    acme.tenants.rotate_key("acme")
    acme.tenants.delete("acme")
    with pytest.raises(NotFound):
        acme.tenants.rotate_key("acme")
    assert not acme.handle.directory.exists()


def test_a_lost_tenant_file_is_corrupt_and_a_lost_audit_log_too(acme: Company, master: MasterKey) -> None:
    acme.document("paper", allow=["tenant"])
    acme.handle.audit.database("audit.sqlite", MetaData()).truncate_wal()
    acme.tenants.close()
    again = Tenants(acme.tenants.data_dir, master)
    handle = again.open(Authenticator(again).operator("acme"))
    for path in [*handle.directory.glob("tenant.sqlite*"), *handle.audit.directory.glob("*")]:
        path.unlink()
    with pytest.raises(Corrupt, match="missing or empty"):
        names(handle)
    with pytest.raises(Corrupt, match="missing or empty"):
        handle.audit.database("audit.sqlite", MetaData()).truncate_wal()
    assert list(handle.directory.glob("*.sqlite*")) == []
    again.close()


def test_a_tenant_whose_server_died_before_its_file_was_made_opens(tenants: Tenants, master: MasterKey) -> None:
    tenants.create("acme")
    again = Tenants(tenants.data_dir, master)
    assert names(again.open(Authenticator(again).operator("acme"))) == []
    again.close()
