"""The table of bad input: every row is refused with exactly its status and problem, beside a request that is not.

One service behind a real socket takes all rows in turn; afterwards it still answers, its audit logs verify, and
neither a response nor a log line holds anything of its inside or of another tenant.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine

from audit.verify import verify
from tests.service import bad_addresses, bad_credentials, bad_requests
from tests.service.bad_input import FOREIGN, FOREIGN_WORDS, MAX_BODY, MEMORY, OWN, Bench, Row, Sent, serving
from tests.service.bad_requests import (
    ANSWER,
    DELETE,
    ENTRIES,
    EVENT,
    EVENTS,
    INVALIDATE,
    LIST,
    PATCH,
    PUT,
    QUESTION,
    SHOW,
    json_of,
)  # fmt: skip
from tests.service.house import problem

ROWS = [*bad_credentials.ROWS, *bad_requests.rows(), *bad_addresses.rows()]
ACCEPTED = bad_credentials.ACCEPTED | bad_addresses.ACCEPTED
PARSER = b"Invalid HTTP request received."


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with (
        tempfile.TemporaryDirectory(dir=MEMORY, prefix="strongroom-test-") as folder,
        serving(Path(folder)) as found,
    ):
        for who, name, text in (("ingest", "notice.md", OWN), ("foreign", "secret.md", FOREIGN)):
            stored = PUT.but(target=f"/v1/documents/{name}", who=who).with_json(text=text)
            assert found.send(stored).status_code == 200
        yield found


def test_the_table_is_large_and_its_rows_have_names() -> None:
    assert len(ROWS) > 300
    assert [name for name, count in Counter(row.id for row in ROWS).items() if count > 1] == []


@pytest.mark.parametrize("row", ROWS, ids=[row.id for row in ROWS])
def test_bad_input_is_refused_and_good_input_beside_it_is_not(bench: Bench, row: Row) -> None:
    refuse(bench.send(row.sent), row)
    if row.must not in bench.accepted:
        good(bench, row)


def good(bench: Bench, row: Row) -> None:
    if row.first is not None:
        accept(bench.send(row.first))
    accept(bench.send(row.must))
    bench.accepted.add(row.must)


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_is_accepted_on_purpose(bench: Bench, name: str) -> None:
    accept(bench.send(ACCEPTED[name]))


def refuse(response: httpx.Response, row: Row) -> None:
    if row.code is None:
        assert (response.status_code, response.content) == (row.status, PARSER)
        return
    check_headers(response, "no-cache" if row.sent.target.startswith("/schema") else "no-store")
    if row.sent.method == "HEAD":
        assert (response.status_code, response.content) == (row.status, b"")
    else:
        problem(response, row.status, row.code)
    for name, value in row.headers:
        assert ", ".join(sorted(response.headers[name].split(", "))) == value
    assert ("www-authenticate" in response.headers) == (row.status == 401)


def accept(response: httpx.Response) -> None:
    assert response.status_code == 200, f"{response.status_code}: {response.text}"
    check_headers(response)


def check_headers(response: httpx.Response, caching: str = "no-store") -> None:
    """What every response of the application carries, whatever was sent; nothing of it is the client's."""
    names = [name for name, _ in response.headers.multi_items()]
    assert Counter(names).most_common(1)[0][1] == 1
    assert not {"x-evil", "server", "x-powered-by"}.intersection(names)
    assert len(response.headers["x-request-id"]) == 32
    assert int(response.headers["x-request-id"], 16) >= 0
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["cache-control"] == caching


# Forbidden and absent are the same


def alike(one: httpx.Response, other: httpx.Response) -> bool:
    """Whether two responses are equal in every byte but the request id, the time, and what is left of the caller's own
    requests, of which the second is one more.
    """

    def plain(response: httpx.Response) -> tuple[int, list[tuple[str, str]], bytes]:
        request_id = response.headers["x-request-id"]
        headers = [(name, value) for name, value in response.headers.multi_items() if name not in {"date"}]
        own = [(name, "" if name == "ratelimit" else value.replace(request_id, "")) for name, value in headers]
        return response.status_code, own, response.content.replace(request_id.encode(), b"")

    return plain(one) == plain(other)


