"""Rows of tenants in the control plane: one, a page by name, how many; none of them opens a tenant."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import func, select, update
from sqlalchemy.engine import Connection

from tenancy.contract import Contract, stored_contract
from tenancy.errors import InvalidInput, NotFound
from tenancy.schema import deletions, tenants

MOST_LISTED: Final = 1_000
_IDS_A_STATEMENT: Final = 1_000


@dataclass(frozen=True, slots=True)
class TenantRecord:
    """A row of the control plane; `status` is "active" or "suspended", `created` is UTC epoch seconds."""

    id: str
    name: str
    status: str
    created: float
    contract: Mapping[str, Any]


def find(connection: Connection, name: str) -> TenantRecord | None:
    row = connection.execute(select(tenants).where(tenants.c.name == name)).one_or_none()
    return None if row is None else TenantRecord(*row)


def agree(connection: Connection, name: str, contract: Contract | Callable[[Contract], Contract]) -> None:
    """Write a tenant's contract, or what a function makes of the one on record. Raises `NotFound`, `Corrupt`."""
    record = find(connection, name)
    if record is None:
        raise NotFound("no such tenant", item=name)
    agreed = contract if isinstance(contract, Contract) else contract(stored_contract(record.contract, name))
    connection.execute(update(tenants).where(tenants.c.id == record.id).values(contract=agreed.stored()))


def resolve(connection: Connection, tenant: str) -> tuple[str, str]:
    """Id and name of a tenant by its name, or of a deleted one by its id. Raises `NotFound`."""
    here = find(connection, tenant)
    if here is not None:
        return here.id, here.name
    query = select(deletions.c.tenant_id, deletions.c.name).where(deletions.c.tenant_id == tenant)
    deleted = connection.execute(query).one_or_none()
    if deleted is None:
        raise NotFound("no such tenant", item=tenant[:100], remedy="`strongroom tenant list` shows the tenants")
    return deleted.tenant_id, deleted.name


def page(connection: Connection, after: str, limit: int) -> Sequence[TenantRecord]:
    """At most `limit` tenants whose names come after `after`, by name; read along the index of names."""
    if not 1 <= limit <= MOST_LISTED:
        raise InvalidInput(f"a page is of 1 to {MOST_LISTED} tenants", item="limit")
    query = select(tenants).where(tenants.c.name > after).order_by(tenants.c.name).limit(limit)
    return [TenantRecord(*row) for row in connection.execute(query)]


def count(connection: Connection) -> tuple[int, int]:
    """How many tenants there are, and how many of them are active."""
    active = func.count().filter(tenants.c.status == "active")
    every, serving = connection.execute(select(func.count(), active).select_from(tenants)).one()
    return int(every), int(serving)


def absent(connection: Connection, tenant_ids: Iterable[str]) -> list[str]:
    """Those of `tenant_ids` that no tenant has any more."""
    asked = sorted(set(tenant_ids))
    present: set[str] = set()
    for start in range(0, len(asked), _IDS_A_STATEMENT):
        some = tenants.c.id.in_(asked[start : start + _IDS_A_STATEMENT])
        present.update(connection.execute(select(tenants.c.id).where(some)).scalars())
    return [tenant_id for tenant_id in asked if tenant_id not in present]
