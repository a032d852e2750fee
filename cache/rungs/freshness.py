"""Freshness: may this principal still be given this answer, in the state that the view sees?

Equal epochs are no short cut. They would be sound while a tenant's database only moves forward, but a restored
backup repeats its counters; one indexed query per candidate is the price of not depending on that.

The answer to a deleted user's question is nobody's any more: it is purged with the user (`strongroom user delete`), and
what a crash left of it is not served.
"""

from __future__ import annotations

from typing import Final

from cache.decision import Reason
from cache.entry import Entry
from cache.policy import CachePolicy
from cache.verdict import Verdict, passed, veto
from tenancy.directory import exists
from tenancy.domain import PermissionDomain, readable_documents
from tenancy.errors import StaleDomain
from tenancy.tenant import ReadView

NAME: Final = "freshness"
# A creation time in the future means that a clock was set back: how much longer would the entry live?
_CLOCK_SLACK = 60.0


def check(domain: PermissionDomain, view: ReadView, entry: Entry, policy: CachePolicy, now: float) -> Verdict:
    """Pass, or the reason why `entry` must not be served to `domain` at `now` (UTC epoch seconds)."""
    if not entry.created - _CLOCK_SLACK <= now < entry.expires:
        return veto(NAME, Reason.EXPIRED)
    try:
        readable = readable_documents(domain, view, [document_id for document_id, _ in entry.dependencies])
    except StaleDomain:
        return veto(NAME, Reason.STALE_DOMAIN)
    if not entry.dependencies or any(readable.get(document) != version for document, version in entry.dependencies):
        return veto(NAME, Reason.CHANGED)
    if not exists(view, entry.origin_user):
        return veto(NAME, Reason.ASKER_GONE)
    moved = (view.epochs.acl, view.epochs.corpus) != (entry.acl_epoch, entry.corpus_epoch)
    if moved and now - entry.created > policy.staleness(entry.template):
        return veto(NAME, Reason.GROWN)
    return passed(NAME)
