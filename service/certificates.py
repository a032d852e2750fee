"""The certificate of each template as an operator sees it: the evidence, and from the audit what it led to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from audit.log import AuditLog
from audit.query import Filters, query_log
from audit.record import Event, decode
from cache.certificate import evidence
from cache.certificate.evidence import Place
from cache.policy import CachePolicy
from generation.prompt import Templates
from generation.templates import names_of
from tenancy.tenant import ReadView

MOST_EVENTS: Final = 200_000
"""Events that are read for the counts, the newest first."""


@dataclass
class Counted:
    """What questions of one template met: semantic hits by ladder version and namespace, refusals by reason."""

    hits: Counter[tuple[str, str]] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)


def report(
    view: ReadView, log: AuditLog, templates: Templates, policy: CachePolicy, *, template: str | None = None
) -> list[dict[str, Any]]:
    """One row for each template and ladder version that has evidence or served a semantic hit, the newest first."""
    records = [one for one in evidence.evidence(view) if template in (None, one.template)]
    counted = count(log, names_of(view, templates))
    known = {(one.template, one.ladder) for one in records}
    rows = [
        _row(one, policy, counted.get(one.template, Counted()))
        | {"wrong_by_reason": evidence.reasons(view, one.template, one.ladder), "needs": _needs(view, one, policy)}
        for one in records
    ]
    for name, of_template in sorted(counted.items()):
        for ladder in sorted({ladder for ladder, _ in of_template.hits}):
            if (name, ladder) not in known and template in (None, name):
                # Opened, and neither drawn nor reported so far.
                nothing = _nothing(name, ladder)
                missing = {"wrong_by_reason": {}, "needs": _needs(view, nothing, policy)}
                rows.append(_row(nothing, policy, of_template) | missing)
    return rows


def _nothing(template: str, ladder: str) -> evidence.EvidenceRecord:
    return evidence.EvidenceRecord(
        template, ladder, "uncertified", "", None, None, 0, 0, 1.0, 0.0, 0, 0, 0, 0, 0, 0, 0, 0, 0
    )


def _needs(view: ReadView, one: evidence.EvidenceRecord, policy: CachePolicy) -> dict[str, int] | None:
    """What is missing for a certificate at the least; None where it holds, is suspended, or nothing is ever drawn."""
    own = policy.of(one.template)
    if one.ladder == evidence.EVERY_LADDER or own.shadow <= 0 or one.state == "suspended":
        return None
    found = evidence.needs(view, Place(one.template, one.ladder, "", own.alpha))
    return None if found is None else {"labels": found.labels, "askers": found.askers, "entries": found.entries}


def _row(one: evidence.EvidenceRecord, policy: CachePolicy, counted: Counted) -> dict[str, Any]:
    spaces = {space: number for (ladder, space), number in counted.hits.items() if ladder == one.ladder}
    return {
        "template": one.template,
        "ladder": one.ladder,
        "state": one.state,
        "why": one.why or None,
        "since": one.since,
        "evidence_since": one.began,
        "alpha": policy.of(one.template).alpha,
        "upper": one.upper,
        "lower": one.lower,
        "n": one.n,
        "k": one.k,
        "missing": one.missing,
        "unanswered": one.unanswered,
        "entries": one.entries,
        "spread_n": one.spread_n,
        "spread_k": one.spread_k,
        "restarts": one.restarts,
        "reports": one.reports,
        "hits": sum(spaces.values()),
        "hits_by_namespace": spaces,
        "suspended_namespaces": one.suspended_namespaces,
        "refused_by_reason": dict(counted.refused.most_common()),
    }


def count(log: AuditLog, names: Mapping[str, str]) -> dict[str, Counted]:
    """By template, from the newest intents of questions; `names` are of revisions."""
    found: dict[str, Counted] = {}
    for event in _asked(log):
        use, revision = event.cache, event.policy.template if event.policy else None
        name = names.get(revision or "")
        if use is None or name is None:
            continue
        counted = found.setdefault(name, Counted())
        if use.status == "hit" and use.kind == "semantic":
            counted.hits[use.rules or "", use.namespace or ""] += 1
        elif use.status == "miss" and use.entry is not None:
            vetoes = [f"{guard.name}: {guard.reason}" for guard in use.guards if guard.verdict == "veto"]
            counted.refused[vetoes[0] if vetoes and use.bound is None else use.reason or "unknown"] += 1
    return found


def _asked(log: AuditLog) -> Iterator[Event]:
    after: str | None = None
    read = 0
    while read < MOST_EVENTS:
        page = query_log(log, Filters(action="answer", phase="intent"), limit=1_000, after=after)
        yield from (decode(stored.payload) for stored in page.events)
        read, after = read + len(page.events), page.cursor
        if after is None:
            return
