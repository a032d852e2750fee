"""Random traffic against a model of an engine, and an independent account of what each client received.

The engine batches continuously and knows no fairness: in each step it takes whom the queue names while the tokens in
flight (prompt and longest answer of each request) fit into its memory, and writes one token of each running request.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from admission.fair import Party

WRITTEN = 2
PATIENCE = 25.0


@dataclass(eq=False)
class Request:
    """`cached` tokens of the prompt need not be read; `written` of `most` possible ones are; `ends` early perhaps."""

    party: Party
    tokens: int
    cached: int
    output: int
    most: int
    gives_up: int | None = None
    arrived: int = 0
    done: int = 0
    place: Any = None


@dataclass
class Trace:
    memory: int
    arrivals: dict[int, list[Request]]
    steps: int
    longest: int
    compared: bool = True

    @property
    def bound(self) -> float:
        """Of service over weight, for weights of at least 1."""
        return 2 * max(self.longest, WRITTEN * self.memory)


def trace(seed: int) -> Trace:
    return (mixed, mixed, returning, remembered)[seed % 4](seed)


def remembered(seed: int) -> Trace:
    """Two tenants always wait; the engine has most of the one's prompts in its memory, and reads all of the other's."""
    draw = random.Random(seed)
    arrivals: dict[int, list[Request]] = defaultdict(list)
    for name, cached in (("known", 19), ("fresh", 0)):
        arrivals[0] += [Request(Party(name, "u"), 20, cached, 1, draw.randint(1, 2)) for _ in range(120)]
    return Trace(60, arrivals, 60, 20)


def returning(seed: int, *, calm: int = 25) -> Trace:
    """One tenant was busy for a while; then another comes, when all is quiet or a third one's long answer runs."""
    draw = random.Random(seed)
    arrivals: dict[int, list[Request]] = defaultdict(list)
    quiet = draw.random() < 0.5
    for step in (*range(calm), *range(calm + 12 * quiet, 2 * calm)):
        arrivals[step] += [_short(draw, "busy", step) for _ in range(draw.randint(5, 9))]
    if not quiet:
        begin = draw.randint(1, 4)
        arrivals[begin].insert(0, Request(Party("long", "u"), 2, 0, calm + 10, calm + 10, None, begin))
    back = calm + (draw.randint(9, 11) if quiet else draw.randint(0, 3))
    arrivals[back] += [_short(draw, "new", back) for _ in range(100)]
    return Trace(40 + (0 if quiet else calm + 12), arrivals, 2 * calm, 3)


def _short(draw: random.Random, tenant: str, step: int) -> Request:
    return Request(Party(tenant, "u"), draw.randint(2, 3), 0, 1, 2, None, step)


