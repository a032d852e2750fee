"""A process that changes four documents and dies at its n-th write.

    python -m tests.conformance.victim COLUMN FOLDER

reads one n a line, and answers each with how the process ended: 0, or -9 where it was killed. Each is a fork of this
one, which has imported everything and opened nothing. A write is a commit of the tenant's database or a call that
changes the engine; the process dies before each, and behind each.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tenancy.identity import Authenticator
from tenancy.tenant import TenantHandle, WriteView
from tests.conformance.columns import COLUMNS
from tests.conformance.watched import Watched
from tests.support.people import Company
from tests.support.shelf import Shelf

WRITES = {"create", "put", "remove", "prune"}


def main(name: str, folder: Path, fatal: int) -> None:
    column = COLUMNS[name]
    events = itertools.count(1)

    def event() -> None:
        if next(events) == fatal:
            os.kill(os.getpid(), signal.SIGKILL)

    tenants = column.tenants(folder)
    company = Company.__new__(Company)
    company.tenants, company.name = tenants, "acme"
    company.handle = tenants.open(Authenticator(tenants).operator("acme"))
    engines = {engine: Watched(opened) for engine, opened in column.open(folder).items()}
    for engine in engines.values():
        engine.before = engine.after = lambda call: event() if call in WRITES else None
    shelf = Shelf(company, engine=column.engine, engines=engines)
    shelf._claim()
    writing = TenantHandle.writing

    @contextmanager
    def mortal(tenant: TenantHandle) -> Iterator[WriteView]:
        with writing(tenant) as view:
            yield view
            event()
        event()

    TenantHandle.writing = mortal  # type: ignore[method-assign]
    shelf._claim = lambda: None  # type: ignore[method-assign]
    change(shelf, fatal)
    shelf.collections.settle(company.handle)
    for engine in engines.values():
        engine.close()
    tenants.close()


def change(shelf: Shelf, number: int) -> None:
    """A new version, a changed access list, and a document that is deleted in one run and written in the next."""
    score = float(number)
    shelf.put("a", *["word"] * (1 + number % 3), vectors=[[score, 0, 0, 0]] * (1 + number % 3), allow=["tenant"])
    shelf.company.access("b", allow=["tenant"] if number % 2 else ["user:bo"])
    if shelf.chunk_ids("c"):
        shelf.remove("c")
    else:
        shelf.put("c", "word", vectors=[[score, 1, 0, 0]], allow=["user:bo"], deny=["user:ana"])
    shelf.put(f"new{number}", "word", vectors=[[0, score, 0, 0]], allow=["user:ana"])


def serve(name: str, folder: Path) -> None:
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            main(name, folder, int(line))
            sys.stderr.flush()
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    serve(sys.argv[1], Path(sys.argv[2]))
