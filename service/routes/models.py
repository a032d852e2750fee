"""GET /v1/models: what this tenant may name as `model`, in the shape that OpenAI clients read."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import Request, Router, get

from service.auth import principal_of
from service.openai_errors import PROBLEMS_FOR_BOTH
from service.wiring import Services
from tenancy.domain import permission_domain
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

    return Router("/models", route_handlers=[list_models], tags=["questions"])


def _offered(services: Services, principal: Principal) -> ModelList:
    with services.control.tenants.open(principal).reading() as view:
        offers = services.path.routes.offers(permission_domain(principal, view), view)
    return ModelList([ModelBody(offer.id, created=offer.created) for offer in offers])
