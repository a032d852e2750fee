"""`strongroom tenant list`: thousands of tenants, page by page, none of them opened."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from service.cli.console import DEFAULT, Common, iso, opened, show_pages
from tenancy.errors import InvalidInput
from tenancy.records import MOST_LISTED

if TYPE_CHECKING:
    from tenancy.records import TenantRecord


def list_tenants(*, after: str = "", limit: int | None = None, common: Common = DEFAULT) -> None:
    """Tenants by name, without opening any.

    Parameters
    ----------
    after: str
        Begin behind this name: the last one of the page before.
    limit: int
        So many at most; all where it is left out.
    """
    if limit is not None and limit < 1:
        raise InvalidInput("at least one tenant must be asked for", item="limit")
    with opened(common) as control:
        records = itertools.islice(control.tenants.listed(after), limit)
        show_pages(common, _pages(records), ["name", "status", "created", "id"])


def row_of(record: TenantRecord) -> dict[str, Any]:
    return {"name": record.name, "status": record.status, "created": iso(record.created), "id": record.id}


def _pages(records: Iterator[TenantRecord]) -> Iterator[list[dict[str, Any]]]:
    while page := [row_of(record) for record in itertools.islice(records, MOST_LISTED)]:
        yield page
