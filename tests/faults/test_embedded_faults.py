"""Faults of the embedded engine: one tenant's files, or the disk under all, while its neighbour asks on.

Each row says what a caller of the tenant and one of its neighbour get, what is lost and what to do. "Lost" is about
what was acknowledged.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from audit.verify import verify
from service.cli import run as command
from tenancy.identity import Role
from tests.faults.rows import row
from tests.service.house import House, problem

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
QUESTION = {"query": "How long is the notice period?"}
TEXT = "The notice period is three months."
PAGE = 4096


class Two:
    """A house with two tenants of one document each; faults meet `acme`, and `globex` is to notice nothing."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.house = House(folder)
        self.house.services.path.cache.renews = True
        for tenant in ("acme", "globex"):
            self.house.put(tenant, "notice.md", TEXT, allow=["tenant"])
            self.house.key(tenant, "ana")

    def directory(self, tenant: str = "acme") -> Path:
        tenants = self.house.services.control.tenants
        return tenants.data_dir / "tenants" / tenants.show(tenant).id

    def audit(self, tenant: str = "acme") -> Path:
        tenants = self.house.services.control.tenants
        return tenants.data_dir / "audit" / tenants.show(tenant).id

    def ask(self, tenant: str = "acme", **more: Any) -> httpx.Response:
        return self.house.post("/v1/answers", self.house.key(tenant, "ana"), {**QUESTION, **more})

    def write(self, tenant: str, name: str, text: str = TEXT) -> httpx.Response:
        key = self.house.key(tenant, "loader", Role.INGEST)
        return self.house.send("PUT", f"/v1/documents/{name}", key, {"text": text, "allow": ["tenant"]})

    def names(self, tenant: str = "acme") -> list[str]:
        listed = self.house.get("/v1/documents", self.house.key(tenant, "loader", Role.INGEST))
        assert listed.status_code == 200, listed.text
        return sorted(document["id"] for document in listed.json()["documents"])

    def closed(self, tenant: str = "acme") -> None:
        """Nothing of the tenant in memory, and its files closed: as after an eviction, or a restart."""
        services = self.house.services
        tenant_id = services.control.tenants.show(tenant).id
        services.path.collections.close(tenant_id)
        services.path.cache.close(tenant_id)
        services.control.logs.forget(tenant_id)
        services.control.tenants._pools.close(self.directory(tenant))
        services.control.tenants._pools.close(self.audit(tenant))
        services.control.tenants._handles.pop(tenant_id)

    def neighbour_is_served(self) -> None:
        answer = self.ask("globex", cache="bypass")
        assert answer.status_code == 200, answer.text
        assert "three months" in answer.json()["answer"]

    def served(self) -> None:
        answer = self.ask(cache="bypass")
        assert answer.status_code == 200, answer.text
        assert "three months" in answer.json()["answer"]


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Two]:
    made = Two(tmp_path)
    with made.house.client:
        yield made
    made.house.close()


def damage(path: Path, first_page: int, pages: int = 2) -> None:
    with path.open("r+b") as file:
        file.seek(first_page * PAGE)
        file.write(os.urandom(pages * PAGE))


def fill_up(filler: Path) -> None:
    """Take all the room that the file system has left."""
    with filler.open("wb", buffering=0) as file:
        try:
            while file.write(b"x" * PAGE) == PAGE:
                pass
        except OSError as error:
            assert error.errno == errno.ENOSPC  # noqa: PT017  whatever ended it before is another fault


@contextmanager
def mounted(directory: Path, size: str) -> Iterator[Callable[[str], None]]:
    """`directory` on a file system of its own, with what is in it; gives a function that mounts it with other options.

    Skips where that is not permitted.
    """
    aside = directory.with_name(directory.name + ".aside")
    shutil.copytree(directory, aside)

    def mount(*words: str) -> None:
        done = subprocess.run(["mount", *words], capture_output=True, text=True, check=False)
        if done.returncode:
            shutil.rmtree(aside)
            pytest.skip(f"mounting is not permitted here: {done.stderr.strip()}")

    mount("-t", "tmpfs", "-o", f"size={size},mode=700", "tmpfs", str(directory))
    try:
        shutil.copytree(aside, directory, dirs_exist_ok=True)
        yield lambda options: mount("-o", f"remount,{options}", str(directory))
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)
        shutil.rmtree(aside)


@row(
    "embedded",
    "write-ahead log cut off inside a transaction (power lost while writing)",
    caller="200, the state of the last acknowledged change",
    recovery="by itself, at the next opening",
)
def test_a_torn_end_of_the_write_ahead_log_loses_nothing_that_was_acknowledged(two: Two, tmp_path: Path) -> None:
    two.write("acme", "second.md")
    wal = two.directory() / "tenant.sqlite-wal"
    image = tmp_path / "image"
    shutil.copytree(two.directory(), image)
    acknowledged = wal.stat().st_size
    two.write("acme", "third.md", TEXT * 500)
    torn = wal.read_bytes()
    assert len(torn) > acknowledged + PAGE
    two.closed()
    for name in ("tenant.sqlite", "tenant.sqlite-wal", "tenant.sqlite-shm"):
        (two.directory() / name).unlink(missing_ok=True)
    shutil.copy(image / "tenant.sqlite", two.directory())
    # The third document's frames without their end: it was never acknowledged in this world.
    (two.directory() / "tenant.sqlite-wal").write_bytes(torn[: len(torn) - PAGE - 100])
    assert two.names() == ["notice.md", "second.md"]
    two.served()
    two.neighbour_is_served()
    assert two.write("acme", "third.md").status_code == 200
    assert two.names() == ["notice.md", "second.md", "third.md"]


