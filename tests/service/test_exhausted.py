"""A tenant whose limits are used up: every route and every command is refused but those that it needs now.

Routes are found in the application and commands in the program, so that a new one is refused, or says here why not.
"""

from __future__ import annotations

import asyncio
import base64
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from litestar.routes import HTTPRoute

from admission.limits import NO_AMOUNTS, REACH_S
from admission.scopes import tenant_scope
from indexing import ingest, stepwise
from service.charging import ADMITS, EVIDENCE, FREE, STANDING, WITHDRAWS
from tenancy.contract import Contract
from tenancy.identity import Role
from tenancy.limits import Limits, TenantLimits
from tests.indexing.parse_files import docx, paragraph
from tests.service.conftest import _MEMORY
from tests.service.house import House, problem
from tests.service.priced import opened
from tests.service.test_event_walk import COMMANDS
from tests.service.test_routes import REQUESTS, SILENT, accepted

HEALTH = {("GET", "/healthz/live"), ("GET", "/healthz/ready")}
OPEN: dict[tuple[str, str], str] = {
    ("PATCH", "/v1/documents/{id:path}"): WITHDRAWS,
    ("DELETE", "/v1/documents/{id:path}"): WITHDRAWS,
    ("DELETE", "/v1/cache/entries"): WITHDRAWS,
    ("GET", "/v1/usage"): STANDING,
    ("GET", "/v1/limits"): STANDING,
    ("GET", "/v1/audit/events"): EVIDENCE,
    ("GET", "/v1/audit/events/{seq:int}"): EVIDENCE,
    ("GET", "/v1/audit/checkpoint"): EVIDENCE,
    ("GET", "/v1/audit/proof/inclusion"): EVIDENCE,
    ("GET", "/v1/audit/proof/consistency"): EVIDENCE,
    ("POST", "/v1/audit/exports"): EVIDENCE,
    ("GET", "/v1/audit/reports/document/{id:path}"): EVIDENCE,
    ("GET", "/v1/audit/reports/subject/{user:str}"): EVIDENCE,
    ("GET", "/v1/audit/reports/cache-entry/{entry:str}"): EVIDENCE,
    ("GET", "/v1/audit/reports/denied"): EVIDENCE,
    ("GET", "/v1/audit/reports/deletions"): EVIDENCE,
    ("GET", "/v1/audit/reports/attestations"): EVIDENCE,
    ("GET", "/v1/audit/lineage"): EVIDENCE,
}
"""What stays open, and why. Feedback does not: it writes, and can be given later."""
MODELS = {
    ("GET", "/v1/models"): ("/v1/models", None),
    ("GET", "/v1/models/{id:path}"): ("/v1/models/extractive-1", None),
}
ALL = REQUESTS | MODELS
REFUSED = sorted(set(ALL) - set(OPEN))

_OPERATORS = "the operator's own work on the machine, which spends nothing of what was promised to the tenant"
_LOOKS = "evidence, or says what was used"
_TAKES = "takes away, or guards: it must hold now"
REFUSED_COMMANDS = {"ask", "ingest", "template preview", "cache explain", "eval run"}
OPEN_COMMANDS: dict[str, str] = dict.fromkeys(
    (
        "serve", "attest", "doctor", "master create", "master recovery-key", "master rotate", "master show", "backup",
        "restore", "export", "tenant certificate", "tenant confirm", "tenant contract set", "tenant contract show",
        "tenant create", "tenant list", "tenant move", "tenant moves", "tenant resume", "tenant rollback",
        "tenant rotate-key", "tenant show", "key create", "key list", "group add", "group list", "adapter add",
        "adapter list", "adapter show", "template add", "template list", "template show", "cache open", "cache resume",
        "cache repair", "document list", "document show", "acl show", "acl sweep", "group import", "group status",
    ),
    _OPERATORS,
) | dict.fromkeys(
    (
        "audit checkpoint", "audit export", "audit hold", "audit holds", "audit key", "audit prove", "audit prune",
        "audit query", "audit release", "audit replay", "audit report document", "audit report subject",
        "audit report cache-entry", "audit report denied", "audit report deletions", "audit report attestations",
        "audit rotate-key", "audit verify", "lineage",
        "usage correct", "usage list", "usage rebuild", "usage reconcile", "usage report", "cache stats",
        "cache inspect", "cache certificate", "cache reports", "user hold", "user receipts", "eval compare",
        "eval drift", "eval generate", "eval list", "eval save", "eval sets", "eval show", "eval shadow",
    ),
    _LOOKS,
) | dict.fromkeys(
    (
        "acl set", "group remove", "key revoke", "user delete", "user erase", "tenant delete", "tenant suspend",
        "document delete", "cache invalidate", "cache close", "cache suspend", "cache confirm", "template withdraw",
        "adapter revoke",
    ),
    _TAKES,
)  # fmt: skip


