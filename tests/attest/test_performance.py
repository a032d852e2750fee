"""Performance isolation: what becomes of figures, and the layer against a served house, whole and broken on purpose."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from admission.gate import Gate
from admission.lease import Lease
from service.attest import performance
from service.attest.performance import verdict
from service.attest.stage import Stage
from service.attest.statistics import Ratio, ratio
from tenancy.errors import LimitExceeded
from tenancy.identity import Principal
from tests.attest.place import plain

BOUND = 1.5


@pytest.mark.parametrize(
    ("found", "real", "failed", "expected"),
    [
        (Ratio(1.1, 1.0, 1.4), True, 0, "PASS"),
        (Ratio(1.4, 1.2, 1.6), True, 0, "INCONCLUSIVE"),
        (Ratio(2.0, 1.6, 2.5), True, 0, "FAIL"),
        (Ratio(1.1, 1.0, 1.4), True, 1, "FAIL"),
        (Ratio(1.1, 1.0, 1.4), False, 0, "INCONCLUSIVE"),
        (Ratio(2.0, 1.6, 2.5), False, 1, "INCONCLUSIVE"),
    ],
)
def test_the_verdict_follows_the_bounds(found: Ratio, real: bool, failed: int, expected: str) -> None:
    assert verdict(found, BOUND, load_was_real=real, failed=failed) == expected


def test_the_ratio_of_a_quantile_has_bounds_around_it() -> None:
    draw = np.random.default_rng(1)
    quiet, slow = draw.exponential(10.0, 400), draw.exponential(30.0, 400)
    found = ratio(slow, quiet, 0.95)
    assert found.lower < found.ratio < found.upper
    assert 2.0 < found.lower < 3.0 < found.upper < 4.5
    same = ratio(quiet, quiet, 0.95)
    assert same.lower < 1.0 < same.upper


@pytest.mark.slow
@pytest.mark.timeout(600)
class TestServed:
    def test_within_a_wide_bound_it_passes(self, stage: Stage) -> None:
        found = performance.examine(loaded(stage, bound=1_000.0))
        assert found.verdict == "PASS", plain(found)
        assert (found.claims[0].probes, found.claims[0].held) == (20, 1)

    def test_a_tenant_that_waits_for_another_fails_it(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        original = Gate.admit

        @asynccontextmanager
        async def admit(self: Gate, principal: Principal, *given: Any, **more: Any) -> AsyncIterator[Lease]:
            if self.live and principal.tenant == stage.right.name:
                await asyncio.sleep(2.0)
            async with original(self, principal, *given, **more) as lease:
                yield lease

        monkeypatch.setattr(Gate, "admit", admit)
        found = performance.examine(loaded(stage, bound=BOUND, probes=10))
        assert found.verdict == "FAIL", plain(found)

    def test_load_that_is_kept_off_shows_nothing(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        original = Gate.admit

        def admit(self: Gate, principal: Principal, *given: Any, **more: Any) -> Any:
            if principal.tenant == stage.left.name and more.get("model"):
                raise LimitExceeded("no", scope="tenant", retry_after=1.0)
            return original(self, principal, *given, **more)

        monkeypatch.setattr(Gate, "admit", admit)
        found = performance.examine(loaded(stage, bound=1_000.0, probes=10))
        assert found.verdict == "INCONCLUSIVE", plain(found)

    def test_without_load_nothing_is_shown(self, stage: Stage) -> None:
        assert performance.examine(stage).verdict == "INCONCLUSIVE"


def loaded(stage: Stage, *, bound: float, probes: int = 20) -> Stage:
    attest = msgspec.structs.replace(stage.settings.attest, slowdown=bound)
    return replace(
        stage,
        settings=msgspec.structs.replace(stage.settings, attest=attest),
        options=msgspec.structs.replace(stage.options, load=2, load_probes=probes),
    )
