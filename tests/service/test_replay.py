"""A remembered answer over a real socket: the same to the byte, as JSON and as a stream; a corrupt one is a miss."""

from __future__ import annotations

import json
import secrets
import socket
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from sqlalchemy import text

from cache.entry import Entry, decode_dependencies, sealed
from generation.extractive import ExtractiveGenerator
from generation.generator import Delta, Finish, Piece, Quote, Usage
from generation.prompt import Prompt
from generation.routing import OneRoute
from service.app import create_app
from service.server import server_config
from service.settings import load_settings
from service.wiring import Services, build
from tenancy.identity import Role
from tenancy.keys import MasterKey
from tenancy.tenant import TenantHandle
from tests.service.house import stream_events

QUESTION = "How long is the notice period?"
NOTICE = "The notice period is three months."

TEXTS = {
    "plain": "Three months [S1]",
    "combining": "Cafe\u0301, n\u0303, \u1e9b\u0323, \uac00 and \u1100\u1161 stay as they are: three months [S1]",
    "right to left": "\u05e9\u05dc\u05d5\u05dd \u202e\u0627\u0644\u0639\u0631\u0628\u202c three months [S1]",
    "emoji": "👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪 three months [S1]",
    "Chinese": "通知期限为三个月。[S1]",
    "line ends": "one\r\ntwo\rthree\n\nfour\u2028five\u2029six\u0085seven\tthree months [S1]",
    "event stream": "data: x\n\nevent: done\ndata: {}\n\n: three months [S1]",
    "signs": '\\ " \x00\x1f\x7f\ufeff\ufffd & < > three months [S1] ',
}


class Spoken(ExtractiveGenerator):
    """Says a given text in pieces of three characters, with its whole source as the quote."""

    def __init__(self) -> None:
        self.text = TEXTS["plain"]
        self.answers = 0

    async def generate(
        self, prompt: Prompt, *, salt: str, request_id: str, max_tokens: int, deadline: float
    ) -> AsyncGenerator[Piece, None]:
        self.answers += 1
        said = self.text
        for start in range(0, len(said), 3):
            yield Delta(said[start : start + 3])
        quotes = tuple(Quote(source.key, 0, len(source.text), source.text) for source in prompt.sources)
        yield Finish("stop", Usage(7, 0, 5), quotes)


class Desk:
    """A tenant at a served port, and its cache file from behind."""

    def __init__(self, services: Services, generator: Spoken, address: str) -> None:
        self.generator = generator
        self.services = services
        tenants = services.control.tenants
        tenants.create("acme")
        keys = {user: tenants.create_key("acme", user, [Role.READER, Role.INGEST]).text for user in ("ana", "bo")}
        self._clients = {
            user: httpx.Client(base_url=address, headers={"Authorization": f"Bearer {key}"}, timeout=60)
            for user, key in keys.items()
        }
        body = {"text": NOTICE, "allow": ["tenant"]}
        assert self._clients["ana"].put("/v1/documents/notice.md", json=body).status_code == 200

    @property
    def handle(self) -> TenantHandle:
        control = self.services.control
        return control.tenants.open(control.authenticator.operator("acme"))

    def whole(self, query: str = QUESTION, user: str = "ana") -> dict[str, Any]:
        response = self._clients[user].post("/v1/answers", json={"query": query})
        assert response.status_code == 200, response.text
        found: dict[str, Any] = response.json()
        return found

    def streamed(self, query: str = QUESTION, user: str = "ana") -> tuple[str, list[Any], dict[str, Any]]:
        """The deltas put together, the citations, and the answer as a whole; read from the raw bytes."""
        with self._clients[user].stream("POST", "/v1/answers", json={"query": query, "stream": True}) as response:
            assert response.headers["content-type"].startswith("text/event-stream")
            raw = b"".join(response.iter_raw())
        events = list(stream_events(raw.decode()))
        names = [name for name, _ in events]
        assert names[-2:] == ["usage", "done"]
        deltas = "".join(data["text"] for name, data in events if name == "delta")
        return deltas, [data for name, data in events if name == "citation"], events[-1][1]

    def sql(self, statement: str, **values: Any) -> None:
        with self.handle.database("cache.sqlite", None).writing() as connection:  # type: ignore[arg-type]
            assert connection.execute(text(statement), values).rowcount == 1

    def close(self) -> None:
        for client in self._clients.values():
            client.close()


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    folder: Path = tmp_path_factory.mktemp("replay")
    settings = load_settings(
        environment={"STRONGROOM_DATA_DIR": str(folder / "data"), "STRONGROOM_EMBEDDING__MODEL": "hashing:256"}
    )
    services, generator = build(settings, MasterKey(bytes(range(32)))), Spoken()
    services = replace(services, path=replace(services.path, routes=OneRoute(generator)))
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(server_config(create_app(services), settings.server))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        desk = Desk(services, generator, f"http://127.0.0.1:{listening.getsockname()[1]}")
        yield desk
        desk.close()
    finally:
        server.should_exit = True
        thread.join()
        services.close()
        listening.close()


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_replay_is_the_original_to_the_byte_in_every_form(desk: Desk, text: str) -> None:
    desk.generator.text = text
    for first_streams in (True, False):
        query = f"{QUESTION} {secrets.token_hex(4)}"
        before = desk.generator.answers
        if first_streams:
            deltas, citations, first = desk.streamed(query)
            assert deltas == text
            assert citations == first["citations"]
        else:
            first = desk.whole(query)
        assert first["cache"]["status"] == "miss"
        assert first["cache"]["cached_from"] is None
        again = desk.whole(query)
        deltas, citations, streamed = desk.streamed(query, "bo")
        assert desk.generator.answers == before + 1
        for found in (again, streamed):
            assert found["answer"].encode() == first["answer"].encode() == text.encode()
            assert found["citations"] == first["citations"] != []
            assert (found["finish"], found["model"]) == (first["finish"], first["model"]) == ("stop", "extractive-1")
            assert found["cache"]["status"] == "hit"
            assert found["usage"] == {"input_tokens": 0, "output_tokens": 0}
        assert deltas.encode() == text.encode()
        assert citations == streamed["citations"]
        # Of its own: request, time and place in the audit. The entry is named, and is one.
        assert len({first["request_id"], again["request_id"], streamed["request_id"]}) == 3
        assert first["audit"]["seq"] < again["audit"]["seq"] < streamed["audit"]["seq"]
        assert first["created"] <= again["created"] <= streamed["created"]
        (entry,) = {again["cache"]["cached_from"], streamed["cache"]["cached_from"]}
        assert entry in {record.id for record in desk.services.path.cache.inspect(desk.handle)}


