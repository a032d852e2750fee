"""`strongroom cache explain`: the same ladder as when a question is asked, and nothing changed by looking."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.service.test_cli import Run, acme, cli, data

__all__ = ["acme", "cli"]

ASKED = "How long is the notice period?"
ALIKE = "How long is the notice period please?"
OPPOSITE = "How long is not the notice period?"


@pytest.fixture
def primed(acme: Run) -> Run:
    """ana has asked, and the template is open; nobody is on probation."""
    assert acme("ask", ASKED, "--tenant", "acme", "--user", "ana")[0] == 0
    opened = acme("cache", "open", "--tenant", "acme", "--threshold", "0.6", "--reason", "test", "--uncertified")
    assert opened[0] == 0
    return acme


def explained(cli: Run, question: str, *more: str, user: str = "ana") -> Any:
    return data(cli("cache", "explain", question, "--tenant", "acme", "--user", user, "--json", *more))


def events(cli: Run) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = data(cli("audit", "query", "--tenant", "acme", "--json"))["events"]
    return found


def test_an_exact_hit_is_explained_with_its_namespace_and_scope(primed: Run) -> None:
    found = explained(primed, ASKED)
    assert (found["would"], found["reason"], found["standing"]) == ("exact hit", None, None)
    assert found["domain"].startswith("pd_")
    assert found["namespace"].startswith("ns_")
    assert (found["scope"]["groups"], found["scope"]["readable"], found["scope"]["empty"]) == (["staff"], 1, None)
    assert [(step["kind"], step["rung"]) for step in found["steps"]] == [("exact", "cacheability"), ("exact", "exact")]
    (candidate,) = found["candidates"]
    assert [rung["rung"] for rung in candidate["rungs"]] == ["identity", "exact", "negatives", "freshness"]


def test_a_refused_candidate_shows_every_rung_with_its_reason(primed: Run) -> None:
    found = explained(primed, OPPOSITE)
    assert (found["would"], found["reason"]) == ("miss", "vetoed by a guard")
    (candidate,) = found["candidates"]
    rungs = {rung["rung"]: rung for rung in candidate["rungs"]}
    assert [rung["verdict"] for rung in candidate["rungs"]].count("refuse") >= 1
    assert next(rung for rung in candidate["rungs"] if rung["verdict"] == "refuse")["reason"]
    # Hashed words are no model that the score was fitted with.
    assert rungs["score"]["reason"] == "score fitted with another embedding model"
    assert rungs["freshness"]["verdict"] == "pass"
    assert found["standing"]["state"] == "uncertified"
    assert (found["standing"]["n"], found["standing"]["k"], found["standing"]["upper"]) == (0, 0, 1.0)
    assert (found["standing"]["floor"], found["standing"]["drawn"]) == (0.6, 0.1)


def test_what_it_says_is_what_asking_does(primed: Run) -> None:
    for question in (ASKED, ALIKE, OPPOSITE, "Who is on call today?", "Where is the canteen?"):
        said = explained(primed, question)
        asked = data(primed("ask", question, "--tenant", "acme", "--user", "ana", "--json"))["cache"]
        expected = f"{asked['kind']} hit" if asked["status"] == "hit" else "miss"
        assert said["would"] == expected, question
    bypassed = explained(primed, ASKED, "--cache", "bypass")
    assert (bypassed["would"], bypassed["reason"]) == ("miss", "bypassed")


def test_an_empty_scope_is_explained(primed: Run) -> None:
    found = explained(primed, ASKED, user="bo")
    assert (found["would"], found["reason"]) == ("miss", "not cacheable")
    assert found["scope"]["readable"] == 0
    assert found["scope"]["empty"] == "no access list names the user, a group of the user's or the whole tenant"
    assert primed("group", "add", "staff", "user:bo", "--tenant", "acme")[0] == 0
    assert explained(primed, ASKED, user="bo")["would"] == "exact hit"
    assert primed("acl", "set", "notice.md", "--allow", "group:staff", "--deny", "user:bo", "--tenant", "acme")[0] == 0
    denied = explained(primed, ASKED, user="bo")["scope"]
    assert (denied["allowed"], denied["readable"]) == (1, 0)
    assert denied["empty"] == "every document that allows the user or the user's groups denies one of them, too"


def test_looking_changes_nothing_and_is_on_record(primed: Run) -> None:
    before = data(primed("cache", "inspect", "--tenant", "acme", "--json"))
    for question in (ASKED, ALIKE, OPPOSITE):
        explained(primed, question)
    assert data(primed("cache", "inspect", "--tenant", "acme", "--json"))[0] == before[0]
    recorded = [event for event in events(primed) if event["action"] == "cache.explain"]
    assert {event["phase"] for event in recorded} == {"intent", "outcome"}
    assert len(recorded) == 6
    outcome = next(event for event in recorded if event["phase"] == "outcome")
    assert outcome["detail"]["why"] == "vetoed by a guard"
    assert outcome["content"]["question"]["commit"]
    assert "notice period" not in json.dumps([event | {"content": None} for event in recorded]), "sealed text alone"


def test_questions_of_candidates_are_shown_only_where_asked_for(primed: Run) -> None:
    assert "question" not in explained(primed, OPPOSITE)["candidates"][0]
    assert explained(primed, OPPOSITE, "--questions")["candidates"][0]["question"] == ASKED
    code, out, err = primed("cache", "explain", OPPOSITE, "--tenant", "acme", "--user", "ana")
    assert code == 0, err
    assert "would have been: miss: vetoed by a guard" in out
    assert "bound: uncertified, opened by" in out
    assert "answers are shared in the domain)" in out
    assert ASKED not in out


def test_what_cannot_be_asked_cannot_be_explained(primed: Run) -> None:
    code, _, err = primed("cache", "explain", ASKED, "--tenant", "acme", "--user", "nobody")
    assert (code, "no such user" in err) == (1, True)
    code, _, err = primed("cache", "explain", ASKED, "--tenant", "acme", "--user", "ana", "--template", "brief")
    assert (code, "no such template" in err) == (1, True)
