"""Deleting a user of a tenant: credentials, what the cache remembers of the questions, hashes of the person in the
evidence about hits, and the directory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from audit.erasure import require_free
from audit.trail import Trail
from cache.certificate.reports import forget_asker
from cache.stores.port import CacheStore
from cache.stores.selector import Selector
from evaluation.store import forget_cases
from tenancy import directory
from tenancy.control import Tenants
from tenancy.errors import NotFound
from tenancy.identity import Principal


@dataclass(frozen=True, slots=True)
class Deleted:
    """How many keys were revoked, and how many remembered answers and questions of saved sets went with the user."""

    keys: int
    entries: int
    cases: int


def delete_user(
    tenants: Tenants,
    store: CacheStore,
    principal: Principal,
    name: str,
    trail: Trail,
    *,
    meanwhile: Callable[[], None] | None = None,
) -> Deleted:
    """Delete `name` from the tenant of `principal`; a later user of the same name inherits nothing.

    The cache is emptied of the user's questions first: where it is out of reach nothing has changed yet and
    `Unavailable` is raised. Behind the deletion it is emptied again, of what was stored in between. What even that
    misses, as in a crash, is never served (`cache.rungs.freshness` looks for the asker) and expires. `meanwhile` runs
    before the directory forgets the name: where it fails, the user is found again.

    Raises `NotFound`, and `Held` where a legal hold keeps what the user was shown and asked.
    """
    handle = tenants.open(principal)
    with handle.reading() as view:
        user_id = directory.find_user(view, name)
    if user_id is None:
        raise NotFound("no such user in this tenant", item=name[:200])
    trail.note(detail={"user": trail.log.subjects.ref(user_id)})
    require_free(trail.log, trail.log.subjects.ref(user_id))
    entries = store.invalidate(handle, Selector(user=user_id))
    revoked = [key.id for key in tenants.list_keys(handle.name) if key.user_id == user_id and key.revoked is None]
    for key_id in revoked:
        tenants.revoke_key(handle.name, key_id)
    if meanwhile is not None:
        meanwhile()
    with handle.writing() as view:
        directory.delete_user(view, name)
        forget_asker(view, user_id)
        cases = forget_cases(view, name)
    handle.erase_traces()
    entries += store.invalidate(handle, Selector(user=user_id))
    trail.note(detail={"user": trail.log.subjects.ref(user_id), "keys": len(revoked), "entries": entries})
    return Deleted(len(revoked), entries, cases)
