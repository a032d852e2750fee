"""`strongroom cache certificate`, `suspend`, `resume`, `reports`, `confirm`: how many semantic hits are wrong at most,
stopping them, and what askers say of them.
"""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from service.cli.console import DEFAULT, Common, Tenant, audited, iso, note, opened, show_record, show_table
from tenancy.errors import InvalidInput

if TYPE_CHECKING:
    from audit.trail import Trail
    from cache.policy import TemplatePolicy

_COLUMNS = ["template", "ladder", "state", "why", "since", "hits", "n", "k", "upper", "lower", "alpha", "reports"]


def certificate(
    *,
    tenant: Tenant,
    template: Annotated[str | None, Parameter(help="Of this template alone.")] = None,
    common: Common = DEFAULT,
) -> None:
    """The evidence about semantic hits, by template and ladder version: `k` of `n` uniformly drawn hits were wrong.

    `upper` is the most, and `lower` the least, that the true share of wrong hits may be, each at 95 %, looked at at any
    time. Hits and refusals are counted from the newest 200,000 answers in the audit log; more of it is in --json.

    `needs` is what a certificate still takes at the least: so many right labels, of so many further people, about so
    many further stored answers. At 1 % five people have to ask.
    """
    from generation.prompt import Templates
    from generation.templates import resolve
    from service.certificates import report
    from service.wiring import cache_policy

    with opened(common) as control:
        principal = control.authenticator.operator(tenant)
        policy = cache_policy(control.settings)

        def read(_: Trail) -> list[dict[str, Any]]:
            templates = Templates(control.settings.generation.templates)
            with control.tenants.open(principal).reading() as view:
                if template is not None:
                    resolve(view, templates, template)
                rows = report(view, control.logs.of(principal), templates, policy, template=template)
            for row in rows:
                row |= {name: iso(row[name]) for name in ("since", "evidence_since")}
                row |= {name: round(row[name], 5) for name in ("upper", "lower")}
            return rows

        rows = audited(control, principal, "cache.certificate", read)
    if not rows and not common.as_json:
        note(f"no similar question was drawn or served so far; {_at_first(policy.of(template or 'default'))}")
        return
    show_table(common, rows, _COLUMNS)
    if not common.as_json:
        for row in rows:
            if row["needs"] is not None:
                show_record(common, {f"{row['template']} {row['ladder']} needs": _needed(row["needs"])})
            if row["refused_by_reason"] or row["wrong_by_reason"]:
                named = f"{row['template']} {row['ladder']}"
                show_record(common, {f"{named} refused": row["refused_by_reason"]})
                show_record(common, {f"{named} wrong": row["wrong_by_reason"]})


def suspend(
    *,
    tenant: Tenant,
    template: Annotated[str, Parameter(help="The template's name.")] = "default",
    reason: Annotated[str, Parameter(help="Why; stands in the audit.")],
    common: Common = DEFAULT,
) -> None:
    """Serve no semantic hit of a template, under any ladder version, until `resume`; not even where it was opened."""
    from cache.certificate.evidence import suspend as suspended
    from generation.prompt import Templates
    from generation.templates import resolve

    _require_reason(reason)
    with opened(common) as control:
        principal = control.authenticator.operator(tenant)

        def work(trail: Trail) -> None:
            trail.note(detail={"template": template, "why": reason})
            with control.tenants.open(principal).writing() as view:
                resolve(view, Templates(control.settings.generation.templates), template)
                suspended(view, template, time.time())

        audited(control, principal, "cache.suspend", work)
    show_record(common, {"template": template, "state": "suspended"})


def resume(
    *,
    tenant: Tenant,
    template: Annotated[str, Parameter(help="The template's name.")] = "default",
    reason: Annotated[str, Parameter(help="Why; stands in the audit.")],
    common: Common = DEFAULT,
) -> None:
    """End every suspension of a template and its namespaces. Evidence that was suspended begins anew."""
    from cache.certificate.evidence import resume as resumed

    _require_reason(reason)
    with opened(common) as control:
        principal = control.authenticator.operator(tenant)

        def work(trail: Trail) -> int:
            trail.note(detail={"template": template, "why": reason})
            with control.tenants.open(principal).writing() as view:
                return resumed(view, template, time.time())

        ended = audited(control, principal, "cache.resume", work)
    show_record(common, {"template": template, "ended": ended})


def reports(
    *,
    tenant: Tenant,
    template: Annotated[str | None, Parameter(help="Of this template alone.")] = None,
    common: Common = DEFAULT,
) -> None:
    """Semantic hits that their askers called wrong, the newest 1,000, by the id of the answer's request.

    `confirmed` is by the judge (`shadow`) or by an `operator`; reports that nobody confirmed suspend nothing.
    """
    from cache.certificate.reports import reports as told

    with opened(common) as control:
        principal = control.authenticator.operator(tenant)

        def read(_: Trail) -> list[dict[str, Any]]:
            with control.tenants.open(principal).reading() as view:
                return [asdict(one) | {"at": iso(one.at)} for one in told(view, template=template)]

        rows = audited(control, principal, "cache.reports", read)
    show_table(common, rows, ["at", "answer", "template", "ladder", "confirmed"])


def confirm(
    *,
    tenant: Tenant,
    answer: Annotated[str, Parameter(help="The id of the answer's request, as `cache reports` shows it.")],
    reason: Annotated[str, Parameter(help="Why; stands in the audit.")],
    common: Common = DEFAULT,
) -> None:
    """Say that a reported hit was wrong indeed. Enough confirmed ones among the served hits suspend the template."""
    from cache.certificate.reports import confirm as confirmed
    from service.wiring import cache_policy

    _require_reason(reason)
    with opened(common) as control:
        principal = control.authenticator.operator(tenant)

        def work(trail: Trail) -> dict[str, Any]:
            trail.note(detail={"answer": answer[:64], "why": reason})
            with control.tenants.open(principal).writing() as view:
                found, state = confirmed(view, answer, cache_policy(control.settings), time.time())
            return {"answer": found.answer, "template": found.template, "ladder": found.ladder, "state": state}

        record = audited(control, principal, "cache.confirm", work)
    show_record(common, record)


def _at_first(own: TemplatePolicy) -> str:
    """What a template takes that has no evidence yet."""
    from cache.certificate.counts import EMPTY

    needs = EMPTY.needs(own.alpha)
    if own.shadow <= 0 or needs is None:
        return "with `shadow` 0 in its settings nothing ever is certified"
    return f"a certificate takes {_needed(asdict(needs))} at the least"


def _needed(needs: dict[str, int]) -> str:
    askers = f", of at least {needs['askers']} further people" if needs["askers"] else ""
    entries = f", about at least {needs['entries']} further stored answers" if needs["entries"] else ""
    return f"{needs['labels']} right labels{askers}{entries}"


def _require_reason(reason: str) -> None:
    if not reason.strip():
        raise InvalidInput("a reason is needed", item="--reason", remedy="say why; it stands in the audit")
