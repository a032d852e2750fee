"""Hops and prices: integers that add up."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenancy.metering import Hop, Meter, Price, PriceTable

PRICES = PriceTable(
    revision="2026-01",
    hops={
        "embed": Price(input_per_million=20_000),
        "generate": Price(call=5, input_per_million=500_000, output_per_million=1_500_000),
    },
)


def ticking(*seconds: float) -> Callable[[], float]:
    return iter(seconds).__next__


def test_hops_are_booked_in_order_with_time_tokens_and_price() -> None:
    meter = Meter(PRICES, ticking(0.0, 0.012, 1.0, 2.444, 3.0, 3.0))
    with meter.hop("embed") as tokens:
        tokens.used(100)
    with meter.hop("generate") as tokens:
        tokens.used(1000, 10)
        tokens.used(1000, 200)
    with meter.hop("cache"):
        pass
    assert meter.hops == (
        Hop("embed", 12, 100, 0, 2),
        Hop("generate", 1444, 1000, 200, 805),
        Hop("cache", 0, 0, 0, 0),
    )
    assert meter.microunits == 807


def test_a_failing_hop_is_booked_with_what_it_used() -> None:
    meter = Meter(PRICES)

    def fail() -> None:
        with meter.hop("generate") as tokens:
            tokens.used(1_000_000, 0)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert [(hop.name, hop.microunits) for hop in meter.hops] == [("generate", 500_005)]


@given(st.lists(st.tuples(st.integers(0, 10**7), st.integers(0, 10**7)), max_size=20))
def test_price_is_within_half_a_microunit_of_the_exact_one(uses: list[tuple[int, int]]) -> None:
    price = PRICES.hops["generate"]
    for inputs, outputs in uses:
        exact = 5_000_000 + inputs * 500_000 + outputs * 1_500_000
        assert abs(price.of(inputs, outputs) * 1_000_000 - exact) <= 500_000


def test_price_table_from_a_file_refuses_unknown_and_negative() -> None:
    good = {"revision": "r", "hops": {"embed": {"call": 1}}}
    assert msgspec.convert(good, PriceTable).hops["embed"].of(10, 10) == 1
    for bad in (
        {"revision": "r", "hops": {"embed": {"calls": 1}}},
        {"revision": "r", "hops": {"embed": {"call": -1}}},
        {"revision": "r", "hops": {"embed": {"call": 0.5}}},
        {"revison": "r"},
    ):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(bad, PriceTable)
