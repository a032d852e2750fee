"""A hundred requests of ten tenants through one server at the same time: answers, streams, repeats and cancellations.

Afterwards everything that was left behind (audit rows, log lines, cache entries, KV salts) must name who really asked.
"""

from __future__ import annotations

import asyncio
import io
import json
import re
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import httpx
import pytest
import uvicorn
from sqlalchemy import select

from audit.query import Filters, query_log, view
from audit.verify import verify
from cache.stores import tables
from cache.stores.local import FILE
from generation.routing import OneRoute
from indexing.ingest import Source, ingest
from service.app import create_app
from service.server import server_config
from service.settings import load_settings
from service.wiring import Services, build
from tenancy import directory
from tenancy.acl import AccessList
from tenancy.identity import Role
from tenancy.keys import MasterKey
from tests.isolation.parallel import captured_log
from tests.isolation.slow_generator import WAIT_S, SlowGenerator

TENANTS = 10
USERS = {"ana": "legal", "bo": "legal", "cy": "common"}
"""Each user and the permission domain; cy is in no group."""

SECRET = re.compile(r"zq(\d)(common|legal)z")
MARKER = re.compile(r"mk\d{3}z")
SHARED = "Which code opens the vault?"

Kind = Literal["answer", "stream", "retrieve", "cut stream", "cut answer"]


@dataclass(frozen=True)
class Sent:
    """A request as its client knows it. `request_id` is unknown where nothing came back."""

    tenant: str
    user: str
    kind: Kind
    question: str
    request_id: str | None
    cache: str | None
    secrets: frozenset[tuple[str, ...]]


@dataclass
class House:
    """The services, their tenants' keys, and all that was sent."""

    services: Services
    generator: SlowGenerator
    log: io.StringIO
    keys: dict[tuple[str, str], str] = field(default_factory=dict)
    sent: list[Sent] = field(default_factory=list)

    def found(self, number: int) -> None:
        """A tenant with two documents that answer the same question, one of them for the group legal alone."""
        name = f"tenant{number}"
        control = self.services.control
        control.tenants.create(name)
        for user in USERS:
            self.keys[name, user] = control.tenants.create_key(name, user, [Role.READER]).text
        tenant = control.tenants.open(control.authenticator.operator(name))
        with tenant.writing() as changing:
            directory.add_members(changing, "legal", ["ana", "bo"], 0.0)
        # Whoever may read both is answered from the second, which the question fits better.
        for domain, label, words in (
            ("common", "tenant", "In common matters, the vault is opened by its code, which is"),
            ("legal", "group:legal", "The code which opens the vault is"),
        ):
            text = f"{words} zq{number}{domain}z."
            source = Source(f"{name}-{domain}", text.encode(), AccessList.of([label]), "text/plain")
            ingest(tenant, self.services.pipeline, source)

    def credential(self, tenant: str, user: str) -> str:
        return self.keys[tenant, user].split("_")[2]


class Caller:
    """One tenant's clients."""

    def __init__(self, house: House, client: httpx.AsyncClient, number: int) -> None:
        self._house = house
        self._client = client
        self._number = number
        self._tenant = f"tenant{number}"
        self._markers = iter(range(number * 10, number * 10 + 10))

    async def run(self) -> None:
        """Ten requests in three threads of events."""
        await asyncio.gather(self._repeat(), self._share(), self._look())

    async def _repeat(self) -> None:
        question = self._question()
        await self._answer("ana", question)
        await self._answer("ana", question)
        await self._stream("ana", self._question())

    async def _share(self) -> None:
        """The question that all tenants ask in the same words; bo's answer may serve ana."""
        await self._cut_stream("bo", self._question(", hold"))
        await self._answer("bo", SHARED)
        await self._stream("ana", SHARED)
        await self._retrieve("bo", self._question())

    async def _look(self) -> None:
        """The same question again by a user of another domain."""
        await self._retrieve("cy", self._question())
        await self._cut_answer("cy", self._question(", hold"))
        await self._answer("cy", SHARED)

    def _question(self, more: str = "") -> str:
        return f"Which code opens the vault{more} mk{next(self._markers):03}z?"

    async def _answer(self, user: str, question: str) -> None:
        response = await self._client.post("/v1/answers", json={"query": question}, headers=self._headers(user))
        self._note(user, "answer", question, response, response.text, response.json()["cache"]["status"])

    async def _stream(self, user: str, question: str) -> None:
        body = {"query": question, "stream": True}
        response = await self._client.post("/v1/answers", json=body, headers=self._headers(user))
        name, data = response.text.strip().split("\n\n")[-1].split("\ndata: ")
        assert name == "event: done"
        self._note(user, "stream", question, response, response.text, json.loads(data)["cache"]["status"])

    async def _retrieve(self, user: str, question: str) -> None:
        response = await self._client.post("/v1/retrieve", json={"query": question}, headers=self._headers(user))
        self._note(user, "retrieve", question, response, response.text, None)

    async def _cut_stream(self, user: str, question: str) -> None:
        """The connection is closed after the first word."""
        body = {"query": question, "stream": True}
        async with self._client.stream("POST", "/v1/answers", json=body, headers=self._headers(user)) as response:
            lines = response.aiter_lines()
            assert await anext(lines) == "event: delta"
            self._note(user, "cut stream", question, response, await anext(lines), None)

    async def _cut_answer(self, user: str, question: str) -> None:
        """The connection is closed while the answer is being made, before anything came back."""
        request = self._client.post("/v1/answers", json={"query": question}, headers=self._headers(user))
        waiting = asyncio.create_task(request)
        assert await asyncio.to_thread(self._house.generator.await_held, question)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        self._house.sent.append(Sent(self._tenant, user, "cut answer", question, None, None, frozenset()))

    def _headers(self, user: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._house.keys[self._tenant, user]}"}

    def _note(
        self, user: str, kind: Kind, question: str, response: httpx.Response, body: str, cache: str | None
    ) -> None:
        assert response.status_code == 200
        secrets = frozenset(match.groups() for match in SECRET.finditer(body))
        request_id = response.headers["x-request-id"]
        self._house.sent.append(Sent(self._tenant, user, kind, question, request_id, cache, secrets))


