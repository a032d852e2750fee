"""`strongroom cache stats`: who can share answers with whom, as numbers and as sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from audit.log import AuditLog
from audit.query import MAX_LIMIT, Filters, query_log
from audit.record import decode
from cache.sharing import Alike, Divider, Sharing, sharing
from cache.stores.port import CacheStore
from tenancy.errors import Corrupt, Unavailable
from tenancy.tenant import TenantHandle

ENTRIES: Final = 10_000
"""Newest entries that are counted by domain."""
HITS: Final = 1_000
"""Newest hits on record that are counted by domain."""


def report(tenant: TenantHandle, store: CacheStore, log: AuditLog, *, named: bool) -> dict[str, Any]:
    """What `cache.sharing` found, with entries and hits of the largest domains. `named` gives names of users.

    `entries` of a domain are those that its present users' questions made, among the newest `ENTRIES`; `hits` those
    among the newest `HITS` on record. `entries` is None where the cache is out of reach.
    """
    with tenant.reading() as view:
        found = sharing(view, named=named)
    entries, hits = _entries(tenant, store, found), _hits(log)
    return {
        "users": found.users,
        "users_without_access": found.outside,
        "domains": found.domains,
        "alone": found.alone,
        "attainable_domains": found.attainable,
        "distribution": [
            {"users_per_domain_from": least, "domains": domains, "users": users}
            for least, domains, users in found.distribution
        ],
        "largest": [
            {
                "domain": domain.fingerprint,
                "users": domain.users,
                "entries": None if entries is None else entries[domain.fingerprint],
                "hits": hits[domain.fingerprint],
            }
            for domain in found.largest
        ],
        "same_documents": [_plain(alike) for alike in found.alike],
        "dividing_labels": [_plain(divider) for divider in found.dividers],
        "findings": sentences(found),
    }


def lines(report: Mapping[str, Any]) -> dict[str, str]:
    """The numbers of a report for a terminal, by name."""
    shown = {name: str(report[name]) for name in ("users_without_access", "domains", "alone", "attainable_domains")}
    shown["distribution"] = "; ".join(
        f"{row['domains']} of {row['users_per_domain_from']} or more users ({row['users']} in all)"
        for row in report["distribution"]
    )
    shown["largest"] = "; ".join(
        f"{row['domain']}: {row['users']} users, {'?' if row['entries'] is None else row['entries']} entries,"
        f" {row['hits']} hits"
        for row in report["largest"]
    )
    return {"users_with_access": str(report["users"]), **{name: text or "-" for name, text in shown.items()}}


def sentences(found: Sharing) -> list[str]:
    """The findings for people; none of them proposes that anybody should read more or less than today."""
    if not found.users:
        return ["No user may read anything yet, so there is nothing to share."]
    said = [
        f"{_count(found.users, 'user')} who may read something {_stand(found.users)} in"
        f" {_count(found.domains, 'permission domain')}; {_are(found.alone)} alone in theirs and"
        f" {'shares' if found.alone == 1 else 'share'} no answer with anybody."
    ]
    said += [_alike(alike) for alike in found.alike]
    if found.attainable < found.domains:
        said.append(
            f"With what everybody may read today, {_count(found.attainable, 'domain')} would do; the other"
            f" {found.domains - found.attainable} come from how access lists are expressed."
        )
    elif found.domains > 1:
        said.append(
            "Every domain reads other documents than the rest: how the lists are expressed costs no sharing, and only"
            " a change of who may read would add any."
        )
    said += [_divider(divider, found) for divider in found.dividers[:3]]
    return said


def _alike(alike: Alike) -> str:
    said = (
        f"{_count(alike.users, 'user')} read exactly the same documents in {alike.domains} domains, because"
        f" {_count(alike.documents, 'document')} {'names' if alike.documents == 1 else 'name'} them by"
        f" {_count(alike.labels, 'label')} that they do not all hold. Listed there by one group they would share one"
        " domain, and nobody would read more or less."
    )
    return said + (f" The group {alike.group} has exactly these members." if alike.group else "")


def _divider(divider: Divider, found: Sharing) -> str:
    what = f"the label group:{divider.group or '?'}"
    if divider.kind == "single users":
        what = f"labels of single users ({divider.labels})"
    return (
        f"What divides: {what} in the lists of {_count(divider.documents, 'document')}. Without, there would be"
        f" {divider.domains} domains instead of {found.domains}, {divider.alone} users alone instead of {found.alone}."
        " This measures; it is no advice to change who may read."
    )


def _entries(tenant: TenantHandle, store: CacheStore, found: Sharing) -> Counter[str] | None:
    counted: Counter[str] = Counter()
    try:
        for offset in range(0, ENTRIES, 1_000):
            page = store.inspect(tenant, limit=1_000, offset=offset)
            counted.update(found.by_user.get(entry.origin_user, "") for entry in page)
            if len(page) < 1_000:
                break
    except (Unavailable, Corrupt):
        return None
    return counted


def _hits(log: AuditLog) -> Counter[str]:
    page = query_log(log, Filters(cache_status="hit", phase="intent"), limit=min(HITS, MAX_LIMIT))
    events = [decode(stored.payload) for stored in page.events]
    return Counter(event.policy.domain for event in events if event.policy is not None and event.policy.domain)


def _plain(found: Alike | Divider) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(found)
    if not plain["names"]:
        del plain["names"]
    return plain


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _stand(number: int) -> str:
    return "stands" if number == 1 else "stand"


def _are(number: int) -> str:
    return f"{number} {'is' if number == 1 else 'are'}"
