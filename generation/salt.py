"""The salt that keeps one permission domain's KV memory out of every other's.

An engine that reuses KV memory by prefix tells, by its speed and its `cached_tokens`, whether somebody sent the same
prefix before. Requests with different salts never share. The salt is an HMAC under a server key, so that nobody can
guess another domain's; `kv_epoch` moves on deletion, revocation and erasure, which makes stale KV unreachable.
"""

from __future__ import annotations

import secrets
from typing import Final

from generation.generator import ModelIdentity
from tenancy.contract import KvSharing
from tenancy.errors import InvalidInput
from tenancy.keys import keyed_hash

_WIDTH: Final = ("none", "user", "domain")


def kv_salt(
    key: bytes,
    *,
    tenant_id: str,
    domain: str,
    identity: ModelIdentity,
    template_revision: str,
    kv_epoch: int,
    sharing: KvSharing = "domain",
    user_id: str | None = None,
) -> str:
    """64 hex digits. `domain` is the permission domain's fingerprint.

    `sharing` narrows who shares: everyone of the domain, one user within it (`user_id`), or nobody (a salt that is
    fresh for every request).
    """
    if not tenant_id or not domain:
        raise InvalidInput("a KV salt needs a tenant and a permission domain", item="kv_salt")
    if sharing == "user" and not user_id:
        raise InvalidInput("sharing by user needs a user id", item="kv_salt")
    within = {"domain": None, "user": user_id, "none": secrets.token_hex(32)}[sharing]
    parts = (tenant_id, domain, identity.model, identity.revision, template_revision, identity.adapter, str(kv_epoch))
    return keyed_hash(key, "kv-salt", *parts, sharing, within).hex()


def narrower(deployment: KvSharing, contract: KvSharing | None) -> KvSharing:
    """What holds for a tenant: a contract may narrow what the deployment shares, and never widens it."""
    return min(deployment, contract or deployment, key=_WIDTH.index)
