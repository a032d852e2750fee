"""Erasing a user: everything that tells what this person was shown and asked, and a signed receipt of what went where.

The user is deleted like by `service.users`, and beyond that nobody reads the person's texts in the audit again, also
what is recorded of requests that are still on their way. A legal hold keeps all of it, and the receipt says so. What a
crash interrupts is taken up when the same name is erased again.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import select

from audit.erasure import ErasedTexts, erase_texts, holds_on
from audit.holds import Hold
from audit.log import AuditLog
from audit.trail import Trail
from cache.certificate.reports import Unlinked, unlink
from cache.stores.port import CacheStore
from cache.stores.selector import Selector
from service.control import Control
from service.retention import retained
from service.users import delete_user
from tenancy import directory, schema
from tenancy.errors import NotFound, Unavailable
from tenancy.identity import Principal
from tenancy.storage import DATA_FILE
from tenancy.tenant import TenantHandle

VERSION: Final = 1
_PAGE: Final = 1_000
_REFERENCE: Final = re.compile(r"u_[0-9a-f]{32}")

_RETAINED: Final[Mapping[str, str]] = {
    "audit_records": "when and under which reference documents were reached, and ids that the caller chose; the texts "
    "in them are ciphertext without a key",
    "documents": "they are the tenant's; what others asked and were shown is theirs",
    "pairs_kept_apart": "keyed hashes of two questions that must not share an answer; they name no person",
    "memory_of_engines": "prompts under a salt that is not used any more, until they are evicted",
    "older_backups": "made by this program they hold no text and no key of one; the name in the directory is withdrawn "
    "when one is restored",
    "other_copies": "not reached: copies of the data directory made by other means, a database server's own logs and "
    "backups, and exports of readable texts that somebody made before",
}
_ELSEWHERE: Final[Mapping[str, str]] = {
    "caches_of_other_servers": "with caches in files each server removes the answers from its own within minutes, and "
    "one that is not running when it starts; nobody is served them",
}
_CUT_SHORT: Final = "an earlier run was cut short; what it destroyed is not counted here"


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
    cases: int = 0


def erase_user(control: Control, store: CacheStore, principal: Principal, named: str, trail: Trail) -> dict[str, Any]:
    """Erase a user of the principal's tenant by name or id, or anybody by the `actor.ref` of an event. Returns the
    signed receipt, whose `outcome` is `erased`, or `held` where a legal hold kept everything.

    Raises `NotFound`; `Unavailable` where the cache is out of reach, and then nothing has changed.
    """
    log = trail.log
    person, begun = _find(control, control.tenants.open(principal), log, named), log.subjects.unfinished(named)
    if begun is not None and begun[0] != person.subject:
        # Somebody came after a person of the same name whose erasure was cut short: that one first.
        earlier = _erased(control, store, principal, _Person(*begun), trail)
        trail.note(detail={"finished": earlier["id"]})
    return _erased(control, store, principal, person, trail)


def _erased(control: Control, store: CacheStore, principal: Principal, person: _Person, trail: Trail) -> dict[str, Any]:
    log = trail.log
    trail.note(detail={"user": person.subject})
    requested, held, begun = time.time(), holds_on(log, person.subject), log.subjects.begun(person.subject)
    destroyed = {} if held else _destroyed(_erase(control, store, principal, person, trail), log, store)
    owner = {"tenant": principal.tenant, "tenant_id": principal.tenant_id}
    return _receipt(control, log, trail, owner | {"subject": person.subject}, (requested, begun), held, destroyed)


def erase_retained(control: Control, deleted: str, subject: str, trail: Trail) -> dict[str, Any]:
    """Erase a person's texts from the log of a deleted tenant, which is all that is left there; returns the receipt.

    `deleted` is the tenant's id, `subject` the `actor.ref` of an event. Raises `NotFound`, and `Conflict` for a tenant
    that is still there.
    """
    tenant_id, name = retained(control, deleted)
    log = control.logs.of_id(tenant_id)
    if not log.subjects.known(subject):
        raise NotFound("nobody in this log has this reference", item=subject[:64], remedy="give an event's actor.ref")
    trail.note(detail={"user": subject, "log": log.log_id})
    requested, held, begun = time.time(), holds_on(log, subject), log.subjects.begun(subject)
    destroyed = {} if held else {"audit_texts": _texts(erase_texts(log, subject), log)}
    owner = {"tenant": name, "tenant_id": tenant_id}
    return _receipt(control, log, trail, owner | {"subject": subject}, (requested, begun), held, destroyed)


def _receipt(
    control: Control,
    log: AuditLog,
    trail: Trail,
    about: Mapping[str, str],
    times: tuple[float, float | None],
    held: Sequence[Hold],
    destroyed: Mapping[str, Any],
) -> dict[str, Any]:
    """Sign what happened, keep it beside the log, and put it on record. `times`: of the request, and of the first run
    of it that was cut short.
    """
    log.flush()
    head = log.head()
    requested, begun = times
    kept = {"everything": "a legal hold keeps it until it is released"}
    if begun is not None:
        kept = {"what_was_left": "a legal hold keeps it until it is released; the texts in the audit were gone before"}
    receipt = control.tenants.deletion.signed(
        {
            "version": VERSION,
            "kind": "erasure receipt",
            "id": f"er_{secrets.token_hex(12)}",
            **about,
            "requested": _iso(requested),
            **({} if begun is None else {"begun": _iso(begun), "note": _CUT_SHORT}),
            "outcome": "held" if held else "erased",
            "finished": _iso(time.time()),
            "destroyed": destroyed,
            "holds": [{"id": hold.id, "placed": _iso(hold.placed)} for hold in held],
            "audit_log": {"size": head.size, "root": head.root.hex()},
            "retained": kept if held else {**_RETAINED, **(_ELSEWHERE if control.tenants.storage.shared else {})},
        }
    )
    log.subjects.finish(about["subject"], receipt)
    trail.note(detail={"receipt": receipt["id"]} | {name: one["count"] for name, one in destroyed.items()})
    if held:
        trail.note(detail={"holds": " ".join(hold.id for hold in held)})
        trail.conclude("refused", "legal-hold")
    return receipt


def subject_of(control: Control, principal: Principal, log: AuditLog, named: str) -> str:
    """The reference by which `log` knows a user, named by name, id or that reference. Raises `NotFound`."""
    return _find(control, control.tenants.open(principal), log, named).subject


def _find(control: Control, handle: TenantHandle, log: AuditLog, named: str) -> _Person:
    subjects = log.subjects
    with handle.reading() as view:
        users = schema.users.c
        # A reference is whose it is, also where somebody was given it for a name.
        referred = bool(_REFERENCE.fullmatch(named)) and subjects.known(named)
        by_name = None if referred else directory.find_user(view, named)
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
        remedy="of one who was deleted, give the `actor.ref` of an event (`strongroom audit query`); of one who was "
        "erased, `strongroom user receipts` has the receipt",
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
        gone.entries, gone.directory, gone.cases = deleted.entries, 1, deleted.cases
    else:
        beyond()
    if user_id is not None:
        gone.entries += store.invalidate(handle, Selector(user=user_id))
        gone.keys = control.tenants.deletion.forget_user(principal.tenant_id, user_id)
    if not handle.erase_traces():
        raise Unavailable(
            "somebody reads a state of before, which keeps what was erased in the write-ahead log",
            item=DATA_FILE,
            remedy="erase the same name again when the export or backup under way has ended: there is no receipt yet",
        )
    return gone


def _entries(handle: TenantHandle, store: CacheStore, user_id: str) -> list[str]:
    """The ids of the remembered answers to the person's questions."""
    found: list[str] = []
    while page := store.inspect(handle, limit=_PAGE, offset=len(found), selector=Selector(user=user_id)):
        found += [entry.id for entry in page]
    return found


