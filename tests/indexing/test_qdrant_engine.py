"""The Qdrant adapter over HTTP: what it sends, what it repeats, and what an unwilling server becomes.

The server here answers by a script; what answers mean for searches is held by `tests/conformance`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from qdrant_client import models

from indexing.engine import Point
from indexing.engines.qdrant import ACORN_SHARE, QdrantEngine, readable_filter
from tenancy.errors import InvalidInput, NotFound, Unavailable

PHYSICAL = "c_" + "0" * 32
VECTOR = np.array([1.0, 0.0], dtype=np.float32)
Script = Callable[[str, str, Any], tuple[int, Any]]
DONE = {"operation_id": 1, "status": "completed"}


class Server:
    """`requests` are (method, path, body); `script` gives the status and the result of each."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, Any]] = []
        self.keys: list[str | None] = []
        self.script: Script = lambda *_: (200, DONE)
        server = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                request = (self.command, self.path, json.loads(body) if body else None)
                server.requests.append(request)
                server.keys.append(self.headers.get("api-key"))
                status, result = server.script(*request)
                text = json.dumps({"result": result, "status": "ok", "time": 0.0}).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_PUT = do_POST = do_DELETE = answer

            def log_message(self, *_: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,))
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._http.server_port}"

    def close(self) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    started = Server()
    yield started
    started.close()


@pytest.fixture
def engine(server: Server) -> Iterator[QdrantEngine]:
    opened = QdrantEngine.server("main", server.url, timeout=5.0)
    yield opened
    opened.close()


def point(chunk_id: int, dimension: int = 2) -> Point:
    return Point(chunk_id, 7, np.ones(dimension, dtype=np.float32), (3, 4), (5,), {"m0000000000000001": 2024})


def test_a_point_is_its_vector_and_integers(server: Server, engine: QdrantEngine) -> None:
    engine.put(PHYSICAL, [point(9)])
    method, path, body = server.requests[-1]
    assert (method, path) == ("PUT", f"/collections/{PHYSICAL}/points?wait=true")
    payload = {"document": 7, "allow": [3, 4], "deny": [5], "m0000000000000001": 2024}
    assert body["points"] == [{"id": 9, "vector": [1.0, 1.0], "payload": payload}]


def test_points_go_in_batches_of_bounded_size_and_all_of_them(server: Server) -> None:
    engine = QdrantEngine.server("main", server.url, batch_bytes=20_000)
    engine.put(PHYSICAL, [point(number, 300) for number in range(1, 8)])
    engine.put(PHYSICAL, [point(8, 3000)])
    engine.close()
    sent = [[one["id"] for one in body["points"]] for _, _, body in server.requests]
    assert sent == [[1, 2], [3, 4], [5, 6], [7], [8]]


def test_the_labels_are_in_the_filter_of_the_search(server: Server, engine: QdrantEngine) -> None:
    server.script = lambda *_: (200, {"points": [{"id": 4, "version": 1, "score": 0.5}]})
    assert engine.nearest(PHYSICAL, VECTOR, frozenset({8, 3}), None, 5, readable=10) == [(4, 0.5)]
    body = server.requests[-1][2]
    assert body["filter"] == {
        "must": [{"key": "allow", "match": {"any": [3, 8]}}],
        "must_not": [{"key": "deny", "match": {"any": [3, 8]}}],
    }
    assert (body["limit"], body["with_payload"], body["with_vector"]) == (5, False, False)


def test_few_readable_points_are_compared_one_by_one_and_many_by_the_graph(server: Server) -> None:
    engine = QdrantEngine.server("main", server.url, exact_below=100, ef=64)
    server.script = lambda *_: (200, {"points": []})
    acorn = {"enable": True, "max_selectivity": ACORN_SHARE}
    graph = [(101, 5, {"hnsw_ef": 64, "acorn": acorn}), (101, 50, {"hnsw_ef": 100, "acorn": acorn})]
    for readable, k, expected in [(100, 5, {"exact": True}), *graph]:
        engine.nearest(PHYSICAL, VECTOR, frozenset({1}), None, k, readable=readable)
        sent = server.requests[-1][2]["params"]
        assert {key: value for key, value in sent.items() if value} == expected
    engine.close()


