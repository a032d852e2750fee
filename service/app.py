"""The HTTP application: middleware, routes, problems, in this order and in one place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import structlog
from litestar import Litestar, Request, Response, Router
from litestar.exceptions import HTTPException, ValidationException
from litestar.types import ASGIApp

from service import openai_errors, openapi, problems
from service.auth import Authentication, request_id_of
from service.bodies import StrictRequest
from service.charging import Charging
from service.edge import Edge
from service.engine_check import EngineWatch
from service.routes import (
    answers,
    audit,
    audit_exports,
    audit_lineage,
    audit_proofs,
    audit_reports,
    cache,
    chat,
    documents,
    feedback,
    health,
    limits,
    models,
    retrieve,
    roots,
    templates,
    usage,
)
from service.wiring import Services
from tenancy.errors import InvalidInput, StrongroomError, Unavailable

_log = structlog.get_logger("strongroom.app")


def create_app(services: Services) -> Edge:
    """The ASGI application over `services`; whoever made those closes them."""
    control = services.control
    routers: Sequence[Router] = [
        retrieve.router(services),
        answers.router(services),
        roots.router(services),
        chat.router(services),
        feedback.router(services),
        limits.router(services),
        documents.router(services),
        audit.router(services),
        audit_exports.router(services),
        audit_lineage.router(services),
        audit_proofs.router(services),
        audit_reports.router(services),
        cache.router(services),
        models.router(services),
        templates.router(services),
        usage.router(services),
    ]
    authentication = Authentication(control.authenticator, control.trail, services.workers)

    def authenticated(app: ASGIApp) -> ASGIApp:
        # A function, since the framework copies everything else that a nested router holds.
        return authentication(app)

    charging = Charging(services.path, services.settings.admission.looks_per_minute)

    def charged(app: ASGIApp) -> ASGIApp:
        return charging(app)

    v1 = Router("/v1", route_handlers=routers, middleware=[authenticated, charged])
    return Edge(
        Litestar(
            route_handlers=[
                v1,
                health.router(control, services.workers, EngineWatch(services.engines), services.path),
            ],
            request_class=StrictRequest,
            request_max_body_size=services.settings.server.max_body,
            exception_handlers={Exception: _problem},
            openapi_config=openapi.config(),
            logging_config=None,
            debug=False,
        )
    )


def _problem(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """The problem document of whatever ended a request."""
    request_id = request_id_of(request)
    headers: dict[str, str] = {}
    if isinstance(error, HTTPException) and not isinstance(error, ValidationException):
        problem = problems.problem_of_status(error.status_code, request_id)
        headers = {name: value for name, value in (error.headers or {}).items() if name.lower() == "allow"}
    else:
        found = _of_parameter(error) if isinstance(error, ValidationException) else error
        problem, headers = problems.problem_of(found, request_id), problems.headers_of(found)
    if problem.status >= 500:
        known = isinstance(error, StrongroomError)
        operators = {"reason": error.reason, "item": error.item} if isinstance(error, Unavailable) else {}
        _log.error("failed", code=problem.code, exc_info=None if known else error, **operators)
    path = request.scope["path"]
    if openai_errors.is_for_clients(path):
        return Response(
            msgspec.json.encode(openai_errors.body_of(problem)),
            status_code=openai_errors.status_of(problem),
            headers=headers | openai_errors.retry_headers(problem),
            media_type=openai_errors.MEDIA_TYPE,
        )
    if openai_errors.is_for_both(path):
        problem = openai_errors.for_both(problem)
    return Response(
        problems.encode(problem), status_code=problem.status, headers=headers, media_type=problems.MEDIA_TYPE
    )


def _of_parameter(error: ValidationException) -> StrongroomError:
    """A query or path parameter that is not of its type, or a body that is missing."""
    found = error.extra if isinstance(error.extra, list) else []
    first: dict[str, Any] = found[0] if found else {}
    if first.get("key") == "data":
        return problems.Malformed("the request has no body", item="body", remedy="send a JSON object")
    reason = str(first.get("message", "a parameter is not valid"))
    return InvalidInput(reason[:1].lower() + reason[1:], item=first.get("key"))
