"""Every command of the command line, once: what changes something is on record, and no record holds a secret.

The commands are found in the program itself, so that a new one without a step here fails. Routes are walked likewise in
`test_routes.py`.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from cyclopts import App
from sqlalchemy import select

from audit.log import AuditLog
from audit.record import Event, decode
from audit.tables import events
from audit.verify import verify
from service.cli import app, run
from service.control import Control, open_from
from tenancy import schema
from tests.audit.secret_patterns import secrets_in
from tests.service.conftest import _MEMORY
from tests.service.test_adapters import pools
from tests.support.lora import write_adapter
from tests.support.scores import any_model_score

pytestmark = pytest.mark.slow

ELSEWHERE = {
    "serve": "serves requests, each with its own event: test_routes.py",
    "attest": "asks a running service: tests/attest",
}
T = ("--tenant", "acme")
ASKED = ("ask", "How long is the notice period?", *T, "--user")
ADAPTERS = {
    "STRONGROOM_GENERATION__POOLS": pools(main={"replicas": ["http://127.0.0.1:9"]}),
    "STRONGROOM_GENERATION__ROUTING": '{collection = ["main"]}',
}


@dataclass(frozen=True)
class Step:
    """One command. `action` is what its event is called, None for one that reads and changes nothing; the log is the
    tenant's, or the system's. What exit `code` None stands for depends on the machine. `keep` remembers what it printed
    (JSON) under the command's name.
    """

    words: tuple[str, ...]
    action: str | None
    outcome: str = "allowed"
    system: bool = False
    code: int | None = 0
    environment: dict[str, str] = field(default_factory=dict)
    keep: bool = False


def reads(*words: str, **more: Any) -> Step:
    return Step(words, None, **more)


def does(action: str, *words: str, **more: Any) -> Step:
    return Step(words, action, **more)


# In braces: what an earlier step printed, or a file of the folder.
STEPS: Sequence[Step] = (
    reads("master", "create", "{folder}/other.key"),
    reads("master", "recovery-key", "{folder}/recovery.key"),
    reads("master", "show"),
    reads("doctor", code=None),
    does("tenant.create", "tenant", "create", "acme", system=True),
    reads("tenant", "list"),
    reads("tenant", "show", "acme"),
    does("key.create", "key", "create", *T, "--user", "ana", "--group", "staff", "--role", "reader", keep=True),
    does("key.create", "key", "create", *T, "--user", "bo"),
    does("key.create", "key", "create", *T, "--user", "cy", keep=True),
    reads("key", "list", *T),
    does("group.add", "group", "add", "staff", "bo", *T),
    does("group.remove", "group", "remove", "staff", "bo", *T),
    reads("group", "list", *T),
    does("group.import", "group", "import", "{folder}/groups.csv", *T),
    reads("group", "status", *T),
    does("ingest", "ingest", "{folder}/docs", *T, "--allow", "tenant"),
    does("document.list", "document", "list", *T),
    does("document.show", "document", "show", "notice.md", *T),
    does("acl.set", "acl", "set", "notice.md", *T, "--allow", "tenant", "--deny", "user:bo"),
    reads("acl", "show", "notice.md", *T),
    does("acl.sweep", "acl", "sweep", *T),
    does("answer", *ASKED, "ana"),
    does("answer", *ASKED, "ana", keep=True),
    does("answer", *ASKED, "cy"),
    does("eval.save", "eval", "save", "{folder}/set.jsonl", *T),
    does("eval.sets", "eval", "sets", *T),
    does("eval.run", "eval", "run", "{folder}/set.jsonl", *T, keep=True),
    does("eval.list", "eval", "list", *T),
    does("eval.show", "eval", "show", "{run}", *T),
    does("eval.compare", "eval", "compare", "{run}", "{run}", *T),
    does("eval.shadow", "eval", "shadow", "--change", "{folder}/change.toml", *T),
    does("eval.generate", "eval", "generate", "{folder}/starter.jsonl", *T, "--asker", "ana", "--count", "1"),
    does("eval.drift", "eval", "drift", *T),
    does("cache.stats", "cache", "stats", *T),
    does("cache.inspect", "cache", "inspect", *T, keep=True),
    does("cache.explain", "cache", "explain", "How long?", *T, "--user", "ana"),
    does("cache.open", "cache", "open", *T, "--threshold", "0.9", "--reason", "trial", "--uncertified"),
    does("cache.close", "cache", "close", *T),
    does("cache.suspend", "cache", "suspend", *T, "--reason", "look into it"),
    does("cache.resume", "cache", "resume", *T, "--reason", "it was fine"),
    does("cache.certificate", "cache", "certificate", *T),
    does("cache.reports", "cache", "reports", *T),
    does("cache.confirm", "cache", "confirm", *T, "--answer", "0" * 32, "--reason", "x", outcome="refused", code=1),
    does("cache.repair", "cache", "repair", *T),
    does("audit.query", "audit", "query", *T, keep=True),
    does("audit.report", "audit", "report", "document", "notice.md", *T),
    does("audit.report", "audit", "report", "subject", "ana", *T),
    does("audit.report", "audit", "report", "cache-entry", "{entry}", *T),
    does("audit.report", "audit", "report", "denied", *T),
    does("audit.report", "audit", "report", "deletions", *T),
    does("audit.report", "audit", "report", "attestations", *T),
    does("audit.replay", "audit", "replay", *T),
    reads("audit", "verify", *T),
    does("audit.keys", "audit", "key", *T),
    does("audit.rotate_key", "audit", "rotate-key", *T),
    does("audit.checkpoint", "audit", "checkpoint", *T),
    does("audit.prove", "audit", "prove", "--seq", "0", *T),
    does("audit.export", "audit", "export", "{folder}/exported", *T),
    does("audit.hold", "audit", "hold", *T, "--reason", "case 7", keep=True),
    does("audit.holds", "audit", "holds", *T),
    does("audit.release", "audit", "release", "{audit hold}", *T),
    does("audit.retention", "audit", "prune", *T),
    does("lineage.query", "lineage", *T),
    does("usage.query", "usage", "report", *T),
    does(
        "usage.correct",
        "usage",
        "correct",
        "none.0.embed",
        *T,
        "--microunits",
        "1",
        "--why",
        "x",
        outcome="refused",
        code=1,
    ),
    does("usage.query", "usage", "list", *T),
    does("usage.rebuild", "usage", "rebuild", *T, outcome="refused", code=1),
    reads("usage", "reconcile", *T),
    does("cache.invalidate", "cache", "invalidate", *T, "--all"),
    does("template.add", "template", "add", "plain", "{folder}/template.txt", *T),
    does("template.list", "template", "list", *T),
    does("template.show", "template", "show", "plain", *T),
    does("template.preview", "template", "preview", "How long?", *T, "--user", "ana"),
    does("template.withdraw", "template", "withdraw", "plain", *T),
    does("adapter.add", "adapter", "add", "voice", "{folder}/voice", *T, environment=ADAPTERS),
    does("adapter.list", "adapter", "list", *T, environment=ADAPTERS),
    does("adapter.show", "adapter", "show", "voice", *T, environment=ADAPTERS),
    does("adapter.revoke", "adapter", "revoke", "voice", *T, environment=ADAPTERS),
    reads("tenant", "contract", "show", "acme"),
    does("tenant.contract", "tenant", "contract", "set", "acme", "--empty"),
    does("tenant.move", "tenant", "move", "acme", "--engine", "faiss", "--model", "hashing:64"),
    reads("tenant", "moves", "acme"),
    does("tenant.rollback", "tenant", "rollback", "acme"),
    does("tenant.confirm", "tenant", "confirm", "acme"),
    does("tenant.rotate_key", "tenant", "rotate-key", "acme"),
    does("tenant.backup", "backup", "{folder}/acme.backup", *T),
    does("tenant.export", "export", "{folder}/open", *T),
    does("tenant.restore", "restore", "{folder}/acme.backup", "--as", "copy", system=True),
    does("user.hold", "user", "hold", "ana", *T, "--reason", "case 8"),
    does("user.erase", "user", "erase", "cy", *T, "--yes"),
    does("user.receipts", "user", "receipts", *T),
    does("user.delete", "user", "delete", "bo", *T),
    does("key.revoke", "key", "revoke", "{key create}", *T),
    does("document.delete", "document", "delete", "notice.md", *T),
    does("tenant.suspend", "tenant", "suspend", "acme"),
    does("tenant.resume", "tenant", "resume", "acme"),
    does("tenant.delete", "tenant", "delete", "copy", "--yes", system=True),
    reads("tenant", "certificate", "copy"),
    does("master.rotate", "master", "rotate", "--new-key-file", "{folder}/other.key", system=True),
)


def leaves(group: App, path: tuple[str, ...] = ()) -> Iterator[str]:
    for name in group:
        if name.startswith("-"):
            continue
        if [below for below in group[name] if not below.startswith("-")]:
            yield from leaves(group[name], (*path, name))
        else:
            yield " ".join((*path, name))


COMMANDS = frozenset(leaves(app))


def command_of(step: Step) -> str:
    """The longest beginning of its words that is a command."""
    return next(name for size in range(len(step.words), 0, -1) if (name := " ".join(step.words[:size])) in COMMANDS)


@dataclass
class Walked:
    """What each step left: exit code, standard error, its events, and whether it changed a row."""

    codes: dict[int, tuple[int, str]]
    left: dict[int, list[Event]]
    changed: dict[int, bool]
    payloads: list[bytes]
    secrets: list[bytes]
    findings: list[Any]


class Walk:
    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self._patch = patch
        self._kept: dict[str, str] = {"folder": str(folder)}
        self._secrets: list[bytes] = []

    def run(self, words: Sequence[str]) -> tuple[int, str, str]:
        out, err = StringIO(), StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = run([*(word.format_map(self._kept) for word in words), "--json"])
        return code, out.getvalue(), err.getvalue()

    def all(self) -> Walked:
        found = Walked({}, {}, {}, [], self._secrets, [])
        code, _, err = self.run(("doctor", "--create-master-key"))
        assert code == 0, err
        watching = open_from(None)
        try:
            for number, step in enumerate(STEPS):
                before, rows = self._sizes(watching), self._rows(watching)
                with self._patch.context() as patch:
                    for name, value in step.environment.items():
                        patch.setenv(name, value)
                    code, out, err = self.run(step.words)
                found.codes[number] = (code, err)
                log = self._log(watching, step)
                found.left[number] = [decode(one) for one in payloads(log, before.get(log.log_id, 0))] if log else []
                found.changed[number] = rows != self._rows(watching)
                if step.keep and code == step.code:
                    self._keep(command_of(step), json.loads(out))
            for tenant_id in self._sizes(watching):
                log = watching.logs.of_id(tenant_id)
                found.payloads += payloads(log, 0)
                found.findings.append(verify(log).finding)
        finally:
            watching.close()
        keys = (self.folder / name for name in ("master.key", "other.key", "recovery.key"))
        self._secrets += [line for key in keys for line in key.read_bytes().splitlines() if len(line) > 20]
        return found

    def _keep(self, command: str, printed: Any) -> None:
        if command == "key create":
            self._secrets.append(printed["key"].split("_")[3].encode())
            self._kept.setdefault(command, printed["id"])
        elif command == "eval run":
            self._kept["run"] = printed["run"]
        elif command == "cache inspect":
            self._kept["entry"] = printed[0]["id"]
        elif command == "audit hold":
            self._kept[command] = printed["id"]

    def _log(self, watching: Control, step: Step) -> AuditLog | None:
        if step.system:
            return watching.logs.of(None)
        known = {record.name: record.id for record in watching.tenants.listed()}
        return watching.logs.of_id(known["acme"]) if "acme" in known else None

    def _sizes(self, watching: Control) -> dict[str, int]:
        logs = [watching.logs.of(None), *(watching.logs.of_id(record.id) for record in watching.tenants.listed())]
        return {log.log_id: log.head().size for log in logs}

    def _rows(self, watching: Control) -> list[Any]:
        """Every row of the control plane and of the tenants' databases."""
        with watching.tenants._control.reading() as connection:
            found: list[Any] = [
                sorted(map(repr, connection.execute(select(table)).all())) for table in schema.control.sorted_tables
            ]
        for record in watching.tenants.listed():
            if record.status == "active":
                with watching.tenants.open(watching.authenticator.operator(record.name)).reading() as view:
                    found += [sorted(map(repr, view.execute(select(one)).all())) for one in schema.tenant.sorted_tables]
        return found


