"""Liveness and readiness, without a credential and without a word about any tenant."""

from __future__ import annotations

import msgspec
from litestar import Router, get

from service.control import Control
from tenancy.workers import Workers


class Health(msgspec.Struct, frozen=True):
    status: str


def router(control: Control, workers: Workers) -> Router:
    @get("/live", summary="The process runs")
    async def live() -> Health:
        """Answers as long as the process does."""
        return Health("ok")

    @get("/ready", summary="Questions can be answered")
    async def ready() -> Health:
        """Reads the control plane and the system's audit log; 503 where one is out of reach."""
        await workers.run(control.tenants.ping)
        await workers.run(lambda: control.logs.of(None).head())
        return Health("ok")

    return Router("/healthz", route_handlers=[live, ready], tags=["health"], security=[{}])
