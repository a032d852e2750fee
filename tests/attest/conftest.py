from __future__ import annotations

from collections.abc import Iterator

import pytest

from service.attest.stage import Stage
from tests.attest.place import Place, placed, staged


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    """One service for a module's tests; its semantic hits are served at once, so that few paraphrases do."""
    with placed(STRONGROOM_CACHE__TEMPLATES="{default = {probation = 0, shadow = 0.0}}") as found:
        yield found


@pytest.fixture(scope="module")
def stage(place: Place) -> Iterator[Stage]:
    """One pair of canary tenants for a module's tests: each examination makes topics of its own."""
    with staged(place) as found:
        yield found
