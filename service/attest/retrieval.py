"""Retrieval and index: does a search in one tenant or domain find what lies in another?

Two tenants have documents of the same names about the same topics, each with secrets of its own, and documents of
topics that only one of them has. Every reader asks about every topic, on every surface that answers questions; a
secret that the reader may not read must not be in the response, and one that the reader may read must be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import httpx

from service.attest.caller import Caller
from service.attest.canaries import Canary
from service.attest.claims import Layer, Tally
from service.attest.stage import Stage, asked_about, code_of, text_of, word

NAME: Final = "retrieval and index"
_READERS: Final[dict[str, set[str]]] = {"ana": {"group:red"}, "rob": {"group:blue"}, "uma": {"user:uma"}}


@dataclass(frozen=True, slots=True)
class _Document:
    owner: Canary
    name: str
    topic: str
    secret: str
    allow: str

    def read_by(self, canary: Canary, user: str) -> bool:
        return canary is self.owner and self.allow in {"tenant", *_READERS[user]}


def examine(stage: Stage) -> Layer:
    documents = list(_documents(stage))
    for one in documents:
        stage.caller.put(one.owner, one.name, code_of(one.topic, one.secret), one.allow)
    tenants = Tally("no surface shows a document of another tenant")
    domains = Tally("no surface shows a document of the same tenant without its label")
    for canary in (stage.left, stage.right):
        for user in _READERS:
            _search(stage.caller, canary, user, documents, tenants, domains)
    remedy = "the surfaces named must find what their reader may read; their answers and the log say why they do not"
    claims = [one.close(remedy=remedy) for one in (tenants, domains)]
    return Layer.of(NAME, [*claims, _lists(stage, documents).close(), _named(stage).close()])


def _documents(stage: Stage) -> Iterator[_Document]:
    shared = {allow: word() for allow in ("tenant", "group:red", "group:blue", "user:uma")}
    for canary in (stage.left, stage.right):
        for number, (allow, topic) in enumerate([*shared.items(), ("tenant", word())]):
            # The last is about what only this tenant has, under a name that only this tenant has.
            name = f"canary-{number}.md" if topic in shared.values() else f"canary-{topic.lower()}.md"
            yield _Document(canary, name, topic, word(), allow)


def _search(
    caller: Caller, canary: Canary, user: str, documents: list[_Document], tenants: Tally, domains: Tally
) -> None:
    """Ask about every topic on every surface as one reader."""
    others = [one for one in documents if one.owner is not canary]
    hidden = [one for one in documents if one.owner is canary and not one.read_by(canary, user)]
    readable = [one for one in documents if one.read_by(canary, user)]
    for topic in dict.fromkeys(one.topic for one in documents):
        for surface, send in SURFACES.items():
            response = send(caller, canary.keys[user], asked_about(topic))
            said = text_of(response)
            if response.status_code != httpx.codes.OK:
                tenants.void(f"{surface}: HTTP {response.status_code}")
            tenants.probe(any(one.secret in said for one in others), surface)
            for one in (one for one in hidden if one.topic == topic):
                domains.probe(one.secret in said, surface)
            for one in (one for one in readable if one.topic == topic):
                for tally in (tenants, domains):
                    tally.control(one.secret in said, surface)


def _lists(stage: Stage, documents: list[_Document]) -> Tally:
    """An ingestor sees all of its tenant's documents, and none of another's."""
    tally = Tally("lists and addresses of documents are those of the caller's tenant")
    for canary in (stage.left, stage.right):
        key = canary.keys["loader"]
        listed = stage.caller.send("GET", "/v1/documents", key, params={"limit": 1000}).text
        for one in documents:
            own, place = one.owner is canary, f"/v1/documents/{one.name}"
            if own:
                tally.control(f'"{one.name}"' in listed, "GET /v1/documents")
                tally.control(stage.caller.send("GET", place, key).status_code == httpx.codes.OK, "GET /v1/documents/…")
            elif not any(other.name == one.name for other in documents if other.owner is canary):
                tally.probe(f'"{one.name}"' in listed, "GET /v1/documents")
                found = stage.caller.send("GET", place, key).status_code
                tally.probe(found != httpx.codes.NOT_FOUND, "GET /v1/documents/…")
    return tally


def _named(stage: Stage) -> Tally:
    """A tenant that a request names is the credential's own, or the request is refused."""
    tally = Tally("a request that names another tenant is refused")
    question = asked_about(word())
    for canary, other in ((stage.left, stage.right), (stage.right, stage.left)):
        key = canary.keys["ana"]
        for name, tried in ((canary.name, tally.control), (other.name, tally.probe)):
            body = {"query": question, "tenant": name}
            answered = stage.caller.send("POST", "/v1/retrieve", key, body)
            tried(answered.status_code == httpx.codes.OK, "in the body")
            answered = stage.caller.send("POST", "/v1/retrieve", key, {"query": question}, params={"tenant": name})
            tried(answered.status_code == httpx.codes.OK, "in the address")
            answered = stage.caller.send("POST", "/v1/retrieve", key, {"query": question}, headers={"X-Tenant": name})
            tried(answered.status_code == httpx.codes.OK, "in a header")
    return tally


def _retrieve(mode: str) -> Callable[[Caller, str, str], httpx.Response]:
    return lambda caller, key, query: caller.send("POST", "/v1/retrieve", key, {"query": query, "mode": mode})


def _chat(caller: Caller, key: str, query: str) -> httpx.Response:
    model = caller.send("GET", "/v1/models", key).json()["data"][0]["id"]
    body = {"model": model, "messages": [{"role": "user", "content": query}]}
    return caller.send("POST", "/v1/chat/completions", key, body)


SURFACES: Final[dict[str, Callable[[Caller, str, str], httpx.Response]]] = {
    **{f"/v1/retrieve ({mode})": _retrieve(mode) for mode in ("dense", "lexical", "hybrid")},
    "/v1/answers": lambda caller, key, query: caller.send(
        "POST", "/v1/answers", key, {"query": query, "cache": "bypass"}
    ),
    "/v1/answers (stream)": lambda caller, key, query: caller.send(
        "POST", "/v1/answers", key, {"query": query, "cache": "bypass", "stream": True}
    ),
    "/v1/chat/completions": _chat,
}
