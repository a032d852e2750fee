"""Timing, contracts and what does not exist; and what becomes of counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import msgspec
import numpy as np
import numpy.typing as npt
import pytest

from service.attest import cache, conformance, timing
from service.attest.caller import Caller
from service.attest.claims import Tally, Verdict, combined
from service.attest.run import attest
from service.attest.running import is_running, publish
from service.attest.stage import Stage
from service.attest.statistics import compare
from service.settings import load_settings
from tenancy.contract import AuditTerms, Contract, GenerationTerms
from tenancy.errors import InvalidInput, NotFound
from tests.attest.place import FEW, Place, claim, confuse_tenants, placed, plain, table, verdicts

pytestmark = pytest.mark.timeout(600)


class TestClaims:
    def test_a_probe_that_finds_something_fails_whatever_its_control_says(self) -> None:
        tally = Tally("apart")
        tally.control(False, "here")
        tally.probe(True, "there")
        found = tally.close()
        assert (found.verdict, found.against, found.held) == ("FAIL", 1, 0)
        assert "there" in found.finding

    @pytest.mark.parametrize(("probes", "controls", "held"), [(0, 3, 3), (3, 0, 0), (3, 3, 2)])
    def test_without_a_probe_or_a_control_that_held_nothing_is_shown(
        self, probes: int, controls: int, held: int
    ) -> None:
        tally = Tally("apart")
        for _ in range(probes):
            tally.probe(False, "there")
        for number in range(controls):
            tally.control(number < held, "here")
        assert tally.close().verdict == "INCONCLUSIVE"

    def test_nothing_found_bounds_the_rate(self) -> None:
        tally = Tally("apart")
        for _ in range(300):
            tally.probe(False, "there")
        tally.control(True, "here")
        found = tally.close()
        assert found.verdict == "PASS"
        assert "below 1 %" in found.finding

    @pytest.mark.parametrize(
        ("verdicts", "expected"),
        [
            (["PASS", "NOT BUILT"], "PASS"),
            (["PASS", "INCONCLUSIVE", "NOT BUILT"], "INCONCLUSIVE"),
            (["PASS", "INCONCLUSIVE", "FAIL"], "FAIL"),
            (["NOT BUILT", "NOT BUILT"], "NOT BUILT"),
            ([], "NOT BUILT"),
        ],
    )
    def test_the_worst_verdict_holds_and_what_is_not_built_passes_nothing(
        self, verdicts: list[Verdict], expected: str
    ) -> None:
        assert combined(verdicts) == expected


class TestTiming:
    draw = np.random.default_rng(7)

    def judged(self, own: npt.NDArray[np.float64], cross: npt.NDArray[np.float64]) -> str:
        fresh = self.draw.lognormal(size=len(cross)) + 10
        return timing.verdict(compare(cross, fresh), compare(own, fresh))

    def fresh(self, size: int) -> npt.NDArray[np.float64]:
        return self.draw.lognormal(size=size) + 10

    def test_the_area_is_that_of_all_pairs(self) -> None:
        first, second = self.draw.integers(0, 9, 40).astype(float), self.draw.integers(2, 12, 30).astype(float)
        pairs = [1.0 if late > soon else 0.5 if late == soon else 0.0 for soon in first for late in second]
        found = compare(first, second)
        assert found.auc == pytest.approx(np.mean(pairs))
        above = max(np.mean(first <= at) - np.mean(second <= at) for at in np.concatenate([first, second]))
        assert found.ks == pytest.approx(above)

    def test_the_bounds_hold_as_often_as_they_say(self) -> None:
        above = below = 0
        for _ in range(400):
            found = compare(self.draw.normal(size=150), self.draw.normal(size=150))
            above, below = above + (found.upper < 0.5), below + (found.lower > 0.5)
        assert above <= 12
        assert below <= 12

    def test_equal_times_pass_with_enough_probes_alone(self) -> None:
        # Of one draw: chance alone misses the bound now and then.
        self.draw = np.random.default_rng(1)
        assert self.judged(self.draw.lognormal(size=1_050), self.fresh(1_050)) == "PASS"
        assert self.judged(self.draw.lognormal(size=60), self.fresh(60)) == "INCONCLUSIVE"

    def test_questions_that_are_answered_sooner_fail(self) -> None:
        assert self.judged(self.draw.lognormal(size=1_050), self.fresh(1_050) - 1) == "FAIL"

    def test_hits_that_take_as_long_show_nothing(self) -> None:
        assert self.judged(self.fresh(1_050), self.fresh(1_050)) == "INCONCLUSIVE"

    def test_a_part_that_is_much_sooner_keeps_it_from_passing(self) -> None:
        cross = self.fresh(1_050)
        cross[:80] = 1.0
        assert self.judged(self.draw.lognormal(size=1_050), cross) != "PASS"

    @pytest.mark.slow
    def test_hits_across_tenants_fail_it(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        confuse_tenants(monkeypatch, stage.pair)
        found = timing.examine(by_the_cache(measured(stage, 60), monkeypatch))
        assert found.verdict == "FAIL", plain(found)

    @pytest.mark.slow
    def test_tenants_that_are_apart_do_not_fail_it(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        found = timing.examine(by_the_cache(measured(stage, 60), monkeypatch))
        assert found.verdict in {"PASS", "INCONCLUSIVE"}, plain(found)
        assert "n 60" in found.claims[0].finding
        assert found.claims[0].held == 60

    @pytest.mark.slow
    def test_without_probes_nothing_is_shown(self, stage: Stage) -> None:
        assert timing.examine(measured(stage, 0)).verdict == "INCONCLUSIVE"


class Stopwatch:
    """In the place of a caller and of the clock: a hit takes about a second, any other answer about ten, so that what
    else the machine does decides nothing.
    """

    def __init__(self, caller: Any) -> None:
        self._caller = caller
        self._draw = np.random.default_rng(3)
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now

    def ask(self, *given: Any, **more: Any) -> httpx.Response:
        response: httpx.Response = self._caller.ask(*given, **more)
        hit = response.is_success and response.json()["cache"]["status"] == "hit"
        self.now += (1 if hit else 10) + self._draw.random()
        return response

    def __getattr__(self, name: str) -> Any:
        return getattr(self._caller, name)


def by_the_cache(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Stage:
    watch = Stopwatch(stage.caller)
    monkeypatch.setattr(timing, "time", watch)
    return replace(stage, caller=watch)


class Answering:
    """In the place of a caller: every answer is what `said` gives for who asks, the question and the rest of it."""

    def __init__(self, said: Callable[[str, str, dict[str, Any]], tuple[int, str]]) -> None:
        self._said = said

    def put(self, *_: object) -> None:
        pass

    def send(self, *_: object) -> httpx.Response:
        return httpx.Response(200, json={"data": [{"id": "one"}]})

    def ask(self, canary: Any, user: str, query: str, **more: Any) -> httpx.Response:
        status, cache = self._said(f"{canary.name}/{user}", query, more)
        return httpx.Response(status, json={"cache": {"status": cache, "kind": "exact" if cache == "hit" else None}})

    @property
    def stage(self) -> Any:
        left, right = (SimpleNamespace(name=name, keys={"ana": "key"}) for name in ("left", "right"))
        options = SimpleNamespace(probes=3, timing=5)
        settings = SimpleNamespace(cache=SimpleNamespace(enabled=True))
        return SimpleNamespace(caller=self, left=left, right=right, options=options, settings=settings)


def test_what_the_cache_was_not_asked_for_shows_nothing_about_it() -> None:
    def said(who: str, query: str, more: dict[str, Any]) -> tuple[int, str]:
        return 200, "hit" if who == "left/ann" else "bypass" if "template" in more else "miss"

    found = cache._identical(Answering(said).stage)
    assert {one.claim.rpartition(": ")[2]: one.verdict for one in found} == {
        "user domain": "PASS", "tenant": "PASS", "template": "INCONCLUSIVE", "model": "NOT BUILT",
    }  # fmt: skip


@pytest.mark.parametrize("refused", ["cross", "fresh"])
def test_the_time_of_a_refusal_shows_nothing(refused: str) -> None:
    owners: dict[str, str] = {}

    def said(who: str, query: str, more: dict[str, Any]) -> tuple[int, str]:
        # What nobody has asked before is asked last.
        warm, known = len(owners) >= 2 * 25, owners.get(query)
        owners.setdefault(query, who if not warm else "nobody")
        if not warm:
            return 200, "miss"
        arm = {"right/ana": "own", "left/ana": "cross"}.get(known or "", "fresh")
        return 503 if arm == refused else 200, "hit" if arm == "own" else "miss"

    _, unexpected = timing._measured(Answering(said).stage)
    assert unexpected == 5


@pytest.mark.parametrize("url", ["ftp://x", "http://[::1", "http://a\0b", "http://é\udce9"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput):
        Caller(url).send("GET", "/healthz/live")


def measured(stage: Stage, probes: int) -> Stage:
    return replace(stage, options=msgspec.structs.replace(stage.options, timing=probes))


@pytest.mark.slow
class TestContracts:
    def test_it_passes(self, place: Place) -> None:
        found = conformance.examine(place.control, [])
        assert found.verdict == "PASS", plain(found)
        assert claim(found, "tier").probes == place.control.tenants.count()[1]
        assert verdicts(found)["caching rules are as agreed"] == "NOT BUILT"
        assert conformance.examine(place.control, ["acme"]).verdict == "PASS"
        with pytest.raises(NotFound):
            conformance.examine(place.control, ["nobody"])

    @pytest.mark.parametrize(
        ("broken", "failing"),
        [
            (Contract(engine="elsewhere"), "tier"),
            (Contract(tier="dedicated", engine="faiss"), "tier"),
            (Contract(model="org/other@0"), "tier"),
            (Contract(generation=GenerationTerms(pools=["elsewhere"])), "pools and models"),
        ],
    )
    def test_a_contract_that_is_not_kept_fails_it(self, place: Place, broken: Contract, failing: str) -> None:
        place.control.tenants.set_contract("acme", broken)
        try:
            found = conformance.examine(place.control, [])
        finally:
            place.control.tenants.set_contract("acme", Contract())
        assert claim(found, failing).verdict == "FAIL", plain(found)
        assert "acme" in claim(found, failing).finding

    def test_another_class_than_the_one_agreed_fails_it(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        place.control.tenants.set_contract("acme", Contract(audit=AuditTerms(retention="6-years")))
        try:
            assert claim(conformance.examine(place.control, []), "time agreed").verdict == "PASS"
            monkeypatch.setattr(conformance, "class_of", lambda control, *_, **__: control.settings.audit.retention)
            found = conformance.examine(place.control, [])
        finally:
            place.control.tenants.set_contract("acme", Contract())
        assert claim(found, "time agreed").verdict == "FAIL", plain(found)

    def test_an_adapter_that_declares_nothing_fails_it(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        assert claim(conformance.examine(place.control, []), "trained on").verdict == "NOT BUILT"
        agreed = Contract(generation=GenerationTerms(declared_adapters=True))
        place.control.tenants.set_contract("acme", agreed)
        try:
            assert claim(conformance.examine(place.control, []), "trained on").verdict == "PASS"
            monkeypatch.setattr(conformance, "registered", lambda _: [SimpleNamespace(id="a", revoked=None)])
            found = conformance.examine(place.control, [])
        finally:
            place.control.tenants.set_contract("acme", Contract())
        assert claim(found, "trained on").verdict == "FAIL", plain(found)

    def test_a_contract_of_another_version_fails_it(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Contract, "stored", lambda _: {"promise": True})
        place.control.tenants.set_contract("acme", Contract())
        monkeypatch.undo()
        try:
            found = conformance.examine(place.control, [])
        finally:
            place.control.tenants.set_contract("acme", Contract())
        assert claim(found, "kept by this version").verdict == "FAIL", plain(found)

    def test_a_waived_pool_fails_it(self) -> None:
        pool = table(kind="sglang", model="tiny", revision="r1", replicas=["http://127.0.0.1:9"], kv_isolation="waived")
        with placed(
            STRONGROOM_GENERATION__POOLS=f"{{main = {pool}}}", STRONGROOM_GENERATION__ROUTING='{collection = ["main"]}'
        ) as place:
            found = conformance.examine(place.control, [])
        assert claim(found, "waived").verdict == "FAIL", plain(found)

    def test_other_settings_than_the_servers_show_nothing(self, place: Place) -> None:
        settings = place.desk.house.settings
        publish(msgspec.structs.replace(settings, environment="other"))
        try:
            assert conformance.examine(place.control, []).verdict == "INCONCLUSIVE"
            assert is_running(settings) is False
        finally:
            publish(settings)
        assert is_running(settings) is True


@pytest.mark.slow
def test_no_canary_asks_a_pool_that_serves_one_tenant() -> None:
    with placed(
        STRONGROOM_GENERATION__KIND="openai",
        STRONGROOM_GENERATION__BASE_URL="http://127.0.0.1:9/v1",
        STRONGROOM_GENERATION__MODEL="tiny",
        STRONGROOM_GENERATION__REVISION="r1",
    ) as place:
        report = attest(place.control, place.caller, FEW)
        found = {layer["layer"]: layer["verdict"] for layer in report["layers"]}
        assert (found["cache"], found["retrieval and index"], found["contracts"]) == (
            "INCONCLUSIVE", "INCONCLUSIVE", "PASS",
        )  # fmt: skip
        assert report["canaries"] == []
        assert [event["action"] for event in place.desk.house.system_events()] == ["attest", "attest"]


def test_settings_are_taken_over() -> None:
    chosen: dict[str, Any] = {"STRONGROOM_ATTEST__EVERY_H": "24", "STRONGROOM_ATTEST__LOG_FILE": "~/server.log"}
    settings = load_settings(environment=chosen)
    assert settings.attest.every_h == 24
    assert Path(settings.attest.log_file).name == "server.log"
