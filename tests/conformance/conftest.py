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
    servers_only = any(mark.name == "server" for mark in metafunc.definition.iter_markers())
    names = [name for name, column in COLUMNS.items() if column.connect is not None or not servers_only]
    metafunc.parametrize("column", names, indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """An optional column whose server does not run is left out; any other says why it was skipped."""
    left_out = []
    for item in items:
        column = COLUMNS.get(item.callspec.params.get("column", "")) if hasattr(item, "callspec") else None
        if column is None:
            continue
        if column.postgres:
            item.add_marker(pytest.mark.slow)
        if (reason := column.missing()) is None:
            continue
        if column.optional:
            left_out.append(item)
        else:
            item.add_marker(pytest.mark.skip(reason=reason))
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture
def column(request: pytest.FixtureRequest) -> Column:
    return COLUMNS[request.param]


@pytest.fixture
def place(column: Column, tmp_path: Path) -> Iterator[Place]:
    with column.database(tmp_path), Place(column, tmp_path) as opened:
        yield opened
