"""An audit log of an older version becomes what a new one is, and its past is found, proved and reported."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import insert, text
from sqlalchemy.engine import Connection

from audit.filters import Filters
from audit.log import AuditLog, genesis
from audit.logs import AuditLogs
from audit.merkle import Frontier, leaf_hash
from audit.proofs import inclusion, verify_inclusion
from audit.query import query_log
from audit.record import Actor, Draft, Request, Resource, encode, stamp
from audit.reports.document import document_report
from audit.reports.frame import Asked
from audit.tables import AUDIT_FILE, columns
from audit.verify import verify
from tenancy.control import Tenants
from tenancy.identity import Authenticator
from tests.audit import version_1
from tests.audit.test_record import WRITER

SIZE = 600


def records(log_id: str) -> Callable[[Connection], None]:
    """Fills a new log of version 1: one record a second from 1000.0 on, each about one of three documents."""

    def seed(connection: Connection) -> None:
        frontier, prev = Frontier(), genesis(log_id)
        for seq in range(SIZE):
            draft = Draft(
                action="answer", phase="outcome", outcome="refused" if seq % 7 == 0 else "allowed",
                actor=Actor(kind="user", ref=f"u_{seq % 2}"), request=Request(id=f"r{seq}"),
                resources=(Resource(document=f"d{seq % 3}", stage="cited"),),
            )  # fmt: skip
            event = stamp(draft, seq=seq, now=1_000.0 + seq, log=log_id, writer=WRITER)
            payload = encode(event)
            leaf = leaf_hash(payload)
            row = {**columns(event), "payload": payload, "leaf": leaf, "prev": prev}
            connection.execute(insert(version_1.events).values(row))
            connection.execute(insert(version_1.event_documents).values(document=f"d{seq % 3}", seq=seq, stage="cited"))
            frontier.append(leaf)
            prev = leaf
        state = {"size": SIZE, "frontier": frontier.to_bytes(), "root": frontier.root(), "last_leaf": prev}
        connection.execute(insert(version_1.head).values(one=1, **state))

    return seed


@pytest.fixture
def migrated(open_tenants: Callable[[], Tenants]) -> AuditLog:
    old = open_tenants()
    old.create("acme")
    files = old.audit_files(Authenticator(old).operator("acme"))
    with files.database(AUDIT_FILE, version_1.metadata, seed=records(files.tenant_id)).reading():
        pass
    new = open_tenants()
    return AuditLogs(new).of(Authenticator(new).operator("acme"))


@pytest.mark.both_storages
def test_version_1_verifies_and_its_past_is_found_proved_and_reported(migrated: AuditLog) -> None:
    assert verify(migrated).finding is None
    page = query_log(migrated, Filters(since=1_100.0, until=1_106.0, order="asc", actor="u_1"))
    assert [one.seq for one in page.events] == [101, 103, 105]
    head = migrated.head()
    for seq in (0, 255, 256, SIZE - 1):
        path = inclusion(migrated, seq, SIZE)
        stored = query_log(migrated, Filters(request=f"r{seq}")).events[0]
        assert verify_inclusion(leaf_hash(stored.payload), seq, SIZE, path, head.root)
    people = document_report(migrated, "d1", Asked()).tables["people"].rows
    assert {(row["actor"], row["cited"] + row["refused"]) for row in people} == {("u_0", 100), ("u_1", 100)}


def test_version_1_gets_the_shape_of_a_new_log(migrated: AuditLog, logs: AuditLogs) -> None:
    def shape(log: AuditLog) -> dict[str, object]:
        with log.database.reading() as connection:
            names = connection.execute(text("SELECT name FROM sqlite_master WHERE type = 'table'")).scalars().all()
            return {
                name: [
                    connection.exec_driver_sql(query, (name,)).all()
                    for query in (
                        'SELECT name, type, "notnull", pk FROM pragma_table_info(?)',
                        "SELECT l.name, i.name FROM pragma_index_list(?) l JOIN pragma_index_info(l.name) i ORDER BY 1",
                    )
                ]
                for name in names
            }

    assert shape(migrated) == shape(logs.of(None))
