"""Who may read which policy, from the reporting tree and the assignment alone. Imports nothing of the product.

    python -m benchmarks.policies_expected --data DIR [--user NAME ...]

Prints one JSON object: for each user the names of the policies, sorted. A person is of a manager's team who reaches
that manager by `reports_to`, in any number of steps, and so is the manager.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

# Policy: who reads it, as ("department" | "level" | "team", name); a team is named by its manager.
ASSIGNMENT: Mapping[str, tuple[str, str]] = {
    "IT Asset Management Policy.pdf": ("department", "Information Technology"),
    "Inazuma.co Software Development Standards Policy.pdf": ("department", "Engineering"),
    "Inazuma.co Policy on Prevention of Sexual Harassment (POSH).pdf": ("department", "HR"),
    "Inazuma.co Travel and Business Expense Reimbursement Policy.pdf": ("department", "Sales"),
    "Inazuma.co Risk Management Policy.pdf": ("department", "Finance"),
    "Inazuma.co Corporate Governance Policy.pdf": ("department", "Management"),
    "Inazuma.co Social Media Policy.pdf": ("department", "Business Development"),
    "Inazuma.co Leave Policy.pdf": ("department", "BPO"),
    "Inazuma.co Employee Handbook.pdf": ("level", "EN09"),
    "Inazuma.co Software Development Lifecycle (SDLC) Policy.pdf": ("level", "EN12"),
    "Inazuma.co Performance Management Policy.pdf": ("level", "HR12"),
    "Inazuma.co Password Policy Document.pdf": ("level", "IN09"),
    "Inazuma.co Medical Insurance Policy.pdf": ("level", "BP09"),
    "Inazuma code of ethics.pdf": ("level", "FI10"),
    "Inazuma.co Acceptable Use Policy (AUP).pdf": ("level", "SA09"),
    "Inazuma.co Companies Act Policy.pdf": ("level", "MA12"),
    "Inazuma.co Information Security Policy.pdf": ("team", "emp_0808"),
    "Inazuma.co Data Breach Response and Notification Policy.pdf": ("team", "emp_0431"),
    "Inazuma.co Data Protection Policy.pdf": ("team", "emp_0545"),
    "Inazuma.co Privacy Notice Policy.pdf": ("team", "emp_0502"),
    "Inazuma.co Compliance Policy.pdf": ("team", "emp_0368"),
    "Inazuma.co Occupational Health and Safety Policy.pdf": ("team", "emp_0405"),
    "Inazuma.co Environmental Compliance Policy.pdf": ("team", "emp_0914"),
    "Inazuma.co Ecological Sustainability Policy.pdf": ("team", "emp_1203"),
}


def read_org(file: Path) -> list[dict[str, Any]]:
    """Users with `department`, `level` and `reports_to` (null at the top)."""
    org: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))
    return org


def expected(
    org: Sequence[Mapping[str, Any]], assignment: Mapping[str, tuple[str, str]] = ASSIGNMENT
) -> dict[str, set[str]]:
    """The policies that each user may read."""
    people = {person["user"]: person for person in org}
    readable: dict[str, set[str]] = {}
    for user, person in people.items():
        held = {("department", person["department"]), ("level", person["level"])}
        held |= {("team", manager) for manager in _upwards(user, people)}
        readable[user] = {policy for policy, reader in assignment.items() if reader in held}
    return readable


def _upwards(user: str, people: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    seen: set[str] = set()
    at: str | None = user
    while at is not None and at not in seen:
        seen.add(at)
        yield at
        at = people[at]["reports_to"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder that holds org.json")
    parser.add_argument("--user", nargs="+", help="only these")
    arguments = parser.parse_args()
    found = expected(read_org(arguments.data / "org.json"))
    chosen = arguments.user or sorted(found)
    print(json.dumps({user: sorted(found[user]) for user in chosen}, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
