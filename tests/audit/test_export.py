from __future__ import annotations

import json
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import delete, select, update

from audit.checkpoints import checkpoint
from audit.export import Exported, export
from audit.log import AuditLog
from audit.offline.check import check
from audit.offline.manifest import Manifest, Row
from audit.record import Actor, Content, Draft, Request, Sealed
from audit.rotation import rotate
from audit.signers import public_keys
from audit.tables import checkpoints, events, head
from tenancy.errors import Conflict, Corrupt, InvalidInput, Unavailable
from tenancy.locks import file_lock
from tests.audit.conftest import payloads


def draft(number: int) -> Draft:
    """Pairs of intent and outcome, with a text as long as a real one."""
    return Draft(
        action="answer",
        phase="outcome" if number % 2 else "intent",
        outcome="allowed" if number % 2 else None,
        intent=number - 1 if number % 2 else None,
        actor=Actor(kind="user", ref="u_1"),
        request=Request(id=f"r{number // 2}"),
        content=Content(question=Sealed(commit="00" * 32, ct="QUJD", key="k_1")),
        detail={"seq": 5, "text": 'line\nfeed "quoted" é'},
    )


def fill(log: AuditLog, count: int) -> None:
    start = log.head().size
    for number in range(start, start + count):
        log.submit(partial(draft, number))
    log.flush()


