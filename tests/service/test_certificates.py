"""`strongroom cache certificate`, `suspend` and `resume`: true counts, and what an operator stops stays stopped."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cache.certificate import evidence
from cache.certificate.evidence import Place
from service.cli import run
from service.control import open_control
from service.settings import load_settings
from tenancy.cache_schema import cache_feedback
from tests.support.scores import any_model_score

NOTICE = "Notice periods. The notice period for employees is three months to the end of a quarter."
ASKED = "What is the notice period for employees?"
PARAPHRASE = "Which notice period is there for employees?"
DIFFERENT = "What is the notice period for 12 employees?"

Command = Callable[..., Any]


@pytest.fixture
def command(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run a command on tenant acme, whose hits are served where opened, and compared where not; gives its JSON."""
    for name in [name for name in os.environ if name.startswith("STRONGROOM_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("STRONGROOM_DATA_DIR", str(folder / "data"))
    monkeypatch.setenv("STRONGROOM_MASTER_KEY_FILE", str(folder / "master.key"))
    monkeypatch.setenv("STRONGROOM_EMBEDDING__MODEL", "hashing:256")
    monkeypatch.setenv(
        "STRONGROOM_CACHE__TEMPLATES", "{default = {shadow = 1e-9, probation = 0, alpha = 0.05, score = 0.0}}"
    )
    monkeypatch.setattr("service.wiring.default_score", any_model_score)

    def go(*words: str, code: int = 0) -> Any:
        assert run([*words, "--json"]) == code, capsys.readouterr().err
        out = capsys.readouterr().out.splitlines()
        return json.loads(out[-1]) if code == 0 else None

    go("doctor", "--create-master-key")
    go("tenant", "create", "acme")
    go("key", "create", "--tenant", "acme", "--user", "ana")
    (folder / "docs").mkdir()
    (folder / "docs" / "notice.md").write_text(NOTICE)
    go("ingest", "--tenant", "acme", str(folder / "docs"), "--allow", "tenant")
    return go


def ask(command: Command, question: str) -> dict[str, Any]:
    found: dict[str, Any] = command("ask", question, "--tenant", "acme", "--user", "ana")
    return found


def open_template(command: Command) -> None:
    command("cache", "open", "--tenant", "acme", "--threshold", "0.5", "--reason", "trial", "--uncertified")


def rows(command: Command) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = command("cache", "certificate", "--tenant", "acme")
    return found


def test_what_was_compared_served_and_refused_is_counted(command: Command) -> None:
    assert rows(command) == []
    ask(command, ASKED)
    # Nothing is served yet: the hit is answered afresh and compared.
    assert ask(command, PARAPHRASE)["cache"]["status"] == "miss"
    (row,) = rows(command)
    assert (row["template"], row["state"], row["n"], row["k"], row["hits"]) == ("default", "uncertified", 1, 0, 0)
    assert (row["alpha"], row["lower"]) == (0.05, 0.0)
    assert 0.05 < row["upper"] < 1.0
    assert ask(command, DIFFERENT)["cache"]["status"] == "miss"
    (row,) = rows(command)
    assert sum(row["refused_by_reason"].values()) >= 1
    assert any(reason.startswith("slots") for reason in row["refused_by_reason"])
    assert row["wrong_by_reason"] == {}


def test_served_hits_are_counted_by_namespace_under_their_ladder(command: Command) -> None:
    open_template(command)
    ask(command, ASKED)
    hit = ask(command, PARAPHRASE)
    assert (hit["cache"]["kind"], hit["cache"]["certified"]) == ("semantic", "uncertified")
    (row,) = rows(command)
    assert (row["state"], row["n"], row["hits"], row["since"]) == ("uncertified", 0, 1, None)
    assert list(row["hits_by_namespace"].values()) == [1]
    event = command("audit", "query", "--tenant", "acme", "--cache", "hit", "--limit", "1")["events"][0]
    assert list(row["hits_by_namespace"]) == [event["cache"]["namespace"]]
    assert row["ladder"] == event["cache"]["rules"]
    command("cache", "suspend", "--tenant", "acme", "--reason", "look into it")
    stopped = next(row for row in rows(command) if row["ladder"] == "*")
    assert (stopped["state"], stopped["why"]) == ("suspended", "operator")


def test_a_suspended_template_serves_nothing_though_it_is_open(command: Command) -> None:
    open_template(command)
    ask(command, ASKED)
    command("cache", "suspend", "--tenant", "acme", "--reason", "look into it")
    other = "Which notice period is there here for employees?"
    assert ask(command, other)["cache"]["status"] == "miss"
    assert ask(command, ASKED)["cache"]["kind"] == "exact"
    resumed = command("cache", "resume", "--tenant", "acme", "--reason", "it was fine")
    assert resumed == {"template": "default", "ended": 1}
    assert ask(command, PARAPHRASE)["cache"]["kind"] == "semantic"
    command("cache", "resume", "--tenant", "acme", "--reason", "again", code=1)


def test_both_are_on_record_with_their_reason(command: Command) -> None:
    command("cache", "suspend", "--tenant", "acme", "--reason", "look into it")
    command("cache", "resume", "--tenant", "acme", "--reason", "it was fine")
    command("cache", "certificate", "--tenant", "acme")
    events = command("audit", "query", "--tenant", "acme", "--order", "asc", "--limit", "1000")["events"]
    done = [event for event in events if event["phase"] == "outcome" and event["action"].startswith("cache.")]
    assert [event["action"] for event in done] == ["cache.suspend", "cache.resume", "cache.certificate"]
    assert [event["detail"].get("why") for event in done[:2]] == ["look into it", "it was fine"]


def test_an_unknown_template_and_an_empty_reason_are_refused(command: Command) -> None:
    at = ("--tenant", "acme")
    known = ("--template", "default")
    command("cache", "suspend", *at, "--template", "nope", "--reason", "trial", code=1)
    command("cache", "certificate", *at, "--template", "nope", code=1)
    for reason in ("", "  "):
        command("cache", "suspend", *at, *known, "--reason", reason, code=2)
    assert rows(command) == []
    command("cache", "suspend", *at, *known, "--reason", "trial")
    command("cache", "resume", *at, *known, "--reason", " ", code=2)
    command("cache", "resume", *at, *known, "--reason", "over")
    command("cache", "certificate", *at, *known)


def test_what_is_missing_for_a_certificate_is_shown(
    command: Command, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STRONGROOM_CACHE__TEMPLATES", "{default = {probation = 0, score = 0.0}}")
    assert run(["cache", "certificate", "--tenant", "acme"]) == 0
    shown = capsys.readouterr().err
    assert "410 right labels, of at least 5 further people, about at least 41 further stored answers" in shown
    ask(command, ASKED)
    ask(command, PARAPHRASE)
    (row,) = rows(command)
    assert (row["n"], row["alpha"]) == (1, 0.01)
    # One label of one answer and one asker is there.
    assert row["needs"] == {"labels": 409, "askers": 4, "entries": 40}
    assert run(["cache", "certificate", "--tenant", "acme"]) == 0
    shown = capsys.readouterr().out
    assert "409 right labels, of at least 4 further people, about at least 40 further stored answers" in shown
    command("cache", "suspend", "--tenant", "acme", "--reason", "look into it")
    assert [row["needs"] is None for row in rows(command)] == [row["ladder"] == "*" for row in rows(command)]


def test_an_operator_sees_reports_and_confirms_them(command: Command) -> None:
    at = ("--tenant", "acme")
    assert command("cache", "reports", *at) == []
    command("cache", "confirm", *at, "--answer", "0" * 32, "--reason", "looked at it", code=1)
    command("cache", "confirm", *at, "--answer", "0" * 32, "--reason", " ", code=2)
    control = open_control(load_settings())
    with control.tenants.open(control.authenticator.operator("acme")).writing() as view:
        for number in range(9):
            said = {"answer": f"{number:032x}", "at": 1.0, "verdict": "wrong_hit", "reporter": bytes([number])}
            whose = {"template": "default", "ladder": "lv_1", "pair": bytes([number])}
            view.execute(cache_feedback.insert().values(said | whose))
            evidence.begin(view, Place("default", "lv_1", "", 0.05), 0.0)
    control.close()
    states = []
    for told in command("cache", "reports", *at):
        assert told["confirmed"] is None
        states.append(command("cache", "confirm", *at, "--answer", told["answer"], "--reason", "looked")["state"])
    assert (states[0], states[-1]) == ("uncertified", "suspended")
    assert {told["confirmed"] for told in command("cache", "reports", *at)} == {"operator"}
    events = command("audit", "query", *at, "--order", "asc", "--limit", "1000")["events"]
    done = [event for event in events if event["phase"] == "outcome" and event["action"] == "cache.confirm"]
    assert done[-1]["detail"]["why"] == "looked"
