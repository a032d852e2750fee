"""GET /v1/models and one of them: what this tenant may name as `model`, in the shape that OpenAI clients read."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import Request, Router, get
from litestar.params import FromPath

from service.auth import principal_of
from service.openai_errors import PROBLEMS_FOR_BOTH
from service.wiring import Services
from tenancy.domain import permission_domain
from tenancy.errors import NotFound
from tenancy.identity import Principal


class ModelBody(msgspec.Struct, frozen=True):
    id: str
    object: str = "model"
    created: int = 0
    owned_by: str = "strongroom"


class ModelList(msgspec.Struct, frozen=True):
    data: list[ModelBody]
    object: str = "list"


def router(services: Services) -> Router:
    @get("/", summary="Models", responses=PROBLEMS_FOR_BOTH)
    async def list_models(request: Request[Any, Any, Any]) -> ModelList:
        """The models and adapters that this tenant may use, and no others. A suspended tenant is refused. Errors are
        problem documents with OpenAI's form inside.
        """
        return await services.workers.run(_offered, services, principal_of(request))

    @get("/{id:path}", summary="One model", responses=PROBLEMS_FOR_BOTH)
    async def show_model(request: Request[Any, Any, Any], id: FromPath[str]) -> ModelBody:
        """A model or adapter of GET /v1/models. What another tenant has is not told from what does not exist."""
        name = id.removeprefix("/")
        offered = await services.workers.run(_offered, services, principal_of(request))
        for model in offered.data:
            if model.id == name:
                return model
        raise NotFound("there is no such model", item="model", remedy="GET /v1/models shows yours")

    return Router("/models", route_handlers=[list_models, show_model], tags=["questions"])


def _offered(services: Services, principal: Principal) -> ModelList:
    with services.control.tenants.open(principal).reading() as view:
        offers = services.path.routes.offers(permission_domain(principal, view), view)
    return ModelList([ModelBody(offer.id, created=offer.created) for offer in offers])
