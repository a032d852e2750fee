"""The conformance suite as a table: `python -m tests.conformance.table`.

Rows are behaviours, columns engines, cells the number of tests that passed. A cell is red where a test failed, was
skipped or did not run at all; a behaviour of servers has no cell ("-") for the engine in memory. The last line is JSON.
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass, field

import pytest
from rich.console import Console
from rich.table import Table

from tests.conformance.columns import COLUMNS

SUITE = "tests/conformance/test_conformance.py"


@dataclass
class Results:
    """What pytest reports, by behaviour and column."""

    cells: dict[str, dict[str, Counter[str]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(Counter)))
    servers: set[str] = field(default_factory=set)

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        behaviour, column = _place(item.nodeid)
        self.cells[behaviour][column]["collected"] += 1
        if item.get_closest_marker("server") is not None:
            self.servers.add(behaviour)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            behaviour, column = _place(report.nodeid)
            self.cells[behaviour][column][report.outcome] += 1

    def cell(self, behaviour: str, column: str) -> tuple[str, str]:
        """The text of a cell and its colour."""
        if COLUMNS[column].connect is None and behaviour in self.servers:
            return "-", "dim"
        counts = self.cells[behaviour][column]
        if counts["failed"]:
            return f"{counts['failed']} failed", "red"
        if counts["skipped"] or not counts["passed"]:
            return "not run", "red"
        return str(counts["passed"]), "green"


def _place(nodeid: str) -> tuple[str, str]:
    """Behaviour and column of a test. Other parameters of a behaviour follow the column and count into its cell."""
    name, _, parameters = nodeid.rpartition("::")[2].partition("[")
    found = parameters.rstrip("]")
    columns = [column for column in COLUMNS if found == column or found.startswith(f"{column}-")]
    return name.removeprefix("test_").replace("_", " "), max(columns, key=len, default=found)


def main(arguments: list[str]) -> int:
    results = Results()
    everywhere = ["-m", "milvus or not milvus"]
    code = pytest.main(["-q", "-p", "no:cacheprovider", *everywhere, SUITE, *arguments], plugins=[results])
    table = Table("behaviour", *COLUMNS, title="conformance")
    summary: dict[str, dict[str, int]] = {column: {"passed": 0, "red": 0} for column in COLUMNS}
    for behaviour in results.cells:
        row = []
        for column in COLUMNS:
            text, colour = results.cell(behaviour, column)
            row.append(f"[{colour}]{text}[/]")
            summary[column]["passed"] += results.cells[behaviour][column]["passed"]
            summary[column]["red"] += colour == "red"
        table.add_row(behaviour, *row)
    console = Console(width=None if sys.stdout.isatty() else 140)
    console.print(table)
    for name, column in COLUMNS.items():
        if (reason := column.missing()) is not None:
            console.print(f"[red]{name}[/]: {reason}")
    green = code == 0 and not any(column["red"] for column in summary.values())
    print(json.dumps({"behaviours": len(results.cells), "columns": summary, "all_green": green}))
    return 0 if green else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
