"""Does the certificate keep its word? Seeded simulations of semantic hits whose true share of wrong ones is known.

    python -m benchmarks.cache_bound [--runs 1000] [--hits 20000] [--seed 1]

A run is a stream of hits that every rung of the ladder let pass, each wrong with a known probability. Scenarios: 0.5 %,
1 %, 1.2 % and 3 % wrong throughout; a jump from 0.5 % to 3 % half way; a slow rise from 0.5 % to 3 %; 3 % wrong under
an operator's opening, with feedback that seldom tells of wrong answers; and two where what is asked most is wrong most:
of the hits of the ten entries that are asked for most 2 % are wrong and of the others 0.5 % (1.15 % of all), or 4 % and
0.25 % (1.87 %). The target alpha is 1 %.

Each hit is of one of 500 entries, the n-th asked for in proportion to 1/n, and of one of 40 askers, whose labels are
within their share up to the limits of `cache.certificate.counts`. A wrong label removes the entry; another takes its
place, as bad as it was.

* ours: `cache.certificate` as the service runs it (`Counts`, `shadow.probability`, `drift`). While nothing is served
  every hit is compared; while hits are served, `--shadow`. Hits are those of entries off probation, which alone are
  labelled and served. Labels before the first change of state are looked up in tables made with `bound.below` and
  `bound.above`; `tests/cache/certificate/test_simulation.py` holds both ways equal.
* pooled: the same limits over shadow labels and feedback together, which is what the design forbids.
* fixed: a threshold that is set once: serve for good if at most 1 % of 300 calibration labels are wrong.
* vcache: the rule of "vCache: Verified Semantic Prompt Caching" (Schroeder et al., arXiv 2502.03771, section 4),
  written from the paper: for each entry a logistic model of correctness over similarity; explore with probability
  tau = min over eps of 1 - delta / (1 - (1 - eps) L(s; t'(eps), gamma)), with t'(eps) the upper confidence limit of
  the boundary t. Choices of ours: similarities on a grid of 20 values, a weak ridge against separable data, the delta
  method for the variance of t, and no serving before 6 labels. Its promise is about all requests, explored ones
  counted as right; ours is about the hits. Both shares are printed.

Per scenario: `certified`, runs that ever served on a certificate; `violations`, runs in which at some moment of a
certificate the true share was above alpha (to be at most 5 %), averaged over the hits that its evidence covers, which
is what the limit is about; `served_above`, the same over the hits that it served alone, stricter where the share rises;
`above_now`, the same for the share of the moment, which no method can avoid where the share jumps. Then hits served;
hits until the first certificate; after a jump, hits until the certificate was first withheld and hits served in all.

The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from cache.certificate import bound, shadow
from cache.certificate.counts import EMPTY, Counts, is_full
from cache.openings import Opening
from cache.policy import TemplatePolicy
from cache.standing import Standing

Floats = npt.NDArray[np.float64]

ALPHA = 0.01
SHADOW = TemplatePolicy().shadow
ENTRIES, MOST_ASKED, ASKERS = 500, 10, 40
OPENING = Opening("default", 0.8, "operator", 0.0, "simulation")
CALIBRATION = 300


@dataclass(frozen=True)
class Scenario:
    """`opened`: an operator serves without a certificate. `praise` and `complaint`: how often feedback comes.

    `first` and `last` are the shares of wrong hits at both ends, by `shape`; or, for `lean`, those of the entries that
    are asked for most and of all others.
    """

    name: str
    first: float
    last: float
    shape: str = "constant"
    opened: bool = False
    praise: float = 0.0
    complaint: float = 0.0

    def shares(self, hits: int) -> Floats:
        """The true share of wrong ones at each hit, over all entries."""
        if self.shape == "lean":
            most = float(POPULARITY[:MOST_ASKED].sum())
            return np.full(hits, most * self.first + (1 - most) * self.last)
        if self.shape == "jump":
            return np.where(np.arange(hits) < hits // 2, self.first, self.last)
        return np.linspace(self.first, self.last, hits)


def _popularity() -> Floats:
    weights: Floats = 1 / np.arange(1, ENTRIES + 1)
    found: Floats = weights / weights.sum()
    return found


POPULARITY = _popularity()

SCENARIOS = (
    Scenario("0.5 %", 0.005, 0.005),
    Scenario("1 %", 0.01, 0.01),
    Scenario("1.2 %", 0.012, 0.012),
    Scenario("3 %", 0.03, 0.03),
    Scenario("jump", 0.005, 0.03, "jump"),
    Scenario("rise", 0.005, 0.03, "rise"),
    Scenario("biased feedback", 0.03, 0.03, opened=True, praise=0.1, complaint=0.02),
    Scenario("worse where asked most", 0.02, 0.005, "lean"),
    Scenario("far worse where asked most", 0.04, 0.0025, "lean"),
)


@dataclass
class Run:
    """What one run showed. Hits are counted from the beginning, or from the jump."""

    served: int = 0
    violated: bool = False
    served_above: bool = False
    above_now: bool = False
    certified_after: int | None = None
    gone_after: int | None = None
    served_after_jump: int = 0


class Tables:
    """For n labels without a change of state: at most so many wrong ones certify, at least so many suspend."""

    def __init__(self, longest: int, level: float = bound.LEVEL) -> None:
        self.certify = np.full(longest + 1, -1)
        self.suspend = np.full(longest + 1, longest + 2)
        few, many = -1, 1
        for n in range(1, longest + 1):
            while bound.below(n, few + 1, ALPHA, level=level):
                few += 1
            while not bound.above(n, many, ALPHA, level=level) and many <= n:
                many += 1
            self.certify[n] = few
            self.suspend[n] = many

    def change(self, labels: Labels, at: int) -> tuple[int, Counts]:
        """The hit from `at` on, all of them drawn, whose label changes the state first (the last one if none does), and
        what was counted before it.
        """
        n = k = entries = spread_n = spread_k = 0
        position = at
        for position in range(at, len(labels.wrong)):
            wrong = bool(labels.wrong[position])
            of_entry, of_asker = labels.before(position)
            within = not is_full(of_entry, of_asker, spread_n)
            both = k + wrong <= self.certify[n + 1] and spread_k + (within and wrong) <= self.certify[spread_n + within]
            if both or k + wrong >= self.suspend[n + 1] or position == len(labels.wrong) - 1:
                break
            n, k, entries = n + 1, k + wrong, entries + (within and of_entry == 0)
            spread_n, spread_k = spread_n + within, spread_k + (within and wrong)
            labels.add(position, within=within)
        return position, Counts(n=n, k=k, entries=entries, spread_n=spread_n, spread_k=spread_k)


class Labels:
    """Whose hits are whose, and how many labels of each count."""

    def __init__(self, wrong: npt.NDArray[np.bool_], entry: npt.NDArray[np.int_], asker: npt.NDArray[np.int_]) -> None:
        self.wrong = wrong
        self._entry, self._asker = entry.tolist(), asker.tolist()
        self.forget()

    def forget(self) -> None:
        """New evidence counts anew."""
        self._of_entry = [0] * ENTRIES
        self._of_asker = [0] * ASKERS

    def before(self, position: int) -> tuple[int, int]:
        """How many labels of the same entry and of the same asker count already."""
        return self._of_entry[self._entry[position]], self._of_asker[self._asker[position]]

    def add(self, position: int, *, within: bool) -> None:
        """A label, `within` the shares or not; a wrong one puts another entry in the place of its own."""
        entry, asker = self._entry[position], self._asker[position]
        if within:
            self._of_entry[entry] += 1
            self._of_asker[asker] += 1
        if self.wrong[position]:
            self._of_entry[entry] = 0


TablesOf = Callable[[float], Tables]
"""By level."""


def standing(counts: Counts, opened: bool) -> Standing:
    return Standing(
        counts.standing(ALPHA), counts.n, counts.k, 1.0, 0.0, ALPHA, OPENING if opened else None, "lv", "default"
    )


def ours(
    scenario: Scenario,
    shares: Floats,
    seed: int,
    tables: TablesOf | None,
    *,
    pooled: bool = False,
    drawn_share: float = SHADOW,
) -> Run:
    """One run of the product's rules; with `tables` the labels before the first change of state are looked up.

    Shares never fall, so that the mean over the hits of a certificate is largest at its last one.
    """
    rng = np.random.default_rng(seed)
    entry = rng.choice(ENTRIES, len(shares), p=POPULARITY)
    asker = rng.integers(ASKERS, size=len(shares))
    of_entry = np.where(entry < MOST_ASKED, scenario.first, scenario.last) if scenario.shape == "lean" else shares
    wrong = rng.random(len(shares)) < of_entry
    labels = Labels(wrong, entry, asker)
    draws = rng.random(len(shares))
    told = rng.random(len(shares)) < np.where(wrong, scenario.complaint, scenario.praise)
    run, counts, at = Run(), EMPTY, 0
    policy = TemplatePolicy(alpha=ALPHA, shadow=drawn_share)
    book = _Book(run, shares, len(shares) // 2 if scenario.shape == "jump" else None)
    state = standing(counts, scenario.opened)
    chance = shadow.probability(state, policy)
    events = np.append(np.flatnonzero((draws < policy.shadow) | told), len(shares))
    while at < len(shares) and (state.serves or counts.state != "suspended"):
        if tables is not None and chance == 1.0 and counts.n == 0:
            # Labels without a change of state at once; the next one goes through the product's rules, and changes it.
            at, counted = tables(counts.level).change(labels, at)
            counts = replace(
                counts,
                n=counted.n,
                k=counted.k,
                entries=counted.entries,
                spread_n=counted.spread_n,
                spread_k=counted.spread_k,
            )
        position = at if chance == 1.0 else int(events[np.searchsorted(events, at)])
        if position == len(shares):
            book.serve(state, at, position)
            break
        drawn = bool(draws[position] < chance)
        book.serve(state, at, position + (not drawn))
        at = position + 1
        # Feedback that nobody confirmed moves nothing.
        if drawn or (pooled and told[position] and state.serves):
            before, (said_of_entry, said_of_asker) = counts, labels.before(position)
            counts = counts.after(
                "wrong" if wrong[position] else "same", ALPHA, of_entry=said_of_entry, of_asker=said_of_asker
            )
            if counts.restarts == before.restarts:
                labels.add(position, within=counts.spread_n > before.spread_n)
            else:
                labels.forget()
        state = standing(counts, scenario.opened)
        chance = shadow.probability(state, policy)
        book.turn(state, counts, position)
    return run


@dataclass
class _Book:
    """Keeps count of what a run serves on a certificate."""

    run: Run
    shares: Floats
    jump: int | None
    number: int = 0
    total: float = 0.0
    restarts: int = 0
    began: int = 0

    def __post_init__(self) -> None:
        self.sums = np.append(0.0, np.cumsum(self.shares))

    def serve(self, state: Standing, first: int, end: int) -> None:
        """The hits from `first` to before `end`, under one state."""
        if not state.serves or end <= first:
            return
        self.run.served += end - first
        if state.state != "certified":
            return
        self.number += end - first
        self.total += float(self.sums[end] - self.sums[first])
        self.run.above_now = self.run.above_now or bool(self.shares[end - 1] > ALPHA)
        self.run.served_above = self.run.served_above or self.total > ALPHA * self.number * (1 + 1e-9)
        covered = float(self.sums[end] - self.sums[self.began])
        self.run.violated = self.run.violated or covered > ALPHA * (end - self.began) * (1 + 1e-9)
        if self.jump is not None:
            self.run.served_after_jump += max(0, end - max(first, self.jump))

    def turn(self, state: Standing, counts: Counts, position: int) -> None:
        """After a label at `position`."""
        if counts.restarts != self.restarts:
            self.restarts, self.number, self.total, self.began = counts.restarts, 0, 0.0, position + 1
        if state.state == "certified" and self.run.certified_after is None:
            self.run.certified_after = position + 1
        withheld = self.run.certified_after is not None and state.state != "certified"
        if self.jump is not None and position >= self.jump and self.run.gone_after is None and withheld:
            self.run.gone_after = position + 1 - self.jump


def fixed(_scenario: Scenario, shares: Floats, seed: int) -> Run:
    """Serve for good if the calibration looks right."""
    rng = np.random.default_rng(seed)
    calibrated = (rng.random(CALIBRATION) < shares[0]).sum() <= ALPHA * CALIBRATION
    if not calibrated:
        return Run()
    mean = np.cumsum(shares) / np.arange(1, len(shares) + 1)
    return Run(
        served=len(shares),
        violated=bool((mean > ALPHA * (1 + 1e-9)).any()),
        served_above=bool((mean > ALPHA * (1 + 1e-9)).any()),
        above_now=bool((shares > ALPHA).any()),
        certified_after=CALIBRATION,
    )


@dataclass
class VCache:
    """`runs` caches side by side, each of `entries` entries that are asked for at random."""

    runs: int
    entries: int
    seed: int
    delta: float = ALPHA
    grid: Floats = field(default_factory=lambda: np.linspace(0.8, 1.0, 20))
    slope: float = 25.0
    ridge: float = 1e-2
    least: int = 6

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        self.seen = np.zeros((self.runs, self.entries, len(self.grid)))
        self.right = np.zeros_like(self.seen)
        self.model = np.zeros((self.runs, self.entries, 2))
        self.own = self.rng.normal(0, 0.01, (self.runs, self.entries))
        self.served = np.zeros(self.runs)
        self.wrong = np.zeros(self.runs)
        eps = np.linspace(1e-6, 1 - 1e-6, 50)
        self.eps = eps
        self.quantiles = _normal_quantiles(1 - eps)

    def boundary(self, share: float) -> float:
        """The mean boundary t with which a share `share` of all hits is wrong, over similarities and entries."""
        low, high = 0.0, 1.0
        for _ in range(40):
            t = (low + high) / 2
            wrong = _wrong(self.grid[:, None], t + np.linspace(-0.02, 0.02, 21)[None, :], self.slope).mean()
            low, high = (t, high) if wrong < share else (low, t)
        return low

    def step(self, share_boundary: float) -> None:
        """One request in each run."""
        every = np.arange(self.runs)
        entry = self.rng.integers(self.entries, size=self.runs)
        place = self.rng.integers(len(self.grid), size=self.runs)
        chance = _wrong(self.grid[place], share_boundary + self.own[every, entry], self.slope)
        tau = self.explore_probability(every, entry, place)
        explored = self.rng.random(self.runs) <= tau
        self.served += ~explored
        self.wrong += np.where(explored, 0.0, chance)
        right = self.rng.random(self.runs) >= chance
        at = every[explored], entry[explored]
        self.seen[(*at, place[explored])] += 1
        self.right[(*at, place[explored])] += right[explored]
        self._fit(*at)

    def explore_probability(
        self, every: npt.NDArray[np.int_], entry: npt.NDArray[np.int_], place: npt.NDArray[np.int_]
    ) -> Floats:
        seen = self.seen[every, entry]
        intercept, gamma = self.model[every, entry].T
        gamma = np.maximum(gamma, 1e-6)
        x = self.grid - 0.9
        p = _sigmoid(intercept[:, None] + gamma[:, None] * x)
        weight = seen * p * (1 - p)
        a = weight.sum(1) + self.ridge
        b = (weight * x).sum(1)
        c = (weight * x * x).sum(1) + self.ridge
        det = np.maximum(a * c - b * b, 1e-12)
        # t = 0.9 - intercept / gamma; its variance by the delta method.
        d0, d1 = -1 / gamma, intercept / gamma**2
        variance = (d0 * d0 * c - 2 * d0 * d1 * b + d1 * d1 * a) / det
        t = -intercept / gamma
        limit = t[:, None] + self.quantiles * np.sqrt(np.maximum(variance, 0))[:, None]
        likely = (1 - self.eps) * _sigmoid(gamma[:, None] * ((self.grid[place] - 0.9)[:, None] - limit))
        tau = (1 - self.delta / (1 - likely)).min(1)
        return np.where(seen.sum(1) < self.least, 1.0, np.clip(tau, 0, 1))

    def _fit(self, run: npt.NDArray[np.int_], entry: npt.NDArray[np.int_]) -> None:
        """A few Newton steps of the penalised logistic likelihood from where the entry's model stood."""
        if not len(run):
            return
        seen, right = self.seen[run, entry], self.right[run, entry]
        model = self.model[run, entry]
        x = self.grid - 0.9
        for _ in range(4):
            p = _sigmoid(model[:, :1] + model[:, 1:] * x)
            residual = right - seen * p
            weight = seen * p * (1 - p)
            g0 = residual.sum(1) - self.ridge * model[:, 0]
            g1 = (residual * x).sum(1) - self.ridge * model[:, 1]
            a, b = weight.sum(1) + self.ridge, (weight * x).sum(1)
            c = (weight * x * x).sum(1) + self.ridge
            det = np.maximum(a * c - b * b, 1e-12)
            move = np.stack([(c * g0 - b * g1) / det, (a * g1 - b * g0) / det], 1)
            model = model + np.clip(move, -20, 20)
        self.model[run, entry] = model


