"""`strongroom lineage`: did a tenant's data train a model?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from service.cli.console import DEFAULT, Common, audited, clean, iso, opened, print_json, show_table
from tenancy.errors import InvalidInput

if TYPE_CHECKING:
    from audit.trail import Trail

_COLUMNS = ["adapter", "id", "state", "trained on", "version", "licence", "now"]
_MODELS = ["role", "model", "revision", "training"]


def lineage(
    *,
    tenant: Annotated[str | None, Parameter(name=["--tenant", "-t"], help="The tenant's name.")] = None,
    deleted: Annotated[
        str | None, Parameter(help="The id of a deleted tenant, whose record is retained; see `tenant certificate`.")
    ] = None,
    document: Annotated[str | None, Parameter(help="Ask of this document alone.")] = None,
    adapter: Annotated[str | None, Parameter(help="Ask of this adapter alone, by name or id.")] = None,
    common: Common = DEFAULT,
) -> None:
    """Did the tenant's data train a model: `yes`, `no` or `unknown`, with every adapter that the tenant ever had.

    Also of adapters that were revoked, replaced or deleted. The answer is as good as the declarations that came with
    the adapters (`adapter add --training`); one that declares nothing makes it `unknown`.
    """
    from service.lineage import asked_for, lineage_of_deleted
    from service.lineage import lineage as asked

    if (tenant is None) == (deleted is None):
        raise InvalidInput("name one tenant", item="lineage", remedy="give --tenant NAME or --deleted ID")
    with opened(common) as control:
        principal = None if tenant is None else control.authenticator.operator(tenant)

        def work(trail: Trail) -> dict[str, Any]:
            trail.note(detail=asked_for(document, adapter))
            if principal is None:
                trail.note(detail={"tenant": deleted})
                found = lineage_of_deleted(control, deleted or "", document=document, adapter=adapter)
            else:
                found = asked(control, principal, document=document, adapter=adapter)
            trail.note(detail={"trained": found["trained"], "adapters": len(found["adapters"])})
            return found

        found = audited(control, principal, "lineage.query", work)
    if common.as_json:
        print_json(found)
        return
    rows = list(_rows(found))
    if rows:
        show_table(common, rows, _COLUMNS)
    if found["models"]:
        show_table(common, found["models"], _MODELS)
    for one in found["refused"]:
        print(clean(f"refused: another tenant's adapter named {one['document']} on {iso(one['at'])}"))
    for sentence in found["findings"]:
        print(clean(sentence))
    what = f"the document {document}" if document is not None else "data of this tenant"
    print(clean(f"trained on {what}: {found['trained']}"))
    print(found["scope"])


def _rows(found: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """One row a source; one without a source for an adapter that declares none, or none of what was asked for."""
    for row in found["adapters"]:
        own = {"adapter": row["adapter"], "id": row["id"], "state": row["state"]}
        sources = [source for said in row["declarations"] for source in said["sources"]]
        for source in sources:
            yield own | source | {"trained on": source.get("document") or f"data set {source['dataset']}"}
        if not sources:
            yield own | {"trained on": "nothing of it" if row["declarations"] else "UNDECLARED"}
