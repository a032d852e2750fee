"""No stale answer leaves the cache: over two processes, in orders drawn from a seed, and hits resume afterwards.

STRONGROOM_CACHE_INTERLEAVINGS=1000 tries that many orders over each store; STRONGROOM_INTERLEAVINGS_SEED begins
elsewhere.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cache.conformance.rig import running
from tests.isolation.interleaving.freshness import CHANGES, two_processes_and_a_cache

ORDERS = int(os.environ.get("STRONGROOM_CACHE_INTERLEAVINGS", "100"))
SEED = int(os.environ.get("STRONGROOM_INTERLEAVINGS_SEED", "0"))
_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None

pytestmark = [pytest.mark.slow, pytest.mark.timeout(max(600, ORDERS * 6))]


@pytest.fixture
def folder() -> Iterator[Path]:
    """Orders are tried, not disks."""
    with tempfile.TemporaryDirectory(dir=_MEMORY, prefix="strongroom-test-") as found:
        yield Path(found)


@pytest.fixture(params=["local", "redis"])
def store(request: pytest.FixtureRequest, folder: Path) -> Iterator[str]:
    if request.param == "local":
        yield "local"
        return
    with running(folder / "redis") as server:
        yield f"{server.url} {server.password_file}"


def test_no_stale_answer_leaves_the_cache_and_hits_resume(folder: Path, store: str) -> None:
    with two_processes_and_a_cache(folder, "", store) as interleavings:
        for number in range(ORDERS):
            interleavings.run(SEED + number)
    counts = interleavings.tally.counts
    print(f"\n{interleavings.tally}")
    assert counts["late"] == 0
    assert counts["orders"] == ORDERS
    assert counts["hits resumed"] >= 4 * ORDERS
    # There was something to be late with, in every way that there is.
    for seen in (
        "begun or checked after the change",
        "hits before the change",
        "hits exact",
        "hits semantic",
        "stopped between lookup and serve",
        "ended under way",
        *(f"orders: {how}" for how in CHANGES),
    ):
        assert counts[seen] > 0, seen
