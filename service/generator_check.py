"""Do the pools answer? For `strongroom doctor`: a row for each pool, and one for each of its replicas."""

from __future__ import annotations

import asyncio
import secrets
import time
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, Literal

from generation.pool import Pool
from generation.prompt import Prompt, Template, render
from generation.replica import Replica, Request
from service.generators import build_routes, pools_of
from service.settings import PoolSettings, Settings
from tenancy.errors import StrongroomError

_PATIENCE_S: Final = 15.0


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
    answered = asyncio.run(_answers(settings))
    for name, (_, pool) in found.items():
        replicas = answered.get(name, [])
        rows += [_row(name, pool, replicas), *replicas]
    return rows


def _row(name: str, pool: PoolSettings, replicas: list[PoolFinding]) -> PoolFinding:
    check = f"pool {name}"
    serves = f", for {pool.dedicated_to} alone" if pool.dedicated_to else ""
    if pool.kind == "extractive":
        return PoolFinding(check, "ok", f"extractive: cited sentences, no model{serves}")
    answering = sum(one.state != "wrong" for one in replicas)
    trust = pool.trust or ("dedicated" if pool.dedicated_to else "shared")
    finding = f"{pool.model}, trust level {trust}{serves}, {answering} of {len(replicas)} replicas answer"
    if not answering:
        return PoolFinding(check, "wrong", finding, "start a replica; the rows of the replicas say more")
    return PoolFinding(check, "ok" if answering == len(replicas) else "note", finding)


async def _answers(settings: Settings) -> dict[str, list[PoolFinding]]:
    routes = build_routes(settings.generation)
    try:
        pools = routes.pools
        rows = await asyncio.gather(*(_of(pool) for pool in pools))
        return {pool.name: found for pool, found in zip(pools, rows, strict=True)}
    finally:
        await routes.aclose()


async def _of(pool: Pool) -> list[PoolFinding]:
    return list(await asyncio.gather(*(_probed(pool, replica) for replica in pool.replicas)))


async def _probed(pool: Pool, replica: Replica) -> PoolFinding:
    """One token from the real server, with a salt of its own: reachable, right version and model, salt accepted."""
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
        remedy = error.remedy or "start the server, or correct its address"
        return PoolFinding(check, "wrong", f"{replica.name}: {error.reason}", remedy)
    if not replica.salted:
        return PoolFinding(
            check, "note", f"{replica.name} answers, without a KV salt", "use SGLang where tenants share a server"
        )
    return PoolFinding(check, "ok", f"{replica.name} answers, salted")


def _prompt() -> Prompt:
    return render(Template("doctor", "Answer with one word."), "Are you there?", ())
