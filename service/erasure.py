"""Erasing a user: everything that tells what this person was shown and asked, and a signed receipt of what went where.

The user is deleted like by `service.users`, and beyond that nobody reads the person's texts in the audit again, also
what is recorded of requests that are still on their way. A legal hold keeps all of it, and the receipt says so. What a
crash interrupts is taken up when the same name is erased again.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import select

from audit.erasure import ErasedTexts, erase_texts, holds_on
from audit.log import AuditLog
from audit.trail import Trail
from cache.certificate.reports import Unlinked, unlink
from cache.stores.port import CacheStore
from cache.stores.selector import Selector
from service.control import Control
from service.users import delete_user
from tenancy import directory, schema
from tenancy.errors import NotFound
from tenancy.identity import Principal
from tenancy.tenant import TenantHandle

VERSION: Final = 1
_PAGE: Final = 1_000
_REFERENCE: Final = re.compile(r"u_[0-9a-f]{32}")

_RETAINED: Final[Mapping[str, str]] = {
    "audit_records": "when and by which reference documents were reached; the texts in them are ciphertext without key",
    "documents": "they are the tenant's; what others asked and were shown is theirs",
    "pairs_kept_apart": "keyed hashes of two questions that must not share an answer; they name no person",
    "older_backups": "made by this program they hold no text and no key of one; the name in the directory is withdrawn "
    "when one is restored",
    "other_copies": "not reached: copies of the data directory made by other means, a database server's own logs and "
    "backups, and exports of readable texts that somebody made before",
}


@dataclass(slots=True)
class _Person:
    """Whom an erasure is about. `user_id` is None where only the audit knows the person, `name` empty where the
    directory does not know it (any more).
    """

    subject: str
    user_id: str | None
    name: str = ""


@dataclass(slots=True)
class _Gone:
    """What was destroyed, as it goes."""

    texts: ErasedTexts | None = None
    traces: Unlinked = field(default_factory=lambda: Unlinked(0, 0, 0))
    entries: int = 0
    keys: int = 0
    directory: int = 0


def erase_user(control: Control, store: CacheStore, principal: Principal, named: str, trail: Trail) -> dict[str, Any]:
    """Erase a user of the principal's tenant by name or id, or anybody by the `actor.ref` of an event. Returns the
    signed receipt, whose `outcome` is `erased`, or `held` where a legal hold kept everything.

    Raises `NotFound`; `Unavailable` where the cache is out of reach, and then nothing has changed.
    """
    handle, log = control.tenants.open(principal), trail.log
    person = _find(control, handle, log, named)
    trail.note(detail={"user": person.subject})
    requested = time.time()
    held = holds_on(log, person.subject)
    gone = None if held else _erase(control, store, principal, person, trail)
    log.flush()
    head = log.head()
    receipt = control.tenants.deletion.signed(
        {
            "version": VERSION,
            "kind": "erasure receipt",
            "id": f"er_{secrets.token_hex(12)}",
            "tenant": principal.tenant,
            "tenant_id": principal.tenant_id,
            "subject": person.subject,
            "requested": _iso(requested),
            "outcome": "held" if gone is None else "erased",
            "finished": _iso(time.time()),
            "destroyed": {} if gone is None else _destroyed(gone, log, store),
            "holds": [{"id": hold.id, "placed": _iso(hold.placed)} for hold in held],
            "audit_log": {"size": head.size, "root": head.root.hex()},
            "retained": {"everything": "a legal hold keeps it until it is released"} if gone is None else _RETAINED,
        }
    )
    log.subjects.finish(person.subject, receipt)
    trail.note(detail=_summary(person, receipt, gone))
    if gone is None:
        trail.conclude("refused", "legal-hold")
    return receipt


def subject_of(control: Control, principal: Principal, log: AuditLog, named: str) -> str:
    """The reference by which `log` knows a user, named by name, id or that reference. Raises `NotFound`."""
    return _find(control, control.tenants.open(principal), log, named).subject


def _find(control: Control, handle: TenantHandle, log: AuditLog, named: str) -> _Person:
    subjects = log.subjects
    with handle.reading() as view:
        users = schema.users.c
        by_name = directory.find_user(view, named)
        if by_name is not None:
            return _Person(subjects.ref(by_name), by_name, named)
        if _REFERENCE.fullmatch(named):
            known = view.execute(select(users.id, users.name)).all()
            found = [row for row in known if subjects.ref(row.id) == named]
        else:
            found = list(view.execute(select(users.id, users.name).where(users.id == named)).all())
    if found:
        return _Person(subjects.ref(found[0].id), found[0].id, found[0].name)
    begun = subjects.unfinished(named)
    if begun is not None:
        return _Person(*begun)
    if _REFERENCE.fullmatch(named) and subjects.known(named):
        # Deleted before: revoked keys may still tell whose they were.
        keys = control.tenants.list_keys(handle.name)
        return _Person(named, next((key.user_id for key in keys if subjects.ref(key.user_id) == named), None))
    raise NotFound(
        "no such user in this tenant",
        item=named[:200],
        remedy="of one who was deleted, give the `actor.ref` of an event (`strongroom audit query`)",
    )


def _erase(control: Control, store: CacheStore, principal: Principal, person: _Person, trail: Trail) -> _Gone:
    gone, handle = _Gone(), control.tenants.open(principal)
    user_id = person.user_id
    entries = [] if user_id is None else _entries(handle, store, user_id)

    def beyond() -> None:
        """What goes while the directory still finds the person, so that a crash can be made good."""
        gone.texts = erase_texts(trail.log, person.subject, user=user_id, name=person.name)
        if user_id is not None:
            with handle.writing() as view:
                gone.traces = unlink(view, user_id, entries)

    if person.name:
        deleted = delete_user(control.tenants, store, principal, person.name, trail, meanwhile=beyond)
        gone.entries, gone.directory = deleted.entries, 1
    else:
        beyond()
    if user_id is not None:
        gone.entries += store.invalidate(handle, Selector(user=user_id))
        gone.keys = control.tenants.deletion.forget_user(principal.tenant_id, user_id)
    handle.erase_traces()
    return gone


def _entries(handle: TenantHandle, store: CacheStore, user_id: str) -> list[str]:
    """The ids of the remembered answers to the person's questions."""
    found: list[str] = []
    while page := store.inspect(handle, limit=_PAGE, offset=len(found), selector=Selector(user=user_id)):
        found += [entry.id for entry in page]
    return found


