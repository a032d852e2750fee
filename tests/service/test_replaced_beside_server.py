"""A tenant that is replaced, or deleted and restored, while another process has its old file open."""

from __future__ import annotations

import pytest
from sqlalchemy import select

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
