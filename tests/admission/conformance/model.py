"""What the counters must say, from lists of all that ever happened, summed anew for every decision. Slow and plain."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

from admission.counters import Ask, Crossing, Refused, Use
from admission.limits import Amounts, Draw
from admission.scopes import Scope

WINDOW_S = 60
NOTHING = Amounts()
CONCURRENT = {"concurrent": "requests", "kv_tokens": "tokens"}
MINUTE = {
    "requests_per_minute": "requests",
    "input_tokens_per_minute": "input",
    "output_tokens_per_minute": "output",
    "tokens_per_minute": "tokens",
}
LIFE = ("requests", "tokens", "money")


@dataclass
class Held:
    """A lease: what it holds, all that it holds until it leaves, and what it reported."""

    ask: Ask
    expires: float
    held: Amounts
    flight: Amounts
    reported: Amounts = NOTHING
    settled: bool = False


@dataclass
class Violation:
    scope: Scope
    bound: str
    limit: int
    used: int
    need: int


@dataclass
class Model:
    """`booked` is whatever a scope ever counted: when, and how much."""

    leases: dict[str, Held] = field(default_factory=dict)
    booked: list[tuple[Scope, float, Amounts]] = field(default_factory=list)
    told: set[tuple[Scope, str, float]] = field(default_factory=set)

    def take(self, ask: Ask, now: float) -> list[Violation]:
        """What the request would violate; where that is nothing, it is granted."""
        if ask.lease in self.leases:
            return []
        need = Amounts(1, ask.need.input, ask.need.output, ask.need.money)
        violated = [one for draw in ask.draws for one in self._begins(draw, need, now)]
        if not violated:
            self.leases[ask.lease] = Held(ask, now + ask.ttl_s, need - Amounts(1), need)
            self.booked += [(draw.scope, now, Amounts(1)) for draw in ask.draws]
        return violated

    def extend(self, lease: str, more: Amounts, used: Amounts, now: float) -> list[Violation] | None:
        """What more would violate, nothing if it is held; `None` where there is no such lease."""
        held = self.leases.get(lease)
        if held is None or held.settled:
            return None
        held.expires = now + held.ask.ttl_s
        held.reported = held.reported.or_more(used)
        less = more - more.or_more(NOTHING)
        self._hold(held, (held.held + less).or_more(held.reported) - held.held)
        wanted = more.or_more(NOTHING)
        violated = [one for draw in held.ask.draws for one in self._violated(draw, wanted, now, begins=False)]
        if not violated:
            self._hold(held, wanted)
        return violated

    def settle(self, lease: str, used: Amounts, now: float) -> tuple[bool, list[Crossing]]:
        held = self.leases.get(lease)
        if held is None or held.settled:
            return False, []
        return True, self._settle(held, used, now)

    def leave(self, lease: str, now: float) -> tuple[bool, list[Crossing]]:
        held = self.leases.pop(lease, None)
        if held is None or held.settled:
            return False, []
        return True, self._settle(held, held.reported, now)

    def reap(self, now: float) -> dict[str, tuple[Amounts, list[Crossing]]]:
        expired = {lease: held for lease, held in self.leases.items() if held.expires <= now}
        return {lease: (held.reported, self.leave(lease, now)[1]) for lease, held in expired.items()}

    def use(self, draw: Draw, now: float) -> Use:
        live = [held for held in self.leases.values() if any(one.scope == draw.scope for one in held.ask.draws)]
        alive = draw.budget is not None and (draw.until is None or now < draw.until)
        limited = draw.limits.money_per_month is not None
        return Use(
            flight=total(held.flight for held in live),
            held=total(held.held for held in live if not held.settled),
            minute=self._minute(draw.scope, now),
            month=Amounts(money=self._month(draw.scope, now)) if limited else NOTHING,
            life=total(what for scope, _, what in self.booked if scope == draw.scope) if alive else NOTHING,
        )

    def used(self, draw: Draw, bound: str, now: float) -> int:
        use = self.use(draw, now)
        if bound in CONCURRENT:
            return int(getattr(use.flight, CONCURRENT[bound]))
        if bound in MINUTE:
            return int(getattr(use.minute, MINUTE[bound]) + getattr(use.held, MINUTE[bound]))
        if bound == "money_per_month":
            return use.month.money + use.held.money
        return int(getattr(use.life, bound) + getattr(use.held, bound))

    def _begins(self, draw: Draw, need: Amounts, now: float) -> list[Violation]:
        if draw.until is not None and draw.until <= now:
            return [Violation(draw.scope, "deadline", 0, 0, 0)]
        return self._violated(draw, need, now, begins=True)

    def _violated(self, draw: Draw, need: Amounts, now: float, *, begins: bool) -> list[Violation]:
        """Nothing is ever refused for a measure of which nothing is wanted, once a request runs."""
        found = []
        measures = {**CONCURRENT, **MINUTE, "money_per_month": "money"}
        limits = [(name, measure, getattr(draw.limits, name)) for name, measure in measures.items()]
        if draw.budget is not None:
            limits += [(name, name, getattr(draw.budget, name)) for name in LIFE]
        for name, measure, limit in limits:
            needed = int(getattr(need, measure))
            if limit is None or not (needed or begins):
                continue
            used = self.used(draw, name, now)
            if used + needed > limit:
                found.append(Violation(draw.scope, name, limit, used, needed))
        return found

    def _hold(self, held: Held, change: Amounts) -> None:
        held.held += change
        held.flight += change

    def _settle(self, held: Held, used: Amounts, now: float) -> list[Crossing]:
        held.settled, held.reported = True, used
        crossed = []
        for draw in held.ask.draws:
            self.booked.append((draw.scope, now, used))
            limit = draw.limits.money_per_month
            if limit is None:
                continue
            month, money = label(now), self._month(draw.scope, now)
            for share in sorted({draw.limits.soft or 1.0, 1.0}):
                if money >= share * limit and (draw.scope, month, share) not in self.told:
                    self.told.add((draw.scope, month, share))
                    crossed.append(Crossing(draw.scope, share, limit, money, month))
        return crossed

    def _minute(self, scope: Scope, now: float) -> Amounts:
        """A second counts until its last instant has left the window."""
        return total(what for one, at, what in self.booked if one == scope and int(at) + 1 + WINDOW_S > now)

    def _month(self, scope: Scope, now: float) -> int:
        return sum(what.money for one, at, what in self.booked if one == scope and label(at) == label(now))


def total(parts: object) -> Amounts:
    sums = NOTHING
    for part in parts:  # type: ignore[attr-defined]
        sums += part
    return sums


def label(at: float) -> str:
    moment = datetime.fromtimestamp(at, UTC)
    return f"{moment.year}-{moment.month:02d}"


def matches(refused: Refused, violated: list[Violation]) -> bool:
    """Whether a refusal names one of what is violated, with its figures."""
    said = (refused.scope, refused.bound, refused.limit, refused.used, refused.need)
    return said in [(one.scope, one.bound, one.limit, one.used, one.need) for one in violated]
