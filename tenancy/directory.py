"""Users and nested groups of one tenant, in its own database.

Names are for people; everything else refers to random immutable ids, so that a name used again is another user.
Every change of membership moves the ACL epoch in the same transaction.
"""

from __future__ import annotations

import secrets
import unicodedata
from collections.abc import Sequence
from typing import Final

from sqlalchemy import bindparam, delete, insert, select

from tenancy.errors import InvalidInput, NotFound
from tenancy.names import nfc_name
from tenancy.prepared import Prepared
from tenancy.schema import groups, members, users
from tenancy.tenant import ReadView, WriteView
from tenancy.types import Text

_EXISTS: Final = Prepared(select(users.c.id).where(users.c.id == bindparam("user", type_=Text)))


def exists(view: ReadView, user_id: str) -> bool:
    """Whether the user of this id is in the directory, disabled or not."""
    return bool(view.rows(_EXISTS, {"user": user_id}))


def find_user(view: ReadView, name: str) -> str | None:
    return view.execute(select(users.c.id).where(users.c.name == _nfc(name))).scalar_one_or_none()


def find_group(view: ReadView, name: str) -> str | None:
    return view.execute(select(groups.c.id).where(groups.c.name == _nfc(name))).scalar_one_or_none()


def ensure_user(view: WriteView, name: str, now: float) -> str:
    """The id of the user `name`, created where there is none."""
    found = find_user(view, name)
    if found is None:
        found = f"u_{secrets.token_hex(12)}"
        view.execute(users.insert().values(id=found, name=nfc_name(name, "user"), created=now, disabled=False))
    return found


def ensure_group(view: WriteView, name: str, now: float) -> str:
    """The id of the group `name`, created where there is none."""
    found = find_group(view, name)
    if found is None:
        found = f"g_{secrets.token_hex(12)}"
        view.execute(groups.insert().values(id=found, name=nfc_name(name, "group"), created=now))
    return found


def delete_user(view: WriteView, name: str) -> None:
    """Remove a user; a later user of the same name inherits nothing. Raises `NotFound`."""
    found = find_user(view, name)
    if found is None:
        raise NotFound("no such user", item=name)
    view.execute(delete(members).where(members.c.member_kind == "user", members.c.member_id == found))
    view.execute(delete(users).where(users.c.id == found))
    view.withdraw("user", found)
    view.bump_acl()


def delete_group(view: WriteView, name: str) -> None:
    """Remove a group; a later group of the same name inherits nothing. Raises `NotFound`."""
    found = find_group(view, name)
    if found is None:
        raise NotFound("no such group", item=name)
    view.execute(delete(members).where(members.c.member_kind == "group", members.c.member_id == found))
    view.execute(delete(groups).where(groups.c.id == found))
    view.withdraw("group", found)
    view.bump_acl()


def add_members(view: WriteView, group: str, names: Sequence[str], now: float) -> int:
    """Put members ("user:ana", "group:legal"; a bare name is a user) into `group`; returns how many were new."""
    group_id = ensure_group(view, group, now)
    added = 0
    for name in names:
        kind, bare = _member(name)
        member_id = ensure_user(view, bare, now) if kind == "user" else ensure_group(view, bare, now)
        row = {"group_id": group_id, "member_kind": kind, "member_id": member_id}
        if view.execute(select(members).filter_by(**row)).first() is None:
            view.execute(insert(members).values(**row))
            added += 1
    if added:
        view.bump_acl()
    return added


def remove_members(view: WriteView, group: str, names: Sequence[str]) -> int:
    """Take members out of `group`; returns how many were in it. Raises `NotFound` for an unknown group."""
    group_id = find_group(view, group)
    if group_id is None:
        raise NotFound("no such group", item=group)
    removed = 0
    for name in names:
        kind, bare = _member(name)
        member_id = find_user(view, bare) if kind == "user" else find_group(view, bare)
        if member_id is None:
            continue
        own = (members.c.group_id == group_id) & (members.c.member_kind == kind) & (members.c.member_id == member_id)
        if view.execute(delete(members).where(own)).rowcount:
            view.withdraw("member", group_id, kind, member_id)
            removed += 1
    if removed:
        view.bump_acl()
    return removed


def list_groups(view: ReadView) -> dict[str, list[str]]:
    """Every group with its direct members, as "user:NAME" and "group:NAME", sorted."""
    found: dict[str, list[str]] = {name: [] for name in view.execute(select(groups.c.name)).scalars()}
    for kind, table in (("user", users), ("group", groups.alias("member_groups"))):
        query = (
            select(groups.c.name, table.c.name)
            .join(members, members.c.group_id == groups.c.id)
            .join(table, table.c.id == members.c.member_id)
            .where(members.c.member_kind == kind)
        )
        for group, member in view.execute(query):
            found[group].append(f"{kind}:{member}")
    return {name: sorted(found[name]) for name in sorted(found)}


def _nfc(name: str) -> str:
    return unicodedata.normalize("NFC", name)


def _member(name: str) -> tuple[str, str]:
    kind, colon, bare = name.partition(":")
    if not colon:
        return "user", nfc_name(name, "user")
    if kind not in {"user", "group"}:
        raise InvalidInput("a member is user:NAME, group:NAME or a bare user name", item=name)
    return kind, nfc_name(bare, kind)
