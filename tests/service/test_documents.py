from __future__ import annotations

import base64
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tenancy.identity import Role
from tests.service.house import House, problem

TEXT = "The notice period is three months."


def read(house: House, key: str) -> list[str]:
    response = house.post("/v1/retrieve", key, {"query": "notice period"})
    assert response.status_code == 200, response.text
    return [passage["document"] for passage in response.json()["passages"]]


def test_a_document_is_stored_shown_listed_found_and_deleted(house: House) -> None:
    key, reader = house.key("acme", "loader", Role.INGEST), house.key("acme", "ana")
    stored = house.put("acme", "hr/notice.md", TEXT, allow=["tenant"]).json()["outcomes"]
    assert [(one["id"], one["status"], one["change"], one["chunks"]) for one in stored] == [
        ("hr/notice.md", "indexed", "added", 1)
    ]
    shown = house.get("/v1/documents/hr/notice.md", key).json()
    assert (shown["id"], shown["allow"], shown["deny"]) == ("hr/notice.md", ["tenant"], [])
    assert [one["id"] for one in house.get("/v1/documents", key).json()["documents"]] == ["hr/notice.md"]
    assert read(house, reader) == ["hr/notice.md"]
    assert house.send("DELETE", "/v1/documents/hr/notice.md", key).json() == {"deleted": ["hr/notice.md"]}
    problem(house.get("/v1/documents/hr/notice.md", key), 404, "not-found")
    assert read(house, reader) == []


def test_equal_content_is_unchanged_and_other_content_a_new_version(house: House) -> None:
    house.put("acme", "a", TEXT, allow=["tenant"])
    assert house.put("acme", "a", TEXT).json()["outcomes"][0]["status"] == "unchanged"
    assert house.put("acme", "a", TEXT + " Or four.").json()["outcomes"][0]["change"] == "updated"
    # Without a list the document keeps its own.
    assert read(house, house.key("acme", "ana")) == ["a"]


def test_a_file_comes_as_base64_with_title_and_metadata(house: House) -> None:
    key = house.key("acme", "loader", Role.INGEST)
    page = base64.b64encode(b"<html><body><p>The notice period is three months.</p></body></html>").decode()
    body = {
        "content_base64": page, "media_type": "text/html", "title": "Notice", "metadata": {"year": 2026},
        "allow": ["tenant"],
    }  # fmt: skip
    assert house.send("PUT", "/v1/documents/n.html", key, body).status_code == 200
    shown = house.get("/v1/documents/n.html", key).json()
    expected = {"year": 2026, "language": "en"}
    assert (shown["title"], shown["media_type"], shown["metadata"]) == ("Notice", "text/html", expected)


def test_an_access_list_holds_from_the_next_question_on(house: House) -> None:
    key, ana, bo = house.key("acme", "loader", Role.INGEST), house.key("acme", "ana"), house.key("acme", "bo")
    house.put("acme", "a/acl", TEXT, allow=["user:ana"])
    assert (read(house, ana), read(house, bo)) == (["a/acl"], [])
    changed = house.send("PATCH", "/v1/documents/a/acl/acl", key, {"allow": ["tenant"], "deny": ["user:ana"]})
    assert changed.json() == {"id": "a/acl", "allow": ["tenant"], "deny": ["user:ana"], "changed": True}
    assert (read(house, ana), read(house, bo)) == ([], ["a/acl"])
    problem(house.send("PATCH", "/v1/documents/a", key, {"allow": []}), 404, "not-found")


def test_nobody_reads_a_new_document_without_a_list(house: House) -> None:
    house.put("acme", "a", TEXT)
    assert read(house, house.key("acme", "ana")) == []


@pytest.mark.parametrize("name", ["a b", "ü/é.md", "a//b", "a%2Fb", "100%", "a?b#c", "名前", "a\\b", "acl"])
def test_a_name_survives_its_way_through_the_address(shared: House, name: str) -> None:
    key, address = shared.key("acme", "loader", Role.INGEST), f"/v1/documents/{quote(name)}"
    response = shared.send("PUT", address, key, {"text": TEXT, "allow": ["tenant"]})
    assert response.json()["outcomes"][0]["id"] == name
    assert shared.get(address, key).json()["id"] == name


