"""What somebody with access to a log's database may do to it, and what verification has to say: verdict and first bad
position. Each case is done in a transaction that is rolled back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sqlalchemy import delete, insert, select, update
from sqlalchemy.engine import Connection

from audit import signers
from audit.checkpoints import Checkpoint, checkpoint
from audit.log import AuditLog, genesis
from audit.merkle import Frontier, leaf_hash
from audit.notes import Signer, make, origin_of
from audit.record import Actor, Draft, Request, Resource, decode
from audit.rotation import rotate
from audit.tables import checkpoints, columns, event_documents, events, head, nodes, open_intents, prunings, spans
from audit.verify import Verification, verify

SIZE = 600
SIGNED = (200, 400, 401, 600)
"""The sizes of the checkpoints; record 400 is the change of the signing key."""


def fill(log: AuditLog) -> None:
    """Pairs of intent and outcome, a change of the key between them, and checkpoints on the way."""
    for start, end in pairwise((0, 200, 400)):
        _grow(log, start, end)
        checkpoint(log)
    rotate(log)
    _grow(log, 401, SIZE)
    checkpoint(log)


def _grow(log: AuditLog, start: int, end: int) -> None:
    waiting = [log.submit(partial(_draft, number, start)) for number in range(start, end)]
    for future in waiting:
        future.result(30)


def _draft(number: int, start: int) -> Draft:
    closes = (number - start) % 2 == 1
    return Draft(
        action="answer",
        phase="outcome" if closes else "intent",
        outcome="allowed" if closes else None,
        intent=number - 1 if closes else None,
        actor=Actor(kind="user", ref="u_1"),
        request=Request(id=f"r{number - closes}"),
        resources=(Resource(document="d", stage="cited"),),
    )


class Inside:
    """A log's database as the open write transaction sees it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        yield self._connection


class _Undo(Exception):
    pass


def after(log: AuditLog, tamper: Callable[[AuditLog, Connection], None], known: list[Checkpoint]) -> Verification:
    """What verification says once `tamper` is done; then it is undone."""
    real = log.database
    found: list[Verification] = []
    try:
        with real.writing() as connection:
            tamper(log, connection)
            log.database = Inside(connection)  # type: ignore[assignment]
            found.append(verify(log, known=known))
            raise _Undo
    except _Undo:
        return found[0]
    finally:
        log.database = real


def payload_at(connection: Connection, seq: int) -> bytes:
    found: bytes = connection.execute(select(events.c.payload).where(events.c.seq == seq)).scalar_one()
    return found


def put(connection: Connection, at: int, **values: object) -> None:
    connection.execute(update(events).where(events.c.seq == at).values(**values))


def row(connection: Connection, seq: int) -> dict[str, Any]:
    return dict(connection.execute(select(events).where(events.c.seq == seq)).one()._mapping)


def edit_byte(log: AuditLog, connection: Connection) -> None:
    put(connection, 205, payload=payload_at(connection, 205).replace(b'"allowed"', b'"bllowed"'))


def edit_column(log: AuditLog, connection: Connection) -> None:
    put(connection, 205, actor="u_2")


def hide_document(log: AuditLog, connection: Connection) -> None:
    connection.execute(delete(event_documents).where(event_documents.c.seq == 205))


def rewrite(log: AuditLog, connection: Connection) -> None:
    """Record 205 is another one, and all that follows is made to fit: chain, nodes, head. The key is not needed."""
    changed = payload_at(connection, 205).replace(b'"u_1"', b'"u_2"')
    put(connection, 205, payload=changed, **columns(decode(changed)))
    connection.execute(update(event_documents).where(event_documents.c.seq == 205).values(actor="u_2"))
    refit(log, connection)


def refit(log: AuditLog, connection: Connection) -> None:
    frontier, prev = Frontier(), genesis(log.log_id)
    connection.execute(delete(nodes))
    rows = connection.execute(select(events.c.seq, events.c.payload).order_by(events.c.seq)).all()
    for one in reversed(rows):
        # No two may follow the same record meanwhile.
        put(connection, one.seq, prev=b"%d" % one.seq)
    for one in rows:
        leaf = leaf_hash(one.payload)
        put(connection, one.seq, leaf=leaf, prev=prev)
        for node in frontier.append(leaf):
            connection.execute(insert(nodes).values(level=node.level, at=node.at, hash=node.hash))
        prev = leaf
    _move_head(connection, frontier, prev)


