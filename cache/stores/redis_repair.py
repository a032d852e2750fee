"""Putting a tenant's keys at Redis right again, and removing all of them. Steps of a bounded length each, so that no
other tenant waits for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from cache.stores import redis_scripts as scripts
from cache.stores.redis_keys import prefix
from cache.stores.redis_link import Link
from tenancy.tenant import TenantHandle

MARK_S: Final = 60
# The kind of every key by its name behind the prefix: sorted set, set, vector set, or an entry.
_KINDS: Final = {"lru": "z", "exp": "z", "new": "z", "d": "s", "u": "s", "t": "s", "v": "v", "e": "e"}


def repair(link: Link, tenant: TenantHandle) -> int:
    """Remove what lacks its other half, complete the indexes and count anew; returns how many things were removed.

    What a lookup must not trip over is gone without it: this is for sizes and memory.
    """
    ours = prefix(tenant.tenant_id)
    gone = 0
    known = link.call(lambda client: list(client.hscan_iter(ours + "meta", count=scripts.STEP, no_values=True)))
    for members in scripts.steps(known):
        gone += int(link.script(scripts.CHECK, ours, *members))
    for key in list(keys_of(link, tenant.tenant_id)):
        name = key.decode().removeprefix(ours)
        kind = _KINDS.get(name.partition(":")[0])
        if kind is None:
            continue
        for members in scripts.steps(_members(link, key, kind)):
            gone += int(link.script(scripts.PRUNE, ours, name, kind, *members))
    link.script(scripts.RECOUNT, ours)
    return gone


def purge(link: Link, tenant_id: str) -> int:
    """Remove every key of the tenant, whatever is in it; returns how many entries there were.

    What stays for `MARK_S` seconds is a mark, so that a write begun before comes to nothing.
    """
    link.script(scripts.DELETED, prefix(tenant_id), MARK_S)
    entries, mark = f"{prefix(tenant_id)}e:".encode(), f"{prefix(tenant_id)}state".encode()
    removed = 0
    for keys in scripts.steps(key for key in keys_of(link, tenant_id) if key != mark):
        removed += sum(key.startswith(entries) for key in keys)
        link.call(_unlink(keys), write=True)
    return removed


def keys_of(link: Link, tenant_id: str) -> Iterator[bytes]:
    """Every key of the tenant. Walks over the keys of all tenants, a thousand at a time."""
    cursor, pattern = 0, prefix(tenant_id) + "*"
    while True:
        cursor, keys = link.call(_scan(cursor, pattern))
        yield from keys
        if cursor == 0:
            return


def _unlink(keys: Sequence[bytes]) -> Callable[[Any], Any]:
    return lambda client: client.unlink(*keys)


def _scan(cursor: int, pattern: str) -> Callable[[Any], tuple[int, list[bytes]]]:
    return lambda client: client.scan(cursor, match=pattern, count=1_000)


def _members(link: Link, key: bytes, kind: str) -> Iterable[bytes]:
    def read(client: Any) -> Iterable[bytes]:
        if kind == "z":
            return list(client.zrange(key, 0, -1))
        if kind == "s":
            return list(client.smembers(key))
        # All of a vector set are as many distinct random members as it has.
        count = client.execute_command("VCARD", key)
        return list(client.execute_command("VRANDMEMBER", key, count)) if count else []

    return [key.rpartition(b":")[2]] if kind == "e" else link.call(read)
