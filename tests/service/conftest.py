from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service.house import House


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    found = House(tmp_path)
    with found.client:
        yield found
    found.close()
