"""A process that writes to one log until it is done or killed.

`python -m tests.audit.load DATA_DIR appends|requests THREADS COUNT [URL]`

It prints a line after each acknowledgement, so whoever reads the pipe knows what must be durable.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from functools import partial
from pathlib import Path

from audit.log import AuditLog
from audit.logs import AuditLogs
from audit.record import Actor, Draft, Request
from audit.trail import AuditTrail
from tenancy.control import Tenants
from tenancy.identity import Authenticator, Principal
from tenancy.keys import MasterKey
from tests.support.postgres import postgres_storage

MASTER = MasterKey(bytes(range(32)))


def draft(name: str) -> Draft:
    return Draft(
        action="answer", phase="outcome", outcome="allowed", actor=Actor(kind="user"), request=Request(id=name)
    )


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def appends(log: AuditLog, label: str, threads: int, count: int) -> None:
    """`count` appends from each of `threads` threads."""

    def run(thread: int) -> None:
        for number in range(count):
            name = f"{label}-{thread}-{number}"
            say("acked", log.append(partial(draft, name)), name)

    running = [threading.Thread(target=run, args=(thread,)) for thread in range(threads)]
    for each in running:
        each.start()
    for each in running:
        each.join()


async def requests(trail: AuditTrail, principal: Principal, tasks: int, count: int) -> None:
    """`count` whole requests from each of `tasks` tasks; the line stands for the answer that leaves."""

    async def run(task: int) -> None:
        for number in range(count):
            name = f"{os.getpid()}-{task}-{number}"
            async with trail.open(principal, action="answer", request_id=name) as one:
                one.note(question=f"What does {name} ask?")
                say("acked", await one.intent(), name)
                one.note(answer="It asks nothing.")

    await asyncio.gather(*(run(task) for task in range(tasks)))


def main() -> None:
    data_dir, kind, width, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    url = sys.argv[5] if len(sys.argv) > 5 else ""
    tenants = Tenants(data_dir, MASTER, storage=postgres_storage(url, data_dir) if url else None)
    principal = Authenticator(tenants).operator("acme")
    logs = AuditLogs(tenants, deadline_s=60.0)
    say("ready")
    if kind == "appends":
        appends(logs.of(principal), str(os.getpid()), width, count)
    else:
        asyncio.run(requests(AuditTrail(logs), principal, width, count))
    logs.close()
    tenants.close()


if __name__ == "__main__":
    main()
