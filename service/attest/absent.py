"""Layers that do not exist: named, so that nobody takes their absence for a proof."""

from __future__ import annotations

from typing import Final

from service.attest.claims import Layer, not_built

QUEUE: Final = "queue"
PERFORMANCE: Final = "performance isolation"


def examine() -> list[Layer]:
    return [
        Layer.of(QUEUE, [not_built("no tenant's work is seen in another's queue", "there is no queue of documents")]),
        Layer.of(
            PERFORMANCE,
            [not_built("one tenant's load slows no other beyond its bound", "there is no test of it from outside")],
        ),
    ]
