"""`strongroom tenant move|confirm|rollback|moves`: another engine or embedding model for a tenant that is in use."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from cyclopts import Parameter

from service.cli.console import DEFAULT, Common, audited, note, opened, print_json, show_table
from tenancy.errors import Conflict, InvalidInput

if TYPE_CHECKING:
    from audit.trail import Trail
    from indexing.catalogue import Collection
    from indexing.moving import Mover, Step
    from service.control import Control
    from tenancy.tenant import TenantHandle

Name = Annotated[str, Parameter(help="The tenant's name.")]

_EMBEDDED_OVERLAP: Final = 1.0
_SERVER_OVERLAP: Final = 0.99
_MOST_QUESTIONS: Final = 1_000
_LINES_S: Final = 2.0


def move(
    name: Name,
    *,
    engine: Annotated[str | None, Parameter(help="Where to: faiss, or an engine of the settings.")] = None,
    model: Annotated[str | None, Parameter(help="Another embedding model of the settings.")] = None,
    questions: Annotated[
        Path | None, Parameter(help="The tenant's own questions, one a line, to compare with.")
    ] = None,
    overlap: Annotated[float | None, Parameter(help="Least share of the best 10 that must be found.")] = None,
    abort: Annotated[bool, Parameter(negative=(), help="Drop what was built; the old collection serves on.")] = False,
    common: Common = DEFAULT,
) -> None:
    """Build the tenant's collection at another engine or with another model, compare, and switch.

    Questions and ingestion go on. Stop it at any time: the same command goes on. Afterwards `tenant confirm` drops the
    old collection, `tenant rollback` goes back to it.
    """
    with _moving(common, name) as (control, mover, tenant):
        if abort:
            _ended(control, name, "tenant.move_abort", lambda: mover.abort(tenant))
            note(f"{name} is served as before; what was being built is dropped")
            return
        if engine is None:
            raise InvalidInput("say where to", item="--engine", remedy="name an engine, or --abort")
        asked = _questions(questions)

        def work(trail: Trail) -> dict[str, Any]:
            target = mover.build(tenant, engine, model)
            compared = mover.compare(tenant, asked)
            figures = _rounded(compared)
            trail.note(detail=_plain(target) | {name: str(figure) for name, figure in figures.items()})
            reason = compared.failure(_least(engine, overlap))
            if reason is not None:
                raise Conflict(
                    reason, item=name, remedy=f"the old collection serves on; `strongroom tenant move {name} --abort`"
                )
            mover.switch(tenant)
            _agree(control, mover, tenant)
            return figures

        if _is_there(mover, tenant, engine, model):
            _agree(control, mover, tenant)
            if common.as_json:
                print_json({"already": engine})
            note(f"{name} is at {engine} already")
            return
        print_json(audited(control, control.authenticator.operator(name), "tenant.move", work))
        note(f"{name} is served by {engine}; `strongroom tenant confirm {name}` drops the old collection")


def confirm(name: Name, *, common: Common = DEFAULT) -> None:
    """Drop the collection that the tenant moved away from, at its engine, for good."""
    with _moving(common, name) as (control, mover, tenant):
        _ended(control, name, "tenant.confirm", lambda: mover.confirm(tenant))
        note("this collection is dropped, and the move is ended")


def rollback(name: Name, *, common: Common = DEFAULT) -> None:
    """Go back to the collection that the tenant moved away from, with every document that came since.

    The one that is left stays until `tenant confirm`; a second rollback returns to it.
    """
    with _moving(common, name) as (control, mover, tenant):

        def back() -> Collection:
            found = mover.rollback(tenant)
            _agree(control, mover, tenant)
            return found

        _ended(control, name, "tenant.rollback", back)
        note(f"{name} is served by this collection again; `strongroom tenant confirm {name}` drops the other one")


def moves(name: Name, *, common: Common = DEFAULT) -> None:
    """The tenant's collections: which one serves, which is being built, which is kept to go back to."""
    from indexing.catalogue import EMBEDDED, all_collections
    from indexing.moving import missing_vectors

    with opened(common) as control:
        tenant = control.tenants.open(control.authenticator.operator(name))
        with tenant.reading() as view:
            rows = [
                {
                    **_plain(row),
                    "behind": 0 if row.engine == EMBEDDED else view.epochs.changes - max(row.applied, 0),
                    "not_embedded": missing_vectors(view, row.model),
                }
                for row in all_collections(view)
            ]
    show_table(common, rows, ["state", "engine", "model", "physical", "behind", "not_embedded"])


