"""The counters in Redis, for several servers: each call is one script over all scopes (`counters.lua`).

All keys share a hash tag, so that one step reaches a tenant's scopes and those that all tenants share. A cluster thus
keeps them on one of its nodes, and more nodes admit no more requests.

    {sr:admission}:s:KIND:TENANT:ID   a scope       {sr:admission}:leases   the leases by expiry
    {sr:admission}:l:LEASE            a lease       {sr:admission}:seen     when a server last looked for expired ones
    {sr:admission}:b:LEASE            use that was reported after an outage, once
    {sr:admission}:epoch              a name for all of this, another one after it was lost
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec

from admission.counters import Ask, Crossing, Granted, Reaped, Refused, Room, Settled, Use
from admission.limits import Amounts, Draw, Limits
from admission.redis_link import ENDS, TAKES, Link
from admission.scopes import SHARED, Scope
from admission.tally import Rules, rules_of

PREFIX: Final = "{sr:admission}:"
REAPED: Final = 100
"""Leases that one step reaps at most: it holds the server up."""
_KNOWN: Final = 1_000
_REFUSED, _ANOTHER = 0, 2

_encode = msgspec.msgpack.encode
_decode = msgspec.msgpack.decode


class RedisCounters:
    """`Counters` at a server that several processes share. Windows, months and expiry go by the server's own clock.

    `clock` replaces it in tests. `emptied` is awaited where the server has lost what it kept, before anything is taken
    there. Every method raises `LimitsUnavailable` where the server is away.
    """

    def __init__(self, link: Link, *, clock: Callable[[], float] | None = None) -> None:
        self.link = link
        self._clock = clock
        self.emptied: Callable[[tuple[Draw, ...]], Awaitable[None]] | None = None
        self._epoch = ""
        self._rules: dict[Limits, tuple[Rules, list[Any]]] = {}

    @property
    def available(self) -> bool:
        return self.link.available

    async def take(self, ask: Ask) -> Granted | Refused:
        parts, rules = self._parts(ask.draws)
        data = [ask.lease, ask.tenant, ask.ttl_s, _list(ask.need), parts]
        answer, *found = await self._step("take", [*data, self._epoch], TAKES)
        while answer == _ANOTHER:
            if self._epoch and self.emptied is not None:
                await self.emptied(ask.draws)
            (self._epoch,) = found
            answer, *found = await self._step("take", [*data, self._epoch], TAKES)
        if answer == _REFUSED:
            return _refused(found)
        rooms = tuple(
            Room(ask.draws[p].scope, rules[p][r].name, rules[p][r].limit, int(used), float(resets))
            for p, r, used, resets in found
            if ask.draws[p].scope.kind not in SHARED
        )
        return Granted(ask.lease, rooms)

    async def extend(self, lease: str, more: Amounts, used: Amounts) -> Refused | None:
        granted, *found = await self._step("extend", [lease, _list(more), _list(used.checked())])
        return None if granted else _refused(found)

    async def settle(self, lease: str, used: Amounts) -> Settled:
        return _settled(await self._step("settle", [lease, _list(used.checked())]))

    async def leave(self, lease: str) -> Settled:
        return _settled(await self._step("leave", [lease]))

    async def reap(self) -> tuple[Reaped, ...]:
        ended: list[Reaped] = []
        more = True
        while more:
            more, found = await self._step("reap", [REAPED])
            ended += [Reaped(lease, tenant, Amounts(*used), _crossed(told)) for lease, tenant, used, told in found]
        return tuple(ended)

    async def report(self, ask: Ask, used: Amounts, *, recent: bool) -> Settled:
        """Book what a request used that was admitted while the server was away: once, however often it is said.

        `recent`: it ended within the window, and counts in it.
        """
        parts, _ = self._parts(ask.draws)
        total = [1, *_list(used.checked())[1:]]
        return _settled(await self._step("report", [ask.lease, total, parts, recent]))

    async def seed(self, month: str, spent: Mapping[Scope, int]) -> None:
        if spent:
            await self._step("seed", [month, [[_key(scope), money] for scope, money in spent.items()]])

    async def recall(self, scope: Scope, until: float, used: Amounts) -> None:
        await self._step("recall", [_key(scope), until, [used.checked().requests, *_list(used)[1:]]])

    async def use(self, scope: Scope) -> Use:
        flight, held, minute, month, life = await self._step("use", [_key(scope)])
        return Use(Amounts(*flight), Amounts(*held), Amounts(*minute), Amounts(money=month), Amounts(*life))

    async def aclose(self) -> None:
        await self.link.aclose()

    async def _step(self, name: str, data: list[Any], source: str = ENDS) -> list[Any]:
        now = "" if self._clock is None else repr(self._clock())
        found: list[Any] = _decode(await self.link.run(source, PREFIX + "leases", name, PREFIX, now, _encode(data)))
        return found

    def _parts(self, draws: tuple[Draw, ...]) -> tuple[list[Any], list[Rules]]:
        """What the script reads of each draw, and its rules, in one order."""
        parts, all_rules = [], []
        for draw in draws:
            scope, limits = draw.scope, draw.limits
            rules, written = self._rules_for(draw)
            parts.append(
                [
                    _key(scope), scope.kind, scope.id, scope.tenant,
                    False if draw.until is None else draw.until,
                    False if limits.money_per_month is None else limits.money_per_month,
                    limits.soft or False, draw.budget is not None, written,
                ]
            )  # fmt: skip
            all_rules.append(rules)
        return parts, all_rules

    def _rules_for(self, draw: Draw) -> tuple[Rules, list[Any]]:
        """Those of limits without a budget are remembered: most requests have the same few."""
        if draw.budget is not None:
            return _written(draw)
        found = self._rules.get(draw.limits)
        if found is None:
            if len(self._rules) >= _KNOWN:
                self._rules.clear()
            found = self._rules[draw.limits] = _written(draw)
        return found


def _written(draw: Draw) -> tuple[Rules, list[Any]]:
    rules = rules_of(draw)
    return rules, [[rule.name, rule.index + 1, rule.span, rule.limit] for rule in rules]


def _key(scope: Scope) -> str:
    """No two scopes share one: neither a kind nor a tenant's id has a colon."""
    return f"{scope.kind}:{scope.tenant}:{scope.id}"


def _list(amounts: Amounts) -> list[int]:
    return [0, amounts.input, amounts.output, amounts.money]


def _refused(found: list[Any]) -> Refused:
    kind, id, tenant, bound, limit, used, need, wait = found
    return Refused(Scope(kind, id, tenant), bound, int(limit), int(used), int(need), float(wait))


def _settled(found: list[Any]) -> Settled:
    booked, crossed = found
    return Settled(bool(booked), _crossed(crossed))


def _crossed(found: list[Any]) -> tuple[Crossing, ...]:
    return tuple(
        Crossing(Scope(kind, id, tenant), float(share), int(limit), int(used), month)
        for kind, id, tenant, share, limit, used, month in found
    )
