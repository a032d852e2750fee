"""Faults of vector servers, as callers of the product's HTTP API meet them: one engine fails, its neighbours answer on.

Each row says what a caller of a tenant at the faulty engine gets, what tenants at other engines notice, what is lost
and what to do. "Lost" is about what was acknowledged, or stored behind a 503 that says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.faults.engine_rig import LIMIT_S, THREADS, Rig
from tests.faults.rows import row
from tests.support import milvus_server
from tests.support.milvus_server import MilvusServer
from tests.support.qdrant_http import QdrantHttp

MILVUS = pytest.param("milvus", marks=[pytest.mark.milvus, pytest.mark.slow])
KEY = {"qdrant": "first-secret-key", "milvus": "root:Milvus"}

AGAIN = "by itself: the next question or document brings the engine up to the database"
STORED = "503 with Retry-After, which says that all is stored"
REFUSED = "503 with Retry-After"


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
        server = MilvusServer(folder, authenticated=True)
    else:
        server = QdrantHttp(folder / "engine", KEY["qdrant"])
    server.start()
    port = int(server.url.rpartition(":")[2])
    made = Rig(request.param, server, port, folder, KEY[request.param], timeout_s=3.0)
    yield made
    made.close()
    server.kill()


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
    caller=f"{REFUSED}; where something was written, it says that all is stored",
    recovery=AGAIN,
)
@pytest.mark.parametrize("answer", ["400", "429", "500", "503", "garbage", "null", "shape", "ids", "list", "empty"])
def test_answers_that_say_nothing(rig: Rig, qdrant: QdrantHttp, answer: str) -> None:
    acme = rig.tenant()
    rig.others = ("initech",)  # the stand-in has one state for all that ask it
    with qdrant.fault(answer):
        rig.refused(rig.ask(acme))
        assert "all is stored" in rig.refused(rig.put(acme, "new.md"))["detail"]
        rig.others_are_served()
    rig.others = ("globex", "initech")
    assert rig.found(acme) == {"notice.md", "new.md"}
    rig.agrees(acme)
