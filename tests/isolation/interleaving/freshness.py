"""Orders in which questions that the cache could answer meet one change of what their answer rests on.

As in `schedule`, two processes are moved from one named point to the next by a seed. What an answer says of itself
(`cached`) is held against what was true when the question last looked.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.isolation.interleaving.cached import TEXT, mark
from tests.isolation.interleaving.schedule import MARK, Driven, Late, Tally, Task, prepared

QUERIES = ("How long is the notice period", "What is the notice period")
CHECKS = ("cache", "hit", "searched", "recheck")
"""Behind these points the state is read afresh. Whether the tenant is suspended is not asked at `searched`."""
SETTINGS = {"model": "m2", "adapter": "a2", "template": "t2"}
RIGHTS = ("access list", "denial", "membership", "nested group")
CHANGES = ("update", "document", "tenant", "purge", "asker", *RIGHTS, *SETTINGS)


class CachedInterleavings:
    """Two processes over one tenant and one cache, filled before each order."""

    def __init__(self, processes: tuple[Driven, Driven], ana: str) -> None:
        self._processes = processes
        self._keys = {"ana": ana}
        self._numbers = iter(range(10**9))
        self._settings = {process: {"model": "m1", "adapter": "", "template": "t1"} for process in processes}
        self._version = 1
        self.tally = Tally()
        self._keys["bo"] = self._changed("grant", "asker")
        # Questions that differ in signs at the end alone are served by similarity, on the operator's word.
        self._changed("grant", "opening")

    def run(self, seed: int) -> None:
        """One order. Raises `Late`, and `AssertionError` where nothing was found that should have been."""
        draw = random.Random(seed)
        how = draw.choice(CHANGES)
        if how == "asker":
            # Everything that is remembered came of bo's questions.
            self._changed("revoke", "purge")
        self._fill(draw, "bo" if how == "asker" else "ana")
        questions = [self._question(draw, slot) for slot in range(2)]
        change = self._change(draw, "revoke", how)
        order: list[str] = []
        self._interleave(draw, questions, change, order)
        assert change.done is not None
        assert "refused" not in change.done, change.done
        after = [self._question(draw, slot, free=True) for slot in range(2)]
        for task in after:
            self._begin(task)
            task.begun_late = True
            task.move()
        gone = frozenset(change.done["found"] or ())
        for task in (*questions, *after):
            self._judge(task, how, gone, f"seed {seed}, {how}: {' '.join(order)}")
        self._restore(how, change)
        self._fill(draw, "ana")
        self.tally.counts["orders"] += 1
        self.tally.counts[f"orders: {how}"] += 1

    def _fill(self, draw: random.Random, user: str) -> None:
        """Ask until it is remembered: at the second time at the latest it must be a hit, and it must be right."""
        for slot in range(2):
            process = draw.choice(self._processes)
            for _ in range(2):
                task = self._task(process, {"do": "ask", "key": self._keys[user], "query": QUERIES[slot], "free": True})
                self._begin(task)
                task.move()
                assert task.done is not None
                assert task.right in task.done["shown"], task.done
                assert f"version {self._version}" in task.done["shown"], task.done
            assert task.done["entry"], f"a question asked twice was not remembered: {task.done}"
            self.tally.counts["hits resumed"] += 1

    def _interleave(self, draw: random.Random, questions: list[_Question], change: Task, order: list[str]) -> None:
        names = {id(task): name for name, task in enumerate((*questions, change))}
        waiting: list[Task] = [*questions, change]
        committed = False
        pace = draw.choice((0.05, 0.2, 1.0))
        while waiting:
            (task,) = draw.choices(waiting, [pace if one is change else 1.0 for one in waiting])
            order.append(f"{names[id(task)]}:{task.at or 'begins'}")
            if isinstance(task, _Question):
                if task.at is None:
                    self._begin(task)
                    task.begun_late = committed
                elif task.at in CHECKS:
                    task.checked_late = committed
                    task.checked_at = task.at
                    task.caught = task.caught or (task.at == "hit" and committed)
            task.move()
            if task is change:
                committed = committed or task.at == "committed" or task.done is not None
            if task.done is not None:
                waiting.remove(task)
                if isinstance(task, _Question):
                    task.finished_early = not committed

    def _judge(self, task: _Question, how: str, gone: frozenset[str], where: str) -> None:
        done, counts = task.done, self.tally.counts
        assert done is not None
        late = task.begun_late or task.checked_late
        served = done["refused"] is None
        stale = False
        if how in SETTINGS:
            # Whatever the others do meanwhile: an answer is of the settings that its question began with.
            stale = served and task.right not in done["shown"]
            late = True
        elif how in {"purge", "asker"}:
            stale = done["entry"] in gone
        elif how == "update":
            stale = served and f"version {self._version - 1}" in done["shown"]
        elif how == "tenant":
            stale = MARK in done["shown"] and (served or task.begun_late)
            late = task.begun_late or (task.checked_late and task.checked_at != "searched")
        else:
            stale = MARK in done["shown"] and (served or task.begun_late)
        counts["questions"] += 1
        counts["begun or checked after the change"] += late
        counts["late"] += late and stale
        if late and stale:
            raise Late(f"{where}: {task.command}: {done}")
        if task.finished_early:
            assert MARK in done["shown"], f"{where}: {done}"
            counts["hits before the change"] += done["entry"] is not None
        counts[f"hits {done['kind']}"] += done["entry"] is not None
        # It had been found in the cache, and what it rests on changed before it left.
        counts["stopped between lookup and serve"] += task.caught and done["entry"] is None
        counts["ended under way"] += done["refused"] == "revoked"

    def _restore(self, how: str, change: Task) -> None:
        if how in SETTINGS:
            self._settings[change.process][how] = {"model": "m1", "adapter": "", "template": "t1"}[how]
            self._changed("grant", how, change.process)
        elif how == "asker":
            self._keys["bo"] = self._changed("grant", how)
        elif how not in {"update", "purge"}:
            self._changed("grant", how)

    def _begin(self, task: _Question) -> None:
        """Fix what the answer has to say of itself."""
        task.right = mark(**self._settings[task.process])

    def _question(self, draw: random.Random, slot: int, *, free: bool = False) -> _Question:
        # Signs at the end make it another question to the exact key, and the same to every guard.
        query = QUERIES[slot] + draw.choice(("", "", "?" * draw.randint(1, 40)))
        cache = draw.choice(("default", "default", "default", "default", "default", "refresh", "bypass"))
        command = {"do": "ask", "key": self._keys["ana"], "query": query, "cache": cache, "free": free}
        return self._task(draw.choice(self._processes), command)

    def _change(self, draw: random.Random, do: str, how: str) -> Task:
        process = draw.choice(self._processes)
        if how in SETTINGS:
            change = _Setting(next(self._numbers), process, self._command(do, how))
            change.apply = lambda: self._settings[process].update({how: SETTINGS[how]})
            return change
        return Task(next(self._numbers), process, self._command(do, how))

    def _changed(self, do: str, how: str, process: Driven | None = None) -> Any:
        task = Task(next(self._numbers), process or self._processes[0], {**self._command(do, how), "free": True})
        task.move()
        assert task.done is not None
        assert "refused" not in task.done, task.done
        return task.done["found"]

    def _command(self, do: str, how: str) -> dict[str, Any]:
        command: dict[str, Any] = {"do": do, "how": how}
        if how == "update":
            self._version += 1
        if how in {"update", "document"}:
            command["version"] = self._version
        return command

    def _task(self, process: Driven, command: dict[str, Any]) -> _Question:
        return _Question(next(self._numbers), process, command)


class _Question(Task):
    right = ""
    checked_at = ""
    caught = False


class _Setting(Task):
    """A change of one process's settings: there from the moment at which the process was told."""

    apply: Any = None

    def move(self) -> None:
        super().move()
        self.apply()


@contextmanager
def two_processes_and_a_cache(folder: Path, url: str, store: str) -> Iterator[CachedInterleavings]:
    """`store` is "local", or the address of a Redis server and the file of its password."""
    ana, folders = prepared(folder, url, TEXT.format(1))
    with ExitStack() as stack:
        processes = []
        for data_dir in folders:
            processes.append(Driven(data_dir, url, "cached", store))
            stack.callback(processes[-1].close)
        yield CachedInterleavings((processes[0], processes[1]), ana)
