"""What a trained verifier serves of held-out pairs, alone and behind the guards, through the product's own code.

    python -m benchmarks.verifier_report --data DIR --verifier FOLDER

DIR holds the sets of `benchmarks.guards`; of QQP, PAWS and CheckList only the parts are taken that
`benchmarks.train_verifier` never trains on. Prints a curve for each set and the latency of a pair; last line JSON.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.verifier_data import FILES, guarded, read_pairs, split, split_tests
from benchmarks.verifier_pairs import Pair
from cache.verifier.artefact import Calibration
from cache.verifier.pair import PairVerifier
from tenancy.errors import InvalidInput

Scored = Sequence[tuple[Pair, float]]
"""Pairs with their logit, or with their probability once calibrated."""
THRESHOLDS = (0.2, 0.3, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.93, 0.95, 0.97, 0.98, 0.99, 0.995, 0.998)


def calibrated(rows: Scored) -> Calibration:
    """Platt scaling by Newton steps on the log loss."""
    slope, offset = 1.0, 0.0
    for _ in range(50):
        g0 = g1 = h00 = h01 = 0.0
        h11 = 1e-6
        for pair, logit in rows:
            p = sigmoid(slope * logit + offset)
            error, weight = p - pair.same, max(1e-9, p * (1 - p))
            g0 += error * logit
            g1 += error
            h00 += weight * logit * logit
            h01 += weight * logit
            h11 += weight
        det = (h00 + 1e-6) * h11 - h01 * h01
        slope -= max(-0.5, min(0.5, (h11 * g0 - h01 * g1) / det))
        offset -= max(-0.5, min(0.5, ((h00 + 1e-6) * g1 - h01 * g0) / det))
    return Calibration(slope=max(slope, 0.01), offset=offset)


def probability(calibration: Calibration, logit: float) -> float:
    return sigmoid(calibration.slope * logit + calibration.offset)


def sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-max(-60.0, min(60.0, value))))


@dataclass(frozen=True, slots=True)
class Judged:
    """One pair: the verifier's probability, and what the guards without and with contrast say."""

    pair: Pair
    probability: float
    guarded: bool
    contrasted: bool

    def served(self, cut: float) -> tuple[bool, bool, bool]:
        """By the verifier alone, behind the guards without contrast, behind all guards."""
        sure = self.probability >= cut
        return sure, sure and self.guarded, sure and self.contrasted


VARIANTS = ("alone", "behind guards without contrast", "behind all guards")


def report(rows: Scored, chosen: float) -> dict[str, object]:
    """For each set: how many same and different pairs are served at each threshold, alone and behind the guards."""
    groups: dict[str, list[Judged]] = {}
    for pair, value in rows:
        row = Judged(pair, value, *guarded(pair))
        groups.setdefault(pair.kind.split(":")[0], []).append(row)
        if pair.kind.startswith("checklist"):
            groups.setdefault(pair.kind, []).append(row)
    figures: dict[str, object] = {}
    for name, found in sorted(groups.items()):
        halves = [row for row in found if row.pair.same], [row for row in found if not row.pair.same]
        curve: dict[str, dict[str, list[int]]] = {}
        for cut in sorted({*THRESHOLDS, chosen}):
            served = [[row.served(cut) for row in half] for half in halves]
            curve[str(cut)] = {
                variant: [sum(row[place] for row in half) for half in served] for place, variant in enumerate(VARIANTS)
            }
        figures[name] = {"same": len(halves[0]), "different": len(halves[1]), "served [same, different]": curve}
        print(f"{name[:90]}: same {len(halves[0])}, different {len(halves[1])}")
        for text, values in curve.items():
            if ":" not in name or text == str(chosen):
                print(f"    at {text}: {values}")
    return figures


def limited(pairs: Sequence[Pair], most: int = 1_500) -> list[Pair]:
    """At most `most` of each kind, in their order."""
    seen: dict[str, int] = {}
    chosen: list[Pair] = []
    for pair in pairs:
        seen[pair.kind] = seen.get(pair.kind, 0) + 1
        if seen[pair.kind] <= (100 if pair.kind.startswith("checklist") else most):
            chosen.append(pair)
    return chosen


def held_out(data: Path) -> list[Pair]:
    """The pairs of the sets in `data` that no training with this program sees."""
    found: list[Pair] = []
    for name, file in FILES.items():
        if (data / file).is_file():
            pairs = read_pairs(data / file, name)
            if name == "answer_equality":
                found += pairs
            else:
                found += (split_tests(pairs) if name == "checklist" else split(pairs)).held_out
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--verifier", type=Path, required=True)
    arguments = parser.parse_args()
    verifier = PairVerifier(arguments.verifier, timeout_s=30.0)
    found: list[tuple[Pair, float]] = []
    times: list[float] = []
    refused = 0
    for pair in limited(held_out(arguments.data)):
        started = time.perf_counter()
        try:
            found.append((pair, verifier.probability(pair.a, pair.b)))
        except InvalidInput:
            refused += 1
            found.append((pair, 0.0))
        times.append((time.perf_counter() - started) * 1e3)
    verifier.close()
    figures = report(found, verifier.threshold)
    cuts = statistics.quantiles(times, n=100, method="inclusive")
    latency = {"p50": round(cuts[49], 2), "p90": round(cuts[89], 2), "p99": round(cuts[98], 2)}
    result = {"revision": verifier.revision, "threshold": verifier.threshold, "milliseconds": latency}
    print(json.dumps(result | {"pairs": len(found), "unreadable": refused, "sets": figures}))


if __name__ == "__main__":
    main()
