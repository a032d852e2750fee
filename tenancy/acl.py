"""Access lists of documents as rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import bindparam, delete, insert, select

from tenancy import directory
from tenancy.access_list import AccessList, parse_label
from tenancy.schema import acl, groups, labels, users
from tenancy.tenant import ReadView, WriteView

__all__ = [
    "AccessList",
    "add_access_lists",
    "get_access_list",
    "get_access_lists",
    "parse_label",
    "set_access_list",
    "write_access_list",
]

_TOGETHER: Final = 500
"""Documents in one statement."""

# Made once: for one document, making them takes longer than running them.
_OWN: Final = acl.c.document_id == bindparam("document")
_ROWS: Final = select(acl).where(_OWN)
_ADD: Final = insert(acl)
_CLEAR: Final = delete(acl).where(_OWN)
_LABEL: Final = select(labels.c.id).where((labels.c.kind == bindparam("kind")) & (labels.c.ref == bindparam("ref")))
_LISTS: Final = (
    select(acl.c.document_id, acl.c.effect, labels.c.kind, users.c.name, groups.c.name)
    .join(labels, labels.c.id == acl.c.label_id)
    .outerjoin(users, (labels.c.kind == "user") & (users.c.id == labels.c.ref))
    .outerjoin(groups, (labels.c.kind == "group") & (groups.c.id == labels.c.ref))
    .where(acl.c.document_id.in_(bindparam("documents", expanding=True)))
)


def set_access_list(view: WriteView, document_id: int, access: AccessList, now: float) -> bool:
    """Replace a document's access list and move the ACL epoch; False where it was the same already."""
    if access == get_access_list(view, document_id):
        return False
    write_access_list(view, document_id, access, now)
    view.bump_acl(document_id)
    return True


def write_access_list(view: WriteView, document_id: int, access: AccessList, now: float) -> None:
    """Replace the rows of a document's access list; the caller moves the epochs in the same transaction."""
    before = {(row.label_id, row.effect) for row in view.execute(_ROWS, {"document": document_id})}
    if before:
        view.execute(_CLEAR, {"document": document_id})
    rows = _add(view, {document_id: access}, now)
    if before:
        _withdraw(view, document_id, before, {(row["label_id"], row["effect"]) for row in rows})


def add_access_lists(view: WriteView, lists: Mapping[int, AccessList], now: float) -> None:
    """Give documents that have none their access lists, by id; the caller moves the epochs in the same transaction."""
    _add(view, lists, now)


def _add(view: WriteView, lists: Mapping[int, AccessList], now: float) -> list[dict[str, Any]]:
    """The rows that were added."""
    known: dict[str, int] = {}
    rows: list[dict[str, Any]] = []
    for document_id, access in lists.items():
        for effect, side in (("allow", access.allow), ("deny", access.deny)):
            for label in sorted(side):
                if label not in known:
                    known[label] = _ensure_label(view, label, now)
                rows.append({"document_id": document_id, "label_id": known[label], "effect": effect})
    if rows:
        view.execute(_ADD, rows)
    return rows


def _withdraw(view: WriteView, document_id: int, before: set[tuple[int, str]], after: set[tuple[int, str]]) -> None:
    """Note each right that is gone and each denial that is new."""
    changed = {(label, "allow") for label, effect in before - after if effect == "allow"}
    changed |= {(label, "deny") for label, effect in after - before if effect == "deny"}
    if changed:
        named = select(labels).where(labels.c.id.in_({label for label, _ in changed}))
        known = {row.id: (row.kind, row.ref) for row in view.execute(named)}
        for label, effect in sorted(changed):
            view.withdraw("allow" if effect == "allow" else "deny", document_id, *known[label])


def get_access_list(view: ReadView, document_id: int) -> AccessList:
    """A document's access list; the label of a deleted user or group shows as "user:?" or "group:?"."""
    return get_access_lists(view, [document_id])[document_id]


def get_access_lists(view: ReadView, document_ids: Sequence[int]) -> dict[int, AccessList]:
    """The access lists of many documents, as `get_access_list` has them."""
    sides: defaultdict[tuple[int, str], set[str]] = defaultdict(set)
    for start in range(0, len(document_ids), _TOGETHER):
        rows = view.execute(_LISTS, {"documents": document_ids[start : start + _TOGETHER]})
        for document_id, effect, kind, user, group in rows:
            sides[document_id, effect].add("tenant" if kind == "tenant" else f"{kind}:{user or group or '?'}")
    return {
        document_id: AccessList(frozenset(sides[document_id, "allow"]), frozenset(sides[document_id, "deny"]))
        for document_id in document_ids
    }


def _ensure_label(view: WriteView, label: str, now: float) -> int:
    kind, name = parse_label(label)
    ref = ""
    if kind == "user":
        ref = directory.ensure_user(view, name, now)
    elif kind == "group":
        ref = directory.ensure_group(view, name, now)
    found = view.execute(_LABEL, {"kind": kind, "ref": ref}).scalar_one_or_none()
    if found is not None:
        return int(found)
    return int(view.execute(insert(labels).values(kind=kind, ref=ref).returning(labels.c.id)).scalar_one())