def test_no_labels_ask_no_server(server: Server, engine: QdrantEngine) -> None:
    assert engine.nearest(PHYSICAL, VECTOR, frozenset(), None, 5, readable=10) == []
    assert server.requests == []
    with pytest.raises(ValueError, match="empty set of labels"):
        readable_filter(frozenset(), None)


def test_labels_are_indexed_before_the_first_point(server: Server, engine: QdrantEngine) -> None:
    server.script = lambda method, path, _: (
        (200, {"exists": False}) if path.endswith("/exists") else (200, DONE if "/index" in path else True)
    )
    engine.create(PHYSICAL, 2)
    assert server.requests[1][1] == f"/collections/{PHYSICAL}"
    assert server.requests[1][2]["vectors"] == {"size": 2, "distance": "Dot"}
    indexed = [body["field_name"] for _, path, body in server.requests if "/index" in path]
    assert indexed == ["allow", "deny", "document"]


def test_a_collection_that_somebody_else_has_just_made_is_no_error(server: Server, engine: QdrantEngine) -> None:
    def script(method: str, path: str, _: Any) -> tuple[int, Any]:
        if path.endswith("/exists"):
            return 200, {"exists": False}
        return (409, None) if method == "PUT" and "/index" not in path else (200, DONE)

    server.script = script
    engine.create(PHYSICAL, 2)
    assert sum("/index" in path for _, path, _ in server.requests) == 3


def test_only_names_that_the_product_made_are_created_dropped_or_listed(server: Server, engine: QdrantEngine) -> None:
    for name in ("acme", "c_1", PHYSICAL + "/../x", PHYSICAL.upper()):
        with pytest.raises(ValueError, match="physical names"):
            engine.create(name, 2)
        with pytest.raises(ValueError, match="physical names"):
            engine.drop(name)
    assert server.requests == []
    server.script = lambda *_: (200, {"collections": [{"name": "other"}, {"name": PHYSICAL}]})
    assert engine.collections() == [PHYSICAL]


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_passing_failure_is_repeated(server: Server, engine: QdrantEngine, status: int) -> None:
    answers = iter([(status, None), (200, DONE)])
    server.script = lambda *_: next(answers)
    engine.put(PHYSICAL, [point(1)])
    assert len(server.requests) == 2
    assert server.requests[0] == server.requests[1]


@pytest.mark.parametrize(
    ("status", "error", "tries", "words"),
    [
        (400, Unavailable, 1, "HTTP status 400"),
        (401, Unavailable, 1, "refuses the key"),
        (403, Unavailable, 1, "refuses the key"),
        (404, NotFound, 1, "not at the engine"),
        (500, Unavailable, 1, "disk may be full"),
        (503, Unavailable, 3, "HTTP status 503"),
    ],
)
def test_a_refusal_says_what_to_do_and_quotes_nothing(
    server: Server, engine: QdrantEngine, status: int, error: type[Exception], tries: int, words: str
) -> None:
    server.script = lambda *_: (status, "secret point 9 secret")
    with pytest.raises(error, match=words) as caught:
        engine.put(PHYSICAL, [point(9)])
    assert "secret" not in str(caught.value)
    assert len(server.requests) == tries


def test_a_server_that_does_not_answer_in_time_is_unavailable(server: Server) -> None:
    release = threading.Event()

    def wait(*_: Any) -> tuple[int, Any]:
        release.wait(20)
        return 200, DONE

    server.script = wait
    engine = QdrantEngine.server("main", server.url, timeout=0.2)
    with pytest.raises(Unavailable, match=r"within 0\.2 s") as caught:
        engine.remove(PHYSICAL, [1])
    assert caught.value.remedy
    release.set()
    engine.close()


