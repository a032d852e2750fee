"""What became of each item that ingestion met last, also of those that gave no document: recorded, and listed.

In the transaction that writes the documents, where there is one. An unchanged document keeps the status that it was
indexed with.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import bindparam, delete, insert, select

from indexing.documents import MAX_LISTED
from indexing.origin import lies_under
from indexing.outcome import WRITTEN, Change, Outcome, Status, written
from indexing.parse.tags import language_among
from tenancy.errors import InvalidInput
from tenancy.schema import documents, items
from tenancy.tenant import ReadView, TenantHandle, WriteView

_PIECE: Final = 500
"""Names in one statement."""

_STATUSES: Final = select(items.c.name, items.c.status).where(items.c.name.in_(bindparam("names", expanding=True)))
_DOCUMENTS: Final = select(documents.c.name, documents.c.origin, documents.c.version, documents.c.warnings).where(
    documents.c.name.in_(bindparam("names", expanding=True))
)
_DELETE: Final = delete(items).where(items.c.name.in_(bindparam("names", expanding=True)))


@dataclass(frozen=True, slots=True)
class Item:
    """An item, and its document where there is one; `seen` is UTC epoch seconds, when it got its status."""

    name: str
    status: str
    reason: str | None
    remedy: str | None
    warnings: tuple[str, ...]
    seen: float
    version: str | None
    title: str | None
    media_type: str | None
    language: str | None = None


def list_items(tenant: TenantHandle, status: str, *, after: str = "", limit: int = 100) -> list[Item]:
    """Items of `status` by name, from behind `after` on. For those who administer documents: access lists do not apply.

    Raises `InvalidInput` for what is no status.
    """
    if not 1 <= limit <= MAX_LISTED:
        raise InvalidInput(f"the limit is from 1 to {MAX_LISTED}", item="limit")
    if status == Status.UNCHANGED:
        raise InvalidInput(
            "a document that did not change keeps the status that it was indexed with",
            item="status",
            remedy="ask for indexed, partial or uncertain_encoding",
        )
    if status not in set(Status):
        words = ", ".join(known.value for known in Status if known is not Status.UNCHANGED)
        raise InvalidInput(f"there is no status {status[:50]!r}", item="status", remedy=f"take one of {words}")
    query = (
        select(
            items, documents.c.version.label("present"), documents.c.title, documents.c.media_type, documents.c.metadata
        )
        .outerjoin(documents, documents.c.name == items.c.name)
        .where((items.c.status == status) & (items.c.name > after))
        .order_by(items.c.name)
        .limit(limit)
    )
    with tenant.reading() as view:
        rows = view.execute(query).all()
    return [
        Item(
            row.name, row.status, row.reason, row.remedy, tuple(row.warnings), row.seen, row.present or row.version,
            row.title, row.media_type, language_among(row.metadata),
        )
        for row in rows
    ]  # fmt: skip


def statuses(view: ReadView, names: Collection[str]) -> dict[str, str]:
    """The statuses on record of those of `names` that have one."""
    found: dict[str, str] = {}
    for piece in _pieces(names):
        found.update((row.name, row.status) for row in view.execute(_STATUSES, {"names": piece}))
    return found


def record(view: WriteView, outcomes: Sequence[Outcome], now: float) -> None:
    """Put the outcomes on record, in the transaction of what they tell. Failures that have no origin are not."""
    _replace(view, _news(view, outcomes), now)


def record_alone(tenant: TenantHandle, outcomes: Sequence[Outcome], now: float) -> None:
    """`record` where nothing else is written: in no transaction where the record says all that already."""
    with tenant.reading() as view:
        news = _news(view, outcomes)
    if news:
        with tenant.writing() as view:
            record(view, news, now)


def forget_gone(tenant: TenantHandle, root: str, met: Collection[str], now: float) -> None:
    """Forget the failures below `root` that were not met in a run over the whole of it, and left no document. One that
    came from elsewhere is as it was written.
    """
    left = documents.c.id.is_(None) & (items.c.status != Status.REMOVED.value)
    elsewhere = ~lies_under(documents.c.origin, root) & items.c.status.not_in([status.value for status in WRITTEN])
    failures = (
        select(items.c.name)
        .outerjoin(documents, documents.c.name == items.c.name)
        .where(lies_under(items.c.origin, root) & (left | elsewhere))
    )
    with tenant.reading() as view:
        gone = [name for name in view.execute(failures).scalars() if name not in met]
    if gone:
        with tenant.writing() as view:
            _replace(view, [Outcome(name, Status.UNCHANGED) for name in gone], now)


def _news(view: ReadView, outcomes: Sequence[Outcome]) -> list[Outcome]:
    """What the record does not say yet. Removals are recorded by `indexing.documents.remove`, for whoever removes."""
    told = [
        outcome
        for outcome in outcomes
        if outcome.change is not Change.REMOVED and (outcome.error is None or outcome.origin is not None)
    ]
    known = statuses(view, [outcome.document for outcome in told if _is_as_it_was(outcome)])
    return [outcome for outcome in told if not (_is_as_it_was(outcome) and known.get(outcome.document) in WRITTEN)]


def _is_as_it_was(outcome: Outcome) -> bool:
    return outcome.status is Status.UNCHANGED and outcome.change is not Change.MOVED


def _replace(view: WriteView, outcomes: Sequence[Outcome], now: float) -> None:
    latest = {outcome.document: outcome for outcome in outcomes}
    rows: list[dict[str, Any]] = []
    whole = [name for name, outcome in latest.items() if outcome.error is None]
    for piece in _pieces(whole):
        for row in view.execute(_DOCUMENTS, {"names": piece}):
            status = written(tuple(row.warnings)).value
            rows.append(_row(row.name, row.origin, status, now, warnings=row.warnings, version=row.version))
    for name, outcome in latest.items():
        if outcome.error is not None and outcome.origin is not None:
            origin = outcome.origin.text
            rows.append(
                _row(name, origin, outcome.status.value, now, reason=outcome.reason, remedy=outcome.remedy)
            )  # fmt: skip
    earlier = [outcome.moved_from for outcome in outcomes if outcome.moved_from is not None]
    for piece in _pieces([*latest, *earlier]):
        view.execute(_DELETE, {"names": piece})
    if rows:
        view.execute(insert(items), rows)


def _row(name: str, origin: str, status: str, now: float, **more: Any) -> dict[str, Any]:
    return {
        "name": name, "origin": origin, "status": status, "reason": None, "remedy": None, "warnings": [],
        "version": None, "seen": now, **more,
    }  # fmt: skip


def _pieces(names: Collection[str]) -> list[list[str]]:
    every = list(names)
    return [every[start : start + _PIECE] for start in range(0, len(every), _PIECE)]
