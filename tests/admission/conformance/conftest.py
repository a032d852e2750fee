"""The same tests over every implementation of the counters."""

from __future__ import annotations

import pytest

from admission.counters import Counters
from admission.local import LocalCounters
from tests.admission.conformance.rig import Clock

KINDS = ("local",)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=KINDS)
def counters(request: pytest.FixtureRequest, clock: Clock) -> Counters:
    """Empty, and by `clock`."""
    assert request.param == "local"
    return LocalCounters(clock)
