"""What the usage route and the usage commands share: reports, corrections, reconciliation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from audit.log import AuditLog
from audit.record import Detail
from audit.trail import Trail
from metering.events import CORRECT, Correction, UsageEvent
from metering.ledger import UsageLedger, charged_in
from metering.reconcile import Tokens, generation, reconcile
from metering.usage import COLUMNS, report
from service.inspection import moment
from tenancy.errors import InvalidInput

MAX_WHY: Final = 200
MOST: Final = 10**15
"""Microunits that an event can be charged with after corrections: what sums of a ledger can hold many times over."""


@dataclass(frozen=True, slots=True)
class Window:
    """[since, until) in UTC epoch seconds."""

    since: float | None = None
    until: float | None = None

    @classmethod
    def of(cls, since: str | None, until: str | None) -> Window:
        """Raises `InvalidInput` for what is no time, and for an end before the beginning."""
        found = cls(
            None if since is None else moment(since, "since"), None if until is None else moment(until, "until")
        )
        if found.since is not None and found.until is not None and found.until <= found.since:
            raise InvalidInput("the window ends before it begins", item="until", remedy="name a later moment")
        return found

    def told(self) -> dict[str, Detail]:
        given = {"since": self.since, "until": self.until}
        return {name: round(value) for name, value in given.items() if value is not None}


def caught_up(log: AuditLog) -> UsageLedger:
    """The ledger beside a log, complete as of its head."""
    ledger = UsageLedger(log)
    ledger.catch_up()
    return ledger


def usage_report(log: AuditLog, tenant: str, by: tuple[str, ...], window: Window) -> dict[str, Any]:
    """The rows of one tenant, complete as of the head of its log, and their total."""
    ledger = caught_up(log)
    rows = report(ledger, tenant, by, since=window.since, until=window.until)
    total = {name: sum(int(row[name]) for row in rows) for name in COLUMNS}
    return {"group_by": list(by), "rows": rows, "total": total, "records": ledger.place().next}


def correct(log: AuditLog, trail: Trail, event_id: str, microunits: int, why: str) -> UsageEvent:
    """Put a correction of one event on record, which is what books it, beside the request's own record in `trail`.
    Returns the event that it is about.

    Raises `NotFound` for an event that there is not, and `InvalidInput` where nothing is changed, more is given back
    than was charged, more is charged than `MOST`, or a correction is to be corrected.
    """
    if not why or len(why) > MAX_WHY or not why.isprintable():
        raise InvalidInput(f"say why, in up to {MAX_WHY} characters", item="why")
    ledger = caught_up(log)
    event = ledger.event(event_id)
    if event.corrects:
        raise InvalidInput("a correction is not corrected", item=event_id[:100], remedy="correct the event itself")
    said = Correction(
        corrects=event_id,
        microunits=microunits,
        why=why,
        **{name: getattr(event, name) for name in _COPIED},
    )
    # Another correction of the same event, of any process, is checked once this one is on record.
    with ledger.alone() as connection:
        charged = charged_in(connection, event_id)
        if not microunits or charged + microunits < 0:
            raise InvalidInput(
                f"the event is charged with {charged} microunits", item="microunits", remedy="give back at most those"
            )
        # It is put on record before it is booked: a number that no ledger can book would stop the ledger for good.
        if charged + microunits > MOST:
            raise InvalidInput(f"an event costs {MOST} microunits at most", item="microunits", remedy="charge less")
        log.append(lambda: trail.aside(CORRECT, msgspec.structs.asdict(said)))
    return event


_COPIED: Final = ("hop", "feature", "user", "key", "model", "version", "adapter", "prices", "basis")


def reconciled(logs: Iterable[tuple[str, AuditLog]]) -> list[dict[str, Any]]:
    """One row a tenant: whether ledger and audit agree, and on what not."""
    return [{"tenant": name, **_row(log)} for name, log in logs]


def against_engines(logs: Iterable[AuditLog], engines: Tokens, window: Window) -> dict[str, Any]:
    """The generators' tokens of all these ledgers beside the engines' own count of the same window.

    `unowned` is what the engines have more: streams that were cut, charged to nobody.
    """
    own, estimated = Tokens(), Tokens()
    for log in logs:
        ledger = caught_up(log)
        own += generation(ledger, window.since, window.until)
        estimated += generation(ledger, window.since, window.until, estimated=True)
    counts: Mapping[str, Tokens] = {
        "ledger": own, "of_it_estimated": estimated, "engines": engines, "unowned": engines - own,
    }  # fmt: skip
    return {name: msgspec.to_builtins(tokens) for name, tokens in counts.items()}


def _row(log: AuditLog) -> dict[str, Any]:
    found = reconcile(UsageLedger(log))
    return {
        "agrees": found.agrees,
        "records": found.records,
        "audit_microunits": found.audited,
        "ledger_microunits": found.booked,
        "pruned_microunits": found.kept,
        "missing": found.missing[:_SHOWN],
        "altered": found.altered[:_SHOWN],
        "strange": found.strange[:_SHOWN],
        "missed_records": found.missed,
        "conflicts": found.conflicts,
    }


_SHOWN: Final = 20
