"""Do three independent counts agree: the ledger's rows, the audit's own totals, and the engines' counters?

Ledger and audit must be equal to the microunit. Of the engines, an aborted stream may have computed tokens of which
nobody was told: they are shown, are nobody's, and are bounded by the tokens in flight when streams were cut.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import ColumnElement, func, select

from audit.log import AuditLog
from audit.record import Event, decode
from audit.tables import events
from metering.events import UsageEvent, usage_of
from metering.ledger import UsageLedger
from metering.tables import usage
from tenancy.errors import InvalidInput
from tenancy.types import among

Rows = Sequence[Any]

_PAGE: Final = 1_000
_BY_ID: Final = select(usage).where(among(usage.c.id, "wanted"))
_SAME: Final = tuple(name for name in UsageEvent.__struct_fields__ if name not in {"seq", "at", "month"})
_LINE: Final = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{[^}]*\})? ([0-9.eE+]+)\s*$")
_COUNTERS: Final = {
    "sglang:prompt_tokens_total": "prompt",
    "sglang:cached_tokens_total": "cached",
    "sglang:generation_tokens_total": "generated",
}


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens of generation: read, of those not computed again, and written."""

    prompt: int = 0
    cached: int = 0
    generated: int = 0

    def __add__(self, other: Tokens) -> Tokens:
        return Tokens(self.prompt + other.prompt, self.cached + other.cached, self.generated + other.generated)

    def __sub__(self, other: Tokens) -> Tokens:
        return Tokens(self.prompt - other.prompt, self.cached - other.cached, self.generated - other.generated)


@dataclass(slots=True)
class Reconciled:
    """`audited` microunits are the requests' own totals and the corrections, `booked` those of the rows about them.

    `missing` are events of the log that the ledger has not, `altered` such that it has otherwise, `strange` rows that
    no record accounts for. Rows of records that were pruned since are `kept` microunits, and no difference. `missed`
    records were pruned before they were booked; `conflicts` events came twice and differed.
    """

    records: int = 0
    audited: int = 0
    booked: int = 0
    kept: int = 0
    missed: int = 0
    conflicts: int = 0
    missing: list[str] = field(default_factory=list)
    altered: list[str] = field(default_factory=list)
    strange: list[str] = field(default_factory=list)

    @property
    def agrees(self) -> bool:
        wrong = self.missing or self.altered or self.strange or self.missed or self.conflicts
        return self.audited == self.booked and not wrong


def reconcile(ledger: UsageLedger) -> Reconciled:
    """Read the whole log again, after catching up, and compare it with the ledger row by row."""
    ledger.catch_up()
    place = ledger.place()
    found = Reconciled(missed=place.missed, conflicts=place.conflicts)
    totals: dict[str, int] = {}
    kept: Counter[str] = Counter()
    for page in _pages(ledger.log, place.next):
        found.records += len(page)
        records = [decode(row.payload) for row in page if row.payload]
        for record in records:
            totals |= _totals(record)
        _compare(ledger, page, records, found, kept)
    # A request of which one record was pruned and the next one was not.
    found.booked += sum(amount for request, amount in kept.items() if request in totals)
    found.kept = sum(amount for request, amount in kept.items() if request not in totals)
    found.audited = sum(totals.values())
    outside = (usage.c.seq >= place.next) | (usage.c.seq < 0)
    with ledger.database.reading() as connection:
        found.strange += connection.execute(select(usage.c.id).where(outside).order_by(usage.c.id)).scalars().all()
    return found


def generation(
    ledger: UsageLedger, since: float | None = None, until: float | None = None, *, estimated: bool | None = None
) -> Tokens:
    """What generators did for this tenant in [since, until) by its ledger; `estimated` chooses the streams of which the
    engine said no last word, or the others.
    """
    conditions: list[ColumnElement[bool]] = [usage.c.hop == "generate", usage.c.corrects == ""]
    conditions += [] if since is None else [usage.c.at >= since]
    conditions += [] if until is None else [usage.c.at < until]
    conditions += [] if estimated is None else [usage.c.estimated.is_(estimated)]
    columns = (usage.c.served_input, usage.c.served_input - usage.c.computed_input, usage.c.computed_output)
    with ledger.database.reading() as connection:
        sums = connection.execute(select(*(func.sum(column) for column in columns)).where(*conditions)).one()
    return Tokens(*(int(value or 0) for value in sums))


def engine_totals(text: str, item: str = "engine") -> Tokens:
    """The counters of an SGLang server from its `/metrics`, over all its labels. Raises `InvalidInput` without them."""
    sums: dict[str, float] = {}
    for line in text.splitlines():
        found = _LINE.match(line)
        if found and found[1] in _COUNTERS:
            name = _COUNTERS[found[1]]
            sums[name] = sums.get(name, 0.0) + float(found[2])
    if not {"prompt", "generated"} <= sums.keys():
        raise InvalidInput(
            "no token counters of an engine are in this text",
            item=item,
            remedy="save the /metrics of a server that runs with --enable-metrics",
        )
    return Tokens(**{name: round(value) for name, value in sums.items()})


def _pages(log: AuditLog, size: int) -> Iterator[Rows]:
    for first in range(0, size, _PAGE):
        within = (events.c.seq >= first) & (events.c.seq < min(first + _PAGE, size))
        with log.database.reading() as connection:
            yield connection.execute(select(events.c.seq, events.c.payload).where(within).order_by(events.c.seq)).all()


def _totals(record: Event) -> dict[str, int]:
    """What a record says in sum about its request: later records of one request say more, and take its place."""
    corrections = {one.request: one.microunits for one in usage_of(record) if one.corrects}
    cost = record.cost
    total = {} if cost is None or cost.microunits is None else {record.request.id: cost.microunits}
    return total | corrections


def _compare(
    ledger: UsageLedger,
    page: Rows,
    records: Sequence[Event],
    found: Reconciled,
    kept: Counter[str],
) -> None:
    """Compare a page of the log with the rows that were booked from it; those of pruned records go to `kept`."""
    said = {(one.id, one.seq): one for record in records for one in usage_of(record)}
    here = usage.c.seq.between(page[0].seq, page[-1].seq)
    with ledger.database.reading() as connection:
        own = {(row.id, row.seq): row for row in connection.execute(select(usage).where(here))}
        wanted = {event_id for event_id, _ in said}
        by_id = {row.id: row for row in connection.execute(_BY_ID, {"wanted": wanted})} if wanted else {}
    for (event_id, seq), one in said.items():
        row = by_id.get(event_id)
        if row is None or row.seq > seq:
            found.missing.append(event_id)
        elif any(getattr(row, name) != getattr(one, name) for name in _SAME):
            found.altered.append(event_id)
    pruned = {row.seq for row in page if not row.payload}
    for (event_id, seq), row in own.items():
        if seq in pruned:
            kept[row.request] += row.microunits
            continue
        found.booked += row.microunits
        if (event_id, seq) not in said:
            found.strange.append(event_id)
