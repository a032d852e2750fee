"""Faults of vector servers, as callers of the product's HTTP API meet them: one engine fails, its neighbours answer on.

Each row says what a caller of a tenant at the faulty engine gets, what tenants at other engines notice, what is lost
and what to do. "Lost" is about what was acknowledged, or stored behind a 503 that says so.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from indexing.remote import engines as remote
from tests.faults.engine_rig import LIMIT_S, NOTICE, THREADS, Rig
from tests.faults.rows import row
from tests.support import milvus_server
from tests.support.milvus_server import MilvusServer
from tests.support.qdrant_http import QdrantHttp

MILVUS = pytest.param("milvus", marks=[pytest.mark.milvus, pytest.mark.slow])
KEY = {"qdrant": "first-secret-key", "milvus": "root:Milvus"}

AGAIN = "by itself: the next question or document brings the engine up to the database"
STORED = "503 with Retry-After, which says that all is stored"
REFUSED = "503 with Retry-After"
ELSEWHERE = "nothing; those at the same server meet the same"


def both(fault: str, **columns: str) -> Callable[[Any], Any]:
    """A row of each kind of server."""

    def put(test: Any) -> Any:
        return row("qdrant", fault, **columns)(row("milvus", fault, **columns)(test))

    return put


@pytest.fixture(scope="module", params=["qdrant", MILVUS])
def rig(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    folder = tmp_path_factory.mktemp(request.param)
    server: Any
    if request.param == "milvus":
        if reason := milvus_server.missing():
            pytest.skip(reason)
        (folder / "engine").mkdir()
        server = MilvusServer(folder / "engine", authenticated=True)
    else:
        server = QdrantHttp(folder / "engine", KEY["qdrant"])
    server.start()
    port = int(server.url.rpartition(":")[2])
    made = Rig(
        request.param, server, port, folder, KEY[request.param], timeout_s=3.0 if request.param == "qdrant" else 5.0
    )
    yield made
    made.close()
    server.kill()


LONG = "\n\n".join(
    f"Clause {number}: the notice period of grade {number} is {number} weeks. " * 8 for number in range(200)
)
"""More chunks than a search asks an engine for."""

HALF_BYTES = 100_000
"""Of the points of `LONG` as Milvus gets them: behind what comes before them."""


@pytest.fixture
def milvus(rig: Rig) -> MilvusServer:
    if not isinstance(rig.server, MilvusServer):
        pytest.skip("of a real Milvus server alone")
    return rig.server


@pytest.fixture
def qdrant(rig: Rig) -> QdrantHttp:
    if not isinstance(rig.server, QdrantHttp):
        pytest.skip("of the stand-in for Qdrant alone")
    return rig.server


# Away and slow


@both(
    "away at a question",
    caller=REFUSED,
    recovery="by itself, at the next question",
)
def test_away_at_a_question(rig: Rig) -> None:
    acme = rig.tenant()
    before = rig.ask(acme).json()["passages"]
    with rig.wire.away():
        for mode in ("dense", "hybrid"):
            rig.refused(rig.ask(acme, mode=mode))
        rig.others_are_served()
    assert rig.ask(acme).json()["passages"] == before


@both(
    "away at ingestion: a new document, a deletion, a withdrawn right",
    caller=f"{STORED}; questions of the tenant 503 until the engine is back",
    recovery=AGAIN,
)
def test_away_at_ingestion(rig: Rig) -> None:
    acme = rig.tenant()
    for name in ("gone.md", "secret.md"):
        assert rig.put(acme, name).status_code == 200
    with rig.wire.away():
        for response in (
            rig.put(acme, "new.md"),
            rig.delete(acme, "gone.md"),
            rig.allow(acme, "secret.md", "user:bo"),
        ):
            assert "all is stored" in rig.refused(response)["detail"]
        assert rig.names(acme) == {"notice.md", "secret.md", "new.md"}
        rig.refused(rig.ask(acme))
        rig.others_are_served()
    assert rig.found(acme) == {"notice.md", "new.md"}
    rig.agrees(acme)
    with rig.wire.away():
        rig.refused(rig.put(acme, "newer.md"))
    assert rig.put(acme, "newest.md").status_code == 200
    rig.agrees(acme)
    assert rig.found(acme) == {"notice.md", "new.md", "newer.md", "newest.md"}


@both(
    "answers too late",
    caller="503 with Retry-After after the engine's timeout",
    recovery="by itself, at the next question",
)
def test_an_answer_that_comes_too_late(rig: Rig) -> None:
    acme = rig.tenant()
    with rig.counting("faulty"), rig.wire.fault("hold"):
        asked = rig.later(rig.ask, acme)
        rig.await_begun(1)
        rig.others_are_served()
        rig.refused(asked.result(LIMIT_S))
        rig.others_are_served()
    assert rig.found(acme) == {"notice.md"}
    assert rig.put(acme, "new.md").status_code == 200
    rig.agrees(acme)


@both(
    "hangs, and more questions, documents, deletions and withdrawn rights come in than the process has threads",
    caller="an answer when it goes on, or 503 with Retry-After after the timeout",
    recovery="by itself",
)
def test_a_hanging_engine_takes_no_thread_of_the_others(rig: Rig) -> None:
    tenants = [rig.tenant("patient") for _ in range(3)]
    for tenant in tenants:
        assert rig.put(tenant, "gone.md").status_code == 200
        assert rig.put(tenant, "other.md").status_code == 200
    questions = 2 * THREADS
    with rig.counting("patient"):
        with rig.wire.fault("hold"):
            waiting = [rig.later(rig.ask, tenants[0]) for _ in range(questions)]
            rig.await_begun(THREADS)
            assert rig.wire.struck.acquire(timeout=LIMIT_S)
            waiting += [rig.later(rig.put, tenant, "new.md") for tenant in tenants]
            rig.await_begun(2)
            waiting += [
                rig.later(rig.delete, tenants[1], "gone.md"),
                rig.later(rig.allow, tenants[2], "other.md", "user:bo"),
            ]
            rig.others_are_served()
            assert not any(one.done() for one in waiting), "the others were served only after those that hung"
        results = [one.result(LIMIT_S) for one in waiting]
    assert [response.status_code for response in results] == [200] * len(results)
    for tenant in tenants:
        rig.agrees(tenant)


# Answers that are none


@both(
    "connection reset in the middle of an answer",
    caller=f"{REFUSED}; where something was written, it says that all is stored",
    recovery=AGAIN,
)
@both(
    "half an answer, then the end of the connection",
    caller=f"{REFUSED}; where something was written, it says that all is stored",
    recovery=AGAIN,
)
@both(
    "bytes that are no answer (another program at the address)",
    caller=f"{REFUSED}; where something was written, it says that all is stored",
    recovery=AGAIN,
)
@pytest.mark.parametrize("fault", ["reset", "half", "garbage"])
def test_answers_that_are_cut_off_or_garbled(rig: Rig, fault: Any) -> None:
    acme = rig.tenant()
    with rig.wire.fault(fault):
        rig.refused(rig.ask(acme))
        assert rig.wire.struck.acquire(timeout=LIMIT_S)
        assert "all is stored" in rig.refused(rig.put(acme, "new.md"))["detail"]
        rig.others_are_served()
    assert rig.found(acme) == {"notice.md", "new.md"}
    rig.agrees(acme)
    assert rig.put(acme, "newer.md").status_code == 200
    rig.agrees(acme)


@row(
    "qdrant",
    "answers 500, 503, 429 or 400, or 200 with what is no JSON or means nothing",
    others=ELSEWHERE,
    caller=f"{REFUSED}; where something was written, it says that all is stored",
    recovery=AGAIN,
)
@pytest.mark.parametrize("answer", ["400", "429", "500", "503", "garbage", "null", "shape", "ids", "list", "empty"])
def test_answers_that_say_nothing(rig: Rig, qdrant: QdrantHttp, answer: str) -> None:
    acme = rig.tenant()
    with rig.at("initech"), qdrant.fault(answer):
        rig.refused(rig.ask(acme))
        assert "all is stored" in rig.refused(rig.put(acme, "new.md"))["detail"]
        rig.others_are_served()
    assert rig.found(acme) == {"notice.md", "new.md"}
    rig.agrees(acme)


# Killed, full, lost, restored


@row(
    "qdrant",
    "server killed (kill -9) with half of a document's points written",
    others=ELSEWHERE,
    caller=f"{STORED}; questions of the tenant 503 until the server is back",
    recovery=f"start the server; then {AGAIN}",
)
def test_killed_with_half_of_the_points_written(rig: Rig, qdrant: QdrantHttp) -> None:
    acme = rig.tenant()
    with qdrant.fault("crash"):
        assert "all is stored" in rig.refused(rig.put(acme, "long.md", LONG))["detail"]
        assert qdrant.died() == -9
    killed_server_comes_back(rig, acme)


@row(
    "milvus",
    "server killed (kill -9) in the middle of an upsert",
    others=ELSEWHERE,
    caller=f"{STORED}; questions of the tenant 503 until the server is back",
    recovery=f"start the server; then {AGAIN}",
)
def test_killed_in_the_middle_of_an_upsert(rig: Rig, milvus: MilvusServer) -> None:
    acme = rig.tenant()
    rig.wire.after(HALF_BYTES, milvus.kill)
    assert "all is stored" in rig.refused(rig.put(acme, "long.md", LONG))["detail"]
    assert rig.wire.tapped == 1
    killed_server_comes_back(rig, acme)


def killed_server_comes_back(rig: Rig, acme: str) -> None:
    rig.refused(rig.ask(acme))
    with rig.at("initech"):
        rig.others_are_served()
    rig.server.start()
    rig.comes_back(acme, "globex")
    assert rig.found(acme, top_k=100) == {"notice.md", "long.md"}
    rig.agrees(acme)
    rig.others_are_served()
    assert rig.put(acme, "new.md").status_code == 200
    rig.agrees(acme)


@row(
    "qdrant",
    "server full: writes get 507, or 500 with the reason in its text",
    others=ELSEWHERE,
    caller=f"{STORED}; after it, questions of the tenant 503 until the server takes writes again",
    recovery=f"give the server room; then {AGAIN}",
)
@pytest.mark.parametrize("answer", ["507", "500"])
def test_a_full_qdrant(rig: Rig, qdrant: QdrantHttp, answer: str) -> None:
    acme, reader = rig.tenant(), rig.tenant()
    with rig.at("initech"), qdrant.fault(answer, "write"):
        refused_writes(rig, acme, reader)
    accepted_again(rig, acme)


@row(
    "milvus",
    "server denies writes, as it does when its disk or memory quota is used up",
    others=ELSEWHERE,
    caller=f"{STORED}; after it, questions of the tenant 503 until the server takes writes again",
    recovery=f"give the server room; then {AGAIN}",
)
def test_a_milvus_that_denies_writes(rig: Rig, milvus: MilvusServer) -> None:
    acme, reader = rig.tenant(), rig.tenant()
    milvus.deny_writes(True)
    rig.comes_back(acme, reader)
    with rig.at("initech"):
        refused_writes(rig, acme, reader)
    milvus.deny_writes(False)
    rig.comes_back(acme, "globex")
    accepted_again(rig, acme)


def refused_writes(rig: Rig, acme: str, reader: str) -> None:
    assert "all is stored" in rig.refused(rig.put(acme, "new.md"))["detail"]
    assert rig.names(acme) == {"notice.md", "new.md"}
    rig.refused(rig.ask(acme))
    assert rig.found(reader) == {"notice.md"}, "searches go on where nothing is to be written"
    rig.others_are_served()


def accepted_again(rig: Rig, acme: str) -> None:
    assert rig.found(acme) == {"notice.md", "new.md"}
    rig.agrees(acme)
    assert rig.put(acme, "newer.md").status_code == 200
    rig.agrees(acme)


@both(
    "a collection is lost at the server",
    caller="200: the question waits until the collection is built anew; 503 where that takes too long",
    recovery="by itself, at the next question or document",
)
@pytest.mark.parametrize("noticed_by", ["question", "document"])
def test_a_lost_collection(rig: Rig, noticed_by: str) -> None:
    acme = rig.tenant()
    assert rig.put(acme, "long.md", LONG).status_code == 200
    rig.house.services.engines["faulty"].drop(rig.collection(acme).physical)
    assert rig.compared(acme).lost
    if noticed_by == "document":
        assert rig.put(acme, "new.md").status_code == 200
        rig.agrees(acme)
    assert rig.found(acme, top_k=100) >= {"notice.md", "long.md"}
    rig.agrees(acme)
    rig.others_are_served()


@both(
    "server restored from an older state, behind what it acknowledged",
    caller="200; for at most a minute a question may miss what came after the backup, never find what it may not",
    recovery="by itself: at the next document, or at a question within a minute, by the number of the state",
)
@pytest.mark.slow
@pytest.mark.parametrize("noticed_by", ["question", "document", "restart"])
def test_a_server_restored_from_an_older_state(
    rig: Rig, noticed_by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More chunks than a search asks for, so that what is missing does not show by their number."""
    acme = rig.tenant()
    for name, text in (("long.md", LONG), ("gone.md", NOTICE), ("secret.md", NOTICE)):
        assert rig.put(acme, name, text).status_code == 200
    rig.server.kill()
    shutil.copytree(rig.data, tmp_path / "backup", symlinks=True)
    rig.server.start()
    rig.comes_back(acme)
    assert rig.put(acme, "new.md", f"{NOTICE} {NOTICE}").status_code == 200
    assert rig.delete(acme, "gone.md").status_code == 200
    assert rig.allow(acme, "secret.md", "user:bo").status_code == 200
    rig.agrees(acme)

    rig.server.kill()
    shutil.rmtree(rig.data)
    shutil.copytree(tmp_path / "backup", rig.data, symlinks=True)
    rig.server.start()
    rig.comes_back("globex")
    assert not rig.compared(acme).agrees
    # Before it is noticed: nothing that may not be read.
    assert {"gone.md", "secret.md"}.isdisjoint(rig.found(acme, mode="lexical"))
    if noticed_by == "restart":
        rig.restart()
    elif noticed_by == "document":
        assert rig.put(acme, "newer.md").status_code == 200
        rig.agrees(acme)
    else:
        monkeypatch.setattr(remote, "CHECK_S", 0.0)
    found = rig.found(acme, mode="dense", top_k=100)
    assert found >= {"new.md", "long.md", "notice.md"}
    assert {"gone.md", "secret.md"}.isdisjoint(found)
    rig.agrees(acme)
    rig.others_are_served()


