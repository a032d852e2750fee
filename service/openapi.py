"""The OpenAPI document at /schema/openapi.json and a page of it at /schema that needs no script and no network."""

from __future__ import annotations

import json
from html import escape
from importlib.metadata import version
from typing import Any, Final

import msgspec
from litestar import Request, Response, Router
from litestar.enums import MediaType
from litestar.exceptions import NotFoundException
from litestar.openapi import ResponseSpec
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin, OpenAPIRenderPlugin
from litestar.openapi.spec import Components, SecurityScheme, Tag

from service.openapi_examples import LIMITED, PREVIEW
from service.problems import MEDIA_TYPE, Problem

_STYLE: Final = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
code, pre { font: 14px/1.4 ui-monospace, monospace } pre { background: #8881; padding: .6rem; overflow: auto }
summary { cursor: pointer; padding: .3rem 0 } b { display: inline-block; min-width: 4.5rem }
details { border-top: 1px solid #8884 } details > :not(summary) { margin-left: 1rem }
"""


PROBLEMS: Final = {
    status: ResponseSpec(
        data_container=Problem,
        description=description,
        media_type=MEDIA_TYPE,
        generate_examples=False,
        examples=LIMITED if status == 429 else None,
    )
    for status, description in {
        400: "The body is no JSON, or a parameter is unknown.",
        401: "No credential, or one that does not verify.",
        403: "The role or the tenant of the credential does not fit.",
        404: "Absent, or not visible to the caller: deliberately the same.",
        409: "The present state does not permit it.",
        413: "The body is over the limit.",
        422: "The request is understood and cannot be processed.",
        429: "A limit is reached; Retry-After says when to try again.",
        503: "A dependency is away; nothing was released.",
    }.items()
}
"""Responses that every route behind a credential may give."""

_DOCUMENT: Final = "/v1/documents/{id}"
_PREVIEWED: Final = "/v1/answers"
_STREAMED: Final = ("/v1/answers", "/v1/chat/completions")


class Document(JsonRenderPlugin):
    """The document, as in `addressed`."""

    def render(self, request: Request[Any, Any, Any], openapi_schema: dict[str, Any]) -> bytes:  # noqa: ARG002
        return msgspec.json.encode(addressed(openapi_schema))


class Page(OpenAPIRenderPlugin):
    """One static page: every operation with its parameters, its body's fields and an example."""

    def __init__(self) -> None:
        super().__init__(path="/", media_type=MediaType.HTML)

    def render(self, request: Request[Any, Any, Any], openapi_schema: dict[str, Any]) -> bytes:  # noqa: ARG002
        document = addressed(openapi_schema)
        schemas, info = document.get("components", {}).get("schemas", {}), document["info"]
        operations = "".join(
            _operation(method, path, operation, schemas)
            for path, methods in document["paths"].items()
            for method, operation in methods.items()
            if isinstance(operation, dict)
        )
        return (
            f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(info['title'])}</title>"
            f"<style>{_STYLE}</style><h1>{escape(info['title'])} {escape(info['version'])}</h1>"
            f"<p>{escape(info.get('description', ''))}</p>"
            "<p>The document itself: <a href='/schema/openapi.json'>openapi.json</a></p>"
            f"{operations}</html>"
        ).encode()


def addressed(document: dict[str, Any]) -> dict[str, Any]:
    """The document with what the framework's routes cannot say: the address of access lists, whose /acl stands after
    a path, the streams of answers, and what a preview looks like.
    """
    paths: dict[str, dict[str, Any]] = {}
    for path, methods in document["paths"].items():
        paths[path] = dict(methods)
        if path == _DOCUMENT:
            paths[f"{path}/acl"] = {"patch": paths[path].pop("patch")}
    for path in paths.keys() & _STREAMED:
        operation = paths[path]["post"]
        done = operation["responses"]["200"]
        streamed = done | {"content": done["content"] | {"text/event-stream": {"schema": {"type": "string"}}}}
        paths[path]["post"] = operation | {"responses": operation["responses"] | {"200": streamed}}
    if _PREVIEWED in paths:
        content = paths[_PREVIEWED]["post"]["responses"]["200"]["content"]
        content["application/json"] = content["application/json"] | {"examples": {"dry_run": PREVIEW}}
    return document | {"paths": paths}


def config() -> OpenAPIConfig:
    return OpenAPIConfig(
        title="Strongroom",
        version=version("strongroom"),
        description=(
            "Answers from a tenant's documents, for the caller's own permissions. The tenant comes from the bearer "
            "credential alone. Errors are problem documents (RFC 9457), but those of /v1/chat/completions, which have "
            "OpenAI's form."
        ),
        path="/schema",
        render_plugins=[Page(), Document()],
        openapi_router=Router(
            "/schema", route_handlers=[], include_in_schema=False, after_request=_refuse_other_addresses
        ),
        security=[{"bearer": []}],
        components=Components(
            security_schemes={
                "bearer": SecurityScheme(type="http", scheme="bearer", description="An API key (sr_...) or a JWT.")
            }
        ),
        use_handler_docstrings=True,
        tags=[
            Tag(name="questions", description="Passages and answers, from what the caller may read."),
            Tag(name="documents", description="Documents and their access lists; role ingest."),
            Tag(name="cache", description="Remembered answers; role admin."),
            Tag(name="audit", description="Who saw what; role auditor."),
            Tag(name="health", description="For load balancers; no credential."),
        ],
    )


def _refuse_other_addresses(response: Response[Any]) -> Response[Any]:
    """The framework has a page of its own for addresses under /schema that do not exist."""
    if response.status_code == 404:
        raise NotFoundException
    return response


def _operation(method: str, path: str, operation: dict[str, Any], schemas: dict[str, Any]) -> str:
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    described = body.get("schema", {})
    schema = next(iter(described.get("allOf", [described])))
    parts = [f"<p>{escape(operation.get('description', ''))}</p>"]
    for parameter in operation.get("parameters", []):
        parts.append(f"<li><code>{escape(parameter['name'])}</code> {escape(parameter.get('description') or '')}")
    for name, field in _resolve(schema, schemas).get("properties", {}).items():
        text = field.get("description") or next(filter(None, map(_described, field.get("oneOf", []))), "")
        parts.append(f"<li><code>{escape(name)}</code> {escape(text)}")
    for example in described.get("examples", []):
        parts.append(f"<pre>{escape(json.dumps(example, indent=2, ensure_ascii=False))}</pre>")
    return (
        f"<details><summary><b>{method.upper()}</b> <code>{escape(path)}</code> "
        f"{escape(operation.get('summary', ''))}</summary>{''.join(parts)}</details>"
    )


def _described(schema: dict[str, Any]) -> str:
    return str(schema.get("description", ""))


def _resolve(schema: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = schemas.get(schema.get("$ref", "").rpartition("/")[2], schema)
    return found
