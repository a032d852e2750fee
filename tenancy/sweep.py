"""Documents that nobody or everybody reads: what an access list that went wrong looks like."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import select

from tenancy.schema import acl, documents, groups, labels, members, users
from tenancy.tenant import ReadView

Reach = Literal["nobody", "everybody", "some"]

_BATCH = 1000


@dataclass(frozen=True, slots=True)
class Swept:
    """How far one document reaches. `readers` counts users of the directory; `why` says what makes it nobody or all."""

    document: str
    reach: Reach
    readers: int
    why: str


class Readers:
    """Which users of the directory the labels of one tenant hold, as it stands in one view.

    Users and groups that an identity provider's tokens name, and the directory does not know, are in no set here.
    """

    def __init__(self, view: ReadView) -> None:
        enabled = select(users.c.id, users.c.name).where(users.c.disabled.is_(False))
        self.names: Mapping[str, str] = {row.id: row.name for row in view.execute(enabled)}
        self._everyone = frozenset(self.names)
        self._groups = set(view.execute(select(groups.c.id)).scalars())
        self._direct: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for row in view.execute(select(members)):
            self._direct[row.group_id].append((row.member_kind, row.member_id))
        self._labels = {row.id: (row.kind, row.ref) for row in view.execute(select(labels))}
        self._held: dict[int, frozenset[str]] = {}

    @property
    def everyone(self) -> frozenset[str]:
        return self._everyone

    def of_label(self, label_id: int) -> frozenset[str]:
        """Ids of the users who hold a label."""
        held = self._held.get(label_id)
        if held is None:
            held = self._held[label_id] = self.of(*self._labels[label_id])
        return held

    def of(self, kind: str, ref: str) -> frozenset[str]:
        """Ids of the users who are, or are in, what `kind` and `ref` name; cycles of groups are harmless."""
        if kind == "tenant":
            return self._everyone
        if kind == "user":
            return frozenset({ref}) & self._everyone
        found: set[str] = set()
        seen, waiting = {ref}, [ref]
        while waiting:
            for member_kind, member in self._direct.get(waiting.pop(), ()):
                if member_kind == "user":
                    found.add(member)
                elif member not in seen:
                    seen.add(member)
                    waiting.append(member)
        return frozenset(found) & self._everyone

    def is_gone(self, label_id: int) -> bool:
        """Whether the user or group of a label was deleted."""
        kind, ref = self._labels[label_id]
        return (kind == "user" and ref not in self.names) or (kind == "group" and ref not in self._groups)

    def covers_all(self, label_id: int) -> bool:
        return bool(self._labels[label_id][0] == "tenant")


def sweep(view: ReadView, *, some: bool = False) -> Iterator[Swept]:
    """The documents that nobody or everybody reads, by name; with `some` the others as well.

    Equal access lists are looked at once. Memory grows with the access lists that differ, not with the documents.
    """
    readers = Readers(view)
    judged: dict[tuple[frozenset[int], frozenset[int]], tuple[Reach, int, str]] = {}
    after = ""
    while True:
        page = select(documents.c.id, documents.c.name).where(documents.c.name > after).order_by(documents.c.name)
        found = view.execute(page.limit(_BATCH)).all()
        if not found:
            return
        after = found[-1].name
        sides: dict[int, tuple[set[int], set[int]]] = {row.id: (set(), set()) for row in found}
        own = select(acl).where(acl.c.document_id.in_(sides))
        for row in view.execute(own):
            sides[row.document_id][row.effect == "deny"].add(row.label_id)
        for row in found:
            allow, deny = map(frozenset, sides[row.id])
            if (allow, deny) not in judged:
                judged[allow, deny] = _judge(readers, allow, deny)
            reach, count, why = judged[allow, deny]
            if some or reach != "some":
                yield Swept(row.name, reach, count, why)


def _judge(readers: Readers, allow: frozenset[int], deny: frozenset[int]) -> tuple[Reach, int, str]:
    allowed = frozenset().union(*(readers.of_label(label) for label in allow))
    denied = frozenset().union(*(readers.of_label(label) for label in deny))
    count = len(allowed - denied)
    if not allow:
        return "nobody", 0, "its access list allows nobody"
    if any(readers.covers_all(label) for label in deny):
        return "nobody", 0, "its access list denies the whole tenant"
    if any(readers.covers_all(label) for label in allow) and not denied:
        return "everybody", count, "its access list allows the whole tenant"
    if count and allowed - denied == readers.everyone:
        return "everybody", count, "its users and groups are all users of the tenant"
    if not count and all(readers.is_gone(label) for label in allow):
        return "nobody", 0, "the users and groups that it allows were deleted"
    if not count and allowed:
        return "nobody", 0, "everybody whom it allows is denied as well"
    if not count:
        return "nobody", 0, "no user of the directory is in the groups that it allows"
    return "some", count, ""
