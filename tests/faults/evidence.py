"""A deployment with an audit log to lose, and what an auditor has of it: a public key, an old checkpoint, an export."""

from __future__ import annotations

import base64
import json
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import select

from audit import proofs
from audit.checkpoints import checkpoint, verify_note
from audit.export import export
from audit.log import AuditLog
from audit.offline.check import check
from audit.query import Filters, query_log, view
from audit.signers import public_keys
from audit.subject_tables import subject_keys
from audit.tables import events, signers
from audit.verify import verify
from metering.tables import USAGE_FILE
from service.control import Control, open_control
from service.settings import load_settings
from tenancy.deletion import verify as genuine
from tenancy.keys import MasterKey
from tenancy.storage import CONTROL_FILE
from tests.faults.deed import NEVER, Done, do
from tests.service.house import House
from tests.service.test_erasure import tables
from tests.support.pages import PAGE, contents
from tests.support.postgres import server

MASTER = bytes(range(32))
NAME = "ana.zanzibari"
CANARIES = (b"marzipan", NAME.encode())
OLD_S = 300 * 86_400.0


@dataclass(frozen=True, slots=True)
class World:
    """`folder` holds the data, over `url` where that is a database. `vkey` and `kept`, a checkpoint, are the auditor's;
    `wrapped` is the stored key of the texts of `NAME`, `signer` that of the log, `old` a record whose time is over.
    """

    folder: Path
    url: str
    vkey: str
    kept: str
    wrapped: bytes
    signer: bytes
    old: bytes
    deadline_s: int = 60

    @property
    def environment(self) -> dict[str, str]:
        return {
            "STRONGROOM_DATA_DIR": str(self.folder / "data"),
            "STRONGROOM_MASTER_KEY": base64.b64encode(MASTER).decode(),
            "STRONGROOM_EMBEDDING__MODEL": "hashing:64",
            "STRONGROOM_AUDIT__DEADLINE_S": str(self.deadline_s),
            **({"STRONGROOM_DATABASE__URL": self.url} if self.url else {}),
        }

    def do(self, *words: str | Path, kill_at: int = NEVER) -> Done:
        """One command, in a process of its own."""
        return do(self.folder, self.environment, *words, kill_at=kill_at)

    @contextmanager
    def opened(self) -> Iterator[Control]:
        """As another process has it."""
        with closing(open_control(load_settings(environment=self.environment), MasterKey(MASTER))) as control:
            yield control

    @contextmanager
    def copy(self, folder: Path) -> Iterator[World]:
        """The same once more, gone at the end. Nobody may have this one open."""
        shutil.copytree(self.folder, folder)
        made = replace(self, folder=folder)
        if not self.url:
            yield made
            shutil.rmtree(folder)
            return
        name, source = f"copy_{secrets.token_hex(6)}", str(conninfo_to_dict(self.url)["dbname"])
        target = sql.Identifier(name)
        with psycopg.connect(server().get_uri(), autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(target, sql.Identifier(source)))
            try:
                yield replace(made, url=server().get_uri(database=name).replace("postgres:@", "postgres@"))
            finally:
                connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(target))
                shutil.rmtree(folder)


def make(folder: Path, url: str = "") -> World:
    """Questions of a year ago and of today by two people, and what one of them said of an answer."""
    where = {"STRONGROOM_DATABASE__URL": url} if url else {}
    house = House(folder, STRONGROOM_EMBEDDING__MODEL="hashing:64", **where)
    control = house.services.control
    control.logs._clock = lambda: time.time() - OLD_S
    with house.client:
        house.put("acme", "notice.md", "The notice period is three months.", allow=["tenant"])
        house.put("acme", "break.md", "The pistachio break takes ten minutes.", allow=["tenant"])
        for number in range(3):
            _ask(house, NAME, f"What does memorandum {number} about marzipan say about the notice period?")
            _ask(house, "bo", f"How long is the pistachio break of day {number}?")
        for each in (None, control.authenticator.operator("acme")):
            control.logs.forget(control.logs.of(each).log_id)
        control.logs._clock = time.time
        answer = _ask(house, NAME, "What does the marzipan memorandum say about the notice period?")
        told = {"answer_id": answer["request_id"], "verdict": "good"}
        assert house.post("/v1/feedback", house.key("acme", NAME), told).status_code == 200
        _ask(house, "bo", "How long is the pistachio break?")
        log = log_of(control)
        kept = checkpoint(log, force=True)
        assert kept is not None
        export(log, folder / "export", part_records=20)
        subject = subject_of(control)
        with log.subjects._database.reading() as connection:
            own = select(subject_keys.c.wrapped).where(subject_keys.c.subject == subject)
            wrapped: bytes = connection.execute(own).scalar_one()
        with log.database.reading() as connection:
            signer: bytes = connection.execute(select(signers.c.wrapped)).scalar_one()
            old: bytes = connection.execute(select(events.c.payload).where(events.c.seq == 3)).scalar_one()
        (key,) = public_keys(log)
    house.close()
    return World(folder, url, key.vkey, kept.note, wrapped, signer, old)


