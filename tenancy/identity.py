"""Credential to Principal: the first link of the chain that ends in a permission domain.

`Principal` is sealed: only `Authenticator` makes one, so whoever holds one knows that a credential was checked.
"""

from __future__ import annotations

import getpass
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Literal

from tenancy.apikeys import hash_secret, matches
from tenancy.apikeys import parse as parse_api_key
from tenancy.errors import Forbidden, NotFound, Unauthenticated
from tenancy.limits import WorkClass
from tenancy.throttle import Throttle
from tenancy.tokens import TokenVerifier

if TYPE_CHECKING:
    from tenancy.control import Tenants

_SEAL: Final = object()


class Role(StrEnum):
    READER = "reader"
    INGEST = "ingest"
    AUDITOR = "auditor"
    ADMIN = "admin"


Method = Literal["api_key", "jwt", "operator"]


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated caller.

    `groups` are names that a token asserted; `None` means that the tenant's directory decides, which is not the
    same as an empty set. An operator without a user has an empty `user_id` and reads no document. `work` is the class
    of an API key, or what a token says of itself; operators are interactive.
    """

    tenant_id: str
    tenant: str
    user_id: str
    user: str
    groups: frozenset[str] | None
    roles: frozenset[Role]
    credential_id: str
    method: Method
    work: WorkClass
    seal: object = field(repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.seal is not _SEAL:
            raise TypeError("a Principal comes from tenancy.identity.Authenticator alone")

    def require(self, role: Role) -> None:
        """Raise `Forbidden` unless the credential carries `role`."""
        if role not in self.roles:
            raise Forbidden(
                f"this needs the role {role}", item="role", remedy=f"use a key that was created with --role {role}"
            )


class Authenticator:
    """Turns a bearer credential, or an operator at the console, into a `Principal`."""

    def __init__(
        self,
        tenants: Tenants,
        *,
        tokens: TokenVerifier | None = None,
        throttle: Throttle | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._tenants = tenants
        self._tokens = tokens
        self._throttle = throttle or Throttle()
        self._clock = clock

    def authenticate(self, bearer: str, source: str) -> Principal:
        """Check an API key or a JWT from the network address `source`.

        Raises `Unauthenticated` for anything that does not verify, with the same text for an unknown, an expired
        and a revoked credential; `Throttled` after too many failures; `TenantSuspended`.
        """
        is_key = bearer.startswith("sr_")
        credential = bearer.split("_")[2][:64] if is_key and bearer.count("_") >= 3 else None
        self._throttle.check(source, credential)
        try:
            principal = self._by_api_key(bearer) if is_key else self._by_token(bearer)
        except Unauthenticated:
            self._throttle.failed(source, credential)
            raise
        self._throttle.succeeded(source, credential)
        return principal

    def operator(self, tenant: str, user: str | None = None, roles: Iterable[Role] = tuple(Role)) -> Principal:
        """The principal of somebody at the console of this machine, who holds the master key.

        With `user`, it reads what that user may read; without, no document at all. Raises `NotFound`.
        """
        record = self._tenants.show(tenant)
        user_id, name = "", f"operator:{_console_user()}"
        if user is not None:
            found = self._tenants.find_user(record.id, user)
            if found is None:
                raise NotFound("no such user in this tenant", item=user, remedy="create a key for the user first")
            user_id, name = found, user
        return Principal(
            tenant_id=record.id,
            tenant=record.name,
            user_id=user_id,
            user=name,
            groups=None,
            roles=frozenset(roles),
            credential_id=f"console:{_console_user()}",
            method="operator",
            work="interactive",
            seal=_SEAL,
        )

    def _by_api_key(self, bearer: str) -> Principal:
        parsed = parse_api_key(bearer)
        key = self._tenants.find_key(parsed.key_id)
        if key is None:
            raise _unverified()
        now = self._clock()
        presented = hash_secret(self._tenants.key_hash_key, parsed.key_id, parsed.secret)
        live = [secret.hash for secret in key.secrets if secret.expires is None or secret.expires > now]
        # Every live secret is compared, so that the time does not tell which of two matched.
        verified = sum(matches(stored, presented) for stored in live)
        if not verified or key.revoked is not None or (key.expires is not None and key.expires <= now):
            raise _unverified()
        return Principal(
            tenant_id=key.tenant_id,
            tenant=key.tenant,
            user_id=key.user_id,
            user=key.user,
            groups=None,
            roles=frozenset(Role(role) for role in key.roles),
            credential_id=parsed.key_id,
            method="api_key",
            work=key.work,
            seal=_SEAL,
        )

    def _by_token(self, bearer: str) -> Principal:
        if self._tokens is None:
            raise _unverified()
        claims = self._tokens.verify(bearer)
        try:
            record = self._tenants.show(claims.tenant)
        except NotFound:
            raise _unverified() from None
        return Principal(
            tenant_id=record.id,
            tenant=record.name,
            user_id=self._tenants.provision_user(record.id, claims.user),
            user=claims.user,
            groups=claims.groups,
            roles=frozenset(Role(role) for role in claims.roles),
            credential_id=claims.token_id,
            method="jwt",
            work=claims.work,
            seal=_SEAL,
        )


def _unverified() -> Unauthenticated:
    return Unauthenticated("the credential does not verify", remedy="send a current API key or token as Bearer")


def _console_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
