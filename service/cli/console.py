"""Input and output that all commands share: common options, tables or JSON, and the audit event of a command."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

from cyclopts import Parameter

from tenancy.names import mapped_controls

if TYPE_CHECKING:
    from audit.trail import Trail
    from service.control import Control
    from tenancy.identity import Principal

T = TypeVar("T")

_WHOLE: Final = frozenset({"id", "seq", "ts", "first", "last", "created", "expires", "user", "action", "outcome"})
"""Columns that keep to one line."""
_WIDEST: Final = 10_000

Tenant = Annotated[str, Parameter(name=["--tenant", "-t"], help="The tenant's name.")]


@Parameter(name="*")
@dataclass(frozen=True)
class Common:
    """Options of every command.

    Parameters
    ----------
    config: Path
        Settings file (TOML) over the defaults.
    as_json: bool
        JSON on standard output.
    """

    config: Path | None = None
    as_json: Annotated[bool, Parameter(name="--json", negative=())] = False


DEFAULT = Common()

_LINE_ENDS: Final = "\n\t\u2028\u2029"
_UNENCODED: Final = re.compile("[\ud800-\udfff]")
_UNSHOWN: Final = re.compile("[\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")


@contextmanager
def opened(common: Common) -> Iterator[Control]:
    """The control plane for one command, closed at its end."""
    from service.control import open_from

    control = open_from(common.config)
    try:
        yield control
    finally:
        control.close()


def audited(
    control: Control,
    principal: Principal | None,
    action: str,
    work: Callable[[Trail], T],
    *,
    first: Callable[[], Awaitable[None]] | None = None,
) -> T:
    """Do `work` between a durable intent and an outcome; without a principal in the system's log. What `first` refuses
    is on record as such.
    """

    async def run() -> T:
        async with control.trail.open(principal, action=action, request_id=secrets.token_hex(16)) as trail:
            if first is not None:
                await first()
            await trail.intent()
            return work(trail)

    return blocking(run())


def blocking(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that blocks in between. Unlike in `asyncio.run`, Ctrl-C interrupts it where it is."""
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(work)
    finally:
        loop.close()


def show_table(common: Common, rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """`rows` as JSON, as a table on a terminal (as records on one too narrow), as tab-separated lines elsewhere."""
    if common.as_json:
        print_json(list(rows))
    elif not rows:
        note("nothing found")
    elif sys.stdout.isatty():
        from rich.console import Console
        from rich.measure import Measurement
        from rich.table import Table

        table = Table(box=None, pad_edge=False)
        for column in columns:
            # Folded, not cut: an id must be there to be copied.
            table.add_column(column, overflow="fold", no_wrap=column in _WHOLE)
        for row in rows:
            table.add_row(*(clean(_cell(row.get(column))) for column in columns))
        console = Console()
        if Measurement.get(console, console.options.update(width=_WIDEST), table).minimum > console.width:
            # A table would break words; one line a value stays readable, and can be copied.
            for row in rows:
                show_record(common, {column: row.get(column) for column in columns})
                print()
        else:
            console.print(table, markup=False)
    else:
        for row in rows:
            print("\t".join(one_line(_cell(row.get(column))) for column in columns))


def show_pages(common: Common, pages: Iterable[Sequence[Mapping[str, Any]]], columns: Sequence[str]) -> None:
    """As `show_table`, page by page as they come; JSON is one array."""
    shown = False
    if common.as_json:
        sys.stdout.write("[")
    for page in pages:
        if not common.as_json:
            show_table(common, page, columns)
        for row in page if common.as_json else ():
            sys.stdout.write(("\n, " if shown else "") + json.dumps(row, ensure_ascii=False, default=str))
            shown = True
        shown = True
    if common.as_json:
        print("]")
    elif not shown:
        note("nothing found")


def show_record(common: Common, record: Mapping[str, Any]) -> None:
    """One record as JSON or as lines "name: value"."""
    if common.as_json:
        print_json(record)
        return
    for name, value in record.items():
        print(f"{name}: {clean(_cell(value))}")


def print_json(value: Any) -> None:
    shown = sys.stdout.isatty()
    text = json.dumps(value, ensure_ascii=False, indent=2 if shown else None, default=str)
    # The same JSON, with escapes for what could write to a terminal and for what has no UTF-8 form.
    strange = _UNSHOWN if shown else _UNENCODED
    print(strange.sub(lambda found: json.dumps(found[0])[1:-1], text))


def note(text: str) -> None:
    """A remark for people, out of the way of the output."""
    print(f"note: {text}", file=sys.stderr)


def clean(text: str) -> str:
    """`text` without control characters, which a document could use to write to the terminal; lines stay."""
    return mapped_controls(text, lambda character: character if character in _LINE_ENDS else "�")


def one_line(text: str) -> str:
    """As `clean`, in one line, which nothing in `text` can end: what follows would look like another one's."""
    return re.sub(r"[\n\t\u2028\u2029]", " ", clean(text))


def iso(moment: float | None) -> str | None:
    """UTC epoch seconds as ISO 8601."""
    if moment is None:
        return None
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Iterable) and not isinstance(value, str | Mapping):
        return " ".join(_cell(item) if isinstance(item, Mapping) else str(item) for item in value) or "-"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, Mapping) else str(value)