def _texts(texts: ErasedTexts, log: AuditLog) -> dict[str, Any]:
    return {
        "count": texts.records,
        "first": texts.first,
        "last": texts.last,
        "keys": texts.keys,
        "where": f"audit log {log.log_id}",
        "note": "questions, filters, answers and the name in these records; the keys that opened them are gone",
    }


def _destroyed(gone: _Gone, log: AuditLog, store: CacheStore) -> dict[str, Any]:
    data, traces = "the tenant's database", gone.traces
    return {
        "audit_texts": _texts(gone.texts or ErasedTexts(0, 0, None, None), log),
        "cache_entries": {"count": gone.entries, "where": f"cache ({store.health().kind})"},
        "directory": {"count": gone.directory, "where": data, "note": "the name, and memberships of groups"},
        "api_keys": {"count": gone.keys, "where": "control plane"},
        "feedback": {"count": traces.feedback, "where": data, "note": "stays counted, tells of nobody"},
        "evidence_hashes": {"count": traces.labels, "where": data, "note": "stays counted, tells of nobody"},
        "judgements": {"count": traces.judgements, "where": data, "note": "of the judge and the verifier, likewise"},
        "evaluation_sets": {"count": gone.cases, "where": data, "note": "questions of saved sets that the person asks"},
    }


def _iso(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
