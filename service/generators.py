"""Generators from the settings: pools of replicas, and the one server of a deployment without pools."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from msgspec import structs

from generation.adapters.loading import AdapterLoader
from generation.breaker import BreakerTerms
from generation.endpoint import Endpoint, authorities, checked_url
from generation.extractive import REVISION, ExtractiveGenerator, Likeness
from generation.generator import Generator
from generation.lanes import LaneTerms
from generation.placement import DEFAULT, AdapterTerms, Deployment, Entry, PooledRoutes, Table
from generation.pool import Check, Pool, PoolTerms
from generation.replica import Patience, Replica
from generation.selftest import prove
from service.settings import GenerationSettings, PoolSettings, Settings
from tenancy.contract import Contract, Tier
from tenancy.errors import InvalidInput

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_SECTION: Final = "generation.pools"
_PORTS: Final = {"http": 80, "https": 443}
_MOST_KEY: Final = 10_000
_OF_SERVERS: Final = (
    "replicas",
    "model",
    "revision",
    "adapter",
    "answers_as",
    "api_key_file",
    "admin_key_file",
    "ca_file",
)


def build_routes(
    settings: GenerationSettings, *, admit: Check | None = None, likeness: Likeness | None = None
) -> PooledRoutes:
    """The pools of the settings; nothing is sent to any replica yet. `likeness` is for extractive ones.

    Raises `InvalidInput` for a name, an address, a key file or a tokenizer that cannot be used, for a replica in two
    pools, and for a routing that names no pool or pools of different trust levels.
    """
    found = pools_of(settings)
    made = {name: _generator(name, *described, admit, likeness) for name, described in found.items()}
    return PooledRoutes(Deployment(_table(found, settings), made, settings.adapters_path))


def reload_routes(routes: PooledRoutes, settings: GenerationSettings, likeness: Likeness | None = None) -> None:
    """Let `routes` have the pools of `settings` from the next question on, within the event loop that uses them.

    Replicas that are left out finish their streams; new ones join after their check. Raises `InvalidInput`, and then
    nothing has changed; also for a replica that would change its trust level while it may still hold requests.
    """
    found = pools_of(settings)
    _require_levels_kept(routes, found)
    here = {pool.name: pool for pool in routes.pools}
    first = next(iter(here.values()), None)
    admit = first.admit if first is not None else None
    made: dict[str, Generator] = {}
    joining: list[tuple[Pool, list[Replica], PoolTerms]] = []
    for name, (section, pool) in found.items():
        if pool.kind == "extractive":
            made[name] = ExtractiveGenerator(likeness)
            continue
        replicas, terms = _replicas(section, pool), _terms(name, pool)
        present = here.get(name)
        if present is None or not present.could_have(replicas[0], terms):
            present = Pool(replicas, terms, loader=AdapterLoader(pool.max_adapters), admit=admit)
            for replica in replicas:
                replica.state = "joining"
        made[name] = present
        joining.append((present, replicas, terms))
    # Nothing fails from here on.
    routes.replace(Deployment(_table(found, settings), made, settings.adapters_path))
    for present, replicas, terms in joining:
        if isinstance(present.loader, AdapterLoader):
            present.loader.most = found[present.name][1].max_adapters
        present.reload(replicas, terms)


def pools_of(settings: GenerationSettings) -> dict[str, tuple[str, PoolSettings]]:
    """Every pool with the section of the settings that it comes from, checked. Raises `InvalidInput`."""
    found = {
        name: (f"{_SECTION}.{name}", structs.replace(pool, kv_isolation=pool.kv_isolation or settings.kv_isolation))
        for name, pool in settings.pools.items()
    }
    if settings.kind != "extractive" or not found:
        if DEFAULT in found:
            raise InvalidInput(
                "there are two pools of this name: generation.kind and its keys make one as well",
                item=f"{_SECTION}.{DEFAULT}",
                remedy='leave generation.kind at "extractive", or give the pool another name',
            )
        found[DEFAULT] = ("generation", _alone(settings))
    for name, (section, pool) in found.items():
        _check(name, section, pool)
        if pool.max_adapters and not settings.adapters_dir:
            raise InvalidInput(
                f"the pool {name} takes adapters, and there is no folder for them",
                item="generation.adapters_dir",
                remedy="name a folder that its replicas see under the same path",
            )
    _check_apart(found)
    _check_routing(settings.routing, found)
    return found


def require_generation_possible(settings: Settings, tenant: str, contract: Contract) -> None:
    """Raise `InvalidInput` where this deployment cannot generate as agreed; the item is the path of the key."""
    table_of(settings.generation).of(tenant, contract)


def table_of(settings: GenerationSettings) -> Table:
    """The pools as placement sees them, without opening any. Raises `InvalidInput`."""
    return _table(pools_of(settings), settings)


def _alone(settings: GenerationSettings) -> PoolSettings:
    """The pool of the keys of `[generation]` itself."""
    if settings.kind == "extractive":
        return PoolSettings(kind="extractive")
    return PoolSettings(
        kind=settings.kind,
        replicas=(settings.base_url,),
        model=settings.model,
        revision=settings.revision,
        adapter=settings.adapter,
        tokenizer=settings.tokenizer,
        context_length=settings.context_length,
        api_key_file=settings.api_key_file,
        admin_key_file=settings.admin_key_file,
        plaintext=settings.plaintext,
        kv_isolation=settings.kv_isolation,
    )


def _generator(
    name: str, section: str, pool: PoolSettings, admit: Check | None, likeness: Likeness | None
) -> Generator:
    if pool.kind == "extractive":
        return ExtractiveGenerator(likeness)
    loader = AdapterLoader(pool.max_adapters)
    return Pool(_replicas(section, pool), _terms(name, pool), loader=loader, admit=admit)


def _table(found: Mapping[str, tuple[str, PoolSettings]], settings: GenerationSettings) -> Table:
    return Table(
        {
            name: Entry(
                name,
                pool.model or REVISION,
                _trust(pool),
                pool.dedicated_to or None,
                pool.context_length or None,
                _adapter_terms(pool),
            )
            for name, (_, pool) in found.items()
        },
        settings.routing,
    )


def _adapter_terms(pool: PoolSettings) -> AdapterTerms | None:
    if not pool.max_adapters:
        return None
    bases = frozenset({pool.model, *pool.adapter_bases})
    return AdapterTerms(bases, pool.revision, pool.max_adapter_rank, frozenset(pool.adapter_modules))


def _replicas(section: str, pool: PoolSettings) -> list[Replica]:
    patience = Patience(first_token_s=pool.first_token_s, stall_s=pool.stall_s)
    breaker = BreakerTerms(failures=pool.failures, pause_s=pool.pause_s)
    made = [
        Replica(endpoint, patience=patience, breaker_terms=breaker, connections=pool.slots)
        for endpoint in _endpoints(section, pool)
    ]
    for replica in made:
        replica.isolation.prover = partial(prove, replica)
    return made


def _endpoints(section: str, pool: PoolSettings) -> list[Endpoint]:
    """One for each replica, with the keys from their files. Raises `InvalidInput`, whose item is a setting."""
    api_key = _secret(pool.api_key_file, f"{section}.api_key_file")
    admin_key = _secret(pool.admin_key_file, f"{section}.admin_key_file")
    endpoints = [
        Endpoint(
            base_url=address,
            model=pool.model,
            revision=pool.revision,
            kind="sglang" if pool.kind == "sglang" else "openai",
            adapter=pool.adapter or None,
            answers_as=pool.answers_as or None,
            api_key=api_key,
            admin_key=admin_key,
            tokenizer=Path(pool.tokenizer).expanduser() if pool.tokenizer else None,
            plaintext=pool.plaintext,
            ca_file=Path(pool.ca_file).expanduser() if pool.ca_file else None,
        )
        for address in pool.replicas
    ]
    for endpoint in endpoints:
        try:
            checked_url(endpoint)
            authorities(endpoint)
        except InvalidInput as error:
            key = (error.item or "").removeprefix("generator.")
            key = "replicas" if key == "base_url" and section != "generation" else key
            raise InvalidInput(error.reason, item=f"{section}.{key}", remedy=error.remedy) from None
    return endpoints


def _terms(name: str, pool: PoolSettings) -> PoolTerms:
    return PoolTerms(
        name=name,
        trust=_trust(pool),
        dedicated_to=pool.dedicated_to or None,
        lanes=LaneTerms(
            slots=pool.slots,
            small_slots=pool.small_slots,
            small_tokens=pool.small_tokens,
            guest_slots=0 if pool.dedicated_to else int(pool.guest_share * pool.slots),
            prefill_tokens=pool.prefill_tokens,
            pace_slots=pool.pace_slots or None,
            pace_s=pool.pace_s,
            piece_tokens=pool.piece_tokens or None,
            piece_pause=pool.piece_pause,
            tenant_slots=pool.tenant_slots or None,
            queue=pool.queue,
        ),
        health_s=pool.health_s,
        quarantine_s=pool.quarantine_s,
        prove_s=pool.prove_s,
        waived=pool.kv_isolation == "waived",
    )


def _trust(pool: PoolSettings) -> str:
    return pool.trust or ("dedicated" if pool.dedicated_to else "shared")


def _check(name: str, section: str, pool: PoolSettings) -> None:
    if not _NAME.fullmatch(name):
        raise InvalidInput("a pool's name is 1 to 63 of a-z 0-9 _ -", item=section)
    if pool.kind == "extractive":
        for key in _OF_SERVERS:
            if getattr(pool, key):
                raise InvalidInput(f"an extractive pool has no {key}", item=f"{section}.{key}", remedy="remove it")
        return
    if not pool.replicas:
        raise InvalidInput("a pool needs at least one replica", item=f"{section}.replicas")
    for address in pool.replicas:
        try:
            place(address)
        except ValueError:
            key = "base_url" if section == "generation" else "replicas"
            raise InvalidInput("the generator's address is no URL", item=f"{section}.{key}") from None
    if 1 < pool.slots <= pool.small_slots:
        raise InvalidInput("no slot is left for other than small prompts", item=f"{section}.small_slots")
    if pool.max_adapters:
        _check_adapters(section, pool)


def _check_adapters(section: str, pool: PoolSettings) -> None:
    if pool.kind != "sglang":
        raise InvalidInput("only pools of SGLang load adapters", item=f"{section}.max_adapters", remedy="leave it at 0")
    for key in ("max_adapter_rank", "adapter_modules"):
        if not getattr(pool, key):
            remedy = "as the replicas were started with: --max-lora-rank, --lora-target-modules"
            raise InvalidInput("a pool that takes adapters says which", item=f"{section}.{key}", remedy=remedy)


def _check_apart(found: Mapping[str, tuple[str, PoolSettings]]) -> None:
    """No replica in two pools, and no trust level of a dedicated pool that another tenant's requests may have."""
    at: dict[str, str] = {}
    for name, (section, pool) in found.items():
        for address in map(place, pool.replicas):
            if at.setdefault(address, name) != name or [place(one) for one in pool.replicas].count(address) > 1:
                raise InvalidInput(
                    "a replica belongs to one pool, and this one is named twice",
                    item=f"{section}.replicas",
                    remedy="run a server of its own for each pool",
                )
        for other, (_, beside) in found.items():
            if pool.dedicated_to and not beside.dedicated_to and _trust(pool) == _trust(beside):
                raise InvalidInput(
                    f"the pool is dedicated to one tenant, and {other}, which is not, has the same trust level",
                    item=f"{section}.trust",
                    remedy="give it a level of its own",
                )


