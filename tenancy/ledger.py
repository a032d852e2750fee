"""What was withdrawn from a tenant, in order: documents deleted, rights taken away, members, users and groups removed.

It lies beside the audit log, so that it outlives the tenant's own files. An entry is durable before the change that it
tells of is committed, and the tenant's database holds the number of its newest one. So a restored backup knows what
was withdrawn after it was made, and whoever restores it takes that away again (`apply`). An entry of a change that
then failed takes away something that nobody took away: too much, never too little.

A ledger that is lost or damaged keeps nobody from withdrawing: a new one begins, with an entry that says so, and a
restore that would have needed what is lost says it too. Entries hold ids alone, no names and no text.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Literal

from sqlalchemy import JSON, Column, Float, MetaData, Table, delete, func, insert, select
from sqlalchemy.engine import Connection

from tenancy import schema
from tenancy.database import Retired
from tenancy.errors import Corrupt
from tenancy.registry import FIRST, Registry
from tenancy.storage import AnyDatabase
from tenancy.types import Integer

_logger = logging.getLogger(__name__)

LEDGER_FILE: Final = "ledger.sqlite"
META_KEY: Final = "ledger"

LOST: Final = "lost"
"""The entry of a ledger that began anew: what was withdrawn before it is not known."""

Kind = Literal["document", "allow", "deny", "member", "user", "group", "adapter"]
"""With what each is about: (document id), (document id, label kind, label ref) a right taken away, the same for a
denial that was added, (group id, member kind, member id), (user id), (group id), (adapter id)."""

Entry = tuple[Kind, Sequence[int | str]]

metadata = MetaData()

withdrawals = Table(
    "withdrawals",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("at", Float, nullable=False),
    Column("what", JSON, nullable=False),
)


class Ledger:
    """The ledger of one tenant; `opened` gives its database in a generation: each but the first follows a loss."""

    def __init__(self, owner: str, registry: Registry, opened: Callable[[int], AnyDatabase]) -> None:
        self._owner = owner
        self._registry = registry
        self._opened = opened

    def append(self, entries: Sequence[Entry], position: int) -> int:
        """Write entries; returns the number of the last one. `position` is the newest that the tenant knows of."""
        while True:
            generation = self._registry.generation(self._owner, LEDGER_FILE) or FIRST
            try:
                with self._opened(generation).writing() as connection:
                    return append(connection, entries, position, anew=generation > FIRST)
            except (Corrupt, Retired) as error:
                if (self._registry.generation(self._owner, LEDGER_FILE) or FIRST) == generation:
                    _logger.error("the ledger of %s is lost (%s): a new one begins", self._owner, error.code)
                    self._registry.make(self._owner, LEDGER_FILE, generation + 1)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A read transaction. Raises `Corrupt` where the ledger is lost and nothing was withdrawn since."""
        generation = self._registry.generation(self._owner, LEDGER_FILE) or FIRST
        with self._opened(generation).reading() as connection:
            yield connection


def append(connection: Connection, entries: Iterable[Entry], position: int = 0, *, anew: bool = False) -> int:
    """Write entries behind number `position`; returns the number of the last one. Where entries are missing, or a
    ledger begins `anew`, the first says so.
    """
    newest = head(connection)
    what: list[list[Any]] = [[kind, *about] for kind, about in entries]
    if newest < position or (anew and not newest):
        what.insert(0, [LOST])
    newest, now = max(newest, position), time.time()
    rows = [{"seq": newest + place, "at": now, "what": entry} for place, entry in enumerate(what, 1)]
    connection.execute(insert(withdrawals), rows)
    return newest + len(rows)


def head(connection: Connection) -> int:
    """The number of the newest entry, 0 where there is none."""
    return int(connection.execute(select(func.max(withdrawals.c.seq))).scalar() or 0)


def since(connection: Connection, seq: int) -> Iterator[tuple[int, float, list[Any]]]:
    """The entries after number `seq`, in order: number, UTC epoch seconds, what."""
    query = select(withdrawals).where(withdrawals.c.seq > seq).order_by(withdrawals.c.seq)
    for row in connection.execution_options(yield_per=1_000).execute(query):
        yield row.seq, row.at, row.what


def position(tenant: Connection) -> int:
    """The number of the newest entry that the tenant's database knows of."""
    return int(tenant.execute(select(schema.meta.c.value).where(schema.meta.c.key == META_KEY)).scalar() or 0)


