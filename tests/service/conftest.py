from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service.house import House

# These tests are about the edge; durability has its own, on a real disk.
_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=_MEMORY, prefix="strongroom-test-") as found:
        yield Path(found)


@pytest.fixture
def house(folder: Path) -> Iterator[House]:
    """A house of one's own."""
    found = House(folder)
    with found.client:
        yield found
    found.close()


@pytest.fixture(scope="module")
def shared() -> Iterator[House]:
    """One house for a module's tables, whose rows do not depend on each other."""
    with tempfile.TemporaryDirectory(dir=_MEMORY, prefix="strongroom-test-") as folder:
        found = House(Path(folder))
        with found.client:
            yield found
        found.close()
