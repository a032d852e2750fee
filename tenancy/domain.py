"""Principal to permission domain: what somebody holds, cut down to what this tenant's documents use.

`PermissionDomain` is sealed: only `permission_domain` makes one, from one read transaction, and it carries the
epochs of that transaction.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy import text

from tenancy.errors import Forbidden, StaleDomain
from tenancy.identity import Principal
from tenancy.keys import keyed_hash
from tenancy.tenant import Epochs, ReadView

_SEAL: Final = object()

# `UNION`, not `UNION ALL`: a member is visited once, so cycles of groups end.
_CLOSURE = """
WITH RECURSIVE held(kind, id) AS (
    {start}
    UNION
    SELECT 'group', members.group_id
    FROM held JOIN members ON members.member_kind = held.kind AND members.member_id = held.id
)
SELECT labels.id FROM labels
WHERE ((labels.kind = 'tenant' AND labels.ref = '') OR (labels.kind, labels.ref) IN (SELECT kind, id FROM held))
  AND EXISTS (SELECT 1 FROM acl WHERE acl.label_id = labels.id)
"""
_BY_DIRECTORY = text(_CLOSURE.format(start="SELECT 'user', :user"))
# A token's groups replace the directory's direct memberships of the user; nesting stays the directory's.
_BY_TOKEN = text(
    _CLOSURE.format(start="SELECT 'group', groups.id FROM groups WHERE name IN (SELECT value FROM json_each(:groups))")
)
_OWN_LABEL = text(
    "SELECT labels.id FROM labels WHERE labels.kind = 'user' AND labels.ref = :user "
    "AND EXISTS (SELECT 1 FROM acl WHERE acl.label_id = labels.id)"
)
_KNOWN_USER = text("SELECT 1 FROM users WHERE id = :user AND NOT disabled")
_READABLE = text("""
SELECT documents.id, documents.version FROM documents
WHERE documents.id IN (SELECT value FROM json_each(:documents))
  AND EXISTS (SELECT 1 FROM acl WHERE acl.document_id = documents.id AND acl.effect = 'allow'
              AND acl.label_id IN (SELECT value FROM json_each(:labels)))
  AND NOT EXISTS (SELECT 1 FROM acl WHERE acl.document_id = documents.id AND acl.effect = 'deny'
                  AND acl.label_id IN (SELECT value FROM json_each(:labels)))
""")


@dataclass(frozen=True, slots=True)
class PermissionDomain:
    """The labels that a principal holds among those that this tenant's documents use, as of `epochs`.

    `fingerprint` is "pd_" and 32 hex digits of a keyed hash of the sorted label ids: equal sets, equal domain.
    """

    tenant_id: str
    user_id: str
    labels: frozenset[int]
    fingerprint: str
    epochs: Epochs
    seal: object = field(repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.seal is not _SEAL:
            raise TypeError("a PermissionDomain comes from tenancy.domain.permission_domain alone")

    @property
    def is_empty(self) -> bool:
        """True where nothing can be readable; decided before any back end is called."""
        return not self.labels


def permission_domain(principal: Principal, view: ReadView) -> PermissionDomain:
    """The domain of `principal` in the state that `view` sees.

    A user whom the tenant's directory does not know, or has disabled, holds nothing, not even `tenant`.
    Raises `Forbidden` where the view belongs to another tenant.
    """
    if principal.tenant_id != view.tenant.tenant_id:
        raise Forbidden("the principal belongs to another tenant", item=principal.tenant)
    held: set[int] = set()
    user = {"user": principal.user_id}
    if view.execute(_KNOWN_USER, user).first() is not None:
        if principal.groups is None:
            held.update(view.execute(_BY_DIRECTORY, user).scalars())
        else:
            held.update(view.execute(_BY_TOKEN, {"groups": json.dumps(sorted(principal.groups))}).scalars())
            held.update(view.execute(_OWN_LABEL, user).scalars())
    digest = keyed_hash(view.tenant.keys.purpose("permission-domain"), *(str(label) for label in sorted(held)))
    return PermissionDomain(
        tenant_id=principal.tenant_id,
        user_id=principal.user_id,
        labels=frozenset(held),
        fingerprint=f"pd_{digest[:16].hex()}",
        epochs=view.epochs,
        seal=_SEAL,
    )


def readable_documents(domain: PermissionDomain, view: ReadView, document_ids: Collection[int]) -> dict[int, str]:
    """Of `document_ids`, those that `domain` may read now, each with its current version.

    The domain must come from this same view. Raises `StaleDomain`.
    """
    if domain.tenant_id != view.tenant.tenant_id or domain.epochs != view.epochs:
        raise StaleDomain("the permission domain belongs to another state than the view", item=domain.fingerprint)
    if domain.is_empty or not document_ids:
        return {}
    rows = view.execute(
        _READABLE,
        {"documents": json.dumps(sorted(document_ids)), "labels": json.dumps(sorted(domain.labels))},
    )
    return {int(document_id): str(version) for document_id, version in rows}
