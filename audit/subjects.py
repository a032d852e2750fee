"""A random key per data subject, so that erasing a person is destroying a key while every proof still verifies.

The keys are in the audit's own encrypted file, wrapped once more under a key bound to their subject. Each sealed text
carries a commitment HMAC-SHA256(r, field, text) with its own random r, which lies only inside the ciphertext: one
text can be proved to a third party without opening another, and after erasure nobody can test a guess.
"""

from __future__ import annotations

import base64
import binascii
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Final

from sqlalchemy import Column, Float, Index, LargeBinary, MetaData, Table, insert, select, update
from sqlalchemy.engine import Connection

from audit.record import Sealed
from tenancy.errors import Corrupt, NotFound
from tenancy.keys import KEY_BYTES, decrypt, encrypt, keyed_hash
from tenancy.names import enc
from tenancy.tenant import AuditFiles
from tenancy.types import Text, partial_index

SUBJECTS_FILE: Final = "subjects.sqlite"
_SALT_BYTES: Final = 32
# For so long another process may go on sealing under a key that was destroyed: unreadable, as if erased at once.
_REMEMBER_S: Final = 5.0
_REMEMBERED: Final = 1_024

metadata = MetaData()

subject_keys = Table(
    "subject_keys",
    metadata,
    Column("id", Text, primary_key=True),
    Column("subject", Text, nullable=False),
    Column("wrapped", LargeBinary),
    Column("created", Float, nullable=False),
    Column("destroyed", Float),
)
partial_index("one_live_key_per_subject", subject_keys.c.subject, where=subject_keys.c.destroyed.is_(None), unique=True)
Index("keys_of_subject", subject_keys.c.subject)


class Erased(NotFound):
    """The subject's key was destroyed: the text cannot be read again by anybody."""

    code = "erased"


class SubjectKeys:
    """The subject keys of one audit log. `subject` arguments are references made by `ref`."""

    def __init__(self, files: AuditFiles, *, clock: Callable[[], float] = time.time) -> None:
        self._database = files.database(SUBJECTS_FILE, metadata)
        self._reference_key = files.purpose("subjects/reference")
        self._wrapping_key = files.purpose("subjects/wrap")
        self._clock = clock
        self._recent: dict[str, tuple[float, str, bytes]] = {}

    def ref(self, user_id: str) -> str:
        """The keyed reference of a user id: the same in all events of this log, meaningless outside of it."""
        return f"u_{keyed_hash(self._reference_key, user_id)[:16].hex()}"

    def seal(self, subject: str, texts: Mapping[str, str]) -> dict[str, Sealed]:
        """Seal the text of each field under the subject's live key, which is made at first use."""
        if not texts:
            return {}
        key_id, key = self._recent_key(subject)
        sealed = {}
        for field, text in texts.items():
            # A lone surrogate has no UTF-8 form, and a malformed question must still be on record.
            data = text.encode("utf-8", "backslashreplace")
            salt = secrets.token_bytes(_SALT_BYTES)
            ciphertext = encrypt(key, salt + data, enc(subject, field))
            sealed[field] = Sealed(
                commit=keyed_hash(salt, field, data).hex(), ct=base64.b64encode(ciphertext).decode(), key=key_id
            )
        return sealed

    def open(self, subject: str, field: str, sealed: Sealed) -> str:
        """The text of a sealed field. Raises `Erased`, or `Corrupt` where ciphertext or commitment do not fit."""
        with self._database.reading() as connection:
            row = connection.execute(
                select(subject_keys.c.wrapped).where(subject_keys.c.id == sealed.key, subject_keys.c.subject == subject)
            ).one_or_none()
        if row is None:
            raise Corrupt("a sealed text names a key that its subject never had", item=field)
        if row.wrapped is None:
            raise Erased("the text was erased", item=field)
        key = decrypt(self._wrapping_key, row.wrapped, enc(subject, sealed.key))
        try:
            ciphertext = base64.b64decode(sealed.ct, validate=True)
        except (binascii.Error, ValueError):
            raise Corrupt("a sealed text is not base64", item=field) from None
        opened = decrypt(key, ciphertext, enc(subject, field))
        salt, data = opened[:_SALT_BYTES], opened[_SALT_BYTES:]
        if keyed_hash(salt, field, data).hex() != sealed.commit:
            raise Corrupt("a sealed text does not fit its commitment", item=field)
        return data.decode("utf-8")

    def destroy(self, subject: str) -> int:
        """Destroy all keys of `subject`, also in the write-ahead log; returns how many there were.

        Text sealed later gets a new key: erasure concerns what was recorded, not what is recorded next.
        """
        live = (subject_keys.c.subject == subject) & subject_keys.c.destroyed.is_(None)
        with self._database.writing() as connection:
            destroyed = connection.execute(
                update(subject_keys).where(live).values(wrapped=None, destroyed=self._clock())
            )
        self._recent.pop(subject, None)
        self._database.truncate_wal()
        return destroyed.rowcount

    def _recent_key(self, subject: str) -> tuple[str, bytes]:
        until, key_id, key = self._recent.get(subject, (0.0, "", b""))
        if until > time.monotonic():
            return key_id, key
        key_id, key = self._live_key(subject)
        if len(self._recent) >= _REMEMBERED:
            self._recent.clear()
        self._recent[subject] = (time.monotonic() + _REMEMBER_S, key_id, key)
        return key_id, key

    def _live_key(self, subject: str) -> tuple[str, bytes]:
        with self._database.reading() as connection:
            found = self._find(connection, subject)
        if found is not None:
            return found
        with self._database.writing() as connection:
            found = self._find(connection, subject)
            if found is not None:
                return found
            key_id, key = f"k_{secrets.token_hex(12)}", secrets.token_bytes(KEY_BYTES)
            wrapped = encrypt(self._wrapping_key, key, enc(subject, key_id))
            connection.execute(
                insert(subject_keys).values(id=key_id, subject=subject, wrapped=wrapped, created=self._clock())
            )
        return key_id, key

    def _find(self, connection: Connection, subject: str) -> tuple[str, bytes] | None:
        row = connection.execute(
            select(subject_keys.c.id, subject_keys.c.wrapped).where(
                subject_keys.c.subject == subject, subject_keys.c.destroyed.is_(None)
            )
        ).one_or_none()
        return None if row is None else (row.id, decrypt(self._wrapping_key, row.wrapped, enc(subject, row.id)))