def keys_of(log: AuditLog) -> list[str]:
    return [key.vkey for key in public_keys(log)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "export"


@pytest.mark.both_storages
def test_an_export_verifies_with_the_key_alone(log: AuditLog, folder: Path, storage: str) -> None:
    fill(log, 30)
    made = export(log, folder)
    assert (made.first, made.size, made.parts, made.number) == (0, 30, 1, 1)
    found = check(folder, keys_of(log))
    assert found.finding is None
    assert (found.size, found.root, found.log) == (30, log.head().root.hex(), log.log_id)
    assert (found.open, found.unnamed, found.agreed) == (0, [], [])


def test_lines_hold_the_exact_bytes(log: AuditLog, folder: Path) -> None:
    fill(log, 6)
    export(log, folder, part_records=4)
    parts = sorted(folder.glob("records-*"))
    assert [part.name for part in parts] == [
        "records-000000000000-000000000003.ndjson", "records-000000000004-000000000005.ndjson",
    ]  # fmt: skip
    lines = [line for part in parts for line in part.read_bytes().splitlines(keepends=True)]
    assert [Row.read(line).payload for line in lines] == payloads(log)
    assert [json.loads(line)["record"]["seq"] for line in lines] == list(range(6))


def test_each_export_follows_the_one_before(log: AuditLog, folder: Path) -> None:
    sizes = []
    for count in (300, 1, 2, 513):
        fill(log, count)
        made = export(log, folder, part_records=256)
        sizes.append((made.first, made.size))
        found = check(folder, keys_of(log))
        assert found.finding is None
        assert (found.exports, found.size) == (len(sizes), made.size)
    assert sizes == [(0, 300), (300, 301), (301, 303), (303, 816)]
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert export(log, folder) == Exported(
        log.log_id, folder, 4, 816, 816, 0, 0, 0, made.manifest, made.digest, made.checkpoint
    )
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_later_export_is_checked_from_where_an_earlier_manifest_ends(log: AuditLog, folder: Path) -> None:
    fill(log, 300)
    export(log, folder)
    earlier = (folder / "manifest-000001.json").read_bytes()
    fill(log, 300)
    export(log, folder)
    for path in folder.glob("*000001*"):
        path.unlink()
    next(folder.glob("records-000000000000-*")).unlink()
    assert check(folder, keys_of(log)).finding is not None
    found = check(folder, keys_of(log), after=earlier)
    assert found.finding is None
    assert (found.first, found.size, found.exports) == (300, 600, 1)


def test_an_export_as_of_an_earlier_size(log: AuditLog, folder: Path) -> None:
    fill(log, 40)
    kept = checkpoint(log, force=True)
    assert kept is not None
    fill(log, 40)
    assert export(log, folder, as_of=33).size == 33
    assert export(log, folder, as_of=40).checkpoint == kept.note
    with pytest.raises(InvalidInput):
        export(log, folder, as_of=39)
    with pytest.raises(InvalidInput):
        export(log, folder, as_of=81)
    export(log, folder, as_of=80)
    found = check(folder, keys_of(log), [kept.note])
    assert found.finding is None
    assert (found.size, found.agreed) == (80, [40])


def test_an_empty_log_has_an_export(log: AuditLog, folder: Path) -> None:
    assert export(log, folder).size == 0
    assert check(folder, keys_of(log)).finding is None
    fill(log, 2)
    export(log, folder)
    assert check(folder, keys_of(log)).size == 2


def test_keys_change_and_the_first_one_is_enough(log: AuditLog, folder: Path) -> None:
    fill(log, 4)
    export(log, folder)
    (first,) = keys_of(log)
    for _ in range(2):
        rotate(log)
        fill(log, 3)
        export(log, folder)
    every = keys_of(log)
    assert len(every) == 3
    assert check(folder, [first]).finding is None
    assert check(folder, [every[2]]).finding is None
    # An export that an old key signed is none of a new one's alone.
    for path in folder.glob("*00000[23].json"):
        path.unlink()
    assert check(folder, [first]).finding is None
    found = check(folder, [every[2]]).finding
    assert found is not None
    assert found.kind == "untrusted"


def test_what_an_interrupted_export_left_is_used(log: AuditLog, folder: Path) -> None:
    fill(log, 50)

    def stop(done: int, of: int) -> None:
        if done == 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export(log, folder, part_records=10, progress=stop)
    (folder / ".records-000000000020.partial").write_bytes(b"cut")
    assert not list(folder.glob("manifest*"))
    made = export(log, folder, part_records=10)
    assert (made.parts, made.reused) == (5, 2)
    assert check(folder, keys_of(log)).finding is None
    assert not list(folder.glob(".*.partial"))


@pytest.mark.parametrize("damage", [lambda data: data[:-5], lambda data: data.replace(b"allowed", b"refused")])
def test_a_damaged_part_that_was_left_is_written_anew(
    log: AuditLog, folder: Path, damage: Callable[[bytes], bytes]
) -> None:
    fill(log, 50)

    def stop(done: int, of: int) -> None:
        if done == 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export(log, folder, part_records=10, progress=stop)
    part = folder / "records-000000000010-000000000019.ndjson"
    part.write_bytes(damage(part.read_bytes()))
    assert export(log, folder, part_records=10).reused == 1
    assert check(folder, keys_of(log)).finding is None


def test_a_log_that_was_altered_is_not_exported(log: AuditLog, folder: Path) -> None:
    fill(log, 20)
    with log.database.writing() as connection:
        connection.execute(update(events).where(events.c.seq == 7).values(payload=payloads(log)[9]))
    with pytest.raises(Corrupt, match="7"):
        export(log, folder, part_records=5)
    assert [path.name for path in folder.iterdir()] == [".lock"]


def test_writers_go_on_while_the_log_is_exported(log: AuditLog, folder: Path) -> None:
    fill(log, 200)
    running = [
        threading.Thread(target=lambda: [log.append(partial(draft, 1_000_000)) for _ in range(40)]) for _ in "ab"
    ]

    def begin(done: int, of: int) -> None:
        if done == 50:
            for thread in running:
                thread.start()

    made = export(log, folder, part_records=50, progress=begin)
    for thread in running:
        thread.join()
    assert made.size == 200
    export(log, folder)
    found = check(folder, keys_of(log))
    assert (found.finding, found.size) == (None, 280)


def test_one_export_at_a_time_writes_to_a_folder(log: AuditLog, folder: Path) -> None:
    fill(log, 2)
    folder.mkdir()
    with file_lock(folder / ".lock", 0.0), pytest.raises(Unavailable):
        export(log, folder)
    assert export(log, folder).size == 2


def test_a_folder_that_cannot_be_written_is_said(log: AuditLog, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Unavailable, match="cannot be written"):
        export(log, tmp_path / "file" / "export")


def test_a_log_that_is_shorter_than_its_last_export_is_not_exported(log: AuditLog, folder: Path) -> None:
    """As after a copy of an older state was put in its place."""
    fill(log, 4)
    with log.database.reading() as connection:
        state = connection.execute(select(head)).one()._mapping
    fill(log, 4)
    export(log, folder)
    with log.database.writing() as connection:
        connection.execute(delete(events).where(events.c.seq >= 4))
        connection.execute(delete(checkpoints))
        connection.execute(update(head).values(**state))
    with pytest.raises(Corrupt):
        export(log, folder)


def test_a_folder_of_other_things_is_left_alone(log: AuditLog, folder: Path) -> None:
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    fill(log, 2)
    (folder / ".notes.txt.partial").write_text("mine")
    with pytest.raises(Conflict):
        export(log, folder)
    assert {path.name for path in folder.iterdir()} == {"notes.txt", ".notes.txt.partial", ".lock"}


def test_a_folder_of_another_log_is_refused(log: AuditLog, folder: Path, logs: object) -> None:
    other = logs.of(None)  # type: ignore[attr-defined]
    fill(log, 2)
    fill(other, 2)
    export(log, folder)
    with pytest.raises(Conflict):
        export(other, folder)


@pytest.mark.parametrize("change", [(b'"records":2', b'"records":3'), (b'"size":2', b'"size": 2')])
def test_a_manifest_that_was_changed_is_no_base_for_the_next(
    log: AuditLog, folder: Path, change: tuple[bytes, bytes]
) -> None:
    fill(log, 2)
    export(log, folder)
    manifest = folder / "manifest-000001.json"
    manifest.write_bytes(manifest.read_bytes().replace(*change))
    fill(log, 2)
    with pytest.raises(Corrupt, match="manifest"):
        export(log, folder)
    assert sorted(path.name for path in folder.iterdir()) == [
        ".lock", "manifest-000001.json", "records-000000000000-000000000001.ndjson",
    ]  # fmt: skip
    found = check(folder, keys_of(log)).finding
    assert found is not None
    assert (found.kind, found.at) == ("edited", 0)


def test_an_earlier_manifest_in_the_newest_ones_place_is_no_base_for_the_next(log: AuditLog, folder: Path) -> None:
    for _ in range(2):
        fill(log, 2)
        export(log, folder)
    (folder / "manifest-000002.json").write_bytes((folder / "manifest-000001.json").read_bytes())
    fill(log, 2)
    with pytest.raises(Corrupt, match="manifest"):
        export(log, folder)


def test_the_manifest_reads_as_it_was_written(log: AuditLog, folder: Path) -> None:
    fill(log, 3)
    made = export(log, folder)
    found = Manifest.read((folder / made.manifest).read_bytes())
    assert (found.digest, found.checkpoint, found.previous) == (made.digest, made.checkpoint, None)
