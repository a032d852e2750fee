"""The tenant comes from the credential alone, and every refusal is a problem document."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import OctKey

from service.auth import source_of
from tenancy.identity import Role
from tests.service.house import House, problem

QUESTION = {"query": "How long is the notice period?"}


def test_a_key_opens_its_own_tenant(house: House) -> None:
    assert house.get("/v1/models", house.key("acme", "ana")).status_code == 200


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Basic YTpi",
        "Bearer a b",
        "Bearer sr_live_x",
        "bearer " + "a" * 20_000,
        "Bearer é",
    ],
)
def test_anything_else_is_401_with_the_same_form(shared: House, authorization: str | None) -> None:
    headers = {} if authorization is None else {"Authorization": authorization.encode("latin-1")}
    response = shared.client.get("/v1/models", headers=headers)
    problem(response, 401, "unauthenticated")
    assert response.headers["www-authenticate"].startswith("Bearer")


def test_a_key_with_another_secret_is_refused_and_recorded_without_it(house: House) -> None:
    key, other = house.key("acme", "ana"), house.key("acme", "bo")
    parts, secret = key.split("_"), other.split("_")[3]
    forged = "_".join([*parts[:3], secret, parts[4]])
    problem(house.get("/v1/models", forged), 401, "unauthenticated")
    (event,) = house.system_events()
    assert (event["action"], event["outcome"], event["reason"]) == ("authenticate", "refused", "unauthenticated")
    assert secret not in repr(event)


def test_a_source_that_keeps_failing_has_to_wait(folder: Path) -> None:
    house = House(folder, STRONGROOM_THROTTLE__SOURCE_FAILURES="3")
    with house.client:
        key = house.key("acme", "ana")
        assert house.get("/v1/models", key).status_code == 200
        for _ in range(3):
            problem(house.get("/v1/models", "nonsense"), 401, "unauthenticated")
        response = house.get("/v1/models", "nonsense")
        problem(response, 429, "throttled")
        assert int(response.headers["retry-after"]) >= 1
        # A credential that worked from there is not locked out by its neighbour.
        assert house.get("/v1/models", key).status_code == 200
        # A flood does not fill the log.
        assert len(house.system_events()) == 3
    house.close()


def test_a_revoked_key_ends_at_the_next_request(house: House) -> None:
    key = house.key("acme", "ana")
    assert house.get("/v1/models", key).status_code == 200
    house.services.control.tenants.revoke_key("acme", key.split("_")[2])
    problem(house.get("/v1/models", key), 401, "unauthenticated")


@pytest.mark.parametrize("place", ["header", "other header", "query", "body"])
@pytest.mark.parametrize("named", ["globex", "", "ACME", "acme "])
def test_another_tenant_anywhere_is_403_and_its_own_is_not(shared: House, place: str, named: str) -> None:
    key = shared.key("acme", "ana")
    shared.key("globex", "bo")

    def send(tenant: str) -> Any:
        if place == "body":
            return shared.post("/v1/retrieve", key, {**QUESTION, "tenant": tenant})
        if place == "query":
            return shared.post("/v1/retrieve", key, QUESTION, params={"tenant": tenant})
        header = "X-Tenant" if place == "header" else "x-tenant-id"
        return shared.client.post(
            "/v1/retrieve", json=QUESTION, headers=[("Authorization", f"Bearer {key}"), (header, tenant)]
        )

    assert send("acme").status_code == 200
    if place not in {"query", "body"} and named == "acme ":
        named = "acme-"  # the HTTP client itself trims header values
    problem(send(named), 403, "forbidden")
    refused = shared.events("acme")[-1]
    assert (refused["action"], refused["outcome"], refused["reason"]) == ("authorize", "refused", "forbidden")


def test_a_suspended_tenant_is_refused_and_comes_back(house: House) -> None:
    key = house.key("acme", "ana")
    tenants = house.services.control.tenants
    tenants.set_status("acme", "suspended")
    problem(house.post("/v1/retrieve", key, QUESTION), 403, "tenant-suspended")
    tenants.set_status("acme", "active")
    assert house.post("/v1/retrieve", key, QUESTION).status_code == 200


def test_a_deleted_tenant_is_like_one_that_never_was(house: House) -> None:
    key = house.key("acme", "ana")
    house.services.control.tenants.delete("acme")
    problem(house.post("/v1/retrieve", key, QUESTION), 401, "unauthenticated")


@pytest.mark.parametrize(
    ("method", "path", "role"),
    [
        ("GET", "/v1/documents", Role.INGEST),
        ("GET", "/v1/audit/events", Role.AUDITOR),
        ("GET", "/v1/cache/entries", Role.ADMIN),
        ("POST", "/v1/retrieve", Role.READER),
    ],
)
def test_each_role_opens_its_own_routes_and_no_other(shared: House, method: str, path: str, role: Role) -> None:
    body = QUESTION if method == "POST" else None
    for held in Role:
        response = shared.send(method, path, shared.key("acme", f"u-{held}", held), body)
        if held is role:
            assert response.status_code == 200
        else:
            problem(response, 403, "forbidden")


def test_unknown_and_repeated_parameters_are_refused(house: House) -> None:
    key = house.key("acme", "ana", *Role)
    problem(house.get("/v1/documents?limt=3", key), 400, "unknown-parameter")
    problem(house.get("/v1/documents?limit=3&limit=4", key), 422, "invalid-input")
    problem(house.get("/v1/models?a=%ff", key), 400, "malformed")
    assert house.get("/v1/documents?limit=3", key).status_code == 200


def test_the_client_cannot_choose_the_request_id(house: House) -> None:
    response = house.get("/healthz/live", headers={"X-Request-ID": "mine"})
    assert len(response.headers["x-request-id"]) == 32
    assert response.headers["x-request-id"] != house.get("/healthz/live").headers["x-request-id"]


def test_a_token_of_a_configured_issuer_is_a_principal(folder: Path) -> None:
    key = OctKey.generate_key(256, {"kid": "k1"})
    (folder / "keys.json").write_text(json.dumps({"keys": [key.as_dict(private=True)]}))
    issuer = {
        "iss": "https://login.example", "audience": "strongroom", "algorithms": ["HS256"], "tenants": ["acme"],
        "jwks": str(folder / "keys.json"),
    }  # fmt: skip
    listed = ", ".join(f"{name} = {json.dumps(value)}" for name, value in issuer.items())
    house = House(folder, STRONGROOM_ISSUERS=f"[{{{listed}}}]")

    def token(algorithm: str = "HS256", **changes: Any) -> str:
        now = int(time.time())
        claims = {
            "iss": "https://login.example", "aud": "strongroom", "sub": "ana", "tenant": "acme", "iat": now,
            "exp": now + 600, **changes,
        }  # fmt: skip
        header = {"alg": algorithm, "typ": "JWT", "kid": "k1"}
        return jwt.encode(header, claims, key, algorithms=[algorithm])

    with house.client:
        house.put("acme", "a", "The notice period is three months.", allow=["user:ana"])
        house.key("globex", "eve")
        found = house.post("/v1/retrieve", token(), QUESTION)
        assert [passage["document"] for passage in found.json()["passages"]] == ["a"]
        assert house.post("/v1/retrieve", token(sub="bo"), QUESTION).json()["passages"] == []
        past = int(time.time()) - 4000
        for refused in (
            token(tenant="globex"), token(aud="other"), token(iss="https://evil.example"), token(algorithm="HS384"),
            token(iat=past, exp=past + 600), token()[:-4] + "AAAA",
        ):  # fmt: skip
            problem(house.post("/v1/retrieve", refused, QUESTION), 401, "unauthenticated")
        problem(house.get("/v1/documents", token()), 403, "forbidden")
    house.close()


@pytest.mark.parametrize(
    ("client", "source"),
    [
        (("192.0.2.7", 1), "192.0.2.7"),
        (("2001:db8:1:2:3:4:5:6", 1), "2001:db8:1:2::/64"),
        (("::ffff:192.0.2.7", 1), "192.0.2.7"),
        (("testclient", 1), "testclient"),
        (None, "unknown"),
    ],
)
def test_a_source_is_an_address_or_a_network(client: Any, source: str) -> None:
    assert source_of({"client": client}) == source  # type: ignore[typeddict-item]