# Keys and endpoints


@both(
    "wrong API key (changed at the server)",
    others=ELSEWHERE,
    caller=f"{REFUSED}; where something was written, it says that all is stored",
    recovery="correct the file that api_key_file names and restart the product; nothing has to be written again",
)
def test_a_wrong_key(rig: Rig) -> None:
    acme = rig.tenant()
    with rig.other_key(), rig.at("initech"):
        rig.refused(rig.ask(acme))
        assert "all is stored" in rig.refused(rig.put(acme, "new.md"))["detail"]
        rig.others_are_served()
        rig.restart()
        rig.refused(rig.ask(acme))
        rig.correct_key()
        rig.restart()
        rig.comes_back(acme)
        assert rig.found(acme) == {"notice.md", "new.md"}
        rig.agrees(acme)


@both(
    "the dedicated endpoint of one tenant is away",
    caller=f"{REFUSED}; no other endpoint is asked in its place",
    recovery=AGAIN,
)
def test_a_dedicated_endpoint_that_is_away(rig: Rig) -> None:
    rig.create("solo", "own")
    assert rig.put("solo", "notice.md").status_code == 200
    shared = rig.tenant()
    with rig.own.away():
        with rig.counting("faulty"), rig.counting("sound"), rig.counting("patient"):
            rig.refused(rig.ask("solo"))
            assert "all is stored" in rig.refused(rig.put("solo", "new.md"))["detail"]
            assert not rig.begun.acquire(blocking=False), "another endpoint was asked"
        assert rig.found(shared) == {"notice.md"}
        rig.others_are_served()
    assert rig.found("solo") == {"notice.md", "new.md"}
    rig.agrees("solo")


@row(
    "milvus",
    "server stopped (SIGSTOP): it keeps its connections and answers nothing",
    others=ELSEWHERE,
    caller=f"{REFUSED}, after the engine's timeout",
    recovery="by itself, when the server goes on",
)
def test_a_paused_milvus(rig: Rig, milvus: MilvusServer) -> None:
    acme = rig.tenant()
    with rig.at("initech"), rig.counting("faulty"):
        milvus.pause()
        try:
            asked = rig.later(rig.ask, acme)
            rig.await_begun(1)
            rig.others_are_served()
            rig.refused(asked.result(LIMIT_S))
        finally:
            milvus.resume()
    rig.comes_back(acme)
    assert rig.found(acme) == {"notice.md"}
    assert rig.put(acme, "new.md").status_code == 200
    rig.agrees(acme)
