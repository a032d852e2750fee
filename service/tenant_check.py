"""Can every tenant be served with these settings? For `strongroom doctor`; no model is loaded, no engine asked."""

from __future__ import annotations

import time
from typing import Final

from indexing.catalogue import EMBEDDED, serving
from indexing.embedding import allowed_models
from indexing.model import holds_chunks
from service.engines import require_possible
from service.settings import Settings
from tenancy.control import Tenants
from tenancy.errors import StrongroomError
from tenancy.identity import Authenticator
from tenancy.tenant import TenantHandle

_PATIENCE_S: Final = 20.0
"""Each tenant's database is opened; of thousands the first must do."""


def examine_tenants(settings: Settings, tenants: Tenants) -> tuple[int, list[str]]:
    """How many active tenants were looked at, and one line for each that cannot be served."""
    authenticator = Authenticator(tenants)
    until = time.monotonic() + _PATIENCE_S
    looked, refused = 0, []
    for record in tenants.all():
        if record.status != "active":
            continue
        if time.monotonic() > until:
            break
        looked += 1
        try:
            tenant = tenants.open(authenticator.operator(record.name))
            require_possible(settings, record.name, tenant.contract)
            reason = _elsewhere(settings, tenant)
        except StrongroomError as error:
            reason = str(StrongroomError(error.reason, item=error.item))
        if reason is not None:
            refused.append(f"{record.name}: {reason}")
    return looked, refused


def _elsewhere(settings: Settings, tenant: TenantHandle) -> str | None:
    """Why its documents are out of reach, or None where they are not."""
    with tenant.reading() as view:
        found = serving(view) if holds_chunks(view) else None
    if found is None:
        return None
    if found.engine not in (EMBEDDED, *settings.collections.engines):
        return f"its collection is at the engine {found.engine}, which the settings do not have"
    models = allowed_models(settings.embedding)
    # A database of an older version names its model without where it comes from.
    if found.model.spec not in {*models, *(model.removeprefix("packaged:").partition("@")[0] for model in models)}:
        return f"its collection is of the embedding model {found.model.spec}, which the settings do not have"
    return None
