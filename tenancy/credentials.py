"""API keys as rows of the control plane: whom each stands for, its secrets as keyed hashes, until when it holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Executable, bindparam, insert, select, update
from sqlalchemy.engine import Connection

from tenancy import schema
from tenancy.apikeys import MintedKey, hash_secret, mint
from tenancy.errors import NotFound
from tenancy.limits import WorkClass

# Made once: for a few rows, making a statement takes longer than running it.
_KEYS: Final = (
    select(
        schema.api_keys, schema.tenants.c.name,
        schema.api_key_secrets.c.hash, schema.api_key_secrets.c.created, schema.api_key_secrets.c.expires,
    )
    .join(schema.tenants, schema.tenants.c.id == schema.api_keys.c.tenant_id)
    .join(schema.api_key_secrets, schema.api_key_secrets.c.key_id == schema.api_keys.c.id)
    .order_by(schema.api_keys.c.created, schema.api_keys.c.id)
)  # fmt: skip
_KEY: Final = _KEYS.where(schema.api_keys.c.id == bindparam("key"))
_TENANT_KEYS: Final = _KEYS.where(schema.api_keys.c.tenant_id == bindparam("tenant"))


@dataclass(frozen=True, slots=True)
class NewKey:
    """Whom a key is for; `created` and `expires` are UTC epoch seconds."""

    tenant_id: str
    user_id: str
    user: str
    roles: frozenset[str]
    created: float
    expires: float | None
    work: WorkClass = "interactive"


@dataclass(frozen=True, slots=True)
class SecretRecord:
    hash: bytes
    created: float
    expires: float | None


@dataclass(frozen=True, slots=True)
class KeyRecord:
    id: str
    tenant_id: str
    tenant: str
    user_id: str
    user: str
    roles: tuple[str, ...]
    created: float
    expires: float | None
    revoked: float | None
    work: WorkClass
    secrets: tuple[SecretRecord, ...]


def add(connection: Connection, hash_key: bytes, environment: str, wanted: NewKey) -> MintedKey:
    """Mint a key and write its row; the secret exists in what is returned alone."""
    minted = mint(environment)
    connection.execute(
        insert(schema.api_keys).values(
            id=minted.key_id,
            tenant_id=wanted.tenant_id,
            user_id=wanted.user_id,
            user=wanted.user,
            roles=sorted(wanted.roles),
            created=wanted.created,
            expires=wanted.expires,
            work=wanted.work,
        )
    )
    hashed = hash_secret(hash_key, minted.key_id, minted.secret)
    connection.execute(insert(schema.api_key_secrets).values(key_id=minted.key_id, hash=hashed, created=wanted.created))
    return minted


def find(connection: Connection, key_id: str) -> KeyRecord | None:
    """One key with its secrets, or None."""
    found = _read(connection, _KEY, {"key": key_id})
    return found[0] if found else None


def of_tenant(connection: Connection, tenant_id: str) -> list[KeyRecord]:
    """All keys of a tenant, oldest first."""
    return _read(connection, _TENANT_KEYS, {"tenant": tenant_id})


def revoke(connection: Connection, tenant_id: str, key_id: str, now: float) -> None:
    """Revoke a key of the tenant for good. Raises `NotFound`, also for another tenant's key."""
    mine = (schema.api_keys.c.id == key_id) & (schema.api_keys.c.tenant_id == tenant_id)
    if connection.execute(update(schema.api_keys).where(mine).values(revoked=now)).rowcount == 0:
        raise NotFound("no such key in this tenant", item=key_id)


def _read(connection: Connection, query: Executable, parameters: Mapping[str, str]) -> list[KeyRecord]:
    found: dict[str, KeyRecord] = {}
    for row in connection.execute(query, parameters).all():
        key_id, tenant_id, user_id, user, roles, created, expires, revoked, work, tenant, hashed, made, until = row
        earlier = found[key_id].secrets if key_id in found else ()
        found[key_id] = KeyRecord(
            key_id, tenant_id, tenant, user_id, user, tuple(roles), created, expires, revoked, work,
            (*earlier, SecretRecord(hashed, made, until)),
        )  # fmt: skip
    return list(found.values())
