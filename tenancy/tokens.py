"""JSON Web Tokens of configured issuers (RFC 7519, RFC 8725, RFC 9068), by joserfc.

Nothing in a token's header chooses how the token is checked: the issuer's configuration names the algorithms, the
issuer's own key set holds the keys, and `jku`, `jwk`, `x5u` and `x5c` are ignored.
"""

from __future__ import annotations

import binascii
import hashlib
import ipaddress
import json
import re
import time
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NoReturn, get_args
from urllib.parse import urlsplit

import msgspec
from joserfc import jws
from joserfc.errors import JoseError
from joserfc.util import urlsafe_b64decode

from tenancy.errors import InvalidInput, Unauthenticated
from tenancy.jwks import SUPPORTED, SYMMETRIC, KeySource, fits
from tenancy.limits import WorkClass
from tenancy.names import nfc_name

MAX_TOKEN_BYTES: Final = 8192
TOKEN_TYPES: Final = frozenset({"jwt", "at+jwt"})

RoleName = Literal["reader", "ingest", "auditor", "admin"]
_Seconds = Annotated[int, msgspec.Meta(ge=0)]
_FORM: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+", re.ASCII)
_CLASSES: Final[tuple[WorkClass, ...]] = get_args(WorkClass)
_LAST_TIME: Final = 2**53
_GENERIC: Final = "the token does not verify"
_REMEDY: Final = "request a new token from the issuer"


class Issuer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One issuer and what it may say. It speaks for `tenants` alone.

    `groups`: "token" takes the group names of `groups_claim` (absent is refused, since absent is not empty);
    "directory" ignores the claim and lets the tenant's directory decide. `role_claim` with `roles` (claim value to
    role) adds roles to reader. `user_prefix` stands before each user's name: a subject is unique in its issuer alone
    (OpenID Connect Core 2). `class_claim` is where a token says "interactive" or "batch"; without it, or where it is
    absent, its bearer is interactive. Raises `InvalidInput` for a configuration that cannot be safe.
    """

    iss: str
    audience: str
    algorithms: tuple[str, ...]
    tenants: tuple[str, ...]
    jwks: str | None = None
    jwks_url: str | None = None
    tenant_claim: str = "tenant"
    user_claim: str = "sub"
    user_prefix: str = ""
    groups: Literal["token", "directory"] = "directory"
    groups_claim: str = "groups"
    role_claim: str | None = None
    roles: Mapping[str, RoleName] = {}
    class_claim: str | None = None
    max_lifetime_s: Annotated[int, msgspec.Meta(ge=1, le=3600)] = 3600
    max_skew_s: Annotated[_Seconds, msgspec.Meta(le=60)] = 60

    def __post_init__(self) -> None:
        unknown = set(self.algorithms) - SUPPORTED
        if not self.algorithms or unknown:
            self._refuse(f"algorithms must be a list out of {', '.join(sorted(SUPPORTED))}")
        symmetric = SYMMETRIC.intersection(self.algorithms)
        if symmetric and symmetric != set(self.algorithms):
            self._refuse("symmetric (HS...) and asymmetric algorithms must not be mixed")
        if (self.jwks is None) == (self.jwks_url is None):
            self._refuse("give exactly one of jwks (a file) and jwks_url")
        if self.jwks_url is not None:
            if symmetric:
                self._refuse("a symmetric secret must not come from a URL")
            if not _confidential(self.jwks_url):
                self._refuse("jwks_url must be https, or http on the loopback address")
        if not (self.iss and self.audience and self.tenant_claim and self.user_claim and self.groups_claim):
            self._refuse("iss, audience and claim names must not be empty")
        if not self.tenants:
            self._refuse("tenants must list the tenants that this issuer may speak for")
        if self.class_claim == "":
            self._refuse("class_claim must name a claim, or be left out")
        if bool(self.roles) != (self.role_claim is not None):
            self._refuse("role_claim and roles belong together")

    def _refuse(self, reason: str) -> NoReturn:
        raise InvalidInput(reason, item=f"issuer {self.iss}")


@dataclass(frozen=True, slots=True)
class Claims:
    """What a verified token says. `groups` is `None` where the tenant's directory decides."""

    tenant: str
    user: str
    groups: frozenset[str] | None
    roles: frozenset[RoleName]
    work: WorkClass
    issuer: str
    token_id: str


class TokenRefused(Unauthenticated):
    """`reason` is for the caller, `detail` (a fixed text as well) for the log; neither quotes the token."""

    def __init__(self, detail: str, reason: str = _GENERIC) -> None:
        super().__init__(reason, remedy=_REMEDY)
        self.detail = detail


