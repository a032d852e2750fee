"""Files that grow, cannot be read, are too large, or are named in another encoding; folders that seem empty."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from indexing import documents
from indexing.acl_rules import Decision
from indexing.batch import ingest_paths
from indexing.embed import EmbeddingSettings, load_embedder
from indexing.ingest import Pipeline
from indexing.outcome import Outcome
from indexing.parse import ParseFailure, ParseLimits, ParseResult, parse
from indexing.pipeline import parse_here
from indexing.run import PruneLimit
from tenancy.acl import AccessList
from tenancy.tenant import TenantHandle
from tests.support.outcomes import word
from tests.support.people import NOW, Company

EVERYBODY = Decision(AccessList.of(["tenant"]), by="test")


def pipeline(**more: Any) -> Pipeline:
    return Pipeline(load_embedder(EmbeddingSettings(model="hashing:64")), clock=lambda: NOW, **more)


def run(company: Company, folder: Path, used: Pipeline | None = None, **more: Any) -> dict[str, Outcome]:
    outcomes = ingest_paths(company.handle, used or pipeline(), [folder], lambda _: EVERYBODY, lambda: None, **more)
    return {outcome.document: outcome for outcome in outcomes}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "share"
    root.mkdir()
    (root / "a.txt").write_text("apple")
    return root


def test_names_in_chinese_and_japanese_encodings_are_read_and_said_to_be_uncertain(acme: Company, folder: Path) -> None:
    for name in ("报告.txt".encode("gbk"), "報告書.txt".encode("cp932")):
        Path(os.fsdecode(bytes(folder) + b"/" + name)).write_text("text")
    found = run(acme, folder)
    assert {name: outcome.warnings for name, outcome in found.items()} == {
        "a.txt": (), "报告.txt": ("uncertain_name",), "報告書.txt": ("uncertain_name",),
    }  # fmt: skip
    assert {word(outcome) for outcome in run(acme, folder, prune=True).values()} == {"unchanged"}


def test_two_names_that_read_alike_are_not_one_document(acme: Company, folder: Path) -> None:
    (folder / "报告.txt").write_text("one")
    Path(os.fsdecode(bytes(folder) + b"/" + "报告.txt".encode("gbk"))).write_text("two")
    outcomes = list(ingest_paths(acme.handle, pipeline(), [folder], lambda _: EVERYBODY, lambda: None))
    assert sorted(word(outcome) for outcome in outcomes) == ["added", "added", "failed"]


def test_a_file_that_changes_while_it_is_read_is_read_again_and_one_that_never_stops_fails(
    acme: Company, folder: Path
) -> None:
    calls = []

    def parse(tenant: TenantHandle, name: str, content: bytes | BinaryIO, media_type: str | None) -> list[ParseResult]:
        calls.append(name)
        if name == "log.txt" or (name == "a.txt" and calls.count(name) == 1):
            with (folder / name).open("a") as file:
                file.write(" and more")
        return parse_here(tenant, name, content, media_type)

    (folder / "log.txt").write_text("line")
    found = run(acme, folder, pipeline(parse=parse))
    assert word(found["a.txt"]) == "added"
    assert found["log.txt"].reason == "the file changes while it is read"
    assert (calls.count("a.txt"), calls.count("log.txt")) == (2, 3)
    with acme.handle.reading() as view:
        stored = documents.find_stored(view, "a.txt")
    assert stored is not None
    assert word(run(acme, folder)["a.txt"]) == "unchanged"


def test_a_folder_that_nobody_may_open_says_what_to_do(
    acme: Company, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scanning = os.scandir

    def guarded(path: Any) -> Any:
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return scanning(path)

    (folder / "closed").mkdir()
    monkeypatch.setattr(os, "scandir", guarded)
    found = run(acme, folder)
    closed = found["closed"]
    assert (closed.status.value, closed.remedy) == ("failed", "check its permissions")
    assert word(found["a.txt"]) == "added"


def test_a_file_that_nobody_may_read_is_one_failure(
    acme: Company, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening = os.open

    def guarded(path: Any, flags: int, *more: Any, **others: Any) -> int:
        if str(path).endswith("closed.txt"):
            raise PermissionError(13, "Permission denied", str(path))
        return opening(path, flags, *more, **others)

    (folder / "closed.txt").write_text("text")
    monkeypatch.setattr(os, "open", guarded)
    found = run(acme, folder)
    closed = found["closed.txt"]
    assert (closed.status.value, closed.reason) == ("failed", "the file cannot be read: Permission denied")
    assert word(found["a.txt"]) == "added"


def test_a_file_over_the_limit_is_not_read_and_a_large_one_is_handed_on_open(acme: Company, folder: Path) -> None:
    handed: dict[str, bool] = {}

    def parse(tenant: TenantHandle, name: str, content: bytes | BinaryIO, media_type: str | None) -> list[ParseResult]:
        handed[name] = isinstance(content, bytes)
        return parse_here(tenant, name, content, media_type)

    with (folder / "huge.txt").open("wb") as file:
        file.truncate(10 * 2**30)
    (folder / "large.txt").write_text("The pear is ripe. " * 10_000)
    found = run(acme, folder, pipeline(parse=parse, max_bytes=2**20))
    assert found["huge.txt"].status.value == "too_large"
    assert handed == {"a.txt": True, "large.txt": False}
    assert word(found["large.txt"]) == "added"


def test_pruning_stops_at_its_limit_and_goes_on_where_it_is_raised(acme: Company, folder: Path) -> None:
    for number in range(39):
        (folder / f"{number:02}.txt").write_text(f"document {number}")
    run(acme, folder)
    for number in range(21):
        (folder / f"{number:02}.txt").unlink()
    refused = run(acme, folder, prune=True)[str(folder)]
    assert (refused.status.value, refused.reason) == (
        "failed", "21 of its 40 documents have no file any more: nothing of it was removed",
    )  # fmt: skip
    assert "--prune-limit 21" in (refused.remedy or "")
    assert len(documents.list_documents(acme.handle)) == 40
    (folder / "00.txt").write_text("document 0")
    found = run(acme, folder, prune=True)
    assert sum(word(outcome) == "removed" for outcome in found.values()) == 20
    (folder / "00.txt").unlink()
    assert run(acme, folder, prune=True, prune_limit=PruneLimit(0))[str(folder)].status.value == "failed"
    assert word(run(acme, folder, prune=True, prune_limit=PruneLimit(1))["00.txt"]) == "removed"


def test_an_empty_folder_is_taken_for_one_that_is_not_mounted(acme: Company, folder: Path) -> None:
    run(acme, folder)
    (folder / "a.txt").unlink()
    assert [word(outcome) for outcome in run(acme, folder, prune=True).values()] == ["failed"]
    assert word(run(acme, folder, prune=True, prune_limit=PruneLimit(1))["a.txt"]) == "removed"


@pytest.mark.parametrize(
    ("known", "most"),
    [(1, 1), (2, 1), (3, 1), (4, 2), (5, 2), (20, 10), (39, 19), (40, 20), (100, 20), (104, 20), (105, 21)],
)
def test_of_a_small_folder_half_the_files_may_go(known: int, most: int) -> None:
    files = [str(number) for number in range(known)]
    assert not PruneLimit().refuses(files[:most], files, 1)
    assert PruneLimit().refuses(files[: most + 1], files, 1) == (most < known)


def test_a_share_decides_for_large_folders_and_files_of_many_documents() -> None:
    limit, files = PruneLimit(), [str(number) for number in range(1_000)]
    assert not limit.refuses(files[:200], files, 800)
    assert limit.refuses(files[:201], files, 799)
    assert not limit.refuses([], [], 0)
    rows = ["rows.jsonl"] * 20
    assert not limit.refuses(rows, [*rows, "a", "b"], 2)
    assert limit.refuses([*rows, *rows[:1]], [*rows, *rows[:1], "a", "b"], 2)


def test_no_text_is_longer_than_it_may_be_in_any_format() -> None:
    limits = ParseLimits(max_characters=100)
    for name in ("long.txt", "long.md", "long.html", "unknown"):
        with pytest.raises(ParseFailure, match="more than 100 characters") as found:
            parse(name, b"The pear is ripe. " * 10, limits=limits)
        assert found.value.status == "too_large"
        assert len(parse(name, b"The pear is ripe.", limits=limits)) == 1
