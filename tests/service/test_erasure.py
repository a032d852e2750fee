"""A user is erased: their texts are in no page of any database, no export and no backup made afterwards, and no log;
the receipt says what went, and everything that the audit could prove it proves still.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import select
from structlog.testing import capture_logs

from audit import proofs
from audit.checkpoints import Checkpoint, checkpoint, verify_note
from audit.log import AuditLog
from audit.signers import public_keys
from audit.subject_tables import SUBJECTS_FILE, subject_keys
from audit.tables import AUDIT_FILE, events
from audit.verify import verify as verify_log
from cache.certificate import evidence
from cache.certificate.evidence import Judged, Place
from cache.certificate.reports import asker_of
from cache.stores.tables import FILE as CACHE_FILE
from service.cli import run
from service.erasure import erase_user
from tenancy import archive, schema
from tenancy.archive import Unlock
from tenancy.deletion import verify
from tenancy.errors import Unavailable
from tenancy.storage import CONTROL_FILE, DATA_FILE
from tests.service.house import MASTER, House
from tests.service.test_deletion import shell
from tests.support.pages import contents
from tests.support.postgres import fresh_database

NAME = "ana.zanzibari"
QUESTION = "What does the marzipan memorandum say about the notice period?"
OTHERS = "How long is the pistachio break?"
CANARIES = ("marzipan", NAME)
DETAILS = {"query": QUESTION}


@pytest.fixture
def house(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[House]:
    """A company with two users, beside which commands of the same machine work."""
    monkeypatch.setenv("STRONGROOM_DATA_DIR", str(folder / "data"))
    monkeypatch.setenv("STRONGROOM_MASTER_KEY_FILE", str(folder / "master.key"))
    monkeypatch.setenv("STRONGROOM_EMBEDDING__MODEL", "hashing:256")
    (folder / "master.key").write_bytes(base64.b64encode(MASTER.value))
    found = House(folder)
    with found.client:
        found.put("acme", "notice.md", "The notice period is three months.", allow=["tenant"])
        found.put("acme", "break.md", "The pistachio break takes ten minutes.", allow=["tenant"])
        yield found
    found.close()


def ask(house: House, user: str, question: str) -> dict[str, Any]:
    response = house.post("/v1/answers", house.key("acme", user), {"query": question})
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def log_of(house: House) -> AuditLog:
    control = house.services.control
    log = control.logs.of(control.authenticator.operator("acme"))
    log.flush()
    return log


def command(capsys: pytest.CaptureFixture[str], *words: str | Path, code: int = 0) -> Any:
    capsys.readouterr()
    found = run([*(str(word) for word in words), "--json"])
    captured = capsys.readouterr()
    assert found == code, captured.err
    return json.loads(captured.out) if captured.out.strip() else captured.err


def databases(house: House) -> dict[str, bytes]:
    """Every database of the deployment by its name, decrypted, free pages and write-ahead logs included."""
    control = house.services.control
    tenant = control.tenants.open(control.authenticator.operator("acme"))
    data, audit, system = house.settings.data_path, tenant.audit, control.tenants.system_audit()
    found = {CONTROL_FILE: contents(data / CONTROL_FILE, control.tenants._root.purpose("control"))}
    for file in (DATA_FILE, CACHE_FILE):
        found[file] = contents(tenant.directory / file, tenant.keys.purpose(f"file/{file}"))
    for files in (audit, system):
        for file in (AUDIT_FILE, SUBJECTS_FILE, "ledger.sqlite"):
            if (files.directory / file).exists():
                name = f"{files.tenant_id}/{file}"
                found[name] = contents(files.directory / file, files.purpose(f"file/{file}"))
    assert len(found) == sum(1 for path in data.rglob("*.sqlite"))
    return found


def backed_up(house: House, path: Path) -> dict[str, bytes]:
    """The members of a backup, its databases decrypted."""
    found: dict[str, bytes] = {}
    unlock = Unlock(house.services.control.tenants.archive_key)
    with archive.reading(path, "tenant", unlock) as members:
        for name, content in members:
            found[name] = content.read()
    key = base64.b64decode(json.loads(found["manifest.json"])["file_key"])
    for name in (DATA_FILE, AUDIT_FILE):
        target = path.with_name(f"member-{name}")
        target.write_bytes(found[name])
        found[name] = contents(target, key)
        target.unlink()
    return found


def holding(places: dict[str, bytes], *words: str) -> dict[str, list[str]]:
    """Where each word stands, in UTF-8 or UTF-16."""
    forms = {word: (word.encode(), word.encode("utf-16-le")) for word in words}
    return {
        word: sorted(name for name, data in places.items() if any(form in data for form in forms[word]))
        for word in words
    }


def raw(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@contextmanager
def wrapped_keys(log: AuditLog, subject: str) -> Iterator[list[bytes]]:
    with log.subjects._database.reading() as connection:
        own = select(subject_keys.c.wrapped).where(subject_keys.c.subject == subject)
        yield [key for key in connection.execute(own).scalars() if key is not None]


def assert_proofs_stay(log: AuditLog, old: Checkpoint, seq: int, leaf: bytes) -> None:
    """The log verifies, record `seq` is proved to be in it, and it extends what was signed in `old`."""
    assert verify_log(log).finding is None
    vkeys = [key.vkey for key in public_keys(log)]
    new = checkpoint(log, force=True)
    assert new is not None
    assert verify_note(old.note, *vkeys).size == old.size
    path = proofs.inclusion(log, seq, new.size)
    assert proofs.verify_inclusion(leaf, seq, new.size, path, new.root)
    extends = proofs.consistency(log, old.size, new.size)
    assert proofs.verify_consistency(old.size, new.size, old.root, new.root, extends)


def test_nothing_of_an_erased_user_is_readable_anywhere_and_every_proof_stays(
    house: House, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with capture_logs() as lines:
        asked = ask(house, NAME, QUESTION)
        told = {"answer_id": asked["request_id"], "verdict": "good"}
        assert house.post("/v1/feedback", house.key("acme", NAME), told).status_code == 200
        ask(house, "bo", OTHERS)
        log = log_of(house)
        control = house.services.control
        user_id = control.tenants.find_user(log.log_id, NAME)
        assert user_id is not None
        subject = log.subjects.ref(user_id)
        old = checkpoint(log, force=True)
        assert old is not None
        with log.database.reading() as connection:
            own = select(events.c.seq, events.c.leaf).where(events.c.actor == subject).order_by(events.c.seq)
            seq, leaf = connection.execute(own.limit(1)).one()
        with wrapped_keys(log, subject) as keys:
            assert len(keys) == 1
        # The control: this search finds them where they are.
        before = databases(house)
        here = f"{log.log_id}/{SUBJECTS_FILE}"
        assert holding(before, *CANARIES, "pistachio") == {
            "marzipan": [CACHE_FILE],
            NAME: [CONTROL_FILE, DATA_FILE],
            "pistachio": [CACHE_FILE, DATA_FILE],
        }
        assert keys[0] in before[here]
        assert "marzipan" in json.dumps(house.events("acme"))

        receipt = command(capsys, "user", "erase", NAME, "--tenant", "acme", "--yes")
        command(capsys, "backup", folder / "after.backup", "--tenant", "acme")
        command(capsys, "export", folder / "after.export", "--tenant", "acme", "--no-vectors")
        command(capsys, "audit", "export", folder / "after.audit", "--tenant", "acme")

    after = databases(house)
    assert holding(after, *CANARIES, "pistachio") == {"marzipan": [], NAME: [], "pistachio": [CACHE_FILE, DATA_FILE]}
    assert keys[0] not in after[here]
    backup = backed_up(house, folder / "after.backup")
    assert holding(backup, *CANARIES, "pistachio") == {"marzipan": [], NAME: [], "pistachio": [DATA_FILE]}
    exported = raw(folder / "after.export") | {
        f"audit/{name}": data for name, data in raw(folder / "after.audit").items()
    }
    assert holding(exported, *CANARIES, "pistachio")["marzipan"] == []
    assert holding(exported, *CANARIES, "pistachio")[NAME] == []
    assert holding(exported, *CANARIES, "pistachio")["pistachio"] == ["chunks.jsonl"]
    assert holding(raw(folder), *CANARIES) == {"marzipan": [], NAME: []}
    assert not any(canary in json.dumps(lines, default=str) for canary in CANARIES)
    mine = [event for event in house.events("acme") if event["actor"].get("ref") == subject]
    assert mine
    assert {field for event in mine for value in event.get("content", {}).values() for field in value} == {
        "commit", "erased",
    }  # fmt: skip
    others = [event for event in house.events("acme") if "pistachio" in json.dumps(event)]
    assert others

    assert_proofs_stay(log, old, seq, leaf)

    destroyed = receipt["destroyed"]
    assert receipt["outcome"] == "erased"
    assert receipt["subject"] == subject
    assert verify(receipt, base64.b64decode(control.tenants.public_key))
    assert destroyed["audit_texts"]["count"] == len(mine)
    assert (destroyed["audit_texts"]["first"], destroyed["audit_texts"]["keys"]) == (seq, 1)
    counts = {name: destroyed[name]["count"] for name in ("cache_entries", "directory", "api_keys", "feedback")}
    assert counts == {"cache_entries": 1, "directory": 1, "api_keys": 1, "feedback": 1}
    assert NAME not in json.dumps(receipt)


def erase(house: House, named: str) -> dict[str, Any]:
    """As the command does, on the service's own stores."""
    from service.cli.console import audited

    control, store = house.services.control, house.services.path.cache
    principal = control.authenticator.operator("acme")
    return audited(control, principal, "user.erase", lambda trail: erase_user(control, store, principal, named, trail))


