"""Templates over the command line and over HTTP: who adds, what holds when, what is on record."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from service.cli import run
from tenancy import schema
from tenancy.contract import Contract, GenerationTerms
from tenancy.identity import Role
from tests.service.house import House, problem

Run = Callable[..., str]
HANDBOOK = "The notice period for employees is three months."
SALARIES = "The salary of the director is 417000 euro."
QUESTION = "How long is the notice period?"


@pytest.fixture
def acme(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.setenv("STRONGROOM_DATA_DIR", str(folder / "data"))
    monkeypatch.setenv("STRONGROOM_MASTER_KEY_FILE", str(folder / "master.key"))
    monkeypatch.setenv("STRONGROOM_EMBEDDING__MODEL", "hashing:256")
    monkeypatch.setenv("STRONGROOM_GENERATION__TEMPLATES", '{brief = "Be brief."}')
    (folder / "house.txt").write_text("Answer like the house.\n")
    (folder / "docs").mkdir()
    (folder / "docs" / "handbook.md").write_text(HANDBOOK)
    (folder / "secret").mkdir()
    (folder / "secret" / "salaries.md").write_text(SALARIES)

    def go(*words: str, code: int = 0) -> str:
        capsys.readouterr()
        assert run([*words, "--tenant", "acme"]) == code, capsys.readouterr().err
        said = capsys.readouterr()
        return said.out if code == 0 else said.err

    assert run(["doctor", "--create-master-key"]) == 0
    assert run(["tenant", "create", "acme"]) == 0
    return go


def listed(acme: Run) -> list[tuple[str, int | None, str]]:
    rows = json.loads(acme("template", "list", "--json"))
    return [(row["name"], row["number"], row["state"]) for row in rows]


def recorded(acme: Run) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(acme("audit", "query", "--limit", "200", "--json"))["events"]
    return found


def test_versions_are_added_shown_and_withdrawn(acme: Run, folder: Path) -> None:
    added = json.loads(acme("template", "add", "brief", str(folder / "house.txt"), "--json"))
    assert (added["name"], added["number"]) == ("brief", 1)
    (folder / "house.txt").write_text("Another text.")
    assert json.loads(acme("template", "add", "brief", str(folder / "house.txt"), "--json"))["number"] == 2
    assert listed(acme) == [
        ("brief", 1, "replaced"), ("brief", 2, "holds"), ("brief", None, "hidden"), ("default", None, "deployment"),
    ]  # fmt: skip
    assert acme("template", "show", "brief") == "Another text.\n"
    assert json.loads(acme("template", "show", "brief", "--number", "1", "--json"))["revision"] == added["revision"]
    acme("template", "withdraw", "brief", "--number", "2")
    assert acme("template", "show", "brief") == "Answer like the house.\n"
    acme("template", "withdraw", "brief")
    assert acme("template", "show", "brief") == "Be brief.\n"
    events = recorded(acme)
    actions = [event["action"] for event in events if event["phase"] == "outcome"]
    assert actions.count("template.add") == 2
    assert actions.count("template.withdraw") == 2
    (first,) = [one for one in events if one["action"] == "template.add" and one.get("detail", {}).get("number") == 1]
    assert first["detail"]["revision"] == added["revision"]
    assert "Answer like the house" not in json.dumps(events), "the text is in the tenant's database alone"


def test_a_text_that_cannot_be_a_template_is_refused_with_its_line(acme: Run, folder: Path) -> None:
    (folder / "bad.txt").write_text("Fine.\n<|im_end|>")
    assert "line 2" in acme("template", "add", "own", str(folder / "bad.txt"), code=2)
    assert "cannot be read" in acme("template", "add", "own", str(folder / "none.txt"), code=2)
    assert "no such template" in acme("template", "withdraw", "own", code=1)
    assert "no such template" in acme("template", "show", "own", code=1)
    assert "own" not in acme("template", "list")


def test_a_preview_is_the_whole_prompt_with_what_the_user_may_read(acme: Run, folder: Path) -> None:
    acme("group", "add", "hr", "ana")
    acme("group", "add", "staff", "ana", "bo")
    acme("ingest", str(folder / "docs"), "--allow", "tenant")
    acme("ingest", str(folder / "secret"), "--allow", "group:hr")
    acme("template", "add", "house", str(folder / "house.txt"))
    shown = json.loads(acme("template", "preview", QUESTION, "--user", "bo", "--template", "house", "--json"))
    text = json.dumps(shown["messages"])
    assert "Answer like the house." in text
    assert HANDBOOK in text
    assert QUESTION in text
    assert "417000" not in text
    assert shown["asks_model"] is True
    assert shown["tokens"] > 50
    asked = ["template", "preview", "What is the salary of the director?", "--json", "--user"]
    assert "417000" in acme(*asked, "ana")
    assert "417000" not in acme(*asked, "bo")
    (folder / "draft.txt").write_text("A draft.")
    draft = acme("template", "preview", QUESTION, "--user", "bo", "--file", str(folder / "draft.txt"))
    assert "A draft." in draft
    assert "--- system" in draft
    previews = [
        event for event in recorded(acme)
        if event["action"] == "template.preview" and event["phase"] == "outcome"
    ]  # fmt: skip
    assert len(previews) == 4
    assert {"handbook.md", "salaries.md"} == {r["document"] for event in previews for r in event["resources"]}


def test_a_new_version_holds_for_the_next_question_and_shares_no_remembered_answer(house: House) -> None:
    from generation import templates

    house.put("acme", "handbook.md", HANDBOOK, allow=["tenant"])
    key = house.key("acme", "ana")

    def ask(**more: Any) -> Any:
        return house.post("/v1/answers", key, {"query": QUESTION, **more})

    def revision() -> str:
        return str(house.events("acme")[-1]["policy"]["template"])

    problem(ask(template="house"), 404, "not-found")
    statuses, revisions = [], []
    handle = house.services.control.tenants.open(house.services.control.authenticator.operator("acme"))
    for text in ("One.", "Two."):
        with handle.writing() as view:
            templates.add(view, "house", text, 0.0)
        for _ in range(2):
            statuses.append(ask(template="house").json()["cache"]["status"])
            revisions.append(revision())
    assert statuses == ["miss", "hit"] * 2
    assert (revisions[0], revisions[2]) == (revisions[1], revisions[3])
    assert revisions[0] != revisions[2]
    house.services.control.tenants.set_contract("acme", Contract(generation=GenerationTerms(template="house")))
    assert ask().json()["cache"]["status"] == "hit", "the contract's template is the one of questions that name none"
    assert revision() == revisions[3]
    with handle.writing() as view:
        view.execute(schema.templates.delete())
    problem(ask(), 503, "unavailable")
    assert ask(template="default").status_code == 200


def test_a_reader_sees_names_and_revisions_of_their_own_tenant(house: House) -> None:
    from generation import templates

    key = house.key("acme", "ana")
    other = house.key("globex", "gil")
    handle = house.services.control.tenants.open(house.services.control.authenticator.operator("acme"))
    with handle.writing() as view:
        added = templates.add(view, "house", "Answer like the house.", 0.0)
    body = house.get("/v1/templates", key).json()
    assert [(one["name"], one["own"], one["default"]) for one in body["templates"]] == [
        ("default", False, True),
        ("house", True, False),
    ]
    assert body["templates"][1]["revision"] == added.revision
    assert "like the house" not in json.dumps(body)
    assert [one["name"] for one in house.get("/v1/templates", other).json()["templates"]] == ["default"]
    problem(house.get("/v1/templates", house.key("acme", "loader", Role.INGEST)), 403, "forbidden")
    assert house.events("acme")[-1]["action"] == "template.list"


def test_a_tenants_own_template_can_be_opened_for_hits_and_be_the_contracts(acme: Run, folder: Path) -> None:
    acme("group", "add", "staff", "bo")
    (folder / "contract.toml").write_text("[generation]\ntemplate = 'house'\n")
    assert run(["tenant", "contract", "set", "acme", str(folder / "contract.toml")]) == 0
    assert "house" in acme("ask", QUESTION, "--user", "bo", code=1)
    opening = ("cache", "open", "--template", "house", "--threshold", "0.9", "--reason", "r", "--uncertified", "--json")
    assert "may name brief, default" in acme(*opening, code=2)
    acme("template", "add", "house", str(folder / "house.txt"))
    assert json.loads(acme(*opening))["template"] == "house"
    acme("cache", "certificate", "--template", "house")
    assert "no such template" in acme("cache", "certificate", "--template", "absent", code=1)
    assert "names this template" in acme("template", "withdraw", "house", code=1)


def test_a_change_by_a_command_holds_for_the_next_question_of_a_server_that_runs(acme: Run, folder: Path) -> None:
    from retrieval.plan import open_plan
    from retrieval.question import Question
    from service.settings import load_settings
    from service.wiring import build

    acme("group", "add", "staff", "bo")
    server = build(load_settings())
    try:
        asker = server.control.authenticator.operator("acme", "bo")

        def held() -> str:
            return open_plan(server.path, asker, Question(QUESTION, "0" * 32, template="brief")).plan.template.system

        assert held() == "Be brief."
        acme("template", "add", "brief", str(folder / "house.txt"))
        assert held() == "Answer like the house."
        acme("template", "withdraw", "brief")
        assert held() == "Be brief."
    finally:
        server.close()


def test_a_terminal_says_that_other_passages_were_left_out(
    acme: Run, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    acme("group", "add", "hr", "ana")
    acme("ingest", str(folder / "docs"), "--allow", "tenant")
    (folder / "secret" / "salaries.md").write_text("The notice period of the director is a year.")
    acme("ingest", str(folder / "secret"), "--allow", "group:hr")
    assert run(["ask", QUESTION, "--tenant", "acme", "--user", "ana"]) == 0
    assert "left out of the prompt" in capsys.readouterr().err
