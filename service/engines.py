"""Vector engines from the settings: checked when the process starts, connected when a tenant first needs one."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from indexing.catalogue import EMBEDDED
from indexing.embedding import require_model_allowed
from indexing.engine import Engine
from indexing.engines.registry import Engines
from indexing.engines.transport import authorities, checked_address, read_key
from indexing.remote.elsewhere import Elsewhere
from indexing.remote.engines import RemoteEngines
from service.generators import require_generation_possible
from service.settings import CollectionSettings, EngineSettings, Settings
from service.tariff import require_plan
from tenancy.contract import Contract
from tenancy.errors import InvalidInput
from tenancy.tenant import TenantHandle

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_SECTION: Final = "collections.engines"
_PACKAGES: Final = {"qdrant": "qdrant_client", "milvus": "pymilvus"}
_MILVUS_ALONE: Final = ("database",)


def build_engines(settings: CollectionSettings) -> Engines:
    """The engines of the settings; nothing is sent to any of them yet.

    Raises `InvalidInput` for a name, an address or a key file that cannot be used, for an engine whose package is not
    installed, and for one that is dedicated to a tenant and yet shared.
    """
    for name, engine in settings.engines.items():
        _check(name, engine)
    _check_default(settings)
    _check_dedicated(settings)
    connect: dict[str, Callable[[], Engine]] = {
        name: partial(_connected, name, engine) for name, engine in settings.engines.items()
    }
    dedicated = {name: engine.dedicated_to for name, engine in settings.engines.items() if engine.dedicated_to}
    return Engines(connect, default=settings.engine, dedicated=dedicated)


def settle(settings: CollectionSettings, tenant: TenantHandle) -> None:
    """For commands that have written: wait until the tenant's engine has it too. Raises `Unavailable`."""
    engines = build_engines(settings)
    try:
        try:
            RemoteEngines(engines).settle(tenant)
        finally:
            Elsewhere(engines).settle(tenant)
    finally:
        engines.close()


def require_possible(settings: Settings, tenant: str, contract: Contract) -> None:
    """Raise `InvalidInput` where this deployment cannot keep the contract; the item is the path of the key."""
    collections = settings.collections
    name = contract.engine or collections.engine
    known = (EMBEDDED, *collections.engines)
    if name not in known:
        raise InvalidInput("this deployment has no such engine", item="engine", remedy=f"it has {', '.join(known)}")
    owner = collections.engines[name].dedicated_to if name != EMBEDDED else ""
    if owner and owner != tenant:
        raise InvalidInput("this engine serves another tenant alone", item="engine", remedy="choose another engine")
    if contract.tier == "dedicated" and not owner:
        raise InvalidInput(
            "the dedicated tier needs an engine of its own, and this one serves others too",
            item="engine",
            remedy=f'set dedicated_to = "{tenant}" in {_SECTION}.{name}, or name an engine that has it',
        )
    if contract.model is not None:
        try:
            require_model_allowed(settings.embedding, contract.model)
        except InvalidInput as error:
            raise InvalidInput(error.reason, item="model", remedy=error.remedy) from None
    require_generation_possible(settings, tenant, contract)
    require_plan(settings.prices, contract)


def _check(name: str, engine: EngineSettings) -> None:
    item = f"{_SECTION}.{name}"
    if not _NAME.fullmatch(name) or name == EMBEDDED:
        raise InvalidInput(
            f"an engine's name is 1 to 63 of a-z 0-9 _ -, and not {EMBEDDED}, which is built in", item=item
        )
    if importlib.util.find_spec(_PACKAGES[engine.kind]) is None:
        raise InvalidInput(
            f"the client of {engine.kind} is not installed",
            item=f"{item}.kind",
            remedy=f"pip install 'strongroom[{engine.kind}]'",
        )
    for key in _MILVUS_ALONE:
        if engine.kind != "milvus" and getattr(engine, key):
            reason = f"an engine of kind {engine.kind} has no {key}"
            raise InvalidInput(reason, item=f"{item}.{key}", remedy="remove it")
    authorities(_path(engine.ca_file), engine=name)
    key_file = read_key(_path(engine.api_key_file), engine=name)
    checked_address(engine.url, engine=name, authenticated=key_file is not None, plaintext=engine.plaintext)


def _check_default(settings: CollectionSettings) -> None:
    known = (EMBEDDED, *settings.engines)
    if settings.engine not in known:
        raise InvalidInput(
            "there is no such engine", item="collections.engine", remedy=f"configured are {', '.join(known)}"
        )
    if settings.engine != EMBEDDED and settings.engines[settings.engine].dedicated_to:
        raise InvalidInput(
            "the deployment's engine is dedicated to one tenant",
            item="collections.engine",
            remedy="choose another one for everybody, or remove dedicated_to",
        )


def _check_dedicated(settings: CollectionSettings) -> None:
    for name, engine in settings.engines.items():
        for other, shared in settings.engines.items():
            same = engine.url.rstrip("/").lower() == shared.url.rstrip("/").lower()
            if name != other and engine.dedicated_to != shared.dedicated_to and same and engine.dedicated_to:
                raise InvalidInput(
                    f"the engine is dedicated to one tenant, and {other} is at the same address",
                    item=f"{_SECTION}.{name}.dedicated_to",
                    remedy="run a server of its own for the tenant",
                )


def _connected(name: str, engine: EngineSettings) -> Engine:
    # The clients take a second to import: only a process that needs one pays.
    if engine.kind == "qdrant":
        from indexing.engines.qdrant import QdrantEngine

        options = {} if engine.exact_below is None else {"exact_below": engine.exact_below}
        return QdrantEngine.server(
            name,
            engine.url,
            api_key_file=_path(engine.api_key_file),
            ca_file=_path(engine.ca_file),
            plaintext=engine.plaintext,
            timeout=engine.timeout_s,
            concurrency=engine.concurrency,
            **options,
        )
    from indexing.engines.milvus import MilvusEngine

    return MilvusEngine.server(
        name,
        engine.url,
        api_key_file=_path(engine.api_key_file),
        ca_file=_path(engine.ca_file),
        plaintext=engine.plaintext,
        database=engine.database,
        timeout=engine.timeout_s,
        concurrency=engine.concurrency,
        graph_from=engine.exact_below,
    )


def _path(text: str) -> Path | None:
    return Path(text).expanduser() if text else None
