"""Credentials that open nothing, each beside the one that opens the same route."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
import zlib
from typing import Any, Final

from joserfc import jws
from joserfc.jwk import RSAKey

from tenancy.apikeys import mint
from tests.service.bad_input import AUDIENCE, ISSUER, OTHER_ISSUER, OTHER_RSA, RSA, Bench, Row, Sent

QUESTION: Final = Sent("POST", "/v1/retrieve", "reader", b'{"query": "How long is the notice period?"}')
MALLORY: Final = RSAKey.generate_key(2048, {"kid": "acme-1"})
_BASE32: Final = "0123456789abcdefghjkmnpqrstvwxyz"


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def token(*, key: RSAKey = RSA, header: dict[str, Any] | None = None, drop: tuple[str, ...] = (), **claims: Any) -> str:
    """A token that is right but for what is named; `sign` below makes the other signatures."""
    head, payload = parts(header, drop, claims)
    signature = jws.JWSRegistry.algorithms["RS256"].sign(f"{head}.{payload}".encode(), key)
    return f"{head}.{payload}.{b64(signature)}"


def parts(header: dict[str, Any] | None, drop: tuple[str, ...], claims: dict[str, Any]) -> tuple[str, str]:
    now = int(time.time())
    found = {
        "iss": ISSUER, "sub": "ana", "aud": AUDIENCE, "iat": now - 10, "exp": now + 600, "tenant": "acme", "groups": [],
    } | claims  # fmt: skip
    kept = {name: value for name, value in found.items() if name not in drop}
    head = {"typ": "JWT", "alg": "RS256", "kid": "acme-1", **(header or {})}
    return b64(json.dumps(head).encode()), b64(json.dumps(kept).encode())


def unsigned(alg: str) -> str:
    head, payload = parts({"alg": alg}, (), {})
    return f"{head}.{payload}."


def hmac_signed(secret: bytes) -> str:
    """Algorithm confusion: a public key taken for the secret of HS256."""
    head, payload = parts({"alg": "HS256"}, (), {})
    return f"{head}.{payload}.{b64(hmac.digest(secret, f'{head}.{payload}'.encode(), hashlib.sha256))}"


def lasting(seconds: int) -> dict[str, Any]:
    now = int(time.time())
    return {"iat": now - 10, "exp": now - 10 + seconds}


TOKENS: Final[dict[str, Any]] = {
    "alg none": lambda: unsigned("none"),
    "alg nOnE": lambda: unsigned("nOnE"),
    "HS256 with the public key's PEM": lambda: hmac_signed(RSA.as_pem(private=False)),
    "HS256 with the public key's JWK": lambda: hmac_signed(json.dumps(RSA.as_dict(private=False)).encode()),
    "HS256 with an empty secret": lambda: hmac_signed(b""),
    "signed by a stranger under the known kid": lambda: token(key=MALLORY),
    "jwk embedded": lambda: token(key=MALLORY, header={"jwk": MALLORY.as_dict(private=False)}),
    "jku of a stranger": lambda: token(key=MALLORY, header={"jku": "https://evil.example/jwks", "kid": "evil"}),
    "kid is a path": lambda: token(header={"kid": "../../../dev/null"}),
    "kid of another issuer's key": lambda: token(key=OTHER_RSA, header={"kid": "globex-1"}),
    "another issuer's name": lambda: token(iss=OTHER_ISSUER, tenant="globex"),
    "another issuer for this tenant": lambda: token(key=OTHER_RSA, header={"kid": "globex-1"}, iss=OTHER_ISSUER),
    "iss unknown": lambda: token(iss="https://evil.example"),
    "iss missing": lambda: token(drop=("iss",)),
    "aud of another service": lambda: token(aud="billing"),
    "aud missing": lambda: token(drop=("aud",)),
    "aud with others": lambda: token(aud=[AUDIENCE, "billing"]),
    "tenant missing": lambda: token(drop=("tenant",)),
    "tenant of another issuer": lambda: token(tenant="globex"),
    "tenant in capitals": lambda: token(tenant="ACME"),
    "tenant a list": lambda: token(tenant=["acme"]),
    "sub missing": lambda: token(drop=("sub",)),
    "sub with a line break": lambda: token(sub="ana\nroot"),
    "groups missing": lambda: token(drop=("groups",)),
    "groups overflowed": lambda: token(_claim_names={"groups": "src1"}),
    "hasgroups": lambda: token(hasgroups=True),
    "expired": lambda: token(iat=int(time.time()) - 900, exp=int(time.time()) - 61),
    "exp missing": lambda: token(drop=("exp",)),
    "iat in the future": lambda: token(iat=int(time.time()) + 120, exp=int(time.time()) + 600),
    "nbf in the future": lambda: token(nbf=int(time.time()) + 120),
    "lives longer than an hour": lambda: token(**lasting(3601)),
    "typ missing": lambda: token(header={"typ": None}),
    "crit": lambda: token(header={"crit": ["exp"]}),
    "payload changed": lambda: ".".join([token().split(".")[0], parts(None, (), {"sub": "bo"})[1], token()[-342:]]),
    "two parts": lambda: token().rpartition(".")[0],
    "9 KB": lambda: token(jti="a" * 200, padding="a" * 9_000),
}


def respelled(key: str, environment: str) -> str:
    """`key` with another environment and the checksum that belongs to it."""
    _, _, key_id, secret, _ = key.split("_")
    body = f"sr_{environment}_{key_id}_{secret}"
    value = zlib.crc32(body.encode())
    return f"{body}_{''.join(_BASE32[(value >> shift) & 31] for shift in range(30, -1, -5))}"


def another_secret(bench: Bench) -> str:
    """The reader's key id with the secret of somebody else, and the right checksum."""
    secret = bench.keys["ingest"].split("_")[3]
    return respelled("_".join([*bench.keys["reader"].split("_")[:3], secret, ""]), "live")


