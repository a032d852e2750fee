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

PATIENCE_S: Final = 0.5
"""How long whoever has them asked waits for what they answer."""

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
    """Which of the engines that tenants have needed so far are away; each is asked now and then, not every time.

    On threads of their own: a probe that waited for an engine would take the whole server out of service.
    """

    def __init__(self, engines: Engines, clock: Callable[[], float] = time.monotonic) -> None:
        self._engines = engines
        self._clock = clock
        self._lock = threading.Lock()
        self._asked = float("-inf")
        self._pending: dict[str, threading.Thread] = {}
        self._silent: set[str] = set()

    def away(self) -> int:
        """How many do not answer, or have not within `PATIENCE_S` seconds."""
        begun = []
        with self._lock:
            if self._clock() - self._asked > RECHECK_S:
                self._asked = self._clock()
                begun = [self._begun(engine) for engine in self._engines.needed() if engine.name not in self._pending]
        until = time.monotonic() + PATIENCE_S
        for thread in begun:
            thread.join(max(0.0, until - time.monotonic()))
        with self._lock:
            return len(self._silent | self._pending.keys())

    def _begun(self, engine: Engine) -> threading.Thread:
        thread = threading.Thread(target=self._ask, args=(engine,), name=f"ask-{engine.name}", daemon=True)
        self._pending[engine.name] = thread
        thread.start()
        return thread

    def _ask(self, engine: Engine) -> None:
        answers = _answers(engine)
        with self._lock:
            del self._pending[engine.name]
            (self._silent.discard if answers else self._silent.add)(engine.name)


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
