"""A store under test and its back end, so that one suite holds every store to the port."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cache.policy import CachePolicy, TemplatePolicy
from cache.stores.local import LocalStore
from cache.stores.port import CacheStore
from tests.support.redis_server import RedisServer

# Hits are looked at here, not their certificate: nothing is drawn and nobody is on probation.
POLICY = CachePolicy(template=TemplatePolicy(shadow=0.0, probation=0))


@dataclass
class Rig:
    """`kind` names the store; `server` is its Redis, None for the local store. `durable`: a restart loses nothing."""

    kind: str
    clock: Callable[[], float]
    server: RedisServer | None = None
    opened: list[CacheStore] = field(default_factory=list)

    @property
    def durable(self) -> bool:
        return self.server is None or self.server.persistent

    def open(self, policy: CachePolicy = POLICY, **changes: Any) -> CacheStore:
        """A store as another process would open it: nothing in memory is shared."""
        if self.server is None:
            store: CacheStore = LocalStore(policy, clock=self.clock)
        else:
            store = redis_store(self.server, policy, self.clock, **changes)
        self.opened.append(store)
        return store

    def restart(self) -> None:
        """The back end is killed and comes up again."""
        if self.server is not None:
            self.server.kill()
            self.server.start()

    def close(self) -> None:
        for store in self.opened:
            store.shutdown()
        if self.server is not None and self.server.process is not None:
            with self.server.client() as client:
                client.flushall()


def redis_store(server: RedisServer, policy: CachePolicy, clock: Callable[[], float], **changes: Any) -> CacheStore:
    from cache.stores.redis import RedisStore
    from cache.stores.redis_link import Link
    from tenancy.redis_settings import RedisSettings

    # Generous: the machine that runs the tests may be busy, and what is slow is tested elsewhere.
    values = {"timeout_s": 10.0, "connect_timeout_s": 10.0, **changes}
    settings = RedisSettings(url=server.url, password_file=str(server.password_file), **values)
    return RedisStore(Link(settings), policy, clock=clock)


@contextlib.contextmanager
def running(folder: Path, **how: Any) -> Iterator[RedisServer]:
    server = RedisServer(folder, **how)
    server.start()
    try:
        yield server
    finally:
        server.kill()
