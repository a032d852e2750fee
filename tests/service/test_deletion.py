"""The end of a tenant: everything counted, signed for, and gone; also in the middle of work, and at an engine."""

from __future__ import annotations

import asyncio
import base64
import importlib.util
import json
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from sqlalchemy import MetaData, insert, select, text

from cache.stores.local import LocalStore
from generation.extractive import ExtractiveGenerator
from generation.generator import Piece
from generation.prompt import Prompt
from generation.routing import OneRoute
from indexing.engine import Engine
from indexing.ingest import Source, put_document
from service.deletion import delete_tenant, sweep_collections
from tenancy import schema
from tenancy.acl import AccessList
from tenancy.control import Tenants
from tenancy.database import ConnectionPools, Database
from tenancy.deletion import verify
from tenancy.errors import NotFound, StrongroomError, Unavailable
from tenancy.identity import Authenticator, Role
from tenancy.keys import TenantKeys
from tests.layout.scope_rule import ROOT
from tests.service.house import MASTER, House, problem

PROGRAM = ROOT / "examples/verify_certificate.py"
CANARIES = ("heliotrope", "Quibble-7431", "marzipan", "ana.canary", "group-canary", "folder/canary.md")


def load_program() -> ModuleType:
    spec = importlib.util.spec_from_file_location("verify_certificate", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def fill(house: House, tenant: str = "acme") -> None:
    house.put(tenant, "folder/canary.md", "The heliotrope costs Quibble-7431 a year.", allow=["group:group-canary"])
    key = house.key(tenant, "ana.canary", groups=("group-canary",))
    answer = house.post("/v1/answers", key, {"query": "What does the heliotrope cost, marzipan?"})
    assert answer.json()["citations"]


def delete(house: House, tenant: str = "acme", engines: dict[str, Engine] | None = None) -> dict[str, Any]:
    control = house.services.control
    return delete_tenant(control, control.authenticator.operator(tenant), engines or {}, LocalStore())


def shell(path: Path, key: str) -> tuple[int, str]:
    done = subprocess.run([sys.executable, PROGRAM, path, key], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_the_certificate_names_each_class_and_is_verified_by_another_program(house: House, folder: Path) -> None:
    fill(house)
    found = delete(house)
    destroyed = found["destroyed"]
    assert [destroyed[name]["count"] for name in ("documents", "chunks", "vectors", "cache_entries")] == [1, 1, 1, 1]
    assert destroyed["chunks"]["bytes"] == len("The heliotrope costs Quibble-7431 a year.")
    assert destroyed["vectors"]["bytes"] == 256 * 4
    assert destroyed["api_keys"]["count"] == 2
    assert {"tenant.sqlite", "cache.sqlite"} <= {file["file"] for file in destroyed["files"]}
    assert destroyed["keys"] == ["data"]
    assert found["audit_log"]["size"] >= 4
    assert len(found["audit_log"]["root"]) == 64
    assert "legal hold" in found["retained"]["audit_log"]
    path, key = folder / "certificate.json", house.services.control.tenants.public_key
    path.write_text(json.dumps(found, indent=2))
    code, said = shell(path, key)
    assert (code, "valid: tenant acme" in said) == (0, True)
    assert shell(path, key[:-2] + ("E=" if key.endswith("A=") else "A="))[0] == 1
    path.write_text(json.dumps(found).replace('"tenant": "acme"', '"tenant": "globex", "tenant": "acme"'))
    assert "twice" in shell(path, key)[1]


def test_each_altered_field_is_seen(house: House) -> None:
    fill(house)
    found, program = delete(house), load_program()
    key = house.services.control.tenants.public_key
    assert program.check(found, key) is None
    altered = list(_altered(found))
    assert len(altered) > 40
    for changed in altered:
        assert program.check(changed, key) is not None, changed


def _altered(value: Any) -> Iterator[Any]:
    """`value` with one leaf changed, one field left out or one added, in every way."""
    if isinstance(value, dict):
        yield {**value, "more": 1}
        for name in value:
            yield {other: kept for other, kept in value.items() if other != name}
            for changed in _altered(value[name]):
                yield {**value, name: changed}
    elif isinstance(value, list):
        yield [*value, "more"]
        for place, item in enumerate(value):
            yield value[:place] + value[place + 1 :]
            for changed in _altered(item):
                yield [*value[:place], changed, *value[place + 1 :]]
    else:
        yield value + 1 if isinstance(value, int) else f"{value}x"


def test_the_certificate_can_be_shown_again_and_the_log_is_still_read(house: House) -> None:
    fill(house)
    found = delete(house)
    control = house.services.control
    for name in ("acme", found["tenant_id"]):
        assert control.tenants.deletion.certificate(name) == found
    with pytest.raises(NotFound):
        control.tenants.deletion.certificate("globex")
    log = control.logs.of_id(found["tenant_id"])
    assert log.head().size >= found["audit_log"]["size"]


def plain(directory: Path, keys: TenantKeys, audit: Any) -> bytes:
    """All that lies in the tenant's files, read with their keys, and as it is on the disk."""
    found = b""
    pools = ConnectionPools()
    folders = {
        directory: lambda file: keys.purpose(f"file/{file}"),
        audit.directory: lambda f: audit.purpose(f"file/{f}"),
    }
    for folder, key_of in folders.items():
        for path in folder.glob("*.sqlite"):
            database = Database(path, key_of(path.name), MetaData(), pools)
            with database._connected() as connection:
                names = (
                    connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'table'").scalars().all()
                )
                for name in names:
                    for row in connection.exec_driver_sql(f'SELECT * FROM "{name}"'):
                        found += b"\n".join(value if isinstance(value, bytes) else str(value).encode() for value in row)
    pools.close()
    return found


def on_disk(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_nothing_of_a_deleted_tenant_is_left_on_the_disk(house: House, folder: Path) -> None:
    fill(house)
    fill(house, "globex")
    control = house.services.control
    handle = control.tenants.open(control.authenticator.operator("acme"))
    before = plain(handle.directory, handle.keys, handle.audit)
    # Found before: the search would see them. On the disk there is no plain text even then.
    for canary in CANARIES:
        assert canary.encode() in before, canary
    files = {path.relative_to(folder): path.read_bytes() for path in handle.directory.glob("*.sqlite")}
    page = files[handle.directory.relative_to(folder) / "tenant.sqlite"][:4096]
    assert page in on_disk(folder)
    data_key = handle.keys.data
    delete(house)
    after = on_disk(folder)
    for canary in CANARIES:
        assert canary.encode() not in after, canary
    assert page not in after
    assert data_key not in after
    assert not handle.directory.exists()
    with pytest.raises(NotFound):
        control.tenants._key(handle.tenant_id, "data")
    with control.tenants._control.reading() as connection:
        rows = connection.execute(
            select(schema.wrapped_keys.c.purpose).where(schema.wrapped_keys.c.tenant_id == handle.tenant_id)
        )
        assert rows.scalars().all() == ["audit"]
    kept = house.post(
        "/v1/answers", house.key("globex", "ana.canary", groups=("group-canary",)), {"query": "heliotrope?"}
    )
    assert kept.status_code == 200


def test_a_closed_tenant_is_deleted_and_its_name_begins_empty(house: House) -> None:
    fill(house)
    control = house.services.control
    key = house.key("acme", "ana.canary", groups=("group-canary",))
    control.tenants.close()
    beside = Tenants(control.tenants.data_dir, MASTER)
    first = beside.delete("acme")
    assert first["destroyed"]["documents"]["count"] == 1
    beside.create("acme")
    beside.close()
    problem(house.post("/v1/answers", key, {"query": "What does the heliotrope cost?"}), 401, "unauthenticated")
    house._keys.clear()
    house.services.forget_deleted()
    new = house.key("acme", "ana.canary", groups=("group-canary",))
    answer = house.post("/v1/answers", new, {"query": "What does the heliotrope cost?"})
    assert answer.status_code == 200
    assert answer.json()["citations"] == []
    assert house.get("/v1/documents", house.key("acme", "loader", Role.INGEST)).json()["documents"] == []


def test_work_under_way_ends_with_a_clear_error_and_is_in_no_file(house: House) -> None:
    """A writer that waits for the lock while the tenant is deleted, here and in another process."""
    fill(house)
    control, pipeline = house.services.control, house.services.pipeline
    handles = [control.tenants.open(control.authenticator.operator("acme"))]
    beside = Tenants(control.tenants.data_dir, MASTER)
    handles.append(beside.open(Authenticator(beside).operator("acme")))
    for handle in handles:
        with handle.reading() as view:
            assert view.epochs
    errors: list[StrongroomError] = []
    waiting = threading.Barrier(3)

    def load(handle: Any) -> None:
        waiting.wait()
        try:
            for number in range(1_000):
                source = Source(f"late{number}.md", b"Written too late.", AccessList.of(["tenant"]))
                put_document(handle, pipeline, source)
        except StrongroomError as error:
            errors.append(error)

    threads = [threading.Thread(target=load, args=(handle,)) for handle in handles]
    for thread in threads:
        thread.start()
    waiting.wait()
    found = delete(house)
    for thread in threads:
        thread.join()
    assert [type(error) for error in errors] == [NotFound, NotFound], errors
    assert found["destroyed"]["documents"]["count"] >= 1
    assert not handles[0].directory.exists()
    beside.close()


class Far:
    """An engine that may be away."""

    def __init__(self) -> None:
        self.away = True
        self.dropped: list[str] = []

    def drop(self, physical: str) -> None:
        if self.away:
            raise Unavailable("away", item="far")
        self.dropped.append(physical)


def test_a_collection_that_is_out_of_reach_is_named_and_dropped_later(house: House) -> None:
    fill(house)
    control = house.services.control
    with control.tenants.open(control.authenticator.operator("acme")).writing() as view:
        columns = {column.name: None for column in schema.collections.c}
        served = view.execute(select(schema.collections)).mappings().one()
        row = {**columns, **served, "id": 99, "engine": "far", "physical": "c_far", "state": "previous"}
        view.execute(insert(schema.collections).values(row))
    far: Any = Far()
    found = delete(house, engines={"far": far})
    assert found["destroyed"]["collections"] == {
        "dropped": [], "pending": [{"engine": "far", "physical": "c_far", "reason": "unavailable"}],
    }  # fmt: skip
    assert sweep_collections(control, {"far": far}, LocalStore()) == []
    assert sweep_collections(control, {}, LocalStore()) == []
    far.away = False
    assert sweep_collections(control, {"far": far}, LocalStore()) == ["c_far"]
    assert far.dropped == ["c_far"]
    assert sweep_collections(control, {"far": far}, LocalStore()) == []


def test_a_damaged_tenant_can_be_deleted(house: House) -> None:
    fill(house)
    control = house.services.control
    handle = control.tenants.open(control.authenticator.operator("acme"))
    control.tenants.close()
    (handle.directory / "tenant.sqlite").write_bytes(b"ruin" * 3000)
    found = delete(house)
    assert found["destroyed"]["unreadable"] == "corrupt"
    assert verify(found, base64.b64decode(control.tenants.public_key))
    assert not handle.directory.exists()


@pytest.mark.parametrize("damaged", ["every page of the contents", "the last one"])
def test_a_tenant_with_damaged_pages_can_be_deleted(house: House, damaged: str) -> None:
    fill(house)
    house.put("acme", "long.md", "The heliotrope is an old friend of ours. " * 500, allow=["tenant"])
    control = house.services.control
    with control.tenants.open(control.authenticator.operator("acme")).writing() as view:
        served = dict(view.execute(select(schema.collections)).mappings().one())
        view.execute(
            insert(schema.collections).values(
                served | {"id": 99, "engine": "far", "physical": "c_far", "state": "previous"}
            )
        )
    handle = control.tenants.open(control.authenticator.operator("acme"))
    handle.erase_traces()
    with handle.reading() as view:
        first = int(view.execute(text("SELECT rootpage FROM sqlite_master WHERE name = 'chunks'")).scalar_one())
    control.tenants.close()
    file = handle.directory / "tenant.sqlite"
    content = bytearray(file.read_bytes())
    pages = len(content) // 4096
    for page in [first, *range(pages - 20, pages)] if damaged.startswith("every") else [pages - 1]:
        content[(page - 1) * 4096 + 100 : (page - 1) * 4096 + 200] = b"?" * 100
    file.write_bytes(bytes(content))
    far: Any = Far()
    far.away = False
    found = delete(house, engines={"far": far})["destroyed"]
    assert found["unreadable"] == "corrupt"
    # Who is named is dropped; where nobody could be named the certificate does not say that there was nothing.
    assert found["collections"] == {"dropped": [{"engine": "far", "physical": "c_far"}], "pending": []} or (
        found["collections"].keys() == {"dropped", "pending", "note"}
    )
    assert not handle.directory.exists()
    with pytest.raises(NotFound):
        control.tenants.show("acme")


class Deleting(ExtractiveGenerator):
    """Deletes the tenant when it is asked for an answer, and then goes on."""

    def __init__(self) -> None:
        self.delete: Callable[[], object] | None = None

    async def generate(
        self, prompt: Prompt, *, salt: str, request_id: str, max_tokens: int, deadline: float
    ) -> AsyncGenerator[Piece, None]:
        if self.delete is not None:
            await asyncio.to_thread(self.delete)
            self.delete = None
        inner = super().generate(prompt, salt=salt, request_id=request_id, max_tokens=max_tokens, deadline=deadline)
        async with aclosing(inner) as pieces:
            async for piece in pieces:
                yield piece


@pytest.mark.parametrize("stream", [False, True])
def test_a_question_under_way_ends_with_a_clear_error_and_no_word(
    folder: Path, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    generator = Deleting()
    monkeypatch.setattr("service.wiring.build_routes", lambda *_args, **_named: OneRoute(generator))
    house = House(folder)
    with house.client:
        fill(house)
        key = house.key("acme", "ana.canary", groups=("group-canary",))
        generator.delete = lambda: delete(house)
        body = {"query": "And what is the price of a heliotrope?", "cache": "bypass", "stream": stream}
        response = house.post("/v1/answers", key, body)
        assert "Quibble" not in response.text
        assert response.status_code in {401, 404, 409}, response.text
        assert "does not exist any more" in response.text or "was deleted" in response.text
        problem(house.post("/v1/answers", key, body), 401, "unauthenticated")
    house.close()
