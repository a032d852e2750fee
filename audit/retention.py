"""How long records are kept: retention classes, and legal holds, which keep records whatever their class says.

A class is a time that records are kept at least. 184 days are the six months that Article 26(6) of Regulation (EU)
2024/1689 asks of the logs of high-risk systems, in their longest form; six years are those of 45 CFR 164.316(b)(2)(i).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from audit.holds import Hold
from audit.log import AuditLog
from audit.record import Detail, Draft
from tenancy.contract import Retention

DAYS: Final[Mapping[Retention, int]] = {"184-days": 184, "12-months": 366, "6-years": 2_192}
LONGEST: Final[Retention] = "6-years"
PLACED: Final = "hold.placed"
_DAY_S: Final = 86_400

Announce = Callable[[dict[str, Detail]], Draft]
"""Makes an event out of its details: one of the action `PLACED`, for a hold."""


def cutoff(retention: Retention, now: float) -> float:
    """Records of before this moment have been kept for the time of their class. UTC epoch seconds, like `now`."""
    return now - DAYS[retention] * _DAY_S


def hold_subject(log: AuditLog, subject: str, announce: Announce, *, reason: str, by: str) -> Hold:
    """Keep every record of `subject` and the key of their texts. It is in force, and on record, when this returns."""
    return _announced(log, log.subjects.holds.on_subject(subject, reason=reason, by=by), announce)


def hold_window(
    log: AuditLog, since: float | None, until: float | None, announce: Announce, *, reason: str, by: str
) -> Hold:
    """Keep the records of a time, and the keys of everybody who has one among them. In force when this returns."""
    return _announced(log, log.subjects.holds.on_window(since, until, reason=reason, by=by), announce)


def _announced(log: AuditLog, hold: Hold, announce: Announce) -> Hold:
    """The record by which a pruning that does not know of the hold yet notices it; see `audit.pruning`."""
    log.append(lambda: announce({"hold": hold.id}))
    return hold
