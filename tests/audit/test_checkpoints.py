from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from sqlalchemy import delete, func, select, update

from audit import signers
from audit.checkpoints import RECORDS, at, checkpoint, latest, parse, verify_note
from audit.log import AuditLog
from audit.logs import AuditLogs
from audit.merkle import Frontier, leaf_hash
from audit.notes import Checkpoint, Signer, key_hash, make, parse_vkey, vkey
from audit.proofs import consistency, inclusion, root, verify_consistency, verify_inclusion
from audit.rotation import is_rotation, rotate, statement
from audit.tables import checkpoints, events, head
from audit.verify import verify
from tenancy.control import Tenants
from tenancy.errors import Corrupt, InvalidInput
from tenancy.identity import Authenticator, Principal
from tests.audit.conftest import ReadAll, payloads
from tests.audit.load import draft

pytestmark = pytest.mark.both_storages


def grow(log: AuditLog, count: int) -> None:
    for future in [log.submit(partial(draft, str(number))) for number in range(count)]:
        future.result(30)


def forced(log: AuditLog) -> Checkpoint:
    found = checkpoint(log, force=True)
    assert found is not None
    return found


def sizes(log: AuditLog) -> list[int]:
    with log.database.reading() as connection:
        return list(connection.execute(select(checkpoints.c.size).order_by(checkpoints.c.size)).scalars())


def test_a_checkpoint_says_size_root_and_time_and_is_signed(log: AuditLog) -> None:
    grow(log, 5)
    made = forced(log)
    (key,) = signers.public_keys(log)
    assert (made.origin, made.size, made.root) == (f"strongroom/{log.log_id}", 5, log.head().root)
    assert verify_note(made.note, key.vkey) == made
    assert latest(log) == at(log, 5) == made
    assert at(log, 4) is None


def test_the_note_is_that_of_the_specification_byte_by_byte(log: AuditLog) -> None:
    """Taken apart here without the product's code (c2sp.org/signed-note, c2sp.org/tlog-checkpoint)."""
    grow(log, 3)
    text, _, signature = forced(log).note.partition("\n\n")
    origin, size, encoded, time = text.split("\n")
    assert (origin, size, base64.b64decode(encoded)) == (f"strongroom/{log.log_id}", "3", log.head().root)
    assert time.startswith("time 20")
    assert time.endswith("Z")
    assert signature.startswith(f"\u2014 {origin} ")
    assert signature.endswith("\n")
    data = base64.b64decode(signature.split(" ")[2])
    (key,) = signers.public_keys(log)
    name, digest, public = key.vkey.split("+", 2)
    raw = base64.b64decode(public)
    assert (name, raw[0], len(raw)) == (origin, 1, 33)
    assert digest == data[:4].hex() == hashlib.sha256(name.encode() + b"\n" + raw).hexdigest()[:8]
    Ed25519PublicKey.from_public_bytes(raw[1:]).verify(data[4:], (text + "\n").encode())


def test_only_a_log_that_grew_gets_a_new_one(log: AuditLog) -> None:
    assert checkpoint(log) is None
    assert signers.public_keys(log) == ()
    grow(log, 2)
    first = checkpoint(log)
    assert first is not None
    assert checkpoint(log) is None
    assert checkpoint(log, force=True) == first
    grow(log, 1)
    second = checkpoint(log)
    assert second is not None
    assert sizes(log) == [2, 3]


def test_an_empty_log_is_signed_when_asked_for(log: AuditLog) -> None:
    made = forced(log)
    assert (made.size, made.root) == (0, Frontier().root())
    grow(log, 1)
    assert forced(log).size == 1


def test_the_writer_leaves_no_more_than_its_number_of_records_unsigned(log: AuditLog) -> None:
    grow(log, 3_000)
    signed = [0, *sizes(log), log.head().size]
    assert max(later - earlier for earlier, later in pairwise(signed)) <= RECORDS
    assert len(signed) > 3


