"""Every route: its credential, its audit event, its problem documents, its place in the OpenAPI document."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest
from litestar.routes import HTTPRoute
from sqlalchemy import select

from audit.tables import events
from tenancy.contract import Contract
from tenancy.identity import Role
from tests.audit.secret_patterns import secrets_in
from tests.service.house import House, problem

# Routes that release or change nothing of a tenant.
SILENT = {("GET", "/healthz/live"), ("GET", "/healthz/ready"), ("GET", "/v1/models"), ("GET", "/v1/models/{id:path}")}
# The one route that asks for no role: whoever draws on limits may see them.
ANY_ROLE = ("GET", "/v1/limits")
# One request to every other route, that it accepts. A route that is missing here fails the test below.
REQUESTS: dict[tuple[str, str], tuple[str, Any]] = {
    ("POST", "/v1/retrieve"): ("/v1/retrieve", {"query": "notice"}),
    ("POST", "/v1/answers"): ("/v1/answers", {"query": "notice"}),
    ("POST", "/v1/chat/completions"): (
        "/v1/chat/completions",
        {"model": "extractive-1", "messages": [{"role": "user", "content": "notice"}]},
    ),
    ("POST", "/v1/roots"): ("/v1/roots", {"calls": 5}),
    ("GET", "/v1/limits"): ("/v1/limits", None),
    ("POST", "/v1/feedback"): ("/v1/feedback", {"answer_id": "0" * 32, "verdict": "good"}),
    ("GET", "/v1/documents"): ("/v1/documents", None),
    ("GET", "/v1/documents/{id:path}"): ("/v1/documents/a", None),
    ("PUT", "/v1/documents/{id:path}"): ("/v1/documents/b", {"text": "b", "allow": ["tenant"]}),
    ("PATCH", "/v1/documents/{id:path}"): ("/v1/documents/a/acl", {"allow": ["tenant"]}),
    ("DELETE", "/v1/documents/{id:path}"): ("/v1/documents/a", None),
    ("GET", "/v1/audit/events"): ("/v1/audit/events", None),
    ("GET", "/v1/audit/events/{seq:int}"): ("/v1/audit/events/0", None),
    ("GET", "/v1/audit/checkpoint"): ("/v1/audit/checkpoint", None),
    ("GET", "/v1/audit/proof/inclusion"): ("/v1/audit/proof/inclusion?seq=0", None),
    ("GET", "/v1/audit/proof/consistency"): ("/v1/audit/proof/consistency?old=1", None),
    ("POST", "/v1/audit/exports"): ("/v1/audit/exports", {}),
    ("GET", "/v1/audit/reports/document/{id:path}"): ("/v1/audit/reports/document/a", None),
    ("GET", "/v1/audit/reports/subject/{user:str}"): ("/v1/audit/reports/subject/ana", None),
    ("GET", "/v1/audit/reports/cache-entry/{entry:str}"): ("/v1/audit/reports/cache-entry/ce_none", None),
    ("GET", "/v1/audit/reports/denied"): ("/v1/audit/reports/denied", None),
    ("GET", "/v1/audit/reports/deletions"): ("/v1/audit/reports/deletions", None),
    ("GET", "/v1/audit/reports/attestations"): ("/v1/audit/reports/attestations", None),
    ("GET", "/v1/audit/lineage"): ("/v1/audit/lineage", None),
    ("GET", "/v1/usage"): ("/v1/usage", None),
    ("GET", "/v1/templates"): ("/v1/templates", None),
    ("GET", "/v1/cache/entries"): ("/v1/cache/entries", None),
    ("DELETE", "/v1/cache/entries"): ("/v1/cache/entries?all=true", None),
}


def accepted(house: House, route: tuple[str, str], key: str) -> Any:
    """The body of the table, about an answer of one's own where it names one."""
    body = REQUESTS[route][1]
    if route == ("POST", "/v1/feedback"):
        return body | {"answer_id": house.post("/v1/answers", key, {"query": "notice"}).json()["request_id"]}
    return body


def refused(response: httpx.Response, path: str, status: int, code: str) -> None:
    """A refusal in the form of its route."""
    if path != "/v1/chat/completions":
        problem(response, status, code)
        return
    error = response.json()["error"]
    told = {"unauthenticated": "invalid_api_key"}.get(code, code.replace("-", "_"))
    assert (response.status_code, error["code"], error["message"] != "") == (status, told, True)