class TokenVerifier:
    """Verifies tokens of `issuers`. Thread-safe; may block while `fetch` reads a key set.

    `fetch` gives the body of a URL and must have its own timeout and size limit. A key set in a file is read at
    once, so that a wrong path fails at start; one behind a URL at its first token.
    """

    def __init__(
        self,
        issuers: Sequence[Issuer],
        fetch: Callable[[str], bytes] | None = None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._issuers = {issuer.iss: issuer for issuer in issuers}
        if len(self._issuers) != len(issuers):
            raise InvalidInput("two issuers share one iss", item="issuers")
        _require_own_users(issuers)
        self._keys = {issuer.iss: _key_source(issuer, fetch, monotonic) for issuer in issuers}

    def verify(self, token: str) -> Claims:
        """Check everything and return the claims.

        Raises `TokenRefused` (an `Unauthenticated`), or `Unavailable` where the issuer's keys cannot be read.
        """
        if len(token) > MAX_TOKEN_BYTES:
            raise TokenRefused("larger than the limit", f"the token is larger than {MAX_TOKEN_BYTES} bytes")
        if _FORM.fullmatch(token) is None:
            raise TokenRefused("not three base64url parts")
        header_part, payload_part, _ = token.split(".")
        header, payload = _json_object(header_part), _json_object(payload_part)
        issuer = self._issuer(payload)
        self._check_signature(token, header, issuer)
        self._check_times(payload, issuer)
        if payload.get("aud") not in (issuer.audience, [issuer.audience]):
            raise TokenRefused("another audience", "the token is meant for another service")
        return Claims(
            tenant=_tenant(payload, issuer),
            user=_user(payload, issuer),
            groups=_groups(payload, issuer),
            roles=_roles(payload, issuer),
            work=_work(payload, issuer),
            issuer=issuer.iss,
            token_id=_token_id(payload, token),
        )

    def _issuer(self, payload: Mapping[str, Any]) -> Issuer:
        iss = payload.get("iss")
        issuer = self._issuers.get(iss) if isinstance(iss, str) else None
        if issuer is None:
            raise TokenRefused("issuer missing or not configured")
        return issuer

    def _check_signature(self, token: str, header: Mapping[str, Any], issuer: Issuer) -> None:
        kind = header.get("typ")
        if not isinstance(kind, str) or kind.lower().removeprefix("application/") not in TOKEN_TYPES:
            raise TokenRefused("typ is missing or not JWT or at+jwt")
        if "crit" in header or "b64" in header:
            raise TokenRefused("crit or b64 in the header")
        algorithm = header.get("alg")
        if not isinstance(algorithm, str) or algorithm not in issuer.algorithms:
            raise TokenRefused("alg is not one of this issuer's algorithms")
        kid = header.get("kid")
        if not isinstance(kid, str):
            raise TokenRefused("kid is missing or not a string")
        key = self._keys[issuer.iss].find(kid)
        if key is None:
            raise TokenRefused("kid is not in this issuer's key set")
        if not fits(key, algorithm):
            raise TokenRefused("the key of this kid is not for this alg")
        try:
            jws.deserialize_compact(token, key, registry=_Registry(algorithms=[algorithm], strict_check_header=False))
        except (JoseError, ValueError, TypeError):
            raise TokenRefused("bad signature or header") from None

    def _check_times(self, payload: Mapping[str, Any], issuer: Issuer) -> None:
        """RFC 7519 section 4.1, with this issuer's skew; the lifetime is what the issuer wrote, exp - iat."""
        now, skew = self._clock(), issuer.max_skew_s
        expires, issued = _time(payload, "exp"), _time(payload, "iat")
        if expires <= now - skew:
            raise TokenRefused("expired", "the token has expired")
        if issued > now + skew:
            raise TokenRefused("issued in the future", "the token was issued in the future")
        if not 0 < expires - issued <= issuer.max_lifetime_s:
            raise TokenRefused("lifetime over the limit", "the token's lifetime is longer than this service accepts")
        if "nbf" in payload and _time(payload, "nbf") > now + skew:
            raise TokenRefused("not yet valid", "the token is not valid yet")


class _Registry(jws.JWSRegistry):
    """joserfc's size limits, widened to those of whole tokens: an ignored x5c header is longer than 512 bytes."""

    max_header_length = MAX_TOKEN_BYTES
    max_payload_length = MAX_TOKEN_BYTES
    max_signature_length = MAX_TOKEN_BYTES


def _require_own_users(issuers: Sequence[Issuer]) -> None:
    """Two issuers of one tenant must not name each other's users, unless both say so with the same prefix."""
    for one, other in combinations(issuers, 2):
        shared = sorted(set(one.tenants) & set(other.tenants))
        a, b = one.user_prefix, other.user_prefix
        if shared and (a.startswith(b) or b.startswith(a)) and not (a and a == b):
            raise InvalidInput(
                f"{one.iss} and {other.iss} could name each other's users of {shared[0]}",
                item="issuers",
                remedy="give each a user_prefix that the other's does not begin with, or both the same one",
            )


def _key_source(issuer: Issuer, fetch: Callable[[str], bytes] | None, monotonic: Callable[[], float]) -> KeySource:
    if issuer.jwks is not None:
        source = KeySource(Path(issuer.jwks).read_bytes, issuer.algorithms, monotonic)
        try:
            source.require()
        except (OSError, InvalidInput) as error:
            why = error.reason if isinstance(error, InvalidInput) else "the file cannot be read"
            raise InvalidInput(
                why, item=f"jwks of issuer {issuer.iss}", remedy="check the path and the keys"
            ) from error
        return source
    if fetch is None or issuer.jwks_url is None:
        raise InvalidInput("jwks_url needs a fetch function", item=f"issuer {issuer.iss}")
    url, get = issuer.jwks_url, fetch
    return KeySource(lambda: get(url), issuer.algorithms, monotonic)


def _confidential(url: str) -> bool:
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        if parts.scheme == "https":
            return bool(host)
        return parts.scheme == "http" and (host == "localhost" or ipaddress.ip_address(host).is_loopback)
    except ValueError:
        return False


def _json_object(part: str) -> dict[str, Any]:
    """Strict JSON: an object, no duplicate member (RFC 7515 section 4), no NaN or Infinity."""
    try:
        value = json.loads(
            urlsafe_b64decode(part.encode("ascii")).decode("utf-8"),
            object_pairs_hook=_unique,
            parse_constant=_no_constant,
        )
    except (ValueError, binascii.Error, RecursionError):
        raise TokenRefused("a part is not strict JSON in base64url") from None
    if not isinstance(value, dict):
        raise TokenRefused("a part is not a JSON object")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("duplicate member")
    return members


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _time(payload: Mapping[str, Any], claim: str) -> float:
    """A NumericDate: seconds since the epoch, integer or fraction; `true`, "1" and 1e999 are not times."""
    value = payload.get(claim)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LAST_TIME:
        raise TokenRefused(f"{claim} is missing or not a time", f"the token has no valid {claim} claim")
    return float(value)


def _name(value: object, kind: str) -> str:
    if not isinstance(value, str):
        raise TokenRefused(f"{kind} is missing or not a string", f"the token names no valid {kind}")
    try:
        return nfc_name(value, kind)
    except InvalidInput:
        raise TokenRefused(f"{kind} is not a valid name", f"the token names no valid {kind}") from None


def _tenant(payload: Mapping[str, Any], issuer: Issuer) -> str:
    tenant = _name(payload.get(issuer.tenant_claim), "tenant")
    if tenant not in {unicodedata.normalize("NFC", name) for name in issuer.tenants}:
        raise TokenRefused("the issuer may not speak for this tenant")
    return tenant


def _user(payload: Mapping[str, Any], issuer: Issuer) -> str:
    subject = _name(payload.get("sub"), "subject")
    user = subject if issuer.user_claim == "sub" else _name(payload.get(issuer.user_claim), "user")
    return _name(issuer.user_prefix + user, "user")


def _groups(payload: Mapping[str, Any], issuer: Issuer) -> frozenset[str] | None:
    """Group names, or `None` for "the directory decides". A list that overflowed or is absent is refused."""
    if issuer.groups == "directory":
        return None
    elsewhere = payload.get("_claim_names", {})
    overflowed = not isinstance(elsewhere, dict) or issuer.groups_claim in elsewhere
    if overflowed or payload.get("hasgroups", False) is not False:
        raise TokenRefused(
            "group overflow", "the token does not carry the whole list of groups, so they cannot be trusted"
        )
    value = payload.get(issuer.groups_claim)
    if not isinstance(value, list):
        raise TokenRefused("groups absent or not a list", "the token carries no list of groups; absent is not empty")
    return frozenset(_name(group, "group") for group in value)


def _roles(payload: Mapping[str, Any], issuer: Issuer) -> frozenset[RoleName]:
    granted: set[RoleName] = {"reader"}
    if issuer.role_claim is not None and issuer.role_claim in payload:
        value = payload[issuer.role_claim]
        values = [value] if isinstance(value, str) else value
        if not isinstance(values, list) or not all(isinstance(item, str) for item in values):
            raise TokenRefused("role claim is not a list of strings", "the token's role claim is malformed")
        granted.update(issuer.roles[item] for item in values if item in issuer.roles)
    return frozenset(granted)


def _work(payload: Mapping[str, Any], issuer: Issuer) -> WorkClass:
    value = "interactive" if issuer.class_claim is None else payload.get(issuer.class_claim, "interactive")
    found = next((work for work in _CLASSES if value == work), None)
    if found is None:
        raise TokenRefused("class claim is no class of work", "the token's class is neither interactive nor batch")
    return found


def _token_id(payload: Mapping[str, Any], token: str) -> str:
    """`jti` where there is one, else a hash of the token: what the audit calls the credential."""
    if "jti" in payload:
        return _name(payload["jti"], "token id")
    return "sha256:" + hashlib.sha256(token.encode("ascii")).hexdigest()[:32]
