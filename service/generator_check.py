"""Do the pools answer? For `strongroom doctor`: a row for each pool, and one for each of its replicas."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, Literal

from generation.pool import Pool
from generation.prompt import Prompt, Template, render
from generation.proof import NotIsolated
from generation.replica import Replica, Request
from service.control import master_key, open_tenants
from service.generators import build_routes, pools_of
from service.isolation import UNREACHED, note_tenants
from service.settings import PoolSettings, Settings
from tenancy.errors import StrongroomError
from tenancy.storage import CONTROL_FILE

_PATIENCE_S: Final = 30.0
_UNWAIVE: Final = 'set kv_isolation = "required" as soon as its servers pass their test'


@dataclass(frozen=True, slots=True)
class PoolFinding:
    check: str
    state: Literal["ok", "note", "wrong"]
    finding: str
    remedy: str | None = None


def examine_pools(settings: Settings) -> list[PoolFinding]:
    """One finding for each pool and each replica: a token from every server, with a salt of its own."""
    found = pools_of(settings.generation)
    rows: list[PoolFinding] = []
    answered = asyncio.run(_answers(settings, _tenants(settings, found)))
    for name, (_, pool) in found.items():
        refusal, replicas = answered.get(name, (None, []))
        rows += [_row(name, pool, replicas, refusal), *replicas]
    return rows


def _tenants(settings: Settings, found: Mapping[str, tuple[str, PoolSettings]]) -> int:
    """How many there are, where a pool may not serve several."""
    alone = any(pool.kind == "openai" and not pool.dedicated_to for _, pool in found.values())
    if not alone or (not settings.database.url and not (settings.data_path / CONTROL_FILE).exists()):
        return 0
    tenants = open_tenants(settings, master_key(settings))
    try:
        return tenants.count()[0]
    finally:
        tenants.close()


def _row(name: str, pool: PoolSettings, replicas: list[PoolFinding], refusal: NotIsolated | None) -> PoolFinding:
    check = f"pool {name}"
    serves = f", for {pool.dedicated_to} alone" if pool.dedicated_to else ""
    if pool.kind == "extractive":
        return PoolFinding(check, "ok", f"extractive: cited sentences, no model{serves}")
    answering = sum(one.state != "wrong" for one in replicas)
    trust = pool.trust or ("dedicated" if pool.dedicated_to else "shared")
    finding = f"{pool.model}, trust level {trust}{serves}, {answering} of {len(replicas)} replicas answer"
    if refusal is not None:
        return PoolFinding(check, "wrong", f"{finding}; it serves nobody: {refusal.reason}", refusal.remedy)
    if pool.kv_isolation == "waived":
        return PoolFinding(check, "note", f"{finding}; KV ISOLATION IS WAIVED", _UNWAIVE)
    if not answering:
        return PoolFinding(check, "wrong", finding, "start a replica; the rows of the replicas say more")
    return PoolFinding(check, "ok" if answering == len(replicas) else "note", finding)


async def _answers(settings: Settings, tenants: int) -> dict[str, tuple[NotIsolated | None, list[PoolFinding]]]:
    routes = build_routes(settings.generation)
    note_tenants(routes, tenants)
    try:
        pools = routes.pools
        rows = await asyncio.gather(*(_of(pool) for pool in pools))
        return {pool.name: (pool.refusal, found) for pool, found in zip(pools, rows, strict=True)}
    finally:
        await routes.aclose()


async def _of(pool: Pool) -> list[PoolFinding]:
    return list(await asyncio.gather(*(_probed(pool, replica) for replica in pool.replicas)))


async def _probed(pool: Pool, replica: Replica) -> PoolFinding:
    """Reachable, right version and model, salts kept apart; and one token, with a salt of its own."""
    check = f"replica {pool.name}"
    try:
        await replica.check(time.monotonic() + _PATIENCE_S)
        request = Request(
            prompt=_prompt(),
            salt=secrets.token_hex(32),
            request_id=secrets.token_hex(16),
            max_tokens=1,
            deadline=time.monotonic() + _PATIENCE_S,
        )
        async with aclosing(replica.generate(request, replica.attempt())) as pieces:
            async for _ in pieces:
                pass
    except StrongroomError as error:
        remedy = error.remedy or UNREACHED
        return PoolFinding(check, "wrong", f"{replica.name}: {error.reason}", remedy)
    if not replica.salted:
        remedy = "it serves one tenant; use SGLang where several share a server"
        return PoolFinding(check, "note", f"{replica.name} answers, without a KV salt", remedy)
    proof = replica.isolation.proof
    if proof is None or proof.verdict != "apart":
        told = "was not tested" if proof is None else f"{proof.verdict}: {proof.finding}"
        return PoolFinding(check, "note", f"{replica.name} answers; KV ISOLATION IS WAIVED ({told})", _UNWAIVE)
    return PoolFinding(check, "ok", f"{replica.name} answers and keeps KV salts apart: {proof.finding}")


def _prompt() -> Prompt:
    return render(Template("doctor", "Answer with one word."), "Are you there?", ())
