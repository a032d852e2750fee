"""Evidence in the tenant's database: states, who counts into one row, and what must not move it."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from cache.certificate import evidence, negatives
from cache.certificate.counts import ENTRIES, MOST_OF_ASKER, MOST_OF_ENTRY, Label, Needs
from cache.certificate.evidence import Judged, Place
from cache.openings import Opening
from cache.standing import Standing
from tenancy.control import Tenants
from tenancy.errors import NotFound
from tenancy.identity import Authenticator
from tenancy.tenant import TenantHandle
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


def spread(company: Company) -> tuple[int, int]:
    """Labels within the shares of their entries and askers, and how many of these are wrong."""
    with company.handle.reading() as view:
        record = max(evidence.evidence(view), key=lambda one: one.began or 0.0)
    return record.spread_n, record.spread_k


def needs(company: Company, place: Place) -> Needs | None:
    with company.handle.reading() as view:
        return evidence.needs(view, place)


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


def test_one_entry_certifies_nothing_whatever_else_is_asked_seldom(acme: Company) -> None:
    judge(acme.handle, *same(200), entry="ce_1")
    assert (standing(acme.handle).state, standing(acme.handle).n, spread(acme)) == (
        "uncertified",
        200,
        (MOST_OF_ENTRY, 0),
    )
    for number in range(2, ENTRIES):
        judge(acme.handle, *same(MOST_OF_ENTRY), entry=f"ce_{number}")
    found = standing(acme.handle)
    assert (found.state, spread(acme)) == ("uncertified", (MOST_OF_ENTRY * (ENTRIES - 1), 0))
    assert found.upper <= 0.05
    judge(acme.handle, "same", entry="ce_last")
    assert standing(acme.handle).state == "certified"


def test_one_asker_certifies_nothing_at_one_per_cent(acme: Company) -> None:
    place = replace(PLACE, alpha=0.01)
    judge(acme.handle, *same(450), place=place, asker="ana")
    assert (spread(acme), standing(acme.handle, place).state) == ((MOST_OF_ASKER, 0), "uncertified")
    for asker in ("bo", "cy", "di"):
        judge(acme.handle, *same(MOST_OF_ASKER + 5), place=place, asker=asker)
    assert (spread(acme), standing(acme.handle, place).state) == ((400, 0), "uncertified")
    assert needs(acme, place) == Needs(labels=10, askers=1, entries=0)
    judge(acme.handle, *same(10), place=place, asker="ed")
    assert standing(acme.handle, place).state == "certified"
    assert needs(acme, place) is None


def test_what_a_certificate_still_takes_is_told(acme: Company) -> None:
    place = replace(PLACE, alpha=0.01)
    assert needs(acme, place) == Needs(labels=410, askers=5, entries=41)
    judge(acme.handle, *same(30), place=place, asker="ana", entry="ce_1")
    assert needs(acme, place) == Needs(labels=400, askers=4, entries=40)
    with acme.handle.writing() as view:
        evidence.suspend_at(view, place, "operator", NOW)
    assert needs(acme, place) is None


def test_labels_beyond_an_entry_s_share_speak_of_the_served_hits_all_the_same(acme: Company) -> None:
    """What is asked most is served most: were its labels left out, a bad one would hide behind the rest."""
    judge(acme.handle, *same(80))
    assert standing(acme.handle).state == "certified"
    judge(acme.handle, *same(MOST_OF_ENTRY), entry="ce_1")
    judge(acme.handle, *labels("missing", 4), entry="ce_1")
    found = standing(acme.handle)
    assert (found.n, found.k, spread(acme)) == (94, 4, (90, 0))
    assert (found.state, found.upper > 0.05) == ("uncertified", True)
    with acme.handle.reading() as view:
        assert evidence.counts(view, PLACE).state == "uncertified"
    judge(acme.handle, *labels("wrong", 30), entry="ce_1")
    assert standing(acme.handle).state == "suspended"
    with acme.handle.writing() as view:
        evidence.resume(view, "default", NOW + 5)
    # New evidence counts the entry anew.
    judge(acme.handle, *same(3), entry="ce_1")
    assert (standing(acme.handle).n, spread(acme)) == (3, (3, 0))


def test_shares_grow_with_the_evidence(acme: Company) -> None:
    judge(acme.handle, *same(600))
    judge(acme.handle, *same(MOST_OF_ENTRY + 10), entry="ce_1")
    # A fortieth of what there is then.
    assert spread(acme) == (600 + 15, 0)


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


def test_judgements_tell_their_reasons(acme: Company) -> None:
    judge(acme.handle, "wrong", "wrong", reason="amount differs")
    judge(acme.handle, "same", "wrong", reason="other evidence")
    with acme.handle.reading() as view:
        assert evidence.reasons(view, "default", "lv_1") == {"amount differs": 2, "other evidence": 1}


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
