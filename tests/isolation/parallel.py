"""A site of tenants that hold the same in several languages: all questions asked of all, everything shown searched.

Used by the test on small libraries and by `benchmarks/parallel_tenants.py` on public ones.
"""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import structlog
from httpx import ASGITransport, AsyncClient, Response

from indexing.embed import Embedder
from indexing.embedding import Embedders
from service.app import create_app
from service.logs import configure_logging
from service.settings import load_settings
from service.wiring import Services, build, ingestion, open_collections
from tenancy.identity import Role
from tenancy.keys import MasterKey
from tests.isolation.traces import MARK, Detector, Library
from tests.support.scores import for_any_model

ABSENT = ("id-none-0000", "id-none-0001")
RECALL_AT = 5
APART = "\0"
"""Between texts that are searched: no piece of a passage reaches over it."""

_UNLIMITED = {
    f"STRONGROOM_ADMISSION__{scope}__{limit}": "1000000000"
    for scope in ("TENANT", "USER")
    for limit in ("REQUESTS_PER_MINUTE", "CONCURRENT", "TOKENS_PER_MINUTE")
}


@dataclass
class Report:
    """What was asked and found. `ranks` counts own questions by where their passage stood (0: not found)."""

    requests: Counter[str] = field(default_factory=Counter)
    ranks: dict[str, Counter[int]] = field(default_factory=dict)
    hits: Counter[str] = field(default_factory=Counter)
    cited: Counter[str] = field(default_factory=Counter)
    audit_events: Counter[str] = field(default_factory=Counter)
    log_lines: int = 0
    findings: list[str] = field(default_factory=list)

    def recall(self, code: str) -> float:
        ranks = self.ranks[code]
        return sum(count for rank, count in ranks.items() if rank) / max(1, ranks.total())


@dataclass
class Tenant:
    """One tenant's keys, and what each of its requests said, by request id."""

    library: Library
    readers: tuple[str, str]
    loader: str
    auditor: str
    admin: str
    said: dict[str, str] = field(default_factory=dict)
    bodies: list[str] = field(default_factory=list)


