"""Files parsed elsewhere: the same documents, and what hostile ones cost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path

import pytest

from indexing.parse import ParseFailure, ParseLimits, parse
from indexing.parse import pool as pool_module
from indexing.parse.pool import ParsePool
from tenancy.control import Tenants
from tenancy.errors import Unavailable
from tenancy.identity import Authenticator
from tenancy.keys import MasterKey
from tenancy.tenant import TenantHandle

NOTE = "# Pay\n\nPaid on Fridays.\n"
LINES = b'{"text": "one", "allow": ["group:hr"]}\n{"text": ""}\n{"text": "three", "year": 2024}\n'


@pytest.fixture(scope="module")
def houses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TenantHandle, TenantHandle]]:
    tenants = Tenants(tmp_path_factory.mktemp("houses"), MasterKey(bytes(32)))
    for name in ("acme", "beta"):
        tenants.create(name)
    acme, beta = (tenants.open(Authenticator(tenants).operator(name)) for name in ("acme", "beta"))
    yield acme, beta
    tenants.close()


@pytest.fixture
def acme(houses: tuple[TenantHandle, TenantHandle]) -> TenantHandle:
    return houses[0]


@pytest.fixture
def pools() -> Iterator[Callable[..., ParsePool]]:
    made: list[ParsePool] = []

    def make(*arguments: object, **named: object) -> ParsePool:
        made.append(ParsePool(*arguments, **named))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for pool in made:
        pool.close()


@pytest.fixture
def blow_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let the registry of workers that start from now on run a line of Python where the file's name is "bad.txt"."""

    def put(line: str) -> None:
        # Found before the site's own: a parser gone wrong, as no file of ours makes one go.
        (tmp_path / "sitecustomize.py").write_text(
            "import builtins, ctypes, os, sys, time\n"
            "import indexing.parse.registry as registry\n"
            "whole = registry.parse\n"
            "def parse(name, *rest, **named):\n"
            f"    if name == 'bad.txt':\n        {line}\n"
            "    return whole(name, *rest, **named)\n"
            "registry.parse = parse\n"
        )
        monkeypatch.syspath_prepend(str(tmp_path))

    return put


def pids(pool: ParsePool) -> list[int]:
    return [worker._process.pid for worker in pool._idle]


@pytest.mark.parametrize(
    ("name", "data"), [("a.md", NOTE.encode()), ("a.jsonl", LINES), ("a.html", b"<title>T</title><p>One<p hidden>Two")]
)
def test_a_worker_gives_what_parsing_here_gives(
    acme: TenantHandle, pools: Callable[..., ParsePool], name: str, data: bytes
) -> None:
    here, there = parse(name, data), pools(1).parse(acme, name, data)

    def told(results: list[object]) -> list[object]:
        return [
            (one.status, one.reason, one.item, one.remedy, one.suffix) if isinstance(one, ParseFailure) else one
            for one in results
        ]

    assert told(list(here)) == told(list(there))


def test_an_open_file_is_read_from_its_beginning_and_no_further_than_its_limit(
    acme: TenantHandle, pools: Callable[..., ParsePool], tmp_path: Path
) -> None:
    path = tmp_path / "a.txt"
    path.write_text("many words " * 1_000)
    pool = pools(1, ParseLimits(max_bytes=5_000))
    with path.open("rb") as file:
        file.read(100)
        with pytest.raises(ParseFailure, match="5000") as found:
            pool.parse(acme, "a.txt", file)
        assert found.value.status == "too_large"
        path.write_text("few words")
        assert [one.text for one in pool.parse(acme, "a.txt", file)] == ["few words"]  # type: ignore[union-attr]


def test_failures_come_back_as_what_they_were(acme: TenantHandle, pools: Callable[..., ParsePool]) -> None:
    with pytest.raises(ParseFailure) as found:
        pools(1).parse(acme, "a.pdf", b"%PDF-1.4 and no more")
    assert (found.value.status, found.value.item) == ("corrupt", "a.pdf")
    assert found.value.remedy


def test_files_that_are_parsed_together_give_what_each_gives_alone(
    acme: TenantHandle, pools: Callable[..., ParsePool]
) -> None:
    pool = pools(1)
    files = [("a.md", NOTE.encode()), ("b.pdf", b"%PDF-1.4 and no more"), ("c.jsonl", LINES), ("d.txt", b"")]
    texts = []
    for found in pool.parse_all(acme, files):
        texts.append((found.status, found.item) if isinstance(found, ParseFailure) else len(found))
    assert texts == [1, ("corrupt", "b.pdf"), 3, ("empty", "d.txt")]
    assert len(pids(pool)) == 1