def statements(bench: Bench, sent: Sent) -> tuple[httpx.Response, list[str]]:
    """The response, and the SQL about documents that it took: equal work cannot be told apart by a clock."""
    found: list[str] = []

    def note(*arguments: Any) -> None:
        if "documents" in arguments[2] and "event" not in arguments[2]:
            found.append(arguments[2])

    event.listen(Engine, "before_cursor_execute", note)
    try:
        return bench.send(sent), found
    finally:
        event.remove(Engine, "before_cursor_execute", note)


@pytest.mark.parametrize("method", ["GET", "DELETE", "PATCH"])
@pytest.mark.parametrize("side", ["acme", "globex"])
def test_another_tenants_document_is_absent_to_the_byte(bench: Bench, method: str, side: str) -> None:
    """The same request before and after the other tenant has a document of this very id."""
    mine, theirs = ("all", "foreign") if side == "acme" else ("foreign", "all")
    name = f"/v1/documents/{method}-{side}.md"
    shape = {"GET": SHOW, "DELETE": DELETE, "PATCH": PATCH}[method]
    asked = shape.but(target=name + ("/acl" if method == "PATCH" else ""), who=mine)
    before, work_before = statements(bench, asked)
    accept(bench.send(PUT.but(target=name, who=theirs)))
    after, work_after = statements(bench, asked)
    problem(after, 404, "not-found")
    assert alike(before, after)
    assert work_before == work_after != []
    # For its own tenant it is there, and the other one's request has changed nothing of it.
    shown = bench.send(SHOW.but(target=name, who=theirs))
    assert (shown.status_code, shown.json()["allow"]) == (200, ["tenant"])
    assert bench.send(asked.but(who=theirs)).status_code == 200


def test_the_same_id_in_two_tenants_is_two_documents(bench: Bench) -> None:
    put = PUT.but(target="/v1/documents/both.md")
    first = bench.send(put.but(who="all").with_json(text="The first text."))
    second = bench.send(put.but(who="foreign").with_json(text="The other text."))
    assert first.json()["outcomes"][0]["change"] == second.json()["outcomes"][0]["change"] == "added"
    versions = [bench.send(SHOW.but(target=put.target, who=who)).json()["version"] for who in ("all", "foreign")]
    assert versions[0] != versions[1]
    assert bench.send(put.but(method="DELETE", body=None, who="foreign")).status_code == 200
    assert bench.send(SHOW.but(target=put.target)).status_code == 200


def test_another_tenants_event_is_absent_to_the_byte(bench: Bench) -> None:
    size = bench.send(EVENTS).json()["checkpoint"]["size"] + 2
    asked = EVENT.but(target=f"/v1/audit/events/{size}", who="foreign")
    before = bench.send(asked)
    accept(bench.send(QUESTION))
    assert bench.send(asked.but(who="auditor")).json()["seq"] == size
    after = bench.send(asked)
    problem(after, 404, "not-found")
    assert alike(before, after)


def test_a_cursor_belongs_to_its_log_and_its_filters(bench: Bench) -> None:
    query = EVENTS.with_query("action=retrieve")
    cursor = bench.send(query).json()["after"]
    accept(bench.send(query.with_query(f"after={cursor}")))
    forged = cursor[:5] + ("A" if cursor[5] != "A" else "B") + cursor[6:]
    for sent in (
        query.with_query(f"after={forged}"),
        EVENTS.with_query(f"action=answer&after={cursor}"),
        query.with_query(f"order=asc&after={cursor}"),
        query.but(who="foreign").with_query(f"after={cursor}"),
    ):
        problem(bench.send(sent), 422, "invalid-input")


def test_another_tenants_cache_entry_is_absent_to_the_byte(bench: Bench) -> None:
    accept(bench.send(INVALIDATE.but(target="/v1/cache/entries?all=true")))
    accept(bench.send(ANSWER))
    (entry,) = bench.send(ENTRIES).json()["entries"]
    foreign = [
        bench.send(INVALIDATE.but(target=f"/v1/cache/entries?entry={name}", who="foreign"))
        for name in (entry["id"], entry["id"][:-1] + ("0" if entry["id"][-1] != "0" else "1"))
    ]
    assert foreign[0].json() == {"removed": 0}
    assert alike(*foreign)
    assert bench.send(ENTRIES.but(who="foreign")).json() == {"entries": []}
    assert bench.send(INVALIDATE.but(target=f"/v1/cache/entries?entry={entry['id']}")).json() == {"removed": 1}


