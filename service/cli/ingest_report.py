"""What `strongroom ingest` shows: a line for each item that is not as it was, and what became of all of them."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from service.cli.console import Common, note, one_line, show_table

if TYPE_CHECKING:
    from indexing.outcome import Outcome


class Tally:
    """Counts of one pass over the files, and what it found to say."""

    def __init__(self) -> None:
        self._statuses: Counter[str] = Counter()
        self._changes: Counter[str] = Counter()
        self._lost_readers = 0
        self._replaced_roots: Counter[str] = Counter()
        self.failures = 0

    def add(self, outcome: Outcome) -> None:
        self._statuses[outcome.status.value] += 1
        self._changes[outcome.change.value] += 1
        self._lost_readers += outcome.lost_readers
        self._replaced_roots.update([outcome.replaced_root] if outcome.replaced_root is not None else [])
        self.failures += outcome.error is not None

    def summary(self) -> dict[str, Any]:
        """Items by status and by change; all words of both, so that a script finds each."""
        from indexing.outcome import Change, Status

        changes = {change.value: self._changes[change.value] for change in Change if change is not Change.NONE}
        statuses = {status.value: self._statuses[status.value] for status in Status}
        other = self._replaced_roots.total()
        return {**statuses, "changes": changes, "lost_all_readers": self._lost_readers, "from_other_folders": other}

    def show(self, tenant: str, common: Common) -> None:
        from indexing.outcome import Status

        summary = self.summary()
        if common.as_json:
            print(json.dumps(summary))
        else:
            rows = [
                {"status": status, "items": count}
                for status, count in summary.items()
                if status in set(Status) and count
            ]
            show_table(common, rows, ["status", "items"])
            changes = summary["changes"].items()
            print(", ".join(f"{count} {change}" for change, count in changes if count) or "nothing changed")
        if self._lost_readers:
            note(
                f"{self._lost_readers} of the known documents lost all readers in this run: nothing names any; "
                "let --acl or --manifest name them, and ingest again"
            )
        if self._replaced_roots:
            folders = ", ".join(sorted(root.removeprefix("dir:") for root in self._replaced_roots)[:3])
            note(
                one_line(
                    f"{self._replaced_roots.total()} of the documents replaced what another folder gave "
                    f"({folders}); to keep both, name the folder that holds them"
                )
            )
        if common.as_json:
            return
        if self.failures:
            note(f"`strongroom document list --tenant {tenant} --status STATUS` lists them, with what to do")


@contextmanager
def reporting(paths: Sequence[Path], common: Common, *, bar: bool = True) -> Iterator[Callable[[Outcome], None]]:
    """How each outcome is shown: a JSON line, a progress bar on a terminal, or a plain line."""
    if common.as_json:
        yield lambda outcome: print(json.dumps(_plain(outcome), ensure_ascii=False), flush=True)
    elif bar and sys.stderr.isatty():
        with _progress_bar(paths) as advance:
            yield advance
    else:

        def line(outcome: Outcome) -> None:
            if (text := _line(outcome)) is not None:
                print(text, file=sys.stderr if outcome.error is not None else sys.stdout, flush=True)
            if (mistyped := _mistyped(outcome)) is not None:
                print(mistyped, file=sys.stderr)

        yield line


@contextmanager
def _progress_bar(paths: Sequence[Path]) -> Iterator[Callable[[Outcome], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.text import Text

    from indexing.walk import files

    total = sum(1 for path in paths for _ in files(path))
    columns = (TextColumn("ingesting"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=total)

        def advance(outcome: Outcome) -> None:
            progress.advance(task)
            if outcome.error is not None or outcome.warnings or outcome.moved_from is not None:
                style = "red" if outcome.error is not None else "yellow"
                progress.console.print(Text(_line(outcome) or "", style=style))
            if (mistyped := _mistyped(outcome)) is not None:
                progress.console.print(Text(mistyped, style="yellow"))

        yield advance


def _plain(outcome: Outcome) -> dict[str, object]:
    plain = {
        "document": outcome.document,
        "status": outcome.status.value,
        "change": outcome.change.value,
        "moved_from": outcome.moved_from,
        "chunks": outcome.chunks,
        "warnings": list(outcome.warnings),
        "reason": outcome.reason,
        "remedy": outcome.remedy,
    }
    return {name: value for name, value in plain.items() if value not in (None, [])}


def _line(outcome: Outcome) -> str | None:
    """The item's status, its name, and what there is to say; None where it is as it was."""
    from indexing.outcome import METADATA_TYPE, Change

    said = f"{outcome.status.value}: {outcome.document}"
    if outcome.error is not None:
        remedy = f" ({outcome.remedy})" if outcome.remedy else ""
        return one_line(f"{said}: {outcome.reason}{remedy}")
    if outcome.change is Change.NONE:
        return None
    notes = [] if outcome.change in {Change.ADDED, Change.REMOVED} else [outcome.change.value]
    if outcome.moved_from is not None:
        notes = [f"moved from {outcome.moved_from}"]
    notes += [warning for warning in outcome.warnings if not warning.startswith(METADATA_TYPE)]
    return one_line(f"{said} ({', '.join(notes)})" if notes else said)


def _mistyped(outcome: Outcome) -> str | None:
    """Which metadata fields no filter will find the document by."""
    from indexing.outcome import METADATA_TYPE

    names = [found.partition(":")[2] for found in outcome.warnings if found.startswith(METADATA_TYPE)]
    if not names:
        return None
    return one_line(f"warning: {outcome.document}: not of the type that the contract declares: {', '.join(names)}")
