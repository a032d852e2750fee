"""Questions to a usage ledger: sums by group, exact to the microunit, as plain rows and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, func, literal, select, tuple_

from metering.events import UsageEvent
from metering.ledger import UsageLedger
from metering.tables import usage
from tenancy.errors import InvalidInput

GROUPS: Final = ("tenant", "feature", "model", "hop", "month", "version", "adapter", "user", "prices", "basis")
DEFAULT_GROUPS: Final = ("tenant", "feature", "model", "hop")
SUMS: Final = (
    "computed_input", "computed_output", "served_input", "served_output", "milliseconds", "microunits", "saved",
)  # fmt: skip
COLUMNS: Final = ("events", "corrections", "tokens_computed", "tokens_served", *SUMS)
# A spreadsheet takes a cell that begins so for a formula, some also the wide forms of East Asian scripts.
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def grouped(text: str) -> tuple[str, ...]:
    """The groups that a text names, separated by commas. Raises `InvalidInput` for one that there is not."""
    wanted = tuple(part.strip() for part in text.split(",") if part.strip())
    unknown = [part for part in wanted if part not in GROUPS]
    if unknown or len(set(wanted)) != len(wanted):
        raise InvalidInput("usage is not grouped by that", item="group_by", remedy=f"known: {', '.join(GROUPS)}")
    return wanted


def report(
    ledger: UsageLedger,
    tenant: str,
    by: Sequence[str] = DEFAULT_GROUPS,
    *,
    since: float | None = None,
    until: float | None = None,
) -> list[dict[str, Any]]:
    """A row for each group, with the sums of its events in [since, until) (UTC epoch seconds), ordered by group.

    Tokens and microunits are whole numbers; corrections are among them, in the month in which they were made.
    """
    columns: list[ColumnElement[Any]] = [
        literal(tenant).label("tenant") if name == "tenant" else usage.c[name].label(name) for name in by
    ]
    correction = usage.c.corrects != ""
    sums: list[ColumnElement[Any]] = [
        func.count().filter(~correction).label("events"),
        func.count().filter(correction).label("corrections"),
        func.sum(usage.c.computed_input + usage.c.computed_output).label("tokens_computed"),
        func.sum(usage.c.served_input + usage.c.served_output).label("tokens_served"),
        *(func.sum(usage.c[name]).label(name) for name in SUMS),
    ]
    grouping = [usage.c[name] for name in by if name != "tenant"]
    query = select(*columns, *sums).where(*_window(since, until)).group_by(*grouping).order_by(*grouping)
    with ledger.database.reading() as connection:
        found = connection.execute(query).all()
    # Without a group there is one row, of no events too; a server's sum of numbers is no int yet.
    return [
        {name: row._mapping[name] for name in by} | {name: int(row._mapping[name] or 0) for name in COLUMNS}
        for row in found
        if grouping or row.events or row.corrections
    ]


def events_of(
    ledger: UsageLedger, *, since: float | None = None, until: float | None = None, after: str = "", limit: int = 100
) -> list[UsageEvent]:
    """Up to `limit` events of a window in the order of the log, behind the event `after`. Raises `NotFound`."""
    conditions = _window(since, until)
    if after:
        last = ledger.event(after)
        conditions.append(tuple_(usage.c.seq, usage.c.id) > tuple_(literal(last.seq), literal(last.id)))
    query = select(usage).where(*conditions).order_by(usage.c.seq, usage.c.id).limit(limit)
    with ledger.database.reading() as connection:
        return [UsageEvent(**row._mapping) for row in connection.execute(query)]


def spent(
    ledger: UsageLedger, month: str, *, user: str | None = None, key: str | None = None, model: str | None = None
) -> int:
    """Microunits of one calendar month (UTC, as in "2026-11"), of the tenant, or of one user by reference, one API key
    by id, or the requests that one model answered, its remembered answers among them.
    """
    conditions = [usage.c.month == month]
    conditions += [usage.c[name] == value for name, value in (("user", user), ("key", key)) if value is not None]
    if model is not None:
        answered = (usage.c.month == month) & (usage.c.model == model) & usage.c.hop.in_(("generate", "cache"))
        conditions.append(usage.c.request.in_(select(usage.c.request).where(answered)))
    with ledger.database.reading() as connection:
        return int(connection.execute(select(func.sum(usage.c.microunits)).where(*conditions)).scalar() or 0)


def csv_lines(rows: Sequence[Mapping[str, Any]], by: Sequence[str]) -> Iterator[str]:
    """The rows as CSV (RFC 4180), a line at a time. Text that a spreadsheet would take for a formula is quoted."""
    columns = [*by, *COLUMNS]
    yield _line(columns)
    for row in rows:
        yield _line([_cell(row[name]) for name in columns])


def no_formula(text: str) -> str:
    """`text` as a cell that no spreadsheet calculates: an apostrophe stands before what would be a formula, also behind
    a semicolon, which is what separates cells for a spreadsheet of most languages.
    """
    return ";".join(f"'{part}" if part.startswith(_FORMULA) else part for part in text.split(";"))


def _cell(value: Any) -> Any:
    return no_formula(value) if isinstance(value, str) else value


def _line(values: Sequence[Any]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer).writerow(values)
    return buffer.getvalue()


def _window(since: float | None, until: float | None) -> list[ColumnElement[bool]]:
    return ([] if since is None else [usage.c.at >= since]) + ([] if until is None else [usage.c.at < until])