def _ask(house: House, user: str, question: str) -> dict[str, Any]:
    response = house.post("/v1/answers", house.key("acme", user), {"query": question})
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def log_of(control: Control) -> AuditLog:
    log = control.logs.of(control.authenticator.operator("acme"))
    log.flush()
    return log


def subject_of(control: Control) -> str:
    """The reference of `NAME`, who has to be in the directory."""
    log = log_of(control)
    user = control.tenants.find_user(log.log_id, NAME)
    assert user is not None
    return log.subjects.ref(user)


def told(control: Control) -> str:
    """All that the events of the tenant's log say to whoever may read them."""
    log = log_of(control)
    page = query_log(log, Filters(order="asc"), limit=1000)
    return json.dumps([view(stored, log.subjects) for stored in page.events])


def stored(world: World, control: Control) -> bytes:
    """Everything that the databases hold, in the clear: free pages and write-ahead logs too, of a server every row."""
    tenant = control.tenants.open(control.authenticator.operator("acme"), suspended=True)
    found = list(tables(world.url).values()) if world.url else []
    for path in sorted((world.folder / "data").rglob("*.sqlite")):
        if "staging" in path.parts:
            # Of a backup that was cut short, under a key that nobody kept.
            continue
        if path.name == USAGE_FILE and _size(path) + _size(path.with_name(f"{USAGE_FILE}-wal")) <= PAGE:
            # Cut short before its first table: made from the log when it is next read.
            continue
        if path.name == CONTROL_FILE:
            key = control.tenants._root.purpose("control")
        elif "tenants" in path.parts:
            key = tenant.keys.purpose(f"file/{path.name}")
        else:
            files = tenant.audit if path.parent.name == tenant.tenant_id else control.tenants.system_audit()
            key = files.purpose(f"file/{path.name}")
        found.append(contents(path, key))
    return b"\n".join(found)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def is_sound(world: World, control: Control, scratch: Path | None = None) -> None:
    """The logs verify, a checkpoint and an export of before hold; with `scratch` also what is exported now."""
    log, system = log_of(control), control.logs.of(None)
    kept = verify_note(world.kept, world.vkey)
    for each in (log, system):
        found = verify(each).finding
        assert found is None or found.kind == "unsettled", found
        found = verify(each, recover=True, known=[kept] if each is log else []).finding
        assert found is None, found
    new = checkpoint(log, force=True)
    assert new is not None
    path = proofs.consistency(log, kept.size, new.size)
    assert proofs.verify_consistency(kept.size, new.size, kept.root, new.root, path)
    _holds(world, world.folder / "export")
    for begin in (None, world.folder / "export") if scratch else ():
        assert scratch
        target = scratch / secrets.token_hex(4)
        if begin is not None:
            shutil.copytree(begin, target)
        export(log, target)
        _holds(world, target)
        shutil.rmtree(target)


def _holds(world: World, folder: Path) -> None:
    """An export as its auditor checks it."""
    report = check(folder, [world.vkey], [world.kept])
    assert report.finding is None, report.finding
    assert report.agreed


def receipts(control: Control) -> list[dict[str, Any]]:
    """Those of erasures that were done; each is genuine."""
    found = log_of(control).subjects.receipts()
    assert all(genuine(one, base64.b64decode(control.tenants.public_key)) for one in found)
    return [one for one in found if one["outcome"] == "erased"]


def is_erased(world: World, control: Control) -> None:
    """Nothing of `NAME` is left that anybody could read; of the other one everything is."""
    assert control.tenants.find_user(log_of(control).log_id, NAME) is None
    said, held = told(control), stored(world, control)
    assert "marzipan" not in said
    assert NAME not in said
    assert "pistachio" in said
    assert b"pistachio" in held
    for canary in (*CANARIES, *(canary.decode().encode("utf-16-le") for canary in CANARIES)):
        assert canary not in held, canary
    assert world.wrapped not in held
