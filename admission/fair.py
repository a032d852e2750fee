"""Who is served next: virtual token counters on two levels, tenant then user, in two classes of work.

Each client has a counter of the service that it received, divided by its weight, and the least counter is served next
(Sheng et al., "Fairness in Serving Large Language Models", OSDI 2024, sections 4.1 and 4.3). Service is what an engine
really does: a token read counts 1, a token written 2, charged as it happens and given back where it did not.

For two clients of one level that both wait, service over weight never differs by more than 2 max(L, 2 M) over any
time, where L is the largest prompt and M the most tokens in flight at one time. That rests on three rules:

* Who begins to wait is lifted to the floor, and no higher than others that wait: time away earns no credit.
* The floor is the least counter of those that wait, or of those in flight where none waits; it never falls.
* Ageing: who was not served for `patience_s` while waiting lifts the floor above its own counter. Newcomers without
  end, each lifted to the floor, would otherwise overtake for ever a client that stands a little above it. Since its
  counter is one of those that wait, the bound is the same.

Of equal counters, which the lift makes, whoever was served longest ago is first: a newcomer waits for no turn of those
who were just served.

Pure data: no task, lock or thread. Use it from one thread.
"""

from __future__ import annotations

import heapq
import itertools
import math
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, Generic, Literal, TypeVar

from admission.pace import Key, Pace
from admission.shares import Shares
from tenancy.limits import WorkClass

WRITTEN: Final = 2
"""Service of a token that is written, in tokens that are read."""
_KEPT: Final = 1_024
"""Clients at rest of one level whose counters are remembered above the floor, at most."""

CLASS_WEIGHTS: Final[dict[WorkClass, float]] = {"interactive": 8.0, "batch": 1.0}
"""Where both classes wait, batch work gets one part of nine; alone, all there is."""


@dataclass(frozen=True, slots=True)
class Party:
    """On whose account work is done. `weight` is the tenant's; the users of a tenant weigh the same.

    Of different weights for one tenant at one time, the last one given holds.
    """

    tenant: str
    user: str = ""
    weight: float = 1.0
    work: WorkClass = "interactive"


@dataclass(slots=True, eq=False)
class _Client:
    """A class, a tenant or a user: `counter` is its service over its weight, `floor` that of its children.

    `waiting` and `running` count the requests below it. Of its children, those `queued` could be served, those `flying`
    are. `served` numbers its last service; `stamp` and `since` say when it began to wait or was last served.
    """

    name: str
    parent: _Client | None = None
    weight: float = 1.0
    counter: float = 0.0
    floor: float = 0.0
    waiting: int = 0
    running: int = 0
    served: int = 0
    stamp: int = 0
    since: float = 0.0
    children: dict[str, _Client] = field(default_factory=dict)
    queued: dict[str, _Client] = field(default_factory=dict)
    flying: dict[str, _Client] = field(default_factory=dict)
    resting: OrderedDict[str, None] = field(default_factory=OrderedDict)

    def child(self, name: str) -> _Client:
        found = self.children.get(name)
        if found is None:
            found = self.children[name] = _Client(name, self)
        return found


_Path = tuple[_Client, _Client, _Client]
T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _User(Generic[T]):
    """The waiting requests of one user: large and small ones each in order of arrival."""

    large: deque[Place[T]] = field(default_factory=deque)
    small: deque[Place[T]] = field(default_factory=deque)

    def __len__(self) -> int:
        return len(self.large) + len(self.small)

    @property
    def first(self) -> Place[T]:
        return (self.large or self.small)[0]

    @property
    def last(self) -> Place[T]:
        return max((line[-1] for line in (self.large, self.small) if line), key=lambda place: place._order)


@dataclass(slots=True, eq=False)
class Place(Generic[T]):
    """A request in the queue, then in flight. Made by `FairQueue.enter` alone.

    `read` and `written` are the tokens charged so far.
    """

    item: T
    party: Party
    tokens: int
    small: bool
    _path: _Path
    _order: int
    piece: bool = False
    read: int = 0
    written: int = 0
    state: Literal["waiting", "running", "gone"] = "waiting"

    @property
    def is_shared(self) -> bool:
        """Whether it counts for its tenant's share: batch work takes what is left, and nobody is due any of it."""
        return self.party.work == "interactive"

    @property
    def has_person(self) -> bool:
        """Whether somebody waits for its answer."""
        return self.is_shared and not self.piece