@pytest.mark.parametrize(("line", "status"), [("time.sleep(60)", "timed_out"), ("os._exit(0)", "corrupt")])
def test_one_of_many_that_ends_its_parser_costs_itself_alone(
    acme: TenantHandle, pools: Callable[..., ParsePool], blow_up: Callable[[str], None], line: str, status: str
) -> None:
    blow_up(line)
    names = [f"{number}.txt" for number in range(30)]
    names[9] = "bad.txt"
    found = pools(1, ParseLimits(seconds=1)).parse_all(acme, [(name, name.encode()) for name in names])
    told = [one.status if isinstance(one, ParseFailure) else one[0].text for one in found]  # type: ignore[union-attr]
    assert told == [status if name == "bad.txt" else name for name in names]


def test_what_one_of_many_leaves_behind_in_its_parser_takes_nothing_from_the_others(
    acme: TenantHandle, pools: Callable[..., ParsePool], blow_up: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "_MOST_HELD", 256 * 2**20)
    blow_up("globals().setdefault('kept', []).append(b'x' * (300 << 20))")
    pool = pools(1, memory_bytes=600 * 2**20)
    found = pool.parse_all(acme, [("bad.txt", b"first"), ("bad.txt", b"second")])
    told = [one.status if isinstance(one, ParseFailure) else one[0].text for one in found]  # type: ignore[union-attr]
    assert told == ["first", "second"]


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("time.sleep(60)", "timed_out"),
        ("exec('while True: pass')", "timed_out"),
        ("bytearray(1 << 40)", "too_large"),
        ("ctypes.string_at(0)", "corrupt"),
        ("os._exit(0)", "corrupt"),
        ("parse(name)", "corrupt"),
    ],
)
def test_a_file_that_ends_its_parser_costs_itself_alone(
    acme: TenantHandle, pools: Callable[..., ParsePool], blow_up: Callable[[str], None], line: str, status: str
) -> None:
    blow_up(line)
    pool = pools(1, ParseLimits(seconds=2))
    assert pool.parse(acme, "good.txt", b"before")
    with pytest.raises(ParseFailure) as found:
        pool.parse(acme, "bad.txt", b"whatever")
    assert (found.value.status, found.value.item, bool(found.value.remedy)) == (status, "bad.txt", True)
    assert pool.parse(acme, "good.txt", b"after")


def test_a_worker_is_confined(
    acme: TenantHandle,
    pools: Callable[..., ParsePool],
    blow_up: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("STRONGROOM_MASTER_KEY", "secret")
    blow_up(
        "from indexing.parse.failure import ParseFailure; import resource; "
        "raise ParseFailure('corrupt', repr([sorted(os.environ), len(os.listdir('/proc/self/fd')), "
        "resource.getrlimit(resource.RLIMIT_AS)[1], resource.getrlimit(resource.RLIMIT_FSIZE)[1]]))"
    )
    pool = pools(1, memory_bytes=10**9)
    with (tmp_path / "open").open("wb") as held:
        os.set_inheritable(held.fileno(), True)
        with pytest.raises(ParseFailure) as found:
            pool.parse(acme, "bad.txt", b"x")
    environment, descriptors, memory, files = eval(found.value.reason)
    assert "STRONGROOM_MASTER_KEY" not in environment
    assert set(environment) <= {
        "PYTHONPATH", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MALLOC_ARENA_MAX", "LC_CTYPE"
    }  # fmt: skip
    # Standard streams, the socket, the file to parse, and the folder that is being listed.
    assert descriptors <= 6
    assert (memory, files) == (10**9, 0)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="of Linux")
def test_a_worker_and_its_children_gain_no_rights_and_reach_no_network(
    acme: TenantHandle, pools: Callable[..., ParsePool], blow_up: Callable[[str], None]
) -> None:
    probe = (
        "import socket\n"
        "lines = open('/proc/self/status').readlines()\n"
        "said = [line.split()[1] for line in lines if line.startswith(('NoNewPrivs', 'Seccomp:'))]\n"
        "for family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX):\n"
        "    try:\n        socket.socket(family)\n    except OSError as error:\n        said.append(error.errno)\n"
        "print(said)"
    )
    blow_up(
        "from indexing.parse.failure import ParseFailure; import subprocess; "
        f"done = subprocess.run([sys.executable, '-c', {probe!r}], capture_output=True); "
        "raise ParseFailure('corrupt', done.stdout.decode())"
    )
    pool = pools(1)
    with pytest.raises(ParseFailure) as found:
        pool.parse(acme, "bad.txt", b"x")
    privileges, filtered, *refused = eval(found.value.reason)
    assert privileges == "1"
    if os.uname().machine in {"x86_64", "aarch64"} and "Seccomp:" in Path("/proc/self/status").read_text():
        assert (filtered, refused) == ("2", [1, 1, 1])
    assert [one.text for one in pool.parse(acme, "a.txt", b"words")] == ["words"]  # type: ignore[union-attr]


