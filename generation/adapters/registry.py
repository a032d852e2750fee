"""A tenant's adapters on record, and who of its users may use which.

An engine that has loaded an adapter keeps it, whatever is decided here. So every question is checked against these
rows in its own transaction, and again while it is answered; a changed adapter is a new row with a new random id, which
an engine, the cache and KV memory take for another model. Absent, foreign, revoked and not allowed come out alike, of
the same queries.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import bindparam, insert, select, update

from generation.adapters.manifest import Description
from tenancy import directory
from tenancy.acl import parse_label
from tenancy.domain import PermissionDomain, holds_any
from tenancy.errors import InvalidInput, NotFound
from tenancy.names import enc
from tenancy.schema import adapters, groups, users
from tenancy.tenant import ReadView, WriteView
from tenancy.types import Text

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_REMEDY: Final = "`strongroom adapter list`"
# Made once: making a statement takes longer than running it.
_BY_NAME: Final = select(adapters).where(
    adapters.c.name == bindparam("adapter", type_=Text), adapters.c.revoked.is_(None)
)
_BY_ID: Final = select(adapters).where(adapters.c.id == bindparam("adapter", type_=Text), adapters.c.revoked.is_(None))


@dataclass(frozen=True, slots=True)
class Registered:
    """One adapter. `base` is the model of the pools that take it, `revision` a digest of its files' digests.

    `allow` are labels (kind, id of a user or group) of which one is needed, None for every user of the tenant. Times
    are UTC epoch seconds.
    """

    id: str
    name: str
    base: str
    revision: str
    rank: int
    modules: tuple[str, ...]
    manifest: Mapping[str, str]
    allow: tuple[tuple[str, str], ...] | None
    created: float
    revoked: float | None


def _new_id() -> str:
    """The name by which engines know an adapter: random, of nothing that could be guessed or derived."""
    return f"ad_{secrets.token_hex(16)}"


def _revision_of(manifest: Mapping[str, str]) -> str:
    """A digest of files' names and digests."""
    parts = [part for name in sorted(manifest) for part in (name, manifest[name])]
    return f"sha256:{hashlib.sha256(enc(*parts)).hexdigest()}"


def usable(domain: PermissionDomain, view: ReadView, name: str) -> Registered | None:
    """The adapter that `domain` may use under this name, in the state that `view` sees."""
    known = name if _NAME.fullmatch(name) else ""  # no database is asked for what it could not take
    return _permitted(domain, view, view.execute(_BY_NAME, {"adapter": known}).all())


def still_usable(domain: PermissionDomain, view: ReadView, adapter_id: str) -> bool:
    """Whether `domain` may go on using the adapter of this id."""
    return _permitted(domain, view, view.execute(_BY_ID, {"adapter": adapter_id}).all()) is not None


def all_usable(domain: PermissionDomain, view: ReadView) -> tuple[Registered, ...]:
    """The adapters that `domain` may use, by name."""
    current = [one for one in registered(view) if one.revoked is None]
    return tuple(one for one in current if one.allow is None or holds_any(domain, view, one.allow))


def registered(view: ReadView, name: str | None = None) -> tuple[Registered, ...]:
    """Every row of the tenant, or of one name, also the revoked ones: by name, the newest of a name last."""
    query = select(adapters).order_by(adapters.c.name, adapters.c.created, adapters.c.id)
    if name is not None:
        query = query.where(adapters.c.name == name)
    return tuple(_row(row) for row in view.execute(query).all())


def present(view: ReadView) -> set[str]:
    """Ids of the adapters that are not revoked: those whose files are kept."""
    return set(view.execute(select(adapters.c.id).where(adapters.c.revoked.is_(None))).scalars())


def register(
    view: WriteView,
    name: str,
    base: str,
    description: Description,
    manifest: Mapping[str, str],
    allow: Iterable[str] | None,
    now: float,
) -> Registered:
    """Put an adapter on record; it takes the place of one of the same name, which is revoked. The present one where
    nothing is different. Raises `InvalidInput`.
    """
    labels = None if allow is None else tuple(sorted({_label(view, label, now) for label in allow}))
    made = Registered(
        id=_new_id(),
        name=checked_name(name),
        base=base,
        revision=_revision_of(manifest),
        rank=description.rank,
        modules=description.modules,
        manifest=dict(manifest),
        allow=labels,
        created=now,
        revoked=None,
    )
    for one in registered(view, name):
        if one.revoked is None and (one.base, one.revision, one.allow) == (made.base, made.revision, made.allow):
            return one
    _revoke(view, name, now)
    view.execute(
        insert(adapters).values(
            id=made.id, name=name, base=base, revision=made.revision, rank=made.rank, modules=list(made.modules),
            manifest=dict(manifest), allow=None if labels is None else [list(label) for label in labels], created=now,
        )
    )  # fmt: skip
    return made


def revoke(view: WriteView, name: str, now: float) -> tuple[str, ...]:
    """Take the adapter of this name away, for every user and from the next piece of text on; returns its ids.

    Raises `NotFound`.
    """
    gone = _revoke(view, name, now)
    if not gone:
        raise NotFound("the tenant has no such adapter", item=name[:100], remedy=_REMEDY)
    return gone


def labels_of(view: ReadView, adapter: Registered) -> list[str] | None:
    """Who may use the adapter, in words; a deleted user or group shows as "user:?" or "group:?"."""
    if adapter.allow is None:
        return None
    found = []
    for kind, ref in adapter.allow:
        table = users if kind == "user" else groups
        name = view.execute(select(table.c.name).where(table.c.id == ref)).scalar_one_or_none()
        found.append("tenant" if kind == "tenant" else f"{kind}:{name or '?'}")
    return sorted(found)


def checked_name(name: str) -> str:
    """`name` where it can be an adapter's. Raises `InvalidInput`."""
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            "an adapter's name is 1 to 63 of a-z 0-9 _ - and begins with a letter or digit", item=name[:100]
        )
    return name


def _permitted(domain: PermissionDomain, view: ReadView, rows: Sequence[Any]) -> Registered | None:
    found = next(map(_row, rows), None)
    # Asked even where there is none: the time of a refusal tells nobody of an adapter that is not for him.
    held = holds_any(domain, view, (found and found.allow) or ())
    return found if found is not None and (found.allow is None or held) else None


def _revoke(view: WriteView, name: str, now: float) -> tuple[str, ...]:
    mine = (adapters.c.name == name) & adapters.c.revoked.is_(None)
    gone = tuple(view.execute(select(adapters.c.id).where(mine)).scalars())
    view.execute(update(adapters).where(mine).values(revoked=now))
    for adapter_id in gone:
        view.withdraw("adapter", adapter_id)
    return gone


def _label(view: WriteView, text: str, now: float) -> tuple[str, str]:
    """The immutable id behind a label: a name that is used again later is another one."""
    kind, name = parse_label(text)
    if kind == "tenant":
        return kind, ""
    ensure = directory.ensure_user if kind == "user" else directory.ensure_group
    return kind, ensure(view, name, now)


def _row(row: Any) -> Registered:
    allow: Collection[Sequence[str]] | None = row.allow
    return Registered(
        id=row.id,
        name=row.name,
        base=row.base,
        revision=row.revision,
        rank=row.rank,
        modules=tuple(row.modules),
        manifest=row.manifest,
        allow=None if allow is None else tuple((kind, ref) for kind, ref in allow),
        created=row.created,
        revoked=row.revoked,
    )
