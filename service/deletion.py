"""Deleting a tenant with all that this deployment keeps of it, also at server engines and in the cache."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from audit.holds import Held
from cache.stores import tables
from cache.stores.port import CacheStore, Purges
from cache.stores.selector import Selector
from generation.adapters.files import remove_all, tenant_folder
from indexing.engine import Engine
from service.control import Control
from service.wiring import cache_store
from tenancy.deletion import Drop, Witness, artefacts
from tenancy.errors import Corrupt, StrongroomError, Unavailable
from tenancy.identity import Principal
from tenancy.tenant import TenantHandle

CACHE_SERVER: Final = "cache:redis"
"""Stands where a certificate names an engine; no engine can have this name."""
ADAPTERS: Final = "files:adapters"
"""Likewise, for a tenant's folder below that of the engines' adapters."""


def delete_tenant(
    control: Control, principal: Principal, engines: Mapping[str, Engine], store: CacheStore
) -> dict[str, Any]:
    """Destroy the principal's tenant; returns the signed certificate. Raises `NotFound`, and `Held` where a legal hold
    is on it or on one of its users.

    What a server holds of its cache, and the files of its adapters, are dropped like a collection: named in the
    certificate, and tried again by every server where they could not be reached.
    """
    log = control.logs.of(principal)
    if held := log.subjects.holds.active():
        raise Held(held, item=principal.tenant)

    def size_and_root() -> tuple[int, str]:
        log.flush()
        head = log.head()
        return head.size, head.root.hex()

    def count(tenant: TenantHandle) -> dict[str, Any]:
        return remembered(tenant, store)

    if isinstance(store, Purges):
        control.tenants.deletion.leave(principal.tenant_id, CACHE_SERVER, principal.tenant_id)
    root = control.settings.generation.adapters_path
    folder = tenant_folder(principal.tenant_id)

    def adapter_files() -> list[dict[str, Any]]:
        return [] if root is None else artefacts(root / folder)

    if root is not None and (root / folder).exists():
        control.tenants.deletion.leave(principal.tenant_id, ADAPTERS, folder)
    witness = Witness(log=size_and_root, cache=count, adapters=adapter_files, drop=drop_at(engines, store, root))
    return control.tenants.delete(principal.tenant, witness)


def sweep_collections(control: Control, engines: Mapping[str, Engine], store: CacheStore) -> list[str]:
    """Drop what servers still hold of deleted tenants and could not be reached then; returns the physical names."""
    return control.tenants.deletion.leftovers(drop_at(engines, store, control.settings.generation.adapters_path))


def drop_at(engines: Mapping[str, Engine], store: CacheStore, adapters: Path | None = None) -> Drop:
    """Drops a collection at one of `engines`, a tenant's keys at the cache's server, or its adapters' files below the
    folder `adapters`; `Unavailable` where the engine is none of them.
    """

    def drop(engine: str, physical: str) -> None:
        if engine == CACHE_SERVER:
            if not isinstance(store, Purges):
                raise Unavailable("the cache's server is not in the settings", item=engine, remedy="set cache.store")
            store.purge_deleted(physical)
            return
        if engine == ADAPTERS:
            if adapters is None:
                remedy = "set generation.adapters_dir"
                raise Unavailable("the folder of adapters is not in the settings", item=engine, remedy=remedy)
            remove_all(adapters, physical)
            return
        if engine not in engines:
            raise Unavailable("the engine is not in the settings", item=engine, remedy="add it, to drop what it holds")
        engines[engine].drop(physical)

    return drop


def remembered(tenant: TenantHandle, store: CacheStore) -> dict[str, Any]:
    """How many answers the tenant's cache holds, and how many bytes."""
    if store.health().kind == "local" and not tenant.holds(tables.FILE):
        return {"count": 0, "bytes": 0}
    try:
        found = store.stats(tenant)
    except StrongroomError as error:
        return {"unreadable": error.code}
    return {"count": found.entries, "bytes": found.bytes}


def drop_unreadable(control: Control, name: str) -> bool:
    """Remove from the cache's server the answers that a new key of the tenant does not open; False where it is away.

    Local files are left behind by the change of the key itself.
    """
    if control.settings.cache.store == "local":
        return True
    store = cache_store(control.settings, patient=True)
    try:
        store.invalidate(control.tenants.open(control.authenticator.operator(name)), Selector(everything=True))
    except (Unavailable, Corrupt):
        return False
    finally:
        store.shutdown()
    return True