def payloads(log: AuditLog, since: int) -> list[bytes]:
    with log.database.reading() as connection:
        return [
            bytes(payload)
            for payload in connection.execute(
                select(events.c.payload).where(events.c.seq >= since).order_by(events.c.seq)
            ).scalars()
        ]


@pytest.fixture(scope="module")
def walked() -> Iterator[Walked]:
    with (
        tempfile.TemporaryDirectory(dir=_MEMORY, prefix="strongroom-test-") as name,
        pytest.MonkeyPatch.context() as patch,
    ):
        folder = Path(name)
        for variable, value in {
            "DATA_DIR": str(folder / "data"),
            "MASTER_KEY_FILE": str(folder / "master.key"),
            "EMBEDDING__MODEL": "hashing:256",
            "EMBEDDING__ALSO": '["hashing:64"]',
            "GENERATION__ADAPTERS_DIR": str(folder / "engines"),
        }.items():
            patch.setenv(f"STRONGROOM_{variable}", value)
        patch.setattr("service.wiring.default_score", any_model_score)
        (folder / "docs").mkdir()
        (folder / "docs" / "notice.md").write_text("The notice period is three months.")
        (folder / "set.jsonl").write_text(
            '{"question": "How long is the notice period?", "documents": ["notice.md"], "asker": "ana"}\n'
        )
        (folder / "groups.csv").write_text("group,member\nstaff,ana\nstaff,bo\n")
        (folder / "change.toml").write_text("[retrieval]\nthreshold = 0.3\n")
        (folder / "template.txt").write_text("Answer from the sources alone. Cite each source.")
        write_adapter(folder / "voice")
        yield Walk(folder, patch).all()