@contextmanager
def serving(services: Services) -> Iterator[str]:
    """The product's own server on a free port of this machine, in a thread, stopped at the end of the block."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(server_config(create_app(services), services.settings.server))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(WAIT_S)
            assert not thread.is_alive()


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """Everything was asked, and the server has stopped; its stores are still open."""
    environment = {
        "STRONGROOM_DATA_DIR": str(tmp_path_factory.mktemp("interleaved")),
        "STRONGROOM_EMBEDDING__MODEL": "hashing:256",
    }
    with captured_log() as log:
        services = build(load_settings(environment=environment), MasterKey(bytes(range(32))))
        generator = SlowGenerator()
        services = replace(services, path=replace(services.path, routes=OneRoute(generator)))
        house = House(services, generator, log)
        try:
            for number in range(TENANTS):
                house.found(number)
            with serving(services) as address:
                asyncio.run(_ask_all(house, address))
            yield house
        finally:
            services.close()


async def _ask_all(house: House, address: str) -> None:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(base_url=address, timeout=WAIT_S, limits=limits, trust_env=False) as client:
        await asyncio.gather(*(Caller(house, client, number).run() for number in range(TENANTS)))


def audit_of(house: House, tenant: str) -> dict[str, list[dict[str, Any]]]:
    """The events of one tenant's questions, in order, by request id."""
    control = house.services.control
    log = control.logs.of(control.authenticator.operator(tenant))
    found: dict[str, list[dict[str, Any]]] = {}
    for stored in query_log(log, Filters(order="asc"), limit=1000).events:
        event = view(stored, log.subjects)
        assert event["log"] == log.log_id
        found.setdefault(event["request"]["id"], []).append(event)
    return found


def asked_by(events: list[dict[str, Any]]) -> tuple[str, str]:
    """User and question of one request, which are sealed in its first event."""
    content = events[0]["content"]
    return content["user"]["text"], content["question"]["text"]


pytestmark = pytest.mark.slow


def test_a_hundred_requests_ran_beside_each_other(house: House) -> None:
    kinds = Counter(one.kind for one in house.sent)
    assert kinds == {"answer": 40, "stream": 20, "retrieve": 20, "cut stream": 10, "cut answer": 10}
    assert house.generator.most_at_once >= 5
    switches = sum(one != other for one, other in zip(house.generator.spoken, house.generator.spoken[1:], strict=False))
    assert switches > len(set(house.generator.spoken)), "answers took turns, word by word"
    held = {one.question for one in house.sent if one.kind.startswith("cut")}
    assert house.generator.closed_while_held == held, "each cancellation hit in the middle of an answer"


def test_each_body_holds_the_own_tenants_secrets_and_no_others(house: House) -> None:
    for one in house.sent:
        number = one.tenant.removeprefix("tenant")
        readable = {(number, "common")} | ({(number, "legal")} if USERS[one.user] == "legal" else set())
        assert one.secrets <= readable, one
        if one.kind == "retrieve":
            assert one.secrets == readable
        elif not one.kind.startswith("cut"):
            assert one.secrets, "an answer cites something"


