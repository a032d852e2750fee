"""Recovery opens the logs that a process may have left intents in, and no other."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from audit.log import AuditLog
from audit.logs import AuditLogs
from audit.marks import Marks
from audit.record import Actor, Draft, Policy, Request
from tenancy.control import Tenants
from tenancy.identity import Authenticator, Principal
from tenancy.keys import MasterKey
from tenancy.presence import FilePresence
from tests.audit.conftest import ReadAll
from tests.support.people import Company

ROOT = Path(__file__).parents[2]
MASTER = MasterKey(bytes(range(32)))


def intent() -> Draft:
    return Draft(
        action="answer",
        phase="intent",
        actor=Actor(kind="user", ref="u_1"),
        request=Request(id="r"),
        policy=Policy(domain="pd_1"),
    )


def outcome(of: int) -> Draft:
    return Draft(
        action="answer", phase="outcome", outcome="answered", intent=of,
        actor=Actor(kind="user", ref="u_1"), request=Request(id="r"), policy=Policy(domain="pd_1"),
    )  # fmt: skip


def marked(logs: AuditLogs) -> list[str]:
    return logs.live.marked(logs.live.id)


def test_a_log_is_marked_before_its_first_intent_and_until_its_last_outcome(logs: AuditLogs, log: AuditLog) -> None:
    assert marked(logs) == []
    first, second = log.append(intent), log.append(intent)
    assert marked(logs) == [log.log_id]
    log.append(partial(outcome, first))
    logs.settle()
    assert marked(logs) == [log.log_id]
    log.append(partial(outcome, second))
    assert marked(logs) == [log.log_id]
    logs.settle()
    assert marked(logs) == []
    log.append(partial(outcome, log.append(intent)))
    assert marked(logs) == [log.log_id]


def test_the_mark_is_there_before_the_intent(logs: AuditLogs, log: AuditLog, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    mark = logs.live.mark
    monkeypatch.setattr(logs.live, "mark", lambda log_id: (sizes.append(log.head().size), mark(log_id)))
    log.append(intent)
    assert sizes == [0]


def test_an_intent_whose_mark_cannot_be_made_is_refused(
    logs: AuditLogs, log: AuditLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: str) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(logs.live, "mark", full)
        with pytest.raises(Exception, match="could not be written"):
            log.append(intent)
    assert (log.head().size, marked(logs)) == (0, [])
    assert log.append(intent) == 0
    assert marked(logs) == [log.log_id]


def test_records_without_an_intent_leave_no_mark(logs: AuditLogs, log: AuditLog) -> None:
    log.append(lambda: Draft(
        action="key.create", phase="outcome", outcome="answered",
        actor=Actor(kind="user", ref="u_1"), request=Request(id="r"), policy=Policy(),
    ))  # fmt: skip
    assert marked(logs) == []


def test_who_closes_with_everything_settled_leaves_nothing_behind(tenants: Tenants, ana: Principal) -> None:
    left, clean = AuditLogs(tenants), AuditLogs(tenants)
    clean.of(ana).append(partial(outcome, clean.of(ana).append(intent)))
    left.of(ana).append(intent)
    clean.close()
    left.close()
    watcher = tenants.storage.presence()
    assert watcher.ended() == [left.live.id]
    assert watcher.marked(left.live.id) == [ana.tenant_id]
    watcher.close()


def test_a_directory_from_before_marks_is_walked_once(
    tenants: Tenants, acme: Company, globex: Company, read_all: ReadAll
) -> None:
    old = AuditLogs(tenants)
    old.of(globex.principal("ana")).append(intent)
    old.close()
    shutil.rmtree(tenants.data_dir / "live")
    logs = AuditLogs(tenants)
    found = dict(logs.recover())
    assert found == {"system": 0, acme.handle.tenant_id: 0, globex.handle.tenant_id: 1}
    assert dict(logs.recover()) == {}
    logs.close()


def test_a_new_directory_is_not_walked(tmp_path: Path) -> None:
    first = FilePresence(tmp_path)
    assert first.walked()
    first.close()
    (tmp_path / "older" / "audit").mkdir(parents=True)
    older = FilePresence(tmp_path / "older")
    assert not older.walked()
    older.close()


def test_a_log_that_cannot_be_recovered_is_tried_again(
    tenants: Tenants, acme: Company, globex: Company, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = AuditLogs(tenants)
    for company in (acme, globex):
        left.of(company.principal("ana")).append(intent)
    left.close()
    logs = AuditLogs(tenants)
    path = tenants.data_dir / "audit" / globex.handle.tenant_id / "audit.sqlite"
    tenants._pools.close()
    content = path.read_bytes()
    path.write_bytes(b"damaged" * 1000)
    first = dict(logs.recover())
    assert first[acme.handle.tenant_id] == 1
    assert isinstance(first[globex.handle.tenant_id], Exception)
    path.write_bytes(content)
    assert dict(logs.recover()) == {acme.handle.tenant_id: 0, globex.handle.tenant_id: 1}
    assert dict(logs.recover()) == {}
    logs.close()


KILLED = """
import os, sys
from functools import partial
from pathlib import Path
from audit.logs import AuditLogs
from tenancy.control import Tenants
from tenancy.identity import Authenticator
from tests.audit.test_marks import MASTER, intent, outcome