def test_keys_that_are_unknown_expired_and_revoked_are_refused_alike(bench: Bench) -> None:
    rows = {row.id: row for row in ROWS}
    names = ("an unknown id", "another environment's own", "another secret", "revoked", "expired")
    answers = [bench.send(rows[f"key: {name}"].sent) for name in names]
    assert all(alike(answers[0], answer) for answer in answers[1:])


# The edges of HTTP


def test_options_names_the_methods_and_releases_nothing(bench: Bench) -> None:
    response = bench.send(LIST.but(method="OPTIONS"))
    assert (response.status_code, response.content) == (204, b"")
    assert sorted(response.headers["allow"].split(", ")) == ["GET", "OPTIONS"]


def test_an_unknown_address_under_the_schema_is_no_page(bench: Bench) -> None:
    response = bench.send(LIST.but(target="/schema/swagger"))
    problem(response, 404, "not-found")
    assert b"<" not in response.content


@pytest.mark.parametrize("length", [b"1000", str(MAX_BODY).encode()])
def test_a_client_that_leaves_in_the_middle_of_its_body_is_no_failure(bench: Bench, length: bytes) -> None:
    before = len(bench.log.getvalue())
    bench.leave(QUESTION.with_header("Content-Length", length))
    assert bench.log.wait_for('"status": 499', before)
    assert '"level": "error"' not in bench.log.getvalue()[before:]
    accept(bench.send(QUESTION))


def test_a_refused_document_leaves_nothing_behind(bench: Bench) -> None:
    names = [one["id"] for one in bench.send(LIST).json()["documents"]]
    assert "notice.md" in names
    assert not {"bad", ".", "..", "absent.md"}.intersection(names)
    assert not [name for name in names if ".." in name or "\x00" in name]


# After all of it


def test_afterwards_every_good_request_is_accepted_still(bench: Bench) -> None:
    for row in {row.must: row for row in ROWS}.values():
        good(bench, row)


def test_afterwards_it_still_answers_and_both_logs_verify(bench: Bench) -> None:
    answer = bench.send(ANSWER.with_json(cache="bypass"))
    accept(answer)
    assert answer.json()["citations"][0]["quote"] in OWN
    control = bench.house.services.control
    for tenant in ("acme", "globex"):
        log = control.logs.of(control.authenticator.operator(tenant))
        log.flush()  # an outcome is written behind its response
        found = verify(log)
        assert found.ok, found.finding
        assert (found.in_flight, found.recovered) == (0, 0)
    assert verify(control.logs.of(None)).ok


def test_afterwards_no_response_has_told_anything_of_the_inside(bench: Bench) -> None:
    accept(bench.send(QUESTION))
    tells = ("traceback", "site-packages", ".py", "sqlite", "sqlalchemy", "select ", "exception", str(bench.folder))
    for response in bench.answers:
        text = response.text.lower()
        assert not [tell for tell in (*tells, *FOREIGN_WORDS) if tell in text], text
        assert response.status_code < 500


def test_the_other_tenants_text_can_be_found_by_its_own(bench: Bench) -> None:
    """The control of the search for its words: they do reach whom they belong to."""
    response = bench.send(QUESTION.but(who="foreign").but(body=json_of({"query": "quokka marmalade"})))
    bench.answers.pop()
    assert FOREIGN in response.text


def test_afterwards_no_log_line_tells_of_errors_texts_or_secrets(bench: Bench) -> None:
    accept(bench.send(QUESTION))
    lines = bench.log.getvalue().splitlines()
    assert len(lines) >= len(bench.answers)
    for line in lines:
        entry = json.loads(line)
        assert entry["level"] == "info" or entry["logger"] == "uvicorn.error", line
        assert not {"frames", "exception"}.intersection(entry), line
    text = bench.log.getvalue().lower()
    secrets = [key.split("_")[3] for key in bench.keys.values()]
    told = (*secrets, *FOREIGN_WORDS, "notice period", "three months", "notice.md", "secret.md", "select ", "traceback")
    assert not [tell for tell in told if tell in text]
