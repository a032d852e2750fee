"""Policies of a company of 1,260 people: does everybody find their own, and nobody another's? The last line is JSON.

    python -m benchmarks.policies --data DIR

DIR holds the policy PDFs and org.json (shared data: documents/policies). Everything is done as an operator does it:
`strongroom tenant create`, `strongroom ingest --manifest` of the PDFs, `group add` for departments, and a running
`strongroom serve`. The reporting tree becomes nested groups, one a manager: its members are the manager, the
groups of the managers below and the people below without reports. Each policy is readable by one department, one level
or one manager's team.

Twenty users of all departments then ask about every policy, for passages and for an answer, and the table shows who
was given which. Everybody else asks about one policy of somebody else, with room for a hundred passages, and about
those of their own that did not come along. The expected table comes from another process,
`benchmarks.policies_expected`, which imports nothing of the product. Exit code 1 on a difference.
"""

from __future__ import annotations

import argparse
import base64
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from benchmarks.policies_expected import ASSIGNMENT, read_org
from service.control import Control, open_control
from service.settings import load_settings
from tenancy import directory
from tenancy.identity import Role
from tenancy.keys import MasterKey

TENANT = "inazuma"
USERS = 20
STRONGROOM = Path(sys.executable).parent / "strongroom"

Assignment = Mapping[str, tuple[str, str]]
Command = Callable[..., str]


@dataclass
class Given:
    """What one user was given. `missed` are own policies that the question about them did not find."""

    shown: set[str] = field(default_factory=set)
    cited: set[str] = field(default_factory=set)
    missed: set[str] = field(default_factory=set)
    requests: int = 0


def group(reader: tuple[str, str]) -> str:
    """The group of a department, a level or a manager's team."""
    kind, name = reader
    return f"{kind}-{name}"


def title(policy: str) -> str:
    return policy.rpartition(".")[0]


def names_of(assignment: Assignment) -> dict[str, str]:
    """Policies by title."""
    return {title(policy): policy for policy in assignment}


def flat_groups(org: Sequence[Mapping[str, Any]], kind: str) -> dict[str, list[str]]:
    """Departments or levels with their people."""
    found: dict[str, list[str]] = {}
    for person in org:
        found.setdefault(group((kind, person[kind])), []).append(f"user:{person['user']}")
    return found


