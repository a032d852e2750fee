"""Print what happens when a generator fails, as Markdown: `python -m tests.generation.fault_table`.

With `--write` it takes the place of the table in `docs/operations/generation.md`.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tests.generation.fault_cases import CASES

PAGE = Path(__file__).parents[2] / "docs" / "operations" / "generation.md"
HEADS = ("fault", "asker, whole", "asker, streamed", "audit", "generations, aborts sent", "next question")


def markdown() -> str:
    lines = [HEADS, ("---",) * len(HEADS)]
    lines += [(case.fault, case.whole, case.streamed, case.audit, case.sent, case.then) for case in CASES]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def write() -> None:
    """Put the table of today into the page."""
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(re.sub(r"(?m)^\| fault \|.*\n(\|.*\n)*", lambda _: markdown() + "\n", page), encoding="utf-8")


if __name__ == "__main__":
    write() if sys.argv[1:] == ["--write"] else print(markdown())