def _move_head(connection: Connection, frontier: Frontier, last: bytes) -> None:
    values = {"size": frontier.size, "frontier": frontier.to_bytes(), "root": frontier.root(), "last_leaf": last}
    connection.execute(update(head).values(values))


def delete_row(log: AuditLog, connection: Connection) -> None:
    connection.execute(delete(events).where(events.c.seq == 205))


def cut(log: AuditLog, connection: Connection) -> None:
    connection.execute(delete(events).where(events.c.seq >= 550))


def cut_with_head(log: AuditLog, connection: Connection) -> None:
    """The tail is gone, and everything but the checkpoints is made to fit."""
    cut(log, connection)
    connection.execute(delete(event_documents).where(event_documents.c.seq >= 550))
    connection.execute(delete(open_intents))
    refit(log, connection)
    ts = events.c.ts
    last = connection.execute(select(ts).order_by(ts.desc())).scalars().first()
    connection.execute(update(spans).values(last=last))
    opened = 549
    connection.execute(insert(open_intents).values(seq=opened, writer=log.live.id))


def cut_with_checkpoints(log: AuditLog, connection: Connection) -> None:
    cut_with_head(log, connection)
    connection.execute(delete(checkpoints).where(checkpoints.c.size > 550))


def swap_rows(log: AuditLog, connection: Connection) -> None:
    put(connection, 205, seq=10_000)
    put(connection, 207, seq=205)
    put(connection, 10_000, seq=207)


def swap_payloads(log: AuditLog, connection: Connection) -> None:
    five, seven = payload_at(connection, 205), payload_at(connection, 207)
    put(connection, 205, payload=seven)
    put(connection, 207, payload=five)


def fork(log: AuditLog, connection: Connection) -> None:
    """A record beyond the head that follows the chain, as a second writer with a stale head would leave it."""
    last = row(connection, 599)
    payload = last["payload"].replace(b'"seq":599', b'"seq":600')
    values = {**columns(decode(payload)), "payload": payload, "leaf": leaf_hash(payload), "prev": last["leaf"]}
    connection.execute(insert(events).values(values))
    connection.execute(
        insert(event_documents).values(document="d", seq=600, stage="cited", actor="u_1", outcome=last["outcome"])
    )


def fork_inside(log: AuditLog, connection: Connection) -> None:
    """Record 205 is replaced by another that follows 204; what follows still follows the one that was there."""
    changed = payload_at(connection, 205).replace(b'"u_1"', b'"u_2"')
    put(connection, 205, payload=changed, leaf=leaf_hash(changed), **columns(decode(changed)))
    connection.execute(update(event_documents).where(event_documents.c.seq == 205).values(actor="u_2"))


def replace_checkpoint(log: AuditLog, connection: Connection) -> None:
    """A note of the same form by somebody else's key."""
    own = Signer(origin_of(log.log_id), Ed25519PrivateKey.generate())
    old = connection.execute(select(checkpoints).where(checkpoints.c.size == 400)).one()
    forged = make(log.log_id, 400, old.root, old.ts, [own])
    connection.execute(update(checkpoints).where(checkpoints.c.size == 400).values(note=forged.note))


def older_checkpoint(log: AuditLog, connection: Connection) -> None:
    """A genuine note in the place of a later one."""
    old = connection.execute(select(checkpoints.c.note).where(checkpoints.c.size == 200)).scalar_one()
    connection.execute(update(checkpoints).where(checkpoints.c.size == 400).values(note=old))


def edit_checkpoint(log: AuditLog, connection: Connection) -> None:
    connection.execute(update(checkpoints).where(checkpoints.c.size == 400).values(root=bytes(32)))


def sign_with_the_new_key(log: AuditLog, connection: Connection) -> None:
    """A checkpoint of before the change of the key, by the key of after it."""
    old = connection.execute(select(checkpoints).where(checkpoints.c.size == 200)).one()
    made = make(log.log_id, 200, old.root, old.ts, [signers.current_in(connection, log)])
    connection.execute(update(checkpoints).where(checkpoints.c.size == 200).values(note=made.note))


