"""Performance isolation: does one tenant's load slow another beyond the bound?

One canary tenant asks a question at a time, in blocks: while nobody else of this attestation asks, and while the other
canary's clients ask without a pause. Both are the same kind of question, which no cache remembers. Blocks alternate, so
that whatever else the machine does meets both arms.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final

import httpx
import numpy as np

from service.attest.claims import Claim, Layer, Verdict, inconclusive
from service.attest.stage import Stage, asked_about, code_of, word
from service.attest.statistics import Ratio, Times, ratio

NAME: Final = "performance isolation"
BLOCK: Final = 10
"""Questions of one arm before the other's turn."""
QUANTILE: Final = 0.95

_CLAIM: Final = "one tenant's load slows no other beyond its bound"
_WARM_UP: Final = 3
_DONE: Final = frozenset({httpx.codes.OK, httpx.codes.TOO_MANY_REQUESTS, httpx.codes.SERVICE_UNAVAILABLE})
"""What load may be told: it is served, or kept off."""


def examine(stage: Stage) -> Layer:
    options = stage.options
    if not options.load or options.load_probes < BLOCK:
        return Layer.of(NAME, [inconclusive(_CLAIM, "not measured: no load was asked for", "--load 8")])
    topics = [word(), word()]
    for canary, topic in zip((stage.left, stage.right), topics, strict=True):
        stage.caller.put(canary, "load.md", code_of(topic, word()), "group:red")
    quiet: list[float] = []
    loaded: list[float] = []
    failed, load = 0, _Load(stage, topics[0])
    for _ in range(0, options.load_probes, BLOCK):
        failed += _block(stage, topics[1], quiet)
        with load.running():
            failed += _block(stage, topics[1], loaded)
    return Layer.of(NAME, [_judged(stage, np.array(quiet), np.array(loaded), failed, load)])


def verdict(found: Ratio, bound: float, *, load_was_real: bool, failed: int) -> Verdict:
    """FAIL where the other is surely slower than the bound allows, or is not served at all."""
    if not load_was_real:
        return "INCONCLUSIVE"
    if failed or found.lower > bound:
        return "FAIL"
    return "PASS" if found.upper <= bound else "INCONCLUSIVE"


def _judged(stage: Stage, quiet: Times, loaded: Times, failed: int, load: _Load) -> Claim:
    bound, asked = stage.settings.attest.slowdown, len(loaded)
    found = ratio(loaded, quiet, QUANTILE)
    real = load.served >= asked and not load.strange
    decided = verdict(found, bound, load_was_real=real, failed=failed)
    finding = (
        f"n {asked} an arm; 95th percentile {np.quantile(quiet, QUANTILE):.1f} ms alone, "
        f"{np.quantile(loaded, QUANTILE):.1f} ms beside {stage.options.load} clients of another tenant: "
        f"{found.ratio:.2f} times, 99 % in {found.lower:.2f} to {found.upper:.2f}, bound {bound:g}; "
        f"{failed} not answered; control: {load.served} answers and {load.kept_off} refusals to the load meanwhile"
    )
    if load.strange:
        finding += f"; {load.strange} other answers to the load"
    remedy = {
        "PASS": None,
        "FAIL": "give tenants limits (concurrent, kv_tokens) or the service more threads and replicas; a load that is "
        "made on the service's own machine also takes its processors",
        "INCONCLUSIVE": "repeat it with more probes, or more load (--load)",
    }.get(decided)
    return Claim(
        claim=_CLAIM, verdict=decided, finding=finding, probes=asked, against=int(decided == "FAIL"),
        controls=1, held=int(real), remedy=remedy,
    )  # fmt: skip


def _block(stage: Stage, topic: str, times: list[float]) -> int:
    """Ask, and add milliseconds to `times`; returns how many were not answered."""
    failed = 0
    for number in range(_WARM_UP + BLOCK):
        begun = time.perf_counter()
        answered = stage.caller.ask(stage.right, "ana", _question(topic)).status_code == httpx.codes.OK
        if number >= _WARM_UP:
            times.append((time.perf_counter() - begun) * 1000)
            failed += not answered
    return failed


def _question(topic: str) -> str:
    """A question that nobody asked before."""
    return f"{asked_about(topic)[:-1]} under rule {secrets.randbelow(10**9)}?"


class _Load:
    """The other tenant's clients. `served` of their questions were answered, `kept_off` refused, others `strange`."""

    def __init__(self, stage: Stage, topic: str) -> None:
        self.served = 0
        self.kept_off = 0
        self.strange = 0
        self._stage = stage
        self._topic = topic
        self._lock = threading.Lock()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Meanwhile all clients ask; returns when the last answer is there."""
        clients, stop = self._stage.options.load, threading.Event()
        with ThreadPoolExecutor(clients) as pool:
            asking = [pool.submit(self._ask, stop) for _ in range(clients)]
            try:
                yield
            finally:
                stop.set()
                for one in asking:
                    one.result()

    def _ask(self, stop: threading.Event) -> None:
        while not stop.is_set():
            status = self._stage.caller.ask(self._stage.left, "ana", _question(self._topic)).status_code
            with self._lock:
                self.served += status == httpx.codes.OK
                self.kept_off += status in _DONE and status != httpx.codes.OK
                self.strange += status not in _DONE
