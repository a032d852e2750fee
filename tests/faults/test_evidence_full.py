"""A disk that is full under the audit log while it is pruned, signed, exported, backed up, and somebody is erased."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from audit.signers import public_keys
from tenancy.identity import Role
from tests.faults import deed
from tests.faults.evidence import World, is_erased, is_sound, log_of, make, receipts
from tests.faults.rows import row
from tests.faults.test_embedded_faults import fill_up, mounted
from tests.faults.test_evidence_kill import COMMANDS, words
from tests.service.house import House, problem

pytestmark = pytest.mark.slow

LONG = int(os.environ.get("TORTURE_KILLS", "20")) > 20
ROOM_KIB = (0, 16, 32, 48, 64, 96, 128, 192, 256) if LONG else (0, 96)
"""What the disk has left: another command is cut off in another place."""


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> World:
    deed.preload()
    # On its way out a command waits so long for room for its outcome.
    return replace(make(tmp_path_factory.mktemp("world") / "embedded"), deadline_s=2)


@contextmanager
def nearly_full(directory: Path, room_kib: int) -> Iterator[None]:
    """Within the block `directory`, on a file system of its own, has no more room than this."""
    filler = directory / ".filler"
    fill_up(filler)
    os.truncate(filler, max(0, filler.stat().st_size - room_kib * 1024))
    try:
        yield
    finally:
        filler.unlink()


@row(
    "embedded",
    "disk full while a log is pruned, its key changed, a checkpoint signed, an export or backup made, a person erased",
    caller="exit 1, naming the file and the disk; nothing half done, no receipt without the erasure",
    recovery="make room and give the command again: it goes on where it was",
)
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", COMMANDS)
def test_a_full_disk_under_a_command(name: str, origin: World, tmp_path: Path) -> None:
    refused = 0
    for room in ROOM_KIB:
        with origin.copy(tmp_path / f"w{room}") as world, mounted(world.folder / "data", "24m"):
            with nearly_full(world.folder / "data", room):
                done = world.do(*words(world, name))
            assert "Traceback" not in done.err, done.err
            assert done.code in {0, 1}
            assert bool(done.code) == ("error: " in done.err), done
            refused += done.code
            with world.opened() as control:
                is_sound(world, control)
                done_before = receipts(control)
                assert bool(done_before) == (name == "erase" and not done.code)
                if done_before:
                    is_erased(world, control)
                keys = len(public_keys(log_of(control)))
                again = world.do(*words(world, name)) if done.code else done
                # Where it was cut off behind its change, the change is what the log says it is.
                assert keys == 1 or (name, len(public_keys(log_of(control)))) == ("rotate", keys + bool(done.code))
                for _, settled in control.logs.recover():
                    assert not isinstance(settled, Exception)
                COMMANDS[name][1](world, control, again)
                is_sound(world, control, tmp_path)
    assert refused


@row(
    "embedded",
    "disk full under the folder of an audit export",
    caller="exit 1, naming the folder; the export before it stays as it is",
    recovery="make room and export again: finished parts are used",
)
def test_a_full_disk_under_an_export(origin: World, tmp_path: Path) -> None:
    with origin.copy(tmp_path / "w") as world, mounted(world.folder / "export", "1m"):
        with nearly_full(world.folder / "export", 4):
            done = world.do(*words(world, "export"))
            assert (done.code, "cannot be written" in done.err) == (1, True), done
            with world.opened() as control:
                is_sound(world, control)
        again = world.do(*words(world, "export"))
        with world.opened() as control:
            COMMANDS["export"][1](world, control, again)
            is_sound(world, control, tmp_path)


@row(
    "embedded",
    "disk full while an auditor reads and exports over HTTP",
    caller="503: the reading cannot be on record, or the export has no room",
    others="the same: it is their disk too",
    recovery="make room; nothing else",
)
def test_a_full_disk_under_an_auditor(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o700)
    with mounted(tmp_path / "data", "24m"):
        house = House(tmp_path)
        with house.client:
            house.put("acme", "notice.md", "The notice period is three months.", allow=["tenant"])
            auditor = house.key("acme", "eve", Role.AUDITOR)
            assert house.post("/v1/audit/exports", auditor, {}).status_code == 200
            asked = {"/v1/audit/events": None, "/v1/audit/checkpoint": None, "/v1/audit/exports": {}}
            codes = set()
            for room in ROOM_KIB:
                with nearly_full(tmp_path / "data", room):
                    for path, body in asked.items():
                        found = house.send("GET" if body is None else "POST", path, auditor, body)
                        codes.add(found.status_code)
                        if found.status_code != 200:
                            assert found.json()["code"] in {"audit-unavailable", "unavailable"}, found.text
                            problem(found, 503, found.json()["code"])
            assert codes == {200, 503}
            for path, body in asked.items():
                found = house.send("GET" if body is None else "POST", path, auditor, body)
                assert found.status_code == 200, found.text
            assert json.loads(found.text)["files"]
        house.close()
