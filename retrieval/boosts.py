"""Passages of some documents are preferred, by what a tenant's contract says of their metadata.

A boost adds to a passage's score a share of the best score of that search, so that it means the same for every way of
searching. Only passages that were found, read and checked are looked at: a boost changes their order, and brings none
in. What counts as new is told from those passages alone, so that no document of others can be felt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import msgspec

from indexing.filters.reading import value_of
from retrieval.passage import Passage
from tenancy.contract import Boost
from tenancy.fields import FieldType

BOOSTED: Final = 100
"""How many of the best rows are looked at."""

MOST: Final = 1.0
"""All boosts of one passage together lie within this, positive or negative."""


def boosted(
    passages: Sequence[Passage],
    metadata: Sequence[Mapping[str, object]],
    boosts: Sequence[Boost],
    fields: Mapping[str, FieldType],
) -> list[Passage]:
    """`passages`, which are in order, ordered by their boosted scores; ties keep the order that they had.

    `metadata` is that of their documents, one by one, `fields` the types that the contract declares. A document without
    the field, or with a value of another type, is neither preferred nor put back.
    """
    best = max((passage.score for passage in passages), default=0.0)
    if best <= 0 or not boosts:
        return list(passages)
    shares = [0.0] * len(passages)
    for boost in boosts:
        kind = fields.get(boost.field)
        if kind is None:
            continue  # the contract was changed meanwhile
        typed = [value_of(values.get(boost.field), kind) for values in metadata]
        for at, share in enumerate(_shares(boost, value_of(boost.equals, kind), typed)):
            shares[at] += share
    raised = [
        replace(passage, score=passage.score + best * min(MOST, max(-MOST, share)))
        for passage, share in zip(passages, shares, strict=True)
    ]
    return sorted(raised, key=lambda passage: -passage.score)


def identity(boosts: Sequence[Boost], fields: Mapping[str, FieldType]) -> str:
    """Equal where equal passages come in an equal order; part of a cache namespace.

    JSON, in which no name or value is taken for another's and every digit of a number stands; with the declared types,
    by which values count or not.
    """
    parts = [(fields.get(one.field), one.field, one.equals, one.by, one.newer) for one in boosts]
    return f"/{msgspec.json.encode(parts).decode()}" if parts else ""


def _shares(boost: Boost, equals: object, values: Sequence[object]) -> list[float]:
    """What each document is given, by its value of the boost's field; None where it has none of the field's type."""
    if boost.newer is None:
        return [boost.by if value is not None and value == equals else 0.0 for value in values]
    numbers = [float(value) if isinstance(value, (int, float)) else None for value in values]
    given = [number for number in numbers if number is not None]
    # Halved, so that the distance of any two numbers is one.
    low, high = min(given, default=0.0) / 2, max(given, default=0.0) / 2
    span = high - low
    return [boost.newer * ((number / 2 - low) / span) if number is not None and span > 0 else 0.0 for number in numbers]
