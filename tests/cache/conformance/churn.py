"""Everything that can be done to a tenant's cache, in an order drawn from a seed; each thing found is checked.

As a program it goes on until it is killed:

    python -m tests.cache.conformance.churn DATA_DIR TENANT KEY DOCUMENT SEED MAX_ENTRIES [URL PASSWORD_FILE]
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from cache.entry import Entry, is_intact, sealed
from cache.policy import CachePolicy
from cache.stores.selector import Selector
from tenancy.control import Tenants
from tenancy.errors import Unavailable
from tenancy.identity import Authenticator
from tenancy.keys import MasterKey
from tests.cache.conformance.rig import Rig
from tests.cache.conformance.test_store_contract import entry_of
from tests.cache.desk import DIMENSION, Asked, Desk
from tests.support.redis_server import RedisServer

QUESTIONS = 60


class Churn:
    """Works on one desk's tenant. `seen` counts what was done and found."""

    def __init__(self, desk: Desk, document: int, seed: int, questions: int = QUESTIONS) -> None:
        self.desk = desk
        self.document = document
        self.random = random.Random(seed)
        self.asked: list[Asked] = [desk.ask(f"What does rule {number} say?") for number in range(questions)]
        self.seen: Counter[str] = Counter()

    def run(self, steps: int) -> None:
        """A file that 32 writers want may be busy too long: what a question takes as a miss counts as `away`."""
        for _ in range(steps):
            try:
                self.step()
            except Unavailable:
                self.seen["away"] += 1

    def step(self) -> None:
        name = self.random.choices(
            ["put", "get", "nearest", "discard", "confirm", "entry", "document", "sweep", "repair"],
            [40, 25, 20, 4, 4, 4, 0.5, 0.5, 0.3],
        )[0]
        getattr(self, f"_{name}")(self.random.choice(self.asked))
        self.seen[name] += 1

    def _put(self, asked: Asked) -> None:
        vector = np.array([self.random.gauss(0, 1) for _ in range(DIMENSION)], dtype="<f4")
        vector /= np.linalg.norm(vector)
        payload = b"x" * self.random.randint(1, 400)
        made = entry_of(self.desk, asked, self.document, vector=vector.tobytes(), payload=payload)
        self.desk.store.put(self.desk.company.handle, made, allowed=lambda: None)

    def _found(self, asked: Asked) -> Entry | None:
        entry = self.desk.store.get(self.desk.company.handle, asked.namespace, asked.exact)
        if entry is not None:
            self._check(entry, asked)
            assert entry.exact == asked.exact
            self.desk.store.touch(self.desk.company.handle, entry)
        return entry

    def _get(self, asked: Asked) -> None:
        self._found(asked)

    def _nearest(self, asked: Asked) -> None:
        query = np.array([self.random.gauss(0, 1) for _ in range(DIMENSION)], dtype=np.float32)
        query /= np.linalg.norm(query)
        for entry, similarity in self.desk.store.nearest(self.desk.company.handle, asked.namespace, query):
            self._check(entry, asked)
            assert entry.similarity(query) == similarity

    def _check(self, entry: Entry, asked: Asked) -> None:
        """No half of an entry, and none of another scope, is ever handed out."""
        assert is_intact(self.desk.company.handle, entry)
        assert entry.namespace == asked.namespace.value
        self.seen["found"] += 1

    def _discard(self, asked: Asked) -> None:
        if (entry := self._found(asked)) is not None:
            self.desk.store.discard(self.desk.company.handle, entry)

    def _confirm(self, asked: Asked) -> None:
        if (entry := self._found(asked)) is not None:
            tenant = self.desk.company.handle
            self.desk.store.confirm(tenant, sealed(tenant, replace(entry, confirmed=entry.confirmed + 1)))

    def _entry(self, asked: Asked) -> None:
        if (entry := self._found(asked)) is not None:
            self.desk.store.invalidate(self.desk.company.handle, Selector(entry=entry.id))

    def _document(self, _: Asked) -> None:
        self.desk.store.invalidate(self.desk.company.handle, Selector(document=self.document))

    def _sweep(self, _: Asked) -> None:
        self.desk.store.sweep(self.desk.company.handle)

    def _repair(self, _: Asked) -> None:
        self.desk.store.repair(self.desk.company.handle)


def die_in_the_middle(desk: Desk, asked: Asked, document: int) -> None:
    """SIGKILL between the decision that an entry may be written and the end of the write."""

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    desk.store.put(desk.company.handle, entry_of(desk, asked, document), allowed=die)


def main(data: str, tenant: str, key: str, document: str, seed: str, most: str, *server: str) -> None:
    tenants = Tenants(Path(data), MasterKey(bytes(range(32))))
    principal = Authenticator(tenants).authenticate(key, "192.0.2.1")
    behind = None
    if server:
        behind = RedisServer(Path(server[1]).parent)
        behind.port = int(server[0])
    store = Rig("other", time.time, behind).open(CachePolicy(max_entries=int(most)))
    desk = Desk(SimpleNamespace(handle=tenants.open(principal)), principal, store)  # type: ignore[arg-type]
    churn = Churn(desk, int(document), int(seed))
    if seed == "-1":
        die_in_the_middle(desk, churn.asked[0], int(document))
    print("ready", flush=True)
    while True:
        try:
            churn.step()
        except Unavailable:
            # The server or the file is away or busy for a moment: what a question would take as a miss.
            continue


if __name__ == "__main__":
    main(*sys.argv[1:])
