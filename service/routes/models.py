"""GET /v1/models: what this tenant may name as `model`, in the shape that OpenAI clients read."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import Request, Router, get

from service.auth import principal_of
from service.openapi import PROBLEMS
from service.wiring import Services


class ModelBody(msgspec.Struct, frozen=True):
    id: str
    object: str = "model"
    created: int = 0
    owned_by: str = "strongroom"


class ModelList(msgspec.Struct, frozen=True):
    data: list[ModelBody]
    object: str = "list"


def router(services: Services) -> Router:
    @get("/", summary="Models", responses=PROBLEMS)
    async def list_models(request: Request[Any, Any, Any]) -> ModelList:
        """The models and adapters that this tenant may use, and no others. A suspended tenant is refused."""
        await services.workers.run(services.control.tenants.open, principal_of(request))
        return ModelList([ModelBody(services.path.generator.identity.model)])

    return Router("/models", route_handlers=[list_models], tags=["questions"])
