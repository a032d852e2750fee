"""Filters as people use them: over HTTP and on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from service.cli import run
from tenancy.contract import Contract
from tenancy.identity import Role
from tests.service.house import House, problem

ASKED = "How long is the notice period?"
NEW = {"field": "year", "ge": 2020}


@pytest.fixture
def filed(house: House) -> House:
    house.services.control.tenants.create("acme", Contract(metadata={"year": "integer", "dept": "string"}))
    loader = house.key("acme", "loader", Role.INGEST)
    for name, text, metadata in (
        ("new.md", "The notice period is three months.", {"year": 2024, "dept": "hr"}),
        ("old.md", "The notice period is six weeks.", {"year": 2015}),
        ("odd.md", "The notice period is nine days.", {"year": "2024"}),
    ):
        body = {"text": text, "metadata": metadata, "allow": ["tenant"]}
        stored = house.send("PUT", f"/v1/documents/{name}", loader, body).json()
        expected = ["metadata_type:year"] if name == "odd.md" else []
        assert stored["outcomes"][0]["warnings"] == expected
    return house


def test_both_routes_take_a_filter(filed: House) -> None:
    key = filed.key("acme", "ana")

    def documents(where: Any) -> list[str]:
        found = filed.post("/v1/retrieve", key, {"query": ASKED, "filter": where}).json()
        return sorted(passage["document"] for passage in found["passages"])

    assert documents(None) == ["new.md", "odd.md", "old.md"]
    assert documents(NEW) == ["new.md"]
    assert documents({"not": NEW}) == ["odd.md", "old.md"]
    assert documents({"field": "dept", "exists": False}) == ["odd.md", "old.md"]
    answered = filed.post("/v1/answers", key, {"query": ASKED, "filter": {"field": "year", "lt": 2020}}).json()
    assert "six weeks" in answered["answer"]
    streamed = filed.post("/v1/answers", key, {"query": ASKED, "filter": NEW, "stream": True}).text
    assert "three months" in streamed
    assert "six weeks" not in streamed


def test_a_refusal_names_the_place_and_the_declared_fields_and_nothing_of_the_documents(filed: House) -> None:
    key = filed.key("acme", "ana")
    filed.put("acme", "secret.md", "x", allow=["user:bo"])
    for name in ("codename", "nope"):
        wrong = {"all": [NEW, {"field": name, "eq": "Wunderlich"}]}
        found = problem(filed.post("/v1/answers", key, {"query": ASKED, "filter": wrong}), 422, "invalid-input")
        assert found["item"] == "filter.all[1].field"
        assert found["remedy"].endswith("declared are dept, year")
        assert name not in json.dumps(found)
    other = filed.key("globex", "eve")
    found = problem(filed.post("/v1/retrieve", other, {"query": ASKED, "filter": NEW}), 422, "invalid-input")
    assert "contract" in found["remedy"]
    assert "year" not in json.dumps(found)


def test_ask_takes_a_filter(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("STRONGROOM_DATA_DIR", str(folder / "data"))
    monkeypatch.setenv("STRONGROOM_MASTER_KEY_FILE", str(folder / "master.key"))
    monkeypatch.setenv("STRONGROOM_EMBEDDING__MODEL", "hashing:256")

    def go(*words: str) -> tuple[int, str, str]:
        code = run(words)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    (folder / "contract.toml").write_text('[metadata]\nyear = "integer"\n')
    rows = (
        ("a", "The notice period is three months.", 2024),
        ("b", "The notice period is six weeks.", 2015),
        ("c", "The notice period is nine days.", "2024"),
    )
    (folder / "rows.jsonl").write_text(
        "".join(json.dumps({"id": i, "text": text, "metadata": {"year": year}}) + "\n" for i, text, year in rows)
    )
    assert go("doctor", "--create-master-key")[0] == 0
    assert go("tenant", "create", "acme", "--contract", str(folder / "contract.toml"))[0] == 0
    assert go("key", "create", "--tenant", "acme", "--user", "ana")[0] == 0
    code, _, err = go("ingest", "--tenant", "acme", str(folder / "rows.jsonl"), "--allow", "tenant")
    assert code == 0, err
    assert [line for line in err.splitlines() if line.startswith("warning: ")] == [
        "warning: rows.jsonl#c: not of the type that the contract declares: year"
    ]
    ask = ("ask", ASKED, "--tenant", "acme", "--user", "ana", "--json", "--filter")
    for where, text in (('{"field": "year", "ge": 2020}', "three months"), ('{"field":"year","lt":2020}', "six weeks")):
        code, out, err = go(*ask, where)
        assert code == 0, err
        assert text in json.loads(out)["answer"]
    for wrong in (
        "year>=2020",
        "[]",
        '{"field": "year", "ge": "2020"}',
        '{"field": "nope", "eq": 1}',
        '{"a": 1, "a": 2}',
    ):
        code, out, err = go(*ask, wrong)
        assert (code, out) == (2, "")
        assert ("filter" in err, "body" in err) == (True, False)
        assert "Traceback" not in err
    _, _, err = go(*ask, "language=de")
    assert all(part in err for part in ("--filter", "not JSON", '{"field": "language", "eq": "de"}')), err


def test_the_language_of_documents_is_shown_and_a_filter_where_it_is_declared(house: House) -> None:
    house.services.control.tenants.create("acme", Contract(metadata={"language": "string"}))
    loader, key = house.key("acme", "loader", Role.INGEST), house.key("acme", "ana")
    for name, text in (
        ("en.md", "The notice period is three months to the end of a quarter."),
        ("de.md", "Die Kündigungsfrist beträgt drei Monate zum Ende eines Quartals."),
        ("no.md", "3 x 4"),
    ):
        house.send("PUT", f"/v1/documents/{name}", loader, {"text": text, "allow": ["tenant"]})
    assert house.get("/v1/documents/de.md", loader).json()["metadata"] == {"language": "de"}
    assert house.get("/v1/documents/no.md", loader).json()["metadata"] == {}
    for address in ("/v1/documents", "/v1/documents?status=indexed"):
        listed = house.get(address, loader).json()["documents"]
        assert {one["id"]: one["language"] for one in listed} == {"de.md": "de", "en.md": "en", "no.md": None}
    for where, expected in (({"eq": "de"}, ["de.md"]), ({"exists": False}, ["no.md"])):
        asked = {"query": ASKED, "filter": {"field": "language", **where}}
        found = house.post("/v1/retrieve", key, asked).json()["passages"]
        assert [passage["document"] for passage in found] == expected
