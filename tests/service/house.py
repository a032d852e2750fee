"""A whole service in a fresh folder, without a model: hashed words, extractive answers. For tests over HTTP.

def test_something(house: House) -> None:
    house.put("acme", "notice.md", "The notice period is three months.", allow=["tenant"])
    answer = house.post("/v1/answers", house.key("acme", "ana"), {"query": "How long is the notice period?"})
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
from litestar.testing import TestClient

from generation.generator import Generator
from generation.placement import PooledRoutes
from service.app import create_app
from service.settings import load_settings
from service.wiring import build
from tenancy.errors import NotFound
from tenancy.identity import Role
from tenancy.keys import MasterKey
from tests.support.scores import for_any_model

MASTER = MasterKey(bytes(range(32)))
ALL_ROLES = tuple(Role)


class House:
    """`client` is without a credential; tenants and keys are made at first use and remembered."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.settings = load_settings(
            environment={
                "STRONGROOM_DATA_DIR": str(folder / "data"),
                "STRONGROOM_MASTER_KEY_FILE": str(folder / "master.key"),
                "STRONGROOM_EMBEDDING__MODEL": "hashing:256",
                **environment,
            }
        )
        self.services = for_any_model(build(self.settings, MASTER))
        self.app = create_app(self.services)
        self.client = TestClient(self.app)
        self._keys: dict[tuple[str, str, tuple[Role, ...], tuple[str, ...]], str] = {}

    @property
    def generator(self) -> Generator:
        """The one generator of a house without pools."""
        routes = self.services.path.routes
        assert isinstance(routes, PooledRoutes)
        (generator,) = routes.deployment.generators.values()
        return generator

    def key(self, tenant: str, user: str, *roles: Role, groups: tuple[str, ...] = ()) -> str:
        """An API key; without roles a reader's."""
        wanted = (tenant, user, roles or (Role.READER,), groups)
        if wanted not in self._keys:
            tenants = self.services.control.tenants
            try:
                tenants.show(tenant)
            except NotFound:
                tenants.create(tenant)
            self._keys[wanted] = tenants.create_key(tenant, user, wanted[2], groups=groups).text
        return self._keys[wanted]

    def send(self, method: str, path: str, key: str | None = None, body: Any = None, **options: Any) -> httpx.Response:
        headers = dict(options.pop("headers", {}))
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        if body is not None:
            options["json"] = body
        return self.client.request(method, path, headers=headers, **options)

    def get(self, path: str, key: str | None = None, **options: Any) -> httpx.Response:
        return self.send("GET", path, key, **options)

    def post(self, path: str, key: str | None = None, body: Any = None, **options: Any) -> httpx.Response:
        return self.send("POST", path, key, body, **options)

    def put(self, tenant: str, name: str, text: str, **access: list[str]) -> httpx.Response:
        """Store a document as an ingestor of `tenant`."""
        response = self.send(
            "PUT", f"/v1/documents/{name}", self.key(tenant, "loader", Role.INGEST), {"text": text, **access}
        )
        assert response.status_code == 200, response.text
        return response

    def events(self, tenant: str) -> list[dict[str, Any]]:
        """All audit events of a tenant, oldest first, read past the API so that reading adds none."""
        from audit.query import Filters, query_log, view

        control = self.services.control
        log = control.logs.of(control.authenticator.operator(tenant))
        page = query_log(log, Filters(order="asc"), limit=1000)
        return [view(stored, log.subjects) for stored in page.events]

    def system_events(self) -> list[dict[str, Any]]:
        from audit.query import Filters, query_log, view

        log = self.services.control.logs.of(None)
        return [view(stored, None) for stored in query_log(log, Filters(order="asc"), limit=1000).events]

    def close(self) -> None:
        self.services.close()


def problem(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """The problem document of a response, checked for its form."""
    assert response.status_code == status, f"{response.status_code}: {response.text}"
    assert response.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert body["type"] == f"urn:strongroom:problem:{code}"
    assert body["code"] == code
    assert body["status"] == status
    assert body["title"]
    assert body["detail"]
    assert body["instance"] == response.headers["x-request-id"]
    return body


def stream_events(text: str) -> Iterator[tuple[str, Any]]:
    """The events of a server-sent event stream."""
    for block in text.strip().split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.split("\n"))
        yield lines["event"], json.loads(lines["data"])
