"""Logs: does one tenant's audit log, or a log line, hold what belongs to another?

Questions with words that nobody else uses are asked in both tenants. Each auditor must find those of the own tenant in
its audit log, and none of the other's. The service's log lines must name the requests, and none of the words.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import httpx

from service.attest.canaries import Canary
from service.attest.claims import Claim, Layer, Tally, inconclusive
from service.attest.stage import Stage, asked_about, code_of, word

NAME: Final = "logs"
QUESTIONS: Final = 5

_LINES: Final = "no log line holds a question, an answer or a document's text"
_TAIL: Final = 64 << 20
"""Bytes at the end of the service's log that are read."""


def examine(stage: Stage) -> Layer:
    said: dict[str, list[str]] = {}
    requests: dict[str, list[str]] = {}
    for canary in (stage.left, stage.right):
        said[canary.name], requests[canary.name] = _asked(stage, canary)
    return Layer.of(NAME, [_audit(stage, said, requests), _others(stage), _lines(stage, said, requests)])


def _asked(stage: Stage, canary: Canary) -> tuple[list[str], list[str]]:
    """Words of questions and documents of one tenant, and the ids of the requests that held them."""
    words, requests = [], []
    for number in range(QUESTIONS):
        topic, secret = word(), word()
        stage.caller.put(canary, f"log-{number}.md", code_of(topic, secret), "tenant")
        answered = stage.caller.ask(canary, "ana", asked_about(topic))
        words += [topic, secret]
        requests.append(answered.headers.get("x-request-id", ""))
    return words, requests


def _audit(stage: Stage, said: dict[str, list[str]], requests: dict[str, list[str]]) -> Claim:
    tally = Tally("an audit log holds its own tenant's requests and texts alone")
    for canary, other in ((stage.left, stage.right), (stage.right, stage.left)):
        parameters = {"limit": 1000, "action": "answer"}
        stage.caller.recorded(canary, requests[canary.name][-1])
        log = stage.caller.send("GET", "/v1/audit/events", canary.keys["auditor"], params=parameters).text
        for text in [*said[canary.name][::2], *requests[canary.name]]:
            tally.control(bool(text) and text in log, "the tenant's own")
        for text in [*said[other.name], *requests[other.name]]:
            tally.probe(bool(text) and text in log, "another tenant's")
    return tally.close(remedy="the auditor's own log must show what was asked; see its events")


def _others(stage: Stage) -> Claim:
    """Nobody but an auditor reads a log."""
    tally = Tally("an audit log is read by nobody but its tenant's auditors")
    for canary in (stage.left, stage.right):
        for path in ("/v1/audit/events", "/v1/audit/events/0"):
            found = stage.caller.send("GET", path, canary.keys["auditor"]).status_code
            tally.control(found == httpx.codes.OK, path)
            for user in ("ana", "loader"):
                found = stage.caller.send("GET", path, canary.keys[user]).status_code
                tally.probe(found == httpx.codes.OK, f"{path} as {user}")
    return tally.close()


def _lines(stage: Stage, said: dict[str, list[str]], requests: dict[str, list[str]]) -> Claim:
    if stage.options.log is None:
        return inconclusive(_LINES, "the service's log lines were not shown", "--log FILE, or attest.log_file")
    tally = Tally(_LINES)
    try:
        lines = _end_of(stage.options.log)
    except OSError as error:
        return inconclusive(_LINES, f"{stage.options.log} cannot be read: {error.strerror}", "--log FILE")
    for canary in (stage.left, stage.right):
        for request in requests[canary.name]:
            tally.control(bool(request) and request in lines, "a request's own line")
        for text in said[canary.name]:
            tally.probe(text.casefold() in lines.casefold(), "a canary's word")
    return tally.close(remedy="name the file that standard error of this service goes to")


def _end_of(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(0, 2)
        file.seek(max(0, file.tell() - _TAIL))
        return file.read().decode("utf-8", errors="replace")
