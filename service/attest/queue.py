"""Queue: do a tenant's requests take from another's limits, or does what it is told of them tell of another's work?

One canary tenant gets a limit that it reaches. Everything is asked over HTTP: what its limits say is used
(`GET /v1/limits`), what a refusal says, and whom it meets.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final

import httpx

from service.attest.canaries import Canary
from service.attest.claims import Claim, Layer, Tally
from service.attest.stage import Stage, asked_about, code_of, text_of, word
from tenancy.limits import Limits

NAME: Final = "queue"
QUESTIONS: Final = 10
_MORE: Final = 3
"""Questions that the tenant with a limit has left."""
_CLIENTS: Final = 4
_LOOKS: Final = 10

_USE: Final = "another tenant's questions use up nothing of a tenant's limits"
_REFUSED: Final = "a tenant that has reached its limit is refused, and no other"
_SAID: Final = "what a tenant is told of its limits names nothing of another"
_FLIGHT: Final = "work of another tenant that waits or runs is in no tenant's figures"

_REQUESTS: Final = ("tenant", "requests_per_minute")
_CONCURRENT: Final = ("tenant", "concurrent")


def examine(stage: Stage) -> Layer:
    topics = []
    for canary in (stage.left, stage.right):
        topics.append(word())
        stage.caller.put(canary, "queue.md", code_of(topics[-1], word()), "group:red")
    try:
        return Layer.of(NAME, [_use(stage, topics[1]), *_refused(stage, topics), _flight(stage, topics[1])])
    finally:
        stage.pair.limit(stage.left, None)


def _use(stage: Stage, topic: str) -> Claim:
    """The window of earlier questions only shrinks meanwhile, so that any growth is another tenant's."""
    tally = Tally(_USE)
    before, own = _used(stage, stage.left), _used(stage, stage.right)
    for _ in range(QUESTIONS):
        stage.caller.ask(stage.right, "ana", asked_about(topic))
    after, moved = _used(stage, stage.left), _used(stage, stage.right)
    for name, used in after.items():
        tally.probe(used > before.get(name, 0), f"the limit {name}")
    tally.control(moved.get(_REQUESTS, 0) > own.get(_REQUESTS, 0), "who asked sees it in its own limits")
    return tally.close()


def _refused(stage: Stage, topics: list[str]) -> Iterator[Claim]:
    refused, said = Tally(_REFUSED), Tally(_SAID)
    others = [stage.right.name, stage.right.principal.tenant_id, topics[1], *stage.right.keys.values()]
    most = _used(stage, stage.left).get(_REQUESTS, 0) + _MORE
    stage.pair.limit(stage.left, Limits(requests_per_minute=most))
    told: list[httpx.Response] = []
    for _ in range(most + 1):
        answer = stage.caller.ask(stage.left, "ana", asked_about(topics[0]))
        if answer.status_code == httpx.codes.TOO_MANY_REQUESTS:
            told.append(answer)
            break
    refused.control(bool(told), "the tenant with a limit is refused")
    for _ in range(QUESTIONS):
        found = stage.caller.ask(stage.right, "ana", asked_about(topics[1])).status_code
        refused.probe(found == httpx.codes.TOO_MANY_REQUESTS, "the other tenant")
        if found not in {httpx.codes.OK, httpx.codes.TOO_MANY_REQUESTS}:
            refused.void(f"HTTP {found}")
    yield refused.close()
    view = _limits(stage, stage.left)
    for place, response in [*(("a refusal", answer) for answer in told), ("the view of limits", view)]:
        text = text_of(response)
        for other in others:
            said.probe(other in text, place)
    said.control(any('"tenant"' in answer.text and str(most) in answer.text for answer in told), "scope and limit")
    said.control(_REQUESTS[1] in view.text, "the view of limits")
    yield said.close()


def _flight(stage: Stage, topic: str) -> Claim:
    tally = Tally(_FLIGHT)
    stage.pair.limit(stage.left, None)
    seen = False
    with _asking(stage, stage.right, topic):
        for _ in range(_LOOKS):
            idle, busy = _used(stage, stage.left), _used(stage, stage.right)
            if _CONCURRENT not in idle:
                tally.void("the view of limits")
            tally.probe(idle.get(_CONCURRENT, 0) > 0, "requests at one time")
            seen = seen or busy.get(_CONCURRENT, 0) > 0
    tally.control(seen, "whose work it is sees it")
    return tally.close()


@contextmanager
def _asking(stage: Stage, canary: Canary, topic: str) -> Iterator[None]:
    """Meanwhile a tenant asks without a pause, several questions at one time, none of which is remembered."""
    done = threading.Event()

    def ask(number: int) -> None:
        turn = 0
        while not done.is_set():
            turn += 1
            stage.caller.ask(canary, "ana", f"{asked_about(topic)[:-1]} under rule {number}-{turn}?")

    with ThreadPoolExecutor(_CLIENTS) as pool:
        asking = [pool.submit(ask, number) for number in range(_CLIENTS)]
        try:
            yield
        finally:
            done.set()
            for one in asking:
                one.result()


def _used(stage: Stage, canary: Canary) -> dict[tuple[str, str], int]:
    """By scope and bound; nothing where that is not told. Looking uses nothing."""
    found = _limits(stage, canary)
    rooms: list[dict[str, Any]] = found.json()["room"] if found.status_code == httpx.codes.OK else []
    return {(room["scope"], room["bound"]): int(room["used"]) for room in rooms}


def _limits(stage: Stage, canary: Canary) -> httpx.Response:
    return stage.caller.send("GET", "/v1/limits", canary.keys["ana"])
