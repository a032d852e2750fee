from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import select

from audit.log import AuditLog
from audit.logs import AuditLogs
from audit.record import Event, decode
from audit.tables import events
from audit.trail import AuditTrail
from tenancy.control import Tenants
from tenancy.identity import Authenticator, Principal
from tests.audit.secret_patterns import secrets_in
from tests.support.people import Company

ReadAll = Callable[[AuditLog], list[Event]]


def payloads(log: AuditLog) -> list[bytes]:
    with log.database.reading() as connection:
        return list(connection.execute(select(events.c.payload).order_by(events.c.seq)).scalars())


@pytest.fixture
def logs(tenants: Tenants) -> Iterator[AuditLogs]:
    """Real logs; when the test is over, every record that it left is searched for secrets."""
    made = AuditLogs(tenants, deadline_s=10.0)
    yield made
    opened = list(made._logs.values())
    made.close()
    for log in opened:
        assert not [found for payload in payloads(log) for found in secrets_in(payload)]


@pytest.fixture
def trail(logs: AuditLogs) -> AuditTrail:
    return AuditTrail(logs)


@pytest.fixture
def ana(acme: Company) -> Principal:
    return acme.principal("ana")


@pytest.fixture
def log(logs: AuditLogs, ana: Principal) -> AuditLog:
    return logs.of(ana)


@pytest.fixture
def operator(acme: Company, authenticator: Authenticator) -> Principal:
    return authenticator.operator(acme.name)


@pytest.fixture
def read_all() -> ReadAll:
    def read(log: AuditLog) -> list[Event]:
        log.flush()
        return [decode(payload) for payload in payloads(log)]

    return read
