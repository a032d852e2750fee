"""A revocation is late for no question: over two processes, in orders drawn from a seed.

STRONGROOM_INTERLEAVINGS=10000 tries that many orders over each storage, STRONGROOM_INTERLEAVINGS_SEED begins elsewhere.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.isolation.interleaving.schedule import two_processes

ORDERS = int(os.environ.get("STRONGROOM_INTERLEAVINGS", "200"))
SEED = int(os.environ.get("STRONGROOM_INTERLEAVINGS_SEED", "0"))

pytestmark = [pytest.mark.slow, pytest.mark.both_storages, pytest.mark.timeout(max(300, ORDERS * 2))]


def test_a_revocation_is_late_for_no_question(tmp_path: Path, storage: str) -> None:
    with two_processes(tmp_path, storage) as interleavings:
        for number in range(ORDERS):
            interleavings.run(SEED + number)
    counts = interleavings.tally.counts
    print(f"\n{interleavings.tally}")
    assert counts["late"] == 0
    assert counts["orders"] == counts["found after the grant"] == ORDERS
    # There was something to be late with, in every way that there is.
    for seen in (
        "begun or checked after the commit",
        "found before the revocation",
        "answered from the cache",
        "streams ended",
    ):
        assert counts[seen] > 0, seen
