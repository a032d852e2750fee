"""A generated day of traffic: requests as the path makes them, and what they cost by an independent sum."""

from __future__ import annotations

import random
import secrets
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction

from audit.record import Actor, Cost, Draft, Phase, Request
from metering.meter import Meter
from metering.prices import Basis, Price, PriceList

SMALL, LARGE = "org/small", "org/large"
Table = dict[str, tuple[int, int, int]]
"""By hop, or by model for generation: microunits of a call, of a million tokens read, of a million written."""

FIRST: Table = {
    "embed": (0, 20_000, 0),
    "retrieve": (50, 0, 0),
    "cache": (3, 90_001, 310_007),
    SMALL: (100, 200_003, 600_011),
    LARGE: (7, 2_000_003, 8_000_009),
}
SECOND: Table = {
    "embed": (1, 17_777, 0),
    "retrieve": (0, 0, 0),
    "cache": (0, 45_003, 150_001),
    SMALL: (90, 190_007, 650_003),
    LARGE: (11, 1_500_001, 9_000_017),
}


def price_list(table: Table, revision: str) -> PriceList:
    prices = {name: Price(*numbers) for name, numbers in table.items()}
    return PriceList(
        plan="test",
        revision=revision,
        hops={"generate": prices[SMALL], **{name: prices[name] for name in ("embed", "retrieve", "cache")}},  # type: ignore[dict-item]
        models={LARGE: {"generate": prices[LARGE]}},
    )


PRICES = price_list(FIRST, "2026-12")
FEATURES = ("chat", "mail", None)


@dataclass
class Day:
    """Drafts in order, and sums that were counted apart from the product's arithmetic."""

    drafts: list[tuple[Draft, bool]] = field(default_factory=list)
    microunits: int = 0
    saved: int = 0
    computed: int = 0
    served: int = 0
    hops: int = 0
    by_feature: Counter[str] = field(default_factory=Counter)
    by_hop: Counter[str] = field(default_factory=Counter)
    generation: list[tuple[int, int, int]] = field(default_factory=list)
    events: dict[str, tuple[str, str, int]] = field(default_factory=dict)
    """By id: feature, hop, microunits."""


def rounded(amount: Fraction) -> int:
    """Half up, in exact arithmetic."""
    return int(amount + Fraction(1, 2))


def cost_of(call: int, input_price: int, output_price: int, tokens: tuple[int, int]) -> int:
    return call + rounded(Fraction(tokens[0] * input_price + tokens[1] * output_price, 1_000_000))


def a_day(requests: int, basis: Basis, seed: int = 7, *, table: Table = FIRST, prices: PriceList = PRICES) -> Day:
    """`requests` questions: hits, misses, streams that were cut, and intents without an outcome (a killed process)."""
    chosen, day = random.Random(seed), Day()
    for _ in range(requests):
        feature = chosen.choice(FEATURES)
        meter = Meter(prices, basis)
        actor = Actor(kind="user", ref=f"u_{chosen.randrange(5):032x}")
        request = Request(id=secrets.token_hex(16))
        for number, (hop, cost) in enumerate(_hops(chosen, meter, basis, day, table)):
            day.events[f"{request.id}.{number}.{hop}"] = (feature or "unattributed", hop, cost)
            day.microunits += cost
            day.by_feature[feature or "unattributed"] += cost
            day.by_hop[hop] += cost
            day.hops += 1
        # A hit is looked up, then on record, then looked at again; a miss is on record before it is generated.
        killed = chosen.random() < 0.05
        made = len(meter.hops) if killed else chosen.randrange(1, len(meter.hops) + 1)
        for phase, upto in (("intent", made), ("outcome", len(meter.hops))):
            if phase == "intent" or not killed:
                day.drafts.append((_draft(phase, actor, request, meter, upto, feature), phase == "intent"))
    return day


def _hops(chosen: random.Random, meter: Meter, basis: Basis, day: Day, table: Table) -> Iterator[tuple[str, int]]:
    model = chosen.choice((SMALL, LARGE))
    with meter.hop("embed") as use:
        question = chosen.randrange(1, 60)
        use.by("embedder", "1")
        use.used(question)
    day.computed += question
    day.served += question
    yield "embed", cost_of(*table["embed"], (question, 0))
    tokens = chosen.randrange(1, 30_000), chosen.randrange(1, 900)
    generating = table[model]
    if chosen.random() < 0.3:
        with meter.hop("cache") as use:
            use.by(model)
            use.saved(*tokens)
        day.served += sum(tokens)
        day.saved += cost_of(*generating, tokens)
        yield "cache", cost_of(*table["cache"], tokens if basis == "logical" else (0, 0))
        return
    with meter.hop("cache"):
        pass
    yield "cache", table["cache"][0]
    with meter.hop("retrieve"):
        pass
    yield "retrieve", table["retrieve"][0]
    cached = chosen.choice((0, 0, chosen.randrange(tokens[0] + 1)))
    cut = chosen.random() < 0.1
    with meter.hop("generate") as use:
        use.by(model, "r1", "a_1")
        use.used(*tokens, cached_input=cached, estimated=cut)
    computed = tokens[0] - cached, tokens[1]
    day.computed += sum(computed)
    day.served += sum(tokens)
    day.generation.append((tokens[0], cached, tokens[1]))
    yield "generate", cost_of(*generating, tokens if basis == "logical" else computed)


def _draft(phase: Phase, actor: Actor, request: Request, meter: Meter, upto: int, feature: str | None) -> Draft:
    hops = meter.hops[:upto]
    return Draft(
        action="answer",
        phase=phase,
        outcome=None if phase == "intent" else "allowed",
        actor=actor,
        request=request,
        cost=Cost(
            hops=tuple((hop.name, hop.milliseconds) for hop in hops),
            metered=tuple(hop.metered for hop in hops),
            microunits=sum(hop.metered.microunits for hop in hops),
            prices=meter.prices.id,
            basis=meter.basis,
        ),
        detail={} if feature is None else {"feature": feature},
    )
