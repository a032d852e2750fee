"""The figures of tenants, from ends of requests that are made up, held against plain sums and sorted lists."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.shares import Share
from audit.ended import Course, Ended, Step
from audit.record import CacheUse, GenerationUse
from generation.occupancy import EngineUse
from service.metrics.families import Families
from service.metrics.labels import OTHER, TenantLabels
from service.metrics.objectives import LEAST, LEAST_DUE, breaches, enough
from service.metrics.patterns import REMEMBERED, RETRY_S, Retries
from service.metrics.seen import Seen, seen
from service.metrics.signals import Signals
from service.metrics.sketch import ERROR, Sketch
from service.metrics.windows import KEPT, TENANTS, Window, Windows
from tenancy.identity import _SEAL, Principal, Role
from tenancy.objectives import Objectives


def person(tenant: str = "acme", user: str = "ana") -> Principal:
    roles = frozenset({Role.READER})
    return Principal(
        f"t_{tenant}", tenant, f"u_{user}", user, frozenset(), roles, "k_1", "api_key", "interactive", _SEAL
    )


def ended(**given: Any) -> Ended:
    plain: dict[str, Any] = {
        "principal": person(),
        "action": "answer",
        "request_id": "0" * 31 + "1",
        "outcome": "allowed",
        "reason": None,
        "scope": None,
        "begun": 1_000.0,
        "took_s": 2.0,
        "first_s": 0.5,
        "queue_s": 0.25,
        "steps": (Step("embed", 0.0, 0.1), Step("generate", 0.3, 1.2)),
        "cache": CacheUse(status="miss"),
        "generation": GenerationUse(model="tiny", input=100, cached_input=40, output=11, finish="stop"),
        "detail": {},
        "asked": None,
    }
    return Ended(**plain | given)


class Clock:
    def __init__(self, now: float = 3_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class TestSketch:
    @given(st.lists(st.floats(1e-4, 1e4), min_size=1, max_size=300), st.sampled_from([0.5, 0.95, 0.99, 1.0]))
    def test_a_quantile_is_that_of_the_sorted_values(self, values: list[float], share: float) -> None:
        sketch = Sketch()
        for value in values:
            sketch.add(value)
        rank = max(1, -int(-share * len(values) // 1))
        true = sorted(values)[rank - 1]
        assert sketch.quantile(share) == pytest.approx(true, rel=ERROR * 1.001)

    def test_nothing_has_no_quantile_and_sketches_add_up(self) -> None:
        one, two, both = Sketch(), Sketch(), Sketch()
        assert one.quantile(0.5) is None
        for number in range(100):
            (one if number % 3 else two).add(number)
            both.add(number)
        one.merge(two)
        assert (one.buckets, one.count) == (both.buckets, both.count)

    def test_only_what_is_slower_for_sure_is_above(self) -> None:
        sketch = Sketch()
        for value in (1.0, 2.0, 2.01, 2.2, 9.0):
            sketch.add(value)
        assert sketch.surely_above(2.0) == 2

    def test_memory_is_bounded_whatever_comes(self) -> None:
        sketch = Sketch()
        draw = random.Random(1)
        for _ in range(20_000):
            sketch.add(10 ** draw.uniform(-30, 30))
        assert len(sketch.buckets) < 700


class TestSeen:
    def test_an_answer_has_its_times(self) -> None:
        one = seen(ended())
        assert one is not None
        assert (one.fate, one.total_s, one.queue_s, one.first_s) == ("answered", 2.0, 0.25, 0.5)
        # From the first text, at 0.5 s, to the end of writing, at 1.5 s, ten tokens more.
        assert one.per_token_s == pytest.approx(0.1)
        assert (one.input_tokens, one.output_tokens) == (100, 11)

    @pytest.mark.parametrize(
        ("given_", "fate"),
        [
            ({"outcome": "refused", "reason": "limit-exceeded", "scope": "user"}, "own-limit"),
            ({"outcome": "refused", "reason": "limit-exceeded", "scope": "deployment"}, "system"),
            ({"outcome": "refused", "reason": "forbidden"}, "rejected"),
            ({"outcome": "error", "reason": "unavailable"}, "system"),
            ({"outcome": "aborted"}, "abandoned"),
            ({"outcome": "revoked"}, "revoked"),
        ],
    )
    def test_what_is_not_answered_has_a_fate_and_no_times(self, given_: dict[str, Any], fate: str) -> None:
        one = seen(ended(**given_))
        assert one is not None
        assert (one.fate, one.total_s, one.first_s, one.per_token_s) == (fate, None, None, None)

    def test_a_remembered_answer_waited_in_no_queue_and_wrote_no_token(self) -> None:
        one = seen(ended(generation=None, steps=(Step("cache", 0.0, 0.1),), first_s=None))
        assert one is not None
        assert (one.queue_s, one.first_s, one.per_token_s) == (None, 2.0, None)

    def test_without_a_tenant_nobody_has_figures(self) -> None:
        assert seen(ended(principal=None)) is None


class TestWindows:
    def filled(self, count: int, clock: Clock, windows: Windows, **given: Any) -> None:
        for _ in range(count):
            one = seen(ended(**given))
            assert one is not None
            windows.add(one, clock.now)

    def test_a_window_ends_and_is_kept_for_a_while(self) -> None:
        clock, windows = Clock(), Windows(300.0)
        self.filled(3, clock, windows)
        clock.now += 300
        self.filled(1, clock, windows)
        history = windows.find(person().tenant_id, clock.now)
        assert history is not None
        assert [window.requests for window in history.ended] == [3]
        assert history.current.requests == 1
        for later, kept in ((KEPT, [1]), (KEPT + 1, [])):
            history = windows.find(person().tenant_id, clock.now + 300 * later)
            assert history is not None
            assert [window.requests for window in history.ended] == kept

    def test_availability_leaves_out_what_is_the_tenants_own(self) -> None:
        clock, windows = Clock(), Windows(300.0)
        self.filled(8, clock, windows)
        self.filled(2, clock, windows, outcome="error", reason="unavailable")
        self.filled(5, clock, windows, outcome="refused", reason="limit-exceeded", scope="tenant")
        self.filled(5, clock, windows, outcome="refused", reason="invalid-input")
        history = windows.find(person().tenant_id, clock.now)
        assert history is not None
        found = history.current.figures()
        assert (found.requests, found.refused_by_own_limit, found.refused_by_system, found.rejected) == (20, 5, 2, 5)
        assert found.availability == pytest.approx(0.8)
        assert found.total.count == 8

    def test_tenants_are_bounded_and_apart(self) -> None:
        windows = Windows(300.0)
        for number in range(TENANTS + 5):
            windows.add(Seen(f"t_{number}", f"n{number}", "answer", "answered", total_s=1.0), 3_000.0)
        kept = list(windows.rolled(3_000.0))
        assert len(kept) == TENANTS
        assert {history.current.requests for _, history in kept} == {1}
        assert windows.find("t_0", 3_000.0) is None


class TestPatterns:
    def test_the_same_again_within_two_minutes_is_a_retry(self) -> None:
        retries = Retries()
        assert not retries.is_retry(b"a", 0.0)
        assert not retries.is_retry(b"b", 1.0)
        assert retries.is_retry(b"a", RETRY_S)
        assert not retries.is_retry(b"a", 3 * RETRY_S)

    def test_what_is_remembered_is_bounded(self) -> None:
        retries = Retries()
        for number in range(REMEMBERED + 1):
            retries.is_retry(number.to_bytes(4, "big"), 0.0)
        assert not retries.is_retry((0).to_bytes(4, "big"), 0.0)
        assert retries.is_retry(REMEMBERED.to_bytes(4, "big"), 0.0)

    def test_a_question_is_a_keyed_digest_of_person_and_words(self) -> None:
        def digest(who: Principal, text: str) -> bytes | None:
            course = Course()
            course.asks(who, text)
            return course.asked

        assert digest(person(), "How  long?") == digest(person(), "how long? ")
        assert digest(person(), "How long?") != digest(person(user="bo"), "How long?")
        assert digest(person(), "How long?") != digest(person("blue"), "How long?")
        assert b"long" not in (digest(person(), "How long?") or b"")


class TestRates:
    def test_retries_edits_and_abandoned_answers(self) -> None:
        signals = Signals(clock=Clock())
        for asked in (b"a", b"a", b"b", None):
            signals.ended(ended(asked=asked))
        signals.ended(ended(asked=b"c", cache=CacheUse(status="refresh")))
        signals.ended(ended(outcome="aborted"))
        for verdict in ("edited", "good", "good", "wrong_answer"):
            signals.ended(ended(action="feedback", generation=None, detail={"verdict": verdict}))
        found = signals.report(person().tenant_id, "acme").current
        assert (found.requests, found.questions, found.told) == (10, 6, 4)
        assert found.retry_rate == pytest.approx(2 / 6)
        assert found.abandon_rate == pytest.approx(1 / 6)
        assert found.edit_rate == pytest.approx(1 / 4)

    def test_a_tenant_that_asked_nothing_has_zeros(self) -> None:
        found = Signals(clock=Clock()).report("t_none", "none")
        assert (found.current.requests, found.last, found.current.availability) == (0, None, None)

    def test_a_fault_in_the_figures_ends_no_request(self, monkeypatch: pytest.MonkeyPatch) -> None:
        signals = Signals(clock=Clock())
        monkeypatch.setattr(signals.families, "ended", lambda *_: 1 / 0)
        signals.ended(ended())
        assert signals.report(person().tenant_id, "acme").current.requests == 0

    def test_violations_are_layers_that_an_attestation_found_not_apart(self) -> None:
        signals = Signals(clock=Clock())
        for verdict, layers in (("PASS", "cache: PASS"), ("FAIL", "cache: FAIL, logs: PASS, memory: FAIL")):
            detail = {"verdict": verdict, "layers": layers}
            signals.ended(ended(action="attest", principal=None, generation=None, detail=detail))
        assert signals.report("t_none", "none").isolation_violations == 2


class TestEngineUse:
    def test_times_of_windows_and_pools_add_up_and_of_peaks_the_highest_stays(self) -> None:
        clock = Clock()
        signals = Signals(clock=clock)
        signals.ended(ended())
        mine = person().tenant_id
        signals.take_uses([("main", {mine: EngineUse(2_000_000_000, 900)}), ("old", {mine: EngineUse(1, 100)})])
        clock.now += 300
        # No request ended in this window: what streams uses the engine all the same.
        signals.take_uses([("main", {mine: EngineUse(500_000_000, 400), "t_unseen": EngineUse(7, 7)})])
        clock.now += 300
        found = signals.report(mine, "acme")
        assert found.last is not None
        assert (found.current.engine_s, found.current.kv_peak_tokens) == (0.0, 0)
        assert (found.last.engine_s, found.last.kv_peak_tokens) == (0.5, 400)
        assert (found.kept.engine_s, found.kept.kv_peak_tokens) == (2.500000001, 900)
        assert signals.report("t_unseen", "unseen").kept.engine_s == 0.0

    def test_the_series_counts_all_tenants_of_a_pool_and_names_none(self) -> None:
        signals = Signals(clock=Clock())
        for _ in range(2):
            signals.take_uses([("main", {"t_acme": EngineUse(2_000_000_000), "t_blue": EngineUse(500_000_000)})])
        assert list(samples(signals.families, "strongroom_pool_engine_seconds_total")) == [({"pool": "main"}, 5.0)]


class TestObjectives:
    def window(self, count: int, *, slow: int = 0, failed: int = 0, share: Share | None = None) -> Window:
        window = Window(0.0)
        for number in range(count):
            times = 30.0 if number < slow else 1.0
            fate = "system" if number < failed else "answered"
            window.add(Seen("t", "acme", "answer", fate, total_s=times), retry=False)  # type: ignore[arg-type]
        window.share = share or Share()
        return window

    @pytest.mark.parametrize(("slow", "missed"), [(0, []), (1, []), (2, ["p99_s"])])
    def test_one_in_a_hundred_may_be_slower(self, slow: int, missed: list[str]) -> None:
        found = breaches(Objectives(p99_s=20.0), self.window(LEAST, slow=slow))
        assert [one.objective for one in found] == missed

    @pytest.mark.parametrize(("failed", "missed"), [(1, []), (2, ["availability"])])
    def test_availability(self, failed: int, missed: list[str]) -> None:
        found = breaches(Objectives(availability=0.99), self.window(LEAST, failed=failed))
        assert [one.objective for one in found] == missed

    @pytest.mark.parametrize(
        ("share", "missed"),
        [
            (Share(LEAST_DUE, LEAST_DUE, 0), []),
            (Share(0.5 * LEAST_DUE, 2 * LEAST_DUE, 2 * LEAST_DUE), ["share"]),
            (Share(1.0, 100.0, 100.0), []),
        ],
    )
    def test_share(self, share: Share, missed: list[str]) -> None:
        found = breaches(Objectives(share=0.8), self.window(1, share=share))
        assert [one.objective for one in found] == missed

    def test_too_little_is_not_judged_and_nothing_agreed_is_never_missed(self) -> None:
        few = self.window(LEAST - 1, slow=50, failed=50)
        assert not enough(few, 1.0)
        assert breaches(Objectives(p99_s=1.0, availability=1.0), few) == []
        assert breaches(Objectives(), self.window(LEAST, slow=50, failed=50)) == []
        assert enough(self.window(LEAST), 1.0)


def samples(families: Families, name: str) -> Iterator[tuple[dict[str, str], float]]:
    for metric in families.registry.collect():
        for sample in metric.samples:
            if sample.name == name:
                yield sample.labels, sample.value


class TestFamilies:
    def test_five_families_name_a_tenant_and_no_more(self) -> None:
        signals = Signals(clock=Clock())
        signals.ended(ended())
        labelled = {
            metric.name
            for metric in signals.families.registry.collect()
            if any("tenant" in sample.labels for sample in metric.samples)
        }
        # The fifth has a value only where a tenant was due something.
        assert len(labelled) == 4
        assert len(signals.families.by_tenant) == 5
        signals.take_shares({person().tenant_id: Share(80.0, 100.0, 100.0)})
        assert list(samples(signals.families, "strongroom_tenant_share_ratio")) == [({"tenant": "acme"}, 0.8)]

    def test_the_busiest_have_a_label_and_all_others_share_one(self) -> None:
        families = Families(3)
        for number in range(50):
            for _ in range(50 - number):
                one = ended(principal=person(f"t{number}"))
                families.ended(one, seen(one), "answered")
        counted = samples(families, "strongroom_tenant_requests_total")
        found = {labels["tenant"]: value for labels, value in counted}
        assert len(found) == 4
        assert sum(found.values()) == sum(range(1, 51))
        assert found["t0"] == 50

    def test_whoever_was_busy_gives_its_label_up(self) -> None:
        gone: list[str] = []
        labels = TenantLabels(2, gone.append)
        for _ in range(50):
            assert labels.of("old") == "old"
            labels.of("idle")
        assert labels.of("new") == OTHER
        for _ in range(3 * 4_096):
            labels.of("new")
            labels.of("newer")
        assert {labels.of("new"), labels.of("newer")} == {"new", "newer"}
        assert set(gone) == {"old", "idle"}
        assert labels.of("old") == OTHER

    def test_series_of_a_label_that_is_given_up_end(self) -> None:
        families = Families(1)
        one = ended(principal=person("old"))
        families.ended(one, seen(one), "answered")
        assert [labels["tenant"] for labels, _ in samples(families, "strongroom_tenant_requests_total")] == ["old"]
        families._end("old")
        for family in families.by_tenant:
            assert [sample for metric in family.collect() for sample in metric.samples] == []

    def test_a_tenant_called_other_is_one_of_the_others(self) -> None:
        assert TenantLabels(3, lambda _: None).of(OTHER) == OTHER

    def test_every_request_is_counted_and_exposition_is_the_standard_form(self) -> None:
        families = Families(2)
        for one in (ended(), ended(outcome="refused", scope="user", generation=None), ended(principal=None)):
            found = seen(one)
            families.ended(one, found, "answered" if one.outcome == "allowed" else "own-limit")
        text, media_type = families.exposition("", lambda: {"main": (3, 4)})
        assert media_type.startswith("text/plain")
        for line in (
            b'strongroom_requests_total{action="answer",fate="answered"} 2.0',
            b'strongroom_refusals_total{scope="user"} 1.0',
            b'strongroom_tokens_total{kind="output",model="tiny"} 22.0',
            b'strongroom_pool_waiting_requests{pool="main"} 3.0',
            b'strongroom_pool_running_requests{pool="main"} 4.0',
            b'strongroom_cache_lookups_total{kind="none",status="miss"} 3.0',
        ):
            assert line in text
        assert families.exposition("application/openmetrics-text; version=1.0.0", dict)[0].endswith(b"# EOF\n")