@pytest.fixture(scope="module")
def spent() -> Iterator[House]:
    """One house, whose tenant has no request left."""
    with tempfile.TemporaryDirectory(dir=_MEMORY, prefix="strongroom-test-") as folder:
        house = opened(Path(folder))
        with house.client:
            house.put("acme", "a", "notice", allow=["tenant"])
            house.answered = house.post(  # type: ignore[attr-defined]
                "/v1/answers", house.key("acme", "ana", *Role), {"query": "notice"}
            ).json()["request_id"]
            limit(house, Limits(requests_per_minute=0))
            yield house
        house.close()


def limit(house: House, tenant: Limits) -> None:
    house.services.control.tenants.set_contract("acme", Contract(admission=TenantLimits(tenant=tenant)))


def sent(house: House, route: tuple[str, str]) -> httpx.Response:
    path, body = ALL[route]
    if route == ("POST", "/v1/feedback"):
        body = body | {"answer_id": house.answered}  # type: ignore[attr-defined]
    return house.send(route[0], path, house.key("acme", "ana", *Role), body)


def last(house: House, response: httpx.Response) -> dict[str, Any]:
    return [one for one in house.events("acme") if one["request"]["id"] == response.headers["x-request-id"]][-1]


# --- Routes -------------------------------------------------------------------------------------------------------


def test_every_route_is_refused_or_open_for_a_reason(spent: House) -> None:
    found: dict[tuple[str, str], str] = {}
    known: set[tuple[str, str]] = set()
    for route in spent.app.app.routes:
        if not isinstance(route, HTTPRoute) or route.path.startswith("/schema"):
            continue
        for method, (handler, _) in route.route_handler_map.items():
            if method in {"OPTIONS", "HEAD"}:
                continue
            known.add((method, route.path))
            if FREE in handler.opt:
                assert ADMITS not in handler.opt
                found[method, route.path] = handler.opt[FREE]
    assert found == OPEN
    assert known - HEALTH == set(ALL)
    assert set(MODELS) == SILENT - HEALTH


@pytest.mark.parametrize("route", REFUSED, ids=" ".join)
def test_an_exhausted_tenant_is_refused_on_record(spent: House, route: tuple[str, str]) -> None:
    response = sent(spent, route)
    assert response.status_code == 429, response.text
    assert int(response.headers["retry-after"]) >= 1
    if not route[1].startswith(("/v1/chat", "/v1/models")):
        found = problem(response, 429, "limit-exceeded")
        assert (found["scope"], found["bound"], found["limit"]) == ("tenant", "requests_per_minute", 0)
        assert found["resets"] >= 1
    elif route[1].startswith("/v1/chat"):
        assert response.json()["error"]["code"] == "rate_limit_exceeded"
    event = last(spent, response)
    assert (event["phase"], event["outcome"], event["reason"]) == ("outcome", "refused", "limit-exceeded")


@pytest.mark.parametrize("route", sorted(OPEN), ids=" ".join)
def test_what_an_exhausted_tenant_needs_stays_open(spent: House, route: tuple[str, str]) -> None:
    if route[1].startswith("/v1/documents"):
        limit(spent, Limits())
        spent.put("acme", "a", "notice", allow=["tenant"])
        limit(spent, Limits(requests_per_minute=0))
    response = sent(spent, route)
    assert response.status_code == 200, response.text
    assert last(spent, response)["outcome"] == "allowed"


def test_health_and_another_tenant_are_as_before(spent: House) -> None:
    for _, path in sorted(HEALTH):
        assert spent.get(path).status_code == 200
    assert spent.post("/v1/retrieve", spent.key("globex", "gil"), {"query": "notice"}).status_code == 200


def test_the_tables_of_this_test_meet_a_tenant_that_may(house: House) -> None:
    """The control: each request that is refused above is one that the service takes."""
    house.put("acme", "a", "notice", allow=["tenant"])
    key = house.key("acme", "ana", *Role)
    for route in REFUSED:
        body = accepted(house, route, key) if route in REQUESTS else None
        assert house.send(route[0], ALL[route][0], key, body).status_code == 200, route


