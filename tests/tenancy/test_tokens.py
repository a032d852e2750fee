"""JSON Web Tokens: a table of forged ones, each beside the control that differs in the one thing and is accepted."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from joserfc import jws
from joserfc.jwk import ECKey, Key, OctKey, OKPKey, RSAKey

from tenancy.errors import InvalidInput, Unauthenticated, Unavailable
from tenancy.identity import Authenticator
from tenancy.jwks import REFRESH_S, parse_key_set
from tenancy.tokens import MAX_TOKEN_BYTES, Claims, Issuer, TokenRefused, TokenVerifier
from tests.support.people import Company

NOW = 1_764_430_000.0
ISS = "https://id.acme.example"
OTHER_ISS = "https://id.globex.example"
AUDIENCE = "strongroom"

RSA = RSAKey.generate_key(2048, {"kid": "acme-1", "use": "sig"})
RSA_OTHER = RSAKey.generate_key(2048, {"kid": "globex-1"})
EC = ECKey.generate_key("P-256", {"kid": "acme-ec"})
OKP = OKPKey.generate_key("Ed25519", {"kid": "acme-okp"})
OCT = OctKey.generate_key(256, {"kid": "shared"})

CLAIMS: dict[str, Any] = {
    "iss": ISS,
    "sub": "ana",
    "aud": AUDIENCE,
    "iat": int(NOW) - 10,
    "exp": int(NOW) + 600,
    "tenant": "acme",
    "groups": ["legal", "board"],
}
HEADER: dict[str, Any] = {"typ": "JWT", "alg": "RS256", "kid": "acme-1"}


def b64(data: bytes | str) -> str:
    raw = data.encode() if isinstance(data, str) else data
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def sign_text(header: str, payload: str | bytes, key: Key = RSA, alg: str = "RS256") -> str:
    """Sign any bytes as header and payload, so that forgeries are wrong in the one thing that is tested."""
    signing_input = f"{b64(header)}.{b64(payload)}"
    signature = jws.JWSRegistry.algorithms[alg].sign(signing_input.encode(), key)
    return f"{signing_input}.{b64(signature)}"


def token(
    claims: dict[str, Any] | None = None,
    *,
    drop: tuple[str, ...] = (),
    header: dict[str, Any] | None = None,
    key: Key = RSA,
    alg: str = "RS256",
) -> str:
    payload = {name: value for name, value in (CLAIMS | (claims or {})).items() if name not in drop}
    head = {name: value for name, value in (HEADER | {"alg": alg} | (header or {})).items() if value is not None}
    return sign_text(json.dumps(head), json.dumps(payload), key, alg)


def key_file(path: Path, *keys: Key, private: bool = False) -> str:
    path.write_text(json.dumps({"keys": [key.as_dict(private=private) for key in keys]}))
    return str(path)


@pytest.fixture
def issuers(tmp_path: Path) -> list[Issuer]:
    return [
        Issuer(
            iss=ISS,
            audience=AUDIENCE,
            algorithms=("RS256", "ES256", "Ed25519"),
            tenants=("acme", "acme-labs"),
            jwks=key_file(tmp_path / "acme.json", RSA, EC, OKP),
            groups="token",
            role_claim="roles",
            roles={"sr-admin": "admin", "sr-audit": "auditor"},
        ),
        Issuer(
            iss=OTHER_ISS,
            audience=AUDIENCE,
            algorithms=("RS256",),
            tenants=("globex",),
            jwks=key_file(tmp_path / "globex.json", RSA_OTHER),
        ),
    ]


@pytest.fixture
def verifier(issuers: list[Issuer]) -> TokenVerifier:
    return TokenVerifier(issuers, clock=lambda: NOW)


def public_pem_hmac() -> str:
    """RS256 -> HS256 confusion: the public key's PEM as the HMAC secret."""
    return hmac_signed(RSA.as_pem(private=False))


def hmac_signed(secret: bytes) -> str:
    signing_input = f"{b64(json.dumps(HEADER | {'alg': 'HS256'}))}.{b64(json.dumps(CLAIMS))}"
    signature = hmac.digest(secret, signing_input.encode(), hashlib.sha256)
    return f"{signing_input}.{b64(signature)}"


def unsigned(alg: str) -> str:
    return f"{b64(json.dumps(HEADER | {'alg': alg}))}.{b64(json.dumps(CLAIMS))}."