@contextmanager
def _moving(common: Common, name: str) -> Iterator[tuple[Control, Mover, TenantHandle]]:
    from indexing.embedding import Embedders
    from indexing.moving import Mover
    from service.engines import build_engines

    with opened(common) as control:
        tenant = control.tenants.open(control.authenticator.operator(name))
        engines = build_engines(control.settings.collections)

        def leave(tenant: TenantHandle, left: Collection) -> None:
            control.tenants.deletion.leave(tenant.tenant_id, left.engine, left.physical)
            note(f"{left.engine} is away: a server drops {left.physical} there as soon as it answers")

        try:
            with _progress() as step:
                yield control, Mover(engines, Embedders(control.settings.embedding), step, leave=leave), tenant
        finally:
            engines.close()


@contextmanager
def _progress() -> Iterator[Step]:
    """A bar on a terminal, a line every few seconds elsewhere."""
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        with Progress(*columns, console=Console(stderr=True)) as bar:
            task = bar.add_task("", total=None)
            yield lambda name, done, of: bar.update(task, description=name, completed=done, total=of or None)
        return
    last = 0.0

    def line(name: str, done: int, of: int) -> None:
        nonlocal last
        if of and time.monotonic() - last > _LINES_S:
            last = time.monotonic()
            print(f"{name}: {done} of {of} chunks", file=sys.stderr)

    yield line


def _ended(control: Control, name: str, action: str, work: Any) -> None:
    def recorded(trail: Trail) -> dict[str, Any]:
        found = _plain(work())
        trail.note(detail=found)
        return found

    print_json(audited(control, control.authenticator.operator(name), action, recorded))


def _is_there(mover: Mover, tenant: TenantHandle, engine: str, spec: str | None) -> bool:
    """Whether an earlier run switched, and ended before the contract said so."""
    from indexing.catalogue import serving

    with tenant.reading() as view:
        found = serving(view)
    if found is None or found.engine != engine:
        return False
    return spec is None or mover.embedders.named(spec).fingerprint == found.model.fingerprint


def _agree(control: Control, mover: Mover, tenant: TenantHandle) -> None:
    """The contract names what serves now."""
    from indexing.catalogue import serving

    with tenant.reading() as view:
        found = serving(view)
    embedder = None if found is None else mover.embedders.serves(found.model)
    if found is None or embedder is None:
        return
    # Whatever else of the contract was changed while the tenant moved stays.
    control.tenants.set_contract(
        tenant.name, lambda contract: msgspec.structs.replace(contract, engine=found.engine, model=embedder.spec)
    )


def _questions(path: Path | None) -> list[str]:
    if path is None:
        return []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        raise InvalidInput("the questions cannot be read", item=str(path), remedy="give a UTF-8 text file") from None
    found = [line.strip() for line in lines if line.strip()]
    if not 1 <= len(found) <= _MOST_QUESTIONS:
        raise InvalidInput(f"a file of questions holds 1 to {_MOST_QUESTIONS} lines", item=str(path))
    return found


def _least(engine: str, overlap: float | None) -> float:
    from indexing.catalogue import EMBEDDED

    if overlap is not None:
        if not 0 <= overlap <= 1:
            raise InvalidInput("the overlap is from 0 to 1", item="--overlap")
        return overlap
    return _EMBEDDED_OVERLAP if engine == EMBEDDED else _SERVER_OVERLAP


def _plain(row: Collection) -> dict[str, Any]:
    return {"state": row.state, "engine": row.engine, "model": row.model.spec, "physical": row.physical}


def _rounded(compared: Any) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(compared)
    return {name: round(value, 4) if isinstance(value, float) else value for name, value in found.items()}