class FairQueue(Generic[T]):
    """Those that wait, and what everybody received. `clock` gives seconds; `pace` is told of everything."""

    def __init__(
        self, *, patience_s: float = 5.0, clock: Callable[[], float] = time.monotonic, pace: Pace | None = None
    ) -> None:
        self.patience_s = patience_s
        self.pace = pace
        self._clock = clock
        self.shares = Shares()
        self._root = _Client("")
        self._users: dict[_Client, _User[T]] = {}
        self._held: set[Key] = set()
        self._numbers = itertools.count(1)

    def __len__(self) -> int:
        """How many wait."""
        return self._root.waiting

    @property
    def running(self) -> int:
        return self._root.running

    def enter(self, item: T, party: Party, tokens: int, *, small: bool = False, piece: bool = False) -> Place[T]:
        """`item`, whose prompt has `tokens`, begins to wait. A small one may be served before an older large one.

        `piece`: it is the beginning of a prompt, for which nobody waits yet.
        """
        path = self._path(party)
        place = Place(item, party, tokens, small, path, next(self._numbers), piece)
        self._root.waiting += 1
        for client in path:
            client.waiting += 1
            assert client.parent is not None
            client.parent.resting.pop(client.name, None)
        user = self._users.setdefault(path[-1], _User())
        (user.small if small else user.large).append(place)
        if place.is_shared:
            self.shares.waits(party.tenant, party.weight, tokens)
        if self.pace is not None:
            self.pace.waits(party, person=place.has_person)
        self._look_at(path)
        return place

    def heads(self) -> Iterator[Place[T]]:
        """The first large and small request of every user that is not held back, whoever is to be served next first.

        Stop when something was begun: then the order is another.
        """
        return self._heads(self._root)

    def begin(self, place: Place[T]) -> None:
        """`place` is served: its prompt is charged."""
        for client in place._path:
            assert client.parent is not None
            self._raise_floor(client.parent)
            client.served = client.stamp = next(self._numbers)
            client.since = self._clock()
            client.running += 1
            client.parent.flying[client.name] = client
        self._root.running += 1
        self._take_out(place)
        place.state = "running"
        if place.is_shared:
            self.shares.begins(place.party.tenant, place.tokens)
        if self.pace is not None:
            self.pace.begins(place.party)
        self.used(place, place.tokens, 0)

    def used(self, place: Place[T], read: int, written: int) -> None:
        """The totals that `place` was really served by now; what was charged above that is given back."""
        if place.state != "running":
            return
        service = (read - place.read) + WRITTEN * (written - place.written)
        place.read, place.written = read, written
        for client in place._path:
            client.counter += service / client.weight
        if place.is_shared:
            self.shares.served(place.party.tenant, service)
        if self.pace is not None:
            self.pace.served(place.party, service)

    def leave(self, place: Place[T]) -> None:
        """`place` waits no longer, or is served no longer. What it was charged stays. Idempotent."""
        if place.state == "waiting":
            self._take_out(place)
            if place.is_shared:
                self.shares.gives_up(place.party.tenant, place.tokens)
        elif place.state == "running":
            self._root.running -= 1
            if place.is_shared:
                self.shares.ends(place.party.tenant)
            for client in place._path:
                client.running -= 1
                if not client.running and client.parent is not None:
                    del client.parent.flying[client.name]
        if place.state != "gone":
            self._let_rest(place._path)
            if self.pace is not None:
                self.pace.ends(place.party, person=place.has_person, running=place.state == "running")
        place.state = "gone"

    def hold(self, *who: str) -> None:
        """Serve nothing more of a tenant, or of a tenant's user, at a bound of its own, until `release`. Idempotent."""
        if who not in self._held:
            self._held.add(who)
            self._look_again_at(*who)

    def release(self, *who: str) -> None:
        """Of time at its own bound nobody has credit either: it is lifted like one that was away. Idempotent."""
        if who in self._held:
            self._held.remove(who)
            self._look_again_at(*who)

    def lead(self, place: Place[T], before: Place[T]) -> float:
        """How much more service over weight the client of `place` has than that of `before`, where they part."""
        for mine, theirs in zip(place._path, before._path, strict=True):
            if mine is not theirs:
                return mine.counter - theirs.counter
        return 0.0

    def last_of_longest(self) -> Place[T] | None:
        """The newest request of the user with the most that wait, in the tenant with the most: who gives way where too
        many wait.
        """
        tenants: Counter[str] = Counter()
        for user in self._users.values():
            tenants[user.first.party.tenant] += len(user)
        if not tenants:
            return None
        longest = max(tenants.values())
        users = [user for user in self._users.values() if tenants[user.first.party.tenant] == longest]
        return max(users, key=lambda user: (len(user), user.last._order)).last

    def _path(self, party: Party) -> _Path:
        levels = ((party.work, CLASS_WEIGHTS[party.work]), (party.tenant, party.weight), (party.user, 1.0))
        path: list[_Client] = []
        client = self._root
        for name, weight in levels:
            client = client.child(name)
            client.weight = weight
            path.append(client)
        return path[0], path[1], path[2]

    def _look_at(self, path: _Path) -> None:
        """See, from the user upwards, who can be served now."""
        work, tenant, user = path
        self._show(user, user in self._users and (tenant.name, user.name) not in self._held)
        self._show(tenant, bool(tenant.queued) and (tenant.name,) not in self._held)
        self._show(work, bool(work.queued))

    def _look_again_at(self, name: str, user: str | None = None) -> None:
        for work in tuple(self._root.children.values()):
            if (tenant := work.children.get(name)) is None:
                continue
            if user is not None and (client := tenant.children.get(user)) is not None:
                self._look_at((work, tenant, client))
            self._show(tenant, bool(tenant.queued) and (name,) not in self._held)
            self._show(work, bool(work.queued))

    def _show(self, client: _Client, could_be_served: bool) -> None:
        level = client.parent
        assert level is not None
        if could_be_served and client.name not in level.queued:
            self._raise_floor(level)
            client.counter = max(client.counter, level.floor)
            client.stamp, client.since = next(self._numbers), self._clock()
            level.queued[client.name] = client
        elif not could_be_served:
            level.queued.pop(client.name, None)

    def _raise_floor(self, level: _Client) -> None:
        active = level.queued or level.flying
        least = min((client.counter for client in active.values()), default=level.floor)
        late = self._clock() - self.patience_s
        aged = (math.nextafter(client.counter, math.inf) for client in level.queued.values() if client.since <= late)
        level.floor = max([level.floor, least, *aged])

    def _take_out(self, place: Place[T]) -> None:
        leaf = place._path[-1]
        user = self._users[leaf]
        (user.small if place.small else user.large).remove(place)
        for client in (self._root, *place._path):
            client.waiting -= 1
        if not len(user):
            del self._users[leaf]
        self._look_at(place._path)

    def _let_rest(self, path: _Path) -> None:
        """Forget clients at rest that the floor has reached, which it would lift anyway, and the oldest of too many."""
        for client in reversed(path):
            level = client.parent
            assert level is not None
            if client.waiting or client.running:
                continue
            level.resting[client.name] = None
            level.resting.move_to_end(client.name)
            while level.resting:
                oldest = next(iter(level.resting))
                if len(level.resting) <= _KEPT and level.children[oldest].counter > level.floor:
                    break
                del level.resting[oldest], level.children[oldest]

    def _heads(self, level: _Client) -> Iterator[Place[T]]:
        order = [(client.counter, client.served, client.stamp, client) for client in level.queued.values()]
        heapq.heapify(order)
        while order:
            client = heapq.heappop(order)[3]
            user = self._users.get(client)
            if user is None:
                yield from self._heads(client)
            else:
                yield from sorted((line[0] for line in (user.large, user.small) if line), key=lambda one: one._order)
