"""`strongroom ask`: one question on the same path as the API, for a terminal."""

from __future__ import annotations

import json
import secrets
import sys
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from service.cli.console import DEFAULT, Common, Tenant, clean, note, print_json

if TYPE_CHECKING:
    from retrieval.question import Answer

_TOLD = {
    "sources-separated": "passages with other readers were found as well, and left out of the prompt",
    "instructions-in-source": "a source reads as if it gave the model instructions",
    "links-removed": "the answer held addresses that no cited source has",
    "history-cut": "the oldest turns of the conversation did not fit",
    "personal-data-removed": "the tenant's contract takes such personal data out of answers",
    "uncited": "an answer was made and withheld: no citation in it could be verified",
}


def ask(
    question: Annotated[str, Parameter(help="What to ask.")],
    *,
    tenant: Tenant,
    user: Annotated[str, Parameter(name=["--user", "-u"], help="Who asks: only what this user may read is used.")],
    top_k: Annotated[int | None, Parameter(help="Passages to search for, 1 to 100.")] = None,
    template: Annotated[str | None, Parameter(help="The prompt template.")] = None,
    filter: Annotated[
        str | None, Parameter(help='Only documents with such metadata, as JSON: {"field": "year", "ge": 2020}.')
    ] = None,
    feature: Annotated[str | None, Parameter(help="What asks, by a name of your own, for the usage report.")] = None,
    root: Annotated[str | None, Parameter(help="A root of POST /v1/roots, of this user, to draw on.")] = None,
    cache: Annotated[
        Literal["default", "bypass", "refresh"] | None,
        Parameter(help="Use remembered answers, leave them, or replace them, as far as the template permits."),
    ] = None,
    common: Common = DEFAULT,
) -> None:
    """Ask as a user and read the answer with its citations."""
    import asyncio
    from dataclasses import replace

    import msgspec

    from service.bodies import AnswerRequest, decode_body
    from service.problems import Malformed
    from service.routes.answers import AnswerResponse, question_of, whole_answer
    from service.settings import load_settings
    from service.wiring import build
    from tenancy.errors import InvalidInput

    # The same checks as over HTTP, in the same place.
    try:
        where = None if filter is None else decode_body(filter.encode("utf-8", "surrogatepass"), dict[str, Any])
    except (InvalidInput, Malformed) as error:
        reason = "it is not JSON" if isinstance(error, Malformed) else f"it is no JSON object: {error.reason}"
        form = """write it as --filter '{"field": "language", "eq": "de"}'"""
        raise InvalidInput(reason, item="--filter", remedy=form) from None
    given = {
        "query": question,
        "top_k": top_k,
        "template": template,
        "cache": cache,
        "filter": where,
        "feature": feature,
    }
    body = decode_body(json.dumps(given).encode(), AnswerRequest)

    async def run() -> Answer:
        services = build(load_settings(common.config))
        try:
            principal = services.control.authenticator.operator(tenant, user)
            asked = replace(question_of(body, secrets.token_hex(16)), signed_root=root)
            return await whole_answer(services, principal, asked)
        finally:
            await services.aclose()

    found = asyncio.run(run())
    if common.as_json:
        print_json(msgspec.to_builtins(AnswerResponse.of(found)))
    else:
        _show(found)


def _show(found: Answer) -> None:
    """The answer on standard output, its sources below it; on a terminal with a little colour."""
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=not sys.stdout.isatty())
    if found.rewritten is not None:
        console.print(Text(f"understood as: {clean(found.rewritten)}", style="dim"))
    console.print(Text(clean(found.text)))
    if found.citations:
        console.print()
    for citation in found.citations:
        place = f", {clean(citation.place)}" if citation.place else ""
        console.print(
            Text.assemble(
                (f"[{citation.source}] ", "bold"),
                clean(citation.title or citation.document),
                (f"  {clean(citation.document)} {citation.start}-{citation.end}{place}", "dim"),
            )
        )
        console.print(Text(f"     “{clean(citation.quote)}”", style="dim"))
    cache = found.cache
    served = f"{cache.status} {cache.kind}" if cache.kind else cache.status
    console.print(Text(f"\n{found.model} · cache {served} · audit {found.audit_seq}", style="dim"))
    for warning in found.warnings:
        note(_TOLD.get(warning, warning))
    if cache.certified is not None:
        bounds = "a certificate bounds wrong hits" if cache.certified == "certified" else "nothing bounds wrong hits"
        note(f"a similar question's answer was served, and this is {cache.certified.upper()}: {bounds}")
