"""Usage events: one for each hop of a request, derived from the audit's records, each with an id of its own.

A record says what all hops of its request used so far: an intent those before it, the outcome all of them. So the same
hop is met in several records, and has the same id in each: request, place among the request's hops, hop.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

import msgspec

from audit.record import Event, Metered
from tenancy.billing import Basis
from tenancy.errors import Corrupt

UNATTRIBUTED: Final = "unattributed"
INGESTION: Final = "ingestion"
"""The feature of documents that come in."""
CORRECT: Final = "usage.correct"
"""The action of the record that is a correction."""

_INGESTING: Final = frozenset({"document.put", "ingest"})


class UsageEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One hop, or a correction of one. `at` is UTC epoch seconds, `month` as in "2026-11", `user` a keyed reference,
    `key` the id of the API key, if it was one.

    Tokens and microunits of a correction are what it adds, and may be negative; `corrects` is the event it is about.
    """

    id: str
    seq: int
    at: float
    month: str
    request: str
    hop: str
    feature: str = UNATTRIBUTED
    user: str = ""
    key: str = ""
    model: str = ""
    version: str = ""
    adapter: str = ""
    prices: str = ""
    basis: Basis = "actual"
    computed_input: int = 0
    computed_output: int = 0
    served_input: int = 0
    served_output: int = 0
    milliseconds: int = 0
    microunits: int = 0
    saved: int = 0
    estimated: bool = False
    corrects: str = ""


class Correction(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a correcting record says in its detail: to whom `microunits` belong, and of which event."""

    corrects: str
    microunits: int
    hop: str
    why: str
    feature: str = UNATTRIBUTED
    user: str = ""
    key: str = ""
    model: str = ""
    version: str = ""
    adapter: str = ""
    prices: str = ""
    basis: Basis = "actual"


def usage_of(event: Event) -> Iterator[UsageEvent]:
    """The usage events that a record holds. Raises `Corrupt` for a correction that cannot be read."""
    if event.action == CORRECT:
        # The request that corrects ends with a record of its own, which says nothing more.
        if event.phase == "outcome" and event.outcome == "allowed" and "corrects" in event.detail:
            yield _correction(event)
        return
    cost = event.cost
    if cost is None:
        return
    feature = event.detail.get("feature") or (INGESTION if event.action in _INGESTING else UNATTRIBUTED)
    for number, (hop, milliseconds) in enumerate(cost.hops):
        use = cost.metered[number] if number < len(cost.metered) else Metered()
        served = use.computed if use.served is None else use.served
        yield UsageEvent(
            id=f"{event.request.id}.{number}.{hop}",
            seq=event.seq,
            at=event.time,
            month=month_of(event.time),
            request=event.request.id,
            hop=hop,
            feature=str(feature),
            user=event.actor.ref or "",
            key=(event.actor.credential or "") if event.actor.method == "api_key" else "",
            model=use.model or "",
            version=use.version or "",
            adapter=use.adapter or "",
            prices=cost.prices or "",
            basis=cost.basis or "actual",
            computed_input=use.computed[0],
            computed_output=use.computed[1],
            served_input=served[0],
            served_output=served[1],
            milliseconds=milliseconds,
            microunits=use.microunits,
            saved=use.saved,
            estimated=use.estimated,
        )


def month_of(moment: float) -> str:
    """The calendar month (UTC) of a moment, as in "2026-11"."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m")


def _correction(event: Event) -> UsageEvent:
    try:
        said = msgspec.convert(event.detail, Correction)
    except msgspec.ValidationError:
        raise Corrupt("a correction of usage cannot be read", item=f"record {event.seq}") from None
    return UsageEvent(
        id=f"{event.request.id}.0.correction",
        seq=event.seq,
        at=event.time,
        month=month_of(event.time),
        request=event.request.id,
        hop=said.hop,
        feature=said.feature,
        user=said.user,
        key=said.key,
        model=said.model,
        version=said.version,
        adapter=said.adapter,
        prices=said.prices,
        basis=said.basis,
        microunits=said.microunits,
        corrects=said.corrects,
    )
