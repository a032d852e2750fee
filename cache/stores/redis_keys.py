"""Names of keys at Redis. All of one tenant carry its id as hash tag, and so lie in one slot of a cluster.

    sr:{TENANT}:e:MEMBER   hash    one entry: `b` sealed text and vector, `i` its id, `k` its checksum
    sr:{TENANT}:v:SPACE    vectors of one namespace, by member, each with its expiry as attribute `x`
    sr:{TENANT}:d:DOCUMENT set     members that rest on a document; likewise u:USER and t:TEMPLATE
    sr:{TENANT}:meta       hash    member -> what removing it has to know, also when the entry itself has expired
    sr:{TENANT}:lru, exp, new      sorted sets of members by last use, expiry and creation
    sr:{TENANT}:ids        hash    entry id -> member
    sr:{TENANT}:spaces, users      hashes that count members
    sr:{TENANT}:state      hash    `bytes` of all entries; `moved`, which an invalidation changes

MEMBER, SPACE, USER and TEMPLATE are keyed digests: no name that somebody chose stands in a key.
"""

from __future__ import annotations

from typing import Final

from cache.entry import Entry
from tenancy.keys import keyed_hash
from tenancy.tenant import TenantHandle

PREFIX: Final = "sr:"
# 128 bits of a keyed digest: enough that none meets another, and half as long in every index.
_BYTES: Final = 16
_PURPOSE: Final = "cache-redis-index"


def prefix(tenant_id: str) -> str:
    """What every key of the tenant begins with."""
    return f"{PREFIX}{{{tenant_id}}}:"


def tenant_of(key: bytes) -> str | None:
    """The tenant's id in a key; None where it is no key of this product."""
    head, found, rest = key.partition(b"{")
    tenant_id, closed, _ = rest.partition(b"}:")
    if head != PREFIX.encode() or not found or not closed or not tenant_id:
        return None
    return tenant_id.decode("ascii", errors="replace")


def member(exact: bytes) -> str:
    return exact[:_BYTES].hex()


def space(namespace: bytes) -> str:
    return namespace[:_BYTES].hex()


def digest(tenant: TenantHandle, kind: str, name: str) -> str:
    """Stands for a user or a template of this tenant."""
    return keyed_hash(tenant.keys.purpose(_PURPOSE), kind, name)[:_BYTES].hex()


def entry_key(tenant_id: str, entry: Entry) -> str:
    return f"{prefix(tenant_id)}e:{member(entry.exact)}"
