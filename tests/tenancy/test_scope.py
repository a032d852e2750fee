"""What a scope comes to, and why it is empty, agrees with what may be read."""

from __future__ import annotations

from tenancy import directory
from tenancy.identity import Principal
from tenancy.scope import Scope, scope_of
from tests.support.people import Company


def scope(company: Company, principal: Principal) -> Scope:
    domain = company.domain(principal)
    with company.handle.reading() as view:
        return scope_of(principal, domain, view)


def test_each_reason_for_an_empty_scope(acme: Company) -> None:
    ana = acme.principal("ana")
    assert scope(acme, ana).empty == "the tenant has no documents"
    acme.document("board", allow=["group:board"])
    assert scope(acme, ana).empty == "no access list names the user, a group of the user's or the whole tenant"
    acme.document("board", allow=["group:board"], deny=["user:ana"])
    assert scope(acme, ana).empty == "access lists name the user or the user's groups under deny alone"
    acme.member("board", "user:ana")
    denied = scope(acme, ana)
    assert (denied.allowed, denied.readable) == (1, 0)
    assert denied.empty == "every document that allows the user or the user's groups denies one of them, too"
    acme.document("board", allow=["group:board"])
    assert scope(acme, ana) == Scope("known", ("board",), 1, 1, 1, 1, None)
    with acme.handle.writing() as view:
        directory.delete_user(view, "ana")
    gone = scope(acme, ana)
    assert (gone.user, gone.groups, gone.readable) == ("unknown", (), 0)
    assert gone.empty == "the user is unknown in the tenant's directory"


def test_groups_count_with_those_around_them_and_cycles_end(acme: Company) -> None:
    ana = acme.principal("ana")
    acme.member("team", "user:ana")
    acme.member("staff", "group:team")
    acme.member("team", "group:staff")
    acme.document("handbook", allow=["group:staff"])
    acme.document("open", allow=["tenant"])
    acme.document("board", allow=["group:board"])
    found = scope(acme, ana)
    assert found.groups == ("staff", "team")
    assert (found.labels, found.documents, found.allowed, found.readable, found.empty) == (2, 3, 2, 2, None)