def _check_routing(routing: Mapping[Tier, Sequence[str]], found: Mapping[str, tuple[str, PoolSettings]]) -> None:
    for tier, names in routing.items():
        item = f"generation.routing.{tier}"
        for name in names:
            if name not in found:
                raise InvalidInput(
                    f"there is no pool {name}", item=item, remedy=f"there are {', '.join(sorted(found))}"
                )
        shared = {_trust(found[name][1]) for name in names if not found[name][1].dedicated_to}
        if len(shared) > 1:
            raise InvalidInput(
                "the pools are of different trust levels, and a request never leaves its own",
                item=item,
                remedy="route a tier to pools of one trust level",
            )


def _require_levels_kept(routes: PooledRoutes, found: Mapping[str, tuple[str, PoolSettings]]) -> None:
    """Raise `InvalidInput` where a replica would serve another trust level while requests of its old one may run."""
    held = {
        place(replica.endpoint.base_url): (pool.terms.trust, pool.terms.dedicated_to)
        for pool in (*routes.pools, *routes.retiring)
        for replica in pool.replicas
    }
    for section, pool in found.values():
        for address in pool.replicas:
            level = held.get(place(address))
            if level is not None and level != (_trust(pool), pool.dedicated_to or None):
                raise InvalidInput(
                    "a replica that serves another trust level may still hold its requests",
                    item=f"{section}.replicas",
                    remedy="leave it out, reload, and add it when its streams have ended",
                )


def place(address: str) -> str:
    """An address in one form: two of one form are one server. Raises `ValueError` for what is no URL."""
    url = urlsplit(address.lower())
    host = (url.hostname or "").rstrip(".")
    with suppress(ValueError):
        host = str(ipaddress.ip_address("127.0.0.1" if host == "localhost" else host))
    return f"{host}:{url.port or _PORTS.get(url.scheme, 0)}{url.path.rstrip('/').removesuffix('/v1')}"


def _secret(file: str, item: str) -> str | None:
    if not file:
        return None
    try:
        with Path(file).expanduser().open("rb") as opened:
            key = opened.read(_MOST_KEY + 1).strip()
    except OSError as error:
        raise InvalidInput("the key file cannot be read", item=item, remedy=str(error.strerror)) from None
    if len(key) > _MOST_KEY or not re.fullmatch(rb"[!-~]+", key):
        raise InvalidInput("the key file holds no key", item=item, remedy="one line of ASCII characters without spaces")
    return key.decode("ascii")
