"""The public keys of one issuer: a JWK set (RFC 7517), looked up by `kid`, read again when a `kid` is unknown."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from cryptography.exceptions import UnsupportedAlgorithm
from joserfc.errors import JoseError, SecurityWarning
from joserfc.jwk import ECKey, JWKRegistry, Key, OctKey, OKPKey, RSAKey

from tenancy.errors import InvalidInput, Unavailable

REFRESH_S: Final = 60.0
MAX_SET_BYTES: Final = 256 * 1024
_MIN_RSA_BITS: Final = 2048

_KEY_TYPES: Final[Mapping[str, type[Key]]] = {
    **{f"HS{bits}": OctKey for bits in (256, 384, 512)},
    **{f"RS{bits}": RSAKey for bits in (256, 384, 512)},
    **{f"PS{bits}": RSAKey for bits in (256, 384, 512)},
    **{f"ES{bits}": ECKey for bits in (256, 384, 512)},
    "Ed25519": OKPKey,
}
_CURVES: Final = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521", "Ed25519": "Ed25519"}
SYMMETRIC: Final = frozenset(name for name, kind in _KEY_TYPES.items() if kind is OctKey)
SUPPORTED: Final = frozenset(_KEY_TYPES)


def parse_key_set(data: bytes, algorithms: Iterable[str]) -> dict[str, Key]:
    """Keys by `kid` that can verify one of `algorithms`; others in the set are left out.

    Left out are keys without a `kid`, for encryption, of another type or curve, or too weak (RSA under 2048 bits, a
    secret shorter than its hash, RFC 7518 section 3.2). Raises `InvalidInput` where nothing usable is left, or two
    usable keys share a `kid`.
    """
    wanted = frozenset(algorithms)
    if len(data) > MAX_SET_BYTES:
        raise InvalidInput(f"a JWK set has at most {MAX_SET_BYTES} bytes", item="jwks")
    try:
        members = json.loads(data)["keys"]
        candidates = [member for member in members if isinstance(member, dict)]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InvalidInput("not a JWK set: expected a JSON object with a list of keys", item="jwks") from None
    found: dict[str, Key] = {}
    for member in candidates:
        key = _import(member)
        if key is None or not any(fits(key, algorithm) for algorithm in wanted):
            continue
        kid = member.get("kid")
        if not isinstance(kid, str) or not kid:
            continue
        if kid in found:
            raise InvalidInput("two keys of the JWK set share one kid", item="jwks")
        found[kid] = key
    if not found:
        raise InvalidInput(
            f"the JWK set holds no usable key for {', '.join(sorted(wanted))}",
            item="jwks",
            remedy="each key needs a kid, and RSA keys at least 2048 bits",
        )
    return found


def fits(key: Key, algorithm: str) -> bool:
    """Whether `key` may verify signatures of `algorithm`: type, curve, strength and declared use."""
    if not isinstance(key, _KEY_TYPES[algorithm]):
        return False
    if key.get("alg") not in (None, algorithm) or key.get("use") not in (None, "sig"):
        return False
    operations = key.get("key_ops")
    if operations is not None and "verify" not in operations:
        return False
    if isinstance(key, RSAKey):
        return key.raw_value.key_size >= _MIN_RSA_BITS
    if isinstance(key, OctKey):
        return len(key.raw_value) * 8 >= int(algorithm[2:])
    return key.curve_name == _CURVES[algorithm]


class KeySource:
    """One issuer's keys. `load` gives the set's bytes and may raise anything; it is called at most once a minute.

    Threads that meet an unknown `kid` while a load is under way wait for that one load (single flight).
    """

    def __init__(
        self,
        load: Callable[[], bytes],
        algorithms: Iterable[str],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._load = load
        self._algorithms = tuple(algorithms)
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._keys: Mapping[str, Key] = {}
        self._loaded: float | None = None
        self._healthy = False

    def find(self, kid: str) -> Key | None:
        """The key of `kid`, or `None`. Raises `Unavailable` where the key is unknown and the last load failed."""
        key = self._keys.get(kid)
        if key is not None:
            return key
        with self._lock:
            now = self._monotonic()
            if kid not in self._keys and (self._loaded is None or now - self._loaded >= REFRESH_S):
                self._loaded = now
                self._refresh()
            key = self._keys.get(kid)
            if key is None and not self._healthy:
                raise Unavailable(
                    "the signing keys of the token's issuer cannot be read now", item="jwks", remedy="try again later"
                )
            return key

    def require(self) -> None:
        """Load now. Raises `InvalidInput` or what `load` raises: for a set that is a local file, at start."""
        with self._lock:
            self._keys = parse_key_set(self._load(), self._algorithms)
            self._loaded, self._healthy = self._monotonic(), True

    def _refresh(self) -> None:
        try:
            self._keys = parse_key_set(self._load(), self._algorithms)
            self._healthy = True
        except Exception:  # noqa: BLE001 - whatever a fetch raises, keys already known keep working
            self._healthy = False


def _import(member: dict[str, Any]) -> Key | None:
    """A key, or `None` for one that is not understood or malformed: RFC 7517 section 5 says to ignore it."""
    try:
        return JWKRegistry.import_key(member)
    except (JoseError, UnsupportedAlgorithm, SecurityWarning, ValueError, TypeError, KeyError, OverflowError):
        return None
