"""Access lists, nested groups and the permission domain."""

from __future__ import annotations

import pytest

from tenancy import directory
from tenancy.domain import PermissionDomain, permission_domain, readable_documents
from tenancy.errors import Forbidden, StaleDomain
from tenancy.identity import Principal
from tests.support.people import NOW, Company

pytestmark = pytest.mark.both_storages


def readable(company: Company, principal: Principal, *ids: int) -> set[int]:
    with company.handle.reading() as view:
        return set(readable_documents(permission_domain(principal, view), view, ids))


def test_allow_lets_in_and_deny_wins(acme: Company) -> None:
    ana, bo = acme.principal("ana"), acme.principal("bo")
    shared = acme.document("shared", allow=["tenant"])
    denied = acme.document("denied", allow=["tenant"], deny=["user:bo"])
    nobody = acme.document("nobody")
    assert readable(acme, ana, shared, denied, nobody) == {shared, denied}
    assert readable(acme, bo, shared, denied, nobody) == {shared}


def test_groups_nest_and_cycles_end(acme: Company) -> None:
    ana, bo = acme.principal("ana"), acme.principal("bo")
    acme.member("board", "ana", "group:legal")
    acme.member("legal", "group:board")
    paper = acme.document("paper", allow=["group:legal"])
    assert readable(acme, ana, paper) == {paper}
    assert readable(acme, bo, paper) == set()


def test_membership_change_holds_at_the_next_view_and_moves_the_epoch(acme: Company) -> None:
    ana = acme.principal("ana")
    acme.member("legal", "ana")
    paper = acme.document("paper", allow=["group:legal"])
    before = acme.domain(ana)
    assert readable(acme, ana, paper) == {paper}
    acme.leave("legal", "ana")
    assert readable(acme, ana, paper) == set()
    assert acme.domain(ana).epochs.acl == before.epochs.acl + 1
    assert acme.domain(ana).epochs.kv == before.epochs.kv + 1


def test_equal_label_sets_share_a_domain_and_a_deny_separates_it(acme: Company) -> None:
    ana, bo, cy = acme.principal("ana"), acme.principal("bo"), acme.principal("cy")
    acme.document("shared", allow=["tenant"])
    assert acme.domain(ana).fingerprint == acme.domain(bo).fingerprint
    acme.document("not for cy", allow=["tenant"], deny=["user:cy"])
    assert acme.domain(ana).fingerprint == acme.domain(bo).fingerprint
    assert acme.domain(ana).fingerprint != acme.domain(cy).fingerprint


def test_a_label_that_no_document_uses_is_not_in_the_domain(acme: Company) -> None:
    ana, bo = acme.principal("ana"), acme.principal("bo")
    acme.member("chess club", "ana")
    acme.document("shared", allow=["tenant"])
    assert acme.domain(ana).fingerprint == acme.domain(bo).fingerprint


def test_two_spellings_are_one_user_and_one_group(acme: Company) -> None:
    zoe = acme.principal("Zoe\u0308")
    with acme.handle.writing() as view:
        assert directory.ensure_user(view, "Zo\u00eb", NOW) == zoe.user_id
        assert directory.ensure_user(view, "Zoe\u0308", NOW) == zoe.user_id
        directory.add_members(view, "Cafe\u0301", ["user:Zoe\u0308"], NOW)
        assert directory.remove_members(view, "Caf\u00e9", ["Zo\u00eb"]) == 1
        directory.delete_group(view, "Cafe\u0301")


def test_a_name_used_again_is_somebody_else(acme: Company) -> None:
    first = acme.principal("ana")
    diary = acme.document("diary", allow=["user:ana"])
    assert readable(acme, first, diary) == {diary}
    with acme.handle.writing() as view:
        directory.delete_user(view, "ana")
    assert readable(acme, first, diary) == set()
    second = acme.principal("ana")
    assert readable(acme, second, diary) == set()


def test_a_deleted_user_holds_nothing_not_even_tenant(acme: Company) -> None:
    ana, bo = acme.principal("ana"), acme.principal("bo")
    shared = acme.document("shared", allow=["tenant"])
    with acme.handle.writing() as view:
        directory.delete_user(view, "ana")
    assert acme.domain(ana).is_empty
    assert readable(acme, bo, shared) == {shared}


def test_a_domain_of_an_older_state_is_refused(acme: Company) -> None:
    ana = acme.principal("ana")
    paper = acme.document("paper", allow=["tenant"])
    old = acme.domain(ana)
    acme.access("paper", allow=["user:ana"])
    with acme.handle.reading() as view, pytest.raises(StaleDomain):
        readable_documents(old, view, [paper])
    assert readable(acme, ana, paper) == {paper}


def test_a_principal_of_another_tenant_has_no_domain_here(acme: Company, globex: Company) -> None:
    ana = acme.principal("ana")
    with globex.handle.reading() as view, pytest.raises(Forbidden):
        permission_domain(ana, view)
    assert acme.domain(ana).tenant_id == acme.handle.tenant_id


def test_sealed_types_cannot_be_made_by_hand(acme: Company) -> None:
    domain = acme.domain(acme.principal("ana"))
    with pytest.raises(TypeError):
        PermissionDomain(domain.tenant_id, domain.user_id, frozenset({1}), "pd_x", domain.epochs, object())
    with pytest.raises(TypeError):
        Principal("t", "t", "u", "u", None, frozenset(), "c", "api_key", "interactive", object())


def test_removing_an_unknown_member_changes_no_epoch(acme: Company) -> None:
    acme.member("legal", "ana")
    with acme.handle.writing() as view:
        before = view.epochs
        assert directory.remove_members(view, "legal", ["bo"]) == 0
        assert directory.add_members(view, "legal", ["ana"], NOW) == 0
        assert view.epochs == before


def test_a_group_s_name_used_again_is_another_group(acme: Company) -> None:
    with acme.handle.writing() as view:
        first = directory.ensure_group(view, "legal", 1.0)
        assert directory.ensure_group(view, "legal", 1.0) == first
        directory.delete_group(view, "legal")
        assert directory.ensure_group(view, "legal", 2.0) != first