class Site:
    """The service in this process over a fresh data directory, with a tenant for each library."""

    def __init__(self, services: Services, client: AsyncClient, log: io.StringIO, detector: Detector) -> None:
        self.report = Report()
        self.log = log
        self.tenants: dict[str, Tenant] = {}
        self._services = services
        self._client = client
        self._detector = detector

    def found(self, library: Library) -> Tenant:
        control = self._services.control.tenants
        control.create(library.tenant)

        def key(user: str, role: Role) -> str:
            return control.create_key(library.tenant, user, [role]).text

        tenant = Tenant(
            library,
            (key("ana", Role.READER), key("bo", Role.READER)),
            key("loader", Role.INGEST),
            key("auditor", Role.AUDITOR),
            key("admin", Role.ADMIN),
        )
        self.tenants[library.tenant] = tenant
        return tenant

    async def request(
        self, tenant: Tenant, kind: str, method: str, path: str, key: str, body: Any = None, **headers: str
    ) -> Response:
        """One request, whose whole response is searched for traces of the other tenants."""
        headers |= {"Authorization": f"Bearer {key}"}
        response = await self._client.request(method, path, json=body, headers=headers)
        said = " ".join((path, *headers.values(), *_strings(body)))
        tenant.said[response.headers["x-request-id"]] = said
        shown = APART.join((*_texts_of(response), *(f"{name}: {value}" for name, value in response.headers.items())))
        self._note(tenant, f"{kind} {path}", self._detector.traces(shown, own=tenant.library.tenant, said=said))
        self.report.requests[kind] += 1
        return response

    def expect(self, tenant: Tenant, where: str, holds: bool) -> None:
        if not holds:
            self._note(tenant, where, ["not as it must be"])

    def _note(self, tenant: Tenant, where: str, found: Iterable[str]) -> None:
        self.report.findings += [f"{tenant.library.tenant}, {where}: {what}" for what in found]

    # What is done, one tenant beside the other

    async def load(self, tenant: Tenant) -> None:
        library = tenant.library
        for number, text in enumerate(library.passages):
            body = {"text": text, "title": library.title(number), "allow": ["tenant"]}
            path = f"/v1/documents/{library.document(number)}"
            response = await self.request(tenant, "load", "PUT", path, tenant.loader, body)
            self.expect(tenant, path, response.status_code == 200)

    async def ask(self, tenant: Tenant, code: str, question: str, number: int, *, stream: bool, again: bool) -> None:
        """Passages and an answer; with `again`, a colleague of the same domain repeats the question."""
        own = code == tenant.library.code
        body: dict[str, Any] = {"query": question, "top_k": RECALL_AT}
        found = await self.request(tenant, "retrieve", "POST", "/v1/retrieve", tenant.readers[0], body)
        passages = found.json().get("passages", [])
        self.expect(tenant, f"retrieve {question!r}", len(passages) == min(RECALL_AT, len(tenant.library.passages)))
        documents = [passage["document"] for passage in passages]
        if own:
            wanted = tenant.library.document(number)
            rank = documents.index(wanted) + 1 if wanted in documents else 0
            self.report.ranks.setdefault(code, Counter())[rank] += 1
        first = await self.request(
            tenant, "answer", "POST", "/v1/answers", tenant.readers[0], {"query": question, "stream": stream}
        )
        answer = _answer(first)
        self.expect(tenant, f"answer {question!r}", first.status_code == 200 and answer["finish"] != "error")
        self.report.cited[tenant.library.code] += bool(own and answer["citations"])
        tenant.bodies += [_masked(found.json()), _masked(answer)]
        if again:
            repeated = await self.request(
                tenant, "repeat", "POST", "/v1/answers", tenant.readers[1], {"query": question}
            )
            hit = repeated.json()["cache"]["status"] == "hit"
            kept = answer["cache"]["status"] == "hit" or "; stored" in first.headers.get("cache-status", "")
            self.report.hits[tenant.library.code] += hit
            self.expect(tenant, f"repeat {question!r}", hit or not kept)
            tenant.bodies.append(_masked(repeated.json()))

    async def look_around(self, tenant: Tenant) -> None:
        """Listings, and every kind of request for what is another's: refused as what does not exist is."""
        listed, after = set(), ""
        while True:
            page = await self.request(tenant, "listing", "GET", f"/v1/documents?limit=100&after={after}", tenant.loader)
            listed |= {one["id"] for one in page.json()["documents"]}
            if (after := page.json()["after"]) is None:
                break
        numbers = range(len(tenant.library.passages))
        self.expect(tenant, "listing", listed == set(map(tenant.library.document, numbers)))
        for path in ("/v1/cache/entries?limit=1000", "/v1/models", f"/v1/documents/{tenant.library.document(0)}"):
            key = tenant.loader if "documents" in path else tenant.admin
            response = await self.request(tenant, "listing", "GET", path, key)
            self.expect(tenant, path, response.status_code == 200)
        for other in self.tenants.values():
            if other is not tenant:
                await self._reach_for(tenant, other)

    async def _reach_for(self, tenant: Tenant, other: Tenant) -> None:
        # What was not named before is asked of the audit, which else answers with the requests that named it.
        changed, asked = (other.library.document(0), ABSENT[0]), (other.library.document(1), ABSENT[1])
        tries: list[tuple[str, str, Any]] = [
            ("GET", "/v1/documents/{}", None),
            ("DELETE", "/v1/documents/{}", None),
            ("PATCH", "/v1/documents/{}/acl", {"allow": ["tenant"]}),
            ("DELETE", "/v1/cache/entries?document={}", None),
            ("GET", "/v1/audit/events?document={}", None),
        ]
        for method, path, body in tries:
            key = {"documents": tenant.loader, "cache": tenant.admin, "audit": tenant.auditor}[path.split("/")[2]]
            pair = asked if "audit" in path else changed
            theirs, nobodys = [
                await self.request(tenant, "reach", method, path.format(document), key, body) for document in pair
            ]
            same = theirs.status_code == nobodys.status_code and _problem(theirs, pair[0]) == _problem(nobodys, pair[1])
            self.expect(tenant, f"{method} {path}, {pair[0]} and absent", same)
        name, question = other.library.tenant, {"query": other.library.questions[0][0]}
        named = [
            await self.request(tenant, "reach", "POST", path, tenant.readers[0], body, **headers)
            for path in ("/v1/answers", "/v1/retrieve")
            for body, headers in ((question | {"tenant": name}, {}), (question, {"X-Tenant": name}))
        ]
        self.expect(tenant, f"naming {name}", all(response.status_code == 403 for response in named))
        # The first events of a log are of loading, and name only what its tenant holds.
        events = "/v1/audit/events?action=document.put&order=asc&limit=1"
        cursor = (await self.request(other, "reach", "GET", events, other.auditor)).json()["after"]
        response = await self.request(tenant, "reach", "GET", f"{events}&after={cursor}", tenant.auditor)
        self.expect(tenant, f"a cursor of {name}", response.status_code == 422)

    # What is left behind

    async def read_audit(self, tenant: Tenant) -> None:
        """Every event of the tenant's log is of a request of its own and names nothing of another."""
        own, after = tenant.library.tenant, ""
        control = self._services.control
        log_id = control.logs.of(control.authenticator.operator(own)).log_id
        known = dict(tenant.said)
        while after is not None:
            path = "/v1/audit/events?order=asc&limit=500" + (f"&after={after}" if after else "")
            page = await self._client.get(path, headers={"Authorization": f"Bearer {tenant.auditor}"})
            known[page.headers["x-request-id"]] = tenant.said[page.headers["x-request-id"]] = path
            for event in page.json()["events"]:
                request = event["request"]["id"]
                self.expect(tenant, f"audit event {event['seq']}", request in known and event["log"] == log_id)
                found = self._detector.traces(APART.join(_strings(event)), own=own, said=known.get(request, ""))
                self._note(tenant, f"audit event {event['seq']}", found)
                self.report.audit_events[tenant.library.code] += 1
            after = page.json()["after"]

    def read_log(self) -> None:
        """Each request left a line with its tenant; no line holds a text, an id or a title of anybody."""
        tenants = {request: tenant for tenant in self.tenants.values() for request in tenant.said}
        seen: Counter[str] = Counter()
        for line in self.log.getvalue().splitlines():
            event = json.loads(line)
            self.report.log_lines += 1
            self.report.findings += [f"log line {line[:200]}: {what}" for what in self._detector.any_text(line)]
            tenant = tenants.get(event.get("request_id"))
            if event["event"] == "request" and tenant is not None:
                seen[event["request_id"]] += 1
                self.expect(tenant, f"log line {line[:200]}", event["tenant"] == tenant.library.tenant)
            elif set(MARK.findall(line)):
                self.report.findings.append(f"log line {line[:200]}: names a tenant without a request of it")
        for request, tenant in tenants.items():
            self.expect(tenant, f"log line of {request}", seen[request] == 1)

    async def beside(self, work: Callable[[Tenant], Any]) -> None:
        """Do `work` for all tenants at the same time; one tenant's own requests follow each other."""
        await asyncio.gather(*(work(tenant) for tenant in self.tenants.values()))