def test_tokens_that_are_used_up_refuse_questions_and_nothing_that_takes_none(spent: House) -> None:
    none = Contract(admission=TenantLimits(user=Limits(tokens_per_minute=0)))
    spent.services.control.tenants.set_contract("acme", none)
    key = spent.key("acme", "ted", *Role)
    try:
        for path in ("/v1/answers", "/v1/retrieve", "/v1/chat/completions"):
            response = spent.post(path, key, ALL["POST", path][1])
            assert response.status_code == 429
            assert '"user-tokens_per_minute"' in response.headers["ratelimit-policy"]
        assert spent.get("/v1/templates", key).status_code == 200
        assert spent.send("PUT", "/v1/documents/b", key, {"text": "b", "allow": ["tenant"]}).status_code == 200
    finally:
        limit(spent, Limits(requests_per_minute=0))


def cost_of_documents(house: House) -> int:
    """Microunits of the documents that were put, by the audit."""
    stored = [one for one in house.events("acme") if (one["action"], one["phase"]) == ("document.put", "outcome")]
    return sum(one["cost"]["microunits"] for one in stored)


def test_money_that_is_spent_refuses_whatever_costs(folder: Path) -> None:
    house = opened(folder)
    with house.client:
        house.put("acme", "a", "notice", allow=["tenant"])
        house.answered = "0" * 32  # type: ignore[attr-defined]
        # Spent to the last microunit, and not beyond.
        spent_on_documents = cost_of_documents(house)
        assert spent_on_documents > 0
        limit(house, Limits(money_per_month=spent_on_documents))
        for route in (
            ("POST", "/v1/answers"),
            ("POST", "/v1/retrieve"),
            ("POST", "/v1/chat/completions"),
            ("PUT", "/v1/documents/{id:path}"),
        ):
            response = sent(house, route)
            assert response.status_code == 429, route
            if not route[1].startswith("/v1/chat"):
                assert problem(response, 429, "limit-exceeded")["bound"] == "money_per_month"
        assert sent(house, ("GET", "/v1/documents")).status_code == 200
    house.close()


# --- Documents draw on the month ------------------------------------------------------------------------------------


def test_documents_cost_money_and_no_tokens_a_minute(folder: Path) -> None:
    house = opened(folder)
    with house.client:
        key = house.key("acme", "lo", Role.INGEST, Role.READER)
        limit(house, Limits(money_per_month=10**9, tokens_per_minute=10))
        body = {"text": "The notice period is three months. " * 30, "allow": ["tenant"]}
        assert house.send("PUT", "/v1/documents/b", key, body).status_code == 200
        room = {one["bound"]: one for one in house.get("/v1/limits", key).json()["room"] if one["scope"] == "tenant"}
        cost = cost_of_documents(house)
        assert 100 < cost <= room["money_per_month"]["used"] <= cost + 10**9 // 20
        assert room["tokens_per_minute"]["used"] == 0
    house.close()


