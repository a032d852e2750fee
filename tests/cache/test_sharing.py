"""Users per permission domain, and what divides them: small companies counted by hand, large ones against an oracle."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest
from sqlalchemy import select

from cache.sharing import Alike, Divider, Sharing, sharing
from tenancy import schema
from tenancy.domain import permission_domain, readable_documents
from tests.support.people import Company

pytestmark = pytest.mark.both_storages


def found(company: Company, *, named: bool = True) -> Sharing:
    with company.handle.reading() as view:
        return sharing(view, named=named)


def test_a_tenant_without_users_or_documents(acme: Company) -> None:
    assert found(acme) == Sharing(0, 0, 0, 0, 0, (), (), (), ())
    acme.principal("ana")
    nobody = found(acme)
    assert (nobody.users, nobody.outside, nobody.domains) == (0, 1, 0)
    acme.document("for nobody")
    assert found(acme) == nobody
    acme.document("for all", allow=["tenant"])
    everybody = found(acme)
    assert (everybody.users, everybody.outside, everybody.domains, everybody.alone) == (1, 0, 1, 1)


def test_users_who_are_listed_one_by_one_could_share_one_domain(acme: Company) -> None:
    people = ["ana", "bo", "cy", "di"]
    acme.member("staff", *people, "eve")
    acme.document("handbook", allow=["group:staff"])
    acme.document("plan", allow=[f"user:{name}" for name in people])
    acme.document("budget", allow=[f"user:{name}" for name in people])
    counted = found(acme)
    # Five domains; but ana, bo, cy and di read the same three documents, and eve one.
    assert (counted.users, counted.domains, counted.alone, counted.attainable) == (5, 5, 5, 2)
    assert counted.distribution == ((1, 5, 5),)
    assert counted.alike == (Alike(4, 4, 2, 4, None, tuple(people)),)
    assert counted.dividers == (Divider("single users", None, 4, 4, 2, 1, 0, tuple(people)),)
    acme.member("planners", *people)
    assert found(acme).alike[0].group == "planners"
    # Said by the group, the same people read the same, and four of them share.
    acme.access("plan", allow=["group:planners"])
    acme.access("budget", allow=["group:planners"])
    said = found(acme)
    assert (said.domains, said.alone, said.attainable, said.alike) == (2, 1, 2, ())
    assert said.distribution == ((1, 1, 1), (2, 1, 4))
    assert [(one.users, len(one.fingerprint)) for one in said.largest] == [(4, 35), (1, 35)]


def test_what_one_user_alone_may_read_is_no_matter_of_expression(acme: Company) -> None:
    acme.member("staff", "ana", "bo", "cy")
    acme.document("handbook", allow=["group:staff"])
    acme.document("diary", allow=["user:ana"])
    counted = found(acme)
    assert (counted.domains, counted.alone, counted.attainable, counted.alike) == (2, 1, 2, ())
    assert counted.dividers == (Divider("single users", None, 1, 1, 1, 1, 0, ("ana",)),)


def test_a_denial_divides_and_a_group_that_divides_is_named(acme: Company) -> None:
    acme.member("staff", "ana", "bo", "cy", "di")
    acme.member("board", "ana")
    acme.document("handbook", allow=["group:staff"], deny=["user:di"])
    acme.document("minutes", allow=["group:staff", "group:board"])
    counted = found(acme)
    # ana: staff and board; bo and cy: staff; di: staff and her own label. ana reads what bo and cy do.
    assert (counted.domains, counted.alone, counted.attainable) == (3, 2, 2)
    assert counted.alike == (Alike(3, 2, 1, 1, None, ("ana", "bo", "cy")),)
    assert counted.dividers == (
        Divider("single users", None, 1, 1, 1, 2, 1, ("di",)),
        Divider("group", "board", 1, 1, 1, 2, 1),
    )


def test_nested_groups_cycles_disabled_and_deleted_users_count_as_in_the_path_of_a_question(acme: Company) -> None:
    from tenancy import directory

    acme.member("staff", "group:team")
    acme.member("team", "ana", "bo", "cy", "group:staff")
    acme.document("handbook", allow=["group:staff"])
    acme.document("diary", allow=["user:cy"])
    with acme.handle.writing() as view:
        directory.delete_user(view, "cy")
        view.execute(schema.users.update().where(schema.users.c.name == "bo").values(disabled=True))
    counted = found(acme)
    assert (counted.users, counted.outside, counted.domains, counted.dividers) == (1, 0, 1, ())


def test_names_of_users_are_given_only_where_they_were_asked_for(acme: Company) -> None:
    acme.document("plan", allow=["user:ana", "user:bo"])
    assert "ana" in repr(found(acme))
    assert "ana" not in repr(found(acme, named=False))
    assert found(acme, named=False).alike[0].users == 2


@pytest.mark.parametrize("seed", range(6))
def test_any_directory_is_counted_as_questions_see_it(acme: Company, seed: int) -> None:
    draw = random.Random(seed)
    names = [f"user {number}" for number in range(14)]
    teams = [f"group {number}" for number in range(6)]
    principals = [acme.principal(name) for name in names]
    for team in teams:
        acme.member(team, *draw.sample(names, 4), *(f"group:{other}" for other in draw.sample(teams, 1)))
    labels = ["tenant", *(f"user:{name}" for name in names), *(f"group:{team}" for team in teams)]
    ids = []
    for number in range(9):
        deny = draw.sample(labels, 1) if draw.random() < 0.3 else []
        ids.append(acme.document(f"document {number}", allow=draw.sample(labels, draw.choice((0, 1, 2))), deny=deny))
    truth: defaultdict[str, list[str]] = defaultdict(list)
    reads: set[frozenset[int]] = set()
    with acme.handle.reading() as view:
        counted = sharing(view)
        for principal in principals:
            domain = permission_domain(principal, view)
            if not domain.is_empty:
                truth[domain.fingerprint].append(principal.user_id)
                reads.add(frozenset(readable_documents(domain, view, ids)))
                assert counted.by_user[principal.user_id] == domain.fingerprint
    assert counted.users == sum(map(len, truth.values())) == len(counted.by_user)
    assert counted.domains == len(truth)
    assert counted.alone == sum(len(users) == 1 for users in truth.values())
    assert counted.attainable == len(reads)
    assert counted.outside == len(names) - counted.users
    for divider in counted.dividers:
        assert_removed(acme, counted, divider)


def assert_removed(company: Company, counted: Sharing, divider: Divider) -> None:
    """The effect of a divider, by taking its labels out of every user's set."""
    held: defaultdict[str, set[int]] = defaultdict(set)
    with company.handle.reading() as view:
        rows = view.execute(select(schema.labels)).all()
        group = view.execute(select(schema.groups.c.id).where(schema.groups.c.name == divider.group)).scalar()
        gone = {row.id for row in rows if (row.kind == "user" if divider.group is None else row.ref == group)}
        for name in view.execute(select(schema.users.c.name)).scalars().all():
            held[name] = set(permission_domain(company.principal(name), view).labels)
    left = [frozenset(labels - gone) for labels in held.values() if labels]
    assert divider.domains == len(set(left)) < counted.domains
    assert divider.alone == sum(left.count(one) == 1 for one in set(left))
