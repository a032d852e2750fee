from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import partial

import pytest
from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.engine import Connection

from audit.log import AuditLog, genesis
from audit.merkle import Frontier, leaf_hash
from audit.record import Actor, Draft, Request, Resource, decode, encode
from audit.tables import columns, documents, event_documents, events, head, open_intents
from audit.verify import verify

SIZE = 13


@pytest.fixture
def filled(log: AuditLog) -> AuditLog:
    """Six pairs of intent and outcome, and an intent in flight."""
    for number in range(SIZE):
        made = Draft(
            action="answer",
            phase="outcome" if number % 2 else "intent",
            outcome="allowed" if number % 2 else None,
            intent=number - 1 if number % 2 else None,
            actor=Actor(kind="user", ref="u_1"),
            request=Request(id=f"r{number // 2}"),
            resources=(Resource(document="d", stage="cited"),),
        )
        log.submit(partial(copy, made))
    log.flush()
    return log


def payload_at(connection: Connection, seq: int) -> bytes:
    found: bytes = connection.execute(select(events.c.payload).where(events.c.seq == seq)).scalar_one()
    return found


def row(connection: Connection, seq: int) -> dict[str, object]:
    return dict(connection.execute(select(events).where(events.c.seq == seq)).one()._mapping)


def put(connection: Connection, at: int, **values: object) -> None:
    connection.execute(update(events).where(events.c.seq == at).values(**values))


def edit_payload(connection: Connection) -> None:
    put(connection, 5, payload=payload_at(connection, 5).replace(b'"allowed"', b'"refused"'))


def edit_payload_and_leaf(connection: Connection) -> None:
    changed = payload_at(connection, 5).replace(b'"outcome":"allowed"', b'"outcome":"refused"')
    put(connection, 5, payload=changed, leaf=leaf_hash(changed), outcome="refused")
    connection.execute(update(event_documents).where(event_documents.c.seq == 5).values(outcome="refused"))


def edit_with_all_that_follows(connection: Connection) -> None:
    """Everything but the tree head is rewritten to fit."""
    edit_payload_and_leaf(connection)
    put(connection, 6, prev=connection.execute(select(events.c.leaf).where(events.c.seq == 5)).scalar_one())


def edit_last(connection: Connection) -> None:
    changed = payload_at(connection, 12).replace(b'"r6"', b'"r9"')
    put(connection, 12, payload=changed, leaf=leaf_hash(changed), request="r9")


def garble(connection: Connection) -> None:
    put(connection, 5, payload=b"{}", leaf=leaf_hash(b"{}"))


def renumber(connection: Connection) -> None:
    changed = payload_at(connection, 5).replace(b'"seq":5', b'"seq":7')
    put(connection, 5, payload=changed)


def swap_payloads(connection: Connection) -> None:
    four, six = payload_at(connection, 4), payload_at(connection, 6)
    put(connection, 4, payload=six)
    put(connection, 6, payload=four)


def swap_rows(connection: Connection) -> None:
    put(connection, 4, seq=99)
    put(connection, 6, seq=4)
    put(connection, 99, seq=6)


def delete_row(connection: Connection) -> None:
    connection.execute(delete(events).where(events.c.seq == 5))


def delete_row_and_close_the_gap(connection: Connection) -> None:
    delete_row(connection)
    for seq in range(6, SIZE):
        put(connection, seq, seq=seq - 1)


def truncate(connection: Connection) -> None:
    connection.execute(delete(events).where(events.c.seq >= 10))


def empty(connection: Connection) -> None:
    connection.execute(delete(events))


def add_row(connection: Connection) -> None:
    connection.execute(insert(events).values({**row(connection, 12), "seq": 13, "prev": row(connection, 12)["leaf"]}))


def add_fitting_row(connection: Connection) -> None:
    """A record beyond the head that follows the chain, as a second writer with a stale head would leave it."""
    last = row(connection, 12)
    payload = bytes(last["payload"]).replace(b'"seq":12', b'"seq":13')  # type: ignore[call-overload]
    leaf = leaf_hash(payload)
    values = {**columns(decode(payload)), "payload": payload, "leaf": leaf, "prev": last["leaf"]}
    connection.execute(insert(events).values(values))
    touched = [
        dict(zip(("document", "stage", "actor", "outcome"), one, strict=True)) for one in documents(decode(payload))
    ]
    connection.execute(insert(event_documents), [{"seq": 13, **one} for one in touched])


def add_row_before(connection: Connection) -> None:
    connection.execute(insert(events).values({**row(connection, 0), "seq": -1, "prev": bytes(32)}))


def edit_prev(connection: Connection) -> None:
    put(connection, 5, prev=bytes(32))


def foreign_record(connection: Connection) -> None:
    event = decode(payload_at(connection, 5))
    changed = payload_at(connection, 5).replace(event.log.encode(), b"t_other")
    put(connection, 5, payload=changed, leaf=leaf_hash(changed))


