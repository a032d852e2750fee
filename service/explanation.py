"""An explanation of the cache as plain data, for the command line and whoever else shows it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import msgspec

from cache.certificate import shadow
from cache.ladder import Ladder
from cache.lookup import Hit, Reason
from cache.standing import Standing
from cache.stores.port import CacheStore
from cache.stores.selector import Selector
from cache.verdict import Verdict
from retrieval.explain import Explanation


def report(explained: Explanation, ladder: Ladder) -> dict[str, Any]:
    """Rungs in order, candidates with every verdict, the bound, and what would have happened. No text of a question."""
    asked, found = explained.asked, explained.found
    drawn = 0.0
    if found.standing is not None and ladder.judge is not None:
        drawn = shadow.probability(found.standing, asked.policy)
    steps = [_verdict(verdict) | {"kind": "exact"} for verdict in explained.exact.steps]
    if explained.semantic is not None:
        steps += [_verdict(verdict) | {"kind": "semantic"} for verdict in explained.semantic.steps]
    return {
        "would": f"{found.kind} hit" if isinstance(found, Hit) else "miss",
        "reason": None if isinstance(found, Hit) else found.reason.value,
        "compared": None if isinstance(found, Hit) or found.would is None else found.would.purpose,
        "entry": _entry(explained),
        "mode": asked.mode.value,
        "reach": asked.reach.value,
        "template": explained.plan.template.name,
        "policy": msgspec.to_builtins(asked.policy),
        "domain": asked.namespace.domain,
        "namespace": asked.space,
        "scope": asdict(explained.scope),
        "tokens": explained.tokens,
        "window": explained.window,
        "steps": steps,
        "candidates": _candidates(explained),
        "standing": None if found.standing is None else _standing(found.standing, drawn),
        "ladder": {
            "score": ladder.score.revision,
            "score_threshold": ladder.score_threshold(asked),
            "verifier": None if ladder.verifier is None else ladder.verifier.revision,
            "verifier_threshold": ladder.verifier_threshold(asked),
            "verifier_asked_from": ladder.worth_verifying(asked),
            "judge": ladder.judge,
        },
    }


def with_questions(report: dict[str, Any], explained: Explanation, store: CacheStore) -> None:
    """Add to each candidate what was asked when it was stored, where it is still there."""
    for candidate in report["candidates"]:
        records = store.inspect(explained.tenant, limit=1, selector=Selector(entry=candidate["entry"]))
        candidate["question"] = records[0].question if records else None


def _entry(explained: Explanation) -> str | None:
    found = explained.found
    if isinstance(found, Hit):
        return found.entry.id
    return None if found.would is None else found.would.entry.id


def _candidates(explained: Explanation) -> list[dict[str, Any]]:
    rows = []
    for found in (explained.exact, explained.semantic):
        if found is None:
            continue
        kind = "exact" if found is explained.exact else "semantic"
        refused = found.refused if isinstance(found, Hit) else found.candidates
        for candidate in refused:
            rows.append(
                _candidate(kind, candidate.entry_id, candidate.similarity, candidate.reason, candidate.verdicts)
            )
        chosen = found if isinstance(found, Hit) else found.would
        if chosen is not None:
            rows.append(_candidate(kind, chosen.entry.id, chosen.similarity, None, chosen.verdicts))
    return rows


def _candidate(
    kind: str, entry: str, similarity: float, reason: Reason | None, verdicts: Sequence[Verdict]
) -> dict[str, Any]:
    return {
        "entry": entry,
        "kind": kind,
        "similarity": _number(similarity),
        "reason": None if reason is None else reason.value,
        "rungs": [_verdict(verdict) for verdict in verdicts],
    }


def _verdict(verdict: Verdict) -> dict[str, Any]:
    return {
        "rung": verdict.name,
        "verdict": "pass" if verdict.passed else "refuse",
        "reason": verdict.reason or None,
        "value": None if verdict.value is None else _number(verdict.value),
        "near": list(verdict.near),
    }


def _standing(standing: Standing, drawn: float) -> dict[str, Any]:
    opening = standing.opening
    return {
        "state": standing.state,
        "serves": standing.serves,
        "n": standing.n,
        "k": standing.k,
        "lower": _number(standing.lower),
        "upper": _number(standing.upper),
        "alpha": standing.alpha,
        "drawn": drawn,
        "ladder": standing.ladder,
        "opened_by": None if opening is None else opening.opened_by,
        "floor": None if opening is None else opening.threshold,
    }


def _number(value: float) -> float | None:
    """Six decimals, as the audit has them; None for what is no number, which JSON cannot carry."""
    return round(value, 6) if math.isfinite(value) else None
