"""How many rows of evidence a tenant's database keeps: `cache.records` of each kind, and what goes first beyond it.

    judgements, feedback    the oldest; what they counted for stays counted
    labelled                answers before askers, of each the longest without a label
    namespaces              the longest without a label, suspended ones last
    negatives               refused entries before pairs, of each the oldest

While a table is within its bound no row goes. Beyond it the oldest hundredth goes at once, so that this is no work for
every row, and the log says how many; of negatives and namespaces it warns, since a pair of questions that is forgotten
may be served for each other again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from sqlalchemy import ColumnElement, Table, case, delete, func, select, tuple_

from tenancy.cache_schema import cache_feedback, cache_judgements, cache_labelled, cache_namespaces, cache_negatives
from tenancy.tenant import WriteView

RECORDS: Final = 100_000
"""Rows of each kind where nothing else is said."""

ENTRY: Final = "entry"
"""The source of a negative that is a refused entry and no pair."""

ASKER: Final = "asker "
"""What labelled rows of people begin with."""

_PART: Final = 100
_ORDERS: Final[Mapping[Table, tuple[ColumnElement[object], ...]]] = {
    cache_judgements: (cache_judgements.c.id,),
    cache_feedback: (cache_feedback.c.at,),
    cache_labelled: (case((cache_labelled.c.about.startswith(ASKER), 1), else_=0), cache_labelled.c.at),
    cache_namespaces: (case((cache_namespaces.c.suspended.is_(None), 0), else_=1), cache_namespaces.c.at),
    cache_negatives: (case((cache_negatives.c.source == ENTRY, 0), else_=1), cache_negatives.c.at),
}
_logger: Final = logging.getLogger(__name__)


def keep(view: WriteView, table: Table, records: int) -> int:
    """Bring `table` back to its bound; returns how many rows went. To be called after each new row."""
    held = int(view.execute(select(func.count()).select_from(table)).scalar_one())
    if held <= records:
        return 0
    gone = held - records + records // _PART
    key = tuple(table.primary_key.columns)
    oldest = select(*key).order_by(*_ORDERS[table], *key).limit(gone)
    view.execute(delete(table).where(tuple_(*key).in_(oldest)))
    level = logging.WARNING if table in (cache_negatives, cache_namespaces) else logging.INFO
    _logger.log(level, "%s is at its bound of %d rows: the oldest %d were dropped", table.name, records, gone)
    return gone