def edit_column(connection: Connection) -> None:
    put(connection, 5, actor="u_2")


def edit_time(connection: Connection) -> None:
    put(connection, 5, ts=1.0)


def hide_document(connection: Connection) -> None:
    connection.execute(delete(event_documents).where(event_documents.c.seq == 5))


def hide_reader(connection: Connection) -> None:
    connection.execute(update(event_documents).where(event_documents.c.seq == 5).values(actor="u_2"))


def add_document(connection: Connection) -> None:
    connection.execute(insert(event_documents).values(document="other", seq=5, stage="cited"))


def add_document_beyond(connection: Connection) -> None:
    connection.execute(insert(event_documents).values(document="other", seq=50, stage="cited"))


def edit_root(connection: Connection) -> None:
    connection.execute(update(head).values(root=bytes(32)))


def edit_frontier(connection: Connection) -> None:
    connection.execute(update(head).values(frontier=bytes(96)))


def hide_open_intent(connection: Connection) -> None:
    connection.execute(delete(open_intents))


def invent_open_intent(connection: Connection) -> None:
    connection.execute(insert(open_intents).values(seq=3, writer="w_" + "0" * 20))


@pytest.mark.parametrize(
    ("tamper", "kind", "seq"),
    [
        (edit_payload, "edited", 5),
        (edit_payload_and_leaf, "forked", 5),
        (edit_with_all_that_follows, "edited", None),
        (edit_last, "edited", None),
        (garble, "edited", 5),
        (renumber, "edited", 5),
        (swap_payloads, "reordered", 4),
        (swap_rows, "reordered", 4),
        (delete_row, "missing", 5),
        (delete_row_and_close_the_gap, "reordered", 5),
        (truncate, "truncated", 10),
        (empty, "truncated", 0),
        (add_row, "reordered", 13),
        (add_fitting_row, "forked", 13),
        (add_row_before, "forked", -1),
        (edit_prev, "forked", 4),
        (foreign_record, "edited", 5),
        (edit_column, "edited", 5),
        (edit_time, "edited", 5),
        (hide_document, "edited", 5),
        (hide_reader, "edited", 5),
        (add_document, "edited", 5),
        (add_document_beyond, "edited", SIZE),
        (edit_root, "edited", None),
        (edit_frontier, "edited", None),
        (hide_open_intent, "edited", 12),
        (invent_open_intent, "edited", 3),
    ],
)
def test_every_change_is_found_at_its_position(
    filled: AuditLog, tamper: Callable[[Connection], None], kind: str, seq: int | None
) -> None:
    assert verify(filled).ok
    with filled.database.writing() as connection:
        tamper(connection)
    finding = verify(filled).finding
    assert finding is not None
    assert (finding.kind, finding.seq) == (kind, seq)


def test_an_honest_log_reports_its_head(filled: AuditLog) -> None:
    found = verify(filled)
    assert (found.ok, found.size, found.in_flight, found.recovered) == (True, SIZE, 1, 0)
    assert found.root == filled.head().root


def test_a_rewritten_log_verifies_and_only_its_root_tells(filled: AuditLog) -> None:
    """Whoever holds the key can rewrite everything: that is why a root must be kept elsewhere."""
    before = filled.head().root
    with filled.database.writing() as connection:
        frontier, prev = Frontier(), genesis(filled.log_id)
        for seq in range(SIZE):
            payload = payload_at(connection, seq).replace(b'"r2"', b'"rX"')
            leaf = leaf_hash(payload)
            put(connection, seq, payload=payload, leaf=leaf, prev=prev, request=decode(payload).request.id)
            frontier.append(leaf)
            prev = leaf
        connection.execute(update(head).values(frontier=frontier.to_bytes(), root=frontier.root(), last_leaf=prev))
    assert verify(filled).ok
    assert verify(filled).root != before


def test_an_outcome_of_no_open_intent_is_found(filled: AuditLog) -> None:
    made = Draft(
        action="answer", phase="outcome", outcome="allowed", intent=3, actor=Actor(kind="anonymous"),
        request=Request(id="r"),
    )  # fmt: skip
    seq = filled.append(lambda: made)
    finding = verify(filled).finding
    assert finding is not None
    assert (finding.kind, finding.seq) == ("unmatched", seq)


def test_verification_crosses_its_pages(filled: AuditLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("audit.verify._PAGE", 4)
    assert verify(filled).ok
    with filled.database.writing() as connection:
        assert connection.execute(select(func.count()).select_from(events)).scalar_one() == SIZE
        edit_payload(connection)
    finding = verify(filled).finding
    assert finding is not None
    assert finding.seq == 5


def test_an_event_keeps_its_bytes_when_it_is_read_and_written_again(filled: AuditLog) -> None:
    with filled.database.reading() as connection:
        for seq in range(SIZE):
            assert encode(decode(payload_at(connection, seq))) == payload_at(connection, seq)