def test_closing_signs_what_was_added_and_reading_signs_nothing(
    logs: AuditLogs, tenants: Tenants, ana: Principal
) -> None:
    grow(logs.of(ana), 2)
    logs.forget(ana.tenant_id)
    reader = logs.of(ana)
    assert sizes(reader) == [2]
    with reader.database.writing() as connection:
        connection.execute(delete(checkpoints))
    reader.head()
    logs.forget(ana.tenant_id)
    assert sizes(logs.of(ana)) == []


def test_logs_that_grew_are_signed_together(logs: AuditLogs, ana: Principal, log: AuditLog) -> None:
    system = logs.of(None)
    grow(log, 2)
    logs.sign()
    assert (sizes(log), sizes(system)) == ([2], [])
    grow(system, 1)
    logs.sign()
    assert (sizes(log), sizes(system)) == ([2], [1])


def test_a_log_that_left_memory_is_signed_all_the_same(
    logs: AuditLogs, tenants: Tenants, authenticator: Authenticator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("audit.logs.LOGS", 1)
    few = AuditLogs(tenants)
    principals = []
    for number in range(4):
        tenants.create(f"t{number}")
        principals.append(authenticator.operator(f"t{number}"))
        grow(few.of(principals[-1]), 2)
    few.sign()
    assert [sizes(logs.of(principal)) for principal in principals] == [[2]] * 4
    for principal in principals:
        grow(few.of(principal), 1)
    few.close()
    assert [sizes(logs.of(principal)) for principal in principals] == [[2, 3]] * 4


def test_proofs_fit_the_checkpoints(log: AuditLog) -> None:
    grow(log, 300)
    old = forced(log)
    grow(log, 337)
    new = forced(log)
    leaves = [leaf_hash(payload) for payload in payloads(log)]
    for seq in (0, 255, 256, 299, 300, 511, 512, 636):
        assert verify_inclusion(leaves[seq], seq, new.size, inclusion(log, seq, new.size), new.root)
    assert verify_inclusion(leaves[9], 9, old.size, inclusion(log, 9, old.size), old.root)
    assert verify_consistency(old.size, new.size, old.root, new.root, consistency(log, old.size, new.size))
    assert root(log, 300) == old.root


def test_a_rotation_is_on_record_and_signed_by_both_keys(log: AuditLog, read_all: ReadAll) -> None:
    grow(log, 3)
    before = forced(log)
    (first,) = signers.public_keys(log)
    handover = rotate(log)
    old, new = signers.public_keys(log)
    assert (old.id, old.public, new.retired) == (first.id, first.public, None)
    assert old.retired is not None
    event = read_all(log)[3]
    assert (event.action, handover.size) == ("audit.key", 4)
    assert event.detail["old"] == old.id
    assert event.detail["new_key"] == base64.b64encode(new.public).decode()
    assert is_rotation(log.log_id, event.detail)
    assert not is_rotation("t_other", event.detail)
    assert not is_rotation(log.log_id, {**event.detail, "new_key": event.detail["old_key"]})
    for key in (old, new):
        assert verify_note(handover.note, key.vkey) == handover
    grow(log, 1)
    after = forced(log)
    assert verify_note(after.note, new.vkey) == after
    for note, key in ((after.note, old.vkey), (before.note, new.vkey)):
        with pytest.raises(InvalidInput):
            verify_note(note, key)
    assert verify_consistency(before.size, after.size, before.root, after.root, consistency(log, 3, 5))


def test_a_retired_private_key_is_gone(log: AuditLog) -> None:
    grow(log, 1)
    forced(log)
    rotate(log)
    with log.database.reading() as connection:
        rows = connection.execute(select(signers.signers).order_by(signers.signers.c.created)).all()
    assert [row.wrapped == b"" for row in rows] == [True, False]
    assert signers.current(log).public == rows[1].public


def test_several_rotations_form_a_chain(log: AuditLog, read_all: ReadAll) -> None:
    for _ in range(3):
        rotate(log)
    keys = [base64.b64encode(key.public).decode() for key in signers.public_keys(log)]
    named = [(event.detail["old_key"], event.detail["new_key"]) for event in read_all(log)]
    assert named == list(pairwise(keys))


def test_old_checkpoints_become_one_an_hour(log: AuditLog) -> None:
    now = [1_800_000_000.0]
    log._clock = lambda: now[0]
    for _ in range(12):
        grow(log, 1)
        forced(log)
        now[0] += 900
    # They are a day old, all but the last hours'.
    now[0] += 86_400 - 3_600
    grow(log, 1)
    newest = forced(log)
    kept = sizes(log)
    assert 4 <= len(kept) <= 9
    assert kept[-5:] == [9, 10, 11, 12, 13]
    assert verify(log).ok
    assert consistency(log, 1, newest.size)


def cut(log: AuditLog) -> None:
    """The tail is gone, and the head says so."""
    with log.database.writing() as connection:
        connection.execute(delete(events).where(events.c.seq >= 4))
        frontier = Frontier()
        leaves = connection.execute(select(events.c.leaf).order_by(events.c.seq)).scalars().all()
        frontier.extend(leaves)
        values = {"size": 4, "frontier": frontier.to_bytes(), "root": frontier.root(), "last_leaf": leaves[-1]}
        connection.execute(update(head).values(values))


def rewrite_root(log: AuditLog) -> None:
    with log.database.writing() as connection:
        connection.execute(update(head).values(root=bytes(32)))


def replace_checkpoint(log: AuditLog) -> None:
    own = Signer(f"strongroom/{log.log_id}", Ed25519PrivateKey.generate())
    forged = make(log.log_id, 6, log.head().root, 0.0, [own])
    with log.database.writing() as connection:
        connection.execute(update(checkpoints).values(note=forged.note))


def garble_checkpoint(log: AuditLog) -> None:
    with log.database.writing() as connection:
        connection.execute(update(checkpoints).values(note="nothing"))


def replace_key(log: AuditLog) -> None:
    with log.database.writing() as connection:
        public = Ed25519PrivateKey.generate().public_key().public_bytes_raw()
        connection.execute(update(signers.signers).values(public=public))


def forget_key(log: AuditLog) -> None:
    with log.database.writing() as connection:
        connection.execute(delete(signers.signers))


def of_another_log(log: AuditLog) -> None:
    with log.database.writing() as connection:
        made = make("t_other", 6, log.head().root, 0.0, [signers.current_in(connection, log)])
        connection.execute(update(checkpoints).values(note=made.note))


@pytest.mark.parametrize(
    "tamper", [rewrite_root, cut, replace_checkpoint, garble_checkpoint, replace_key, forget_key, of_another_log]
)
def test_what_does_not_extend_the_last_checkpoint_is_never_signed(
    log: AuditLog, tamper: Callable[[AuditLog], None], caplog: pytest.LogCaptureFixture
) -> None:
    grow(log, 6)
    forced(log)
    grow(log, 1)
    tamper(log)
    with pytest.raises(Corrupt):
        checkpoint(log)
    assert len(sizes(log)) == 1
    log.sign()
    assert "has no new checkpoint" in caplog.text


def test_a_log_that_cannot_be_signed_goes_on_writing(log: AuditLog, caplog: pytest.LogCaptureFixture) -> None:
    grow(log, 6)
    forced(log)
    forget_key(log)
    grow(log, 1_200)
    assert log.head().size == 1_206
    assert sizes(log) == [6]
    assert "has no new checkpoint" in caplog.text


def test_a_key_that_is_lost_is_not_taken_for_one_that_was_never_made(log: AuditLog) -> None:
    grow(log, 1)
    forced(log)
    forget_key(log)
    with pytest.raises(Corrupt):
        signers.current(log)


def test_a_key_of_another_log_does_not_open(log: AuditLog, logs: AuditLogs) -> None:
    other = logs.of(None)
    grow(log, 1)
    grow(other, 1)
    forced(log), forced(other)
    with log.database.reading() as connection:
        row = connection.execute(select(signers.signers)).one()
    with other.database.writing() as connection:
        connection.execute(delete(signers.signers))
        connection.execute(signers.signers.insert().values(**row._mapping))
    with pytest.raises(Corrupt):
        signers.current(other)


NAME = "strongroom/t_1"
KEY = Signer(NAME, Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
NOTE = make("t_1", 7, bytes(32), 1_700_000_000.25, [KEY]).note


def test_a_known_note() -> None:
    """Ed25519 is deterministic: these bytes are for ever."""
    assert vkey(NAME, KEY.public) == f"{NAME}+{KEY.id}+AQOhB7/zzhC+HXDdGOdLwJln5NYwm6UNXx3chmQSVTG4"
    assert NOTE.startswith(f"{NAME}\n7\n{'A' * 43}=\ntime 2023-11-14T22:13:20.250Z\n\n\u2014 {NAME} ")
    assert parse(NOTE).time == 1_700_000_000.25
    assert verify_note(NOTE, vkey(NAME, KEY.public)).size == 7


@pytest.mark.parametrize(
    "note",
    [
        "",
        "\n\n",
        NOTE[:-1],
        NOTE.replace("\n\n", "\n"),
        NOTE.replace("\n7\n", "\n07\n"),
        NOTE.replace("\n7\n", "\n-7\n"),
        NOTE.replace("\n7\n", "\n\uff17\n"),
        NOTE.replace("AAAA=", "AAAA"),
        NOTE.replace("A" * 43 + "=", "AAAA"),
        NOTE.replace("time ", "when "),
        NOTE.replace("Z\n", "\n"),
        NOTE.replace("time 2023", "time never"),
        NOTE.replace("time 2023", "time 2023-11-14T22:13:20.250Z\ntime 2023"),
        NOTE.replace("\u2014", "-"),
        NOTE.replace("strongroom/t_1\n7", "strongroom t_1\n7"),
        NOTE + "\n",
        NOTE + "\x07",
        NOTE + "x" * 20_000,
    ],
)
def test_what_is_no_checkpoint_is_refused(note: str) -> None:
    with pytest.raises(InvalidInput):
        parse(note)


@pytest.mark.parametrize(
    "change",
    [
        lambda note: note.replace("\n7\n", "\n8\n"),
        lambda note: note.replace(".250Z", ".251Z"),
        lambda note: note.replace("\n\n", "\nmore\n\n"),
        lambda note: note.replace("strongroom/t_1", "strongroom/t_2"),
    ],
)
def test_a_changed_note_is_not_signed(change: Callable[[str], str]) -> None:
    changed = change(NOTE)
    assert parse(changed) != parse(NOTE)
    with pytest.raises(InvalidInput):
        verify_note(changed, vkey(NAME, KEY.public))


def test_signatures_of_others_do_not_disturb() -> None:
    text, _, signature = NOTE.partition("\n\n")
    witness = base64.b64encode(b"\x01\x02\x03\x04" + bytes(72)).decode()
    assert verify_note(f"{text}\n\n\u2014 witness.example {witness}\n{signature}", vkey(NAME, KEY.public)).size == 7


@pytest.mark.parametrize(
    "text", ["", "a+b", f"{NAME}+00000000+{'A' * 44}", f"{NAME}+{key_hash(NAME, bytes(32)).hex()}+AAAA", "a b+1+2"]
)
def test_what_is_no_verifier_key_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_vkey(text)


def test_what_the_old_key_signs_is_no_checkpoint() -> None:
    with pytest.raises(InvalidInput):
        parse(statement("t_1", bytes(32), bytes(32)).decode())


def test_checkpoints_stay_when_the_log_is_opened_anew(logs: AuditLogs, ana: Principal) -> None:
    grow(logs.of(ana), 3)
    made = forced(logs.of(ana))
    logs.forget(ana.tenant_id)
    again = logs.of(ana)
    assert latest(again) == made
    with again.database.reading() as connection:
        assert connection.execute(select(func.count()).select_from(signers.signers)).scalar_one() == 1