def test_a_document_is_refused_for_what_is_in_it_before_it_is_embedded(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedded: list[int] = []
    monkeypatch.setattr(ingest, "encoded", lambda *given: (embedded.append(len(given[1])), stepwise.encoded(*given))[1])
    # Much text in few bytes: by its size alone it would be let in.
    content = docx("".join(paragraph("The notice period is three months.") for _ in range(3_000)))
    body = {"content_base64": base64.b64encode(content).decode(), "allow": ["tenant"]}
    house = opened(folder)
    with house.client:
        key = house.key("acme", "lo", Role.INGEST, Role.READER)
        small = house.send("PUT", "/v1/documents/small", key, {"text": "notice", "allow": ["tenant"]})
        assert small.status_code == 200
        before = cost_of_documents(house)
        limit(house, Limits(money_per_month=before + 5 * len(content) // 4))
        embedded.clear()
        response = house.send("PUT", "/v1/documents/large.docx", key, body)
        found = problem(response, 429, "limit-exceeded")
        assert (found["scope"], found["bound"]) == ("tenant", "money_per_month")
        assert last(house, response)["outcome"] == "refused"
        assert (embedded, cost_of_documents(house)) == ([], before)
        assert house.get("/v1/documents/large.docx", key).status_code == 404
        # Nothing is held or booked of what was refused: what is left is there for others.
        scope = tenant_scope(house.services.control.tenants.show("acme").id)
        use = asyncio.run(house.services.path.admission.counters.use(scope))
        assert (use.held, use.month.money) == (NO_AMOUNTS, before)
        limit(house, Limits(money_per_month=10**9))
        assert house.send("PUT", "/v1/documents/large.docx", key, body).status_code == 200
        assert cost_of_documents(house) > before + 5 * len(content) // 4
        assert sum(embedded) > 0
    house.close()


# --- Looking --------------------------------------------------------------------------------------------------------


def test_an_exhausted_tenant_sees_what_refuses_and_when_it_ends(spent: House) -> None:
    key = spent.key("acme", "ana", *Role)
    seen = spent.get("/v1/limits", key).json()
    assert seen["admitted"] is False
    told = seen["refused"]
    assert (told["scope"], told["bound"], told["limit"], told["need"]) == ("tenant", "requests_per_minute", 0, 1)
    (room,) = [one for one in seen["room"] if one["scope"] == "tenant" and one["bound"] == "requests_per_minute"]
    assert (room["left"], 0 <= room["resets_s"] <= REACH_S) == (0, True)
    dry = spent.post("/v1/answers?dry_run=true", key, {"query": "notice"}).json()
    assert (dry["admitted"], dry["refused"]["scope"]) == (False, "tenant")


def test_looks_are_a_count_of_their_own_and_withdrawals_none(folder: Path) -> None:
    house = opened(folder, STRONGROOM_ADMISSION__LOOKS_PER_MINUTE="3")
    with house.client:
        house.put("acme", "a", "notice", allow=["tenant"])
        key, other = house.key("acme", "ana", *Role), house.key("acme", "bo", *Role)
        looks = [
            house.get("/v1/usage", key),
            house.post("/v1/answers?dry_run=true", key, {"query": "notice"}),
            house.get("/v1/audit/events", key),
        ]
        assert {response.status_code for response in looks} == {200}
        for response in (
            house.get("/v1/limits", key),
            house.get("/v1/audit/events", key),
            house.post("/v1/answers?dry_run=true", key, {"query": "notice"}),
        ):
            found = problem(response, 429, "limit-exceeded")
            assert (found["scope"], found["limit"]) == ("user", 3)
            assert last(house, response)["outcome"] == "refused"
        # Neither the questions of this user, nor what withdraws, nor a colleague.
        assert house.post("/v1/answers", key, {"query": "notice"}).status_code == 200
        for _ in range(4):
            assert house.send("PATCH", "/v1/documents/a/acl", key, {"allow": ["tenant"]}).status_code == 200
        assert house.get("/v1/limits", other).status_code == 200
    house.close()


# --- Commands -------------------------------------------------------------------------------------------------------


def test_every_command_is_refused_or_open_for_a_reason() -> None:
    assert not REFUSED_COMMANDS & set(OPEN_COMMANDS)
    assert REFUSED_COMMANDS | set(OPEN_COMMANDS) == COMMANDS


@pytest.mark.slow
def test_commands_that_do_the_tenant_s_work_are_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from service.cli import run

    for variable, value in {
        "DATA_DIR": str(folder / "data"),
        "MASTER_KEY_FILE": str(folder / "master.key"),
        "EMBEDDING__MODEL": "hashing:256",
    }.items():
        monkeypatch.setenv(f"STRONGROOM_{variable}", value)
    docs, contract, asked = folder / "docs", folder / "contract.toml", folder / "set.jsonl"
    asked.write_text('{"question": "How long?", "documents": ["notice.md"], "asker": "ana"}\n')
    docs.mkdir()
    (docs / "notice.md").write_text("The notice period is three months.")
    contract.write_text("[admission.tenant]\nrequests_per_minute = 0\n")
    t = ("--tenant", "acme")
    work = {
        "ask": ("ask", "How long is the notice period?", *t, "--user", "ana"),
        "ingest": ("ingest", str(docs), *t, "--allow", "tenant"),
        "template preview": ("template", "preview", "How long?", *t, "--user", "ana"),
        "cache explain": ("cache", "explain", "How long?", *t, "--user", "ana"),
        "eval run": ("eval", "run", str(asked), *t),
    }
    assert set(work) == REFUSED_COMMANDS
    for words in (
        ("doctor", "--create-master-key"),
        ("tenant", "create", "acme"),
        ("key", "create", *t, "--user", "ana"),
        *(work[name] for name in ("ingest", "ask", "template preview", "cache explain", "eval run")),
        ("tenant", "contract", "set", "acme", str(contract)),
    ):
        assert run(words) in {0, 1} if words[0] == "doctor" else run(words) == 0, words
    capsys.readouterr()
    for name, words in work.items():
        assert run(words) == 1, words
        # An evaluation goes on with the next question, and says of each what became of it.
        said = "limit-exceeded" if name == "eval run" else "the tenant's limit of 0 requests a minute is reached"
        assert said in capsys.readouterr().err, words
    assert run(("usage", "report", *t)) == 0
    capsys.readouterr()
    assert run(("audit", "query", *t, "--json", "--limit", "40")) == 0
    found = json.loads(capsys.readouterr().out)
    events = found["events"] if isinstance(found, dict) else found
    refused = {one["action"] for one in events if one.get("outcome") == "refused"}
    assert refused == {"answer", "retrieve", "ingest", "template.preview", "cache.explain"}
