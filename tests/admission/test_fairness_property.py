"""The bound of fairness on random traffic, with mutations of the queue that it must notice."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from admission import fair
from tests.admission.traces import PATIENCE, Found, Run, Trace, newcomers, trace

FAST, MANY = 80, 3_000


def served(traffic: Trace, module: Any = fair) -> Found:
    run = Run(None, traffic)
    run.queue = module.FairQueue(patience_s=PATIENCE, clock=lambda: float(run.now))
    found = run.finish()
    assert not found.idle, "who waits is served while there is room"
    return found


def worst(traces: Iterable[Trace], module: Any = fair) -> Found:
    """The largest gap over the bound, and how often a newcomer overtook."""
    worst = Found()
    for traffic in traces:
        found = served(traffic, module)
        worst.gap = max(worst.gap, found.gap)
        worst.overtaken += found.overtaken
    return worst


def test_service_never_differs_by_more_than_the_bound() -> None:
    found = worst(trace(seed) for seed in range(FAST))
    assert 0.2 < found.gap <= 1, "the traffic comes near it, and not over it"
    assert not found.overtaken


@pytest.mark.slow
def test_service_never_differs_by_more_than_the_bound_in_thousands_of_traces() -> None:
    found = worst(trace(seed) for seed in range(FAST, FAST + MANY))
    print(f"{MANY} traces: the worst gap is {found.gap:.3f} of the bound")
    assert found.gap <= 1
    assert not found.overtaken


def test_newcomers_without_end_starve_nobody() -> None:
    assert not worst(newcomers(seed) for seed in range(20)).overtaken


UNFAIR = {
    "no lift": (("client.counter = max(client.counter, level.floor)", "pass"),),
    "charge per request": (
        (
            "(read - place.read) + WRITTEN * (written - place.written)",
            "20 * (place.read == 0 and place.written == 0)",
        ),
    ),
    "charge before instead of actual": (
        ("self.used(place, place.tokens, 0)", "self.used(place, place.tokens, place.item.most)"),
        ('if place.state != "running":', 'if place.state != "running" or place.written:'),
    ),
    "one level only": (
        (
            "(party.tenant, party.weight), (party.user, 1.0)",
            '(f"{party.tenant}/{party.user}", party.weight), (party.user, 1.0)',
        ),
    ),
    "no floor": (
        ("max([level.floor, least, *aged])", "max([least, *aged])"),
        ("default=level.floor", "default=0.0"),
    ),
    "no floor, but the least that is queued or in flight": (
        ("active = level.queued or level.flying", "active = level.flying | level.queued"),
        ("max([level.floor, least, *aged])", "max([least, *aged])"),
    ),
    "weights ignored": (("service / client.weight", "service"),),
    "nothing given back": (("service = (read - place.read)", "service = max(0, read - place.read)"),),
}


@pytest.mark.parametrize("mutation", UNFAIR)
def test_an_unfair_queue_is_noticed(mutation: str) -> None:
    with mutant(UNFAIR[mutation]) as module:
        assert any(served(trace(seed), module).gap > 1 for seed in range(MANY)), "no trace shows it"


def test_a_queue_without_ageing_is_noticed() -> None:
    with mutant([("if client.since <= late", "if False")]) as module:
        assert any(served(newcomers(seed), module).overtaken for seed in range(20))


@contextmanager
def mutant(edits: Iterable[tuple[str, str]]) -> Iterator[ModuleType]:
    """The module with other text in place of its own."""
    path = Path(fair.__file__)
    text = path.read_text(encoding="utf-8")
    for old, new in edits:
        assert text.count(old) == 1, f"the mutation fits the module no more: {old}"
        text = text.replace(old, new)
    module = ModuleType("admission.fair_mutant")
    sys.modules[module.__name__] = module
    try:
        exec(compile(text, str(path), "exec"), module.__dict__)
        yield module
    finally:
        del sys.modules[module.__name__]
