"""What a principal's scope comes to, and why it is empty: for operators, in counts and names of groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sqlalchemy import func, select

from tenancy import directory
from tenancy.domain import PermissionDomain, readable_documents
from tenancy.identity import Principal
from tenancy.schema import acl, documents, users
from tenancy.tenant import ReadView
from tenancy.types import among


@dataclass(frozen=True, slots=True)
class Scope:
    """`groups` are held directly or by nesting; `labels` counts those held that access lists use. `allowed` documents
    name one of them under allow, of which `readable` name none under deny. `empty` says why nothing is readable.
    """

    user: Literal["known", "unknown", "disabled"]
    groups: tuple[str, ...]
    labels: int
    documents: int
    allowed: int
    readable: int
    empty: str | None


def scope_of(principal: Principal, domain: PermissionDomain, view: ReadView) -> Scope:
    """The scope behind `domain`, which must be the principal's own in this view. Raises `StaleDomain`."""
    disabled = view.execute(select(users.c.disabled).where(users.c.id == principal.user_id)).scalar_one_or_none()
    user: Literal["known", "unknown", "disabled"] = "unknown"
    if disabled is not None:
        user = "disabled" if disabled else "known"
    allowed = set()
    if domain.labels:
        listed = select(acl.c.document_id).where(acl.c.effect == "allow", among(acl.c.label_id, "labels"))
        allowed = set(view.execute(listed, {"labels": domain.labels}).scalars())
    found = Scope(
        user=user,
        groups=_groups(principal, view) if user == "known" else (),
        labels=len(domain.labels),
        documents=view.execute(select(func.count()).select_from(documents)).scalar_one(),
        allowed=len(allowed),
        readable=len(readable_documents(domain, view, allowed)),
        empty=None,
    )
    return found if found.readable else _with_reason(found)


def _with_reason(scope: Scope) -> Scope:
    if scope.user != "known":
        reason = f"the user is {scope.user} in the tenant's directory"
    elif not scope.documents:
        reason = "the tenant has no documents"
    elif not scope.labels:
        reason = "no access list names the user, a group of the user's or the whole tenant"
    elif not scope.allowed:
        reason = "access lists name the user or the user's groups under deny alone"
    else:
        reason = "every document that allows the user or the user's groups denies one of them, too"
    return Scope(scope.user, scope.groups, scope.labels, scope.documents, scope.allowed, 0, reason)


def _groups(principal: Principal, view: ReadView) -> tuple[str, ...]:
    """By name, nested ones included."""
    around: dict[str, set[str]] = {}
    for group, members in directory.list_groups(view).items():
        for member in members:
            around.setdefault(member, set()).add(group)
    waiting = set(around.get(f"user:{principal.user}", ())) if principal.groups is None else set(principal.groups)
    held: set[str] = set()
    while waiting:
        group = waiting.pop()
        held.add(group)
        waiting |= around.get(f"group:{group}", set()) - held
    return tuple(sorted(held))
