"""Where a listing goes on: a position in one log, bound to that log and to what was asked by a keyed hash."""

from __future__ import annotations

import base64
import binascii
import hmac
from typing import Final

from audit.log import AuditLog
from tenancy.errors import InvalidInput
from tenancy.keys import keyed_hash

_MAC_BYTES: Final = 16
_NUMBER: Final = 8


def cursor(log: AuditLog, about: bytes, *position: int) -> str:
    """The text of `position`, one or more numbers of 64 bits; `about` is what was asked."""
    data = b"".join(number.to_bytes(_NUMBER, "big") for number in position)
    return base64.urlsafe_b64encode(data + _mac(log, about, data)).decode()


def position_of(log: AuditLog, about: bytes, text: str, count: int) -> tuple[int, ...]:
    """The `count` numbers of a cursor. Raises `InvalidInput` for one of another log, or of another question."""
    try:
        found = base64.b64decode(text, altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        found = b""
    data, mac = found[: count * _NUMBER], found[count * _NUMBER :]
    if len(data) != count * _NUMBER or not hmac.compare_digest(mac, _mac(log, about, data)):
        raise InvalidInput(
            "the cursor does not belong to this query",
            item="after",
            remedy="repeat the filters of the page that gave it, or leave it out to start again",
        )
    return tuple(int.from_bytes(data[at : at + _NUMBER], "big") for at in range(0, len(data), _NUMBER))


def _mac(log: AuditLog, about: bytes, data: bytes) -> bytes:
    return keyed_hash(log.files.purpose("cursor"), log.log_id, about, data)[:_MAC_BYTES]
