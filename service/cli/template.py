"""`strongroom template`: a tenant's own prompt templates, in versions. A change holds from the next question on."""

from __future__ import annotations

import secrets
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from service.cli.console import (
    DEFAULT,
    Common,
    Tenant,
    audited,
    blocking,
    clean,
    iso,
    note,
    opened,
    print_json,
    show_record,
    show_table,
)
from tenancy.errors import InvalidInput

if TYPE_CHECKING:
    from audit.trail import Trail
    from generation.prompt import Templates
    from generation.templates import Version
    from retrieval.preview import Preview
    from service.control import Control

app = App(name="template", help="Add, list, show, preview and withdraw a tenant's prompt templates.")

Name = Annotated[str, Parameter(help="The template's name.")]
File = Annotated[Path, Parameter(help="The text of the instructions; - reads standard input.")]
Number = Annotated[int | None, Parameter(help="A version by its number.")]

_COLUMNS = ["name", "number", "revision", "state", "created", "characters"]


@app.command
def add(name: Name, file: File, *, tenant: Tenant, common: Common = DEFAULT) -> None:
    """Add a version of a template, which holds at once. The text that holds already is not added again."""
    from generation import templates

    text = _read(file)
    with opened(common) as control:
        principal = control.authenticator.operator(tenant)

        def work(trail: Trail) -> Version:
            trail.note(detail={"template": name[:100]})
            with control.tenants.open(principal).writing() as view:
                added = templates.add(view, name, text, time.time())
            trail.note(detail={"number": added.number, "revision": added.revision})
            return added

        added = audited(control, principal, "template.add", work)
    show_record(common, {"name": added.name, "number": added.number, "revision": added.revision})


@app.command(name="list")
def list_templates(*, tenant: Tenant, common: Common = DEFAULT) -> None:
    """Every version of the tenant's own templates, and the deployment's, which hold where the tenant has none."""
    from generation import templates

    with opened(common) as control:
        principal = control.authenticator.operator(tenant)
        deployment = _deployment(control)

        def read(_: Trail) -> list[dict[str, Any]]:
            with control.tenants.open(principal).reading() as view:
                own = templates.versions(view)
            holding = {one.name: one.number for one in own if one.withdrawn is None}
            rows = [_row(one, holds=holding.get(one.name) == one.number) for one in own]
            for name in deployment.names():
                template = deployment.get(name)
                rows.append({
                    "name": name, "number": None, "revision": template.revision, "created": None, "withdrawn": None,
                    "state": "hidden" if name in holding else "deployment", "characters": len(template.system),
                })  # fmt: skip
            return rows

        rows = audited(control, principal, "template.list", read)
    show_table(common, rows, _COLUMNS)


@app.command
def show(name: Name, *, tenant: Tenant, number: Number = None, common: Common = DEFAULT) -> None:
    """The text of a template: the version that holds, or one by its number."""
    from generation import templates

    with opened(common) as control:
        principal = control.authenticator.operator(tenant)

        def read(trail: Trail) -> dict[str, Any]:
            trail.note(detail={"template": name[:100], "number": number})
            with control.tenants.open(principal).reading() as view:
                if number is None and not any(one.withdrawn is None for one in templates.versions(view, name)):
                    template = templates.resolve(view, _deployment(control), name)
                    return {"name": name, "number": None, "revision": template.revision, "system": template.system}
                found = templates.version(view, name, number)
            return {
                "name": name, "number": found.number, "revision": found.revision, "created": iso(found.created),
                "withdrawn": iso(found.withdrawn), "system": found.system,
            }  # fmt: skip

        found = audited(control, principal, "template.show", read)
    if common.as_json:
        print_json(found)
    else:
        print(clean(found["system"]))


@app.command
def withdraw(
    name: Name,
    *,
    tenant: Tenant,
    number: Annotated[int | None, Parameter(help="This version alone: the one before it holds again.")] = None,
    common: Common = DEFAULT,
) -> None:
    """Withdraw a template, or one version of it. Where none is left, the deployment's of this name holds, if any."""
    from generation import templates

    with opened(common) as control:
        principal = control.authenticator.operator(tenant)

        def work(trail: Trail) -> tuple[int, ...]:
            trail.note(detail={"template": name[:100], "number": number})
            with control.tenants.open(principal).writing() as view:
                return templates.withdraw(view, _deployment(control), name, number, time.time())

        gone = audited(control, principal, "template.withdraw", work)
    show_record(common, {"name": name, "withdrawn": list(gone)})