def vcache(scenario: Scenario, runs: int, hits: int, seed: int) -> dict[str, Any]:
    caches = VCache(runs, entries=40, seed=seed)
    before, after = caches.boundary(scenario.first), caches.boundary(scenario.last)
    shares = scenario.shares(hits)
    ever = np.zeros(runs, dtype=bool)
    for share in shares:
        mix = 0.0 if scenario.first == scenario.last else (share - scenario.first) / (scenario.last - scenario.first)
        caches.step(before + mix * (after - before))
        with np.errstate(invalid="ignore", divide="ignore"):
            # From a hundred hits on, so that a single early one does not decide.
            ever |= (caches.served >= 100) & (caches.wrong / caches.served > ALPHA)
    served = np.maximum(caches.served, 1)
    return {
        "runs": runs,
        "requests": hits,
        "violations": round(float(ever.mean()), 4),
        "violations_of_its_own_promise": round(float((caches.wrong / hits > ALPHA).mean()), 4),
        "hits": round(float(np.median(caches.served)), 1),
        "wrong_among_hits": round(float((caches.wrong / served).mean()), 5),
        "wrong_among_requests": round(float((caches.wrong / hits).mean()), 5),
    }


def _wrong(similarity: Any, boundary: Any, slope: float) -> Any:
    return _sigmoid(slope * (boundary - similarity))


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-np.clip(x, -50, 50)))


