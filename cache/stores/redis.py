"""The Redis store: entries of every tenant at a Redis 8 server that several service processes share.

A namespace has one vector set, an entry one hash (`redis_keys`); every change is one script (`redis_scripts`). Redis
is never trusted: an entry opens under the tenant's key and the name of its own key alone, its similarity is computed
from the vector inside of it, and what a hit needs is checked by `cache.lookup` as with every store.
"""

from __future__ import annotations

import hmac
import json
import math
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from redis.exceptions import ResponseError

from cache.entry import Entry, Vector
from cache.key import Namespace
from cache.policy import CachePolicy
from cache.stores import redis_repair
from cache.stores import redis_scripts as scripts
from cache.stores.port import CacheStats, EntryRecord, StoreHealth
from cache.stores.redis_codec import seal, unseal
from cache.stores.redis_keys import digest, member, prefix, space
from cache.stores.redis_link import Link
from cache.stores.selector import Selector
from cache.stores.uses import Uses
from tenancy.errors import InvalidInput
from tenancy.tenant import TenantHandle

EXHAUSTIVE: Final = 10_000
"""Up to so many vectors of a namespace all are compared; beyond, the graph is searched, which may miss one."""

_EFFORT: Final = 500
# On Redis's own thread, which 10,000 take for 2.5 ms: on busy cores handing them to another one takes longer.
_ALL: Final = ("TRUTH", "NOTHREAD")
_TRIES: Final = 3


