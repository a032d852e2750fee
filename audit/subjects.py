"""A random key per data subject, so that erasing a person is destroying a key while every proof still verifies.

The keys are in the audit's own encrypted file, wrapped once more under a key bound to their subject. Each sealed text
carries a commitment HMAC-SHA256(r, field, text) with its own random r, which lies only inside the ciphertext: one
text can be proved to a third party without opening another, and after erasure nobody can test a guess.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import secrets
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from sqlalchemy import Select, insert, select, update
from sqlalchemy.engine import Connection

from audit.holds import Holds, active
from audit.record import Sealed
from audit.subject_tables import SUBJECTS, erasures, metadata, receipts, subject_keys
from audit.subject_tables import SUBJECTS_FILE as SUBJECTS_FILE
from tenancy.errors import Corrupt, NotFound
from tenancy.keys import KEY_BYTES, decrypt, encrypt, keyed_hash
from tenancy.names import enc
from tenancy.tenant import AuditFiles
from tenancy.types import among

ERASED: Final = "erased"
"""The outcome that a receipt has when everything is gone."""

_SALT_BYTES: Final = 32
# For so long another process may go on sealing under a key that was destroyed: unreadable, as if erased at once.
_REMEMBER_S: Final = 5.0
_REMEMBERED: Final = 1_024
_WRAPPED: Final = select(subject_keys.c.id, subject_keys.c.subject, subject_keys.c.wrapped).where(
    among(subject_keys.c.id, "ids")
)


class Erased(NotFound):
    """The subject's key was destroyed: the text cannot be read again by anybody."""

    code = "erased"


class SubjectKeys:
    """The subject keys of one audit log. `subject` arguments are references made by `ref`."""

    def __init__(self, files: AuditFiles, *, clock: Callable[[], float] = time.time) -> None:
        self._database = files.database(SUBJECTS_FILE, metadata, migrations=SUBJECTS)
        self._reference_key = files.purpose("subjects/reference")
        self._wrapping_key = files.purpose("subjects/wrap")
        self._clock = clock
        self._file = files.directory / SUBJECTS_FILE
        self._recent: dict[str, tuple[float, str, bytes]] = {}
        self.holds = Holds(self._database, clock)

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
        return _text(self._stored_key(subject, field, sealed), subject, field, sealed)

    def reader(self) -> SubjectReader:
        """Opens many texts, as one listing shows them."""
        return SubjectReader(self._stored_key, self._stored_keys)

    def _stored_keys(self, ids: Collection[str]) -> dict[tuple[str, str], bytes | Erased]:
        """Many keys by (subject, id); one that is missing or cannot be unwrapped is left out."""
        with self._database.reading() as connection:
            rows = connection.execute(_WRAPPED, {"ids": ids}).all()
        found: dict[tuple[str, str], bytes | Erased] = {}
        for row in rows:
            if row.wrapped is None:
                found[row.subject, row.id] = Erased("the text was erased")
                continue
            with contextlib.suppress(Corrupt):
                found[row.subject, row.id] = decrypt(self._wrapping_key, row.wrapped, enc(row.subject, row.id))
        return found

    def _stored_key(self, subject: str, field: str, sealed: Sealed) -> bytes:
        with self._database.reading() as connection:
            row = connection.execute(
                select(subject_keys.c.wrapped).where(subject_keys.c.id == sealed.key, subject_keys.c.subject == subject)
            ).one_or_none()
        if row is None:
            raise Corrupt("a sealed text names a key that its subject never had", item=field)
        if row.wrapped is None:
            raise Erased("the text was erased", item=field)
        return decrypt(self._wrapping_key, row.wrapped, enc(subject, sealed.key))

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

    def erase(self, subject: str, free: Collection[str], *, user: str | None = None, name: str = "") -> int | None:
        """Destroy all keys of `subject` for good: what is sealed for it from now on is unreadable too. Returns how many
        keys that were; asked again, 0. `user` (its id) and `name` are remembered until `finish`, so that an erasure
        that is cut short can be taken up.

        `free` are the ids of active holds that do not keep it. Where there is another one, which was placed meanwhile,
        nothing is destroyed and None returned.
        """
        live = (subject_keys.c.subject == subject) & subject_keys.c.wrapped.is_not(None)
        now = self._clock()
        with self._database.writing() as connection:
            if any(hold.id not in free for hold in active(connection)):
                return None
            gone = connection.execute(update(subject_keys).where(live).values(wrapped=None, destroyed=now)).rowcount
            known = connection.execute(select(erasures.c.at).where(erasures.c.subject == subject)).one_or_none()
            if known is None:
                hashed = self._name(name) if name else None
                connection.execute(insert(erasures).values(subject=subject, at=now, name=hashed, user=user))
        self._recent.pop(subject, None)
        self._database.truncate_wal()
        return gone

    def erase_traces(self) -> None:
        """Take what was destroyed out of the write-ahead log, where there is a file."""
        if self._file.exists():
            self._database.truncate_wal()

    def known(self, subject: str) -> bool:
        """Whether this log ever had a key of `subject`."""
        with self._database.reading() as connection:
            query = select(subject_keys.c.id).where(subject_keys.c.subject == subject).limit(1)
            return connection.execute(query).first() is not None

    def unfinished(self, name: str) -> tuple[str, str | None] | None:
        """Subject and user id of an erasure of `name` that was begun and has no receipt yet."""
        query = select(erasures.c.subject, erasures.c.user).where(erasures.c.name == self._name(name))
        with self._database.reading() as connection:
            row = connection.execute(query.order_by(erasures.c.at)).first()
        return None if row is None else (row.subject, row.user)

    def begun(self, subject: str) -> float | None:
        """When the erasure of `subject` was begun that has no receipt yet: the keys are gone since then. UTC epoch
        seconds.
        """
        with self._database.reading() as connection:
            at = connection.execute(select(erasures.c.at).where(erasures.c.subject == subject)).scalar_one_or_none()
        done = any(receipt["outcome"] == ERASED for receipt in self.receipts(subject=subject))
        return None if done else at

    def finish(self, subject: str, receipt: Mapping[str, Any]) -> None:
        """Keep a receipt, which has an `id`. Where it says that the subject is erased, the name is now forgotten here
        too; one that was held is still to be found by it.
        """
        with self._database.writing() as connection:
            if receipt["outcome"] == ERASED:
                connection.execute(update(erasures).where(erasures.c.subject == subject).values(name=None, user=None))
            connection.execute(
                insert(receipts).values(id=receipt["id"], subject=subject, made=self._clock(), receipt=dict(receipt))
            )
        self._database.truncate_wal()

    def receipts(self, *, receipt_id: str | None = None, subject: str | None = None) -> list[dict[str, Any]]:
        """Receipts of erasures, the oldest first: all, one, or those of a subject."""
        query: Select[Any] = select(receipts.c.receipt).order_by(receipts.c.made, receipts.c.id)
        if receipt_id is not None:
            query = query.where(receipts.c.id == receipt_id)
        if subject is not None:
            query = query.where(receipts.c.subject == subject)
        with self._database.reading() as connection:
            return list(connection.execute(query).scalars())

    def _name(self, name: str) -> str:
        return keyed_hash(self._reference_key, "name", name).hex()

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
            row: dict[str, Any] = {"id": key_id, "subject": subject, "created": self._clock()}
            if connection.execute(select(erasures.c.at).where(erasures.c.subject == subject)).first() is None:
                row["wrapped"] = encrypt(self._wrapping_key, key, enc(subject, key_id))
            else:
                # Of a request that outlived its asker: on record, and readable by nobody from the start.
                row["destroyed"] = row["created"]
            connection.execute(insert(subject_keys).values(row))
        return key_id, key

    def _find(self, connection: Connection, subject: str) -> tuple[str, bytes] | None:
        row = connection.execute(
            select(subject_keys.c.id, subject_keys.c.wrapped).where(
                subject_keys.c.subject == subject, subject_keys.c.destroyed.is_(None)
            )
        ).one_or_none()
        return None if row is None else (row.id, decrypt(self._wrapping_key, row.wrapped, enc(subject, row.id)))


