"""kill -9 of a process that writes to the audit log: what was acknowledged is there, and the chain verifies."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from audit.log import AuditLog
from audit.logs import AuditLogs
from audit.query import Filters, query_log
from audit.record import Event, decode
from audit.verify import verify
from tenancy.control import Tenants
from tenancy.identity import Authenticator
from tests.support.people import Company

ROOT = Path(__file__).parents[2]
MANY = int(os.environ.get("TORTURE_KILLS", "20"))


def killed_under_load(data_dir: Path, acknowledgements: int) -> dict[int, str]:
    """Run a writer, kill it once so many records were acknowledged; returns all that it acknowledged."""
    command = [sys.executable, "-m", "tests.audit.load", str(data_dir), "requests", "16", "100000"]
    acked: dict[int, str] = {}
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        for line in child.stdout:
            words = line.decode().split()
            # A line that the kill cut short acknowledges nothing.
            if words[0] == "acked" and line.endswith(b"\n"):
                acked[int(words[1])] = words[2]
            if len(acked) == acknowledgements:
                child.kill()
    assert child.returncode == -9
    return acked


def all_events(log: AuditLog) -> list[Event]:
    found: list[Event] = []
    after = None
    while True:
        page = query_log(log, Filters(order="asc"), limit=1000, after=after)
        found += [decode(stored.payload) for stored in page.events]
        if page.cursor is None:
            return found
        after = page.cursor


@pytest.mark.parametrize("kills", [3, pytest.param(MANY, marks=pytest.mark.slow)])
def test_no_acknowledged_record_is_lost(
    kills: int, tenants: Tenants, acme: Company, authenticator: Authenticator
) -> None:
    seed = random.randrange(2**32)
    moments = random.Random(seed)
    acked: dict[int, str] = {}
    for _ in range(kills):
        acked |= killed_under_load(tenants.data_dir, moments.randrange(1, 400))
    logs = AuditLogs(tenants)
    log = logs.of(authenticator.operator(acme.name))
    left_open = verify(log)
    assert left_open.ok or (left_open.finding and left_open.finding.kind == "unsettled"), f"seed {seed}"
    assert verify(log, recover=True).ok, f"seed {seed}"

    events = all_events(log)
    intents = {event.seq: event.request.id for event in events if event.phase == "intent"}
    assert acked.items() <= intents.items(), f"seed {seed}"
    outcomes = [event for event in events if event.phase == "outcome"]
    assert sorted(event.intent for event in outcomes if event.intent is not None) == sorted(intents)
    assert {(event.outcome, event.reason) for event in outcomes} <= {("allowed", None), ("aborted", "recovered")}
    logs.close()
