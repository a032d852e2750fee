"""Evidence in the tenant's database: states, who counts into one row, and what must not move it."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from cache.certificate import evidence, negatives
from cache.certificate.counts import ENTRIES, MOST_OF_ASKER, MOST_OF_ENTRY, Label
from cache.certificate.evidence import Judged, Place
from cache.openings import Opening
from cache.standing import Standing
from tenancy.control import Tenants
from tenancy.errors import NotFound
from tenancy.identity import Authenticator
from tenancy.schema import cache_feedback
from tenancy.tenant import TenantHandle, WriteView
from tests.support.people import NOW, Company

PLACE = Place("default", "lv_1", "ns_1", 0.05)
OPENING = Opening("default", 0.8, "ana", NOW, "trial")


def judge(tenant: TenantHandle, *labels: Label, place: Place = PLACE, **changes: Any) -> None:
    with tenant.writing() as view:
        for label in labels:
            # Each label is of another entry, unless the test names one.
            judged = replace(Judged("uniform", label, "", f"ce_{secrets.token_hex(8)}"), **changes)
            evidence.record(view, place, judged, NOW)


def standing(tenant: TenantHandle, place: Place = PLACE, opening: Opening | None = None) -> Standing:
    with tenant.reading() as view:
        return evidence.standing(
            view, place.template, place.ladder, namespace=place.namespace, alpha=place.alpha, opening=opening
        )


def labels(label: Label, number: int) -> list[Label]:
    return [label] * number


def same(number: int) -> list[Label]:
    return labels("same", number)


@pytest.mark.both_storages
def test_labels_certify_and_the_evidence_survives_a_restart(acme: Company, open_tenants: Callable[[], Tenants]) -> None:
    with acme.handle.reading() as view:
        before = view.epochs
    assert not standing(acme.handle).serves
    judge(acme.handle, *same(64))
    again = open_tenants()
    handle = again.open(Authenticator(again).operator("acme"))
    found = standing(handle)
    assert (found.state, found.n, found.k, found.serves) == ("certified", 64, 0, True)
    assert found.upper <= 0.05
    with handle.reading() as view:
        assert view.epochs == before


def test_another_ladder_template_or_target_has_its_own_evidence(acme: Company) -> None:
    judge(acme.handle, *same(64))
    assert standing(acme.handle).serves
    assert standing(acme.handle, replace(PLACE, namespace="ns_2")).serves
    assert not standing(acme.handle, replace(PLACE, ladder="lv_2")).serves
    assert not standing(acme.handle, replace(PLACE, template="other")).serves
    assert not standing(acme.handle, replace(PLACE, alpha=0.01)).serves


def test_evidence_of_one_tenant_says_nothing_for_another(acme: Company, globex: Company) -> None:
    judge(acme.handle, *same(64))
    assert standing(acme.handle).serves
    assert not standing(globex.handle).serves


@pytest.mark.parametrize("purpose", ["probation", "feedback"])
def test_only_uniform_draws_certify_or_count(acme: Company, purpose: str) -> None:
    judge(acme.handle, *same(64), purpose=purpose)
    found = standing(acme.handle)
    assert (found.state, found.n) == ("uncertified", 0)
    judge(acme.handle, *labels("wrong", 30), purpose=purpose)
    assert standing(acme.handle).state == "uncertified"


def test_wrong_labels_suspend_and_an_opening_does_not_help(acme: Company) -> None:
    judge(acme.handle, *labels("wrong", 20))
    assert standing(acme.handle).state == "suspended"
    assert not standing(acme.handle, opening=OPENING).serves
    assert standing(acme.handle, replace(PLACE, template="other"), opening=OPENING).serves


def test_a_namespace_is_suspended_alone_and_never_certified_alone(acme: Company) -> None:
    bad = replace(PLACE, namespace="ns_bad")
    judge(acme.handle, *same(200))
    for _ in range(5):
        judge(acme.handle, "wrong", place=bad)
        judge(acme.handle, *same(40))
    assert standing(acme.handle, bad).state == "suspended"
    assert standing(acme.handle).state == "certified"
    other = replace(PLACE, ladder="lv_2")
    judge(acme.handle, *same(63), place=other)
    assert standing(acme.handle, other).state == "uncertified"


def test_an_operator_suspends_every_version_and_resumes(acme: Company) -> None:
    judge(acme.handle, *same(64))
    with acme.handle.writing() as view:
        evidence.suspend(view, "default", NOW)
    for ladder in ("lv_1", "lv_2"):
        assert standing(acme.handle, replace(PLACE, ladder=ladder), opening=OPENING).state == "suspended"
    assert standing(acme.handle, replace(PLACE, template="other"), opening=OPENING).serves
    with acme.handle.writing() as view:
        assert evidence.resume(view, "default", NOW) == 1
    assert standing(acme.handle).serves
    with acme.handle.writing() as view, pytest.raises(NotFound):
        evidence.resume(view, "default", NOW)


def test_suspended_evidence_begins_anew_when_it_is_resumed(acme: Company) -> None:
    judge(acme.handle, *labels("wrong", 20))
    with acme.handle.writing() as view:
        # The evidence and its namespace.
        assert evidence.resume(view, "default", NOW + 5) == 2
    assert (standing(acme.handle).state, standing(acme.handle).n) == ("uncertified", 0)
    with acme.handle.reading() as view:
        (record,) = evidence.evidence(view)
    assert (record.restarts, record.why, record.began) == (1, "operator", NOW + 5)


def test_a_wrong_label_withholds_the_hits_until_right_ones_followed(acme: Company) -> None:
    judge(acme.handle, *same(250))
    assert standing(acme.handle).serves
    judge(acme.handle, "wrong")
    found = standing(acme.handle)
    assert (found.state, found.upper <= 0.05) == ("uncertified", True)
    judge(acme.handle, *same(40))
    assert standing(acme.handle).serves


def report(view: WriteView, reporter: str, number: int) -> str:
    """The asker says so, which `service.feedback` writes down, and it counts."""
    view.execute(
        cache_feedback.insert().values(
            answer=f"a_{reporter}_{number}",
            at=NOW,
            verdict="wrong_hit",
            reporter=reporter.encode(),
            template=PLACE.template,
            ladder=PLACE.ladder,
            pair=str(number).encode(),
        )
    )
    return evidence.report(view, PLACE, NOW)


def test_reports_suspend_but_never_certify(acme: Company) -> None:
    judge(acme.handle, *same(64))
    with acme.handle.writing() as view:
        evidence.add_hits(view, {("default", "lv_1", "ns_1"): 1_000}, NOW)
        for number in range(60):
            report(view, f"{number % 2}", number)
    assert standing(acme.handle).serves
    with acme.handle.writing() as view:
        number = 60
        while report(view, f"{number % 2}", number) != "suspended":
            number += 1
    with acme.handle.reading() as view:
        (record,) = evidence.evidence(view)
    assert (record.state, record.why, record.hits) == ("suspended", "feedback", 1_000)
    assert 60 < record.reports < 110


def test_one_person_s_reports_suspend_nothing_until_another_agrees(acme: Company) -> None:
    with acme.handle.writing() as view:
        assert {report(view, "ana", number) for number in range(30)} == {"uncertified"}
        assert report(view, "bo", 30) == "suspended"


def test_one_entry_certifies_nothing_and_its_later_labels_do_not_count(acme: Company) -> None:
    judge(acme.handle, *same(200), entry="ce_1")
    assert (standing(acme.handle).state, standing(acme.handle).n) == ("uncertified", MOST_OF_ENTRY)
    for number in range(2, ENTRIES):
        judge(acme.handle, *same(MOST_OF_ENTRY), entry=f"ce_{number}")
    found = standing(acme.handle)
    assert (found.state, found.n) == ("uncertified", MOST_OF_ENTRY * (ENTRIES - 1))
    assert found.upper <= 0.05
    judge(acme.handle, "same", entry="ce_last")
    assert standing(acme.handle).state == "certified"


def test_one_asker_certifies_nothing_at_one_per_cent(acme: Company) -> None:
    place = replace(PLACE, alpha=0.01)
    judge(acme.handle, *same(450), place=place, asker="ana")
    assert (standing(acme.handle, place).n, standing(acme.handle, place).state) == (MOST_OF_ASKER, "uncertified")
    for asker in ("bo", "cy", "di"):
        judge(acme.handle, *same(MOST_OF_ASKER + 5), place=place, asker=asker)
    assert (standing(acme.handle, place).n, standing(acme.handle, place).state) == (400, "uncertified")
    judge(acme.handle, *same(10), place=place, asker="ed")
    assert standing(acme.handle, place).state == "certified"


def test_labels_beyond_an_entry_s_share_are_left_out_whatever_they_say(acme: Company) -> None:
    judge(acme.handle, *same(MOST_OF_ENTRY), entry="ce_1")
    judge(acme.handle, *labels("wrong", 30), *labels("missing", 30), entry="ce_1")
    found = standing(acme.handle)
    assert (found.n, found.k, found.state) == (MOST_OF_ENTRY, 0, "uncertified")
    judge(acme.handle, "wrong", entry="ce_1", excluded=True)
    assert standing(acme.handle).state == "suspended"
    with acme.handle.writing() as view:
        evidence.resume(view, "default", NOW + 5)
    # New evidence counts the entry anew.
    judge(acme.handle, *same(3), entry="ce_1")
    assert standing(acme.handle).n == 3


def test_a_refused_entry_is_no_pair(acme: Company, globex: Company) -> None:
    with acme.handle.writing() as view:
        negatives.refuse(view, "ce_1", now=NOW)
        negatives.refuse(view, "ce_1", now=NOW)
        assert negatives.count(view) == 0
        assert negatives.refused(view, "ce_1")
        assert not negatives.refused(view, "ce_2")
    with globex.handle.reading() as view:
        assert not negatives.refused(view, "ce_1")


@pytest.mark.both_storages
def test_processes_count_into_one_row(acme: Company, open_tenants: Callable[[], Tenants]) -> None:
    def work(handle: TenantHandle) -> None:
        for _ in range(8):
            judge(handle, "same")

    handles = [acme.handle]
    for _ in range(2):
        opened = open_tenants()
        handles.append(opened.open(Authenticator(opened).operator("acme")))
    threads = [threading.Thread(target=work, args=(handle,)) for handle in handles for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert standing(acme.handle).n == 48


def test_judgements_tell_their_reasons_and_only_the_newest_are_kept(
    acme: Company, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence, "JUDGEMENTS_KEPT", 5)
    judge(acme.handle, "wrong", "wrong", "wrong", "wrong", reason="amount differs")
    judge(acme.handle, "same", "wrong", "wrong", reason="other evidence")
    with acme.handle.reading() as view:
        assert evidence.reasons(view, "default", "lv_1") == {"amount differs": 2, "other evidence": 2}
    assert standing(acme.handle).n == 7


def test_a_negative_holds_in_both_orders_and_for_its_tenant_alone(acme: Company, globex: Company) -> None:
    one, other = "How long is the notice?", "How  long is the notice period?"
    with acme.handle.writing() as view:
        assert not negatives.known(view, one, other)
        negatives.add(view, negatives.pair_of(acme.handle, one, other), source="feedback", now=NOW)
        negatives.add(view, negatives.pair_of(acme.handle, other, one), source="shadow", now=NOW)
        assert negatives.count(view) == 1
    with acme.handle.reading() as view:
        assert negatives.known(view, other, one)
        assert negatives.known(view, one + " ", "How long is the notice period?")
        assert not negatives.known(view, one, "How long is the trial period?")
    with globex.handle.reading() as view:
        assert not negatives.known(view, one, other)
