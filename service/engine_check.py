"""Are the server engines there, and do they hold what they should? For `strongroom doctor` and for readiness."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from indexing.catalogue import all_collections
from indexing.engine import Engine
from indexing.engines.registry import Engines
from service.control import master_key, open_tenants
from service.engines import build_engines
from service.settings import Settings
from tenancy.errors import StrongroomError, TenantSuspended
from tenancy.identity import Authenticator

RECHECK_S: Final = 10.0
"""How long what an engine answered is believed."""

_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class EngineFinding:
    engine: str
    state: Literal["ok", "note", "wrong"]
    finding: str
    remedy: str | None = None


def examine_engines(settings: Settings) -> list[EngineFinding]:
    """One finding for each server engine. Opens every tenant, to know whose collections are there."""
    engines = build_engines(settings.collections)
    try:
        if not engines:
            return []
        known, whole = _on_record(settings)
        return [_examined(name, engines, known, whole) for name in engines]
    finally:
        engines.close()


class EngineWatch:
    """Which of the engines that tenants have needed so far are away; each is asked now and then, not every time."""

    def __init__(self, engines: Engines, clock: Callable[[], float] = time.monotonic) -> None:
        self._engines = engines
        self._clock = clock
        self._lock = threading.Lock()
        self._asked = float("-inf")
        self._away = 0

    def away(self) -> int:
        """How many do not answer. May take as long as an engine's timeout."""
        if not self._lock.acquire(blocking=False):
            return self._away
        try:
            if self._clock() - self._asked > RECHECK_S:
                self._away = sum(not _answers(engine) for engine in self._engines.needed())
                self._asked = self._clock()
            return self._away
        finally:
            self._lock.release()


def _answers(engine: Engine) -> bool:
    try:
        engine.version()
    except StrongroomError:
        return False
    return True


def _examined(name: str, engines: Engines, known: set[str], whole: bool) -> EngineFinding:
    serves = f", for {engines.dedicated[name]} alone" if name in engines.dedicated else ""
    try:
        version, present = engines[name].version(), engines[name].collections()
    except StrongroomError as error:
        return EngineFinding(name, "wrong", error.reason, error.remedy)
    here = f"version {version}{serves}, {len(present)} collections"
    orphans = [physical for physical in present if physical not in known]
    if not orphans:
        return EngineFinding(name, "ok", here)
    shown = ", ".join(orphans[:_SHOWN]) + (" and more" if len(orphans) > _SHOWN else "")
    if not whole:
        found = f"{here}; {len(orphans)} of no active tenant here, and suspended tenants were not looked at: {shown}"
        return EngineFinding(name, "note", found)
    return EngineFinding(
        name,
        "note",
        f"{here}; {len(orphans)} of no tenant here: {shown}",
        "drop them at the engine, unless another deployment uses this server",
    )


def _on_record(settings: Settings) -> tuple[set[str], bool]:
    """The physical names that active tenants have on record, and whether all tenants were active."""
    tenants = open_tenants(settings, master_key(settings))
    known: set[str] = set()
    whole = True
    try:
        authenticator = Authenticator(tenants)
        for record in tenants.all():
            try:
                with tenants.open(authenticator.operator(record.name)).reading() as view:
                    known |= {row.physical for row in all_collections(view)}
            except TenantSuspended:
                whole = False
    finally:
        tenants.close()
    return known, whole