def _normal_quantiles(levels: Floats) -> Floats:
    """By bisection on the error function: no dependency for fifty numbers."""
    from math import erf, sqrt

    found = []
    for level in levels:
        low, high = -8.0, 8.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if (1 + erf(middle / sqrt(2))) / 2 < level else (low, middle)
        found.append(low)
    return np.array(found)


def summary(runs: list[Run], hits: int, jump: bool) -> dict[str, Any]:
    certified = [run.certified_after for run in runs if run.certified_after is not None]
    found: dict[str, Any] = {
        "runs": len(runs),
        "certified": round(len(certified) / len(runs), 4),
        "violations": round(float(sum(run.violated for run in runs)) / len(runs), 4),
        "served_above": round(float(sum(run.served_above for run in runs)) / len(runs), 4),
        "above_now": round(sum(run.above_now for run in runs) / len(runs), 4),
        "hits": float(np.median([run.served for run in runs])),
        "share_served": round(float(np.mean([run.served for run in runs])) / hits, 4),
        "certified_after": float(np.median(certified)) if certified else None,
    }
    if jump:
        gone = [run.gone_after for run in runs if run.gone_after is not None and run.served_after_jump]
        found["gone_after"] = float(np.median(gone)) if gone else None
        found["gone_after_p95"] = float(np.quantile(gone, 0.95)) if gone else None
        found["served_after_jump"] = float(np.median([run.served_after_jump for run in runs]))
    return found


