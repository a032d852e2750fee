"""Who is ahead of late, and is to be slowed while others are there: tenants, and the users in each.

A batch is slower with everybody in it, and an engine reads a prompt before it writes on: whoever has work there all the
time doubles the times of those that share the engine, in any order. Those that are ahead can be given fewer slots while
somebody is there who is not. They are slowed no further than to their part of what is served, and only for the sake of
who is modest: who asks for more than its part waits for want of capacity, and no order makes more of that.

Service counts as in `admission.fair`, and fades with a time constant: of 30 s, what was served a minute ago counts an
eighth.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from admission.fair import Party

Key = tuple[str, ...]
"""A tenant, or a tenant and its user."""


@dataclass(slots=True, eq=False)
class _Recent:
    """A tenant or a user. `asked` is when the last request ended that somebody waited for; of those that are there
    `people` are such, `wanted` are all, and `running` those that are served. `eager`: when it was more than its part.
    `service` has faded up to `faded`.
    """

    weight: float = 1.0
    service: float = 0.0
    faded: float = 0.0
    asked: float = -math.inf
    eager: float = -math.inf
    people: int = 0
    wanted: int = 0
    running: int = 0
    children: dict[str, _Recent] = field(default_factory=dict)

    def receives(self, service: float, now: float, fade_s: float) -> None:
        if now > self.faded:
            self.service *= math.exp((self.faded - now) / fade_s)
            self.faded = now
        self.service += service


class Pace:
    """Of one queue. `fade_s` is the time constant, and how long somebody is there after the last interactive request,
    in seconds; `clock` gives them too. From one thread.
    """

    def __init__(self, fade_s: float = 30.0, clock: Callable[[], float] = time.monotonic) -> None:
        self.fade_s = fade_s
        self.clock = clock
        self._root = _Recent()
        self._looked = clock()

    def waits(self, party: Party, *, person: bool) -> None:
        """A request begins to wait, and a person for it."""
        for recent in self._of(party):
            recent.wanted += 1
            recent.people += person

    def begins(self, party: Party) -> None:
        """A request that waited is served from now on."""
        for recent in self._of(party):
            recent.running += 1

    def served(self, party: Party, service: float) -> None:
        """So much was done for a request that is served; below zero, less than was thought."""
        now = self.clock()
        for recent in self._of(party):
            recent.receives(service, now, self.fade_s)

    def ends(self, party: Party, *, person: bool, running: bool) -> None:
        """A request that was served, or waited, is gone."""
        now = self.clock()
        for recent in self._of(party):
            recent.wanted -= 1
            recent.running -= running
            if person:
                recent.people -= 1
                recent.asked = now
        if now >= self._looked + self.fade_s:
            # Where nobody is ever held, nobody else looks who is gone.
            self._looked = now
            self._here(self._root, now)
            for tenant in self._root.children.values():
                self._here(tenant, now)

    def held(self, slots: int, most: int) -> frozenset[Key]:
        """Who may have no further slot now: those that are ahead, where they have `most` together already.

        Who had or wanted no more than its part of `slots` at any time of late is modest. Ahead are tenants that are
        not, and were served more than their part, while one is there that is, and was not. Likewise the users of each
        tenant.
        """
        return frozenset(self._held(self._root, (), slots, most, self.clock()))

    def _of(self, party: Party) -> Iterator[_Recent]:
        if party.tenant:
            tenant = self._root.children.setdefault(party.tenant, _Recent())
            tenant.weight = party.weight
            yield tenant
            yield tenant.children.setdefault(party.user, _Recent())

    def _held(self, level: _Recent, path: Key, slots: float, most: int, now: float) -> Iterator[Key]:
        here = self._here(level, now)
        weights = sum(recent.weight for recent in here.values())
        mean = sum(recent.service for recent in here.values()) / weights if here else math.inf
        ahead, modest = {}, False
        for name, recent in level.children.items():
            part = max(1.0, slots * recent.weight / weights) if name in here else slots
            if recent.wanted > part:
                recent.eager = now
            eager = recent.eager >= now - self.fade_s
            if eager and recent.service > mean * recent.weight:
                ahead[name] = recent
            modest |= not eager and name in here and recent.service <= mean * recent.weight
            if not path:
                yield from self._held(recent, (name,), part, most, now)
        if modest and sum(recent.running for recent in ahead.values()) >= most:
            yield from ((*path, name) for name in ahead)

    def _here(self, level: _Recent, now: float) -> dict[str, _Recent]:
        """Those of one level that are there, after all of it faded; who is long gone is forgotten."""
        late, here = now - self.fade_s, {}
        for name, recent in list(level.children.items()):
            recent.receives(0.0, now, self.fade_s)
            if recent.people or recent.asked >= late:
                here[name] = recent
            elif not recent.wanted and recent.service < 1:
                del level.children[name]
        return here