def _sql(statement: str) -> Callable[[Desk, str], None]:
    return lambda desk, entry: desk.sql(statement, id=entry)


def _other_namespace(desk: Desk, entry: str) -> None:
    """Another question's row, moved under this one's namespace and key."""
    desk.generator.text = "Nine weeks [S1]"
    desk.whole("What does the plan say?")
    other = desk.whole("What does the plan say?")["cache"]["cached_from"]
    columns = "SELECT namespace FROM entries WHERE id = :id", "SELECT exact FROM entries WHERE id = :id"
    with desk.handle.database("cache.sqlite", None).writing() as connection:  # type: ignore[arg-type]
        found = [connection.execute(text(column), {"id": entry}).scalar_one() for column in columns]
        connection.execute(text("DELETE FROM entries WHERE id = :id"), {"id": entry})
        connection.execute(
            text("UPDATE entries SET namespace = :namespace, exact = :exact WHERE id = :id"),
            {"namespace": found[0], "exact": found[1], "id": other},
        )


def _other_form(desk: Desk, entry: str) -> None:
    """A payload that is whole and sealed, of a program that knows other fields."""
    store = desk.services.path.cache
    with desk.handle.database("cache.sqlite", None).reading() as connection:  # type: ignore[arg-type]
        row = connection.execute(text("SELECT * FROM entries WHERE id = :id"), {"id": entry}).mappings().one()
    values = {field.name: row[field.name] for field in fields(Entry)}
    old = Entry(**(values | {"dependencies": decode_dependencies(row["dependencies"])}))
    payload = json.dumps({**json.loads(old.payload), "new": "Nine weeks"}).encode()
    assert store.put(desk.handle, sealed(desk.handle, replace(old, payload=payload)), allowed=lambda: None) is None


DAMAGES: dict[str, Callable[[Desk, str], None]] = {
    "a flipped byte in the payload": _sql(
        "UPDATE entries SET payload = CAST(replace(CAST(payload AS TEXT), 'Twelve', 'Txelve') AS BLOB) WHERE id = :id"
    ),
    "other bytes in the checksum": _sql(
        "UPDATE entries SET checksum = CAST(substr(checksum, 2) || substr(checksum, 1, 1) AS BLOB) WHERE id = :id"
    ),
    "a checksum cut short": _sql("UPDATE entries SET checksum = substr(checksum, 1, 16) WHERE id = :id"),
    "a payload cut short": _sql("UPDATE entries SET payload = substr(payload, 1, 20) WHERE id = :id"),
    "an empty payload": _sql("UPDATE entries SET payload = X'' WHERE id = :id"),
    "dependencies that cannot be read": _sql("UPDATE entries SET dependencies = '[[' WHERE id = :id"),
    "a row of another question in its place": _other_namespace,
    "a payload of another program": _other_form,
}


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_corrupt_entry_is_a_miss_before_the_first_byte(
    desk: Desk, damage: Callable[[Desk, str], None], streams: bool
) -> None:
    query = f"{QUESTION} {secrets.token_hex(4)}"
    desk.generator.text = "Twelve weeks [S1]"
    desk.whole(query)
    entry = desk.whole(query)["cache"]["cached_from"]
    assert entry is not None
    damage(desk, entry)
    desk.generator.text = "Three months [S1]"
    before = desk.generator.answers
    if streams:
        deltas, _, fresh = desk.streamed(query)
        assert deltas == fresh["answer"]
    else:
        fresh = desk.whole(query)
    assert (fresh["answer"], fresh["cache"]["status"]) == ("Three months [S1]", "miss")
    assert desk.generator.answers == before + 1
    again = desk.whole(query)
    assert (again["answer"], again["cache"]["status"]) == ("Three months [S1]", "hit")
    assert again["cache"]["cached_from"] != entry