def nested_groups(org: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """A group for each manager: the manager, the teams of managers below, and people below without a team."""
    managers = {person["reports_to"] for person in org} - {None}
    found = {group(("team", manager)): [f"user:{manager}"] for manager in sorted(managers)}
    for person in org:
        if person["reports_to"] is not None:
            user = person["user"]
            member = f"group:{group(('team', user))}" if user in managers else f"user:{user}"
            found[group(("team", person["reports_to"]))].append(member)
    return found


def write_manifest(file: Path, assignment: Assignment) -> None:
    """The access lists as `strongroom ingest --manifest` reads them."""
    with file.open("w", encoding="utf-8", newline="") as lines:
        writer = csv.writer(lines)
        writer.writerow(["path", "title", "allow"])
        writer.writerows([policy, title(policy), f"group:{group(reader)}"] for policy, reader in assignment.items())


def load(
    command: Command, control: Control, files: Sequence[Path], manifest: Path, org: Sequence[Mapping[str, Any]]
) -> dict[str, int]:
    """Tenant, groups and policies; returns what became of the files. Levels and teams are written by the product's
    own directory functions in one transaction, since six hundred commands would take minutes.
    """
    command("tenant", "create", TENANT)
    for name, members in flat_groups(org, "department").items():
        command("group", "add", name, *members, "--tenant", TENANT)
    with control.tenants.open(control.authenticator.operator(TENANT)).writing() as view:
        for name, members in (flat_groups(org, "level") | nested_groups(org)).items():
            directory.add_members(view, name, members, time.time())
    output = command("ingest", *map(str, files), "--tenant", TENANT, "--manifest", str(manifest), "--json")
    summary: dict[str, int] = json.loads(output.strip().splitlines()[-1])
    return summary


def choose(org: Sequence[Mapping[str, Any]], readable: Mapping[str, set[str]], count: int = USERS) -> list[str]:
    """Users of all departments in turn: who reads most, then who reads least, then those between."""
    departments: dict[str, list[str]] = {}
    for person in org:
        departments.setdefault(person["department"], []).append(person["user"])
    ranked = [sorted(users, key=lambda user: (-len(readable[user]), user)) for _, users in sorted(departments.items())]
    turns = [[users[0] for users in ranked], [users[-1] for users in ranked]]
    turns += [[users[len(users) * part // 9] for users in ranked] for part in range(1, 9)]
    return sorted(list(dict.fromkeys(user for turn in turns for user in turn))[:count])


def ask_as(
    client: httpx.Client, key: str, asked: Iterable[str], own: set[str], names: Mapping[str, str], *, answers: bool
) -> Given:
    """Ask about each policy of `asked`; every policy that appears in a response was given. `names` are policies by
    title, since an answer without evidence names the nearest titles.
    """
    given = Given()
    headers = {"Authorization": f"Bearer {key}"}
    for policy in asked:
        question = f"What does the {title(policy)} say about duties, exceptions and breaches?"
        found = client.post("/v1/retrieve", json={"query": question, "top_k": 100}, headers=headers).raise_for_status()
        documents = {passage["document"] for passage in found.json()["passages"]}
        given.shown |= documents
        given.missed |= {policy} & (own - documents)
        given.requests += 1
        if answers:
            answer = client.post("/v1/answers", json={"query": question}, headers=headers).raise_for_status().json()
            cited = {citation["document"] for citation in answer["citations"]}
            given.shown |= cited | {names.get(near, near) for near in answer["nearest"]}
            given.cited |= {policy} & cited
            given.requests += 1
    return given


def differences(readable: Mapping[str, set[str]], given: Mapping[str, Given]) -> list[str]:
    """Every user who was given something else than expected, and what."""
    found = [
        f"{user} was given {sorted(one.shown - readable[user])}"
        for user, one in given.items()
        if one.shown - readable[user]
    ]
    for user, one in given.items():
        if lost := (readable[user] - one.shown) | one.missed:
            found.append(f"{user} did not find {sorted(lost)}")
    return found


def show(
    org: Sequence[Mapping[str, Any]], readable: Mapping[str, set[str]], given: Mapping[str, Given], users: Sequence[str]
) -> None:
    """Who was given which policies, by number, beside what is expected."""
    policies = sorted(ASSIGNMENT)
    for number, policy in enumerate(policies, 1):
        kind, name = ASSIGNMENT[policy]
        print(f"{number:>3}  {title(policy):<64} {kind} {name}")
    people = {person["user"]: person for person in org}
    print(f"\n{'user':<10}{'department':<24}{'level':<7}{'expected':<20}{'given':<20}{'cited':<20}")
    for user in users:
        row = [
            " ".join(str(policies.index(policy) + 1) for policy in sorted(found)) or "-"
            for found in (readable[user], given[user].shown, given[user].cited)
        ]
        person = people[user]
        print(f"{user:<10}{person['department']:<24}{person['level']:<7}{row[0]:<20}{row[1]:<20}{row[2]:<20}")


@contextmanager
def serving(environment: Mapping[str, str], log: Path) -> Iterator[httpx.Client]:
    """`strongroom serve` on a free port for the time of the block."""
    with log.open("wb") as errors:
        server = subprocess.Popen(
            [STRONGROOM, "serve", "--port", "0"], env=environment, stdout=subprocess.PIPE, stderr=errors, text=True
        )
    try:
        assert server.stdout is not None
        line = server.stdout.readline()
        if "listening on " not in line:
            raise RuntimeError(f"the server did not start: {log.read_text(encoding='utf-8')[-2000:]}")
        with httpx.Client(base_url=line.split()[-1], timeout=120, trust_env=False) as client:
            yield client
    finally:
        server.terminate()
        server.wait(timeout=60)


def run(data: Path, home: Path) -> int:
    master = os.urandom(32)
    environment = {
        **os.environ,
        "STRONGROOM_DATA_DIR": str(home / "data"),
        "STRONGROOM_MASTER_KEY": base64.b64encode(master).decode(),
        "STRONGROOM_ADMISSION__TENANT__REQUESTS_PER_MINUTE": "1000000",
        "STRONGROOM_ADMISSION__TENANT__TOKENS_PER_MINUTE": "1000000000",
    }

    def command(*arguments: str) -> str:
        done = subprocess.run([STRONGROOM, *arguments], env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"strongroom {arguments[0]} {arguments[1]}: {done.stderr}")
        return done.stdout

    org = read_org(data / "org.json")
    script = [sys.executable, "-m", "benchmarks.policies_expected", "--data", str(data)]
    output = subprocess.run(script, capture_output=True, text=True, check=True).stdout
    readable = {user: set(policies) for user, policies in json.loads(output).items()}
    manifest = home / "manifest.csv"
    write_manifest(manifest, ASSIGNMENT)
    control = open_control(load_settings(environment=environment), MasterKey(master))
    begun = time.perf_counter()
    try:
        summary = load(command, control, sorted(data.glob("*.pdf")), manifest, org)
        groups = sum(map(len, (flat_groups(org, "department"), flat_groups(org, "level"), nested_groups(org))))
        print(
            f"{summary} files; {len(org):,} users in {groups:,} groups: {time.perf_counter() - begun:.0f} s", flush=True
        )
        users = choose(org, readable)
        with serving(environment, home / "server.log") as client:
            given = _ask_chosen(client, command, readable, users)
            everybody = _ask_everybody(client, control, readable, [user for user in readable if user not in given])
    finally:
        control.close()
    show(org, readable, given, users)
    return _conclude(readable, given, everybody, summary, groups, begun)


def _ask_chosen(
    client: httpx.Client, command: Command, readable: Mapping[str, set[str]], users: Sequence[str]
) -> dict[str, Given]:
    given: dict[str, Given] = {}
    for user in users:
        key = json.loads(command("key", "create", "--tenant", TENANT, "--user", user, "--json"))["key"]
        given[user] = ask_as(client, key, sorted(ASSIGNMENT), readable[user], names_of(ASSIGNMENT), answers=True)
    return given


def _ask_everybody(
    client: httpx.Client, control: Control, readable: Mapping[str, set[str]], users: Sequence[str]
) -> dict[str, Given]:
    """Each asks about one policy of somebody else, and about those of their own that did not come along."""
    policies, names = sorted(ASSIGNMENT), names_of(ASSIGNMENT)
    given: dict[str, Given] = {}
    for number, user in enumerate(users):
        key = control.tenants.create_key(TENANT, user, [Role.READER]).text
        own = readable[user]
        others = [policy for policy in policies if policy not in own]
        first = ask_as(client, key, [others[number % len(others)]], own, names, answers=False)
        rest = ask_as(client, key, sorted(own - first.shown), own, names, answers=False)
        given[user] = Given(first.shown | rest.shown, set(), rest.missed, first.requests + rest.requests)
    return given


def _conclude(
    readable: Mapping[str, set[str]],
    given: Mapping[str, Given],
    everybody: Mapping[str, Given],
    summary: Mapping[str, int],
    groups: int,
    begun: float,
) -> int:
    different = differences(readable, {**given, **everybody})
    for line in different[:20]:
        print(f"DIFFERENT {line}", file=sys.stderr)
    asked = sum(one.requests for one in (*given.values(), *everybody.values()))
    own = sum(len(readable[user]) for user in given)
    cited = sum(len(one.cited) for one in given.values())
    print(f"\n{asked:,} requests as {len(given) + len(everybody):,} users, {len(different)} differences;")
    print(f"of {own} questions of the table about an own policy, {cited} were answered with a citation of it")
    result = {
        "policies": len(ASSIGNMENT), "files": dict(summary), "users": len(readable), "groups": groups,
        "table_users": len(given), "requests": asked, "own_asked": own, "own_cited": cited,
        "differences": len(different), "seconds": round(time.perf_counter() - begun),
    }  # fmt: skip
    print(json.dumps(result))
    return 1 if different else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    arguments = parser.parse_args()
    data = arguments.data
    if (data / "documents" / "policies").is_dir():
        data = data / "documents" / "policies"
    with tempfile.TemporaryDirectory(prefix="strongroom-policies-") as home:
        return run(data, Path(home))


if __name__ == "__main__":
    sys.exit(main())