Rule = Callable[[Scenario, Floats, int], Run]


def simulate(
    runs: int, hits: int, seed: int, vcache_runs: int, vcache_hits: int, drawn_share: float, names: Sequence[str]
) -> dict[str, Any]:
    tables = cache(partial(Tables, hits))
    results: dict[str, Any] = {}
    for number, scenario in enumerate(SCENARIOS):
        if names and scenario.name not in names:
            continue
        begun = time.perf_counter()
        shares = scenario.shares(hits)
        jump, first = scenario.shape == "jump", seed * 1_000_003 + number * 10_007
        rules: dict[str, Callable[[Scenario, Floats, int], Run]] = {
            "ours": partial(ours, tables=tables, drawn_share=drawn_share),
            "fixed": fixed,
        }
        if scenario.praise:
            rules["pooled"] = partial(ours, tables=tables, drawn_share=drawn_share, pooled=True)
        found = {
            name: summary([rule(scenario, shares, first + run) for run in range(runs)], hits, jump)
            for name, rule in rules.items()
        }
        found["vcache"] = vcache(scenario, vcache_runs, vcache_hits, seed + number)
        results[scenario.name] = found
        print(f"{scenario.name} ({time.perf_counter() - begun:.0f} s)")
        for name, row in found.items():
            print(f"  {name:7}", "  ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1_000)
    parser.add_argument("--hits", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--vcache-runs", type=int, default=200)
    parser.add_argument("--vcache-hits", type=int, default=6_000)
    parser.add_argument("--shadow", type=float, default=SHADOW, help="share of served hits that is compared")
    parser.add_argument("--scenario", action="append", default=[], help="one of them alone; may be repeated")
    options = parser.parse_args()
    results = simulate(
        options.runs,
        options.hits,
        options.seed,
        options.vcache_runs,
        options.vcache_hits,
        options.shadow,
        options.scenario,
    )
    worst = max(found["ours"]["violations"] for found in results.values())
    print(
        json.dumps(
            {
                "benchmark": "cache_bound",
                "alpha": ALPHA,
                "confidence": 1 - bound.LEVEL,
                "shadow": options.shadow,
                "runs": options.runs,
                "hits": options.hits,
                "seed": options.seed,
                "worst_violations": worst,
                "kept": bool(worst <= bound.LEVEL),
                "scenarios": results,
            }
        )
    )


if __name__ == "__main__":
    main()
