"""Expired answers leave the cache also where nobody asks any more, and so do answers to questions of users who are
gone: of those that another server deleted, or whose question was still on its way. A few tenants at a time, in turn.
"""

from __future__ import annotations

from typing import Final

import structlog

from cache.stores.port import CacheStore, NamesAskers
from cache.stores.selector import Selector
from cache.stores.tables import FILE
from service.control import Control
from tenancy.directory import exists
from tenancy.errors import StrongroomError
from tenancy.tenant import TenantHandle

TENANTS: Final = 20
"""Files that one step opens. Ten thousand tenants are through after 500 steps."""

_log = structlog.get_logger("strongroom.expiry")


class Expiry:
    """Where the round stands. One step at a time."""

    def __init__(self, control: Control, store: CacheStore) -> None:
        self._control = control
        self._store = store
        self._after = ""

    def step(self) -> int:
        """Sweep the caches of the next tenants by name, suspended ones too; returns how many entries went."""
        local = self._store.health().kind == "local"
        page = self._control.tenants.page(self._after, TENANTS)
        self._after = page[-1].name if page else ""
        removed = 0
        for record in page:
            try:
                principal = self._control.authenticator.operator(record.name)
                tenant = self._control.tenants.open(principal, suspended=True)
                if not local or tenant.holds(FILE):
                    removed += self._store.sweep(tenant) + self._forgotten(tenant)
            except StrongroomError as error:
                # One tenant's damaged file does not keep the others' answers for longer.
                _log.warning("expired answers were not removed", tenant=record.id, error=error.code)
        return removed

    def _forgotten(self, tenant: TenantHandle) -> int:
        """Remove what users asked who are not in the directory any more; returns how many entries went."""
        if not isinstance(self._store, NamesAskers):
            return 0
        askers = self._store.askers(tenant)
        with tenant.reading() as view:
            gone = [user_id for user_id in askers if not exists(view, user_id)]
        return sum(self._store.invalidate(tenant, Selector(user=user_id)) for user_id in gone)