def payload_text(old: str, new: str) -> str:
    text = json.dumps(CLAIMS)
    assert old in text
    return sign_text(json.dumps(HEADER), text.replace(old, new))


def altered_payload() -> str:
    header, _, signature = token().split(".")
    return f"{header}.{b64(json.dumps(CLAIMS | {'sub': 'bo'}))}.{signature}"


MALLORY = RSAKey.generate_key(2048, {"kid": "acme-1"})
EXP = json.dumps(CLAIMS["exp"])

# By name: the forged token and its control.
FORGED: dict[str, tuple[Callable[[], str], Callable[[], str]]] = {
    "alg none": (lambda: unsigned("none"), token),
    "alg None, with an x as signature": (lambda: unsigned("nOnE") + "eA", token),
    "alg none, signed": (lambda: sign_text(json.dumps(HEADER | {"alg": "none"}), json.dumps(CLAIMS)), token),
    "HS256 with the public key": (public_pem_hmac, token),
    "HS256 with the public key's JWK": (lambda: hmac_signed(json.dumps(RSA.as_dict(private=False)).encode()), token),
    "HS256 with an empty secret": (lambda: hmac_signed(b""), token),
    "alg of the family, not listed": (lambda: token(alg="RS512"), token),
    "alg missing": (lambda: sign_text(json.dumps({"typ": "JWT", "kid": "acme-1"}), json.dumps(CLAIMS)), token),
    "alg a list": (lambda: token(header={"alg": ["RS256"]}), token),
    "alg of another key of the set": (
        lambda: token(header={"kid": "acme-ec"}),
        lambda: token(header={"kid": "acme-ec"}, key=EC, alg="ES256"),
    ),
    "another key under the known kid": (lambda: token(key=MALLORY), token),
    "payload changed after signing": (altered_payload, token),
    "signature cut": (lambda: token()[:-8], token),
    "signature of another token": (
        lambda: token().rpartition(".")[0] + "." + token({"sub": "bo"}).rpartition(".")[2],
        token,
    ),
    "embedded jwk": (
        lambda: token(header={"jwk": MALLORY.as_dict(private=False)}, key=MALLORY),
        lambda: token(header={"jwk": MALLORY.as_dict(private=False)}),
    ),
    "jku of the forger": (
        lambda: token(header={"jku": "https://evil.example/jwks", "kid": "evil"}, key=MALLORY),
        lambda: token(header={"jku": "https://evil.example/jwks"}),
    ),
    "x5u of the forger": (
        lambda: token(header={"x5u": "https://evil.example/chain", "kid": "evil"}, key=MALLORY),
        lambda: token(header={"x5u": "https://evil.example/chain"}),
    ),
    "kid missing": (lambda: token(header={"kid": None}), token),
    "kid a number": (lambda: token(header={"kid": 1}), token),
    "kid a path": (lambda: token(header={"kid": "../../dev/null"}), token),
    "kid of another issuer": (
        lambda: token(header={"kid": "globex-1"}, key=RSA_OTHER),
        lambda: token({"iss": OTHER_ISS, "tenant": "globex"}, header={"kid": "globex-1"}, key=RSA_OTHER),
    ),
    "iss of one, key of another": (
        lambda: token({"iss": OTHER_ISS, "tenant": "globex"}),
        lambda: token({"iss": OTHER_ISS, "tenant": "globex"}, header={"kid": "globex-1"}, key=RSA_OTHER),
    ),
    "another issuer's tenant": (
        lambda: token({"iss": OTHER_ISS, "tenant": "acme"}, header={"kid": "globex-1"}, key=RSA_OTHER),
        lambda: token({"iss": OTHER_ISS, "tenant": "globex"}, header={"kid": "globex-1"}, key=RSA_OTHER),
    ),
    "tenant not listed": (lambda: token({"tenant": "globex"}), lambda: token({"tenant": "acme-labs"})),
    "tenant a list": (lambda: token({"tenant": ["acme"]}), token),
    "tenant missing": (lambda: token(drop=("tenant",)), token),
    "iss unknown": (lambda: token({"iss": "https://evil.example"}), token),
    "iss with a slash more": (lambda: token({"iss": ISS + "/"}), token),
    "iss a list": (lambda: token({"iss": [ISS]}), token),
    "iss missing": (lambda: token(drop=("iss",)), token),
    "aud of another service": (lambda: token({"aud": "billing"}), token),
    "aud missing": (lambda: token(drop=("aud",)), token),
    "aud null": (lambda: token({"aud": None}), token),
    "aud a longer name": (lambda: token({"aud": AUDIENCE + "-eu"}), token),
    "aud a list with others": (lambda: token({"aud": [AUDIENCE, "billing"]}), lambda: token({"aud": [AUDIENCE]})),
    "aud an empty list": (lambda: token({"aud": []}), lambda: token({"aud": [AUDIENCE]})),
    "expired": (
        lambda: token({"iat": NOW - 900, "exp": NOW - 60}),
        lambda: token({"iat": NOW - 900, "exp": NOW - 59}),
    ),
    "exp missing": (lambda: token(drop=("exp",)), token),
    "exp true": (lambda: token({"exp": True}), token),
    "exp a string": (lambda: token({"exp": EXP}), token),
    "exp null": (lambda: token({"exp": None}), token),
    "exp NaN": (lambda: payload_text(EXP, "NaN"), token),
    "exp Infinity": (lambda: payload_text(EXP, "Infinity"), token),
    "exp 1e999": (lambda: payload_text(EXP, "1e999"), lambda: payload_text(EXP, EXP + ".0")),
    "exp of 5000 digits": (lambda: payload_text(EXP, "9" * 5000), token),
    "exp of 400 digits": (lambda: payload_text(EXP, "9" * 400), token),
    "exp negative": (lambda: token({"exp": -1}), token),
    "iat in the future": (lambda: token({"iat": NOW + 61}), lambda: token({"iat": NOW + 60})),
    "iat missing": (lambda: token(drop=("iat",)), token),
    "iat false": (lambda: token({"iat": False}), token),
    "exp before iat": (
        lambda: token({"iat": NOW + 20, "exp": NOW + 10}),
        lambda: token({"iat": NOW + 9, "exp": NOW + 10}),
    ),
    "lifetime over an hour": (
        lambda: token({"iat": NOW - 10, "exp": NOW + 3591}),
        lambda: token({"iat": NOW - 10, "exp": NOW + 3590}),
    ),
    "nbf in the future": (lambda: token({"nbf": NOW + 61}), lambda: token({"nbf": NOW + 60})),
    "nbf a string": (lambda: token({"nbf": "0"}), lambda: token({"nbf": 0})),
    "sub missing": (lambda: token(drop=("sub",)), token),
    "sub empty": (lambda: token({"sub": ""}), token),
    "sub a number": (lambda: token({"sub": 7}), token),
    "sub with a NUL": (lambda: token({"sub": "ana\x00"}), token),
    "sub a lone surrogate": (lambda: token({"sub": "\ud800"}), lambda: token({"sub": "anä"})),
    "typ missing": (lambda: token(header={"typ": None}), token),
    "typ of a logout token": (lambda: token(header={"typ": "logout+jwt"}), lambda: token(header={"typ": "at+jwt"})),
    "typ a number": (lambda: token(header={"typ": 1}), lambda: token(header={"typ": "application/at+JWT"})),
    "crit": (lambda: token(header={"crit": ["exp"], "exp": 1}), lambda: token(header={"exp": 1})),
    "crit empty": (lambda: token(header={"crit": []}), token),
    "b64 false": (lambda: token(header={"b64": False}), token),
    "duplicate member of the payload": (
        lambda: payload_text('"sub": "ana"', '"sub": "ana", "sub": "bo"'),
        lambda: payload_text('"sub": "ana"', '"sub": "bo"'),
    ),
    "duplicate member within": (
        lambda: payload_text('"sub": "ana"', '"sub": "ana", "x": {"a": 1, "a": 2}'),
        lambda: payload_text('"sub": "ana"', '"sub": "ana", "x": {"a": 1, "b": 2}'),
    ),
    "duplicate member of the header": (
        lambda: sign_text(json.dumps(HEADER)[:-1] + ', "alg": "RS256"}', json.dumps(CLAIMS)),
        lambda: sign_text(json.dumps(HEADER)[:-1] + ', "x": "RS256"}', json.dumps(CLAIMS)),
    ),
    "duplicate by an escape": (
        lambda: payload_text('"sub": "ana"', '"sub": "ana", "s\\u0075b": "bo"'),
        lambda: payload_text('"sub": "ana"', '"s\\u0075b": "ana"'),
    ),
    "payload a list": (lambda: sign_text(json.dumps(HEADER), json.dumps([CLAIMS])), token),
    "payload not JSON": (lambda: sign_text(json.dumps(HEADER), b"\xff\xfe"), token),
    "payload nested too deep": (lambda: sign_text(json.dumps(HEADER), "[" * 5000), token),
    "header nested too deep": (lambda: sign_text("[" * 4000, json.dumps(CLAIMS)), token),
    "header a string": (lambda: sign_text('"RS256"', json.dumps(CLAIMS)), token),
    "oversized": (
        lambda: token({"pad": "x" * MAX_TOKEN_BYTES}),
        lambda: token({"pad": "x" * (MAX_TOKEN_BYTES // 2)}),
    ),
    "empty": (lambda: "", token),
    "two dots": (lambda: "..", token),
    "empty payload": (lambda: token().split(".")[0] + ".." + token().split(".")[2], token),
    "empty header": (lambda: "." + token().partition(".")[2], token),
    "four parts": (lambda: token() + ".eA", token),
    "five parts, as if encrypted": (lambda: token() + ".eA.eA", token),
    "non-ASCII": (lambda: token() + "é", token),
    "a full-width digit": (lambda: token().replace(".", ".１", 1), token),
    "a lone surrogate": (lambda: token() + "\ud800", token),
    "white space at the end": (lambda: token() + "\n", token),
    "padding": (lambda: token() + "==", token),
    "JSON serialization": (lambda: json.dumps({"payload": "e30", "signatures": []}), token),
    "loose bits in the last character": (lambda: loosened(token()), token),
    "groups absent": (lambda: token(drop=("groups",)), lambda: token({"groups": []})),
    "groups null": (lambda: token({"groups": None}), lambda: token({"groups": []})),
    "groups a string": (lambda: token({"groups": "legal"}), lambda: token({"groups": ["legal"]})),
    "a group that is no string": (lambda: token({"groups": ["legal", 7]}), token),
    "an empty group name": (lambda: token({"groups": [""]}), token),
    "groups overflowed to a link": (
        lambda: token({"_claim_names": {"groups": "src1"}}, drop=("groups",)),
        lambda: token({"_claim_names": {"photo": "src1"}}),
    ),
    "groups overflowed and some given": (lambda: token({"_claim_names": {"groups": "src1"}}), token),
    "claim names of a wrong type": (lambda: token({"_claim_names": ["groups"]}), token),
    "hasgroups": (lambda: token({"hasgroups": True}), lambda: token({"hasgroups": False})),
    "hasgroups a string": (lambda: token({"hasgroups": "true"}), token),
    "roles a map": (lambda: token({"roles": {"sr-admin": True}}), lambda: token({"roles": ["sr-admin"]})),
    "roles not strings": (lambda: token({"roles": [1]}), lambda: token({"roles": "sr-admin"})),
    "jti not a string": (lambda: token({"jti": 9}), lambda: token({"jti": "9"})),
    "jti with a line feed": (lambda: token({"jti": "9\nfake log line"}), lambda: token({"jti": "9"})),
}


def loosened(text: str) -> str:
    """The same signature bytes in another spelling: unused bits of the last base64url character set."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    return text[:-1] + alphabet[alphabet.index(text[-1]) | 1]


@pytest.mark.parametrize("name", FORGED)
def test_forged_token_is_refused_and_its_control_accepted(verifier: TokenVerifier, name: str) -> None:
    forged, control = (make() for make in FORGED[name])
    assert verifier.verify(control).tenant in {"acme", "acme-labs", "globex"}
    assert forged != control
    with pytest.raises(Unauthenticated) as refused:
        verifier.verify(forged)
    assert isinstance(refused.value, TokenRefused)
    said = f"{refused.value} {refused.value.detail}"
    assert said.isascii()
    assert len(said) < 250
    for part in forged.split("."):
        assert len(part) < 8 or part not in said


def test_the_table_is_long_enough() -> None:
    assert len(FORGED) >= 30


def test_claims_of_a_good_token(verifier: TokenVerifier) -> None:
    assert verifier.verify(token({"jti": "t-1", "roles": ["sr-audit", "unknown"]})) == Claims(
        tenant="acme",
        user="ana",
        groups=frozenset({"legal", "board"}),
        roles=frozenset({"reader", "auditor"}),
        work="interactive",
        issuer=ISS,
        token_id="t-1",
    )


def test_a_class_is_what_the_issuer_s_own_claim_says(issuers: list[Issuer]) -> None:
    classed = msgspec.structs.replace(issuers[0], class_claim="class")
    verifier = TokenVerifier([classed], clock=lambda: NOW)
    for given, work in (({"class": "batch"}, "batch"), ({"class": "interactive"}, "interactive"), ({}, "interactive")):
        assert verifier.verify(token(given)).work == work
    for wrong in ("fast", "", None, True, ["batch"]):
        with pytest.raises(TokenRefused):
            verifier.verify(token({"class": wrong}))
    # An issuer of which nobody said so chooses no class.
    assert TokenVerifier([issuers[0]], clock=lambda: NOW).verify(token({"class": "batch"})).work == "interactive"


def test_a_token_s_class_is_its_bearer_s(acme: Company, issuers: list[Issuer]) -> None:
    classed = msgspec.structs.replace(issuers[0], class_claim="class")
    authenticator = Authenticator(acme.tenants, tokens=TokenVerifier([classed], clock=lambda: NOW))
    assert authenticator.authenticate(token({"class": "batch"}), "127.0.0.1").work == "batch"
    assert authenticator.authenticate(token(), "127.0.0.1").work == "interactive"


def test_names_are_normalised(verifier: TokenVerifier) -> None:
    claims = verifier.verify(token({"sub": "Jose\u0301", "groups": ["e\u0301quipe", "\u00e9quipe"]}))
    assert claims.user == "Jos\u00e9"
    assert claims.groups == frozenset({"\u00e9quipe"})


def test_a_token_without_jti_is_named_by_a_hash(verifier: TokenVerifier) -> None:
    first, second = verifier.verify(token()), verifier.verify(token({"sub": "bo"}))
    assert first.token_id.startswith("sha256:")
    assert first.token_id != second.token_id
    assert first.token_id == verifier.verify(token()).token_id


@pytest.mark.parametrize(
    ("key", "alg", "kid"), [(RSA, "RS256", "acme-1"), (EC, "ES256", "acme-ec"), (OKP, "Ed25519", "acme-okp")]
)
def test_every_configured_algorithm_works(verifier: TokenVerifier, key: Key, alg: str, kid: str) -> None:
    assert verifier.verify(token(key=key, alg=alg, header={"kid": kid})).user == "ana"


def test_symmetric_issuer_from_a_file(tmp_path: Path) -> None:
    issuer = Issuer(
        iss=ISS, audience=AUDIENCE, algorithms=("HS256",), tenants=("acme",),
        jwks=key_file(tmp_path / "secret.json", OCT, private=True),
    )  # fmt: skip
    verifier = TokenVerifier([issuer], clock=lambda: NOW)
    good = token(key=OCT, alg="HS256", header={"kid": "shared"})
    assert verifier.verify(good).groups is None
    with pytest.raises(Unauthenticated):
        verifier.verify(token(header={"kid": "shared"}))


def test_directory_groups_ignore_the_claim_even_when_it_overflowed(issuers: list[Issuer]) -> None:
    directory = msgspec.structs.replace(issuers[0], groups="directory")
    verifier = TokenVerifier([directory], clock=lambda: NOW)
    assert verifier.verify(token()).groups is None
    assert verifier.verify(token({"_claim_names": {"groups": "s"}}, drop=("groups",))).groups is None


def test_without_a_role_claim_every_token_is_a_reader(issuers: list[Issuer]) -> None:
    plain = msgspec.structs.replace(issuers[0], role_claim=None, roles={})
    verifier = TokenVerifier([plain], clock=lambda: NOW)
    assert verifier.verify(token({"roles": ["sr-admin", "admin"]})).roles == {"reader"}


def test_user_claim_other_than_sub_still_needs_sub(issuers: list[Issuer]) -> None:
    verifier = TokenVerifier([msgspec.structs.replace(issuers[0], user_claim="upn")], clock=lambda: NOW)
    assert verifier.verify(token({"upn": "ana@acme.example"})).user == "ana@acme.example"
    for wrong in (token(), token({"upn": "ana@acme.example"}, drop=("sub",))):
        with pytest.raises(Unauthenticated):
            verifier.verify(wrong)


@pytest.mark.parametrize(
    ("one", "other", "accepted"),
    [("", "", False), ("", "b:", False), ("a:", "a:b:", False), ("a:", "b:", True), ("same:", "same:", True)],
)
def test_two_issuers_of_one_tenant_do_not_name_each_others_users(
    issuers: list[Issuer], one: str, other: str, accepted: bool
) -> None:
    first = msgspec.structs.replace(issuers[0], user_prefix=one)
    second = msgspec.structs.replace(issuers[1], user_prefix=other, tenants=("globex", "acme"))
    if not accepted:
        with pytest.raises(InvalidInput, match="each other's users of acme"):
            TokenVerifier([first, second])
        return
    assert TokenVerifier([first, second], clock=lambda: NOW).verify(token()).user == f"{one}ana"


def test_issuers_of_different_tenants_need_no_prefix(issuers: list[Issuer]) -> None:
    assert TokenVerifier(issuers, clock=lambda: NOW).verify(token()).user == "ana"


BASE: dict[str, Any] = {
    "iss": ISS, "audience": AUDIENCE, "algorithms": ["RS256"], "tenants": ["acme"], "jwks_url": "https://id.example/jwks",
}  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        {"algorithms": []},
        {"algorithms": ["none"]},
        {"algorithms": ["RS256", "none"]},
        {"algorithms": ["RS256", "HS256"]},
        {"algorithms": ["HS256"]},
        {"algorithms": ["dir"]},
        {"algorithms": "RS256"},
        {"tenants": []},
        {"audience": ""},
        {"iss": ""},
        {"jwks": "also-a-file.json"},
        {"jwks_url": None},
        {"jwks_url": "http://id.example/jwks"},
        {"jwks_url": "file:///etc/passwd"},
        {"jwks_url": "https://"},
        {"groups": "both"},
        {"role_claim": "roles"},
        {"class_claim": ""},
        {"roles": {"x": "admin"}},
        {"role_claim": "roles", "roles": {"x": "root"}},
        {"max_skew_s": 61},
        {"max_lifetime_s": 3601},
        {"max_lifetime_s": 0},
        {"leeway": 5},
    ],
)
def test_unsafe_configuration_is_refused(change: dict[str, Any]) -> None:
    assert msgspec.convert(BASE, Issuer).iss == ISS
    assert msgspec.convert(BASE | {"jwks_url": "http://127.0.0.1:8080/jwks"}, Issuer).iss == ISS
    with pytest.raises((InvalidInput, msgspec.ValidationError)):
        msgspec.convert(BASE | change, Issuer)


def test_verifier_refuses_what_cannot_work(tmp_path: Path, issuers: list[Issuer]) -> None:
    with pytest.raises(InvalidInput, match="share one iss"):
        TokenVerifier([issuers[0], issuers[0]])
    with pytest.raises(InvalidInput, match="cannot be read"):
        TokenVerifier([msgspec.structs.replace(issuers[0], jwks=str(tmp_path / "missing.json"))])
    with pytest.raises(InvalidInput, match="fetch"):
        TokenVerifier([msgspec.convert(BASE, Issuer)])


# --- Key sets ----------------------------------------------------------------------------------------------------


class Server:
    """A key set behind a URL, with a count of its reads."""

    def __init__(self, *keys: Key) -> None:
        self.keys = keys
        self.calls: list[str] = []
        self.away = False

    def __call__(self, url: str) -> bytes:
        self.calls.append(url)
        if self.away:
            raise ConnectionError
        return json.dumps({"keys": [key.as_dict(private=False) for key in self.keys]}).encode()


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def remote(server: Callable[[str], bytes], clock: Clock) -> TokenVerifier:
    return TokenVerifier([msgspec.convert(BASE, Issuer)], server, clock=lambda: NOW, monotonic=clock)


def test_unknown_kid_reads_the_set_again_once_a_minute_at_most() -> None:
    server, clock = Server(RSA), Clock()
    verifier = remote(server, clock)
    assert verifier.verify(token()).user == "ana"
    assert server.calls == ["https://id.example/jwks"]
    for n in range(50):
        with pytest.raises(Unauthenticated):
            verifier.verify(token(header={"kid": f"random-{n}"}))
    assert len(server.calls) == 1
    clock.now += REFRESH_S
    new = RSAKey.generate_key(2048, {"kid": "acme-2"})
    server.keys = (RSA, new)
    assert verifier.verify(token(key=new, header={"kid": "acme-2"})).user == "ana"
    assert verifier.verify(token()).user == "ana"
    assert len(server.calls) == 2


def test_a_key_taken_out_of_the_set_stops_working_at_the_next_read() -> None:
    server, clock = Server(RSA, RSA_OTHER), Clock()
    verifier = remote(server, clock)
    verifier.verify(token())
    server.keys, clock.now = (RSA_OTHER,), clock.now + REFRESH_S
    with pytest.raises(Unauthenticated):
        verifier.verify(token(header={"kid": "unknown"}))
    with pytest.raises(Unauthenticated):
        verifier.verify(token())


def test_issuer_away_keeps_known_keys_and_is_unavailable_for_others() -> None:
    server, clock = Server(RSA), Clock()
    verifier = remote(server, clock)
    verifier.verify(token())
    server.away, clock.now = True, clock.now + REFRESH_S
    with pytest.raises(Unavailable):
        verifier.verify(token(header={"kid": "unknown"}))
    assert verifier.verify(token()).user == "ana"
    server.away, clock.now = False, clock.now + REFRESH_S
    with pytest.raises(Unauthenticated):
        verifier.verify(token(header={"kid": "unknown"}))


def test_a_broken_set_replaces_nothing() -> None:
    clock = Clock()
    answers = [Server(RSA)("x"), b"<html>", b'{"keys": 7}', b'{"keys": []}', b"[" * 100_000]
    verifier = remote(lambda _url: answers.pop(0), clock)
    verifier.verify(token())
    while answers:
        clock.now += REFRESH_S
        with pytest.raises(Unavailable):
            verifier.verify(token(header={"kid": "unknown"}))
        assert verifier.verify(token()).user == "ana"


def test_many_threads_read_the_set_once() -> None:
    server, begun, go = Server(RSA), threading.Event(), threading.Event()

    def slow(url: str) -> bytes:
        begun.set()
        assert go.wait(10)
        return server(url)

    verifier, users = remote(slow, Clock()), []
    good = token()
    threads = [threading.Thread(target=lambda: users.append(verifier.verify(good).user)) for _ in range(8)]
    for thread in threads:
        thread.start()
    assert begun.wait(10)
    go.set()
    for thread in threads:
        thread.join()
    assert users == ["ana"] * 8
    assert len(server.calls) == 1


def test_key_file_is_read_again_after_rotation(tmp_path: Path) -> None:
    path, clock = tmp_path / "keys.json", Clock()
    issuer = msgspec.convert(BASE | {"jwks_url": None, "jwks": key_file(path, RSA_OTHER)}, Issuer)
    verifier = TokenVerifier([issuer], clock=lambda: NOW, monotonic=clock)
    with pytest.raises(Unauthenticated):
        verifier.verify(token())
    key_file(path, RSA)
    clock.now += REFRESH_S
    assert verifier.verify(token()).user == "ana"


def test_unusable_keys_are_left_out_of_a_set() -> None:
    encryption = RSA_OTHER.as_dict(private=False) | {"use": "enc"}
    nameless = {name: value for name, value in RSA_OTHER.as_dict(private=False).items() if name != "kid"}
    weak = {"kty": "RSA", "kid": "weak", "e": "AQAB", "n": b64(b"\xc5" * 128)}
    members: list[Any] = [
        RSA.as_dict(private=False), encryption, nameless, weak, EC.as_dict(private=False), OCT.as_dict(),
        {"kty": "AKP", "kid": "later"}, {"kid": "no-type"}, {"kty": "RSA", "kid": "broken", "n": "!", "e": "AQAB"}, 7,
        {"kty": "EC", "kid": "curve", "crv": "P-192", "x": "AA", "y": "AA"},
        RSA_OTHER.as_dict(private=False) | {"alg": "RS512", "kid": "other-alg"},
        RSA_OTHER.as_dict(private=False) | {"key_ops": ["encrypt"], "kid": "other-op"},
    ]  # fmt: skip
    assert set(parse_key_set(json.dumps({"keys": members}).encode(), ["RS256"])) == {"acme-1"}
    short = OctKey.generate_key(128, {"kid": "short"}).as_dict()
    assert set(parse_key_set(json.dumps({"keys": [short, OCT.as_dict()]}).encode(), ["HS256"])) == {"shared"}
    with pytest.raises(InvalidInput, match="no usable key"):
        parse_key_set(json.dumps({"keys": members[1:4]}).encode(), ["RS256"])
    twice = [RSA.as_dict(private=False), RSA_OTHER.as_dict(private=False) | {"kid": "acme-1"}]
    with pytest.raises(InvalidInput, match="share one kid"):
        parse_key_set(json.dumps({"keys": twice}).encode(), ["RS256"])
