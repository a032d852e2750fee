"""Hops and prices: integers that add up."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from importlib import resources
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.record import Metered
from metering.meter import Meter
from metering.prices import FREE, Price, PriceBook, PriceList, read_book
from tenancy.errors import InvalidInput

PRICES = PriceList(
    revision="2026-01",
    hops={
        "embed": Price(input_per_million=20_000),
        "generate": Price(call=5, input_per_million=500_000, output_per_million=1_500_000),
    },
)


def ticking(*seconds: float) -> Callable[[], float]:
    return iter(seconds).__next__


def test_hops_are_booked_in_order_with_time_tokens_and_price() -> None:
    meter = Meter(PRICES, clock=ticking(0.0, 0.012, 1.0, 2.444, 3.0, 3.0))
    with meter.hop("embed") as tokens:
        tokens.used(100)
    with meter.hop("generate") as tokens:
        tokens.used(1000, 10)
        tokens.used(1000, 200)
    with meter.hop("cache"):
        pass
    assert [(hop.name, hop.milliseconds, hop.metered) for hop in meter.hops] == [
        ("embed", 12, Metered(computed=(100, 0), microunits=2)),
        ("generate", 1444, Metered(computed=(1000, 200), microunits=805)),
        ("cache", 0, Metered()),
    ]
    assert meter.microunits == 807


def test_a_failing_hop_is_booked_with_what_it_used() -> None:
    meter = Meter(PRICES)

    def fail() -> None:
        with meter.hop("generate") as tokens:
            tokens.used(1_000_000, 0)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert [(hop.name, hop.metered.microunits) for hop in meter.hops] == [("generate", 500_005)]


@given(st.lists(st.tuples(st.integers(0, 10**7), st.integers(0, 10**7)), max_size=20))
def test_price_is_within_half_a_microunit_of_the_exact_one(uses: list[tuple[int, int]]) -> None:
    price = PRICES.hops["generate"]
    for inputs, outputs in uses:
        exact = 5_000_000 + inputs * 500_000 + outputs * 1_500_000
        assert abs(price.of(inputs, outputs) * 1_000_000 - exact) <= 500_000


def test_tokens_that_were_not_computed_again_are_charged_by_the_basis_alone() -> None:
    for basis, charged in (("actual", 5 + 200 + 300), ("logical", 5 + 500 + 300)):
        meter = Meter(PRICES, basis)  # type: ignore[arg-type]
        with meter.hop("generate") as use:
            use.used(1000, 200, cached_input=600)
        assert meter.hops[0].metered == Metered(computed=(400, 200), served=(1000, 200), microunits=charged)


def test_a_remembered_answer_computes_nothing_is_served_and_says_what_it_saved() -> None:
    prices = msgspec.structs.replace(PRICES, hops={**PRICES.hops, "cache": Price(call=2, output_per_million=500_000)})
    for basis, charged in (("actual", 2), ("logical", 102)):
        meter = Meter(prices, basis)  # type: ignore[arg-type]
        with meter.hop("cache") as use:
            use.by("m", "r1")
            use.saved(1000, 200)
        found = meter.hops[0].metered
        assert found == Metered(model="m", version="r1", served=(1000, 200), microunits=charged, saved=805)


def test_limits_count_the_tokens_that_were_generated_with() -> None:
    for basis in ("actual", "logical"):
        meter = Meter(PRICES, basis)  # type: ignore[arg-type]
        with meter.hop("embed") as use:
            use.used(50)
        with meter.hop("generate") as use:
            use.used(1000, 200, cached_input=600)
        assert meter.generated == (1000, 200)
        with meter.hop("cache") as use:
            use.saved(1000, 200)
        assert meter.generated == (1000, 200)


def test_a_model_has_its_own_price_where_the_list_gives_one() -> None:
    prices = msgspec.structs.replace(PRICES, models={"large": {"generate": Price(call=9)}})
    assert prices.price("generate", "large").of(1, 1) == 9
    assert prices.price("generate", "small") == PRICES.hops["generate"]
    assert prices.price("embed", "large") == PRICES.hops["embed"]
    assert prices.price("compare").of(100, 100) == 0


def test_a_plans_revision_holds_from_its_first_day_on() -> None:
    first = PriceList(plan="p", revision="1", since=date(2026, 11, 1))
    second = PriceList(plan="p", revision="2", since=date(2026, 12, 1))
    book = PriceBook([second, first])
    last = datetime(2026, 11, 30, 23, 59, 59, tzinfo=UTC).timestamp()
    assert book.at("p", last) == first
    assert book.at("p", last + 1) == second
    assert book.at("none", last) == FREE
    for plan, moment in (("p", last - 40 * 86_400), ("q", last)):
        with pytest.raises(InvalidInput):
            book.at(plan, moment)


def test_an_edit_of_a_list_is_another_list() -> None:
    edited = msgspec.structs.replace(PRICES, hops={"embed": Price(call=1)})
    assert PRICES.id.startswith("none/2026-01+")
    assert edited.id != PRICES.id


def test_two_revisions_of_one_day_or_name_are_refused() -> None:
    one = PriceList(plan="p", revision="1", since=date(2026, 11, 1))
    for other in (
        msgspec.structs.replace(one, revision="2"),
        msgspec.structs.replace(one, since=date(2026, 12, 1)),
    ):
        with pytest.raises(InvalidInput):
            PriceBook([one, other])


def test_the_packaged_lists_are_lists(tmp_path: Path) -> None:
    book = read_book(resources.files("configs").joinpath("prices"))
    assert book.plans == ["example", "none"]
    good = 'plan = "p"\nrevision = "1"\n[hops.embed]\ncall = 1\n'
    (tmp_path / "p.toml").write_text(good)
    assert read_book(tmp_path).at("p", 0.0).price("embed").of(10, 10) == 1
    for bad in (good.replace("call", "calls"), good.replace("= 1\n", "= -1\n"), good.replace("embed", "embedding"),
                good.replace("= 1", "= 9999999999999"), good.replace("plan", "plam"), "=", 'plan = "P"'):  # fmt: skip
        (tmp_path / "p.toml").write_text(bad)
        with pytest.raises(InvalidInput) as refused:
            read_book(tmp_path)
        assert "p.toml" in str(refused.value.item)
