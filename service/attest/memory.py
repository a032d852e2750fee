"""KV memory: does an engine find one namespace's prompt in the memory that another's left?

Long prompts that nobody sent before, each pool in turn, and each round with readers and a document of its own, so that
every namespace begins empty. The engine's own count of cached tokens is read from the audit log: 0 where the same
prompt comes from another tenant or another domain, and most of the prompt where it comes from the same one again.
The two tenants' prompts are equal up to the mark in their instructions (`generation.canary`), those of two domains of
one tenant to the last token.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import httpx

from generation.proof import LEAST_INPUT
from service.attest.canaries import Canary
from service.attest.claims import Claim, Layer, Tally, inconclusive, not_built
from service.attest.stage import Stage, asked_about, code_of, word
from service.generators import pools_of
from service.settings import PoolSettings

NAME: Final = "KV memory"
LEAST: Final = 0.9
"""Share of a repeated prompt that has to come from the memory."""

_SENTENCES: Final = 60
_CLAIM: Final = "no namespace's prompt is found in another's KV memory"
_REMEDY: Final = (
    "start the servers with --enable-cache-report and without --disable-radix-cache; a busy engine evicts what it knows"
)


def examine(stage: Stage) -> Layer:
    pools = {name: pool for name, (_, pool) in pools_of(stage.settings.generation).items()}
    try:
        claims = [claim for name, pool in pools.items() for claim in _pool(stage, name, pool)]
    finally:
        stage.pair.agree()
    if all(pool.kind == "extractive" for pool in pools.values()):
        claims = [not_built(_CLAIM, "no pool has a model: the extractive generator keeps no memory of prompts")]
    return Layer.of(NAME, claims)


def _pool(stage: Stage, name: str, pool: PoolSettings) -> Iterator[Claim]:
    claim = f"{_CLAIM}: pool {name}"
    if pool.kind == "extractive":
        return
    if pool.dedicated_to:
        yield inconclusive(claim, "it serves one tenant alone, so that no canary reaches it")
        return
    if pool.kind != "sglang":
        yield inconclusive(claim, "its servers take no salt, so that nothing parts the prompts of two tenants there")
        return
    stage.pair.agree(name)
    tenants, domains = Tally(f"{claim}, another tenant's"), Tally(f"{claim}, another domain's")
    for number in range(stage.options.rounds):
        _round(stage, number, tenants, domains)
    yield tenants.close(remedy=_REMEDY)
    yield domains.close(remedy=_REMEDY)


def _round(stage: Stage, number: int, tenants: Tally, domains: Tally) -> None:
    """Three fresh namespaces: two in the left tenant, one in the right."""
    topic = word()
    text = " ".join([code_of(topic, word()), *(f"{word()} follows {word()}." for _ in range(_SENTENCES))])
    first, second, apart = f"first-{topic}", f"second-{topic}", f"apart-{topic}"
    stage.pair.join(first, f"group-{topic}")
    stage.pair.join(second, f"group-{topic}", apart)
    for canary in (stage.left, stage.right):
        # Labels count that documents use: the second reader's domain is another one.
        stage.caller.put(canary, f"apart-{topic}.md", f"Nothing but {word()}.", f"group:{apart}")
        stage.caller.put(canary, f"memory-{topic}.md", text, f"group:group-{topic}")
    query = asked_about(topic)
    arms = ((stage.left, first, None), (stage.right, first, tenants), (stage.left, second, domains))
    for canary, user, tally in arms:
        for again in (False, True):
            used = _generated(stage, canary, user, query)
            where = f"round {number + 1}: {used.get('cached_input')} of {used.get('input')} tokens"
            for one in (tenants, domains) if tally is None else (tally,):
                _count(one, used, where, again=again, counts=tally is not None)


def _count(tally: Tally, used: Mapping[str, Any], where: str, *, again: bool, counts: bool) -> None:
    cached, size = used.get("cached_input"), used.get("input") or 0
    if not used or cached is None or size < LEAST_INPUT:
        tally.void("no count of cached tokens" if used else "no answer")
    elif again:
        tally.control(cached >= LEAST * size, where)
    elif counts:
        tally.probe(cached > 0, where)


def _generated(stage: Stage, canary: Canary, user: str, query: str) -> Mapping[str, Any]:
    """What the audit log says about the generation of one fresh answer; empty where there was none."""
    answered = stage.caller.ask(canary, user, query, cache="bypass", max_tokens=8)
    if answered.status_code != httpx.codes.OK:
        return {}
    event = stage.caller.recorded(canary, answered.json()["request_id"])
    found: Mapping[str, Any] = event.get("generation") or {}
    return found
