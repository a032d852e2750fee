"""A tenant that is replaced, or deleted and restored, while another process has its old file open."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert, select

from indexing.documents import delete_document
from service import restore
from service.control import Control, open_control
from service.settings import load_settings
from tenancy import schema
from tests.service.test_backup import Node, here, nodes

__all__ = ["here", "nodes"]


def held(server: Control) -> list[str]:
    handle = server.tenants.open(server.authenticator.operator("acme"))
    with handle.reading() as view:
        return sorted(view.execute(select(schema.documents.c.name)).scalars())


@pytest.mark.parametrize("how", ["first page", "missing"])
def test_a_server_reads_no_file_on_that_was_damaged_and_replaced(here: Node, how: str) -> None:
    here.done("backup", here.folder / "b", "--tenant", "acme")
    server = open_control(load_settings(environment=here.environment))
    assert held(server) == ["notice.md", "salaries.md"]
    file = here.folder / "data/tenants" / here.tenant_id() / "tenant.sqlite"
    if how == "missing":
        file.unlink()
    else:
        with file.open("r+b") as opened:
            opened.seek(50)
            opened.write(b"?" * 200)
    assert "restore it" in here.fails("document", "list", "--tenant", "acme")
    here.done("tenant", "suspend", "acme")
    here.done("restore", here.folder / "b", "--replace")
    here.done("tenant", "resume", "acme")
    here.done("document", "delete", "salaries.md", "--tenant", "acme")
    assert held(server) == ["notice.md"]
    server.close()


def test_a_server_serves_a_tenant_that_was_deleted_and_restored_behind_its_back(here: Node) -> None:
    here.done("backup", here.folder / "b", "--tenant", "acme")
    server = open_control(load_settings(environment=here.environment))
    for documents in (["notice.md", "salaries.md"], ["notice.md"]):
        assert held(server) == ["notice.md", "salaries.md"]
        here.done("tenant", "delete", "acme", "--yes")
        here.done("restore", here.folder / "b", "--although-deleted")
        if documents == ["notice.md"]:
            here.done("document", "delete", "salaries.md", "--tenant", "acme")
        assert server.tenants.forget_deleted() == []
        assert held(server) == documents
    server.close()


def put_at_engine(node: Node, physical: str) -> None:
    """Let the tenant's database name a collection at a server engine."""
    control = open_control(load_settings(environment=node.environment))
    handle = control.tenants.open(control.authenticator.operator("acme"))
    with handle.writing() as view:
        row = dict(view.execute(select(schema.collections).limit(1)).one()._mapping)
        row |= {"id": row["id"] + len(physical), "engine": "far", "physical": physical, "state": "previous"}
        view.execute(insert(schema.collections).values(row))
    control.close()


@pytest.mark.slow
@pytest.mark.parametrize("damaged", [False, True])
def test_what_a_replaced_database_named_at_engines_is_dropped_and_certified(here: Node, damaged: bool) -> None:
    put_at_engine(here, "c_old")
    here.done("backup", here.folder / "b", "--tenant", "acme")
    put_at_engine(here, "c_newer")
    tenant_id = here.tenant_id()
    if damaged:
        (here.folder / "data/tenants" / tenant_id / "tenant.sqlite").write_bytes(b"?" * 8192)
    here.done("tenant", "suspend", "acme")
    here.done("restore", here.folder / "b", "--replace")
    here.done("restore", here.folder / "b", "--as", "copy")
    control = open_control(load_settings(environment=here.environment))
    gone: list[str] = []
    left = {"c_old"} if damaged else {"c_old", "c_newer"}
    assert set(control.tenants.deletion.leftovers(lambda _engine, physical: gone.append(physical))) == left
    assert control.tenants.deletion.leftovers(lambda _engine, physical: gone.append(physical)) == []
    assert set(gone) == left
    control.close()
    # Where no server dropped them before the tenant is deleted, its certificate names them.
    here.done("restore", here.folder / "b", "--replace")
    found = here.data("tenant", "delete", "acme", "--yes")["destroyed"]["collections"]
    assert (found["dropped"], [one["physical"] for one in found["pending"]]) == ([], ["c_old"])


@pytest.mark.slow
def test_what_a_writer_withdraws_that_began_before_the_suspension_stays_withdrawn(
    here: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.done("backup", here.folder / "b", "--tenant", "acme")
    beside = open_control(load_settings(environment=here.environment))
    handle = beside.tenants.open(beside.authenticator.operator("acme"))
    here.done("tenant", "suspend", "acme")
    prepared = restore._prepare

    def prepare(*given: Any, **named: Any) -> dict[str, Any]:
        found = prepared(*given, **named)
        delete_document(handle, "salaries.md", 0.0)
        return found

    monkeypatch.setattr(restore, "_prepare", prepare)
    assert here.data("restore", here.folder / "b", "--replace")["withdrawn_again"] == {"document": 1}
    monkeypatch.undo()
    here.done("tenant", "resume", "acme")
    assert [row["name"] for row in here.data("document", "list", "--tenant", "acme")] == ["notice.md"]
    # Its next write is in the file that serves now.
    delete_document(handle, "notice.md", 0.0)
    assert here.data("document", "list", "--tenant", "acme") == []
    beside.close()


@pytest.mark.slow
def test_a_ledger_brought_along_counts_beside_a_longer_one_that_is_here(
    here: Node, nodes: Callable[[str], Node]
) -> None:
    key, there = here.folder / "desk.pem", nodes("there")
    here.done("master", "recovery-key", key)
    here.done("backup", here.folder / "b", "--tenant", "acme", "--for", f"{key}.pub")
    there.done("restore", here.folder / "b", "--key", key)
    here.done("group", "remove", "staff", "ana", "--tenant", "acme")
    here.done("backup", here.folder / "ledger", "--tenant", "acme", "--for", f"{key}.pub", "--ledger-only")
    there.done("group", "remove", "staff", "bo", "--tenant", "acme")
    there.done("document", "delete", "salaries.md", "--tenant", "acme")
    there.done("tenant", "suspend", "acme")
    restoring: list[str | Path] = ["restore", here.folder / "b", "--key", key, "--replace"]
    withdrawn = {"member": 2, "document": 1}
    assert there.data(*restoring, "--ledger", here.folder / "ledger")["withdrawn_again"] == withdrawn
    # It is known from now on.
    assert there.data(*restoring)["withdrawn_again"] == withdrawn
    there.done("tenant", "resume", "acme")
    assert there.data("group", "list", "--tenant", "acme") == [{"group": "staff", "members": []}]
