"""Adapters: does a tenant's own model answer anybody else?

One canary tenant gets an adapter, for one of its groups. That group's reader must be answered with it; a reader of
another group, the other tenant, and everybody once it is revoked must not be, and must not see it in a list.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import httpx

from generation.adapters.manifest import describe
from service.adapters import add_adapter, base_for, revoke_adapter
from service.attest.canaries import Canary, on_record
from service.attest.claims import Claim, Layer, Tally, inconclusive, not_built
from service.attest.stage import Stage, asked_about, code_of, word
from service.generators import pools_of
from tenancy.errors import InvalidInput, NotFound
from tenancy.tenant import TenantHandle

NAME: Final = "adapters"
ADAPTER: Final = "attest"
TRIES: Final = 3

_CLAIMS: Final = (
    "an adapter answers no other tenant",
    "an adapter answers nobody whom its access list leaves out",
    "a revoked adapter answers nobody",
    "an adapter is listed for nobody else",
    "an answer of an adapter is not remembered for its base model",
)


def examine(stage: Stage) -> Layer:
    pools = [pool for _, pool in pools_of(stage.settings.generation).values() if pool.max_adapters]
    if stage.settings.generation.adapters_path is None or not pools:
        return Layer.of(NAME, [not_built(claim, "no pool takes tenants' adapters") for claim in _CLAIMS])
    if stage.options.adapter is None:
        why, remedy = "there was no adapter to show it with", "--adapter FOLDER: one that a shared pool can load"
        return Layer.of(NAME, [inconclusive(claim, why, remedy) for claim in _CLAIMS])
    topic = word()
    for canary in (stage.left, stage.right):
        stage.caller.put(canary, "adapter.md", code_of(topic, word()), "tenant")
        stage.caller.put(canary, "adapter-blue.md", f"Nothing but {word()}.", "group:blue")
    with _added(stage, stage.options.adapter) as model:
        claims = _probed(stage, model, topic)
    return Layer.of(NAME, claims)


@contextmanager
def _added(stage: Stage, folder: Path) -> Iterator[str]:
    """The adapter in the left tenant, for its group red; yields how requests name it. Its pool answers both tenants."""
    generation, control = stage.settings.generation, stage.pair.control
    _route(stage, folder)
    try:
        made = on_record(
            control,
            stage.left.principal,
            "adapter.add",
            lambda _: add_adapter(generation, _handle(stage), ADAPTER, folder, allow=["group:red"]),
        )
        yield f"{made.base}:{made.name}"
    finally:
        with suppress(NotFound):
            _revoke(stage)
        stage.pair.agree()


def _route(stage: Stage, folder: Path) -> None:
    """Let the first pool answer that takes the adapter. Raises `InvalidInput` where none does."""
    described, refusal = describe(folder), InvalidInput("no shared pool takes adapters", item=str(folder))
    for name, (_, pool) in pools_of(stage.settings.generation).items():
        if not pool.max_adapters or pool.dedicated_to:
            continue
        stage.pair.agree(name)
        try:
            base_for(stage.settings.generation, _handle(stage), described)
        except InvalidInput as error:
            refusal = error
        else:
            return
    raise refusal


def _probed(stage: Stage, model: str, topic: str) -> list[Claim]:
    tenants, lists, revoked, listed, base = (Tally(claim) for claim in _CLAIMS)
    for number in range(TRIES):
        query = f"{asked_about(topic)[:-1]} under rule {200_000 + number}?"
        own = _with(stage, stage.left, "ana", query, model)
        for tally in (tenants, lists, revoked):
            tally.control(own, "the tenant's own reader")
        tenants.probe(_with(stage, stage.right, "ana", query, model), "another tenant")
        lists.probe(_with(stage, stage.left, "rob", query, model), "another group")
    for canary, user in ((stage.left, "ana"), (stage.right, "ana"), (stage.left, "rob")):
        names = stage.caller.send("GET", "/v1/models", canary.keys[user]).text
        own = canary is stage.left and user == "ana"
        (listed.control if own else listed.probe)(f":{ADAPTER}" in names, "GET /v1/models")
    kept = _kept(stage, topic, model, base)
    _revoke(stage)
    for number in range(TRIES):
        query = f"{asked_about(topic)[:-1]} under rule {200_000 + number}?"
        revoked.probe(_with(stage, stage.left, "ana", query, model), "after the revocation")
    remedy = "the pool must load the adapter and answer with it; its log says why it does not"
    claims = [one.close(remedy=remedy) for one in (tenants, lists, revoked, listed)]
    if kept:
        return [*claims, base.close(remedy=remedy)]
    why = f"none of {TRIES} answers with the adapter was remembered: none had a verified citation"
    return [*claims, not_built(base.claim, why)]


def _kept(stage: Stage, topic: str, model: str, tally: Tally) -> bool:
    """Whether answers with the adapter are remembered at all; and whether one is found without it."""
    kept = False
    for number in range(TRIES):
        query = f"{asked_about(topic)[:-1]} under rule {300_000 + number}?"
        first, second, without = (
            stage.caller.ask(stage.left, "ana", query, **more) for more in ({"model": model}, {"model": model}, {})
        )
        kept = kept or "stored" in first.headers.get("cache-status", "")
        tally.control(_is_hit(second), "the same with the adapter")
        tally.probe(_is_hit(without), "without the adapter")
    return kept


def _with(stage: Stage, canary: Canary, user: str, query: str, model: str) -> bool:
    """Whether a fresh answer came, and the audit log says that an adapter made it."""
    answered = stage.caller.ask(canary, user, query, model=model, cache="bypass", max_tokens=8)
    if answered.status_code != httpx.codes.OK:
        return False
    event: dict[str, Any] = stage.caller.recorded(canary, answered.json()["request_id"])
    return bool((event.get("generation") or {}).get("adapter"))


def _is_hit(response: httpx.Response) -> bool:
    return response.status_code == httpx.codes.OK and response.json()["cache"]["status"] == "hit"


def _revoke(stage: Stage) -> None:
    generation = stage.settings.generation
    on_record(
        stage.pair.control,
        stage.left.principal,
        "adapter.revoke",
        lambda _: revoke_adapter(generation, _handle(stage), ADAPTER),
    )


def _handle(stage: Stage) -> TenantHandle:
    return stage.pair.control.tenants.open(stage.left.principal)