@row(
    "embedded",
    "write-ahead log cut off inside acknowledged transactions (a disk that loses what it confirmed)",
    caller="200, an earlier state, never half a document",
    lost="the newest changes, which the audit log still names",
    recovery="send the newest documents again, or restore the backup",
)
def test_a_truncated_write_ahead_log_gives_an_earlier_state_as_a_whole(two: Two) -> None:
    for number in range(5):
        two.write("acme", f"d{number}.md", TEXT * 20)
    before = (two.directory() / "tenant.sqlite").read_bytes()
    wal = (two.directory() / "tenant.sqlite-wal").read_bytes()
    two.closed()
    full = ["notice.md", *(f"d{number}.md" for number in range(5))]
    kept = set()
    for share in (0.2, 0.5, 0.8, 0.95):
        two.closed()
        (two.directory() / "tenant.sqlite-shm").unlink(missing_ok=True)
        (two.directory() / "tenant.sqlite").write_bytes(before)
        (two.directory() / "tenant.sqlite-wal").write_bytes(wal[: int(share * len(wal))])
        found = two.ask(cache="bypass")
        assert found.status_code in {200, 500}, found.text
        if found.status_code == 200:
            names = two.names()
            assert set(names) <= set(full)
            kept.add(len(names))
        two.neighbour_is_served()
    assert min(kept) < len(full)
    written = [event for event in two.house.events("acme") if event["action"] == "document.put"]
    assert len({event["resources"][0]["document"] for event in written if event["resources"]}) >= 5


