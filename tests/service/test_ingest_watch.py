"""`strongroom ingest --watch`: what is saved is loaded, rules are read anew, errors pass, and it ends cleanly."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest

from indexing.acl_rules import Decision
from indexing.batch import ingest_paths
from indexing.embed import EmbeddingSettings, load_embedder
from indexing.ingest import Pipeline
from indexing.outcome import Outcome
from indexing.walk import Found
from service.cli.console import Common
from service.cli.ingest_access import Sources
from service.cli.ingest_report import Tally
from service.cli.ingest_watch import _Following
from tenancy.errors import StrongroomError, TenantSuspended, Unavailable
from tests.support.people import Company

PIPELINE = Pipeline(load_embedder(EmbeddingSettings(model="hashing:64")))
STRONGROOM = Path(sys.executable).parent / "strongroom"


class Passes:
    """Stands where `Loading` does: real passes into a tenant, of which the next ones may fail."""

    def __init__(self, company: Company, folder: Path) -> None:
        self.paths = [folder]
        self.company = company
        self.looked_at: list[Any] = []
        self.failing: list[StrongroomError] = []

    async def load(
        self,
        decide: Callable[[Found], Decision | None],
        done: Callable[[Outcome], None],
        only: Collection[Path] | None = None,
    ) -> None:
        self.looked_at.append(None if only is None else sorted(path.name for path in only))
        if self.failing:
            raise self.failing.pop(0)
        for outcome in ingest_paths(self.company.handle, PIPELINE, self.paths, decide, lambda: None, only=only):
            done(outcome)


@pytest.fixture
def passes(acme: Company, tmp_path: Path) -> Passes:
    folder = tmp_path / "share"
    folder.mkdir()
    (folder / "a.txt").write_text("apple")
    return Passes(acme, folder)


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "access.toml"
    path.write_text('[default]\nallow = ["tenant"]\n')
    return path


@pytest.fixture
def following(passes: Passes, rules: Path) -> _Following:
    sources = Sources(rules, None, (), (), None, folder_rules=True)
    found = _Following(passes, sources, sources.read(), Common(), Tally())  # type: ignore[arg-type]
    found.begin()
    return found


def readers(passes: Passes, name: str) -> list[str]:
    from indexing.documents import show_document

    return sorted(show_document(passes.company.handle, name).access.allow)


def test_only_what_changed_is_looked_at(passes: Passes, following: _Following) -> None:
    following.step(set())
    (passes.paths[0] / "b.txt").write_text("pear")
    following.step({passes.paths[0] / "b.txt"})
    assert passes.looked_at == [None, ["b.txt"]]
    assert readers(passes, "b.txt") == ["tenant"]


def test_new_rules_hold_at_once_for_all_and_broken_ones_change_nothing(
    passes: Passes, following: _Following, rules: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules.write_text('[default]\nallow = ["user:ana"]\n')
    following.step(set())
    assert passes.looked_at == [None, None]
    assert readers(passes, "a.txt") == ["user:ana"]
    rules.write_text("[default")
    following.step(set())
    assert "the rules stay as they were" in capsys.readouterr().err
    (passes.paths[0] / "b.txt").write_text("pear")
    following.step({passes.paths[0] / "b.txt"})
    assert passes.looked_at == [None, None, ["b.txt"]]
    assert readers(passes, "b.txt") == ["user:ana"]


def test_a_link_follows_the_rules_of_where_it_leads(passes: Passes, following: _Following) -> None:
    share = passes.paths[0]
    (share / "hr").mkdir()
    (share / "hr" / "pay.txt").write_text("pay")
    (share / "open").mkdir()
    (share / "open" / "link.txt").symlink_to(share / "hr" / "pay.txt")
    following.step({share / "hr", share / "open"})
    assert readers(passes, "open/link.txt") == ["tenant"]
    (share / "hr" / ".strongroom.toml").write_text('[default]\nallow = ["group:hr"]\n')
    (share / "hr" / ".strongroom.toml").chmod(0o644)
    following.step({share / "hr"})
    assert passes.looked_at[-1] == ["hr", "link.txt"]
    assert readers(passes, "hr/pay.txt") == readers(passes, "open/link.txt") == ["group:hr"]


def test_what_failed_is_tried_again_after_a_pause(
    passes: Passes, following: _Following, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1_000.0]
    monkeypatch.setattr("service.cli.ingest_watch.time.monotonic", lambda: now[0])
    following._whole_at = 10_000.0
    (passes.paths[0] / "b.txt").write_text("pear")
    passes.failing = [Unavailable("the engine is away", item="acme", remedy="start it"), Unavailable("still", item="x")]
    following.step({passes.paths[0] / "b.txt"})
    assert "error: acme: the engine is away (start it)" in capsys.readouterr().err
    following.step({passes.paths[0] / "c.txt"})
    assert passes.looked_at == [None, ["b.txt"]]
    now[0] += 1.0
    following.step(set())
    now[0] += 1.0
    following.step(set())
    assert passes.looked_at == [None, ["b.txt"], ["b.txt", "c.txt"]]
    now[0] += 1.0
    following.step(set())
    assert passes.looked_at == [None, ["b.txt"], ["b.txt", "c.txt"], ["b.txt", "c.txt"]]
    assert readers(passes, "b.txt") == ["tenant"]


def test_what_no_waiting_mends_ends_it(passes: Passes, following: _Following) -> None:
    passes.failing = [TenantSuspended("acme is suspended", item="acme")]
    with pytest.raises(TenantSuspended):
        following.step({passes.paths[0] / "a.txt"})


@pytest.mark.slow
def test_a_save_is_loaded_and_a_signal_ends_it_with_a_summary(folder: Path) -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("STRONGROOM_")}
    environment = {
        **clean,
        "STRONGROOM_DATA_DIR": str(folder / "data"),
        "STRONGROOM_MASTER_KEY": "A" * 43 + "=",
        "STRONGROOM_EMBEDDING__MODEL": "hashing:64",
    }
    docs = folder / "docs"
    docs.mkdir()
    (docs / "a.md").write_text("apple")
    subprocess.run([STRONGROOM, "tenant", "create", "acme"], env=environment, check=True, capture_output=True)
    words = [STRONGROOM, "ingest", "--tenant", "acme", str(docs), "--allow", "tenant", "--watch", "--json"]
    process = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stderr is not None
    for line in process.stderr:
        if "watching" in line:
            break
    assert json.loads(process.stdout.readline())["document"] == "a.md"
    (docs / "b.md").write_text("pear")
    saved = json.loads(process.stdout.readline())
    assert (saved["document"], saved["status"], saved["change"]) == ("b.md", "indexed", "added")
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=60)
    summary = json.loads(out.splitlines()[-1])
    assert (process.returncode, summary["indexed"], summary["changes"]["added"]) == (0, 2, 2)
    listed = subprocess.run(
        [STRONGROOM, "audit", "query", "--tenant", "acme", "--action", "ingest", "--json"],
        env=environment, check=True, capture_output=True, text=True,
    )  # fmt: skip
    # The signal may come before the second pass ends.
    outcomes = [one["outcome"] for one in json.loads(listed.stdout)["events"] if "outcome" in one]
    assert outcomes in (["allowed", "allowed"], ["allowed", "aborted"], ["aborted", "allowed"])


def test_a_line_of_the_manifest_about_an_attachment_is_told(passes: Passes, tmp_path: Path) -> None:
    """It decides nothing: what it forbids would be read."""
    (passes.paths[0] / "b.jsonl").write_text('{"id": 1, "text": "one"}\n')
    manifest = tmp_path / "manifest.jsonl"
    manifest.write_text('{"path": "b.jsonl#1", "allow": []}\n{"path": "b.jsonl", "allow": ["user:ana"]}\n')
    access = Sources(None, manifest, (), (), None, folder_rules=True).read()
    for outcome in ingest_paths(passes.company.handle, PIPELINE, passes.paths, access.decide, lambda: None):
        access.done(outcome)
    assert list(access.unused()) == ["manifest.jsonl, line 1"]
    assert readers(passes, "b.jsonl#1") == ["user:ana"]
