"""Access while a question is answered: looked at again before the first byte, every few seconds and at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NoReturn

from retrieval.context import Context
from retrieval.question import Revoked
from tenancy.domain import permission_domain, readable_documents
from tenancy.pauses import reached

if TYPE_CHECKING:
    from retrieval.steps import Asking


async def require_adapter(asking: Asking) -> None:
    """Raise `Revoked` unless the asker may still be answered with the adapter of the route."""

    def held() -> bool:
        with asking.path.tenants.open(asking.principal).reading() as view:
            domain = permission_domain(asking.principal, view)
            return asking.path.routes.holds(domain, view, asking.plan.route)

    if asking.plan.route.adapter is not None and not await asking.path.workers.run(held):
        _refuse_revoked(asking, "adapter")


async def require_readable(asking: Asking, context: Context) -> None:
    """Raise `Revoked` unless every source is still there, in the same version, and readable, and the adapter of the
    route, if any, still the asker's to use.
    """

    def readable() -> tuple[bool, bool]:
        reached("recheck")
        # Suspension and deletion end a stream as well: opening the tenant raises.
        tenant = asking.path.tenants.open(asking.principal)
        versions = {source.passage.document_id: source.passage.version for source in context.sources}
        with tenant.reading() as view:
            domain = permission_domain(asking.principal, view)
            unchanged = readable_documents(domain, view, versions) == versions
            held = asking.path.routes.holds(domain, view, asking.plan.route)
        reached("rechecked")
        return unchanged, held

    unchanged, held = await asking.path.workers.run(readable)
    if not unchanged or not held:
        _refuse_revoked(asking, "adapter" if unchanged else "source")


def _refuse_revoked(asking: Asking, what: Literal["source", "adapter"]) -> NoReturn:
    asking.trail.conclude("revoked", what)
    which = "a source" if what == "source" else "the adapter"
    raise Revoked(f"access to {which} changed while the answer was being made", remedy="ask again")
