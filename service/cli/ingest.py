"""`strongroom ingest`: load and refresh one tenant's documents."""

from __future__ import annotations


def ingest() -> None:
    """Load documents."""
