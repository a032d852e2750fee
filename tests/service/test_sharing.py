"""`strongroom cache stats`: who can share with whom, as numbers and in words."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from service.cli import run

Run = Callable[..., str]


@pytest.fixture
def acme(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Three people listed by name in one document, and a group of exactly these three."""
    monkeypatch.setenv("STRONGROOM_DATA_DIR", str(folder / "data"))
    monkeypatch.setenv("STRONGROOM_MASTER_KEY_FILE", str(folder / "master.key"))
    monkeypatch.setenv("STRONGROOM_EMBEDDING__MODEL", "hashing:256")

    def go(*words: str) -> str:
        capsys.readouterr()
        assert run([*words, "--tenant", "acme"]) == 0
        return capsys.readouterr().out

    assert run(["doctor", "--create-master-key"]) == 0
    assert run(["tenant", "create", "acme"]) == 0
    return go


def listed(acme: Run, folder: Path) -> None:
    acme("group", "add", "planners", "ana", "bo", "cy")
    for name, text in (("plan.md", "The plan is to move in May."), ("notice.md", "The notice period is three months.")):
        (folder / name).write_text(text)
    acme("ingest", str(folder / "notice.md"), "--allow", "tenant")
    acme("ingest", str(folder / "plan.md"), "--allow", "user:ana", "--allow", "user:bo", "--allow", "user:cy")


def test_an_empty_tenant_has_nothing_to_share(acme: Run) -> None:
    found = json.loads(acme("cache", "stats", "--json"))["sharing"]
    assert (found["users"], found["domains"], found["largest"]) == (0, 0, [])
    assert "nothing to share" in acme("cache", "stats")


def test_what_would_raise_sharing_without_wider_access(acme: Run, folder: Path) -> None:
    listed(acme, folder)
    for _ in range(2):
        acme("ask", "How long is the notice period?", "--user", "ana")
    found = json.loads(acme("cache", "stats", "--json"))["sharing"]
    assert (found["users"], found["domains"], found["alone"], found["attainable_domains"]) == (3, 3, 3, 1)
    (alike,) = found["same_documents"]
    assert alike == {"users": 3, "domains": 3, "documents": 1, "labels": 3, "group": "planners"}
    assert sorted((one["entries"], one["hits"]) for one in found["largest"]) == [(0, 0), (0, 0), (1, 1)]
    said = acme("cache", "stats")
    assert "3 users read exactly the same documents in 3 domains, because 1 document names them by 3 labels" in said
    assert "nobody would read more or less. The group planners has exactly these members." in said
    assert "ana" not in said
    # What it says is so.
    acme("acl", "set", "plan.md", "--allow", "group:planners")
    found = json.loads(acme("cache", "stats", "--json"))["sharing"]
    assert (found["domains"], found["alone"], found["same_documents"]) == (1, 0, [])


def test_names_are_shown_where_they_are_asked_for_and_that_is_on_record(acme: Run, folder: Path) -> None:
    listed(acme, folder)
    found: dict[str, Any] = json.loads(acme("cache", "stats", "--names", "--json"))["sharing"]
    assert found["same_documents"][0]["names"] == ["ana", "bo", "cy"]
    assert "ana" not in acme("cache", "stats", "--json")
    events = json.loads(acme("audit", "query", "--action", "cache.stats", "--json"))["events"]
    assert [event["detail"]["names"] for event in events if event["phase"] == "outcome"] == [False, True]