def mixed(seed: int, *, steps: int = 160) -> Trace:
    """A few tenants of different weights, whose users come steadily, in bursts, late, or keep the queue full."""
    draw = random.Random(seed)
    memory = draw.randint(40, 120)
    arrivals: dict[int, list[Request]] = defaultdict(list)
    for tenant in range(draw.randint(2, 4)):
        weight = draw.choice((1.0, 1.0, 1.0, 2.0, 4.0))
        for user in range(draw.choice((1, 1, 2, 5))):
            work = "batch" if draw.random() < 0.1 else "interactive"
            party = Party(f"t{tenant}", f"u{user}", weight, work)
            longest = draw.choice((3, 12, memory // 2))
            most = draw.choice((2, 8, memory // 2))
            known = draw.choice((0.0, 0.0, 0.5, 1.0))
            for step in _pattern(draw, steps):
                output = draw.randint(1, most) if draw.random() < 0.5 else 1
                tokens = draw.randint(1, longest)
                cached = round(known * draw.randint(0, tokens))
                gives_up = draw.randint(0, 40) if draw.random() < 0.05 else None
                arrivals[step].append(Request(party, tokens, cached, output, most, gives_up, step))
    longest = max((one.tokens for found in arrivals.values() for one in found), default=1)
    return Trace(memory, arrivals, steps, longest)


def newcomers(seed: int, *, steps: int = 150) -> Trace:
    """One patient user or tenant, and others without end, each of whom comes once."""
    draw = random.Random(seed)
    arrivals: dict[int, list[Request]] = defaultdict(list)
    names = itertools.count()
    by_user = draw.random() < 0.5
    for step in range(steps):
        if step in (0, 1):
            arrivals[step].append(Request(Party("t", "patient"), draw.randint(10, 20), 0, draw.randint(5, 10), 10))
        for _ in range(draw.randint(0, 3)):
            party = Party("t", f"n{next(names)}") if by_user else Party(f"n{next(names)}", "patient")
            arrivals[step].append(Request(party, draw.randint(2, 6), 0, draw.randint(1, 4), 4, None, step))
    return Trace(40, arrivals, steps, 20, compared=False)


def _pattern(draw: random.Random, steps: int) -> Iterator[int]:
    """The steps at which a user's requests arrive."""
    begin = draw.choice((0, 0, draw.randrange(steps)))
    match draw.choice(("flood", "steady", "bursts", "rare")):
        case "flood":
            yield from [begin] * draw.randint(30, 150)
        case "steady":
            yield from range(begin, steps, draw.randint(1, 6))
        case "bursts":
            for _ in range(draw.randint(1, 4)):
                yield from [draw.randrange(steps)] * draw.randint(3, 40)
        case "rare":
            yield from (draw.randrange(steps) for _ in range(draw.randint(1, 4)))


@dataclass
class Account:
    """What a client of one level received over its weight, and since when it waits or was last served."""

    weight: float
    service: float = 0.0
    waiting: int = 0
    running: int = 0
    flew: int = -1
    began: int = 0
    since: int = 0


@dataclass
class Found:
    """`gap`: the largest difference of service over weight between two clients that both waited, over the bound.

    `overtaken`: how often one that began to wait after another's patience had ended was served before it.
    """

    gap: float = 0.0
    overtaken: int = 0
    idle: int = 0
    served: Counter[str] = field(default_factory=Counter)


Key = tuple[str, ...]


class Run:
    """One trace, served in the order of `queue`."""

    def __init__(self, queue: Any, traffic: Trace) -> None:
        self.queue, self.traffic, self.found = queue, traffic, Found()
        self.now = 0
        self.accounts: dict[Key, Account] = {}
        self.running: list[Request] = []
        self.waiting: list[Request] = []
        self._spans: dict[tuple[Key, Key], tuple[float, float]] = {}

    def finish(self) -> Found:
        for step in range(self.traffic.steps):
            self.now = step
            for request in self.traffic.arrivals.get(step, ()):
                self._arrive(request)
            self._compare()
            self._give_up()
            while self._serve_one():
                self._compare()
            self._write()
            self._compare()
        self.found.gap /= self.traffic.bound
        return self.found

    def _keys(self, request: Request) -> tuple[Key, Key]:
        party = request.party
        return (party.work, party.tenant), (party.work, party.tenant, party.user)

    def _arrive(self, request: Request) -> None:
        for key, weight in zip(self._keys(request), (request.party.weight, 1.0), strict=True):
            account = self.accounts.setdefault(key, Account(weight))
            account.waiting += 1
            if account.waiting == 1:
                account.began = account.since = self.now
        request.place = self.queue.enter(request, request.party, request.tokens)
        self.waiting.append(request)

    def _serve_one(self) -> bool:
        head = next(self.queue.heads(), None)
        if head is None:
            self.found.idle += bool(self.waiting)
            return False
        request = head.item
        if sum(one.tokens + one.most for one in self.running) + request.tokens + request.most > self.traffic.memory:
            return False
        self._require_patience(request)
        self.queue.begin(head)
        self.waiting.remove(request)
        self.running.append(request)
        for key in self._keys(request):
            account = self.accounts[key]
            account.waiting -= 1
            account.running += 1
            account.since = self.now
            account.service += (request.tokens - request.cached) / account.weight
        self.found.served[request.party.tenant] += 1
        return True

    def _write(self) -> None:
        for account in self.accounts.values():
            account.flew = self.now if account.running else account.flew
        for request in tuple(self.running):
            request.done += 1
            for key in self._keys(request):
                self.accounts[key].service += WRITTEN / self.accounts[key].weight
            self.queue.used(request.place, request.tokens - request.cached, request.done)
            if request.done >= request.output:
                self.running.remove(request)
                self._leave(request)

    def _give_up(self) -> None:
        for request in tuple(self.waiting) + tuple(self.running):
            if request.gives_up is not None and self.now - request.arrived >= request.gives_up:
                if request in self.waiting:
                    self.waiting.remove(request)
                    for key in self._keys(request):
                        self.accounts[key].waiting -= 1
                        self.accounts[key].running += 1
                else:
                    self.running.remove(request)
                self._leave(request)

    def _leave(self, request: Request) -> None:
        self.queue.leave(request.place)
        for key in self._keys(request):
            self.accounts[key].running -= 1

    def _require_patience(self, request: Request) -> None:
        for key in self._keys(request):
            mine = self.accounts[key]
            for other, account in self.accounts.items():
                if other[:-1] != key[:-1] or other == key or not account.waiting:
                    continue
                late = mine.began > account.since + PATIENCE
                self.found.overtaken += late and max(mine.flew, account.flew) < mine.began

    def _compare(self) -> None:
        """Note how far apart two clients of one level have moved since both wait."""
        if not self.traffic.compared:
            return
        waiting = [(key, account) for key, account in self.accounts.items() if account.waiting]
        pairs: dict[tuple[Key, Key], tuple[float, float]] = {}
        for (mine, one), (theirs, other) in itertools.combinations(waiting, 2):
            if mine[:-1] != theirs[:-1]:
                continue
            apart = one.service - other.service
            least, most = self._spans.get((mine, theirs), (apart, apart))
            pairs[mine, theirs] = span = min(least, apart), max(most, apart)
            self.found.gap = max(self.found.gap, span[1] - span[0])
        self._spans = pairs
