"""A process of the product that is moved from one named point to the next: `python -m ...process DATA_DIR URL`.

It reads a command a line and writes an event a line. A question or a change is a task; while it is not `free`, it is
held at every point of `tenancy.pauses` that it comes to, says so, and goes on when it is told to.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from generation.extractive import ExtractiveGenerator
from generation.generator import Piece
from generation.prompt import Prompt
from indexing.documents import change_access, delete_document
from retrieval.answer import answer, retrieve
from retrieval.question import Delta, Done, Question
from tenancy import directory, pauses
from tenancy.acl import AccessList
from tenancy.control import Tenants
from tenancy.errors import StrongroomError
from tenancy.identity import Authenticator
from tenancy.keys import MasterKey
from tenancy.limits import TenantLimits
from tests.support.path import Path as QuestionPath
from tests.support.postgres import postgres_storage

MASTER = MasterKey(bytes(range(32)))
TENANT, DOCUMENT, TEXT = "acme", "notice.md", "The notice period is three months."

_task: ContextVar[int | None] = ContextVar("task", default=None)


def begin(task: int) -> None:
    """What runs in this context from here on belongs to `task`."""
    _task.set(task)


class Watched(ExtractiveGenerator):
    """Keeps what it was given, by request."""

    def __init__(self) -> None:
        self.given: dict[str, str] = {}

    async def generate(
        self, prompt: Prompt, *, salt: str, request_id: str, max_tokens: int, deadline: float
    ) -> AsyncGenerator[Piece, None]:
        self.given[request_id] = " ".join(source.text for source in prompt.sources)
        inner = super().generate(prompt, salt=salt, request_id=request_id, max_tokens=max_tokens, deadline=deadline)
        async with aclosing(inner) as pieces:
            async for piece in pieces:
                yield piece


class Process:
    def __init__(self, data_dir: Path, url: str) -> None:
        self.tenants = Tenants(data_dir, MASTER, storage=postgres_storage(url, data_dir) if url else None)
        self.authenticator = Authenticator(self.tenants)
        self.generator = Watched()
        self.path = QuestionPath(self.tenants, generator=self.generator, limits=TenantLimits())
        self.handle = self.tenants.open(self.authenticator.operator(TENANT))
        self._free: set[int] = set()
        self._held: dict[int, threading.Event] = {}
        self._writing = threading.Lock()
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        pauses.hold_at(self._hold)

    def run(self) -> None:
        self._say(ready=True)
        for line in sys.stdin:
            command = json.loads(line)
            task = command.pop("task")
            if "go" in command:
                self._held[task].set()
                continue
            if command.pop("free", False):
                self._free.add(task)
            self._held[task] = threading.Event()
            if command["do"] in {"ask", "retrieve"}:
                asyncio.run_coroutine_threadsafe(self._question(task, **command), self._loop)
            else:
                threading.Thread(target=self._change, args=(task,), kwargs=command).start()
        self.path.close()
        self.tenants.close()

    async def _question(self, task: int, do: str, key: str, query: str, cache: str = "default") -> None:
        begin(task)
        request = secrets.token_hex(16)
        shown, hit, refused = "", False, None
        try:
            principal = self.authenticator.authenticate(key, "192.0.2.1")
            if do == "retrieve":
                found = await retrieve(self.path.path, principal, Question(query, request))
                shown = " ".join(passage.text for passage in found.passages)
            else:
                question = Question(query, request, cache=cache)  # type: ignore[arg-type]
                async with aclosing(answer(self.path.path, principal, question)) as events:
                    async for event in events:
                        if isinstance(event, Delta):
                            shown += event.text
                        elif isinstance(event, Done):
                            shown += repr(event.answer)
                            hit = event.answer.cache.status == "hit"
        except StrongroomError as error:
            refused = error.code
        context = self.generator.given.pop(request, "")
        self._done(task, shown=shown, context=context, hit=hit, refused=refused)

    def _change(self, task: int, do: str, how: str) -> None:
        begin(task)
        try:
            CHANGES[how](self, do == "grant")
        except StrongroomError as error:
            self._done(task, refused=str(error))
        else:
            self._done(task)

    def _hold(self, point: pauses.Point) -> None:
        task = _task.get()
        if task is not None and task not in self._free:
            self._say(task=task, at=point)
            self._held[task].wait()
            self._held[task].clear()

    def _done(self, task: int, **result: Any) -> None:
        self._free.discard(task)
        self._say(task=task, done=result)

    def _say(self, **event: Any) -> None:
        with self._writing:
            print(json.dumps(event), flush=True)


def _member(group: str, member: str) -> Callable[[Process, bool], None]:
    def change(process: Process, grant: bool) -> None:
        with process.handle.writing() as view:
            if grant:
                directory.add_members(view, group, [member], 0.0)
            else:
                directory.remove_members(view, group, [member])

    return change


def _access(process: Process, grant: bool) -> None:
    change_access(process.handle, DOCUMENT, AccessList.of(["group:staff"] if grant else ["group:other"]), 0.0)


def _deny(process: Process, grant: bool) -> None:
    change_access(process.handle, DOCUMENT, AccessList.of(["group:staff"], [] if grant else ["user:ana"]), 0.0)


def _document(process: Process, grant: bool) -> None:
    if grant:
        process.path.put(process.handle, DOCUMENT, TEXT, "group:staff")
    else:
        delete_document(process.handle, DOCUMENT, 0.0)


def _tenant(process: Process, grant: bool) -> None:
    process.tenants.set_status(TENANT, "active" if grant else "suspended")
    pauses.reached("committed")


CHANGES: dict[str, Callable[[Process, bool], None]] = {
    # ana is in team, and team is in staff, which the document's access list names.
    "membership": _member("team", "user:ana"),
    "nested group": _member("staff", "group:team"),
    "access list": _access,
    "denial": _deny,
    "document": _document,
    "tenant": _tenant,
}

if __name__ == "__main__":
    Process(Path(sys.argv[1]), sys.argv[2]).run()