def test_an_inflating_file_stays_within_the_memory_of_its_worker(
    acme: TenantHandle, pools: Callable[..., ParsePool]
) -> None:
    packed = BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
        archive.writestr("word/document.xml", b"<w>" + b"<a/>" * 90_000_000)
    assert packed.tell() < 2 * 2**20
    pool = pools(1)
    with pytest.raises(ParseFailure) as found:
        pool.parse(acme, "bomb.docx", packed.getvalue())
    assert found.value.status == "too_large"
    assert pool.parse(acme, "good.txt", b"after")


def test_a_worker_serves_one_tenant_in_its_life(
    houses: tuple[TenantHandle, TenantHandle], pools: Callable[..., ParsePool]
) -> None:
    acme, beta = houses
    pool = pools(1)
    pool.parse(acme, "a.txt", b"one")
    (first,) = pids(pool)
    pool.parse(acme, "a.txt", b"two")
    assert pids(pool) == [first]
    pool.parse(beta, "a.txt", b"three")
    assert pids(pool)[0] == first
    assert len(set(pids(pool))) == 2
    pool.parse(acme, "a.txt", b"four")
    assert pids(pool)[1] == first


def test_of_idle_workers_the_oldest_go(
    houses: tuple[TenantHandle, TenantHandle], pools: Callable[..., ParsePool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "_IDLE", 1)
    acme, beta = houses
    pool = pools(1)
    pool.parse(acme, "a.txt", b"one")
    (first,) = pids(pool)
    pool.parse(beta, "a.txt", b"two")
    (second,) = pids(pool)
    assert second != first
    with pytest.raises(ProcessLookupError):
        os.kill(first, 0)


def test_no_more_run_than_there_is_room_for(
    houses: tuple[TenantHandle, TenantHandle], pools: Callable[..., ParsePool], monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = pools(2)
    lock, running, most = threading.Lock(), 0, 0
    both = threading.Barrier(2, timeout=60)
    parse_one = pool_module._Worker.parse

    def counted(worker: pool_module._Worker, *arguments: object) -> object:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        try:
            both.wait()
            return parse_one(worker, *arguments)  # type: ignore[arg-type]
        finally:
            with lock:
                running -= 1

    monkeypatch.setattr(pool_module._Worker, "parse", counted)
    with ThreadPoolExecutor(8) as threads:
        done = [threads.submit(pool.parse, houses[n % 2], f"{n}.txt", f"text {n}".encode()) for n in range(20)]
        texts = {one.text for future in done for one in future.result()}  # type: ignore[union-attr]
    assert texts == {f"text {n}" for n in range(20)}
    assert most == 2
    assert len(pids(pool)) <= 4


def test_a_worker_that_was_killed_is_replaced(acme: TenantHandle, pools: Callable[..., ParsePool]) -> None:
    pool = pools(1)
    pool.parse(acme, "a.txt", b"one")
    (pid,) = pids(pool)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(ParseFailure):
        pool.parse(acme, "a.txt", b"two")
    assert pool.parse(acme, "a.txt", b"three")


def test_workers_are_replaced_after_many_files(
    acme: TenantHandle, pools: Callable[..., ParsePool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "_MOST_FILES", 2)
    pool = pools(1)
    pool.parse(acme, "a.txt", b"one")
    assert len(pids(pool)) == 1
    pool.parse(acme, "a.txt", b"two")
    assert pids(pool) == []
    assert pool.parse(acme, "a.txt", b"three")


def test_a_closed_pool_leaves_no_process(acme: TenantHandle, pools: Callable[..., ParsePool]) -> None:
    pool = pools(1)
    pool.parse(acme, "a.txt", b"one")
    (pid,) = pids(pool)
    pool.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(Unavailable):
        pool.parse(acme, "a.txt", b"two")


def test_no_worker_outlives_a_pool_that_was_killed() -> None:
    """Idle or at work: the socket closes, or the worker's own clock ends it."""
    program = (
        "import os, sys, threading\n"
        "from indexing.parse import pool\n"
        "worker = pool._Worker('t', pool.MEMORY_BYTES)\n"
        "print(worker._process.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()
    gone = time.monotonic() + 10
    while time.monotonic() < gone:
        try:
            if Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z":
                return
        except FileNotFoundError:
            return
        time.sleep(0.05)
    pytest.fail("the worker runs on")


def test_an_interpreter_that_may_not_be_executed_is_named(
    acme: TenantHandle, pools: Callable[..., ParsePool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = tmp_path / "python"
    plain.write_bytes(b"")
    for program, remedy in ((plain, "execute"), (tmp_path / "gone", "execute")):
        monkeypatch.setattr(sys, "executable", str(program))
        with pytest.raises(Unavailable) as caught:
            pools().parse(acme, "a.md", NOTE.encode())
        assert remedy in (caught.value.remedy or "")
        assert str(program) in (caught.value.remedy or "")