@asynccontextmanager
async def open_site(
    directory: Path, libraries: Sequence[Library], detector: Detector, *, model: str, embedder: Embedder | None = None
) -> AsyncIterator[Site]:
    """A loaded site. `embedder` takes the place of the one that `model` names; log lines are captured."""
    settings = load_settings(
        environment={
            "STRONGROOM_DATA_DIR": str(directory),
            "STRONGROOM_EMBEDDING__MODEL": "hashing:256" if embedder is not None else model,
            **_UNLIMITED,
        }
    )
    with captured_log() as log:
        services = for_any_model(build(settings, MasterKey(bytes(range(32)))))
        if embedder is not None:
            services = _with_embedder(services, embedder)
        try:
            transport = ASGITransport(create_app(services), raise_app_exceptions=False)  # type: ignore[arg-type]
            async with AsyncClient(transport=transport, base_url="http://strongroom") as client:
                site = Site(services, client, log, detector)
                for library in libraries:
                    site.found(library)
                await site.beside(site.load)
                yield site
        finally:
            await services.aclose()


async def ask_everything(site: Site, libraries: Sequence[Library]) -> None:
    """Ask every question of every library in every tenant."""

    async def ask_all(tenant: Tenant) -> None:
        for library in libraries:
            for at, (question, number) in enumerate(library.questions):
                await site.ask(tenant, library.code, question, number, stream=at % 5 == 1, again=at % 7 == 2)

    await site.beside(ask_all)


