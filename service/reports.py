"""Reports from an audit log, by kind and parameters, for the routes and the commands; as JSON and as CSV."""

from __future__ import annotations

import base64
import csv
import io
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from audit.log import AuditLog
from audit.record import Detail
from audit.reports.cache_entry import cache_entry_report, entry_of
from audit.reports.denied import denied_report
from audit.reports.document import document_report
from audit.reports.done import attestations_report, deletions_report
from audit.reports.frame import Asked, Report, Row, Table
from audit.reports.subject import subject_report
from cache.stores.port import CacheStore
from metering.usage import no_formula
from service.control import Control
from service.inspection import DEFAULT_LIMIT, moment, reference, window_of
from tenancy.control import SYSTEM
from tenancy.deletion import verify
from tenancy.errors import InvalidInput
from tenancy.identity import Principal
from tenancy.tenant import TenantHandle

PARAMETERS: Final = frozenset({"since", "until", "as_of", "limit", "after", "format", "table"})
_ENTRIES: Final = 1_000
_UNTOLD: Final = frozenset({"user", "persons"})

_CERTIFICATES: Final = ("tenant", "tenant_id", "created", "deleted", "log_size", "log_root", "signature")
_RECEIPTS: Final = ("id", "subject", "outcome", "finished", "signature")
# More digits than a record's number can have.
_LONG: Final = 20


def asked_of(given: Mapping[str, str | int | None]) -> Asked:
    """Window, state, limit and cursor from parameters by name. Raises `InvalidInput`."""
    since, until, limit, as_of, after = (given.get(name) for name in ("since", "until", "limit", "as_of", "after"))
    return Asked(
        since=None if since is None else moment(str(since), "since"),
        until=None if until is None else moment(str(until), "until"),
        as_of=None if as_of is None else int(as_of),
        limit=DEFAULT_LIMIT if limit is None else int(limit),
        after=None if after is None else str(after),
    )


def document(log: AuditLog, name: str, asked: Asked) -> Report:
    return document_report(log, name, asked)


def subject(control: Control, principal: Principal | None, log: AuditLog, user: str, asked: Asked) -> Report:
    """`user` is a name, `operator:NAME` or a reference out of an event."""
    return subject_report(log, reference(control, principal, log, user), asked)


def cache_entry(log: AuditLog, entry: str, asked: Asked, origin: Callable[[str], int | None]) -> Report:
    """`entry` is its id, or the number of an event that is about it. Where it was never served, `origin` says by which
    record it was made.
    """
    name = entry_of(log, int(entry)) if entry.isascii() and entry.isdigit() and len(entry) < _LONG else entry
    report = cache_entry_report(log, name, asked)
    if report.tables["origin"].rows:
        return report
    return cache_entry_report(log, name, asked, origin_seq=origin(name))


def origin_in(store: CacheStore, tenant: TenantHandle, entry: str) -> int | None:
    """The number of the record of the answer that a remembered entry holds, None where it is not remembered."""
    offset = 0
    while found := store.inspect(tenant, limit=_ENTRIES, offset=offset):
        for one in found:
            if one.id == entry:
                return one.origin_seq
        offset += len(found)
    return None


def denied(log: AuditLog, asked: Asked) -> Report:
    return denied_report(log, asked)


def attestations(log: AuditLog, asked: Asked) -> Report:
    return attestations_report(log, asked)


def deletions(control: Control, log: AuditLog, asked: Asked) -> Report:
    """With the signed receipts of erasures; of a deleted tenant its certificate, and in the system's log those of all.

    `signature` says whether it is this deployment's, over what is kept.
    """
    report = deletions_report(log, asked)
    public = base64.b64decode(control.tenants.public_key)
    kept = control.tenants.deletion.certificates()
    certificates = [one for one in kept if log.log_id in (SYSTEM, one["tenant_id"])]
    tables = {
        **report.tables,
        "receipts": Table(_RECEIPTS, tuple(_receipt(one, public) for one in log.subjects.receipts())),
        "certificates": Table(_CERTIFICATES, tuple(_certificate(one, public) for one in certificates)),
    }
    return replace(report, tables=tables)


def body_of(report: Report) -> dict[str, Any]:
    """The report as plain values: what was asked for, window and checkpoint, then each table as a list of rows."""
    tables = {name: [_shown(table, row) for row in table.rows] for name, table in report.tables.items()}
    return {"report": report.kind, **report.about, **window_of(report), **tables}


def csv_of(report: Report, table: str | None) -> str:
    """One table of the report (RFC 4180, with a line of names); the one with a row a request where none is named."""
    name = table or report.paged
    if name not in report.tables:
        raise InvalidInput(f"this report has no such table; it has {', '.join(report.tables)}", item="table")
    found = report.tables[name]
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(found.columns)
    writer.writerows([_cell(row.get(column)) for column in found.columns] for row in found.rows)
    return text.getvalue()


def told(report: Report) -> dict[str, Detail]:
    """What the event of the reading says: which report, about what, how many rows."""
    about = {name: value for name, value in report.about.items() if name not in _UNTOLD and value is not None}
    return {"report": report.kind, **about, "rows": len(report.tables[report.paged].rows)}


def _shown(table: Table, row: Row) -> Row:
    return {column: row.get(column) for column in table.columns}


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return no_formula(value) if isinstance(value, str) else str(value)


def _certificate(certificate: Mapping[str, Any], public: bytes) -> Row:
    log = certificate.get("audit_log", {})
    return {
        "tenant": certificate["tenant"],
        "tenant_id": certificate["tenant_id"],
        "created": certificate["created"],
        "deleted": certificate["deleted"],
        "log_size": log.get("size"),
        "log_root": log.get("root"),
        "signature": _verdict(certificate, public),
    }


def _receipt(receipt: Mapping[str, Any], public: bytes) -> Row:
    return {name: receipt.get(name) for name in _RECEIPTS} | {"signature": _verdict(receipt, public)}


def _verdict(signed: Mapping[str, Any], public: bytes) -> str:
    return "good" if verify(signed, public) else "bad"
