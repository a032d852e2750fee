"""Principal to permission domain: what somebody holds, cut down to what this tenant's documents use.

`PermissionDomain` is sealed: only `permission_domain` makes one, from one read transaction, and it carries the
epochs of that transaction.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import CTE, ColumnElement, Label, Select, bindparam, literal_column, select, tuple_

from tenancy.errors import Forbidden, StaleDomain
from tenancy.identity import Principal
from tenancy.keys import keyed_hash
from tenancy.prepared import Prepared
from tenancy.schema import acl, documents, groups, labels, members, users
from tenancy.tenant import Epochs, ReadView, TenantHandle
from tenancy.types import Text, among

_SEAL: Final = object()


def _held(start: Select[Any]) -> CTE:
    """`start` (kind, id) and every group around it."""
    held = start.cte("held", recursive=True)
    around = select(_GROUP, members.c.group_id).join(
        held, (members.c.member_kind == held.c.kind) & (members.c.member_id == held.c.id)
    )
    # `UNION`, not `UNION ALL`: a member is visited once, so cycles of groups end.
    return held.union(around)


def _closure(start: Select[Any]) -> Select[Any]:
    """The labels in use that are held by `start` (kind, id) and every group around it, and `tenant`."""
    held = _held(start)
    mine = tuple_(labels.c.kind, labels.c.ref).in_(select(held.c.kind, held.c.id))
    everybody = (labels.c.kind == "tenant") & (labels.c.ref == "")
    return select(labels.c.id).where(everybody | mine, _IN_USE)


def _listed(effect: str) -> ColumnElement[bool]:
    """Whether a document's access list has a label of the domain under `effect`."""
    own = (acl.c.document_id == documents.c.id) & (acl.c.effect == effect)
    return select(1).where(own, among(acl.c.label_id, "labels")).correlate(documents).exists()


# Made once: making a statement takes longer than running it.
_USER: Final = bindparam("user", type_=Text)
_GROUP: Final[Label[str]] = literal_column("'group'").label("kind")
_IN_USE: Final = select(1).where(acl.c.label_id == labels.c.id).correlate(labels).exists()
_MYSELF: Final = select(literal_column("'user'").label("kind"), users.c.id).where(users.c.id == _USER)
_TOKENS: Final = select(_GROUP, groups.c.id).where(among(groups.c.name, "groups"))
_BY_DIRECTORY: Final = Prepared(_closure(_MYSELF))
# A token's groups replace the directory's direct memberships of the user; nesting stays the directory's.
_BY_TOKEN: Final = Prepared(_closure(_TOKENS))
_HELD_BY_DIRECTORY: Final = Prepared(select(_held(_MYSELF)))
_HELD_BY_TOKEN: Final = Prepared(select(_held(_TOKENS)))
_OWN_LABEL: Final = Prepared(select(labels.c.id).where(labels.c.kind == "user", labels.c.ref == _USER, _IN_USE))
_KNOWN_USER: Final = Prepared(select(1).where(users.c.id == _USER, ~users.c.disabled).select_from(users))
_READABLE: Final = Prepared(
    select(documents.c.id, documents.c.version).where(
        among(documents.c.id, "documents"), _listed("allow"), ~_listed("deny")
    )
)


@dataclass(frozen=True, slots=True)
class PermissionDomain:
    """The labels that a principal holds among those that this tenant's documents use, as of `epochs`.

    `fingerprint` is "pd_" and 32 hex digits of a keyed hash of the sorted label ids: equal sets, equal domain.
    `groups` are those of the principal's token, None where the directory decides.
    """

    tenant_id: str
    user_id: str
    labels: frozenset[int]
    fingerprint: str
    epochs: Epochs
    seal: object = field(repr=False, compare=False)
    groups: tuple[str, ...] | None = field(default=None, repr=False, compare=False)

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
    if view.rows(_KNOWN_USER, user):
        if principal.groups is None:
            held.update(label for (label,) in view.rows(_BY_DIRECTORY, user))
        else:
            held.update(label for (label,) in view.rows(_BY_TOKEN, {"groups": principal.groups}))
            held.update(label for (label,) in view.rows(_OWN_LABEL, user))
    return PermissionDomain(
        tenant_id=principal.tenant_id,
        user_id=principal.user_id,
        labels=frozenset(held),
        fingerprint=domain_fingerprint(view.tenant, held),
        epochs=view.epochs,
        seal=_SEAL,
        groups=None if principal.groups is None else tuple(principal.groups),
    )


def holds_any(domain: PermissionDomain, view: ReadView, wanted: Collection[tuple[str, str]]) -> bool:
    """Whether the domain's user holds one of the labels `wanted` (kind, id of a user or group, empty for `tenant`),
    in the state that `view` sees, and whether or not a document uses them.
    """
    if domain.tenant_id != view.tenant.tenant_id:
        raise Forbidden("the permission domain belongs to another tenant", item=domain.fingerprint)
    user = {"user": domain.user_id}
    known = bool(view.rows(_KNOWN_USER, user))
    held = {("tenant", ""), ("user", domain.user_id)}
    if domain.groups is None:
        held.update((str(kind), str(ref)) for kind, ref in view.rows(_HELD_BY_DIRECTORY, user))
    else:
        held.update((str(kind), str(ref)) for kind, ref in view.rows(_HELD_BY_TOKEN, {"groups": domain.groups}))
    return known and not held.isdisjoint(wanted)


def domain_fingerprint(tenant: TenantHandle, labels: Collection[int]) -> str:
    """The fingerprint of a domain of `labels`; knowing one opens nothing."""
    digest = keyed_hash(tenant.keys.purpose("permission-domain"), *(str(label) for label in sorted(labels)))
    return f"pd_{digest[:16].hex()}"


def readable_documents(domain: PermissionDomain, view: ReadView, document_ids: Collection[int]) -> dict[int, str]:
    """Of `document_ids`, those that `domain` may read now, each with its current version.

    The domain must come from this same view. Raises `StaleDomain`.
    """
    if domain.tenant_id != view.tenant.tenant_id or domain.epochs != view.epochs:
        raise StaleDomain("the permission domain belongs to another state than the view", item=domain.fingerprint)
    if domain.is_empty or not document_ids:
        return {}
    rows = view.rows(_READABLE, {"documents": document_ids, "labels": domain.labels})
    return {int(document_id): str(version) for document_id, version in rows}
