"""Freshness: may this principal still be given this answer, in the state that the view sees?

Equal epochs are no short cut. They would be sound while a tenant's database only moves forward, but a restored
backup repeats its counters; one indexed query per candidate is the price of not depending on that.
"""

from __future__ import annotations

from cache.entry import Entry
from cache.guards.verdict import Verdict, passed, veto
from cache.policy import CachePolicy
from tenancy.domain import PermissionDomain, readable_documents
from tenancy.errors import StaleDomain
from tenancy.tenant import ReadView

NAME = "freshness"
EXPIRED = "expired"
STALE_DOMAIN = "domain of another state"
CHANGED = "a document changed, went away or is not readable now"
GROWN = "documents or access lists moved too long ago"
# A creation time in the future means that a clock was set back: how much longer would the entry live?
_CLOCK_SLACK = 60.0


def check(domain: PermissionDomain, view: ReadView, entry: Entry, policy: CachePolicy, now: float) -> Verdict:
    """Pass, or the reason why `entry` must not be served to `domain` at `now` (UTC epoch seconds)."""
    if not entry.created - _CLOCK_SLACK <= now < entry.expires:
        return veto(NAME, EXPIRED)
    try:
        readable = readable_documents(domain, view, [document_id for document_id, _ in entry.dependencies])
    except StaleDomain:
        return veto(NAME, STALE_DOMAIN)
    if not entry.dependencies or any(readable.get(document) != version for document, version in entry.dependencies):
        return veto(NAME, CHANGED)
    moved = (view.epochs.acl, view.epochs.corpus) != (entry.acl_epoch, entry.corpus_epoch)
    if moved and now - entry.created > policy.staleness(entry.template):
        return veto(NAME, GROWN)
    return passed(NAME)