def test_a_server_that_is_not_there_is_unavailable() -> None:
    gone = Server()
    gone.close()
    engine = QdrantEngine.server("main", gone.url)
    with pytest.raises(Unavailable, match="cannot be reached"):
        engine.collections()
    engine.close()
    with pytest.raises(Unavailable, match="is closed"):
        engine.collections()


def test_ids_come_in_pieces_to_the_end(server: Server, engine: QdrantEngine) -> None:
    pages = {1: ([1, 2], 3), 3: ([3, 4], 5), 5: ([5], None)}

    def script(_: str, __: str, body: Any) -> tuple[int, Any]:
        ids, offset = pages[body.get("offset")]
        return 200, {"points": [{"id": number, "payload": None} for number in ids], "next_page_offset": offset}

    server.script = script
    assert list(engine.chunk_ids(PHYSICAL)) == [[1, 2], [3, 4], [5]]


def test_older_versions_are_removed_by_their_document(server: Server, engine: QdrantEngine) -> None:
    engine.prune(PHYSICAL, [7, 8], [1, 2])
    sent = server.requests[-1][2]["filter"]
    assert sent["must"] == [{"key": "document", "match": {"any": [7, 8]}}]
    assert sent["must_not"] == [{"has_id": [1, 2]}]
    engine.prune(PHYSICAL, [7], [])
    assert "must_not" not in server.requests[-1][2]["filter"] or not server.requests[-1][2]["filter"]["must_not"]
    before = len(server.requests)
    engine.prune(PHYSICAL, [], [1])
    assert len(server.requests) == before


def test_the_key_comes_from_its_file_and_goes_into_the_header(server: Server, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("s3cret-key\n")
    engine = QdrantEngine.server("main", server.url, api_key_file=key, plaintext=True)
    engine.remove(PHYSICAL, [1])
    assert server.keys[-1] == "s3cret-key"
    engine.close()


@pytest.mark.parametrize(
    "url",
    ["http://qdrant.internal:6333", "https://qdrant.internal", "ftp://127.0.0.1", "qdrant", "http://u:p@127.0.0.1"],
)
def test_an_address_that_is_not_protected_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        QdrantEngine.server("main", url)
    assert caught.value.item == "collections.engines.main.url"


def test_plaintext_and_no_key_are_the_operators_word() -> None:
    QdrantEngine.server("main", "http://qdrant.internal:6333", plaintext=True).close()


def test_a_file_of_authorities_must_be_one(tmp_path: Path) -> None:
    wrong = tmp_path / "ca.pem"
    wrong.write_text("no certificate")
    for path in (wrong, tmp_path / "absent.pem"):
        with pytest.raises(InvalidInput) as caught:
            QdrantEngine.server("main", "https://127.0.0.1", ca_file=path)
        assert caught.value.item == "collections.engines.main.ca_file"


def test_no_proxy_of_the_environment_sees_a_vector(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = Server()
    monkeypatch.setenv("HTTP_PROXY", proxy.url)
    engine = QdrantEngine.server("main", server.url.replace("127.0.0.1", "127.0.0.2"))
    with pytest.raises(Unavailable):
        engine.remove(PHYSICAL, [1])
    assert proxy.requests == []
    engine.close()
    proxy.close()


@pytest.mark.parametrize("text", ["", "two words", "\xff"])
def test_a_key_file_without_one_key_is_refused_without_quoting_it(tmp_path: Path, text: str) -> None:
    key = tmp_path / "key"
    key.write_bytes(text.encode("latin-1"))
    with pytest.raises(InvalidInput) as caught:
        QdrantEngine.server("main", "https://qdrant.internal", api_key_file=key)
    assert not text or text not in str(caught.value)


def test_the_filter_objects_are_typed() -> None:
    found = readable_filter(frozenset({2, 1}), None)
    assert isinstance(found, models.Filter)
    assert found.must == [models.FieldCondition(key="allow", match=models.MatchAny(any=[1, 2]))]
    assert found.must_not == [models.FieldCondition(key="deny", match=models.MatchAny(any=[1, 2]))]
