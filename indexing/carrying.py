"""Which drafts keep vectors of the version before; see `indexing.chunk_rows`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from indexing.chunk_rows import unchanged
from indexing.prepared import Draft, Embedded, Prepared, Writable
from tenancy.tenant import TenantHandle


def carrying(tenant: TenantHandle, prepared: list[Prepared]) -> list[Prepared]:
    """The drafts with what they need not embed. Whoever writes their document meanwhile makes them failures."""
    if not any(isinstance(item, Draft) and item.before is not None for item in prepared):
        return prepared
    with tenant.reading() as view:
        return [
            replace(item, carried=unchanged(view, item.before.id, item.chunks))
            if isinstance(item, Draft) and item.before is not None
            else item
            for item in prepared
        ]


def carrying_nothing(writables: Sequence[Writable]) -> list[Prepared]:
    """To be embedded again, as a whole."""
    return [replace(item.draft, carried={}) if isinstance(item, Embedded) else item for item in writables]
