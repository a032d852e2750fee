"""Numbers, currencies and units in canonical form: what `slots` compares by. From `data/values.toml`."""

from __future__ import annotations

from typing import Final

from cache.guards.rules import VALUES


def _by_name(lines: dict[str, str]) -> dict[str, str]:
    return {name: code for code, names in lines.items() for name in names.split()}


def _numbered(lines: list[str]) -> dict[str, int]:
    return {name: number for number, names in enumerate(lines, 1) for name in names.split()}


NUMBER_WORDS: Final = VALUES.numbers
MULTIPLIERS: Final = VALUES.multipliers
SUFFIXES: Final = VALUES.suffixes
AMOUNT_SUFFIXES: Final = VALUES.amount_suffixes
ORDINALS: Final = VALUES.ordinals
TIMES: Final = VALUES.times
ZH_DIGITS: Final = VALUES.zh_digits
ZH_POWERS: Final = VALUES.zh_powers
CURRENCIES: Final = _by_name(VALUES.currencies)
CENTS: Final = _by_name(VALUES.cents)
# unit -> (dimension, factor to the dimension's base unit)
UNITS: Final = {name: (dimension, factor) for dimension, factor, names in VALUES.units for name in names.split()}
MONTHS: Final = _numbered(VALUES.months)
WEEKDAYS: Final = _numbered(VALUES.weekdays)
