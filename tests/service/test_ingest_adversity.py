"""Ingestion beside a full disk, and beside the deletion of its tenant; and a backup of what ingestion remembers."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import func, select

from cache.stores.local import LocalStore
from indexing import documents
from indexing.acl_rules import Decision
from indexing.batch import ingest_paths
from indexing.embed import EmbeddingSettings, load_embedder
from indexing.ingest import Pipeline
from indexing.outcome import Outcome
from indexing.walk import Found
from service.deletion import delete_tenant
from tenancy import schema
from tenancy.acl import AccessList
from tenancy.control import Tenants
from tenancy.errors import NotFound, Unavailable
from tenancy.identity import Authenticator
from tenancy.keys import MasterKey
from tests.faults.test_embedded_faults import fill_up, mounted
from tests.service.house import House
from tests.service.test_backup import Node, here, nodes

__all__ = ["here", "nodes"]

PIPELINE = Pipeline(load_embedder(EmbeddingSettings(model="hashing:64")))


def everybody(_entry: Found) -> Decision:
    return Decision(AccessList.of(["tenant"]), by="test")


def written(folder: Path, count: int) -> Path:
    folder.mkdir()
    for number in range(count):
        text = "\n\n".join(f"Rule {number} of part {part}: keep each receipt, and wait for it." for part in range(60))
        (folder / f"{number:03}.txt").write_text(text)
    return folder


def test_a_disk_that_fills_up_in_the_middle_leaves_whole_documents_and_the_next_run_goes_on(tmp_path: Path) -> None:
    files, data = written(tmp_path / "docs", 90), tmp_path / "data"
    data.mkdir(mode=0o700)
    with mounted(data, "12m"):
        tenants = Tenants(data, MasterKey(bytes(32)))
        tenants.create("acme")
        handle = tenants.open(Authenticator(tenants).operator("acme"))
        filler = data / ".filler"
        fill_up(filler)
        os.truncate(filler, filler.stat().st_size - 2**20)
        told: list[Outcome] = []
        with pytest.raises(Unavailable) as caught:
            list(ingest_paths(handle, PIPELINE, [files], everybody, lambda: None, written=told.extend))
        assert caught.value.reason == "the disk is full"
        assert 0 < len(told) < 90
        stored = {one.name for one in documents.list_documents(handle, limit=1000)}
        assert stored == {outcome.document for outcome in told}
        with handle.reading() as view:
            counted = view.execute(
                select(
                    schema.chunks.c.document_id, func.count(schema.chunks.c.id), func.count(schema.vectors.c.chunk_id)
                )
                .outerjoin(schema.vectors, schema.vectors.c.chunk_id == schema.chunks.c.id)
                .group_by(schema.chunks.c.document_id)
            ).all()
            recorded = view.execute(select(schema.versions.c.document_id, schema.versions.c.chunks)).all()
        assert sorted(map(tuple, counted)) == sorted((document, count, count) for document, count in recorded)
        assert len(counted) == len(stored)
        filler.unlink()
        again = [outcome.change.value for outcome in ingest_paths(handle, PIPELINE, [files], everybody, lambda: None)]
        assert (again.count("none"), again.count("added")) == (len(stored), 90 - len(stored))
        tenants.close()


def test_a_tenant_that_is_deleted_beside_an_ingestion_ends_it_and_leaves_nothing(house: House, tmp_path: Path) -> None:
    files, control = written(tmp_path / "late", 120), house.services.control
    control.tenants.create("acme")
    operator = control.authenticator.operator("acme")
    handle = control.tenants.open(operator)
    outcomes = ingest_paths(
        handle, house.services.pipeline, [files], everybody, lambda: control.tenants.open(operator)
    )  # fmt: skip
    next(outcomes)
    delete_tenant(control, operator, {}, LocalStore())
    with pytest.raises(NotFound):
        list(outcomes)
    assert not handle.directory.exists()


@pytest.mark.slow
def test_what_ingestion_evaluation_and_import_remember_comes_back_with_a_backup(here: Node) -> None:
    docs = here.folder / "docs"
    (docs / "damaged.pdf").write_bytes(b"%PDF-1.4 and no more")
    (docs / ".strongroom.toml").write_text('[default]\nallow = ["group:staff"]\n')
    code, _, _ = here("ingest", "--tenant", "acme", docs)
    assert code == 1
    groups = here.folder / "groups.csv"
    groups.write_text("group,member\nstaff,ana\nstaff,bo\n")
    here.done("group", "import", groups, "--tenant", "acme")
    cases = here.folder / "notice.jsonl"
    cases.write_text('{"question": "How long is the notice period?", "documents": ["notice.md"], "asker": "ana"}\n')
    here.done("eval", "save", cases, "--tenant", "acme")
    here.done("eval", "run", cases, "--tenant", "acme")
    asked: list[Callable[[str], object]] = [
        lambda name: here.data("document", "list", "--tenant", name, "--status", "corrupt"),
        lambda name: here.data("document", "list", "--tenant", name),
        lambda name: here.data("group", "status", "--tenant", name),
        lambda name: here.data("eval", "list", "--tenant", name),
        lambda name: here.data("eval", "sets", "--tenant", name),
    ]
    before = [ask("acme") for ask in asked]
    assert all(before)
    here.done("backup", here.folder / "b", "--tenant", "acme")
    here.done("restore", here.folder / "b", "--as", "copy")
    assert [ask("copy") for ask in asked] == before
    code, out, _ = here("ingest", "--tenant", "copy", docs)
    assert (code, out.splitlines()[-1]) == (1, "nothing changed")
