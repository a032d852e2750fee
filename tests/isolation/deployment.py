"""The real service over real stores, in one process: HTTP through Litestar's test client, operators beside it.

The operator's changes go through control-plane objects of their own, as those of a command that runs next to the
server do, so that nothing the server keeps in memory can know of them by accident.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, MutableMapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import structlog
from httpx import Response
from litestar.testing import TestClient

from cache.openings import close_template, open_template
from indexing.chunk import Chunking
from indexing.pipeline import parse_here
from service.app import create_app
from service.settings import Settings, load_settings
from service.wiring import Services, build
from tenancy.control import Tenants
from tenancy.identity import Authenticator, Role
from tenancy.keys import MasterKey
from tenancy.tenant import WriteView
from tests.support.scores import for_any_model

MASTER = MasterKey(bytes(range(32)))
THRESHOLD = 0.85
"""Below the similarity of questions that differ in one word, so that the guards, and not the threshold, decide."""
PARAGRAPH = 64
"""Room of a chunk in characters: every paragraph of the documents here is one chunk of its own."""

_UNLIMITED = {
    f"STRONGROOM_ADMISSION__{scope}__{limit}": "1000000000"
    for scope in ("TENANT", "USER")
    for limit in ("REQUESTS_PER_MINUTE", "CONCURRENT", "TOKENS_PER_MINUTE")
}


class Deployment:
    """One data directory with a server on it. `logged` collects what matches `watched` in its log lines."""

    def __init__(self, directory: Path, watched: re.Pattern[str]) -> None:
        self.settings: Settings = load_settings(
            environment={
                "STRONGROOM_DATA_DIR": str(directory),
                "STRONGROOM_EMBEDDING__MODEL": "hashing:256",
                "STRONGROOM_WORKERS__THREADS": "2",
                # Whatever the rungs let pass is served: a comparison by chance would be no reproducible run.
                "STRONGROOM_CACHE__TEMPLATES": "{default = {probation = 0, shadow = 0}}",
                **_UNLIMITED,
            }
        )
        self.logged: set[str] = set()
        self._watched = watched
        self._start()

    def _start(self) -> None:
        structlog.configure(processors=[self._watch])
        services = for_any_model(build(self.settings, MASTER))
        # A process for each tenant's files would take most of the time of thousands of runs; tests of it are elsewhere.
        pipeline = replace(services.pipeline, chunking=Chunking(PARAGRAPH, 0), parse=parse_here)
        self.services: Services = replace(services, pipeline=pipeline)
        self._client = TestClient(create_app(self.services))
        self._client.__enter__()
        self._console = Tenants(self.settings.data_path, MASTER)
        self._operators = Authenticator(self._console)

    def stop(self) -> None:
        assert self._client.portal is not None
        self._client.__exit__(None, None, None)
        self.services.close()
        self._console.close()
        structlog.reset_defaults()

    def restart(self) -> None:
        self.stop()
        self._start()

    def request(self, method: str, path: str, key: str, body: dict[str, Any] | None = None) -> Response:
        return self._client.request(method, path, json=body, headers={"Authorization": f"Bearer {key}"})

    def create(self, tenant: str) -> None:
        self._console.create(tenant)

    def key(self, tenant: str, user: str, role: Role) -> str:
        return self._console.create_key(tenant, user, [role]).text

    def set_status(self, tenant: str, status: str) -> None:
        self._console.set_status(tenant, status)

    def change(self, tenant: str, change: Callable[[WriteView, float], object]) -> None:
        """What `strongroom group` and the like do: one write transaction by an operator."""
        with self._console.open(self._operators.operator(tenant)).writing() as view:
            change(view, time.time())

    def open_template(self, tenant: str) -> None:
        self.change(
            tenant,
            lambda view, now: open_template(
                view, "default", threshold=THRESHOLD, opened_by="operator", reason="oracle", now=now
            ),
        )

    def close_template(self, tenant: str) -> None:
        self.change(tenant, lambda view, _: close_template(view, "default"))

    def _watch(self, _logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        self.logged.update(self._watched.findall(repr(event)))
        raise structlog.DropEvent
