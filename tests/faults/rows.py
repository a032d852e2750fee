"""The fault table: each row stands on the test that shows it. `python -m tests.faults.table` prints it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

Test = TypeVar("Test", bound=Callable[..., object])

ROWS: list[Row] = []


@dataclass(frozen=True, slots=True)
class Row:
    """`caller` is what a request of the tenant meets, `others` what one of another tenant does, `lost` what was
    acknowledged and is gone, `recovery` what has to be done. `test` is where it is shown.
    """

    engine: str
    fault: str
    caller: str
    others: str
    lost: str
    recovery: str
    test: str


def row(
    engine: str, fault: str, *, caller: str, recovery: str, others: str = "nothing", lost: str = "nothing"
) -> Callable[[Test], Test]:
    """Put the test that follows into the table. A test may show several rows."""

    def put(test: Test) -> Test:
        where = f"{test.__module__.rpartition('.')[2]}::{test.__name__}"
        ROWS.append(Row(engine, fault, caller, others, lost, recovery, where))
        return test

    return put
