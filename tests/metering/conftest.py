from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
import pytest

from audit.log import AuditLog
from audit.logs import AuditLogs
from metering.ledger import UsageLedger
from tenancy.control import Tenants
from tests.metering.traffic import Day
from tests.support.people import Company

Write = Callable[[Day], None]


@pytest.fixture
def logs(tenants: Tenants) -> Iterator[AuditLogs]:
    made = AuditLogs(tenants, deadline_s=60.0)
    yield made
    made.close()


@pytest.fixture
def log(logs: AuditLogs, acme: Company) -> AuditLog:
    return logs.of(acme.principal("ana"))


@pytest.fixture
def ledger(log: AuditLog) -> UsageLedger:
    return UsageLedger(log)


@pytest.fixture
def write(log: AuditLog) -> Write:
    """Puts a day's records into the log, in one transaction."""

    def written(day: Day) -> None:
        intents: dict[str, int] = {}
        with log.database.writing() as connection:
            for draft, is_intent in day.drafts:
                opened = None if is_intent else intents[draft.request.id]
                (seq,) = log.append_in(connection, [msgspec.structs.replace(draft, intent=opened)])
                if is_intent:
                    intents[draft.request.id] = seq

    return written