def routes(house: House) -> set[tuple[str, str]]:
    return {
        (method, route.path)
        for route in house.app.app.routes
        if isinstance(route, HTTPRoute) and not route.path.startswith("/schema")
        for method in route.methods
        if method not in {"OPTIONS", "HEAD"}
    }


def test_every_route_is_in_the_table(shared: House) -> None:
    assert routes(shared) == SILENT | set(REQUESTS)


@pytest.mark.parametrize("route", sorted(REQUESTS), ids=" ".join)
def test_every_route_writes_its_event(shared: House, route: tuple[str, str]) -> None:
    shared.put("acme", "a", "notice", allow=["tenant"])
    path, key = REQUESTS[route][0], shared.key("acme", "ana", *Role)
    response = shared.send(route[0], path, key, accepted(shared, route, key))
    assert response.status_code == 200, response.text
    mine = [one for one in shared.events("acme") if one["request"]["id"] == response.headers["x-request-id"]]
    assert [one["phase"] for one in mine] == ["intent", "outcome"]
    assert mine[1]["outcome"] == "allowed"


def test_no_event_of_all_routes_holds_a_secret(house: House) -> None:
    """Not the credential, not a secret that a client writes into a text, a filter or a document."""
    house.put("acme", "a", "notice", allow=["tenant"])
    key = house.key("acme", "ana", *Role)
    # Deletions last.
    for route in sorted(REQUESTS, reverse=True):
        assert house.send(route[0], REQUESTS[route][0], key, accepted(house, route, key)).status_code == 200
    for secret in (key, "sk-" + "a1" * 20, "Bearer abcdefgh12345678", "-----BEGIN PRIVATE KEY-----"):
        house.post("/v1/answers", key, {"query": f"Is {secret} still a key?", "filter": {"field": "id", "eq": secret}})
        house.post("/v1/answers", key, {"query": f"Is {secret} still a key?"})
        house.send("PUT", "/v1/documents/b", key, {"text": secret, "title": secret, "allow": ["tenant"]})
        house.get("/v1/models", secret.replace("\n", ""))
    recorded = payloads_of(house)
    assert len(recorded) > 2 * len(REQUESTS)
    assert [found for payload in recorded for found in secrets_in(payload)] == []
    # The control: the same scan finds what stands in the clear.
    assert secrets_in(recorded[0] + key.encode())


def payloads_of(house: House) -> list[bytes]:
    """The stored bytes of every event, the tenant's and the system's."""
    control = house.services.control
    found: list[bytes] = []
    for principal in (control.authenticator.operator("acme"), None):
        log = control.logs.of(principal)
        log.flush()
        with log.database.reading() as connection:
            found += connection.execute(select(events.c.payload)).scalars().all()
    return found


@pytest.mark.parametrize("route", sorted(REQUESTS), ids=" ".join)
def test_every_route_records_whom_it_refuses_and_needs_a_credential(shared: House, route: tuple[str, str]) -> None:
    path, body = REQUESTS[route]
    refused(shared.send(route[0], path, None, body), path, 401, "unauthenticated")
    asks = {"/v1/retrieve", "/v1/answers", "/v1/chat/completions", "/v1/feedback", "/v1/templates"}
    asks |= {"/v1/roots"}
    if route == ANY_ROLE:
        assert shared.send(route[0], path, shared.key("acme", "bo", Role.INGEST), body).status_code == 200
        return
    wrong = Role.INGEST if route[1] in asks else Role.READER
    response = shared.send(route[0], path, shared.key("acme", "bo", wrong), body)
    refused(response, path, 403, "forbidden")
    (event,) = [one for one in shared.events("acme") if one["request"]["id"] == response.headers["x-request-id"]]
    assert (event["phase"], event["outcome"], event["reason"]) == ("outcome", "refused", "forbidden")