tenants = Tenants(Path(sys.argv[1]), MASTER)
logs = AuditLogs(tenants)
authenticator = Authenticator(tenants)
for name in [record.name for record in tenants.listed()][:40]:
    log = logs.of(authenticator.operator(name))
    log.append(partial(outcome, log.append(intent)))
logs.settle()
for name in sys.argv[2:]:
    logs.of(authenticator.operator(name)).append(intent)
os.kill(os.getpid(), 9)
"""


@pytest.mark.slow
def test_after_kill_9_exactly_the_logs_with_open_intents_are_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenants = Tenants(tmp_path / "data", MASTER)
    for number in range(200):
        tenants.create(f"t{number:03d}")
    wanted = ["t003", "t077", "t199"]
    run = subprocess.run([sys.executable, "-c", KILLED, str(tenants.data_dir), *wanted], cwd=ROOT, check=False)
    assert run.returncode == -9
    again = Tenants(tmp_path / "data", MASTER)
    logs = AuditLogs(again)
    opened: list[str] = []
    database = type(again.storage).database
    monkeypatch.setattr(
        type(again.storage),
        "database",
        lambda self, place, *arguments, **named: (
            opened.append(place.owner), database(self, place, *arguments, **named)
        )[1],
    )  # fmt: skip
    found = dict(logs.recover())
    assert found == {again.show(name).id: 1 for name in wanted}
    assert set(opened) == set(found)
    assert dict(logs.recover()) == {}
    assert [path.name for path in os.scandir(tenants.data_dir / "live") if logs.live.id not in path.name] == ["walked"]
    logs.close()
    again.close()
    tenants.close()


def test_marks_of_several_logs_are_kept_apart(tenants: Tenants, acme: Company) -> None:
    presence = tenants.storage.presence()
    marks = Marks(presence)
    marks.opening("a", 2)
    marks.opening("b", 1)
    marks.opening("c", 0)
    marks.closed("a", 1)
    marks.closed("b", 1)
    marks.closed("never", 1)
    assert not marks.settle()
    assert presence.marked(presence.id) == ["a"]
    marks.closed("a", 1)
    assert marks.settle()
    assert (presence.marked(presence.id), len(marks)) == ([], 0)
    presence.close()


def test_idle_logs_leave_memory_and_come_back(
    tenants: Tenants, authenticator: Authenticator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("audit.logs.LOGS", 2)
    logs = AuditLogs(tenants)
    principals = []
    for number in range(6):
        tenants.create(f"t{number}")
        principals.append(authenticator.operator(f"t{number}"))
    held = logs.of(principals[0])
    for turn in range(3):
        assert [logs.of(principal).append(intent) for principal in principals] == [turn] * 6
    assert logs.of(principals[0]) is held
    held.flush()
    assert len(logs._logs.values()) <= 4
    logs.close()
