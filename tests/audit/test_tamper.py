"""The tamper table, for both databases: verdict and first bad position of each case. `pytest -s` prints it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from sqlcipher3 import dbapi2 as driver

from audit.checkpoints import at
from audit.log import AuditLog
from audit.logs import AuditLogs
from audit.tables import AUDIT_FILE
from audit.verify import verify
from tenancy.control import Tenants
from tenancy.identity import Principal
from tests.audit.tampering import CASES, SIZE, Case, after, fill


def said(case: Case, log: AuditLog) -> Case:
    """The case with what verification says."""
    known = [] if case.kept is None else [at(log, case.kept)]
    finding = after(log, case.tamper, [one for one in known if one is not None]).finding
    return replace(case, kind=finding and finding.kind, seq=finding and finding.seq)


@pytest.mark.both_storages
@pytest.mark.slow
def test_the_tamper_table(log: AuditLog, storage: str) -> None:
    fill(log)
    assert verify(log).ok
    assert verify(log).size == SIZE
    found = [said(case, log) for case in CASES]
    place = "PostgreSQL" if storage else "SQLite"
    lines = [
        f"{place:10}  {case.name:42}  {case.kind or 'ok':10}  {'-' if case.seq is None else case.seq}" for case in found
    ]
    sys.stdout.write("\n" + "\n".join(lines) + "\n")
    assert found == list(CASES)
    # All was undone, and the log goes on.
    assert verify(log).ok


def closed(logs: AuditLogs, ana: Principal) -> AuditLog:
    """The log, written and closed: nothing of it is in memory."""
    log = logs.of(ana)
    fill(log)
    logs.forget(log.log_id)
    return log


def path_of(log: AuditLog) -> Path:
    return log.files.directory / AUDIT_FILE


def test_bytes_of_the_file_edited_by_hand(tenants: Tenants, logs: AuditLogs, ana: Principal) -> None:
    log = closed(logs, ana)
    tenants.close()
    path = path_of(log)
    data = bytearray(path.read_bytes())
    assert len(data) > 20 * 4096
    for place in range(5 * 4096, len(data), 4096):
        data[place + 100] ^= 1
    path.write_bytes(data)
    finding = verify(log).finding
    assert finding is not None
    assert (finding.kind, finding.reason) == ("edited", "the file is damaged")


def edit_with_the_files_key(log: AuditLog, tenants: Tenants, url: str) -> None:
    tenants.close()
    with driver.connect(path_of(log)) as connection:
        connection.execute(f"PRAGMA key = \"x'{log.files.purpose(f'file/{AUDIT_FILE}').hex()}'\"")
        changed = connection.execute(
            "UPDATE events SET payload = CAST(replace(CAST(payload AS TEXT), 'allowed', 'refused') AS BLOB) "
            "WHERE seq = 205"
        )
        assert changed.rowcount == 1
        connection.commit()


def edit_as_the_servers_owner(log: AuditLog, tenants: Tenants, url: str) -> None:
    with psycopg.connect(url) as connection:
        changed = connection.execute(
            f"UPDATE sr_audit_{log.log_id}.events SET payload = "
            "convert_to(replace(convert_from(payload, 'UTF8'), 'allowed', 'refused'), 'UTF8') WHERE seq = 205"
        )
        assert changed.rowcount == 1


@pytest.mark.both_storages
def test_the_database_edited_by_hand(tenants: Tenants, logs: AuditLogs, ana: Principal, storage: str) -> None:
    log = closed(logs, ana)
    assert verify(log).ok
    edit: Callable[[AuditLog, Tenants, str], None] = edit_as_the_servers_owner if storage else edit_with_the_files_key
    edit(log, tenants, storage)
    finding = verify(log).finding
    assert finding is not None
    assert (finding.kind, finding.seq) == ("edited", 205)
