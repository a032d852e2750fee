"""Deleting a tenant with all that this deployment keeps of it, also at server engines and in the cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import func, select

from cache.stores import tables
from indexing.engine import Engine
from service.control import Control
from tenancy.deletion import Drop, Witness
from tenancy.errors import StrongroomError, Unavailable
from tenancy.identity import Principal
from tenancy.tenant import TenantHandle


def delete_tenant(control: Control, principal: Principal, engines: Mapping[str, Engine]) -> dict[str, Any]:
    """Destroy the principal's tenant; returns the signed certificate. Raises `NotFound`."""
    log = control.logs.of(principal)

    def size_and_root() -> tuple[int, str]:
        log.flush()
        head = log.head()
        return head.size, head.root.hex()

    witness = Witness(log=size_and_root, cache=remembered, drop=drop_at(engines))
    return control.tenants.delete(principal.tenant, witness)


def sweep_collections(control: Control, engines: Mapping[str, Engine]) -> list[str]:
    """Drop the collections of deleted tenants that could not be reached then; returns their physical names."""
    return control.tenants.deletion.leftovers(drop_at(engines))


def drop_at(engines: Mapping[str, Engine]) -> Drop:
    """Drops a collection at one of `engines`; `Unavailable` where the engine is none of them."""

    def drop(engine: str, physical: str) -> None:
        if engine not in engines:
            raise Unavailable("the engine is not in the settings", item=engine, remedy="add it, to drop what it holds")
        engines[engine].drop(physical)

    return drop


def remembered(tenant: TenantHandle) -> dict[str, Any]:
    """How many answers the tenant's cache holds, and how many bytes."""
    if not tenant.holds(tables.FILE):
        return {"count": 0, "bytes": 0}
    database = tables.database(tenant)
    query = select(func.count(), func.coalesce(func.sum(tables.entries.c.bytes), 0))
    try:
        with database.reading() as connection:
            count, size = connection.execute(query).one()
    except StrongroomError as error:
        return {"unreadable": error.code}
    return {"count": int(count), "bytes": int(size)}