@app.command
def preview(
    question: Annotated[str, Parameter(help="What would be asked.")],
    *,
    tenant: Tenant,
    user: Annotated[str, Parameter(name=["--user", "-u"], help="Who would ask: only what this user may read.")],
    template: Annotated[str | None, Parameter(help="The template; without one, the contract's.")] = None,
    file: Annotated[
        Path | None, Parameter(help="This text in its place, before it is added; - is standard input.")
    ] = None,
    top_k: Annotated[int | None, Parameter(help="Passages to search for, 1 to 100.")] = None,
    common: Common = DEFAULT,
) -> None:
    """Show the whole prompt that a user's question would make now. No model is asked; the audit says who looked."""
    import json

    from generation.templates import checked
    from retrieval.preview import preview as previewed
    from service.bodies import AnswerRequest, decode_body
    from service.charging import one_request
    from service.routes.answers import question_of
    from service.settings import load_settings
    from service.wiring import build

    system = None if file is None else checked(template or "draft", _read(file))
    given = {"query": question, "top_k": top_k, "template": template}
    asking = question_of(decode_body(json.dumps(given).encode(), AnswerRequest), secrets.token_hex(16))
    services = build(load_settings(common.config))
    try:
        principal = services.control.authenticator.operator(tenant, user)

        def work(trail: Trail) -> Preview:
            trail.note(question=asking.query, detail={"draft": system is not None})
            found = previewed(services.path, principal, asking, system)
            _record(trail, found)
            return found

        found = audited(
            services.control, principal, "template.preview", work, first=lambda: one_request(services.path, principal)
        )
    finally:
        blocking(services.aclose())
    _show_preview(common, found)


def _record(trail: Trail, found: Preview) -> None:
    from audit.record import Policy, Resource

    domain = found.found.domain
    trail.note(
        policy=Policy(
            domain=domain.fingerprint,
            acl_epoch=domain.epochs.acl,
            corpus_epoch=domain.epochs.corpus,
            template=found.plan.template.revision,
        ),
        resources=[
            Resource(
                document=source.passage.document,
                version=source.passage.version,
                chunk=source.passage.chunk,
                stage="in_prompt",
            )
            for source in found.gathered.context.sources
        ],
    )


def _show_preview(common: Common, found: Preview) -> None:
    plan, gathered = found.plan, found.gathered
    shown = {
        "template": plan.template.name,
        "revision": plan.template.revision,
        "model": plan.route.identity.model,
        "tokens": found.tokens,
        "answer_tokens": plan.room.answer,
        "context_length": plan.route.context_length,
        "asks_model": found.asks_model,
        "left_out": gathered.left_out,
        "warnings": list(gathered.warnings),
        "messages": [{"role": message.role, "content": message.content} for message in found.prompt.messages],
    }
    if common.as_json:
        print_json(shown)
        return
    for message in found.prompt.messages:
        print(f"--- {message.role}\n{clean(message.content)}")
    length = f" of {plan.route.context_length}" if plan.route.context_length else ""
    note(
        f"{found.tokens} tokens, {plan.room.answer} for the answer{length}; template revision {plan.template.revision}"
    )
    if not found.asks_model:
        note("the evidence is too weak: the service would abstain and ask no model")
    if gathered.left_out:
        note(f"{gathered.left_out} passages with other readers were left out (generation.mixing)")
    if gathered.instructed:
        note(f"{len(gathered.instructed)} documents hold what reads like instructions to the model")


def _row(one: Version, *, holds: bool) -> dict[str, Any]:
    return {
        "name": one.name,
        "number": one.number,
        "revision": one.revision,
        "state": "holds" if holds else "withdrawn" if one.withdrawn is not None else "replaced",
        "created": iso(one.created),
        "withdrawn": iso(one.withdrawn),
        "characters": len(one.system),
    }


def _deployment(control: Control) -> Templates:
    from generation.prompt import Templates

    return Templates(control.settings.generation.templates)


def _read(file: Path) -> str:
    try:
        data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
        return data.decode("utf-8")
    except OSError as error:
        raise InvalidInput("the file cannot be read", item=str(file), remedy=str(error.strerror)) from None
    except UnicodeDecodeError:
        raise InvalidInput("the file is not UTF-8", item=str(file), remedy="save it as UTF-8") from None