def _destroyed(gone: _Gone, log: AuditLog, store: CacheStore) -> dict[str, Any]:
    texts = gone.texts or ErasedTexts(0, 0, None, None)
    data = "the tenant's database"
    return {
        "audit_texts": {
            "count": texts.records,
            "first": texts.first,
            "last": texts.last,
            "keys": texts.keys,
            "where": f"audit log {log.log_id}",
            "note": "questions, filters, answers and the name in these records; the keys that opened them are gone",
        },
        "cache_entries": {"count": gone.entries, "where": f"cache ({store.health().kind})"},
        "directory": {"count": gone.directory, "where": data, "note": "the name, and memberships of groups"},
        "api_keys": {"count": gone.keys, "where": "control plane"},
        "feedback": {"count": gone.traces.feedback, "where": data, "note": "stays counted, tells of nobody"},
        "evidence_hashes": {"count": gone.traces.labels, "where": data, "note": "stays counted, tells of nobody"},
        "judgements": {
            "count": gone.traces.judgements,
            "where": data,
            "note": "of the judge and the verifier, likewise",
        },
        "evaluation_sets": {"count": 0, "note": "none is made of what people ask"},
    }


def _summary(person: _Person, receipt: Mapping[str, Any], gone: _Gone | None) -> dict[str, str | int | bool | None]:
    found: dict[str, str | int | bool | None] = {"user": person.subject, "receipt": receipt["id"]}
    if gone is None:
        return found | {"holds": " ".join(hold["id"] for hold in receipt["holds"])}
    texts = gone.texts or ErasedTexts(0, 0, None, None)
    return found | {"text_keys": texts.keys, "records": texts.records, "entries": gone.entries, "keys": gone.keys}


def _iso(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