@row(
    "embedded",
    "damaged page of a tenant's database",
    caller="500 corrupt, without details; commands: exit 1, naming the file and the backup",
    recovery="restore the tenant from its backup",
)
def test_a_damaged_database_is_refused_and_a_copy_brings_it_back(two: Two) -> None:
    two.closed()
    path = two.directory() / "tenant.sqlite"
    whole = path.read_bytes()
    damage(path, 0, len(whole) // PAGE)
    problem(two.ask(cache="bypass"), 500, "corrupt")
    problem(two.write("acme", "second.md"), 500, "corrupt")
    two.neighbour_is_served()
    two.closed()
    path.write_bytes(whole)
    two.served()


@row(
    "embedded",
    "a tenant's database is missing or empty",
    caller="500 corrupt: never a new, empty tenant in its place",
    recovery="restore the tenant from its backup",
)
def test_a_missing_database_is_not_made_anew(two: Two) -> None:
    two.closed()
    path = two.directory() / "tenant.sqlite"
    whole = path.read_bytes()
    for lose in (path.unlink, lambda: path.write_bytes(b"")):
        lose()
        problem(two.ask(cache="bypass"), 500, "corrupt")
        two.neighbour_is_served()
        two.closed()
        path.write_bytes(whole)
        two.served()
        two.closed()


@row(
    "embedded",
    "damaged cache file",
    caller="200, answered afresh",
    lost="remembered answers",
    recovery="by itself: the server begins an empty file",
)
def test_a_damaged_cache_is_made_anew(two: Two) -> None:
    assert two.ask().json()["cache"]["status"] == "miss"
    assert two.ask().json()["cache"]["status"] == "hit"
    two.closed()
    path = two.directory() / "cache.sqlite"
    damage(path, 0, path.stat().st_size // PAGE)
    assert two.ask().json()["cache"]["status"] == "miss"
    assert two.ask().json()["cache"]["status"] == "hit"
    two.neighbour_is_served()
    two.house.services.path.cache.renews = False
    two.closed()
    damaged = os.urandom(path.stat().st_size)
    path.write_bytes(damaged)
    assert two.ask().json()["cache"]["status"] == "miss"
    assert path.read_bytes() == damaged


@row(
    "embedded",
    "damaged page of a tenant's audit log",
    caller="503 audit-unavailable: no record, no answer",
    recovery="restore the log from its backup; `strongroom audit verify` tells where it ends",
)
def test_a_damaged_audit_log_refuses_answers(two: Two) -> None:
    two.served()
    two.closed()
    path = two.audit() / "audit.sqlite"
    whole = path.read_bytes()
    damage(path, 0, len(whole) // PAGE)
    problem(two.ask(cache="bypass"), 503, "audit-unavailable")
    two.neighbour_is_served()
    two.closed()
    path.write_bytes(whole)
    two.served()


@row(
    "embedded",
    "disk full under one tenant",
    caller="writes: 503 unavailable, nothing half-written; questions: 200, not remembered",
    recovery="make room; what was refused can be sent again",
)
def test_a_full_disk_under_one_tenant(two: Two) -> None:
    two.closed()
    with mounted(two.directory(), "3m"):
        two.served()
        filler = two.directory() / "filler"
        fill_up(filler)
        refused = [two.write("acme", f"big{number}.md", TEXT * 2_000).status_code for number in range(3)]
        assert set(refused) == {503}
        two.served()
        two.neighbour_is_served()
        assert two.names() == ["notice.md"]
        filler.unlink()
        assert two.write("acme", "big.md", TEXT * 100).status_code == 200
        assert two.names() == ["big.md", "notice.md"]
        two.closed()


@row(
    "embedded",
    "disk full under everything",
    caller="503: neither a change nor an intent can be made durable",
    others="the same: it is their disk too",
    recovery="make room; nothing else",
)
def test_a_full_disk_under_all(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o700)
    with mounted(tmp_path / "data", "24m"):
        two = Two(tmp_path)
        with two.house.client:
            two.served()
            filler = tmp_path / "data" / "filler"
            fill_up(filler)
            for tenant in ("acme", "globex"):
                codes = [two.ask(tenant, cache="bypass").status_code for _ in range(40)]
                assert codes[-1] == 503
                assert set(codes) <= {200, 503}
                assert two.write(tenant, "big.md", TEXT * 2_000).status_code == 503
            filler.unlink()
            two.served()
            two.neighbour_is_served()
            assert two.names() == ["notice.md"]
            log = two.house.services.control.logs.of(two.house.services.control.authenticator.operator("acme"))
            assert verify(log, recover=True).finding is None
        two.house.close()


@row(
    "embedded",
    "a tenant's folder became read-only",
    caller="writes: 503 unavailable; questions: 200 or 503, never a wrong answer",
    recovery="make it writable again",
)
def test_a_read_only_folder(two: Two) -> None:
    two.closed()
    with mounted(two.directory(), "8m") as remount:
        two.served()
        two.closed()
        remount("ro")
        assert two.write("acme", "second.md").status_code == 503
        asked = two.ask(cache="bypass")
        assert asked.status_code in {200, 503}, asked.text
        two.neighbour_is_served()
        remount("rw")
        two.closed()
        two.served()
        assert two.names() == ["notice.md"]
        assert two.write("acme", "second.md").status_code == 200
        two.closed()


@row(
    "embedded",
    "clock jumps back or forward",
    caller="200; answers from the cache only while they are fresh by both clocks",
    recovery="by itself; the order of the audit log is by number, not by time",
)
def test_a_clock_that_jumps(two: Two) -> None:
    services = two.house.services
    now = [1_800_000_000.0]
    control = services.control
    services.path.cache.clock = control.logs._clock = control.tenants._clock = lambda: now[0]
    for principal in ("acme", "globex"):
        control.logs.forget(control.tenants.show(principal).id)
    assert two.ask().json()["cache"]["status"] == "miss"
    assert two.ask().json()["cache"]["status"] == "hit"
    start = now[0]
    for jump, status in ((-86_400.0, "miss"), (0.0, "hit"), (10 * 365 * 86_400.0, "miss")):
        now[0] = start + jump
        found = two.ask()
        assert (found.status_code, found.json()["cache"]["status"]) == (200, status), jump
        two.neighbour_is_served()
        assert two.write("acme", f"at{int(jump)}.md", "Something else about parking.").status_code == 200
        if jump < 0:
            # What was remembered at the earlier time is gone with the next store, and is asked again.
            now[0] = start
            assert two.ask().status_code == 200
    log = control.logs.of(control.authenticator.operator("acme"))
    log.flush()
    assert verify(log, recover=True).finding is None
    assert len(two.names()) == 4


@row(
    "embedded",
    "server killed (kill -9) at any moment",
    caller="a broken connection, then 503 until it runs again",
    others="the same",
    recovery="start it: intents without an outcome are closed as aborted",
)
def test_killing_is_shown_elsewhere() -> None:
    assert (ROOT / "tests" / "faults" / "test_kill.py").exists()


def test_a_command_names_the_damaged_file_and_the_remedy(
    two: Two, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import base64

    from tests.service.house import MASTER

    two.closed()
    path = two.directory() / "tenant.sqlite"
    damage(path, 0, path.stat().st_size // PAGE)
    monkeypatch.setenv("STRONGROOM_DATA_DIR", str(two.folder / "data"))
    monkeypatch.setenv("STRONGROOM_MASTER_KEY", base64.b64encode(MASTER.value).decode())
    assert command(["tenant", "show", "acme"]) == 1
    said = capsys.readouterr().err
    assert "tenant.sqlite" in said
    assert "backup" in said
    assert command(["tenant", "show", "globex"]) == 0


def test_the_table_has_a_row_for_each_test_and_prints() -> None:
    from tests.faults.table import markdown, rows

    found = rows("embedded")
    assert len(found) >= 11
    assert all(one.caller and one.recovery and one.test for one in found)
    printed = subprocess.run(
        [sys.executable, "-m", "tests.faults.table", "embedded"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert printed.stdout.strip() == markdown(found)
