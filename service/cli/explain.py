"""`strongroom cache explain`: what the cache would do with a question of a user, and why, without doing it."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from cyclopts import Parameter

from service.cli.console import DEFAULT, Common, Tenant, audited, blocking, clean, print_json, show_table

if TYPE_CHECKING:
    from audit.trail import Trail

_KEPT: Final = {
    "shared": "are shared in the domain",
    "exact": "are shared in the domain, for the same words alone",
    "private": "are kept for their asker alone",
    "none": "are not kept",
}


def explain(
    question: Annotated[str, Parameter(help="What would be asked.")],
    *,
    tenant: Tenant,
    user: Annotated[str, Parameter(name=["--user", "-u"], help="Who would ask.")],
    template: Annotated[str | None, Parameter(help="The prompt template.")] = None,
    top_k: Annotated[int | None, Parameter(help="Passages to search for, 1 to 100.")] = None,
    cache: Annotated[
        Literal["default", "bypass", "refresh"] | None, Parameter(help="The request's cache mode.")
    ] = None,
    questions: Annotated[
        bool, Parameter(negative=(), help="Show what the candidates were asked; recorded in the audit.")
    ] = False,
    common: Common = DEFAULT,
) -> None:
    """Show every rung of the cache's ladder for a question, and what would have happened.

    Nothing is served, stored, touched or counted as evidence; that it was asked is in the audit. A changed top_k or
    template is another namespace, as it is for a question.
    """
    import json

    from audit.record import Policy
    from retrieval.explain import explain as explained_by
    from service.bodies import AnswerRequest, decode_body
    from service.charging import one_request
    from service.explanation import report, with_questions
    from service.routes.answers import question_of
    from service.settings import load_settings
    from service.wiring import build

    given = {"query": question, "top_k": top_k, "template": template, "cache": cache}
    asking = question_of(decode_body(json.dumps(given).encode(), AnswerRequest), secrets.token_hex(16))
    services = build(load_settings(common.config))
    try:
        principal = services.control.authenticator.operator(tenant, user)

        def work(trail: Trail) -> dict[str, Any]:
            explained = explained_by(services.path, principal, asking)
            found = report(explained, services.path.ladder)
            if questions:
                with_questions(found, explained, services.path.cache)
            trail.note(
                question=asking.query,
                policy=Policy(domain=found["domain"], template=explained.plan.template.revision),
                detail={"would": found["would"], "why": found["reason"], "questions": questions},
            )
            return found

        found = audited(
            services.control, principal, "cache.explain", work, first=lambda: one_request(services.path, principal)
        )
    finally:
        blocking(services.aclose())
    if common.as_json:
        print_json(found)
    else:
        _show(common, found)


def _show(common: Common, found: dict[str, Any]) -> None:
    scope, standing = found["scope"], found["standing"]
    print(f"scope: {found['domain']}, {scope['labels']} labels of access lists, groups {_list(scope['groups'])}")
    print(
        f"  {scope['readable']} of {scope['documents']} documents readable, {scope['allowed']} allowed before denials"
    )
    if scope["empty"]:
        print(f"  EMPTY: {clean(scope['empty'])}")
    print(f"namespace: {found['namespace']} (template {clean(found['template'])}, answers {_KEPT[found['reach']]})")
    print(f"question: {found['tokens']} tokens of {found['window']} that the embedder sees")
    print("\nrungs")
    show_table(common, [_row(step) for step in found["steps"]], ["kind", "rung", "verdict", "reason", "value"])
    for candidate in found["candidates"]:
        similarity = candidate["similarity"]
        print(f"\ncandidate {candidate['entry']} ({candidate['kind']}, similarity {similarity})")
        if candidate.get("question") is not None:
            print(f"  asked: {clean(candidate['question'])}")
        show_table(common, [_row(rung) for rung in candidate["rungs"]], ["rung", "verdict", "reason", "value", "near"])
    if standing is not None:
        opened = f", opened by {clean(standing['opened_by'])}" if standing["opened_by"] else ""
        print(
            f"\nbound: {standing['state']}{opened}: {standing['k']} wrong of {standing['n']} drawn and judged, at most "
            f"{standing['upper']:.2%} wrong against a target of {standing['alpha']:.2%} (ladder {standing['ladder']}); "
            f"a hit is compared with a fresh answer with probability {standing['drawn']:g}"
        )
    reason = f": {found['reason']}" if found["reason"] else f" of {found['entry']}"
    print(f"\nwould have been: {found['would']}{reason}")


def _row(verdict: dict[str, Any]) -> dict[str, Any]:
    return verdict | {"near": ", ".join(verdict["near"]) or None}


def _list(names: list[str] | tuple[str, ...]) -> str:
    return clean(", ".join(names)) or "none"