def test_a_legal_hold_keeps_everything_and_the_receipt_says_so(
    house: House, capsys: pytest.CaptureFixture[str]
) -> None:
    ask(house, NAME, QUESTION)
    hold = command(capsys, "user", "hold", NAME, "--tenant", "acme", "--reason", "case 17")
    capsys.readouterr()
    receipt = command(capsys, "user", "erase", NAME, "--tenant", "acme", "--yes", code=1)
    assert (receipt["outcome"], receipt["destroyed"]) == ("held", {})
    assert receipt["holds"] == [{"id": hold["id"], "placed": hold["placed"]}]
    assert "case 17" not in json.dumps(receipt)
    assert verify(receipt, base64.b64decode(house.services.control.tenants.public_key))
    for words in (("user", "delete", NAME, "--tenant", "acme"), ("tenant", "delete", "acme", "--yes")):
        assert hold["id"] in command(capsys, *words, code=1)
    # Nothing happened: the user asks on, out of the cache, and the question can be read.
    assert ask(house, NAME, QUESTION)["cache"]["status"] == "hit"
    assert "marzipan" in json.dumps(house.events("acme"))
    assert "case 17" not in json.dumps(house.events("acme"))
    outcomes = [event for event in house.events("acme") if event["action"] == "user.erase" and event.get("outcome")]
    assert [(event["outcome"], event["reason"]) for event in outcomes] == [("refused", "legal-hold")]

    command(capsys, "audit", "release", hold["id"], "--tenant", "acme")
    assert command(capsys, "user", "erase", NAME, "--tenant", "acme", "--yes")["outcome"] == "erased"
    assert "marzipan" not in json.dumps(house.events("acme"))
    listed = command(capsys, "user", "receipts", "--tenant", "acme")
    assert [one["outcome"] for one in listed] == ["held", "erased"]
    assert command(capsys, "user", "receipts", listed[1]["id"], "--tenant", "acme") == listed[1]
    holds = command(capsys, "audit", "holds", "--tenant", "acme")
    assert [(one["reason"], one["released"] is not None) for one in holds] == [("case 17", True)]


