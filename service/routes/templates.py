"""GET /v1/templates: what this tenant's questions may name as `template`."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import Request, Router, get

from generation.templates import offered
from service.auth import principal_of
from service.openapi import PROBLEMS
from service.operation import operation
from service.wiring import Services
from tenancy.identity import Principal, Role


class TemplateBody(msgspec.Struct, frozen=True):
    """`revision` changes with every change of the text, and stands in the audit; `default` is the one of questions that
    name none; `own` where it is the tenant's and not the deployment's.
    """

    name: str
    revision: str
    own: bool
    default: bool


class TemplateList(msgspec.Struct, frozen=True):
    templates: list[TemplateBody]


def router(services: Services) -> Router:
    @get("/", summary="Prompt templates", responses=PROBLEMS)
    async def list_templates(request: Request[Any, Any, Any]) -> TemplateList:
        """Names and revisions of the templates that the caller's questions may name, without their text."""
        async with operation(services.control, request, "template.list", Role.READER) as trail:
            await trail.intent()
            return await services.workers.run(_offered, services, principal_of(request))

    return Router("/templates", route_handlers=[list_templates], tags=["questions"])


def _offered(services: Services, principal: Principal) -> TemplateList:
    with services.control.tenants.open(principal).reading() as view:
        found = offered(view, services.path.templates)
    return TemplateList([TemplateBody(one.template.name, one.template.revision, one.own, one.default) for one in found])
