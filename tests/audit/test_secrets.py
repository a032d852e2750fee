"""The scanner itself: it finds what must never be recorded, and is silent about what always is."""

from __future__ import annotations

import pytest

from audit.record import encode, stamp
from tenancy.apikeys import mint
from tests.audit.secret_patterns import secrets_in
from tests.audit.test_record import FULL, WRITER

JWT = b"eyJhbGciOiJFUzI1NiIsInR5cCI6ImF0In0.eyJzdWIiOiJhbmEiLCJleHAiOjF9.c2lnbmF0dXJlLWJ5dGVz"


@pytest.mark.parametrize(
    "secret",
    [mint("live").text.encode(), JWT, b"-----BEGIN EC PRIVATE KEY-----", b"Authorization: Bearer abcdefgh12345678"],
    ids=["api key", "token", "private key", "header"],
)
def test_a_secret_is_found_in_a_record(secret: bytes) -> None:
    assert secrets_in(b'{"detail":{"header":"' + secret + b'"}}')


def test_an_ordinary_record_holds_none() -> None:
    assert not secrets_in(encode(stamp(FULL, seq=1, now=1.0, log="t_1", writer=WRITER)))
