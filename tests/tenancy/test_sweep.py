"""Documents that nobody or everybody reads."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tenancy import directory, schema
from tenancy.sweep import sweep
from tests.support.people import Company

LABELS = ["tenant", "user:ana", "user:bo", "group:hr", "group:all", "group:none"]


def swept(company: Company, *, some: bool = False) -> dict[str, tuple[str, int]]:
    with company.handle.reading() as view:
        return {one.document: (one.reach, one.readers) for one in sweep(view, some=some)}


def a_house(company: Company) -> None:
    company.member("hr", "ana", "group:inner")
    company.member("inner", "group:hr")
    company.member("all", "ana", "bo")
    with company.handle.writing() as view:
        directory.ensure_group(view, "none", 0.0)


def test_each_way_to_reach_nobody_or_everybody_is_named(acme: Company) -> None:
    a_house(acme)
    lists: dict[str, tuple[list[str], list[str]]] = {
        "no list": ([], []),
        "denied whole": (["user:ana"], ["tenant"]),
        "denied each": (["user:ana"], ["group:hr"]),
        "empty group": (["group:none"], []),
        "deleted": (["user:zoe"], []),
        "tenant": (["tenant"], []),
        "all of them": (["group:all"], []),
        "one": (["group:hr"], []),
        "all but one": (["tenant"], ["user:bo"]),
    }
    for name, (allow, deny) in lists.items():
        acme.document(name, allow=allow, deny=deny)
    with acme.handle.writing() as view:
        directory.delete_user(view, "zoe")
    whole = swept(acme, some=True)
    assert whole == {
        "no list": ("nobody", 0),
        "denied whole": ("nobody", 0),
        "denied each": ("nobody", 0),
        "empty group": ("nobody", 0),
        "deleted": ("nobody", 0),
        "tenant": ("everybody", 2),
        "all of them": ("everybody", 2),
        "one": ("some", 1),
        "all but one": ("some", 1),
    }
    assert swept(acme) == {name: found for name, found in whole.items() if found[0] != "some"}
    with acme.handle.reading() as view:
        reasons = [one.why for one in sweep(view)]
    assert len(set(reasons)) == len(reasons)


def test_a_disabled_user_reads_nothing(acme: Company) -> None:
    acme.document("a", allow=["user:ana"])
    acme.document("b", allow=["user:bo"])
    with acme.handle.writing() as view:
        view.execute(schema.users.update().where(schema.users.c.name == "ana").values(disabled=True))
    assert swept(acme, some=True) == {"a": ("nobody", 0), "b": ("everybody", 1)}


def test_more_documents_than_a_page_are_all_there(acme: Company) -> None:
    acme.document("first", allow=["user:ana"])
    with acme.handle.writing() as view:
        view.execute(
            schema.documents.insert(),
            [
                {
                    "name": f"d{number:05}", "version": "v", "title": "t", "media_type": "text/plain", "metadata": {},
                    "origin": "api", "warnings": [], "updated": 0.0,
                }
                for number in range(2_500)
            ],
        )  # fmt: skip
    found = swept(acme)
    assert len(found) == 2_501
    assert list(found) == sorted(found)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(allow=st.sets(st.sampled_from(LABELS)), deny=st.sets(st.sampled_from(LABELS)))
def test_readers_are_those_whose_domain_reads_it(acme: Company, allow: set[str], deny: set[str]) -> None:
    """Against the product's own decision, one user after the other."""
    from tenancy.domain import permission_domain, readable_documents

    a_house(acme)
    document = acme.document("one", allow=allow, deny=deny)
    principals = [acme.principal(user) for user in ("ana", "bo")]
    with acme.handle.reading() as view:
        reading = sum(
            document in readable_documents(permission_domain(one, view), view, {document}) for one in principals
        )
    (found,) = swept(acme, some=True).values()
    assert found[1] == reading
    assert (found[0] == "nobody") == (reading == 0)
    assert (found[0] == "everybody") == (reading == 2)
