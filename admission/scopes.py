"""Who is charged: the scopes that one request draws on."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from tenancy.errors import InvalidInput

Kind = Literal["root", "user", "key", "tenant", "model", "deployment"]

SHARED: Final[frozenset[Kind]] = frozenset({"model", "deployment"})
"""Kinds of scopes that tenants share; every other one lies within a tenant."""


class Scope(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """`id` is opaque (a tenant's id, a user's, a key's, a root's, a model's name); `tenant` is an id, empty where the
    kind is shared.

    `gc=False`, here and in `admission.counters` and `admission.limits`: frozen data are never part of a cycle, and each
    question makes so many of them that the collector's visits would show.
    """

    kind: Kind
    id: str
    tenant: str

    def __post_init__(self) -> None:
        if (self.kind in SHARED) != (not self.tenant) or not self.id:
            raise InvalidInput("a scope lies within one tenant, but for a model and the deployment", item=self.kind)


DEPLOYMENT: Final = Scope("deployment", "all", "")


def tenant_scope(tenant_id: str) -> Scope:
    return Scope("tenant", tenant_id, tenant_id)


def user_scope(tenant_id: str, user_id: str) -> Scope:
    return Scope("user", user_id, tenant_id)


def key_scope(tenant_id: str, credential_id: str) -> Scope:
    return Scope("key", credential_id, tenant_id)


def root_scope(tenant_id: str, root_id: str) -> Scope:
    return Scope("root", root_id, tenant_id)


def model_scope(model: str) -> Scope:
    return Scope("model", model, "")
