"""What stands beside the records of a log and vouches for them, checked against a tree that was built anew: stored
nodes, times, signing keys and their changes, checkpoints, and what was pruned.
"""

from __future__ import annotations

import base64
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from sqlalchemy import Row, select
from sqlalchemy.engine import Connection

from audit import pruning, rotation, signers
from audit.checkpoints import Checkpoint, parse
from audit.findings import Bad
from audit.log import AuditLog
from audit.merkle import Frontier, Node
from audit.notes import key_hash, origin_of
from audit.record import Event
from audit.spans import SPAN
from audit.tables import checkpoints, nodes, prunings, spans
from tenancy.errors import Corrupt, InvalidInput

_STANDING: Final = frozenset({rotation.ACTION, pruning.ACTION})


class Evidence:
    """Takes the leaves of one log in order, then says what does not fit; raises `Bad` for the first of it.

    `known` are checkpoints of this log that were kept elsewhere.
    """

    def __init__(self, log: AuditLog, connection: Connection, known: Iterable[Checkpoint] = ()) -> None:
        self._log = log
        self._connection = connection
        self._origin = origin_of(log.log_id)
        self._known = sorted(known, key=lambda one: one.size)
        self._signed = connection.execute(select(checkpoints).order_by(checkpoints.c.size)).all()
        self._ranges = connection.execute(select(prunings).order_by(prunings.c.first)).all()
        self._starts = [row.first for row in self._ranges]
        self._wanted = {row.size for row in self._signed} | {one.size for one in self._known}
        self._roots: dict[int, bytes] = {0: Frontier().root()}
        self._nodes: dict[tuple[int, int], bytes] = {}
        self._times: dict[int, tuple[float, float]] = {}
        self._events: dict[int, Event] = {}
        self._pruned: dict[int, Frontier] = {}

    def range_of(self, seq: int) -> Row[Any] | None:
        """The pruned range that holds record `seq`."""
        place = bisect_right(self._starts, seq) - 1
        return self._ranges[place] if place >= 0 and seq <= self._ranges[place].last else None

    def take(self, seq: int, ts: float, leaf: bytes, stored: Sequence[Node], frontier: Frontier) -> None:
        """The next leaf, with the subtrees that it completed and the tree behind it."""
        for node in stored:
            self._nodes[node.level, node.at] = node.hash
        if frontier.size in self._wanted:
            self._roots[frontier.size] = frontier.root()
        first, last = self._times.get(seq // SPAN, (ts, ts))
        self._times[seq // SPAN] = min(first, ts), max(last, ts)
        within = self.range_of(seq)
        if within is not None:
            self._pruned.setdefault(within.first, Frontier()).append(leaf)

    def note(self, event: Event) -> None:
        """A record, for what it says about keys and pruning."""
        if event.action in _STANDING and event.phase == "outcome":
            self._events[event.seq] = event

    def checkpoints(self, size: int) -> None:
        """Keys and checkpoints of a log that has `size` records."""
        keys, changes = self._keys()
        good = 0
        for row in self._signed:
            try:
                found = parse(row.note)
            except InvalidInput:
                raise Bad("checkpoint", row.size, "a checkpoint cannot be read") from None
            key = keys[bisect_left(changes, row.size)] if keys else b""
            self._vouched(found, [key])
            stands = (row.size, row.root, row.ts, row.signer)
            if stands != (found.size, found.root, found.time, key_hash(self._origin, key).hex()):
                raise Bad("checkpoint", row.size, f"the checkpoint at {row.size} records is another one")
            good = self._holds(found, good, size)
        good = 0
        for found in self._known:
            self._vouched(found, keys)
            good = self._holds(found, good, size)

    def beside(self) -> None:
        """Stored nodes and times, and what was pruned."""
        stored = {(row.level, row.at): row.hash for row in self._connection.execute(select(nodes))}
        if stored != self._nodes:
            level, at = min(_differing(stored, self._nodes), key=lambda place: place[1] << place[0])
            raise Bad("edited", at << level, "a stored node of the tree differs from the records below it")
        times = {row.at: (row.first, row.last) for row in self._connection.execute(select(spans))}
        if times != self._times:
            raise Bad("edited", min(_differing(times, self._times)) * SPAN, "the index of times differs")
        for row in self._ranges:
            if not self._is_pruned(row):
                raise Bad("edited", row.first, f"no record says that {row.first} to {row.last} were pruned")

    def _keys(self) -> tuple[list[bytes], list[int]]:
        """The log's public keys in their order, and the records that changed them."""
        changes = [event for event in self._events.values() if event.action == rotation.ACTION]
        keys: list[bytes] = []
        for event in changes:
            if not rotation.is_rotation(self._log.log_id, event.detail):
                raise Bad("checkpoint", event.seq, "a change of the signing key is not signed by the old one")
            old, new = (base64.b64decode(str(event.detail[name])) for name in ("old_key", "new_key"))
            if keys and keys[-1] != old:
                raise Bad("checkpoint", event.seq, "a change of the signing key does not follow the one before")
            keys = [*(keys or [old]), new]
        listed = [key.public for key in signers.public_keys_in(self._connection, self._log)]
        if sorted(listed) != sorted(keys or listed[:1]):
            raise Bad("checkpoint", None, "the signing keys are not those that the records name")
        try:
            live = signers.live_in(self._connection, self._log)
        except Corrupt as error:
            raise Bad("checkpoint", None, error.reason) from None
        keys = keys or listed
        if live is not None and live.public != keys[-1]:
            raise Bad("checkpoint", None, "the signing key is not the one that the records name last")
        return keys, [event.seq for event in changes]

    def _vouched(self, found: Checkpoint, keys: Sequence[bytes]) -> None:
        if found.origin != self._origin or not any(found.signed_by(key) for key in keys if key):
            reason = f"the checkpoint at {found.size} records was not signed by the key of this log"
            raise Bad("checkpoint", found.size, reason)

    def _holds(self, found: Checkpoint, good: int, size: int) -> int:
        """That the records are those which `found` signed; the one before was good at `good` records."""
        if found.size > size:
            raise Bad("truncated", size, f"{found.size} records were signed, and {size} are there")
        if found.root != self._roots[found.size]:
            between = f"the records {good} to {found.size - 1}"
            raise Bad("edited", good, f"{between} are not those that the checkpoint behind them signed")
        return found.size

    def _is_pruned(self, row: Row[Any]) -> bool:
        event, tree = self._events.get(row.seq), self._pruned.get(row.first)
        if event is None or tree is None or event.action != pruning.ACTION or tree.size != row.last - row.first + 1:
            return False
        said, root = event.detail, tree.root()
        if (said.get("first"), said.get("last"), said.get("root")) != (row.first, row.last, root.hex()):
            return False
        text = pruning.statement(self._log.log_id, row.first, row.last, root)
        keys = {key.id: key.public for key in signers.public_keys_in(self._connection, self._log)}
        try:
            public = Ed25519PublicKey.from_public_bytes(keys.get(str(said.get("key")), b""))
            public.verify(base64.b64decode(str(said.get("signature")), validate=True), text)
        except (InvalidSignature, ValueError):
            return False
        return True


def _differing(one: Mapping[Any, Any], other: Mapping[Any, Any]) -> list[Any]:
    """The keys under which two mappings do not have the same."""
    return [key for key in one.keys() | other.keys() if one.get(key) != other.get(key)]
