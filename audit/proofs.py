"""Proofs about a log's Merkle tree: that a record is in it, that a later tree extends an earlier one (RFC 9162, 2.1.3
and 2.1.4; the tree is that of RFC 6962).

A proof is made from stored roots of subtrees and at most two runs of 256 leaves. The two `verify_` functions are pure
and need nothing but what they are given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from sqlalchemy import select
from sqlalchemy.engine import Connection

from audit.merkle import EMPTY_ROOT, STORED_LEVEL, Frontier, node_hash
from audit.tables import events, head, nodes
from tenancy.errors import Corrupt, InvalidInput

if TYPE_CHECKING:
    from audit.log import AuditLog

_BLOCK: Final = 1 << STORED_LEVEL
_LEAVES: Final = select(events.c.seq, events.c.leaf).order_by(events.c.seq)
_SIZE: Final = select(head.c.size)


def inclusion(log: AuditLog, seq: int, size: int) -> tuple[bytes, ...]:
    """The audit path of record `seq` in the tree of the first `size` records, the lowest sibling first (RFC 9162,
    2.1.3.1). Raises `InvalidInput` where there is no such record or tree, `Corrupt` for a tree that is damaged.
    """
    with log.database.reading() as connection:
        return Tree(connection).inclusion(seq, size)


def consistency(log: AuditLog, old: int, new: int) -> tuple[bytes, ...]:
    """The proof that the tree of `new` records extends that of `old` (RFC 9162, 2.1.4.1). Raises as `inclusion`."""
    with log.database.reading() as connection:
        return Tree(connection).consistency(old, new)


def root(log: AuditLog, size: int) -> bytes:
    """The root over the first `size` records. Raises as `inclusion`."""
    with log.database.reading() as connection:
        return Tree(connection).root(size)


def leaf(log: AuditLog, seq: int) -> bytes:
    """The leaf hash of record `seq`, also of a pruned one. Raises `InvalidInput` where there is none."""
    with log.database.reading() as connection:
        found: bytes | None = connection.execute(select(events.c.leaf).where(events.c.seq == seq)).scalar_one_or_none()
    if found is None:
        raise InvalidInput("the log has no record of this number", item="seq")
    return found


def verify_inclusion(leaf: bytes, seq: int, size: int, path: Sequence[bytes], expected: bytes) -> bool:
    """Whether `path` shows that the leaf hash `leaf` is number `seq` in the tree of `size` leaves whose root is
    `expected` (RFC 9162, 2.1.3.2).
    """
    if not 0 <= seq < size:
        return False
    first, second, found = seq, size - 1, leaf
    for sibling in path:
        if second == 0:
            return False
        if first & 1 or first == second:
            found = node_hash(sibling, found)
            while not first & 1 and first:
                first, second = first >> 1, second >> 1
        else:
            found = node_hash(found, sibling)
        first, second = first >> 1, second >> 1
    return second == 0 and found == expected


def verify_consistency(old: int, new: int, old_root: bytes, new_root: bytes, path: Sequence[bytes]) -> bool:
    """Whether `path` shows that the tree of `new` leaves with `new_root` begins with the `old` leaves of `old_root`
    (RFC 9162, 2.1.4.2). Every tree begins with the empty one, and with itself.
    """
    if old == new:
        return not path and old_root == new_root
    if old == 0:
        return new > 0 and not path and old_root == EMPTY_ROOT
    if not 0 < old < new or not path:
        return False
    rest = list(path)
    if old & (old - 1) == 0:
        rest.insert(0, old_root)
    first, second = old - 1, new - 1
    while first & 1:
        first, second = first >> 1, second >> 1
    before = after = rest[0]
    for sibling in rest[1:]:
        if second == 0:
            return False
        if first & 1 or first == second:
            before, after = node_hash(sibling, before), node_hash(sibling, after)
            while not first & 1 and first:
                first, second = first >> 1, second >> 1
        else:
            after = node_hash(after, sibling)
        first, second = first >> 1, second >> 1
    return second == 0 and before == old_root and after == new_root


class Tree:
    """The tree of one state of a log, read within the transaction of `connection`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._size = int(connection.execute(_SIZE).scalar_one())
        self._blocks: dict[int, list[bytes]] = {}

    def root(self, size: int) -> bytes:
        self._require(size)
        return self._subtree(0, size) if size else EMPTY_ROOT

    def inclusion(self, seq: int, size: int) -> tuple[bytes, ...]:
        self._require(size)
        if not 0 <= seq < size:
            raise InvalidInput(
                f"no record {seq} is in a log of {size} records", item="seq", remedy="name a lower number"
            )
        return tuple(self._path(seq, 0, size))

    def consistency(self, old: int, new: int) -> tuple[bytes, ...]:
        self._require(new)
        if not 0 <= old <= new:
            reason = f"a log of {new} records cannot extend one of {old}"
            raise InvalidInput(reason, item="old", remedy="name the older, smaller state first")
        return tuple(self._between(old, 0, new, whole=True)) if 0 < old < new else ()

    def extends(self, old: int, old_root: bytes, new: int, new_root: bytes) -> bool:
        """Whether the tree of `new` records with `new_root` extends that of `old` with `old_root`."""
        return verify_consistency(old, new, old_root, new_root, self.consistency(old, new)) if old <= new else False

    def _require(self, size: int) -> None:
        if not 0 <= size <= self._size:
            raise InvalidInput(f"the log has {self._size} records", item="size", remedy="ask for a tree within it")

    def _path(self, seq: int, first: int, end: int) -> list[bytes]:
        if end - first == 1:
            return []
        middle = first + _split(end - first)
        if seq < middle:
            return [*self._path(seq, first, middle), self._subtree(middle, end)]
        return [*self._path(seq, middle, end), self._subtree(first, middle)]

    def _between(self, old: int, first: int, end: int, *, whole: bool) -> list[bytes]:
        """SUBPROOF of RFC 9162; `whole` while the old tree is all that lies left of here."""
        if old == end:
            return [] if whole else [self._subtree(first, end)]
        middle = first + _split(end - first)
        if old <= middle:
            return [*self._between(old, first, middle, whole=whole), self._subtree(middle, end)]
        return [*self._between(old, middle, end, whole=False), self._subtree(first, middle)]

    def _subtree(self, first: int, end: int) -> bytes:
        """The root over the leaves from `first` to before `end`, which lie as the tree's recursion divides it."""
        size = end - first
        if size >= _BLOCK and size & (size - 1) == 0:
            return self._stored(size.bit_length() - 1, first)
        if size < _BLOCK:
            frontier = Frontier()
            frontier.extend(self._block(first >> STORED_LEVEL)[first % _BLOCK :][:size])
            if frontier.size != size:
                raise Corrupt("records of the log are missing", item=f"record {first + frontier.size}")
            return frontier.root()
        middle = first + _split(size)
        return node_hash(self._subtree(first, middle), self._subtree(middle, end))

    def _stored(self, level: int, first: int) -> bytes:
        wanted = select(nodes.c.hash).where(nodes.c.level == level, nodes.c.at == first >> level)
        found: bytes | None = self._connection.execute(wanted).scalar_one_or_none()
        if found is None:
            raise Corrupt("a stored node of the log's tree is missing", item=f"level {level} at {first >> level}")
        return found

    def _block(self, number: int) -> list[bytes]:
        """The leaves of one run of 256, as far as there are."""
        found = self._blocks.get(number)
        if found is None:
            first = number << STORED_LEVEL
            wanted = _LEAVES.where(events.c.seq >= first, events.c.seq < first + _BLOCK)
            rows = self._connection.execute(wanted).all()
            if [row.seq for row in rows] != list(range(first, first + len(rows))):
                raise Corrupt("records of the log are missing", item=f"records from {first}")
            found = self._blocks[number] = [row.leaf for row in rows]
        return found


def _split(size: int) -> int:
    """The largest power of two below `size`, which is at least 2."""
    return 1 << ((size - 1).bit_length() - 1)
