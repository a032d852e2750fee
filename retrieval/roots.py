"""The root that a request belongs to: who may use it, what it draws on, and what it used before anybody counted here.

Counters in memory begin with nothing when a server restarts, and those in a store may be lost. A root's budget must not
begin anew with them. So where the counters know of no use of a root, its use is read from the audit log, which groups
requests by root, and told to them first.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final

from sqlalchemy import bindparam, select

from admission.limits import NO_AMOUNTS, Amounts, Draw
from admission.roots import Root, RootRequired, read, require_own_id
from admission.scopes import root_scope
from audit.log import AuditLog
from audit.record import Event, decode
from audit.tables import events
from audit.trail import Trail
from retrieval.question import AnswerPath, Question
from tenancy.errors import InvalidInput
from tenancy.identity import Principal
from tenancy.tenant import TenantHandle

BRANCH: Final = "branch"
"""The detail of an event that names the nodes which its request drew on: it stands there once they granted it."""

_STEP: Final = 500
_RECORDS: Final = (
    select(events.c.seq, events.c.payload)
    .where(events.c.root == bindparam("tree"), events.c.seq > bindparam("after"))
    .order_by(events.c.seq)
    .limit(_STEP)
)


def root_key(tenant: TenantHandle) -> bytes:
    """Signs the tenant's roots. From the key of its audit log, which no rotation of the data key changes."""
    return tenant.audit.purpose("roots")


def root_of(tenant: TenantHandle, principal: Principal, text: str) -> Root:
    """The root of a signed id. Raises `RootRefused`."""
    return read(text, root_key(tenant), principal.tenant_id, principal.user_id, time.time())


def belonging(
    path: AnswerPath, principal: Principal, tenant: TenantHandle, question: Question, trail: Trail
) -> Root | None:
    """The question's root, on record; `None` where it has none and needs none.

    Raises `RootRefused` for one that is not this user's or is over, `RootRequired` where there must be one, and
    `InvalidInput` for a caller's own id that reads like a minted one, or stands beside one.
    """
    require_own_id(question.root)
    if question.signed_root is None:
        # Who stands at the console asks for somebody else, and is in no job.
        missing = tenant.contract.admission.roots or path.settings.roots.missing
        if missing == "refuse" and principal.method != "operator":
            raise RootRequired(
                "a request has to belong to a root",
                item="root",
                remedy="mint one with POST /v1/roots and send it in the header Strongroom-Root",
            )
        return None
    if question.root is not None:
        raise InvalidInput("a request belongs to one root", item="root", remedy="leave out the field, or the header")
    root = root_of(tenant, principal, question.signed_root)
    trail.belongs(root.tree)
    return root


async def draws_of(path: AnswerPath, principal: Principal, root: Root | None, log: AuditLog) -> tuple[Draw, ...]:
    """What a request of `root` draws on, all of it known to the counters."""
    if root is None:
        return ()
    await _recall(path, principal, root, log)
    return root.draws(principal.tenant_id, time.time())


async def _recall(path: AnswerPath, principal: Principal, root: Root, log: AuditLog) -> None:
    counters = path.admission.counters
    unknown = []
    for node in root.nodes:
        use = await counters.use(root_scope(principal.tenant_id, node.id))
        if not (use.life.requests or use.flight.requests):
            unknown.append(node)
    if not unknown:
        return
    used = await path.workers.run(recorded, log, root.tree, [node.id for node in unknown])
    for node in unknown:
        await counters.recall(root_scope(principal.tenant_id, node.id), node.until, used[node.id])


def recorded(log: AuditLog, tree: str, nodes: Iterable[str]) -> dict[str, Amounts]:
    """What requests below each of the `nodes` of a `tree` used, as far as it is on record. Blocks on the log.

    A request counts with its last record. One whose process was killed counts with its intent.
    """
    log.flush()
    last: dict[str, Event] = {}
    after = -1
    while True:
        with log.database.reading() as connection:
            rows = connection.execute(_RECORDS, {"tree": tree, "after": after}).all()
        for event in (decode(row.payload) for row in rows if row.payload):
            if BRANCH in event.detail:
                last[event.request.id] = event
        if len(rows) < _STEP:
            break
        after = rows[-1].seq
    found = dict.fromkeys(nodes, NO_AMOUNTS)
    for event in last.values():
        for node in found.keys() & str(event.detail[BRANCH]).split():
            found[node] += _used(event)
    return found


def _used(event: Event) -> Amounts:
    """What one request was charged: the tokens of its answer, or of its query where it only retrieved."""
    if event.cost is None:
        return Amounts(requests=1)
    charged = "embed" if event.action == "retrieve" else "generate"
    uses = [use for (hop, _), use in zip(event.cost.hops, event.cost.metered, strict=False) if hop == charged]
    tokens = [use.computed if use.served is None else use.served for use in uses]
    return Amounts(1, sum(part[0] for part in tokens), sum(part[1] for part in tokens), event.cost.microunits or 0)
