"""What askers say of hits suspends nothing alone, and with the judge or an operator it does; and whose word it was."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import select

from cache.certificate import evidence, negatives, reports
from cache.certificate.evidence import Judged, Place
from cache.policy import CachePolicy, TemplatePolicy
from tenancy import cache_schema, schema
from tenancy.errors import InvalidInput, NotFound
from tenancy.tenant import WriteView
from tests.support.people import NOW, Company

PLACE = Place("default", "lv_1", "ns_1", 0.01)
POLICY = CachePolicy(template=TemplatePolicy(alpha=0.01))


def told(view: WriteView, number: int, reporter: str = "ana", pair: int | None = None) -> str:
    """One report of an answer, as `service.feedback` writes it down."""
    about = str(number if pair is None else pair).encode()
    view.execute(
        cache_schema.cache_feedback.insert().values(
            answer=f"a_{number}",
            at=NOW,
            verdict="wrong_hit",
            reporter=reports.asker_of(view.tenant, reporter),
            template=PLACE.template,
            ladder=PLACE.ladder,
            pair=about,
        )
    )
    negatives.add(view, about, source="feedback", now=NOW)
    return reports.report(view, PLACE, NOW)


def test_reports_that_nobody_confirmed_suspend_nothing_however_many_people_agree(acme: Company) -> None:
    with acme.handle.writing() as view:
        assert {told(view, number, f"u_{number}") for number in range(40)} == {"uncertified"}
        (record,) = evidence.evidence(view)
    assert (record.state, record.reports) == ("uncertified", 40)


def test_what_the_judge_found_wrong_confirms_a_report_before_or_after_it(acme: Company) -> None:
    with acme.handle.writing() as view:
        negatives.add(view, b"0", source="shadow", now=NOW)
        assert told(view, 0) == "uncertified"
        assert told(view, 1) == "uncertified"
        assert reports.weigh(view, PLACE, NOW) == "uncertified"
        negatives.add(view, b"1", source="shadow", now=NOW)
        assert reports.weigh(view, replace(PLACE, ladder="lv_2"), NOW) == "uncertified"
        assert reports.weigh(view, PLACE, NOW) == "suspended"
        (record,) = evidence.evidence(view)
    assert (record.state, record.why) == ("suspended", "feedback")


def test_confirmed_reports_are_weighed_against_the_served_hits(acme: Company) -> None:
    with acme.handle.writing() as view:
        evidence.add_hits(view, {("default", "lv_1", "ns_1"): 5_000}, NOW)
        for number in range(60):
            told(view, number)
            _, state = reports.confirm(view, f"a_{number}", POLICY, NOW)
        assert state == "uncertified"
        number = 60
        while state != "suspended":
            told(view, number)
            _, state = reports.confirm(view, f"a_{number}", POLICY, NOW)
            number += 1
    assert 60 < number < 130


def test_a_pair_counts_once_for_each_person(acme: Company) -> None:
    with acme.handle.writing() as view:
        for number in range(6):
            told(view, number, pair=0)
        assert reports.confirm(view, "a_0", POLICY, NOW)[1] == "uncertified"
        told(view, 6, "bo", pair=0)
        assert reports.weigh(view, PLACE, NOW) == "suspended"


def test_an_operator_confirms_what_was_reported_and_nothing_else(acme: Company) -> None:
    with acme.handle.writing() as view:
        told(view, 0)
        view.execute(
            cache_schema.cache_feedback.insert().values(answer="a_exact", at=NOW, verdict="wrong_hit", reporter=b"x")
        )
        view.execute(
            cache_schema.cache_feedback.insert().values(answer="a_good", at=NOW, verdict="good", reporter=b"x")
        )
        assert [one.confirmed for one in reports.reports(view)] == [None]
        for answer, error in (("a_exact", InvalidInput), ("a_good", NotFound), ("a_1", NotFound)):
            with pytest.raises(error):
                reports.confirm(view, answer, POLICY, NOW)
        reports.confirm(view, "a_0", POLICY, NOW)
        assert [(one.answer, one.confirmed) for one in reports.reports(view)] == [("a_0", "operator")]
        assert reports.reports(view, template="other") == []


def test_one_asker_s_word_takes_no_other_s_back(acme: Company) -> None:
    with acme.handle.writing() as view:
        negatives.add(view, b"0", source="shadow", now=NOW)
        negatives.add(view, b"0", source="feedback", now=NOW)
        assert view.execute(select(cache_schema.cache_negatives.c.source)).scalars().all() == ["shadow"]


def test_nothing_in_the_tables_tells_of_a_person_who_is_forgotten(acme: Company, globex: Company) -> None:
    def traces(company: Company, user: str) -> int:
        known = reports.asker_of(company.handle, user)
        with company.handle.reading() as view:
            cells = [
                cell
                for table in schema.tenant.sorted_tables
                for row in view.execute(select(table)).all()
                for cell in row
            ]
        return sum(known.hex() in cell if isinstance(cell, str) else cell == known for cell in cells)

    for company in (acme, globex):
        with company.handle.writing() as view:
            for user in ("ana", "bo"):
                judged = Judged("uniform", "same", "", f"ce_{user}", asker=reports.asker_of(view.tenant, user).hex())
                evidence.record(view, PLACE, judged, NOW)
            told(view, 0)
            told(view, 1)
            told(view, 2, "bo")
    assert [traces(company, user) for company in (acme, globex) for user in ("ana", "bo")] == [3, 2, 3, 2]
    with acme.handle.writing() as view:
        reports.forget_asker(view, "ana")
        for number in (0, 1):
            negatives.add(view, str(number).encode(), source="operator", now=NOW)
        # What was counted stays counted.
        assert reports.weigh(view, PLACE, NOW) == "suspended"
        assert evidence.counts(view, PLACE).n == 2
    assert [traces(company, user) for company in (acme, globex) for user in ("ana", "bo")] == [0, 2, 3, 2]
