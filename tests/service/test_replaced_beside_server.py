"""A tenant that is replaced, or deleted and restored, while another process has its old file open."""

from __future__ import annotations

import pytest
from sqlalchemy import insert, select

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