def test_a_hold_on_a_time_keeps_whoever_has_a_record_in_it(house: House, capsys: pytest.CaptureFixture[str]) -> None:
    ask(house, NAME, QUESTION)
    house.key("acme", "silent")
    placed = command(
        capsys,
        "audit",
        "hold",
        "--tenant",
        "acme",
        "--since",
        "2020-01-01",
        "--until",
        "2100-01-01",
        "--reason",
        "case",
    )
    assert erase(house, NAME)["outcome"] == "held"
    assert erase(house, "silent")["outcome"] == "erased"
    command(capsys, "audit", "release", placed["id"], "--tenant", "acme")
    assert erase(house, NAME)["outcome"] == "erased"


def test_an_erasure_that_was_cut_short_goes_on_under_the_same_name(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever fails on the way, the name finds the person until there is a receipt."""
    ask(house, NAME, QUESTION)
    store = house.services.path.cache
    honest, calls = type(store).invalidate, 0

    def fails_at(number: int) -> None:
        nonlocal calls
        calls = 0

        def invalidate(self: Any, tenant: Any, selector: Any) -> int:
            nonlocal calls
            calls += 1
            if calls == number:
                raise Unavailable("the cache is out of reach")
            return honest(self, tenant, selector)

        monkeypatch.setattr(type(store), "invalidate", invalidate)

    fails_at(1)
    with pytest.raises(Unavailable):
        erase(house, NAME)
    assert "marzipan" in json.dumps(house.events("acme"))
    # Behind the deletion from the directory, where nobody finds the name any more.
    fails_at(2)
    with pytest.raises(Unavailable):
        erase(house, NAME)
    fails_at(0)
    subject = erase(house, NAME)["subject"]
    assert [one["subject"] for one in log_of(house).subjects.receipts()] == [subject]
    assert holding(databases(house), *CANARIES) == {"marzipan": [], NAME: []}


def test_who_was_deleted_before_is_erased_by_the_reference_in_the_audit(
    house: House, capsys: pytest.CaptureFixture[str]
) -> None:
    ask(house, NAME, QUESTION)
    command(capsys, "user", "delete", NAME, "--tenant", "acme")
    assert holding(databases(house), NAME)[NAME] == [CONTROL_FILE]
    subject = next(event["actor"]["ref"] for event in house.events("acme") if event["action"] == "answer")
    assert "actor.ref" in command(capsys, "user", "erase", NAME, "--tenant", "acme", "--yes", code=1)
    receipt = command(capsys, "user", "erase", subject, "--tenant", "acme", "--yes")
    assert receipt["destroyed"]["audit_texts"]["keys"] == 1
    assert holding(databases(house), *CANARIES) == {"marzipan": [], NAME: []}
    assert "marzipan" not in json.dumps(house.events("acme"))
    assert command(capsys, "user", "erase", "u_" + "0" * 32, "--tenant", "acme", "--yes", code=1)


def test_a_reference_is_whose_it_is_whatever_others_are_called(
    house: House, capsys: pytest.CaptureFixture[str]
) -> None:
    ask(house, NAME, QUESTION)
    subject = next(event["actor"]["ref"] for event in house.events("acme") if event["action"] == "answer")
    house.key("acme", subject)
    placed = command(capsys, "user", "hold", subject, "--tenant", "acme", "--reason", "case 17")
    assert placed["subject"] == subject
    command(capsys, "audit", "release", placed["id"], "--tenant", "acme")
    assert command(capsys, "user", "erase", subject, "--tenant", "acme", "--yes")["subject"] == subject
    assert holding(databases(house), *CANARIES) == {"marzipan": [], NAME: []}


def test_texts_in_the_retained_log_of_a_deleted_tenant_are_erased_too(
    house: House, capsys: pytest.CaptureFixture[str]
) -> None:
    ask(house, NAME, QUESTION)
    subject = next(event["actor"]["ref"] for event in house.events("acme") if event["action"] == "answer")
    tenant_id = log_of(house).log_id
    wanted = ("user", "erase", subject, "--deleted")
    assert "--tenant acme" in command(capsys, *wanted, "acme", "--yes", code=1)
    deleted = command(capsys, "tenant", "delete", "acme", "--yes")["tenant_id"]
    assert deleted == tenant_id
    shown = ("audit", "query", "--deleted", deleted)
    assert "marzipan" in json.dumps(command(capsys, *shown))
    assert command(capsys, "user", "erase", "u_" + "0" * 32, "--deleted", deleted, "--yes", code=1)
    hold = command(capsys, "audit", "hold", "--deleted", deleted, "--reason", "case 17")
    assert command(capsys, *wanted, deleted, "--yes", code=1)["outcome"] == "held"
    command(capsys, "audit", "release", hold["id"], "--deleted", deleted)
    receipt = command(capsys, *wanted, deleted, "--yes")
    assert (receipt["outcome"], list(receipt["destroyed"])) == ("erased", ["audit_texts"])
    assert verify(receipt, base64.b64decode(house.services.control.tenants.public_key))
    assert "marzipan" not in json.dumps(command(capsys, *shown))
    assert [row["verdict"] for row in command(capsys, "audit", "verify", "--deleted", deleted)] == ["ok"]


def test_no_row_of_the_evidence_tells_of_an_erased_person(house: House) -> None:
    control = house.services.control
    tenant = control.tenants.open(control.authenticator.operator("acme"))
    answers = {user: ask(house, user, question)["request_id"] for user, question in ((NAME, QUESTION), ("bo", OTHERS))}
    store = house.services.path.cache
    entries = {entry.origin_user: entry.id for entry in store.inspect(tenant)}
    users = {user: control.tenants.find_user(tenant.tenant_id, user) or "" for user in answers}
    with tenant.writing() as view:
        for user in users.values():
            judged = Judged("uniform", "same", "", entries[user], asker=asker_of(tenant, user).hex())
            evidence.record(view, Place("default", "lv_1", "ns_1", 0.01), judged, 1.0)
    for user, answer in answers.items():
        told = {"answer_id": answer, "verdict": "good"}
        assert house.post("/v1/feedback", house.key("acme", user), told).status_code == 200

    def cells() -> str:
        with tenant.reading() as view:
            rows = [row for table in schema.tenant.sorted_tables for row in view.execute(select(table)).all()]
        return " ".join(cell.hex() if isinstance(cell, bytes) else str(cell) for row in rows for cell in row)

    def tells_of(user: str) -> list[bool]:
        found = cells()
        return [sign in found for sign in (asker_of(tenant, users[user]).hex(), entries[users[user]], answers[user])]

    assert (tells_of(NAME), tells_of("bo")) == ([True] * 3, [True] * 3)
    destroyed = erase(house, NAME)["destroyed"]
    assert (tells_of(NAME), tells_of("bo")) == ([False] * 3, [True] * 3)
    counted = {name: destroyed[name]["count"] for name in ("feedback", "evidence_hashes", "judgements")}
    assert counted == {"feedback": 1, "evidence_hashes": 2, "judgements": 1}
    with tenant.reading() as read:
        assert evidence.counts(read, Place("default", "lv_1", "ns_1", 0.01)).n == 2


def test_another_program_verifies_a_receipt(house: House, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ask(house, NAME, QUESTION)
    hold = command(capsys, "user", "hold", NAME, "--tenant", "acme", "--reason", "case 17")
    held = command(capsys, "user", "erase", NAME, "--tenant", "acme", "--yes", code=1)
    command(capsys, "audit", "release", hold["id"], "--tenant", "acme")
    receipt = command(capsys, "user", "erase", NAME, "--tenant", "acme", "--yes")
    path = folder / "receipt.json"
    for found, line in ((held, "NOTHING WAS ERASED"), (receipt, "destroyed: 2 audit_texts, 1 cache_entries")):
        path.write_text(json.dumps(found))
        code, said = shell(path, house.services.control.tenants.public_key)
        assert (code, line in said, hold["id"] in said) == (0, True, found is held)
    path.write_text(json.dumps(receipt | {"outcome": "held"}))
    assert shell(path, house.services.control.tenants.public_key)[0] == 1


def test_erasing_asks_first(house: House, capsys: pytest.CaptureFixture[str]) -> None:
    ask(house, NAME, QUESTION)
    assert "--yes" in command(capsys, "user", "erase", NAME, "--tenant", "acme", code=2)
    assert "marzipan" in json.dumps(house.events("acme"))


@pytest.mark.slow
def test_on_postgresql_no_row_of_any_table_holds_an_erased_text(folder: Path) -> None:
    with fresh_database() as url:
        house = House(folder, STRONGROOM_DATABASE__URL=url)
        try:
            with house.client:
                house.put("acme", "notice.md", "The notice period is three months.", allow=["tenant"])
                ask(house, NAME, QUESTION)
                ask(house, "bo", OTHERS)
                log_of(house)
                assert holding(tables(url), *CANARIES, "acme")[NAME] == ["sr_control.api_keys", "sr_t.users"]
                receipt = erase(house, NAME)
                assert verify_log(log_of(house)).finding is None
                assert "marzipan" not in json.dumps(house.events("acme"))
                assert "pistachio" in json.dumps(house.events("acme"))
                assert holding(tables(url), *CANARIES) == {"marzipan": [], NAME: []}
                assert receipt["destroyed"]["audit_texts"]["keys"] == 1
        finally:
            house.close()


def tables(url: str) -> dict[str, bytes]:
    """Every row of every table of a PostgreSQL database as text, binary columns as what they hold."""
    found: dict[str, bytes] = {}
    with psycopg.connect(url) as connection:
        names = connection.execute(
            "SELECT schemaname, tablename FROM pg_tables WHERE schemaname LIKE 'sr_%'"
        ).fetchall()
        for schema_name, table in names:
            rows = connection.execute(
                sql.SQL("SELECT * FROM {}").format(sql.Identifier(schema_name, table)).as_string(connection).encode()
            ).fetchall()
            cells = [cell if isinstance(cell, bytes) else str(cell).encode() for row in rows for cell in row]
            found[f"{re.sub('_t_[0-9a-f]{32}', '_t', schema_name)}.{table}"] = b"\n".join(cells)
    assert len(found) > 20
    return found