class RedisStore:
    """A `CacheStore`. Keys carry an absolute expiry by Redis's clock, which needs to be right within the life time."""

    renews = False

    def __init__(
        self, link: Link, policy: CachePolicy | None = None, *, clock: Callable[[], float] = time.time
    ) -> None:
        self.policy = policy or CachePolicy()
        self.clock = clock
        self.link = link
        self._uses = Uses()

    def get(self, tenant: TenantHandle, namespace: Namespace, exact: bytes) -> Entry | None:
        _own(tenant, namespace)
        key = f"{prefix(tenant.tenant_id)}e:{member(exact)}"
        body, seen = self.link.call(lambda client: client.hmget(key, "b", "k"))
        if body is None:
            return None
        entry = unseal(tenant, key, body)
        if entry is None:
            self._forget(tenant, space(namespace.value), [(member(exact), seen or b"")])
        return entry

    def nearest(self, tenant: TenantHandle, namespace: Namespace, vector: Vector) -> list[tuple[Entry, float]]:
        """Expired entries are left out. What the index names and no entry stands behind is removed on the way."""
        _own(tenant, namespace)
        where = space(namespace.value)
        found, orphans = self._candidates(tenant, self._similar(tenant, where, vector), vector)
        # Redis takes longer to read the expiry of a vector than to compare it: only where one that is past took a place
        # are all of them looked at.
        now = self.clock()
        if orphans or any(entry.expires <= now for entry, _ in found):
            for _ in range(_TRIES):
                live = self._similar(tenant, where, vector, "FILTER", f".x > {self.clock()!r}")
                found, orphans = self._candidates(tenant, live, vector)
                if not orphans:
                    break
                self._forget(tenant, where, orphans)
        return sorted(found, key=lambda candidate: -candidate[1])

    def put(self, tenant: TenantHandle, entry: Entry, *, allowed: Callable[[], str | None]) -> str | None:
        """`allowed` is asked before the script runs; the script refuses where an invalidation came in between, and
        then it is asked again.
        """
        size = _size(entry)
        if size > self.policy.max_bytes:
            return "larger than the quota"
        ours, m = prefix(tenant.tenant_id), member(entry.exact)
        now = self.clock()
        meta = {
            "i": entry.id,
            "n": space(entry.namespace),
            "u": digest(tenant, "user", entry.origin_user),
            "t": digest(tenant, "template", entry.template),
            "d": sorted({str(document) for document, _ in entry.dependencies}),
            "b": size,
            "c": entry.created,
            "x": entry.expires,
            "v": bool(entry.vector),
        }
        body = seal(tenant, f"{ours}e:{m}", entry)
        used = self._uses.take(tenant.tenant_id)
        for _ in range(_TRIES):
            moved = self.link.call(lambda client: client.hget(ours + "state", "moved"), write=True)
            if refused := allowed():
                return refused
            done = self.link.script(
                scripts.PUT, ours,
                moved or b"", m, entry.id, entry.checksum, body, entry.vector, json.dumps(meta), repr(now),
                math.ceil(entry.expires), repr(entry.created), repr(entry.expires),
                self.policy.max_entries, self.policy.max_bytes, scripts.STEP,
                *(part for name, at in used.items() for part in (name, repr(at))),
            )  # fmt: skip
            if done != b"moved":
                break
        return done.decode() or None

    def confirm(self, tenant: TenantHandle, entry: Entry) -> bool:
        ours, m = prefix(tenant.tenant_id), member(entry.exact)
        body = seal(tenant, f"{ours}e:{m}", entry)
        return bool(self.link.script(scripts.CONFIRM, ours, m, entry.id, entry.checksum, body))

    def holds(self, tenant: TenantHandle, entry: Entry) -> bool:
        key = f"{prefix(tenant.tenant_id)}e:{member(entry.exact)}"
        entry_id, checksum = self.link.call(lambda client: client.hmget(key, "i", "k"))
        return entry_id == entry.id.encode() and hmac.compare_digest(checksum or b"", entry.checksum)

    def touch(self, tenant: TenantHandle, entry: Entry) -> None:
        self._uses.note(tenant.tenant_id, member(entry.exact), self.clock())

    def discard(self, tenant: TenantHandle, entry: Entry) -> None:
        self._remove(tenant, {"i": entry.id}, [member(entry.exact)])

    def sweep(self, tenant: TenantHandle) -> int:
        ours, removed, now = prefix(tenant.tenant_id), 0, self.clock()
        while count := int(self.link.script(scripts.EXPIRE, ours, repr(now), scripts.STEP)):
            removed += count
        return removed

    def repair(self, tenant: TenantHandle) -> int:
        """Walks over the keys of all tenants."""
        return self.sweep(tenant) + redis_repair.repair(self.link, tenant)

    def invalidate(self, tenant: TenantHandle, selector: Selector) -> int:
        """In steps: an entry that a question reads meanwhile may be served once more, as before the call."""
        ours = prefix(tenant.tenant_id)
        until = math.ceil(time.time() + max(self.policy.time_to_live, 1.0))
        self.link.script(scripts.MOVE, ours, secrets.token_hex(8), until)
        return self._remove(tenant, self._wanted(tenant, selector), self._selected(tenant, selector))

    def purge(self, tenant: TenantHandle) -> int:
        return self.purge_deleted(tenant.tenant_id)

    def purge_deleted(self, tenant_id: str) -> int:
        """For a minute a mark refuses what was begun before; nothing else is left of the tenant."""
        self._uses.take(tenant_id)
        return redis_repair.purge(self.link, tenant_id)

    def stats(self, tenant: TenantHandle) -> CacheStats:
        ours = prefix(tenant.tenant_id)

        def read(client: Any) -> list[Any]:
            pipe = client.pipeline(transaction=True)
            for name in ("meta", "spaces", "users"):
                pipe.hlen(ours + name)
            pipe.hget(ours + "state", "bytes")
            pipe.zcount(ours + "exp", "-inf", repr(self.clock()))
            found: list[Any] = pipe.execute()
            return found

        entries, namespaces, users, size, expired = self.link.call(read)
        return CacheStats(
            entries, int(size or 0), namespaces, users, expired, self.policy.max_entries, self.policy.max_bytes
        )

    def inspect(
        self, tenant: TenantHandle, *, limit: int = 50, offset: int = 0, selector: Selector | None = None
    ) -> list[EntryRecord]:
        """An entry that goes away meanwhile, or does not open, is left out."""
        if not (1 <= limit <= 1000 and 0 <= offset < 2**63):
            raise InvalidInput("limit is 1 to 1000 and offset 0 to 2**63 - 1", item="limit")
        newest = prefix(tenant.tenant_id) + "new"
        if selector is None:
            raw = self.link.call(lambda client: client.zrange(newest, offset, offset + limit - 1, desc=True))
            return self._records(tenant, [m.decode() for m in raw])
        chosen = set(self._selected(tenant, selector))
        ordered = self.link.call(lambda client: client.zrange(newest, 0, -1, desc=True))
        mine = [m.decode() for m in ordered if m.decode() in chosen]
        records: list[EntryRecord] = []
        for some in scripts.steps(mine):
            records += [record for record in self._records(tenant, some) if self._meets(record, selector)]
            if len(records) >= offset + limit:
                break
        return records[offset : offset + limit]

    def health(self) -> StoreHealth:
        return StoreHealth("redis", self.link.available, self.link.detail, self.link.counts)

    def close(self, tenant_id: str) -> None:
        self._uses.take(tenant_id)

    def shutdown(self) -> None:
        self.link.close()

    @property
    def tenants(self) -> set[str]:
        return self._uses.tenants

    def _similar(self, tenant: TenantHandle, where: str, vector: Vector, *more: str) -> list[str]:
        """The members of the policy's `nearest` vectors of a namespace; `more` are arguments of the command."""
        key = f"{prefix(tenant.tenant_id)}v:{where}"

        def search(client: Any) -> list[bytes]:
            count = client.execute_command("VCARD", key)
            how = _ALL if count <= EXHAUSTIVE else ("EF", _EFFORT)
            wanted = ["COUNT", self.policy.nearest, *how, *more]
            try:
                found: list[bytes] = client.execute_command("VSIM", key, "FP32", _fp32(vector), *wanted)
            except ResponseError as error:
                if "dimension" in str(error):
                    return []
                raise
            return found

        return [raw.decode() for raw in self.link.call(search)]

    def _candidates(
        self, tenant: TenantHandle, members: Sequence[str], vector: Vector
    ) -> tuple[list[tuple[Entry, float]], list[tuple[str, bytes]]]:
        """Entries behind members, and the members (with the checksum that was seen) behind which is none."""
        found, orphans = [], []
        for m, key, (body, seen) in self._bodies(tenant, members):
            entry = None if body is None else unseal(tenant, key, body)
            if entry is None:
                orphans.append((m, seen or b""))
            elif (similarity := entry.similarity(vector)) is not None:
                found.append((entry, similarity))
        return found, orphans

    def _bodies(
        self, tenant: TenantHandle, members: Sequence[str]
    ) -> Iterator[tuple[str, str, tuple[bytes | None, bytes | None]]]:
        if not members:
            return iter(())
        keys = [f"{prefix(tenant.tenant_id)}e:{m}" for m in members]

        def read(client: Any) -> list[Any]:
            pipe = client.pipeline(transaction=False)
            for key in keys:
                pipe.hmget(key, "b", "k")
            found: list[Any] = pipe.execute()
            return found

        return zip(members, keys, self.link.call(read), strict=True)

    def _records(self, tenant: TenantHandle, members: Sequence[str]) -> list[EntryRecord]:
        lru = prefix(tenant.tenant_id) + "lru"
        entries = [
            (m, entry)
            for m, key, (body, _) in self._bodies(tenant, members)
            if body is not None and (entry := unseal(tenant, key, body)) is not None
        ]
        if not entries:
            return []
        used = self.link.call(lambda client: client.zmscore(lru, [m for m, _ in entries]))
        return [
            EntryRecord(
                entry.id, entry.template, entry.question, entry.dependencies, entry.created, entry.expires,
                entry.created if at is None else float(at), entry.origin_seq, entry.origin_user, _size(entry),
            )
            for (_, entry), at in zip(entries, used, strict=True)
        ]  # fmt: skip

    def _meets(self, record: EntryRecord, selector: Selector) -> bool:
        return (
            (selector.document is None or selector.document in {document for document, _ in record.dependencies})
            and selector.entry in {None, record.id}
            and selector.user in {None, record.origin_user}
            and selector.template in {None, record.template}
            and (selector.older_than is None or record.created <= self.clock() - selector.older_than)
        )

    def _wanted(self, tenant: TenantHandle, selector: Selector) -> dict[str, Any]:
        """The conditions as `redis_scripts.REMOVE` reads them."""
        conditions = {
            "i": selector.entry,
            "u": None if selector.user is None else digest(tenant, "user", selector.user),
            "t": None if selector.template is None else digest(tenant, "template", selector.template),
            "d": None if selector.document is None else str(selector.document),
            "c": None if selector.older_than is None else self.clock() - selector.older_than,
        }
        return {name: value for name, value in conditions.items() if value is not None}

    def _selected(self, tenant: TenantHandle, selector: Selector) -> list[str]:
        """Members among which are all that the selector means, from the narrowest index there is."""
        ours, wanted = prefix(tenant.tenant_id), self._wanted(tenant, selector)

        def read(client: Any) -> Any:
            if "i" in wanted:
                found = client.hget(ours + "ids", wanted["i"])
                return [] if found is None else [found]
            for kind in ("d", "u", "t"):
                if kind in wanted:
                    return client.smembers(f"{ours}{kind}:{wanted[kind]}")
            return (
                client.zrange(ours + "new", "-inf", repr(wanted["c"]), byscore=True)
                if "c" in wanted
                else (client.hkeys(ours + "meta"))
            )

        return [m.decode() for m in self.link.call(read)]

    def _remove(self, tenant: TenantHandle, wanted: dict[str, Any], members: Sequence[str]) -> int:
        ours, conditions = prefix(tenant.tenant_id), json.dumps(wanted)
        return sum(int(self.link.script(scripts.REMOVE, ours, conditions, *some)) for some in scripts.steps(members))

    def _forget(self, tenant: TenantHandle, where: str, orphans: Sequence[tuple[str, bytes]]) -> None:
        seen = [part for orphan in orphans for part in orphan]
        self.link.script(scripts.FORGET, prefix(tenant.tenant_id), where, *seen)


def _own(tenant: TenantHandle, namespace: Namespace) -> None:
    if namespace.tenant_id != tenant.tenant_id:
        raise InvalidInput("the namespace belongs to another tenant", item="namespace")


def _fp32(vector: Vector) -> bytes:
    return vector.astype("<f4").tobytes()


def _size(entry: Entry) -> int:
    """Bytes that count towards the quota, as with the local store."""
    return sum(map(len, (entry.payload, entry.vector, entry.question.encode()))) + 64 * len(entry.dependencies) + 512
