from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults import deed
from tests.faults.evidence import World, make
from tests.support.postgres import fresh_database


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A tenant with a past, in files; tests work on copies of it."""
    deed.preload()
    return make(tmp_path_factory.mktemp("world") / "embedded")


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """The same at a PostgreSQL server."""
    deed.preload()
    with fresh_database() as url:
        yield make(tmp_path_factory.mktemp("world") / "postgres", url)
