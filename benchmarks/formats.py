"""Forty difficult files: what becomes of each, and is it what a person who opens the file would want?

    python -m benchmarks.formats --data DIR [--only PART]

DIR holds the files, or is the shared data (documents/files); `benchmarks.formats_wanted` says what is wanted of each.
Every file is parsed in a process of its own, whose time and peak of memory beyond the loaded parsers are shown, and
which is killed after a minute: a crash or a hang is a line of the table and ends nothing. What is not met is named
below the table. The last line is JSON. Exit code 1 where something is not met.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.formats_wanted import WANTED, Wanted
from indexing.outcome import written
from indexing.parse import Parsed, ParseFailure, ParseResult, parse
from indexing.parse.model import Kind

SECONDS = 60


@dataclass(frozen=True)
class Item:
    """One document that came out of a file, or the reason why none did. `shown` is the text that is not hidden."""

    suffix: str
    status: str
    reason: str = ""
    parsed: Parsed | None = None

    @property
    def shown(self) -> str:
        if self.parsed is None:
            return ""
        text = list(self.parsed.text)
        for block in self.parsed.blocks:
            if block.hidden:
                text[block.start : block.end] = " " * (block.end - block.start)
        return "".join(text)


@dataclass(frozen=True)
class Run:
    items: Sequence[Item]
    seconds: float
    peak_mib: float


def main() -> int:
    arguments = _arguments()
    shared = arguments.data / "documents" / "files"
    folder = shared if shared.is_dir() else arguments.data
    files = [path for path in sorted(folder.iterdir()) if path.is_file() and arguments.only in path.name]
    met: list[str] = []
    missed: dict[str, list[str]] = {}
    statuses: Counter[str] = Counter()
    peak, started = 0.0, time.monotonic()
    print(f"{'file':58} {'status':19} {'characters':>10} {'s':>6} {'MiB':>5}  met  wanted")
    for path in files:
        run = apart(path)
        wanted = WANTED.get(path.name)
        problems = ["nobody wrote down what is wanted"] if wanted is None else list(differences(wanted, run.items))
        own = next((item for item in run.items if not item.suffix), None)
        inner = [item for item in run.items if item.suffix]
        statuses.update(item.status for item in run.items)
        status = own.status if own is not None else f"{len(inner)} within it"
        characters = sum(len(item.parsed.text) for item in run.items if item.parsed is not None)
        behaviour = wanted.behaviour if wanted is not None else "?"
        told = "yes" if not problems else "NO "
        print(f"{path.name:58} {status:19} {characters:10} {run.seconds:6.2f} {run.peak_mib:5.0f}  {told}  {behaviour}")
        for item in inner:
            print(f"    {item.suffix:60} {item.status}")
        peak = max(peak, run.peak_mib)
        if problems:
            missed[path.name] = problems
        else:
            met.append(path.name)
    for name, problems in missed.items():
        print(f"\n{name}")
        for problem in problems:
            print(f"    {problem}")
    summary = {
        "files": len(files),
        "met": len(met),
        "missed": sorted(missed),
        "statuses": dict(statuses.most_common()),
        "seconds": round(time.monotonic() - started, 1),
        "peak_mib": round(peak),
    }
    print(json.dumps(summary, ensure_ascii=False))
    return 1 if missed else 0


def apart(path: Path) -> Run:
    """Parse `path` in a process of its own. A fork shares the loaded parsers, so that only the file counts."""
    out, into = os.pipe()
    started = time.monotonic()
    child = os.fork()
    if child == 0:
        os.close(out)
        signal.alarm(SECONDS)
        with os.fdopen(into, "wb") as reply:
            reply.write(pickle.dumps(_parsed(path)))
        os._exit(0)
    os.close(into)
    with os.fdopen(out, "rb") as reply:
        data = reply.read()
    _, code = os.waitpid(child, 0)
    seconds = time.monotonic() - started
    if not data:
        status = "timed_out" if os.WTERMSIG(code) == signal.SIGALRM else "crashed"
        return Run([Item("", status, f"its process ended with {code}")], seconds, 0.0)
    items, peak = pickle.loads(data)
    return Run(items, seconds, peak)


def _parsed(path: Path) -> tuple[list[Item], float]:
    # The peak so far is that of loading the parsers: it is forgotten first.
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = _peak_kib()
    try:
        items = [_item(result) for result in parse(path.name, path.read_bytes())]
    except ParseFailure as failure:
        items = [Item("", failure.status, failure.reason)]
    except Exception as error:  # noqa: BLE001 (a crash is a line of the table)
        items = [Item("", "crashed", type(error).__name__)]
    return items, (_peak_kib() - before) / 1024


def _peak_kib() -> int:
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))


def _item(result: ParseResult) -> Item:
    if isinstance(result, ParseFailure):
        return Item(result.suffix, result.status, result.reason)
    return Item(result.suffix, written(result.warnings), parsed=result)


def differences(wanted: Wanted, items: Sequence[Item]) -> Iterator[str]:
    """What of `wanted` did not come out."""
    found = {item.suffix: item for item in items}
    own = found.pop("", None)
    if own is None and wanted.status:
        yield "has no document of its own"
    elif own is not None and not wanted.status:
        yield f"has a document of its own, {own.status} ({own.reason})"
    elif own is not None:
        yield from _differences(wanted, own)
    for suffix, child in wanted.children.items():
        item = found.pop(_suffix(suffix, found), None)
        if item is None:
            yield f"{suffix}: is not there"
        else:
            yield from (f"{suffix}: {problem}" for problem in _differences(child, item))
    yield from (f"{suffix}: is there too, {item.status}" for suffix, item in found.items())


def _suffix(wanted: str, found: Mapping[str, Item]) -> str:
    if not wanted.startswith("*"):
        return wanted
    return next((suffix for suffix in found if suffix.endswith(wanted[1:])), wanted)


def _differences(wanted: Wanted, item: Item) -> Iterator[str]:
    if item.status not in wanted.status:
        yield f"status {item.status}, not {' or '.join(wanted.status)}: {item.reason}"
    parsed = item.parsed
    if parsed is None:
        return
    shown = item.shown
    yield from (f"lacks {text!r}" for text in wanted.texts if text not in shown)
    yield from (f"does not keep {text!r}" for text in wanted.kept if text not in parsed.text)
    yield from (f"shows {text!r}" for text in wanted.absent if text in shown)
    if wanted.title is not None and parsed.title != wanted.title:
        yield f"is titled {parsed.title!r}, not {wanted.title!r}"
    headings = {parsed.text[block.start : block.end].lstrip("# ") for block in parsed.blocks if block.level}
    yield from (f"has no heading {text!r}" for text in wanted.headings if text not in headings)
    tables = {block.header for block in parsed.blocks if block.kind is Kind.TABLE}
    if wanted.table is not None and wanted.table not in tables:
        yield f"has no table with the header {wanted.table!r}, but {tables or 'none'}"
    places = [place.label for place in parsed.places]
    yield from (f"names no place {place!r}, but {places}" for place in wanted.places if not _starts(places, place))
    kinds = {block.kind.value for block in parsed.blocks}
    yield from (f"has no {kind}, but {sorted(kinds)}" for kind in wanted.kinds if kind not in kinds)
    yield from (f"does not warn of {warning}" for warning in wanted.warnings if warning not in parsed.warnings)


def _starts(places: Sequence[str], prefix: str) -> bool:
    """A wanted place that ends in "!" or " " is the beginning of one."""
    if prefix.endswith(("!", " ")):
        return any(place.startswith(prefix) for place in places)
    return prefix in places


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder of the files")
    parser.add_argument("--only", default="", help="files whose names hold this")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