KEYS: Final[dict[str, Any]] = {
    "a wrong checksum": lambda bench: bench.keys["reader"][:-1] + ("0" if bench.keys["reader"][-1] != "0" else "1"),
    "another environment, not respelled": lambda bench: bench.keys["reader"].replace("_live_", "_test_"),
    "another environment's own": lambda _: mint("test").text,
    "an unknown id": lambda _: mint().text,
    "another secret": another_secret,
    "revoked": lambda bench: bench.keys["revoked"],
    "expired": lambda bench: bench.keys["expired"],
    "cut": lambda bench: bench.keys["reader"][:-9],
    "in capitals": lambda bench: bench.keys["reader"].upper(),
    "10 KB": lambda _: "sr_live_" + "a" * 10_000,
    "20 KB": lambda _: "sr_live_" + "a" * 20_000,
    "two keys with a comma": lambda bench: f"{bench.keys['reader']}, Bearer {bench.keys['reader']}",
    "a key in quotes": lambda bench: f'"{bench.keys["reader"]}"',
    "SQL": lambda _: "sr_live_' OR 1=1 --_x_y",
}

# Authorization headers as they stand.
HEADERS: Final[dict[str, Any]] = {
    "no header": lambda _: [],
    "empty": lambda _: [b""],
    "the scheme alone": lambda _: [b"Bearer"],
    "the scheme and a space": lambda _: [b"Bearer "],
    "Basic": lambda bench: [b"Basic " + base64.b64encode(f"ana:{bench.keys['reader']}".encode())],
    "no scheme": lambda bench: [bench.keys["reader"].encode()],
    "the scheme glued on": lambda bench: [b"Bearer" + bench.keys["reader"].encode()],
    "not ASCII": lambda bench: [b"Bearer " + bench.keys["reader"].encode() + b"\xc3\xa9"],
    "not UTF-8": lambda _: [b"Bearer sr_live_\xff\xfe"],
    "the same twice": lambda bench: [b"Bearer " + bench.keys["reader"].encode()] * 2,
    "a good and a bad one": lambda bench: [b"Bearer " + bench.keys["reader"].encode(), b"Bearer x"],
    "of two tenants": lambda bench: [b"Bearer " + bench.keys[who].encode() for who in ("reader", "foreign")],
}


def _of_token(make: Any) -> Any:
    return lambda _: [b"Bearer " + make().encode()]


def _of_key(make: Any) -> Any:
    return lambda bench: [b"Bearer " + make(bench).encode()]


GOOD_TOKEN: Final = QUESTION.but(credentials=_of_token(token))

ROWS: Final = [
    *(Row(f"authorization: {name}", QUESTION.but(credentials=make), 401, "unauthenticated", QUESTION)
      for name, make in HEADERS.items()),
    *(Row(f"key: {name}", QUESTION.but(credentials=_of_key(make)), 401, "unauthenticated", QUESTION)
      for name, make in KEYS.items()),
    *(Row(f"token: {name}", QUESTION.but(credentials=_of_token(make)), 401, "unauthenticated", GOOD_TOKEN)
      for name, make in TOKENS.items()),
    Row("key in X-API-Key", QUESTION.but(who=None).with_header("X-API-Key", b"sr_live_x"), 401, "unauthenticated",
        QUESTION),
    Row("key in the address", QUESTION.with_query("api_key=x"), 400, "unknown-parameter", QUESTION),
]  # fmt: skip
ACCEPTED: Final = {
    "a token": GOOD_TOKEN,
    "a token with a key of its own embedded, which is ignored": QUESTION.but(
        credentials=_of_token(lambda: token(header={"jwk": MALLORY.as_dict(private=False)}))
    ),
    "a token of an hour": QUESTION.but(credentials=_of_token(lambda: token(**lasting(3600)))),
    "the scheme in lower case": QUESTION.but(credentials=lambda bench: [b"bearer " + bench.keys["reader"].encode()]),
    # `env` in a key is for people and secret scanners; the key id and the secret are what is checked.
    "a key with its environment respelled": QUESTION.but(
        credentials=_of_key(lambda bench: respelled(bench.keys["reader"], "test"))
    ),
}
