"""Layers that do not exist: named, so that nobody takes their absence for a proof."""

from __future__ import annotations

from typing import Final

import httpx

from service.attest.caller import Caller
from service.attest.claims import Claim, Layer, inconclusive, not_built

QUEUE: Final = "queue"
METRICS: Final = "metrics"
PERFORMANCE: Final = "performance isolation"


def examine(caller: Caller) -> list[Layer]:
    return [
        Layer.of(QUEUE, [not_built("no tenant's work is seen in another's queue", "there is no queue of documents")]),
        Layer.of(METRICS, [_metrics(caller)]),
        Layer.of(
            PERFORMANCE,
            [not_built("one tenant's load slows no other beyond its bound", "there is no test of it from outside")],
        ),
    ]


def _metrics(caller: Caller) -> Claim:
    claim = "no metric names a tenant to another"
    found = caller.send("GET", "/metrics").status_code
    if found == httpx.codes.NOT_FOUND:
        return not_built(claim, "the service has no metrics: GET /metrics is 404")
    return inconclusive(claim, f"there are metrics (GET /metrics is {found}), and no test of them")
