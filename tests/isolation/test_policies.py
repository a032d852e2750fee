"""A small company with nested groups from its reporting tree: everybody finds their own policies, nobody another's.

The machinery is that of `benchmarks/policies.py`, which runs it on PDFs and 1,260 people; the expected table is
computed without the product's code.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from litestar.testing import TestClient

from benchmarks import policies
from benchmarks.policies_expected import expected
from service.app import create_app
from service.cli import run
from service.settings import load_settings
from service.wiring import Services, build
from tenancy import directory
from tenancy.identity import Role

DEPARTMENTS = ("Design", "Finance", "Repair")
ASSIGNMENT = {
    "Colour Guide.txt": ("department", "Design"),
    "Cash Handling.txt": ("department", "Finance"),
    "Workshop Safety.txt": ("department", "Repair"),
    "Probation Rules.txt": ("level", "FI1"),
    "Signing Powers.txt": ("level", "RE3"),
    "Prototype Secrecy.txt": ("team", "d-lead"),
    "Night Shift.txt": ("team", "r-lead"),
    "Spare Parts.txt": ("team", "r-first"),
    "Crane Inspection.txt": ("team", "r-first-1"),
}


def company() -> list[dict[str, Any]]:
    """Thirty people: in each department a lead, two seniors below and three or four people below each of them; one
    of the repairers has two more people, so that teams nest four deep.
    """
    found: list[dict[str, Any]] = []

    def hire(user: str, department: str, level: int, manager: str | None) -> None:
        code = f"{department[:2].upper()}{level}"
        found.append({"user": user, "department": department, "level": code, "reports_to": manager})

    for department in DEPARTMENTS:
        letter = department[0].lower()
        hire(f"{letter}-lead", department, 3, None)
        for senior, below in (("first", 4), ("second", 2)):
            hire(f"{letter}-{senior}", department, 2, f"{letter}-lead")
            for number in range(1, below + 1):
                hire(f"{letter}-{senior}-{number}", department, 1, f"{letter}-{senior}")
    hire("r-trainee-1", "Repair", 1, "r-first-1")
    hire("r-trainee-2", "Repair", 1, "r-first-1")
    hire("r-helper", "Repair", 1, "r-trainee-1")
    return found


@dataclass(frozen=True)
class Office:
    services: Services
    client: Any
    org: list[dict[str, Any]]
    summary: dict[str, int]

    def ask(self, user: str, own: set[str], *, answers: bool = True) -> policies.Given:
        key = self.services.control.tenants.create_key(policies.TENANT, user, [Role.READER]).text
        names = policies.names_of(ASSIGNMENT)
        return policies.ask_as(self.client, key, sorted(ASSIGNMENT), own, names, answers=answers)


@pytest.fixture
def office(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Office]:
    monkeypatch.setenv("STRONGROOM_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("STRONGROOM_MASTER_KEY_FILE", str(tmp_path / "master.key"))
    monkeypatch.setenv("STRONGROOM_EMBEDDING__MODEL", "hashing:256")

    def command(*words: str) -> str:
        code = run(words)
        said = capsys.readouterr()
        assert code == 0, said.err
        return said.out

    run(["doctor", "--create-master-key"])
    texts = tmp_path / "texts"
    texts.mkdir()
    for policy, (kind, name) in ASSIGNMENT.items():
        title = policies.title(policy)
        text = f"{title}.\n\nThe {title} says which duties, exceptions and breaches there are for {kind} {name}."
        (texts / policy).write_text(text, encoding="utf-8")
    policies.write_manifest(tmp_path / "manifest.csv", ASSIGNMENT)
    services = build(load_settings())
    try:
        with TestClient(create_app(services)) as client:
            org = company()
            files = sorted(texts.iterdir())
            summary = policies.load(command, services.control, files, tmp_path / "manifest.csv", org)
            yield Office(services, client, org, summary)
    finally:
        services.close()


@pytest.mark.slow
def test_everybody_finds_their_own_policies_and_nobody_anothers(office: Office) -> None:
    readable = expected(office.org, ASSIGNMENT)
    assert office.summary["indexed"] == len(ASSIGNMENT)
    assert readable["r-helper"] == {"Workshop Safety.txt", "Night Shift.txt", "Spare Parts.txt", "Crane Inspection.txt"}
    assert readable["r-second"] == {"Workshop Safety.txt", "Night Shift.txt"}
    answered = policies.choose(office.org, readable, 9)
    given = {user: office.ask(user, own, answers=user in answered) for user, own in readable.items()}
    assert len(given) == 30
    assert policies.differences(readable, given) == []
    assert sum(len(given[user].cited) for user in answered) >= 0.9 * sum(len(readable[user]) for user in answered)


@pytest.mark.slow
def test_a_new_manager_is_followed_at_the_next_question(office: Office) -> None:
    """A repairer moves to Design's lead, and the expected table moves with the tree; an outdated tree is noticed."""
    before = expected(office.org, ASSIGNMENT)
    office.ask("r-helper", before["r-helper"])
    moved = [person | ({"reports_to": "d-lead"} if person["user"] == "r-trainee-1" else {}) for person in office.org]
    with office.services.control.tenants.open(
        office.services.control.authenticator.operator(policies.TENANT)
    ).writing() as view:
        directory.remove_members(view, "team-r-first-1", ["group:team-r-trainee-1"])
        directory.add_members(view, "team-d-lead", ["group:team-r-trainee-1"], 0.0)
    after = expected(moved, ASSIGNMENT)
    assert after["r-helper"] == {"Workshop Safety.txt", "Prototype Secrecy.txt"}
    given = {user: office.ask(user, after[user]) for user in ("r-helper", "r-trainee-1", "r-first-1")}
    assert policies.differences(after, given) == []
    assert len(policies.differences(before, given)) == 4, "two people were given one policy more and found three less"


def test_the_expected_table_is_computed_without_the_product() -> None:
    """In a process of its own, nothing but the standard library and the script is loaded."""
    script = (
        "import sys, json, benchmarks.policies_expected as e\n"
        "print(json.dumps([name for name in sys.modules if name.partition('.')[0] in "
        "{'tenancy', 'audit', 'cache', 'generation', 'indexing', 'retrieval', 'service'}]))"
    )
    root = Path(policies.__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []
