"""Adapters at the engines: loaded before their first use, checked before each load, unloaded when others need the room.

One `AdapterLoader` for each pool. An adapter in use is never unloaded by us, since an engine would then take no other
load until its last stream has ended. Nothing here decides who may use an adapter: that is settled before, row by row,
and an engine that still holds a revoked one is asked for it by nobody.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from weakref import WeakKeyDictionary

from generation.adapters.files import intact
from generation.generator import GeneratorRefused, Misfit
from generation.replica import Adapter, AdapterRefused, Replica
from generation.wire import Interrupted, until
from tenancy.errors import Unavailable

_ITEM: Final = "adapter"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Loadable:
    """An adapter as pools take it: `manifest` is {file: SHA-256} of the folder `path`."""

    server_name: str
    revision: str
    path: Path
    manifest: Mapping[str, str]


@dataclass(slots=True)
class _Shelf:
    """What one replica has loaded (name -> number of the load), the least recently used first, and what is used now.

    Whoever has the `turn` loads and unloads; `returned` is set when a use ends.
    """

    loaded: OrderedDict[str, int] = field(default_factory=OrderedDict)
    uses: Counter[str] = field(default_factory=Counter)
    loads: int = 0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    returned: asyncio.Event = field(default_factory=asyncio.Event)

    def begin(self, name: str) -> int:
        self.loaded.move_to_end(name)
        self.uses[name] += 1
        return self.loaded[name]

    def end(self, name: str) -> None:
        self.uses[name] -= 1
        if not self.uses[name]:
            del self.uses[name]
        self.returned.set()


class AdapterLoader:
    """Implements `generation.pool.Loader`: at most `most` adapters at one time on each replica."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._shelves: WeakKeyDictionary[Replica, _Shelf] = WeakKeyDictionary()

    @asynccontextmanager
    async def lent(self, replica: Replica, adapter: Adapter, deadline: float) -> AsyncIterator[None]:
        """See `Loader.lent`. Raises also `Interrupted` where the engine was started anew and knows no adapter."""
        shelf = self._shelves.setdefault(replica, _Shelf())
        name = adapter.server_name
        number = await self._begun(shelf, replica, adapter, deadline)
        try:
            yield
        except Misfit:
            raise
        except GeneratorRefused as refusal:
            if shelf.loaded.get(name) == number:
                if await _known(replica, name, deadline):
                    raise
                # Started anew: all that was loaded is gone, and the next attempt loads what it needs.
                shelf.loaded.clear()
            raise Interrupted("the engine did not know the adapter any more", item=replica.name) from refusal
        finally:
            shelf.end(name)

    def loaded(self, replica: Replica) -> tuple[str, ...]:
        """Server names, the least recently used first."""
        shelf = self._shelves.get(replica)
        return () if shelf is None else tuple(shelf.loaded)

    async def _begun(self, shelf: _Shelf, replica: Replica, adapter: Adapter, deadline: float) -> int:
        name = adapter.server_name
        if name in shelf.loaded:
            return shelf.begin(name)
        try:
            async with until(deadline), shelf.turn:
                if name not in shelf.loaded:
                    await self._make_room(shelf, replica)
                    await _load(replica, adapter, deadline)
                    shelf.loads += 1
                    shelf.loaded[name] = shelf.loads
                return shelf.begin(name)
        except TimeoutError:
            raise AdapterRefused("the adapter was not loaded before the deadline", item=_ITEM) from None

    async def _make_room(self, shelf: _Shelf, replica: Replica) -> None:
        """Unload the least recently used that is idle; where none is, the least recently used, after its streams."""
        while len(shelf.loaded) >= max(1, self.most):
            victim = next((name for name in shelf.loaded if not shelf.uses[name]), next(iter(shelf.loaded)))
            # Whoever wants it from here on waits for the turn.
            number = shelf.loaded.pop(victim)
            try:
                while shelf.uses[victim]:
                    shelf.returned.clear()
                    await shelf.returned.wait()
                await replica.unload_adapter(victim)
            except AdapterRefused:
                _log.info("the engine %s had unloaded an adapter by itself", replica.name)
            except BaseException:
                shelf.loaded[victim] = number
                shelf.loaded.move_to_end(victim, last=False)
                raise


async def _load(replica: Replica, adapter: Adapter, deadline: float) -> None:
    """Raises `AdapterRefused` and what `Replica.load_adapter` raises."""
    # Nothing is loaded that is not what was registered, whoever has written into the folder since.
    if not await asyncio.to_thread(intact, Path(adapter.path), adapter.manifest):
        _log.error("the files of the adapter %s are not those that were registered", adapter.server_name)
        raise AdapterRefused("the adapter's files are not those that were registered", item=_ITEM)
    await replica.require_checked(deadline)
    try:
        await replica.load_adapter(adapter.server_name, adapter.path)
    except AdapterRefused:
        # Another process of ours may have loaded it there; its name is random, so nobody else can have.
        if not await _known(replica, adapter.server_name, deadline):
            raise


async def _known(replica: Replica, name: str, deadline: float) -> bool:
    """Whether the engine has the adapter; True where it does not say, so that nothing is taken for a new start."""
    try:
        return name in await replica.adapters(deadline)
    except Unavailable:
        return True
