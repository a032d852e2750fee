"""Check an exported audit log of Strongroom. Needs Python and `cryptography`, and no network.

VKEY is the log's public key, as `strongroom audit key` shows it, noted early and kept elsewhere: a key out of the
export itself proves nothing. OLD.txt is a checkpoint of this log that you kept. Only that can show that whoever holds
the key wrote the whole log anew, or left out its end.

Exit code: 0 nothing was altered, 1 something was, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from .check import check
from .verdict import Report


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="offline", description=__doc__, allow_abbrev=False)
    parser.add_argument("folder", type=Path, help="the export")
    parser.add_argument("--key", action="append", required=True, metavar="VKEY", help="a public key of the log")
    parser.add_argument("--checkpoint", action="append", default=[], type=Path, metavar="OLD.txt")
    parser.add_argument(
        "--after", type=Path, metavar="MANIFEST", help="an earlier manifest, where its parts are not here"
    )
    parser.add_argument("--json", action="store_true", help="machine-readable")
    given = parser.parse_args(arguments)
    try:
        notes = [path.read_text(encoding="utf-8") for path in given.checkpoint]
        found = check(given.folder, given.key, notes, None if given.after is None else given.after.read_bytes())
    except (OSError, ValueError) as error:
        print(f"error: {plain(str(error))}", file=sys.stderr)
        return 2
    print(json.dumps(asdict(found)) if given.json else "\n".join(lines(found)))
    return 0 if found.finding is None else 1


def lines(found: Report) -> list[str]:
    """The report for people."""
    said = []
    if found.finding is None:
        last = f"records {found.first} to {found.size - 1}" if found.size > found.first else "no records"
        said.append(f"ok: {last} of {found.log} in {found.exports} exports, as signed at {found.time}")
        said.append(f"root: {found.root}")
    else:
        bad = found.finding
        place = "" if bad.at is None else f" at record {bad.at}"
        place += "" if bad.until is None else f", or after it, at the latest {bad.until}"
        said.append(f"{bad.kind.upper()}{place}: {bad.reason}")
    for size in found.agreed:
        said.append(f"the kept checkpoint of {size} records agrees")
    if found.finding is None and not found.agreed:
        said.append("no kept checkpoint was given: that the key's owner wrote the log anew cannot be told")
    if found.pruned:
        said.append(f"{found.pruned} records were pruned after their time; their hashes fit")
    if found.open:
        said.append(f"{found.open} intents have no outcome here: they were under way when the export was made")
    if found.unnamed:
        said.append(f"not part of the export: {', '.join(found.unnamed)}")
    return [plain(line) for line in said]


def plain(text: str) -> str:
    """`text` without what a stranger's export could write to the terminal, or what has no form there."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)