def test_every_command_has_a_step() -> None:
    assert {command_of(step) for step in STEPS} | set(ELSEWHERE) == COMMANDS


@pytest.mark.parametrize("number", range(len(STEPS)), ids=lambda number: f"{number} {command_of(STEPS[number])}")
def test_what_a_command_does_is_on_record(walked: Walked, number: int) -> None:
    step, (code, err) = STEPS[number], walked.codes[number]
    assert step.code in (None, code), err
    if step.action is None:
        assert not walked.changed[number]
        return
    mine = [event for event in walked.left[number] if event.action == step.action]
    assert [event.phase for event in mine] == ["intent", "outcome"]
    assert (mine[1].intent, mine[1].outcome, mine[1].actor.kind) == (
        mine[0].seq, step.outcome, "anonymous" if step.system else "operator",
    )  # fmt: skip


def test_the_steps_that_are_said_to_change_something_do_so_where_it_can_be_seen(walked: Walked) -> None:
    """The control of the one above: changed rows are noticed."""
    changed = {command_of(STEPS[number]) for number, value in walked.changed.items() if value}
    assert {"tenant create", "key create", "group add", "acl set", "ingest", "cache open", "user delete"} <= changed


def test_no_event_of_the_walk_holds_a_secret(walked: Walked) -> None:
    assert len(walked.payloads) > 120
    assert len(walked.secrets) >= 4
    assert [found for payload in walked.payloads for found in secrets_in(payload)] == []
    assert [secret for secret in walked.secrets for payload in walked.payloads if secret in payload] == []


def test_no_event_of_the_walk_holds_what_a_person_wrote_or_is_called(walked: Walked) -> None:
    """Questions and names are ciphertext. (`staff` is a group: groups are in the clear.)"""
    told = (b"notice period", b"three months", b"How long", b'"ana"', b"user:", b"case 7")
    assert [word for word in told for payload in walked.payloads if word in payload] == []
    assert [payload for payload in walked.payloads if b"group:" in payload or b"staff" in payload] != []


def test_the_logs_verify_afterwards(walked: Walked) -> None:
    assert walked.findings == [None] * len(walked.findings)


def test_a_command_without_a_step_is_noticed() -> None:
    group: App = App(name="x")
    group.command(lambda: None, name="unheard")
    assert set(leaves(group)) - {command_of(step) for step in STEPS} == {"unheard"}
