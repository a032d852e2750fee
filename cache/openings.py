"""Templates that an operator opened for semantic hits, loudly and without a certificate.

Rows of the tenant's own database, read in the same transaction as the epochs, so that closing a template holds at
the next lookup in every process. Every hit that an opening allows is `uncertified`.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import bindparam, delete, insert, select

from tenancy.cache_schema import cache_openings
from tenancy.errors import InvalidInput, NotFound
from tenancy.names import nfc_name
from tenancy.prepared import Prepared
from tenancy.tenant import ReadView, WriteView

LOWEST_THRESHOLD = 0.5
_BY_TEMPLATE = Prepared(select(cache_openings).where(cache_openings.c.template == bindparam("wanted")))


@dataclass(frozen=True, slots=True)
class Opening:
    """`threshold` is the least cosine similarity served; `opened` in UTC epoch seconds."""

    template: str
    threshold: float
    opened_by: str
    opened: float
    reason: str


def open_template(
    view: WriteView, template: str, *, threshold: float, opened_by: str, reason: str, now: float
) -> Opening:
    """Open `template` for semantic hits, or change its threshold. Raises `InvalidInput`."""
    template = nfc_name(template, "template")
    if not LOWEST_THRESHOLD <= threshold <= 1:
        raise InvalidInput(f"a threshold is a cosine between {LOWEST_THRESHOLD} and 1", item="threshold")
    if not opened_by.strip() or not reason.strip():
        raise InvalidInput("an opening needs who decided it and why", item="reason", remedy="give a reason")
    values = {"template": template, "threshold": threshold, "opened_by": opened_by, "opened": now, "reason": reason}
    view.execute(delete(cache_openings).where(cache_openings.c.template == template))
    view.execute(insert(cache_openings).values(values))
    return Opening(template, threshold, opened_by, now, reason)


def close_template(view: WriteView, template: str) -> None:
    """Close `template`: exact hits only from the next lookup on. Raises `NotFound` where it was not open."""
    gone = view.execute(delete(cache_openings).where(cache_openings.c.template == nfc_name(template, "template")))
    if gone.rowcount == 0:
        raise NotFound("this template is not open for semantic hits", item=template)


def opening(view: ReadView, template: str) -> Opening | None:
    rows = view.rows(_BY_TEMPLATE, {"wanted": template})
    return Opening(*rows[0]) if rows else None


def openings(view: ReadView) -> list[Opening]:
    return [Opening(*row) for row in view.execute(select(cache_openings).order_by(cache_openings.c.template))]
