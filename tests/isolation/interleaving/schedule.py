"""Orders in which two questions and one revocation meet, each drawn from a seed, over two processes.

One task moves at a time, from a named point to the next, so that an order is exactly what its seed says. Nothing
waits for a clock.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tenancy import directory
from tenancy.control import Tenants
from tenancy.identity import Authenticator, Role
from tests.isolation.interleaving.process import CHANGES, DOCUMENT, MASTER, TENANT, TEXT
from tests.support.path import open_path
from tests.support.postgres import postgres_storage

ROOT = Path(__file__).parents[3]
MARK = "three months"
# Two of one process at one time must not be the same question, since the second would wait for the first.
QUERIES = ("How long is the notice period?", "What is the notice period?")
# Behind these points access is looked up afresh, and what it said holds for what is shown. Whether the tenant is
# suspended is asked when a question begins, and again before a stored answer leaves and while one is generated.
CHECKS = ("cache", "hit", "searched", "recheck")
SUSPENSION_CHECKS = ("hit", "recheck")


class Late(AssertionError):
    """Something was shown to a question although its right to see it had ended; the seed says in which order."""


@dataclass
class Tally:
    """`late` is what must be 0; every other number says that there was something to see."""

    counts: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        return ", ".join(f"{name} {count}" for name, count in sorted(self.counts.items()))


class Driven:
    """One process of the product. `module` is what it runs, `more` its further arguments."""

    def __init__(self, data_dir: Path, url: str, module: str = "process", *more: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"tests.isolation.interleaving.{module}", str(data_dir), url, *more],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
        )  # fmt: skip
        assert self.event() == {"ready": True}

    def send(self, **command: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()

    def event(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"a process ended with {self._process.wait()}"
        event: dict[str, Any] = json.loads(line)
        return event

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@dataclass
class Task:
    """A question or a change on its way. `at` is the point where it is held, `released` those that it has left."""

    number: int
    process: Driven
    command: dict[str, Any]
    at: str | None = None
    done: dict[str, Any] | None = None
    begun_late: bool = False
    checked_late: bool = False
    finished_early: bool = False

    def move(self) -> None:
        """Let it go on to its next point, or to its end."""
        if self.at is None:
            self.process.send(task=self.number, **self.command)
        else:
            self.process.send(task=self.number, go=True)
        event = self.process.event()
        assert event["task"] == self.number, event
        self.at, self.done = event.get("at"), event.get("done")


class Interleavings:
    """Two processes over one tenant, whose user ana may read the document until something is revoked."""

    def __init__(self, processes: tuple[Driven, Driven], key: str) -> None:
        self._processes = processes
        self._key = key
        self._numbers = iter(range(10**9))
        self.tally = Tally()

    def run(self, seed: int) -> None:
        """One order. Raises `Late`, and `AssertionError` where the pair does not hold: nothing to see was seen."""
        draw = random.Random(seed)
        how = draw.choice(sorted(CHANGES))
        questions = [self._question(draw, slot) for slot in range(2)]
        revocation = self._task(draw, {"do": "revoke", "how": how})
        order: list[str] = []
        checks = SUSPENSION_CHECKS if how == "tenant" else CHECKS
        self._interleave(draw, questions, revocation, checks, order)
        after = [self._question(draw, slot, free=True) for slot in range(2)]
        for task in after:
            task.begun_late = True
            task.move()
        for task in (*questions, *after):
            self._judge(task, f"seed {seed}, {how}: {' '.join(order)}")
        granted = self._task(draw, {"do": "grant", "how": how, "free": True})
        granted.move()
        assert granted.done == {}, granted.done
        found = self._question(draw, 0, free=True)
        found.move()
        assert found.done is not None
        assert MARK in found.done["shown"], f"seed {seed}: not found after {how} was granted again: {found.done}"
        self.tally.counts["found after the grant"] += 1
        self.tally.counts["orders"] += 1

    def _interleave(
        self,
        draw: random.Random,
        questions: list[Task],
        revocation: Task,
        checks: tuple[str, ...],
        order: list[str],
    ) -> None:
        """Move one of the three at a time; what each did goes to `order`, the revocation as number 2."""
        names = {id(task): name for name, task in enumerate((*questions, revocation))}
        waiting, revoked, committing = [*questions, revocation], False, False
        # A change has few points: with an even chance it would nearly always be over before the questions are.
        pace = draw.choice((0.05, 0.2, 1.0))
        while waiting:
            (task,) = draw.choices(waiting, [pace if one is revocation else 1.0 for one in waiting])
            if task is not revocation:
                if task.at is None:
                    task.begun_late = revoked
                elif task.at in checks:
                    task.checked_late = revoked
            elif task.at == "commit":
                committing = True
            order.append(f"{names[id(task)]}:{task.at or 'begins'}")
            task.move()
            if task is revocation and task.at == "committed":
                revoked = True
            if task.done is not None:
                waiting.remove(task)
                task.finished_early = not committing and not revoked
        assert revocation.done == {}, revocation.done

    def _judge(self, task: Task, where: str) -> None:
        done = task.done
        assert done is not None
        seen = MARK in done["shown"] or (task.begun_late and MARK in done["context"])
        counts = self.tally.counts
        counts["questions"] += 1
        if task.begun_late or task.checked_late:
            counts["begun or checked after the commit"] += 1
            counts["late"] += seen and (task.begun_late or done["refused"] is None)
            if counts["late"]:
                raise Late(f"{where}: {task.command}: {done}")
        if task.finished_early:
            assert seen, f"{where}: {task.command}: {done}"
            counts["found before the revocation"] += 1
        counts["answered from the cache"] += done["hit"]
        counts["streams ended"] += done["refused"] == "revoked"

    def _question(self, draw: random.Random, slot: int, *, free: bool = False) -> Task:
        command: dict[str, Any] = {"do": draw.choice(("ask", "ask", "ask", "retrieve")), "key": self._key}
        command["query"] = QUERIES[slot]
        if command["do"] == "ask":
            command["cache"] = draw.choice(("default", "default", "default", "refresh", "bypass"))
        return self._task(draw, {**command, "free": free})

    def _task(self, draw: random.Random, command: dict[str, Any]) -> Task:
        return Task(next(self._numbers), draw.choice(self._processes), command)


@contextmanager
def two_processes(folder: Path, url: str) -> Iterator[Interleavings]:
    """Over PostgreSQL each with a folder of its own; over files both on one, as a server and a command are."""
    key, folders = prepared(folder, url)
    with ExitStack() as stack:
        processes = []
        for data_dir in folders:
            processes.append(Driven(data_dir, url))
            stack.callback(processes[-1].close)
        yield Interleavings((processes[0], processes[1]), key)


def prepared(folder: Path, url: str, text: str = TEXT) -> tuple[str, tuple[Path, Path]]:
    """A tenant with its documents; ana's key, and the folder of each process."""
    folders = (folder / "one", folder / "two") if url else (folder / "one", folder / "one")
    tenants = Tenants(folders[0], MASTER, storage=postgres_storage(url, folders[0]) if url else None)
    tenants.create(TENANT)
    key = tenants.create_key(TENANT, "ana", [Role.READER]).text
    handle = tenants.open(Authenticator(tenants).operator(TENANT))
    with handle.writing() as view:
        directory.add_members(view, "team", ["user:ana"], 0.0)
        directory.add_members(view, "staff", ["group:team"], 0.0)
    with open_path(tenants) as path:
        path.put(handle, DOCUMENT, text, "group:staff")
        path.put(handle, "canteen.md", "The canteen opens at noon.", "tenant")
        # Keep every label in use, so that ana's domain, and with it the cache's namespace, survives a revocation.
        path.put(handle, "parking.md", "Visitors park behind the gate.", "group:staff", "group:other")
        path.put(handle, "lockers.md", "Lockers are on the second floor.", "group:other", deny=("user:ana",))
    tenants.close()
    return key, folders
