"""Print the fault table as Markdown, in the order of engines and tests: `python -m tests.faults.table [ENGINE]`.

With `--write` it takes the place of the table in `docs/operations/faults.md`.
"""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

from tests.faults.rows import ROWS, Row

PAGE = Path(__file__).parents[2] / "docs" / "operations" / "faults.md"
HEADS = ("engine", "fault", "what the caller sees", "what other tenants notice", "what is lost", "recovery", "test")


def rows(engine: str | None = None) -> list[Row]:
    """All rows that the tests in this folder declare, or those of one engine."""
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        importlib.import_module(f"tests.faults.{path.stem}")
    return sorted((one for one in ROWS if engine in {None, one.engine}), key=lambda one: one.engine)


def markdown(found: list[Row]) -> str:
    lines = [HEADS, ("---",) * len(HEADS)]
    lines += [(one.engine, one.fault, one.caller, one.others, one.lost, one.recovery, f"`{one.test}`") for one in found]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def write() -> None:
    """Put the table of today into the page."""
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(re.sub(r"(?m)^\|.*\|\n(\|.*\|\n)*", lambda _: markdown(rows()) + "\n", page), encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        write()
    else:
        print(markdown(rows(*sys.argv[1:2])))
