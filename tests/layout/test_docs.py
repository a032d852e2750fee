"""What the documentation names exists."""

from __future__ import annotations

import re

import pytest

from tests.layout.scope_rule import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
_PATH = re.compile(
    r"`((?:tests|service|retrieval|cache|generation|indexing|audit|tenancy|docs|configs|benchmarks|examples)/[\w./*-]*)"
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_path_that_a_page_names_exists(page: str) -> None:
    text = page.read_text(encoding="utf-8")
    missing = [name for name in _PATH.findall(text) if not list(ROOT.glob(name.rstrip("/.")))]
    assert missing == []


def test_every_row_of_the_threat_model_names_a_test_or_says_why_not() -> None:
    rows = re.findall(r"^\| .* \| (.*) \|$", (ROOT / "docs/THREAT-MODEL.md").read_text(), re.MULTILINE)[1:]
    assert len(rows) > 15
    assert [cell for cell in rows if "`tests/" not in cell and cell not in {"none", "not built"}] == []


def test_every_invariant_but_the_unbuilt_has_a_test() -> None:
    rows = re.findall(r"^\| (\d+) \|.*\| (.*) \|$", (ROOT / "docs/ARCHITECTURE.md").read_text(), re.MULTILINE)
    assert [number for number, _ in rows] == [str(number) for number in range(1, 13)]
    assert [number for number, tests in rows if "`tests/" not in tests] == ["12"]


def test_the_readme_names_only_commands_that_exist() -> None:
    from service.cli import app

    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    used = set(re.findall(r"(?:^|`|\$ )strongroom ([a-z]+)", text, re.MULTILINE))
    known = {name for name in app if not name.startswith("-")}
    assert used
    assert used - known == set()
