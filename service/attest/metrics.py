"""Metrics: do figures that leave the service tell one tenant of another, or anybody of what was asked?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import httpx

from service.attest.caller import Caller
from service.attest.canaries import Canary
from service.attest.claims import Claim, Layer, Tally, inconclusive, not_built
from service.attest.stage import Stage, asked_about, code_of, word
from service.signal_settings import AdminSettings

NAME: Final = "metrics"

Get = Callable[[str], httpx.Response]

_API: Final = "the API's port tells no figure"
_WORDS: Final = "no figure holds a word of a question, an answer or a document, or a key"
_APART: Final = "a tenant's figures count its own requests alone"
_QUESTIONS: Final = 5


def examine(stage: Stage) -> Layer:
    return Layer.of(NAME, [_api(stage), *_listener(stage)])


def _api(stage: Stage) -> Claim:
    tally = Tally(_API)
    for path in ("/metrics", f"/v1/admin/tenants/{stage.left.name}/signals"):
        for key in (None, stage.right.keys["ana"], stage.right.keys["auditor"]):
            found = stage.caller.send("GET", path, key).status_code
            tally.probe(found != httpx.codes.NOT_FOUND, f"GET {path.replace(stage.left.name, 'OTHER')}: {found}")
    tally.control(stage.caller.send("GET", "/healthz/live").status_code == httpx.codes.OK, "GET /healthz/live")
    return tally.close()


def _listener(stage: Stage) -> list[Claim]:
    """What the admin listener tells of two canaries that ask."""
    settings = stage.settings.server.admin
    if not settings.enabled:
        why = "the admin listener is switched off (server.admin.enabled)"
        return [not_built(claim, why) for claim in (_WORDS, _APART)]
    if not settings.port:
        why = "the settings do not say on which port the admin listener is (server.admin.port)"
        return [inconclusive(claim, why, "name a port") for claim in (_WORDS, _APART)]
    with closing(Caller(_address(settings))) as admin:
        token = Path(settings.token_file).expanduser().read_text().strip() if settings.token_file else None
        return _compared(stage, lambda path: admin.send("GET", path, token))


def _compared(stage: Stage, get: Get) -> list[Claim]:
    words, apart = Tally(_WORDS), Tally(_APART)
    before = {canary.name: _questions(get, canary) for canary in (stage.left, stage.right)}
    told = list(_asked(stage, stage.right))
    after = {canary.name: _questions(get, canary) for canary in (stage.left, stage.right)}
    apart.probe(after[stage.left.name] != before[stage.left.name], "a tenant that asked nothing")
    counted = after[stage.right.name] == before[stage.right.name] + _QUESTIONS
    apart.control(counted, f"a tenant that asked {_QUESTIONS} questions")
    response = get("/metrics")
    text = response.text + get(f"/v1/admin/tenants/{stage.right.name}/signals").text
    for secret in told:
        words.probe(secret.casefold() in text.casefold(), "a word or a key of a canary")
    words.control(response.status_code == httpx.codes.OK and "strongroom_requests_total" in text, "GET /metrics")
    return [words.close(), apart.close()]


def _asked(stage: Stage, canary: Canary) -> Iterator[str]:
    """Ask, and yield what no figure may hold."""
    yield canary.keys["ana"]
    for number in range(_QUESTIONS):
        topic, secret = word(), word()
        stage.caller.put(canary, f"metrics-{number}.md", code_of(topic, secret), "group:red")
        stage.caller.ask(canary, "ana", asked_about(topic))
        yield topic
        yield secret


def _questions(get: Get, canary: Canary) -> int:
    found = get(f"/v1/admin/tenants/{canary.name}/signals")
    return int(found.json()["kept"]["questions"]) if found.status_code == httpx.codes.OK else -1


def _address(settings: AdminSettings) -> str:
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)  # noqa: S104
    return f"http://[{host}]:{settings.port}" if ":" in host else f"http://{host}:{settings.port}"
