"""Every behaviour in every column; those of servers in the columns that have one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.columns import COLUMNS, Column
from tests.conformance.place import Place


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "column" not in metafunc.fixturenames:
        return
    servers_only = metafunc.definition.get_closest_marker("server") is not None
    chosen = [column for column in COLUMNS.values() if column.connect is not None or not servers_only]
    metafunc.parametrize("column", [pytest.param(one.name, marks=_marks(one)) for one in chosen], indirect=True)


def _marks(column: Column) -> list[pytest.MarkDecorator]:
    return [getattr(pytest.mark, name) for name in column.marks]


@pytest.fixture
def column(request: pytest.FixtureRequest) -> Column:
    found = COLUMNS[request.param]
    if (reason := found.missing()) is not None:
        pytest.skip(reason)
    return found


@pytest.fixture
def place(column: Column, tmp_path: Path) -> Iterator[Place]:
    with column.database(tmp_path), Place(column, tmp_path) as opened:
        yield opened
