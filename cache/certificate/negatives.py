"""Pairs of questions that were found to have different answers: never one for the other again, in this tenant.

Beside them the entries that were found wrong, so that one which could not be removed is not served either.

Kept as a keyed hash of both normalised questions, in whichever order, under a key of the tenant that outlives a change
of the data key. So the table tells nobody what was asked, and an entry that comes back under another id is refused.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import bindparam, insert, select, update

from cache.certificate.retention import ENTRY, RECORDS, keep
from cache.key import normalise_question
from tenancy.cache_schema import cache_negatives
from tenancy.keys import keyed_hash
from tenancy.prepared import Prepared
from tenancy.tenant import ReadView, TenantHandle, WriteView

_PURPOSE: Final = "cache-negatives"
_ENTRIES: Final = "cache-refused-entries"
CONFIRMING: Final = frozenset({"shadow", "operator"})
"""Who finds a pair wrong beside its asker: the judge, and an operator."""
_KNOWN: Final = Prepared(select(cache_negatives.c.at).where(cache_negatives.c.pair == bindparam("wanted")))


def pair_of(tenant: TenantHandle, question: str, cached: str) -> bytes:
    """32 bytes, the same for both orders."""
    first, second = sorted((normalise_question(question), normalise_question(cached)))
    return keyed_hash(tenant.audit.purpose(_PURPOSE), first, second)


def add(view: WriteView, pair: bytes, *, source: str, now: float, records: int = RECORDS) -> None:
    """Remember a pair, for as long as there are no more than `records`; `source` says who found it (`shadow`,
    `feedback`, `operator`), and what one asker said is confirmed by another.
    """
    if not _known(view, pair):
        view.execute(insert(cache_negatives).values(pair=pair, at=now, source=source))
        keep(view, cache_negatives, records)
    elif source in CONFIRMING:
        view.execute(
            update(cache_negatives)
            .where(cache_negatives.c.pair == pair, cache_negatives.c.source == "feedback")
            .values(source=source)
        )


def refuse(view: WriteView, entry_id: str, *, now: float, records: int = RECORDS) -> None:
    """Never serve this entry again, whatever question it would answer."""
    add(view, _entry_key(view.tenant, entry_id), source=ENTRY, now=now, records=records)


def refused(view: ReadView, entry_id: str) -> bool:
    return _known(view, _entry_key(view.tenant, entry_id))


def known(view: ReadView, question: str, cached: str) -> bool:
    return _known(view, pair_of(view.tenant, question, cached))


def count(view: ReadView) -> int:
    """Of pairs."""
    return len(view.execute(select(cache_negatives.c.pair).where(cache_negatives.c.source != ENTRY)).all())


def _entry_key(tenant: TenantHandle, entry_id: str) -> bytes:
    return keyed_hash(tenant.audit.purpose(_ENTRIES), entry_id)


def _known(view: ReadView, pair: bytes) -> bool:
    return bool(view.rows(_KNOWN, {"wanted": pair}))
