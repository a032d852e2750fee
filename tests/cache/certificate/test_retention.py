"""Rows of evidence are bounded: within the bound none goes, beyond it the oldest, and what still holds goes last."""

from __future__ import annotations

import logging
import secrets

import pytest
from sqlalchemy import Table, func, select

from cache.certificate import evidence, negatives, reports, retention
from cache.certificate.evidence import Judged, Place
from tenancy import cache_schema
from tenancy.tenant import ReadView
from tests.support.people import NOW, Company

PLACE = Place("default", "lv_1", "ns_1", 0.05)
BOUND = 200


def held(view: ReadView, table: Table) -> int:
    return int(view.execute(select(func.count()).select_from(table)).scalar_one())


@pytest.mark.both_storages
def test_no_negative_goes_within_the_bound_and_the_oldest_beyond_it(
    acme: Company, caplog: pytest.LogCaptureFixture
) -> None:
    with acme.handle.writing() as view:
        negatives.refuse(view, "ce_1", now=NOW + 9, records=BOUND)
        for number in range(BOUND - 1):
            negatives.add(view, str(number).encode(), source="shadow", now=NOW + number, records=BOUND)
        assert (held(view, cache_schema.cache_negatives), caplog.records) == (BOUND, [])
        negatives.add(view, b"0", source="feedback", now=NOW, records=BOUND)
        assert held(view, cache_schema.cache_negatives) == BOUND
        with caplog.at_level(logging.WARNING, "cache.certificate.retention"):
            negatives.add(view, b"new", source="shadow", now=NOW + 900, records=BOUND)
        # The refused entry, which is long gone from the store, then the oldest pairs.
        assert held(view, cache_schema.cache_negatives) == BOUND - BOUND // 100
        assert not negatives.refused(view, "ce_1")
        kept = set(view.execute(select(cache_schema.cache_negatives.c.pair)).scalars())
    assert {str(number).encode() for number in range(2, BOUND - 1)} | {b"new"} == kept
    assert "oldest 3 were dropped" in caplog.text


@pytest.mark.both_storages
def test_labels_bound_the_tables_that_grow_with_them(acme: Company) -> None:
    with acme.handle.writing() as view:
        for number in range(BOUND + 10):
            place = Place("default", "lv_1", f"ns_{number}", 0.05)
            judged = Judged("uniform", "same", "", f"ce_{secrets.token_hex(4)}", asker="ab"[number // 100 % 2])
            evidence.record(view, place, judged, NOW + number, records=BOUND)
        for table in (cache_schema.cache_judgements, cache_schema.cache_labelled, cache_schema.cache_namespaces):
            assert BOUND - BOUND // 100 <= held(view, table) <= BOUND, table.name
        # What was counted stays counted, and the asker's share is not forgotten before answers are.
        assert evidence.counts(view, PLACE).n == BOUND + 10
        labelled = cache_schema.cache_labelled.c
        people = view.execute(select(labelled.n).where(labelled.about.startswith(retention.ASKER))).scalars().all()
        assert sorted(people) == [100, 100]


def test_a_suspended_namespace_goes_last(acme: Company) -> None:
    bad = Place("default", "lv_1", "ns_bad", 0.05)
    with acme.handle.writing() as view:
        for number in range(20):
            evidence.record(view, bad, Judged("uniform", "wrong", "", f"ce_{number}"), NOW)
        for number in range(BOUND + 10):
            hits = {("default", "lv_1", f"ns_{number}"): 1}
            evidence.add_hits(view, hits, NOW + 1 + number, records=BOUND)
        spaces = cache_schema.cache_namespaces.c
        assert view.execute(select(spaces.suspended).where(spaces.namespace == "ns_bad")).scalar_one() == NOW
        assert held(view, cache_schema.cache_namespaces) <= BOUND


def test_feedback_is_bounded_too(acme: Company) -> None:
    with acme.handle.writing() as view:
        for number in range(BOUND + 1):
            view.execute(
                cache_schema.cache_feedback.insert().values(
                    answer=f"a_{number}", at=NOW + number, verdict="good", reporter=reports.asker_of(view.tenant, "ana")
                )
            )
            gone = retention.keep(view, cache_schema.cache_feedback, BOUND)
        assert gone == 1 + BOUND // 100
        assert view.execute(select(func.min(cache_schema.cache_feedback.c.at))).scalar_one() == NOW + gone
