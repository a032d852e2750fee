"""No false alarm in honest runs: CI does a few, `make honest` a thousand on each database."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from audit.logs import AuditLogs
from tenancy.control import Tenants
from tenancy.identity import Authenticator
from tests.audit.honest import RECORDS, Tally, run

ROOT = Path(__file__).parents[2]
RUNS = int(os.environ.get("HONEST_RUNS", "20"))


@pytest.fixture
def logs(tenants: Tenants) -> Iterator[AuditLogs]:
    """As patient as those of the other process: a disk that stands still for seconds is no finding about a log."""
    made = AuditLogs(tenants, deadline_s=60.0)
    yield made
    made.close()


@pytest.mark.both_storages
@pytest.mark.slow
@pytest.mark.timeout(max(300, 6 * RUNS))
def test_honest_runs_raise_no_alarm(
    tenants: Tenants, logs: AuditLogs, authenticator: Authenticator, storage: str
) -> None:
    tally = Tally()
    command = [sys.executable, "-m", "tests.audit.honest", str(tenants.data_dir), *([storage] if storage else [])]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        for number in range(RUNS):
            name = f"run-{number}"
            tenants.create(name)
            log = logs.of(authenticator.operator(name))
            child.stdin.write(f"{name}\n")
            child.stdin.flush()
            run(log, name, tally, child.stdout.readline)
            logs.forget(log.log_id)
            if number % 50 == 49:
                sys.stdout.write(f"\n{'PostgreSQL' if storage else 'SQLite'}: {tally}")
                sys.stdout.flush()
        child.stdin.close()
    assert child.returncode == 0
    sys.stdout.write(f"\n{'PostgreSQL' if storage else 'SQLite'}: {tally}\n")
    assert tally.alarms == []
    assert tally.runs == RUNS
    assert tally.records >= RUNS * RECORDS