def test_listing_goes_on_where_it_ended(house: House) -> None:
    key = house.key("acme", "loader", Role.INGEST)
    for name in "cab":
        house.put("acme", name, TEXT + name)
    first = house.get("/v1/documents?limit=2", key).json()
    assert ([one["id"] for one in first["documents"]], first["after"]) == (["a", "b"], "b")
    second = house.get("/v1/documents?limit=2&after=b", key).json()
    assert ([one["id"] for one in second["documents"]], second["after"]) == (["c"], None)


def test_a_list_by_status_says_what_became_of_each(house: House) -> None:
    key = house.key("acme", "loader", Role.INGEST)
    for name in "ab":
        house.put("acme", name, TEXT + name)
    house.send("DELETE", "/v1/documents/a", key)
    (removed,) = house.get("/v1/documents?status=removed", key).json()["documents"]
    assert (removed["id"], removed["status"], removed["title"]) == ("a", "removed", None)
    listed = house.get("/v1/documents?status=indexed&limit=1", key).json()
    assert ([(one["id"], one["title"]) for one in listed["documents"]], listed["after"]) == ([("b", "b")], "b")
    assert house.get("/v1/documents?status=partial", key).json() == {"documents": [], "after": None}
    problem(house.get("/v1/documents?status=added", key), 422, "invalid-input")
    problem(house.get("/v1/documents?status=indexed", house.key("acme", "ana")), 403, "forbidden")


def test_another_tenants_document_is_as_absent_as_none(house: House) -> None:
    house.put("acme", "secret.md", TEXT, allow=["tenant"])
    key = house.key("globex", "eve", *Role)
    for method, body in (("GET", None), ("DELETE", None), ("PATCH", {"allow": ["tenant"]})):
        bodies = []
        for name in ("secret.md", "nothing.md"):
            suffix = "/acl" if method == "PATCH" else ""
            found = problem(house.send(method, f"/v1/documents/{name}{suffix}", key, body), 404, "not-found")
            bodies.append({**found, "instance": "", "item": ""})
        assert bodies[0] == bodies[1]
    assert house.get("/v1/documents", key).json()["documents"] == []


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"allow": ["tenant"]}, 422, "invalid-input"),
        ({"text": "a", "content_base64": "YQ=="}, 422, "invalid-input"),
        ({"content_base64": "%%%"}, 422, "invalid-input"),
        ({"text": ""}, 422, "parse-failure"),
        ({"text": "a\x00b"}, 422, "invalid-input"),
        ({"text": "a", "allow": ["everyone"]}, 422, "invalid-input"),
        ({"text": "a", "allow": "tenant"}, 422, "invalid-input"),
        ({"text": "a", "metadata": {"a": [1]}}, 422, "invalid-input"),
        ({"text": "a", "acl": []}, 422, "invalid-input"),
        ({"text": "a", "tenant": "globex"}, 403, "forbidden"),
        ({"content_base64": "AAECAw==", "media_type": "application/pdf"}, 422, "parse-failure"),
    ],
)
def test_a_bad_document_is_refused_and_nothing_is_stored(
    shared: House, body: dict[str, Any], status: int, code: str
) -> None:
    key = shared.key("acme", "loader", Role.INGEST)
    problem(shared.send("PUT", "/v1/documents/bad", key, body), status, code)
    problem(shared.get("/v1/documents/bad", key), 404, "not-found")


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "body",
    [
        '{"text": "a", "metadata": {' + ", ".join(f'"{number}": 1' for number in range(200_000)) + "}}",
        '{"text": "a", "allow": [' + ", ".join(['"tenant"'] * 200_000) + "]}",
        "{" + ", ".join(['"text": "a"'] * 200_000) + "}",
    ],
)
def test_only_the_text_of_a_document_may_be_large(shared: House, body: str) -> None:
    key = shared.key("acme", "loader", Role.INGEST)
    headers = {"Content-Type": "application/json"}
    problem(shared.send("PUT", "/v1/documents/wide", key, content=body, headers=headers), 413, "too-large")


def test_documents_may_be_larger_than_other_bodies(folder: Path) -> None:
    house = House(folder, STRONGROOM_SERVER__MAX_BODY="2000", STRONGROOM_SERVER__MAX_DOCUMENT="20000")
    with house.client:
        house.put("acme", "large", "word " * 1000)
        key = house.key("acme", "all", *Role)
        problem(house.send("PUT", "/v1/documents/larger", key, {"text": "word " * 5000}), 413, "too-large")
        problem(house.post("/v1/retrieve", key, {"query": "word " * 1000}), 413, "too-large")
    house.close()