def move_to(tenant: Connection, seq: int) -> None:
    """Let the tenant's database know of all entries up to number `seq`."""
    tenant.execute(delete(schema.meta).where(schema.meta.c.key == META_KEY))
    tenant.execute(insert(schema.meta).values(key=META_KEY, value=seq))


def apply(tenant: Connection, what: Sequence[Any]) -> bool:
    """Withdraw again in a restored database; False where it is not there, or was not given, any more.

    Rights are only ever taken away: a document that got readers after the backup does not get them back by this.
    """
    kind, *about = what
    return kind != LOST and _APPLY[kind](tenant, *about) > 0


def known(what: Sequence[Any]) -> bool:
    """Whether `what`, out of a file, is an entry that `apply` understands."""
    kind, about = what[0] if what else None, list(what[1:])
    if kind == LOST:
        return not about
    wanted = _ABOUT.get(kind) if isinstance(kind, str) else None
    return wanted is not None and [type(part) for part in about] == wanted


def _document(tenant: Connection, document_id: int) -> int:
    present = (schema.versions.c.document_id == document_id) & schema.versions.c.retired.is_(None)
    tenant.execute(schema.versions.update().where(present).values(retired=time.time()))
    return tenant.execute(delete(schema.documents).where(schema.documents.c.id == document_id)).rowcount


def _label(tenant: Connection, kind: str, ref: str) -> int | None:
    named = (schema.labels.c.kind == kind) & (schema.labels.c.ref == ref)
    found: int | None = tenant.execute(select(schema.labels.c.id).where(named)).scalar_one_or_none()
    return found


def _allow(tenant: Connection, document_id: int, kind: str, ref: str) -> int:
    own = (schema.acl.c.document_id == document_id) & (schema.acl.c.label_id == _label(tenant, kind, ref))
    return tenant.execute(delete(schema.acl).where(own, schema.acl.c.effect == "allow")).rowcount


def _deny(tenant: Connection, document_id: int, kind: str, ref: str) -> int:
    own = select(schema.documents.c.id).where(schema.documents.c.id == document_id)
    if tenant.execute(own).scalar_one_or_none() is None:
        return 0
    label = _label(tenant, kind, ref)
    if label is None:
        made = insert(schema.labels).values(kind=kind, ref=ref).returning(schema.labels.c.id)
        label = tenant.execute(made).scalar_one()
    row = {"document_id": document_id, "label_id": label, "effect": "deny"}
    same = (
        (schema.acl.c.document_id == document_id) & (schema.acl.c.label_id == label) & (schema.acl.c.effect == "deny")
    )
    if tenant.execute(select(schema.acl.c.effect).where(same)).scalar_one_or_none() is not None:
        return 0
    return tenant.execute(insert(schema.acl).values(row)).rowcount


def _member(tenant: Connection, group_id: str, kind: str, member_id: str) -> int:
    members = schema.members.c
    own = (members.group_id == group_id) & (members.member_kind == kind) & (members.member_id == member_id)
    return tenant.execute(delete(schema.members).where(own)).rowcount


def _user(tenant: Connection, user_id: str) -> int:
    _memberships(tenant, "user", user_id)
    return tenant.execute(delete(schema.users).where(schema.users.c.id == user_id)).rowcount


def _group(tenant: Connection, group_id: str) -> int:
    _memberships(tenant, "group", group_id)
    return tenant.execute(delete(schema.groups).where(schema.groups.c.id == group_id)).rowcount


def _adapter(tenant: Connection, adapter_id: str) -> int:
    adapters = schema.adapters.c
    own = (adapters.id == adapter_id) & adapters.revoked.is_(None)
    return tenant.execute(schema.adapters.update().where(own).values(revoked=time.time())).rowcount


def _memberships(tenant: Connection, kind: str, member_id: str) -> None:
    own = (schema.members.c.member_kind == kind) & (schema.members.c.member_id == member_id)
    tenant.execute(delete(schema.members).where(own))


_APPLY: Final[dict[str, Callable[..., int]]] = {
    "document": _document,
    "allow": _allow,
    "deny": _deny,
    "member": _member,
    "user": _user,
    "group": _group,
    "adapter": _adapter,
}
_ABOUT: Final[dict[str, list[type]]] = {
    "document": [int],
    "allow": [int, str, str],
    "deny": [int, str, str],
    "member": [str, str, str],
    "user": [str],
    "group": [str],
    "adapter": [str],
}
