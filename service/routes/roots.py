"""POST /v1/roots: a signed id that ties the calls of an agent's job into one budget."""

from __future__ import annotations

import time
from typing import Annotated, Any, Final

import msgspec
from litestar import Request, Router, post
from litestar.openapi.spec import Example
from litestar.params import Body

from admission.gate import Estimate
from admission.limits import Draw, Limits
from admission.roots import Root, Terms, minted, signed
from admission.scopes import root_scope
from retrieval.roots import root_key, root_of
from service.auth import principal_of, request_id_of
from service.bodies import RootRequest, SignedRoot
from service.charging import ADMITS
from service.openapi import PROBLEMS
from service.operation import operation
from service.wiring import Services
from tenancy.errors import Forbidden, InvalidInput
from tenancy.identity import Principal, Role
from tenancy.tenant import TenantHandle

_BILL: Final = frozenset({Role.ADMIN, Role.AUDITOR})
"""Who reads what each answer cost."""

EXAMPLES = [
    Example(
        summary="A job of 50 calls, four at a time, within ten minutes",
        value={"calls": 50, "tokens": 200_000, "parallel": 4, "deadline": 600},
    ),
    Example(summary="Anything that its user may use, for an hour", value={}),
]


class RootResponse(msgspec.Struct, frozen=True):
    """`root` goes into the header Strongroom-Root; `id` and the `tree`'s id are those of the audit. The numbers are
    those that hold: a child never has more than its parent. `expires` is UTC epoch seconds.
    """

    root: str
    id: str
    tree: str
    parent: str | None
    calls: int | None
    tokens: int | None
    money: int | None
    parallel: int | None
    expires: float
    request_id: str


def router(services: Services) -> Router:
    settings = services.settings.admission.roots

    @post("/", status_code=200, opt={ADMITS: True}, summary="Mint a root", responses=PROBLEMS)
    async def mint_root(
        request: Request[Any, Any, Any],
        data: Annotated[RootRequest, Body(examples=EXAMPLES)],
        signed_root: SignedRoot = None,
    ) -> RootResponse:
        """A signed id for requests to /v1/answers, /v1/retrieve and /v1/chat/completions of the same user, in the
        header Strongroom-Root. What they use counts against it, beside the limits of the user and the tenant. With a
        `parent`, or with the header, the new root is a child, whose requests draw on all roots above it.
        """
        principal, path, now = principal_of(request), services.path, time.time()
        async with operation(services.control, request, "root.mint", Role.READER, tenant=data.tenant) as trail:
            given = _parent(data.parent, signed_root)
            tenant = await services.workers.run(path.tenants.open, principal)
            if data.money is not None:
                _require_sight_of_bill(principal, tenant)
            parent = None if given is None else root_of(tenant, principal, given)
            root = minted(_terms(data, now, settings.deadline_s, settings.longest_s), parent)
            trail.belongs(root.tree)
            trail.note(detail=_detail(root))
            # Of its user alone, so that no number of roots fills the memory of the counters.
            often = Draw(
                root_scope(principal.tenant_id, f"minted by {principal.user_id}"),
                Limits(requests_per_minute=settings.per_minute),
            )
            admitted = path.admission.admit(
                principal, Estimate(0, 0), tenant.contract, request_id=request_id_of(request), roots=(often,)
            )
            async with admitted:
                await trail.intent()
        text = signed(root, root_key(tenant), principal.tenant_id, principal.user_id)
        terms = root.terms
        return RootResponse(
            text, root.id, root.tree, root.parent,
            terms.calls, terms.tokens, terms.money, terms.parallel, terms.until, request_id_of(request),
        )  # fmt: skip

    return Router("/roots", route_handlers=[mint_root], tags=["questions"])


def _parent(field: str | None, header: str | None) -> str | None:
    if field is not None and header is not None and field != header:
        raise InvalidInput("a root has one parent", item="parent", remedy="leave out the field, or the header")
    return header if field is None else field


def _require_sight_of_bill(principal: Principal, tenant: TenantHandle) -> None:
    """Where computed tokens are charged, a budget that its asker chose to the microunit tells what an answer cost, and
    so whether an engine had the prompt in its memory: only who may read that anyway chooses one. Raises `Forbidden`.
    """
    if tenant.contract.usage.tokens == "actual" and not _BILL & principal.roles:
        raise Forbidden(
            "the tenant pays for computed tokens, so that a budget of money needs the role admin or auditor as well",
            item="money",
            remedy="bound `tokens`, or draw from a root of yours that was minted with such a key",
        )


def _terms(data: RootRequest, now: float, usual: float, longest: float) -> Terms:
    """Raises `InvalidInput` for an end beyond the deployment's longest."""
    if data.deadline is not None and data.deadline > longest:
        raise InvalidInput(f"a root lives {longest:g} s at most", item="deadline", remedy="mint another one later")
    seconds = min(usual, longest) if data.deadline is None else data.deadline
    # Whole milliseconds, so that every decoder reads the number that was signed.
    until = round(now + seconds, 3)
    return Terms(calls=data.calls, tokens=data.tokens, money=data.money, parallel=data.parallel, until=until)


def _detail(root: Root) -> dict[str, str | int]:
    given = msgspec.structs.asdict(root.terms) | {"until": round(root.terms.until), "minted": root.id}
    return {name: value for name, value in given.items() if value is not None}