async def examine(site: Site, libraries: Sequence[Library]) -> Report:
    """Ask everything, look around, read what is left behind."""
    await ask_everything(site, libraries)
    await site.beside(site.look_around)
    await site.beside(site.read_audit)
    site.read_log()
    return site.report


@contextmanager
def captured_log() -> Iterator[io.StringIO]:
    """The server's log lines, from every logger of the process but this client's, in place of standard error."""
    root, client = logging.getLogger(), logging.getLogger("httpx")
    handlers, level, client_level = root.handlers, root.level, client.level
    client.setLevel(logging.WARNING)
    lines = io.StringIO()
    configure_logging()
    for handler in root.handlers:
        if isinstance(handler, logging.StreamHandler):
            handler.setStream(lines)
    try:
        yield lines
    finally:
        root.handlers = handlers
        root.setLevel(level)
        client.setLevel(client_level)
        structlog.reset_defaults()


def _with_embedder(services: Services, embedder: Embedder) -> Services:
    embedders = Embedders(services.settings.embedding, lambda _: embedder)
    path = replace(
        services.path,
        embedders=embedders,
        collections=open_collections(services.settings, embedders, services.engines),
    )
    return replace(services, path=path, pipeline=ingestion(embedders, services.engines, services.parsing))


def _strings(value: Any) -> Iterator[str]:
    """Every key and every text of a JSON value, and its numbers."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from _strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner)
    elif value is not None:
        yield str(value)


def _events(response: Response) -> Iterator[tuple[str, Any]]:
    for event in response.text.split("\n\n"):
        if event:
            name, data = event.split("\ndata: ")
            yield name.removeprefix("event: "), json.loads(data)


def _texts_of(response: Response) -> Iterator[str]:
    """The body's texts as a client reads them, and the body as it came."""
    yield response.text
    if response.headers["content-type"].startswith("text/event-stream"):
        deltas = ""
        for name, data in _events(response):
            yield from _strings(data)
            deltas += data["text"] if name == "delta" else ""
        yield deltas
    elif response.content:
        yield from _strings(response.json())


def _answer(response: Response) -> Any:
    if response.headers["content-type"].startswith("text/event-stream"):
        name, data = list(_events(response))[-1]
        return data if name == "done" else {"finish": "error", "citations": []}
    return response.json() if response.status_code == 200 else {"finish": "error", "citations": []}


def _masked(body: dict[str, Any]) -> str:
    """A body without its random numbers and its time: all else must not depend on who else is there."""
    masked = body | {"request_id": "", "created": 0}
    if "cache" in body:
        masked["cache"] = body["cache"] | {"cached_from": body["cache"].get("cached_from") is not None}
    return json.dumps(masked, sort_keys=True)


def _problem(response: Response, document: str) -> str:
    """A body without the request's id and the document that it asked for, nor an audit's growing log."""
    body = response.json()
    kept = {name: value for name, value in body.items() if name not in {"instance", "until", "checkpoint", "after"}}
    return json.dumps(kept, sort_keys=True).replace(document, "")
