"""Timing: does a stopwatch tell one tenant what another one's cache holds?

Three arms of questions of one form, asked by one reader in an order drawn for each block, so that whatever slows the
machine slows all arms: what this reader's own cache holds, what only the other tenant's holds, and what nobody asked.
The first arm against the third is the control: a hit must be told by its time, or the measure sees nothing.
"""

from __future__ import annotations

import random
import secrets
import time
from typing import Final

import httpx
import numpy as np

from service.attest.claims import Claim, Layer, Verdict, inconclusive, not_built
from service.attest.stage import Stage, asked_about, code_of, word
from service.attest.statistics import Compared, Times, compare

NAME: Final = "timing"
CONTROL: Final = 0.90
"""Least AUC of hits against fresh answers."""
MOST: Final = 0.55
"""What the 99 % bound on the AUC of the other tenant's against fresh answers may reach."""
LEAST_P: Final = 0.01

_CLAIM: Final = "response times do not tell what another tenant's cache holds"
_WARM_UP: Final = 20
_OWN, _CROSS, _FRESH = "own", "cross", "fresh"


def examine(stage: Stage) -> Layer:
    if not stage.settings.cache.enabled:
        return Layer.of(NAME, [not_built(_CLAIM, "the cache is switched off (cache.enabled)")])
    if stage.options.timing <= 1:
        return Layer.of(NAME, [inconclusive(_CLAIM, "not measured: no probes were asked for", "--timing 1050")])
    times, unexpected = _measured(stage)
    cross, control = compare(times[_CROSS], times[_FRESH]), compare(times[_OWN], times[_FRESH])
    medians = ", ".join(f"{arm} {np.median(times[arm]):.1f}" for arm in (_OWN, _CROSS, _FRESH))
    finding = (
        f"n {len(times[_CROSS])} an arm; cross against fresh: AUC {cross.auc:.3f}, 99 % in {cross.lower:.3f} to "
        f"{cross.upper:.3f}, KS {cross.ks:.3f} (p {cross.p:.2g}); control, own against fresh: AUC {control.auc:.3f}; "
        f"medians in ms: {medians}"
    )
    decided = verdict(cross, control) if not unexpected else "INCONCLUSIVE"
    if unexpected:
        finding += f"; {unexpected} answers were not what their arm says"
    remedy = None if decided == "PASS" else "repeat it on a machine that is not busy, with more probes (--timing)"
    claim = Claim(
        claim=_CLAIM,
        verdict=decided,
        finding=finding,
        probes=len(times[_CROSS]),
        against=int(decided == "FAIL"),
        controls=len(times[_OWN]),
        held=len(times[_OWN]) - unexpected,
        remedy="a hit across tenants, or work that differs by what others asked" if decided == "FAIL" else remedy,
    )
    return Layer.of(NAME, [claim])


def verdict(cross: Compared, control: Compared) -> Verdict:
    """FAIL where the other tenant's questions are surely answered sooner than fresh ones, and by more than is allowed;
    a difference that only the distance of the distributions sees keeps it from passing.
    """
    if control.auc < CONTROL:
        return "INCONCLUSIVE"
    if cross.upper <= MOST:
        return "PASS" if cross.p >= LEAST_P else "INCONCLUSIVE"
    return "FAIL" if cross.lower > 1 / 2 else "INCONCLUSIVE"


def _measured(stage: Stage) -> tuple[dict[str, Times], int]:
    """Milliseconds by arm, each (n,), and how many answers were hits or misses against their arm."""
    topic, draw = word(), random.Random(secrets.randbits(64))  # noqa: S311  an order, no secret
    for canary in (stage.left, stage.right):
        stage.caller.put(canary, "timing.md", code_of(topic, word()), "group:red")
    count = _WARM_UP + stage.options.timing
    numbers = draw.sample(range(100_000, 1_000_000), 3 * count)
    asked = {
        arm: [f"{asked_about(topic)[:-1]} under rule {number}?" for number in numbers[at::3]]
        for at, arm in enumerate((_OWN, _CROSS, _FRESH))
    }
    for own, cross in zip(asked[_OWN], asked[_CROSS], strict=True):
        stage.caller.ask(stage.right, "ana", own)
        stage.caller.ask(stage.left, "ana", cross)
    # Not in the order in which they were remembered.
    orders = {arm: iter(draw.sample(questions, count)) for arm, questions in asked.items()}
    times: dict[str, list[float]] = {arm: [] for arm in asked}
    unexpected = 0
    for block in range(count):
        for arm in draw.sample(list(asked), len(asked)):
            query = next(orders[arm])
            begun = time.perf_counter()
            answered = stage.caller.ask(stage.right, "ana", query)
            took = (time.perf_counter() - begun) * 1000
            if block < _WARM_UP:
                continue
            times[arm].append(took)
            # What is not an answer has a time of its own, which says nothing.
            answer = answered.status_code == httpx.codes.OK
            hit = answer and answered.json()["cache"]["status"] == "hit"
            unexpected += not answer or (hit != (arm == _OWN) and arm != _CROSS)
    return {arm: np.array(found) for arm, found in times.items()}, unexpected