def test_the_audit_of_a_tenant_is_exactly_what_its_clients_did(house: House) -> None:
    for number in range(TENANTS):
        tenant = f"tenant{number}"
        sent = [one for one in house.sent if one.tenant == tenant]
        audit = audit_of(house, tenant)
        known = {one.request_id: one for one in sent if one.request_id is not None}
        assert known.keys() <= audit.keys()
        (unknown,) = audit.keys() - known.keys()
        (silent,) = (one for one in sent if one.request_id is None)
        for request_id, one in (known | {unknown: silent}).items():
            events = audit[request_id]
            assert [event["phase"] for event in events] == ["intent", "outcome"], "no intent without its outcome"
            assert events[1]["intent"] == events[0]["seq"]
            assert asked_by(events) == (one.user, one.question)
            assert {event["actor"]["credential"] for event in events} == {house.credential(tenant, one.user)}
            assert len({event["actor"]["ref"] for event in events}) == 1
            assert {event["action"] for event in events} == {"retrieve" if one.kind == "retrieve" else "answer"}
            cut = one.kind.startswith("cut")
            assert events[1]["outcome"] == ("aborted" if cut else "allowed"), one
            named = {resource["document"] for event in events for resource in event["resources"]}
            readable = {f"{tenant}-common"} | ({f"{tenant}-legal"} if USERS[one.user] == "legal" else set())
            assert named
            assert named <= readable


def test_the_audit_logs_verify_and_no_intent_is_open(house: House) -> None:
    control = house.services.control
    for number in range(TENANTS):
        log = control.logs.of(control.authenticator.operator(f"tenant{number}"))
        checked = verify(log)
        assert checked.ok
        assert (checked.in_flight, checked.size) == (0, 20)


def test_each_log_line_names_the_caller_of_its_request(house: House) -> None:
    text = house.log.getvalue()
    assert not SECRET.search(text)
    assert not MARKER.search(text)
    callers = {
        request_id: (f"tenant{number}", house.credential(f"tenant{number}", asked_by(events)[0]))
        for number in range(TENANTS)
        for request_id, events in audit_of(house, f"tenant{number}").items()
    }
    lines = [json.loads(line) for line in text.splitlines()]
    requests = [line for line in lines if line["event"] == "request"]
    assert {line["request_id"]: (line["tenant"], line["credential"]) for line in requests} == callers
    assert len(requests) == len(callers) == 100
    for line in lines:
        if "request_id" in line and line.get("tenant") is not None:
            assert line["tenant"] == callers[line["request_id"]][0]


def test_cache_entries_and_hits_belong_to_tenant_and_domain(house: House) -> None:
    control = house.services.control
    namespaces: dict[bytes, tuple[str, str]] = {}
    for number in range(TENANTS):
        tenant = f"tenant{number}"
        handle = control.tenants.open(control.authenticator.operator(tenant))
        with handle.reading() as reading:
            users = {directory.find_user(reading, user): user for user in USERS}
        intents = {events[0]["seq"]: events for events in audit_of(house, tenant).values()}
        with handle.database(FILE, tables.metadata).reading() as connection:
            rows = connection.execute(select(tables.entries)).all()
        assert len(rows) == 4, "two questions of ana, and the shared one in two domains"
        for row in rows:
            user = users[row.origin_user]
            assert asked_by(intents[row.origin_seq]) == (user, row.question)
            assert namespaces.setdefault(row.namespace, (tenant, USERS[user])) == (tenant, USERS[user])
            secrets = {match.groups() for match in SECRET.finditer(row.payload.decode())}
            readable = {(str(number), "common"), (str(number), USERS[user])}
            assert secrets
            assert secrets <= readable
    assert len(namespaces) == 2 * TENANTS


def test_hits_come_from_the_same_domain_alone(house: House) -> None:
    for number in range(TENANTS):
        tenant = f"tenant{number}"
        audit = audit_of(house, tenant)
        origins = {events[0]["seq"]: asked_by(events) for events in audit.values()}
        sent = [one for one in house.sent if one.tenant == tenant and one.cache is not None]
        assert [one.cache for one in sent if one.question != SHARED and one.kind == "answer"] == ["miss", "hit"]
        assert {(one.user, one.cache) for one in sent if one.question == SHARED} == {
            ("bo", "miss"),
            ("ana", "hit"),
            ("cy", "miss"),
        }
        for one in sent:
            use = audit[one.request_id or ""][0]["cache"]
            assert use["status"] == one.cache
            if one.cache == "hit":
                user, question = origins[use["origin_seq"]]
                assert (USERS[user], question) == (USERS[one.user], one.question)
                assert use.get("origin_actor_same", False) == (user == one.user)


def test_no_kv_salt_is_shared_between_tenants_or_domains(house: House) -> None:
    salts = {
        salt: {match.groups() for text in texts for match in SECRET.finditer(text)}
        for salt, texts in house.generator.texts_by_salt.items()
    }
    assert len(salts) == 2 * TENANTS
    for secrets in salts.values():
        assert len({number for number, _ in secrets}) == 1
    domains = Counter(frozenset(domain for _, domain in secrets) for secrets in salts.values())
    assert domains == {frozenset({"common"}): TENANTS, frozenset({"legal"}): TENANTS}