@pytest.mark.parametrize("route", sorted(REQUESTS), ids=" ".join)
def test_nothing_is_released_where_the_audit_log_is_away(
    shared: House, route: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from audit.log import AuditLog
    from tenancy.errors import AuditUnavailable

    shared.put("acme", "a", "notice", allow=["tenant"])
    key = shared.key("acme", "ana", *Role)

    def away(*_: Any, **__: Any) -> Any:
        raise AuditUnavailable("the log cannot be written")

    path, body = REQUESTS[route][0], accepted(shared, route, key)
    with monkeypatch.context() as broken:
        broken.setattr(AuditLog, "submit", away)
        response = shared.send(route[0], path, key, body)
        refused(response, path, 503, "audit-unavailable")
        assert "notice" not in response.text
    assert shared.send(route[0], path, key, body).status_code == 200


@pytest.mark.parametrize(
    "path", ["/", "/nope", "/v1", "/v1/nope", "/v2/answers", "/docs", "/v1/answers/x", "/v1/audit/events/-1x"]
)
def test_an_unknown_address_is_a_404_problem(shared: House, path: str) -> None:
    problem(shared.get(path), 404, "not-found")


def test_a_wrong_method_is_a_405_problem_with_allow(shared: House) -> None:
    response = shared.get("/v1/answers")
    problem(response, 405, "method-not-allowed")
    assert "POST" in response.headers["allow"]


def test_every_response_carries_the_security_headers(shared: House) -> None:
    for response in (shared.get("/nope"), shared.get("/healthz/live"), shared.get("/v1/models")):
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["cache-control"] == "no-store"
        assert "default-src 'none'" in response.headers["content-security-policy"]
        assert "server" not in response.headers


def test_readiness_fails_where_the_control_plane_is_away(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    from tenancy.control import Tenants
    from tenancy.errors import Unavailable

    assert house.get("/healthz/ready").json() == {
        "status": "ok",
        "engines_away": 0,
        "cache_away": False,
        "cache_failures": 0,
        "pools_away": 0,
        "pools_refused": 0,
        "pools_waived": 0,
        "limits_away": False,
        "limits_refused": 0,
    }

    def away(_: Any) -> Any:
        raise Unavailable("the database is busy or out of reach")

    monkeypatch.setattr(Tenants, "ping", away)
    problem(house.get("/healthz/ready"), 503, "unavailable")
    assert house.get("/healthz/live").status_code == 200


def test_the_openapi_document_describes_every_route_with_problems_and_examples(shared: House) -> None:
    document = shared.get("/schema/openapi.json").json()
    described = {
        (method.upper(), path)
        for path, methods in document["paths"].items()
        for method in methods
        if method != "summary"
    }
    assert described == {
        (method, re.sub(r":\w+}", "}", path) + ("/acl" if method == "PATCH" else "")) for method, path in routes(shared)
    }
    operation = document["paths"]["/v1/answers"]["post"]
    assert operation["requestBody"]["content"]["application/json"]["schema"]["examples"]
    for status in ("400", "401", "403", "404", "422", "429", "503"):
        assert list(operation["responses"][status]["content"]) == ["application/problem+json"]
    assert set(operation["responses"]["200"]["content"]) == {"application/json", "text/event-stream"}
    chat = document["paths"]["/v1/chat/completions"]["post"]["responses"]
    assert set(chat["200"]["content"]) == {"application/json", "text/event-stream"}
    assert "422" not in chat
    for status in ("400", "401", "403", "404", "409", "413", "429", "503"):
        assert chat[status]["content"]["application/json"]["schema"]["$ref"].endswith("/ErrorBody")
    assert document["components"]["securitySchemes"]["bearer"]["scheme"] == "bearer"


def test_every_example_of_the_openapi_document_works(shared: House) -> None:
    key, tried = shared.key("acme", "ana", *Role), 0
    declared = Contract(metadata={"year": "integer", "department": "string", "draft": "boolean"})
    shared.services.control.tenants.set_contract("acme", declared)
    for path, methods in shared.get("/schema/openapi.json").json()["paths"].items():
        for method, operation in methods.items():
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
            for number, example in enumerate(body.get("schema", {}).get("examples", [])):
                if "answer_id" in example:
                    got = shared.post("/v1/answers", key, {"query": "notice"}).json()
                    example |= {"answer_id": got["request_id"]}
                response = shared.send(method.upper(), path.replace("{id}", f"example-{number}"), key, example)
                assert response.status_code == 200, response.text
                tried += 1
    assert tried >= 5


def test_the_openapi_page_needs_no_script_and_no_network(shared: House) -> None:
    response = shared.get("/schema")
    assert response.headers["content-type"].startswith("text/html")
    assert "/v1/answers" in response.text
    for loaded in ("<script", "http://", "https://", "src="):
        assert loaded not in response.text