def replace_key(log: AuditLog, connection: Connection) -> None:
    public = Ed25519PrivateKey.generate().public_key().public_bytes_raw()
    live = signers.signers.c.retired.is_(None)
    connection.execute(update(signers.signers).where(live).values(public=public))


def replace_old_key(log: AuditLog, connection: Connection) -> None:
    public = Ed25519PrivateKey.generate().public_key().public_bytes_raw()
    retired = signers.signers.c.retired.is_not(None)
    connection.execute(update(signers.signers).where(retired).values(public=public))


def forget_keys(log: AuditLog, connection: Connection) -> None:
    connection.execute(delete(signers.signers))


def edit_node(log: AuditLog, connection: Connection) -> None:
    connection.execute(update(nodes).where(nodes.c.level == 8, nodes.c.at == 1).values(hash=bytes(32)))


def edit_times(log: AuditLog, connection: Connection) -> None:
    connection.execute(update(spans).values(last=1.0))


def edit_head(log: AuditLog, connection: Connection) -> None:
    connection.execute(update(head).values(root=bytes(32)))


def lose_head(log: AuditLog, connection: Connection) -> None:
    connection.execute(delete(head))


def empty_quietly(log: AuditLog, connection: Connection) -> None:
    """As if records 204 and 205 had been pruned, without a record that says so."""
    bare: dict[str, Any] = {column.name: None for column in events.c if column.nullable}
    bare |= {"payload": b"", "action": "", "phase": "", "request": ""}
    for seq in (204, 205):
        put(connection, seq, **bare)
    connection.execute(delete(event_documents).where(event_documents.c.seq.in_([204, 205])))
    connection.execute(insert(prunings).values(first=204, last=205, seq=400, ts=0.0))


def whole_log_anew(log: AuditLog, connection: Connection) -> None:
    """Whoever has the log's keys writes all of it anew and signs it: the log fits, and no longer what was kept."""
    changed = payload_at(connection, 205).replace(b'"u_1"', b'"u_2"')
    put(connection, 205, payload=changed, **columns(decode(changed)))
    connection.execute(update(event_documents).where(event_documents.c.seq == 205).values(actor="u_2"))
    refit(log, connection)
    connection.execute(delete(checkpoints).where(checkpoints.c.size > 200))


@dataclass(frozen=True, slots=True)
class Case:
    """`kept` is the size of a checkpoint that the verifier has from before."""

    name: str
    tamper: Callable[[AuditLog, Connection], None]
    kind: str | None
    seq: int | None
    kept: int | None = None


CASES = (
    Case("edit a byte", edit_byte, "edited", 205),
    Case("edit a column", edit_column, "edited", 205),
    Case("hide a document", hide_document, "edited", 205),
    Case("edit a record, the rest made to fit", rewrite, "edited", 200),
    Case("delete a row", delete_row, "missing", 205),
    Case("truncate the tail", cut, "truncated", 550),
    Case("truncate the tail, the rest made to fit", cut_with_head, "truncated", 550),
    Case("the same, checkpoints deleted too", cut_with_checkpoints, None, None),
    Case("the same, an old checkpoint at hand", cut_with_checkpoints, "truncated", 550, kept=600),
    Case("swap two rows", swap_rows, "reordered", 205),
    Case("swap the bytes of two rows", swap_payloads, "reordered", 205),
    Case("fork at the end", fork, "forked", 600),
    Case("fork inside", fork_inside, "forked", 205),
    Case("replace a checkpoint", replace_checkpoint, "checkpoint", 400),
    Case("replace it by an older one", older_checkpoint, "checkpoint", 400),
    Case("edit a checkpoint", edit_checkpoint, "checkpoint", 400),
    Case("sign an old state with the new key", sign_with_the_new_key, "checkpoint", 200),
    Case("replace the signing key", replace_key, "checkpoint", None),
    Case("replace a retired key", replace_old_key, "checkpoint", None),
    Case("delete the keys", forget_keys, "checkpoint", None),
    Case("edit a stored node", edit_node, "edited", 256),
    Case("edit the index of times", edit_times, "edited", 0),
    Case("edit the root", edit_head, "edited", None),
    Case("delete the head", lose_head, "edited", None),
    Case("empty records without saying so", empty_quietly, "edited", 204),
    Case("write the whole log anew", whole_log_anew, None, None),
    Case("the same, an old checkpoint at hand", whole_log_anew, "edited", 0, kept=400),
)
