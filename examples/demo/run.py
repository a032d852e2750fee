"""The demo: two companies of one trade, their people, the same questions. Every step is a command or a request.

usage: python -m examples.demo.run [--keep DIR]     (make demo)
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.panel import Panel
from rich.table import Table

HERE = Path(__file__).resolve().parent
DOCUMENTS = HERE / "documents"
STRONGROOM = Path(sys.executable).parent / "strongroom"

# Who works where. The groups decide what each may read; see documents/*/access.toml.
PEOPLE = {
    "aurora": {"ana": ["hr"], "gil": ["hr"], "bo": ["purchasing"], "cy": ["board"], "dee": []},
    "basalt": {"eve": ["hr"], "finn": []},
}

console = Console(width=110)


class DemoFailed(Exception):
    """Something that the demo promises to show did not happen."""


@dataclass(frozen=True, slots=True)
class Shown:
    """An answer as it stands on the screen."""

    status: int
    body: dict[str, Any]
    cache_status: str

    @property
    def text(self) -> str:
        return str(self.body.get("answer", ""))

    @property
    def documents(self) -> list[str]:
        return sorted({citation["document"] for citation in self.body.get("citations", [])})

    @property
    def kind(self) -> str:
        cache = self.body["cache"]
        return f"{cache['status']} {cache.get('kind') or ''}".strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", type=Path, help="keep the data directory here")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="strongroom-demo-") as temporary:
        home = arguments.keep or Path(temporary)
        home.mkdir(parents=True, exist_ok=True)
        environment = {
            **os.environ,
            "STRONGROOM_DATA_DIR": str(home / "data"),
            "STRONGROOM_MASTER_KEY_FILE": str(home / "master.key"),
            # In earnest, an entry's first semantic hits are compared with fresh answers, and others now and then.
            "STRONGROOM_CACHE__TEMPLATES": "{default = {probation = 0, shadow = 0}}",
        }
        try:
            keys = prepare(environment)
            with serving(environment, home / "server.log") as client:
                show_answers(client, keys)
                show_refusal(client, keys)
                show_cache(client, keys, environment)
                show_audit(environment)
        except DemoFailed as failure:
            console.print(f"[bold red]The demo failed:[/] {failure}", highlight=False)
            return 1
    console.print("\n[bold green]Done.[/] Next: 'Your own documents' in README.md.", highlight=False)
    return 0


def prepare(environment: dict[str, str]) -> dict[str, str]:
    """Create tenants, keys, documents; returns the API key of each person by name."""
    title("1. Two tenants, each with its own encrypted collection")
    command(environment, "doctor", "--create-master-key", "--json", show="doctor --create-master-key", check=False)
    keys: dict[str, str] = {}
    for tenant, people in PEOPLE.items():
        command(environment, "tenant", "create", tenant)
        for user, groups in people.items():
            options = [part for group in groups for part in ("--group", group)]
            made = command(environment, "key", "create", "--tenant", tenant, "--user", user, *options, "--json")
            keys[user] = json.loads(made)["key"]
        folder = DOCUMENTS / tenant
        output = command(
            environment,
            *("ingest", "--tenant", tenant, str(folder), "--acl", str(folder / "access.toml"), "--json"),
            show=f"ingest --tenant {tenant} documents/{tenant} --acl documents/{tenant}/access.toml",
        )
        summary = json.loads(output.strip().splitlines()[-1])
        console.print(f"   {tenant}: {summary.get('indexed', summary)} documents added")
    return keys


@contextmanager
def serving(environment: dict[str, str], log: Path) -> Iterator[httpx.Client]:
    """A real server on a free port of this machine, for the time of the block."""
    port = _free_port()
    console.print(f"[dim]$ strongroom serve --port {port}[/]", highlight=False)
    with log.open("wb") as output:
        server = subprocess.Popen(
            [STRONGROOM, "serve", "--port", str(port)], env=environment, stdout=output, stderr=output
        )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            _wait_until_ready(client, server, log)
            yield client
    finally:
        server.terminate()
        server.wait(timeout=30)


def show_answers(client: httpx.Client, keys: dict[str, str]) -> None:
    title("2. One question, two tenants: each gets its own answer, with citations")
    table = _table("who", "question", "answer", "cited")
    expected = {"ana": "36 months", "eve": "24 months"}
    for user, fact in expected.items():
        shown = ask(client, keys[user], "How long is the warranty on a new machine?")
        table.add_row(
            _whose(user), "How long is the warranty on a new machine?", shown.text, "\n".join(shown.documents)
        )
        require(fact in shown.text, f"{user} was not told {fact}")
        require(bool(shown.documents), f"the answer for {user} has no citation")
    console.print(table)


def show_refusal(client: httpx.Client, keys: dict[str, str]) -> None:
    title("3. One tenant, two people: salaries are for the group hr alone")
    table = _table("who", "question", "answer", "cited")
    question = "How much does a senior technician earn a year?"
    allowed, refused = ask(client, keys["ana"], question), ask(client, keys["dee"], question)
    for user, shown in (("ana", allowed), ("dee", refused)):
        table.add_row(_whose(user), question, shown.text, "\n".join(shown.documents) or "-")
    console.print(table)
    require("44,000" in allowed.text, "ana may read the salary bands and was not told")
    require("44,000" not in json.dumps(refused.body), "dee was told what she may not read")
    require(not any("salar" in document for document in refused.documents), "dee got a citation of the salaries")


def show_cache(client: httpx.Client, keys: dict[str, str], environment: dict[str, str]) -> None:
    title("4. The semantic cache: inside one permission domain, and never across it")
    command(
        environment,
        *("cache", "open", "--tenant", "aurora", "--template", "default", "--threshold", "0.8"),
        *("--reason", "demonstration", "--uncertified"),
    )
    console.print(
        Panel(
            "aurora's template `default` is now open for semantic hits by an operator's override, uncertified."
            "\nEvery such hit says [bold]uncertified[/], here and in the audit.",
            border_style="yellow",
        )
    )
    first, paraphrase = "What is the daily meal allowance?", "What is the daily allowance for meals?"
    table = _table("who", "groups", "question", "cache", "answer")
    rows: list[tuple[str, str, Shown]] = []
    for user, question in (("ana", first), ("ana", first), ("gil", paraphrase), ("dee", first), ("eve", first)):
        shown = ask(client, keys[user], question)
        rows.append((user, question, shown))
        certified = " [yellow]uncertified[/]" if shown.body["cache"].get("certified") == "uncertified" else ""
        groups = ", ".join(PEOPLE[_tenant(user)][user]) or "-"
        table.add_row(_whose(user), groups, question, shown.kind + certified, shown.text)
    console.print(table)
    kinds = [shown.kind for _, _, shown in rows]
    require(kinds == ["miss", "hit exact", "hit semantic", "miss", "miss"], f"the cache answered {kinds}")
    require(rows[2][2].text == rows[0][2].text, "the semantic hit is another text")
    require(rows[2][2].body["cache"]["certified"] == "uncertified", "a semantic hit does not say uncertified")
    require("24 EUR" in rows[4][2].text, "basalt's own answer is missing")


def show_audit(environment: dict[str, str]) -> None:
    title("5. The audit trail of both tenants")
    for tenant in PEOPLE:
        words = ("audit", "query", "--tenant", tenant, "--action", "answer")
        events = json.loads(command(environment, *words, "--json", show=" ".join(words)))["events"]
        asked = {event["seq"]: event["content"] for event in events if event["phase"] == "intent"}
        table = _table("seq", "who", "question", "cache", "cited documents")
        for event in events:
            if event["phase"] != "outcome":
                continue
            content = asked[event["intent"]]
            cache = event.get("cache") or {}
            bound = (cache.get("bound") or {}).get("state", "")
            documents = sorted({resource["document"] for resource in event.get("resources", [])
                                if resource["stage"] in {"cited", "replayed"}})  # fmt: skip
            kind = " ".join(filter(None, (cache.get("status"), cache.get("kind"), bound)))
            who, question = content["user"]["text"], content["question"]["text"]
            table.add_row(str(event["seq"]), who, question, kind, "\n".join(documents) or "- (no answer)")
        console.print(f"[bold]{tenant}[/]")
        console.print(table)
        words = ("audit", "verify", "--tenant", tenant)
        (log,) = json.loads(command(environment, *words, "--json", show=" ".join(words)))
        require(log["verdict"] == "ok", f"the log of {tenant} does not verify: {log['verdict']}")
        console.print(f"   {log['records']} records hashed again, all unchanged; root {log['root'][:16]}...")


def ask(client: httpx.Client, key: str, question: str) -> Shown:
    response = client.post("/v1/answers", json={"query": question}, headers={"Authorization": f"Bearer {key}"})
    require(response.status_code < 300, f"{response.status_code}: {response.text}")
    return Shown(response.status_code, response.json(), response.headers.get("cache-status", ""))


def command(environment: dict[str, str], *words: str, show: str | None = None, check: bool = True) -> str:
    """Run one `strongroom` command as a person would; returns what it printed."""
    console.print(f"[dim]$ strongroom {show or ' '.join(words)}[/]", highlight=False)
    done = subprocess.run([STRONGROOM, *words], env=environment, capture_output=True, text=True, check=False)
    require(not check or done.returncode == 0, f"strongroom {' '.join(words)}: {done.stderr or done.stdout}")
    return done.stdout


def require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise DemoFailed(otherwise)


def title(text: str) -> None:
    console.print()
    console.rule(f"[bold]{text}[/]", align="left")


def _table(*columns: str) -> Table:
    table = Table(show_lines=True)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _tenant(user: str) -> str:
    return next(tenant for tenant, people in PEOPLE.items() if user in people)


def _whose(user: str) -> str:
    return f"{user}@{_tenant(user)}"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_until_ready(client: httpx.Client, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        require(server.poll() is None, f"the server ended: {log.read_text(errors='replace')[-2000:]}")
        try:
            if client.get("/healthz/ready").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.2)
    raise DemoFailed("the server was not ready within two minutes")


if __name__ == "__main__":
    sys.exit(main())
