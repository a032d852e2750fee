"""`strongroom cache`: what is remembered, why it serves or not, removing it, opening a template for semantic hits."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from cyclopts import App, Parameter

from service.cli.console import (
    DEFAULT,
    Common,
    Tenant,
    audited,
    clean,
    iso,
    note,
    opened,
    show_record,
    show_table,
)
from tenancy.errors import InvalidInput

if TYPE_CHECKING:
    from audit.trail import Trail
    from cache.openings import Opening
    from cache.stores.port import CacheStore
    from service.control import Control
    from tenancy.tenant import ReadView

app = App(name="cache", help="Show and invalidate remembered answers; open a template for semantic hits.")

app.command(
    "service.cli.explain:explain", name="explain", help="Show what the cache would do with a question, and why."
)
app.command(
    "service.cli.certificate:certificate", name="certificate", help="Show how many semantic hits are wrong, at most."
)
app.command("service.cli.certificate:suspend", name="suspend", help="Serve no semantic hit of a template.")
app.command("service.cli.certificate:resume", name="resume", help="End the suspensions of a template.")
app.command("service.cli.certificate:reports", name="reports", help="Show semantic hits that were called wrong.")
app.command("service.cli.certificate:confirm", name="confirm", help="Confirm that a reported hit was wrong.")

Template = Annotated[str, Parameter(help="The template's name.")]


@app.command
def stats(
    *,
    tenant: Tenant,
    names: Annotated[bool, Parameter(negative=(), help="Name the users of findings; recorded in the audit.")] = False,
    common: Common = DEFAULT,
) -> None:
    """Entries, bytes and quota, templates that are open for semantic hits, and users per permission domain.

    Only users of one permission domain share answers. The findings say how many stand alone, and how many of those
    only because of how access lists are expressed.
    """
    from cache.openings import openings
    from service.cache_check import shown
    from service.sharing import lines, report

    with opened(common) as control:
        principal = control.authenticator.operator(tenant)
        handle = control.tenants.open(principal)

        def read(trail: Trail) -> dict[str, Any]:
            trail.note(detail={"names": names})
            store = _store(control)
            found: dict[str, Any] = msgspec.to_builtins(store.stats(handle))
            found["store"] = shown(store)
            with handle.reading() as view:
                found["open_templates"] = [_opening(opening) for opening in openings(view)]
            found["sharing"] = report(handle, store, control.logs.of(principal), named=names)
            return found

        found = audited(control, principal, "cache.stats", read)
    if common.as_json:
        show_record(common, found)
        return
    shared = found.pop("sharing")
    show_record(common, found | lines(shared))
    print("\n".join(clean(finding) for finding in shared["findings"]))


@app.command
def inspect(
    *,
    tenant: Tenant,
    limit: int = 50,
    offset: int = 0,
    questions: Annotated[bool, Parameter(negative=(), help="Show what was asked; recorded in the audit.")] = False,
    common: Common = DEFAULT,
) -> None:
    """Entries, newest first.

    Parameters
    ----------
    limit: int
        At most so many, 1 to 1000.
    offset: int
        Leave out so many first.
    """
    with opened(common) as control:
        principal = control.authenticator.operator(tenant)

        def read(trail: Trail) -> list[dict[str, Any]]:
            trail.note(detail={"questions": questions})
            entries = _store(control).inspect(control.tenants.open(principal), limit=limit, offset=offset)
            return [
                {
                    "id": entry.id, "template": entry.template, "created": iso(entry.created),
                    "expires": iso(entry.expires), "used": iso(entry.used), "bytes": entry.bytes,
                    "documents": len(entry.dependencies), "origin_seq": entry.origin_seq,
                }
                | ({"question": clean(entry.question)} if questions else {})
                for entry in entries
            ]  # fmt: skip

        rows = audited(control, principal, "cache.inspect", read)
    columns = ["id", "template", "created", "expires", "bytes", "documents", "origin_seq"]
    show_table(common, rows, [*columns, "question"] if questions else columns)


@app.command
def invalidate(
    *,
    tenant: Tenant,
    document: Annotated[str | None, Parameter(help="Answers that rest on this document.")] = None,
    entry: Annotated[str | None, Parameter(help="This entry.")] = None,
    user: Annotated[str | None, Parameter(help="Answers that this user's questions made.")] = None,
    template: Annotated[str | None, Parameter(help="Answers of this template.")] = None,
    older_than: Annotated[float | None, Parameter(help="Answers older than so many seconds.")] = None,
    everything: Annotated[bool, Parameter(name="--all", negative=(), help="Every entry of the tenant.")] = False,
    common: Common = DEFAULT,
) -> None:
    """Remove remembered answers. All conditions must hold; none at all is an error, not everything."""
    from service.selection import Selection
    from service.selection import invalidate as remove

    selection = Selection(document, entry, user, template, older_than, everything)
    with opened(common) as control:
        principal = control.authenticator.operator(tenant)
        removed = audited(
            control,
            principal,
            "cache.invalidate",
            lambda trail: remove(_store(control), control.tenants.open(principal), selection, trail),
        )
    show_record(common, {"removed": removed})


@app.command
def repair(*, tenant: Tenant, common: Common = DEFAULT) -> None:
    """Remove what expired or lacks its other half, and count anew. No hit depends on it."""
    with opened(common) as control:
        principal = control.authenticator.operator(tenant)
        removed = audited(
            control, principal, "cache.repair", lambda _: _store(control).repair(control.tenants.open(principal))
        )
    show_record(common, {"removed": removed})


@app.command(name="open")
def open_for_hits(
    *,
    tenant: Tenant,
    template: Template = "default",
    threshold: Annotated[float, Parameter(help="Least cosine similarity to serve, 0.5 to 1.")],
    reason: Annotated[str, Parameter(help="Why; stands in the audit.")],
    uncertified: Annotated[bool, Parameter(negative=(), help="Required: nothing bounds wrong hits.")] = False,
    common: Common = DEFAULT,
) -> None:
    """Serve semantic hits of a template on your own word: no bound on wrong hits is certified.

    Every such answer, screen and audit event says `uncertified`.
    """
    from cache.openings import open_template

    if not uncertified:
        raise InvalidInput("this template has no certificate", item=template, remedy="open it with --uncertified")
    with opened(common) as control:
        principal = control.authenticator.operator(tenant)

        def work(trail: Trail) -> Opening:
            trail.note(
                detail={"template": template, "threshold": str(threshold), "why": reason, "state": "uncertified"}
            )
            with control.tenants.open(principal).writing() as view:
                _require_template(control, view, template)
                return open_template(
                    view, template, threshold=threshold, opened_by=principal.user, reason=reason, now=time.time()
                )

        opening = audited(control, principal, "cache.open", work)
    note(f"semantic hits of template {template} are UNCERTIFIED: nothing bounds how many are wrong")
    show_record(common, _opening(opening))


@app.command
def close(*, tenant: Tenant, template: Template = "default", common: Common = DEFAULT) -> None:
    """Serve only exact hits of a template again, from the next question on."""
    from cache.openings import close_template

    with opened(common) as control:
        principal = control.authenticator.operator(tenant)

        def work(trail: Trail) -> None:
            trail.note(detail={"template": template})
            with control.tenants.open(principal).writing() as view:
                close_template(view, template)

        audited(control, principal, "cache.close", work)
    show_record(common, {"template": template, "open": False})


def _store(control: Control) -> CacheStore:
    from service.wiring import cache_store

    return cache_store(control.settings, patient=True)


def _require_template(control: Control, view: ReadView, template: str) -> None:
    from generation.prompt import Templates
    from generation.templates import offered

    names = [one.template.name for one in offered(view, Templates(control.settings.generation.templates))]
    if template not in names:
        raise InvalidInput(
            "there is no such template", item=template, remedy=f"the tenant's questions may name {', '.join(names)}"
        )


def _opening(opening: Opening) -> dict[str, Any]:
    return {
        "template": opening.template,
        "threshold": opening.threshold,
        "state": "uncertified",
        "opened_by": opening.opened_by,
        "opened": iso(opening.opened),
        "reason": opening.reason,
    }