class SubjectReader:
    """Reads each key once. For one listing: of what is erased meanwhile it may still show what it has begun to read."""

    def __init__(
        self,
        stored_key: Callable[[str, str, Sealed], bytes],
        stored_keys: Callable[[Collection[str]], dict[tuple[str, str], bytes | Erased]],
    ) -> None:
        self._stored_key = stored_key
        self._stored_keys = stored_keys
        self._known: dict[tuple[str, str], bytes | Erased] = {}

    def load(self, ids: Collection[str]) -> None:
        """Read the keys of these ids at once."""
        missing = set(ids) - {key_id for _, key_id in self._known}
        if missing:
            self._known |= self._stored_keys(missing)

    def open(self, subject: str, field: str, sealed: Sealed) -> str:
        """As `SubjectKeys.open`."""
        place = (subject, sealed.key)
        if place not in self._known:
            try:
                self._known[place] = self._stored_key(subject, field, sealed)
            except Erased as erased:
                self._known[place] = erased
        key = self._known[place]
        if isinstance(key, Erased):
            raise Erased(key.reason, item=field)
        return _text(key, subject, field, sealed)


def _text(key: bytes, subject: str, field: str, sealed: Sealed) -> str:
    try:
        ciphertext = base64.b64decode(sealed.ct, validate=True)
    except (binascii.Error, ValueError):
        raise Corrupt("a sealed text is not base64", item=field) from None
    opened = decrypt(key, ciphertext, enc(subject, field))
    salt, data = opened[:_SALT_BYTES], opened[_SALT_BYTES:]
    if keyed_hash(salt, field, data).hex() != sealed.commit:
        raise Corrupt("a sealed text does not fit its commitment", item=field)
    return data.decode("utf-8")
