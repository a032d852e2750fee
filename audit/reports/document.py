"""Who saw a document: at which stage, live or replayed from the cache, in which version."""

from __future__ import annotations

import unicodedata
from typing import Final

from sqlalchemy import func, select

from audit.filters import Filters
from audit.log import AuditLog
from audit.record import Event, stamped
from audit.reports.frame import Asked, Reading, Report, Row, Table, reading, require_name
from audit.reports.uses import RANK, Use
from audit.tables import event_documents, events
from tenancy.types import among

KIND: Final = "document"

_SEEN: Final = ("cited", "replayed", "in_prompt", "retrieved", "read", "listed")
_COUNTS: Final = (*_SEEN, "changed", "refused", "maybe", "announced")
_PEOPLE: Final = ("user", "actor", "first", "last", *_COUNTS)
_USES: Final = (
    "seq", "ts", "user", "actor", "action", "outcome", "reason", "released", "stage", "via", "origin_seq",
    "origin_user", "versions", "passages", "domain", "acl_epoch", "request",
)  # fmt: skip
_TIMES: Final = select(events.c.seq, events.c.ts).where(among(events.c.seq, "wanted"))


def document_report(log: AuditLog, document: str, asked: Asked) -> Report:
    """Everybody for whom `document` was found, prompted, cited, replayed, read or changed.

    `people` has a row for each of the `persons`, of many for the last `asked.limit` of them, and counts in the whole
    window: of how many records some passage came that far, how often access was refused, how often a request ended so
    that something may have left (`maybe`). `announced` counts intents: where it is all there is, the outcome is missing
    still. `uses` has one row a request. `via` is `replayed` where a remembered answer was served; `origin_user` had
    asked for it.
    """
    name = unicodedata.normalize("NFC", require_name(document, "document"))
    with reading(log, KIND, name, asked) as found:
        uses, after = found.uses([Filters(document=name)], lambda event: _names(event, name))
        origins = found.users(sorted(_origins(uses)))
        rows = tuple(_use(found, use, name, origins) for use in uses)
        people, persons = _people(found, asked, name)
        tables = {"people": Table(_PEOPLE, tuple(people)), "uses": Table(_USES, rows)}
        return found.report(KIND, {"document": name, "persons": persons}, tables, "uses", after)


def _names(event: Event, document: str) -> bool:
    return any(resource.document == document for resource in event.resources)


def _origins(uses: list[Use]) -> set[int]:
    return {use.cache.origin_seq for use in uses if use.cache is not None and use.cache.origin_seq is not None}


def _use(found: Reading, use: Use, document: str, origins: dict[int, str | None]) -> Row:
    mine = [resource for resource in use.resources if resource.document == document]
    stage = max((resource.stage for resource in mine), key=RANK.__getitem__, default=None)
    replayed = stage == "replayed" and use.cache is not None
    origin = use.cache.origin_seq if replayed and use.cache is not None else None
    return {
        **use.who(found.user(use)),
        "stage": stage,
        "via": "replayed" if replayed else "live" if stage in _SEEN else None,
        "origin_seq": origin,
        "origin_user": None if origin is None else origins.get(origin),
        "versions": " ".join(sorted({resource.version for resource in mine if resource.version})) or None,
        "passages": len({resource.chunk for resource in mine if resource.chunk}) or None,
        "domain": use.policy.domain,
        "acl_epoch": use.policy.acl_epoch,
    }


def _people(found: Reading, asked: Asked, document: str) -> tuple[list[Row], int]:
    """Counted in the document's own index, which has actor and outcome beside each record's number; the last to come
    first, and how many there are.
    """
    touched = event_documents.c
    counted = (
        select(
            touched.actor,
            touched.outcome,
            touched.stage,
            func.count().label("records"),
            func.min(touched.seq).label("first"),
            func.max(touched.seq).label("last"),
        )
        .where(touched.document == document, *found.window(touched.seq))
        .group_by(touched.actor, touched.outcome, touched.stage)
    )
    if asked.since is not None or asked.until is not None:
        counted = counted.join_from(event_documents, events, events.c.seq == touched.seq)
    people: dict[str | None, Row] = {}
    for row in found.connection.execute(counted):
        person = people.setdefault(row.actor, {"first": row.first, "last": row.last} | dict.fromkeys(_COUNTS, 0))
        person["first"], person["last"] = min(person["first"], row.first), max(person["last"], row.last)
        person[_count_of(row.outcome, row.stage)] += row.records
    newest = sorted(people.items(), key=lambda one: -one[1]["last"])[: asked.limit]
    names = found.users([person["last"] for actor, person in newest if found.name_of(actor) is None])
    times = _times(found, {person[edge] for _, person in newest for edge in ("first", "last")})
    rows = [
        {
            **person,
            "user": found.name_of(actor) or names.get(person["last"]),
            "actor": actor,
            "first": times[person["first"]],
            "last": times[person["last"]],
        }
        for actor, person in newest
    ]
    return rows, len(people)


def _count_of(outcome: str | None, stage: str) -> str:
    if outcome is None:
        return "announced"
    if outcome == "allowed":
        return stage if stage in _SEEN else "changed"
    return "refused" if outcome == "refused" else "maybe"


def _times(found: Reading, seqs: set[int]) -> dict[int, str]:
    rows = found.connection.execute(_TIMES, {"wanted": seqs})
    return {row.seq: stamped(row.ts) for row in rows}
