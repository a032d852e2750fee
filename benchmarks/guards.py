"""What the text guards refuse and keep, without any similarity: one line a set, the last line JSON.

    python -m benchmarks.guards --data DIR     DIR holds answer_equality_dev.jsonl, checklist_qqp_dev.jsonl.gz, ...

"refused" is the share of pairs with different answers that a guard vetoes, "kept" the share of pairs with the same
answer that no guard vetoes. The baseline keeps everything, as a plain similarity threshold of 0 would.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from cache.guards import RULES_REVISION, compare, read

SETS = (
    ("answer_equality", "answer_equality_dev.jsonl", "category"),
    ("checklist", "checklist_qqp_dev.jsonl.gz", "capability"),
    ("paws", "paws_dev.jsonl.gz", ""),
    ("qqp", "qqp_dev.jsonl.gz", ""),
)


@dataclass
class Tally:
    same: int = 0
    kept: int = 0
    different: int = 0
    refused: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    def add(self, same: bool, passed: bool, reason: str) -> None:
        if same:
            self.same += 1
            self.kept += passed
        else:
            self.different += 1
            self.refused += not passed
        if not passed:
            self.reasons[("same: " if same else "different: ") + reason] += 1

    def shares(self) -> dict[str, float | int]:
        return {
            "same": self.same,
            "kept_of_same": round(self.kept / max(self.same, 1), 4),
            "different": self.different,
            "refused_of_different": round(self.refused / max(self.different, 1), 4),
        }


def rows(path: Path, limit: int) -> Iterator[dict[str, str | bool]]:
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    found = [json.loads(line) for line in raw.decode().split("\n") if line]
    if limit and len(found) > limit:
        found = random.Random(7).sample(found, limit)
    yield from found


def measure(path: Path, group: str, limit: int, show: str) -> tuple[Tally, dict[str, Tally], float]:
    total, groups, spent, pairs = Tally(), defaultdict[str, Tally](Tally), 0.0, 0
    for row in rows(path, limit):
        a, b, same = str(row["a"]), str(row["b"]), bool(row.get("same", row.get("same_answer")))
        started = time.process_time()
        verdict = compare(read(a), read(b))
        spent += time.process_time() - started
        pairs += 1
        name = f"{row.get(group, '')} {row.get('test', '')}".strip() if group else ""
        for tally in (total, groups[name]):
            tally.add(same, verdict.passed, f"{verdict.name}: {verdict.reason}")
        if (show == "kept" and verdict.passed and not same) or (show == "lost" and not verdict.passed and same):
            print(f"    {verdict.name}: {verdict.reason} | {a} | {b}")
    return total, groups, spent / max(pairs, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--limit", type=int, default=0, help="rows sampled per set (seeded); 0 takes all")
    parser.add_argument("--sets", nargs="*", default=["answer_equality", "checklist", "paws"])
    parser.add_argument("--show", choices=("", "kept", "lost"), default="", help="print wrong decisions")
    arguments = parser.parse_args()
    result: dict[str, object] = {"rules": RULES_REVISION}
    for name, file, group in SETS:
        if name not in arguments.sets:
            continue
        total, groups, seconds = measure(arguments.data / file, group, arguments.limit, arguments.show)
        for label, tally in sorted(groups.items()):
            print(
                f"{name:16} {label[:80]:80} kept {tally.kept:5}/{tally.same:<5} "
                f"refused {tally.refused:5}/{tally.different:<5}"
            )
        print(f"{name:16} reasons: {dict(total.reasons.most_common(12))}")
        result[name] = total.shares() | {"microseconds_a_pair": round(seconds * 1e6)}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
