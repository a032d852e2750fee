"""Reports over HTTP and on the command line: who may read them, in which forms, and that reading is on record."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest

from audit.log import Head
from audit.merkle import EMPTY_ROOT
from audit.reports.frame import Report, Table
from service.reports import csv_of
from tenancy.identity import Role
from tests.service.house import House, problem
from tests.service.test_cli import Run, acme, cli, data

__all__ = ["acme", "cli"]

QUESTION = {"query": "How long is the notice period?"}
BASE = "/v1/audit/reports"
PATHS = (
    f"{BASE}/document/hr/notice.md", f"{BASE}/subject/ana", f"{BASE}/cache-entry/ce_x", f"{BASE}/denied",
    f"{BASE}/deletions", f"{BASE}/attestations",
)  # fmt: skip


@pytest.fixture
def auditor(house: House) -> str:
    """ana is answered, bo gets it from the cache, cy may not read it."""
    house.put("acme", "hr/notice.md", "The notice period is three months.", allow=["user:ana", "user:bo"])
    house.key("acme", "cy")
    house.put("acme", "canteen.md", "Lunch is at noon.", allow=["tenant"])
    for user in ("ana", "ana", "cy"):
        house.post("/v1/answers", house.key("acme", user), QUESTION)
    house.get("/v1/documents", house.key("acme", "cy"))
    return house.key("acme", "eve", Role.AUDITOR)


def test_who_saw_this_document(house: House, auditor: str) -> None:
    found = house.get(f"{BASE}/document/hr/notice.md", auditor).json()
    shown = [(row["user"], row["stage"], row["via"], row["origin_user"]) for row in found["uses"]]
    assert shown == [
        ("ana", "replayed", "replayed", "ana"), ("ana", "cited", "live", None), ("loader", "written", None, None),
    ]  # fmt: skip
    assert {row["user"] for row in found["people"]} == {"ana", "loader"}
    assert (found["report"], found["document"], found["after"]) == ("document", "hr/notice.md", None)
    assert found["checkpoint"]["size"] == found["uses"][0]["seq"] + 1 + 3 + 1  # cy's answer, cy's refusal, the reading
    assert house.get(f"{BASE}/document/hr/notice", auditor).json()["uses"] == []


def test_what_was_this_person_shown(house: House, auditor: str) -> None:
    found = house.get(f"{BASE}/subject/cy", auditor).json()
    assert [(row["action"], row["question"], row["released"]) for row in found["uses"]] == [
        ("document.list", None, "no"),
        ("answer", QUESTION["query"], "yes"),
    ]
    assert "notice.md" not in str(found["uses"])
    by_reference = house.get(f"{BASE}/subject/{found['actor']}", auditor).json()
    assert by_reference["uses"] == found["uses"]
    problem(house.get(f"{BASE}/subject/nobody", auditor), 404, "not-found")


def test_why_did_somebody_get_this_cached_answer(house: House, auditor: str) -> None:
    (hit,) = house.get("/v1/audit/events?cache.status=hit&phase=outcome", auditor).json()["events"]
    for name in (hit["cache"]["entry"], hit["seq"]):
        found = house.get(f"{BASE}/cache-entry/{name}", auditor).json()
        assert [(row["user"], row["question"]) for row in found["origin"]] == [("ana", QUESTION["query"])]
        (row,) = found["uses"]
        assert (row["user"], row["status"], row["kind"], row["origin_own"]) == ("ana", "hit", "exact", True)
        assert (row["versions_checked"], row["readable_checked"]) == (1, 1)
    problem(house.get(f"{BASE}/cache-entry/0", auditor), 422, "invalid-input")
    problem(house.get(f"{BASE}/cache-entry/99999", auditor), 404, "not-found")


def test_an_entry_that_was_never_served_has_its_origin_from_the_cache(house: House, auditor: str) -> None:
    house.post("/v1/answers", house.key("acme", "bo"), {"query": "When is lunch?"})
    entries = house.get("/v1/cache/entries", house.key("acme", "root", Role.ADMIN)).json()["entries"]
    found = house.get(f"{BASE}/cache-entry/{entries[0]['id']}", auditor).json()
    assert [(row["user"], row["question"]) for row in found["origin"]] == [("bo", "When is lunch?")]
    assert found["uses"] == []


def test_who_was_refused(house: House, auditor: str) -> None:
    found = house.get(f"{BASE}/denied", auditor).json()
    assert [(row["user"], row["action"], row["reason"]) for row in found["uses"]] == [
        ("cy", "document.list", "forbidden"),
    ]  # fmt: skip
    assert found["actions"] == [{"action": "document.list", "outcome": "refused", "records": 1}]


@pytest.mark.parametrize("path", PATHS)
def test_an_auditor_alone_reads_and_only_its_own_tenant(house: House, auditor: str, path: str) -> None:
    for role in set(Role) - {Role.AUDITOR}:
        problem(house.get(path, house.key("acme", f"a {role}", role)), 403, "forbidden")
    assert house.get(path.replace("ce_x", "2"), auditor).status_code in (200, 422)
    elsewhere = house.get(path, house.key("globex", "eve", Role.AUDITOR))
    if "subject" in path:
        problem(elsewhere, 404, "not-found")
    else:
        assert elsewhere.json()["uses"] == []


def test_reading_is_on_record_with_what_was_asked_for(house: House, auditor: str) -> None:
    house.get(f"{BASE}/document/hr/notice.md?since=2020-01-01", auditor)
    house.get("/v1/audit/events?actor=ana&document=hr/notice.md&as_of=3", auditor)
    *_, report, _, query = house.events("acme")
    assert (report["action"], report["phase"], report["outcome"]) == ("audit.report", "outcome", "allowed")
    assert report["detail"] == {"report": "document", "document": "hr/notice.md", "rows": 3}
    assert (query["action"], query["detail"]["document"], query["detail"]["as_of"]) == (
        "audit.query",
        "hr/notice.md",
        3,
    )
    # Whom the query was about is a reference, as everywhere.
    assert query["detail"]["actor"].startswith("u_")


def test_the_same_report_as_of_then_is_the_same(house: House, auditor: str) -> None:
    then = house.get(f"{BASE}/document/hr/notice.md", auditor).json()
    house.post("/v1/answers", house.key("acme", "ana"), QUESTION)
    now = house.get(f"{BASE}/document/hr/notice.md", auditor).json()
    assert len(now["uses"]) == len(then["uses"]) + 1
    size = then["checkpoint"]["size"]
    again = house.get(f"{BASE}/document/hr/notice.md?as_of={size}", auditor).json()
    assert again["checkpoint"]["root"] == then["checkpoint"]["root"]
    assert again == then | {"checkpoint": again["checkpoint"]}
    signed = house.get("/v1/audit/checkpoint", auditor).json()
    noted = house.get(f"{BASE}/denied?as_of={signed['size']}", auditor).json()["checkpoint"]
    assert (noted["root"], noted["note"]) == (signed["root"], signed["checkpoint"])


def test_a_table_as_csv_with_its_window_and_checkpoint_beside_it(house: House, auditor: str) -> None:
    plain = house.get(f"{BASE}/document/hr/notice.md?limit=2", auditor).json()
    size = plain["checkpoint"]["size"]
    response = house.get(f"{BASE}/document/hr/notice.md?limit=2&format=csv&as_of={size}", auditor)
    assert response.headers["content-type"] == "text/csv; charset=utf-8"
    assert response.headers["strongroom-checkpoint"] == f"{size} {plain['checkpoint']['root']}"
    assert response.headers["strongroom-window"] == f"{plain['since']} {plain['until']}"
    rows = list(csv.DictReader(io.StringIO(response.text)))
    assert [(int(row["seq"]), row["user"], row["via"]) for row in rows] == [
        (row["seq"], row["user"], row["via"]) for row in plain["uses"]
    ]
    after = response.headers["strongroom-after"]
    rest = house.get(
        f"{BASE}/document/hr/notice.md", auditor, params={"limit": 2, "format": "csv", "as_of": size, "after": after}
    )
    assert len(list(csv.DictReader(io.StringIO(rest.text)))) == 1
    people = house.get(f"{BASE}/document/hr/notice.md?format=csv&table=people", auditor)
    assert [row["user"] for row in csv.DictReader(io.StringIO(people.text))] == ["ana", "loader"]
    problem(house.get(f"{BASE}/document/hr/notice.md?format=csv&table=secrets", auditor), 422, "invalid-input")


def test_a_question_is_no_formula_of_a_spreadsheet(house: House, auditor: str) -> None:
    house.post("/v1/answers", house.key("acme", "ana"), {"query": '=cmd|"/c calc"!A1, or not?\nnext line'})
    text = house.get(f"{BASE}/subject/ana?format=csv", auditor).text
    first = next(csv.DictReader(io.StringIO(text)))
    assert first["question"] == '\'=cmd|"/c calc"!A1, or not?\nnext line'


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20"])
def test_no_text_begins_as_a_formula_does(start: str) -> None:
    table = Table(("question",), ({"question": f"{start}1+1"},))
    report = Report("subject", {}, {"uses": table}, "uses", None, None, None, Head(0, EMPTY_ROOT), None)
    (row,) = csv.DictReader(io.StringIO(csv_of(report, None), newline=""))
    assert row["question"] == f"'{start}1+1"


def test_a_number_that_no_record_can_have_is_the_name_of_no_entry(house: House, auditor: str) -> None:
    problem(house.get(f"{BASE}/cache-entry/{'9' * 19}", auditor), 404, "not-found")
    assert house.get(f"{BASE}/cache-entry/{'9' * 5_000}", auditor).json()["uses"] == []


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("format=xml", 422, "invalid-input"),
        ("limit=0", 422, "invalid-input"),
        ("limit=1001", 422, "invalid-input"),
        ("as_of=-1", 422, "invalid-input"),
        ("as_of=99999", 422, "invalid-input"),
        ("since=2026-01-02&until=2026-01-01", 422, "invalid-input"),
        ("since=yesterday", 422, "invalid-input"),
        ("after=AAAA", 422, "invalid-input"),
        ("order=asc", 400, "unknown-parameter"),
        ("tenant=globex", 403, "forbidden"),
    ],
)
def test_a_bad_parameter_is_never_ignored(shared: House, query: str, status: int, code: str) -> None:
    key = shared.key("acme", "audit", Role.AUDITOR)
    for path in (f"{BASE}/denied", f"{BASE}/document/a"):
        problem(shared.get(f"{path}?{query}", key), status, code)
        assert shared.get(path, key).status_code == 200


def names(rows: list[dict[str, Any]], *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row[column] for column in columns) for row in rows]


def test_the_commands_answer_alike(acme: Run) -> None:
    for user in ("ana", "ana", "bo"):
        acme("ask", "How long is the notice period?", "--tenant", "acme", "--user", user)
    report = ("audit", "report")
    found = data(acme(*report, "document", "notice.md", "--tenant", "acme", "--json"))
    assert names(found["uses"], "user", "stage") == [
        ("ana", "replayed"), ("ana", "cited"), (found["uses"][2]["user"], "written"),
    ]  # fmt: skip
    assert found["uses"][2]["user"].startswith("operator:")
    entry = data(acme("audit", "query", "--tenant", "acme", "--cache.status", "hit", "--json"))["events"][0]
    told = data(acme(*report, "cache-entry", entry["cache"]["entry"], "--tenant", "acme", "--json"))
    assert names(told["origin"], "user", "question") == [("ana", "How long is the notice period?")]
    by_entry = data(acme("audit", "query", "--tenant", "acme", "--cache.entry", entry["cache"]["entry"], "--json"))
    assert {event["cache"]["entry"] for event in by_entry["events"]} == {entry["cache"]["entry"]}
    shown = data(acme(*report, "subject", "bo", "--tenant", "acme", "--json"))
    assert names(shown["uses"], "question", "documents") == [("How long is the notice period?", None)]
    operator = data(acme(*report, "subject", found["uses"][2]["user"], "--tenant", "acme", "--json"))
    assert "ingest" in {row["action"] for row in operator["uses"]}
    assert acme("ask", "x", "--tenant", "acme", "--user", "nobody")[0] == 1
    assert data(acme(*report, "denied", "--tenant", "acme", "--json"))["uses"] == []


def test_a_table_for_people_and_csv_for_programs(acme: Run) -> None:
    acme("ask", "How long is the notice period?", "--tenant", "acme", "--user", "ana")
    code, out, err = acme("audit", "report", "document", "notice.md", "--tenant", "acme", "--limit", "1")
    assert code == 0
    assert out.splitlines()[0] == "people: 1 of 2"
    assert "\tana\tanswer\tallowed\tcited" in out
    assert "as of " in err
    assert "more: --after " in err
    code, out, err = acme("audit", "report", "document", "notice.md", "--tenant", "acme", "--csv")
    assert [row["stage"] for row in csv.DictReader(io.StringIO(out))] == ["cited", "written"]
    assert "root " in err
    assert acme("audit", "report", "document", "notice.md")[0] == 2
    assert acme("audit", "report", "document", "notice.md", "--tenant", "acme", "--as-of", "9999")[0] == 2


def test_the_log_of_a_tenant_that_is_there_is_read_as_its_own(acme: Run) -> None:
    for words in (("query",), ("report", "denied"), ("prune",), ("holds",), ("hold", "--reason", "x"), ("key",)):
        code, _, err = acme("audit", *words, "--deleted", "acme")
        assert code == 1
        assert "give --tenant acme" in err


@pytest.mark.parametrize(
    "words",
    [
        ("audit", "query", "--actor", "caf\udce9"),
        ("audit", "report", "subject", "operator:caf\udce9"),
        ("audit", "replay", "--user", "caf\udce9"),
        ("user", "hold", "caf\udce9", "--reason", "case 17"),
        ("user", "erase", "caf\udce9", "--yes"),
    ],
)
def test_bytes_of_the_shell_that_are_no_text_are_refused(acme: Run, words: tuple[str, ...]) -> None:
    code, _, err = acme(*words, "--tenant", "acme")
    assert code == 2
    assert "error: " in err


def test_a_report_about_nothing_says_so_and_a_table_needs_csv(acme: Run) -> None:
    for words in (("document", "notices.md"), ("cache-entry", "ce_none")):
        code, out, err = acme("audit", "report", *words, "--tenant", "acme")
        assert (code, out.split("\n", 1)[0][-3:]) == (0, ": 0")
        assert f"no record of this time is about {words[1]}" in err
    assert "no record" not in acme("audit", "report", "document", "notice.md", "--tenant", "acme")[2]
    code, _, err = acme("audit", "report", "document", "notice.md", "--tenant", "acme", "--table", "people")
    assert (code, "--csv" in err) == (2, True)


def test_a_table_names_an_erased_person_by_the_reference(acme: Run) -> None:
    acme("ask", "How long is the notice period?", "--tenant", "acme", "--user", "ana")
    acme("user", "erase", "ana", "--tenant", "acme", "--yes")
    report = ("audit", "report", "document", "notice.md", "--tenant", "acme")
    asked = [row["actor"] for row in data(acme(*report, "--json"))["uses"] if row["action"] == "answer"]
    lines = [line.split("\t") for line in acme(*report)[1].splitlines() if "\tanswer\t" in line]
    assert [line[2] for line in lines] == asked
    assert len(asked) == 1


def test_deletions_show_certificates_and_receipts_with_their_signatures(acme: Run) -> None:
    acme("document", "delete", "notice.md", "--tenant", "acme")
    acme("user", "erase", "bo", "--tenant", "acme", "--yes")
    found = data(acme("audit", "report", "deletions", "--tenant", "acme", "--json"))
    assert names(found["uses"], "action") == [("user.erase",), ("document.delete",)]
    assert names(found["receipts"], "outcome", "signature") == [("erased", "good")]
    assert found["certificates"] == []
    tenant = data(acme("tenant", "show", "acme", "--json"))["id"]
    acme("tenant", "delete", "acme", "--yes")
    for words in (("--system",), ("--deleted", tenant)):
        told = data(acme("audit", "report", "deletions", *words, "--json"))
        assert names(told["certificates"], "tenant", "signature") == [("acme", "good")]
        assert "tenant.delete" in {row["action"] for row in told["uses"]}
    # The reading of a deleted tenant's log is in the system's, and says whose it was.
    last = data(acme("audit", "query", "--system", "--action", "audit.report", "--limit", "1", "--json"))["events"][0]
    assert json.loads(json.dumps(last["detail"]))["log"] == tenant
