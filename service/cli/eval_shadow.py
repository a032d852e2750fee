"""`strongroom eval shadow`: a change tried on every tenant, and a gate that names those that get worse."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from cyclopts import Parameter

from service.cli.console import DEFAULT, Common, blocking, note, show_table
from service.problems import DONE, FAILED
from tenancy.errors import InvalidInput

if TYPE_CHECKING:
    from evaluation.sets import Case
    from service.evaluating import Row
    from service.wiring import Services

_COLUMNS: Final = [
    "tenant",
    "verdict",
    "questions",
    "before",
    "after",
    "difference",
    "lost",
    "gained",
    "decision",
    "done",
]
_LINES_S: Final = 2.0


def shadow(
    *,
    change: Annotated[Path, Parameter(help="What is to be tried (TOML): docs/operations/evaluation.md.")],
    tenant: Annotated[
        list[str] | None,
        Parameter(name=["--tenant", "-t"], negative=(), help="A tenant; may be given again. Without: all."),
    ] = None,
    sets: Annotated[
        Path | None, Parameter(help="Folder of sets, TENANT.jsonl each. Without: the set that each tenant keeps.")
    ] = None,
    name: Annotated[str, Parameter(name="--set", help="Which of the sets that tenants keep.")] = "default",
    asker: Annotated[str | None, Parameter(help="The user who asks what names no asker.")] = None,
    margin: Annotated[float, Parameter(help="How much of the mean quality may be lost.")] = 0.05,
    policy: Annotated[
        Literal["report", "keep", "apply"],
        Parameter(
            help="report: record nothing. keep: what must not change stays as it is, in its contract. apply: also "
            "give the others the change, in theirs."
        ),
    ] = "report",
    unsure: Annotated[
        Literal["keep", "change"], Parameter(help="What becomes of tenants of which the gate cannot tell.")
    ] = "keep",
    common: Common = DEFAULT,
) -> int:
    """Try another template, pool, embedding model, chunking, threshold or depth on each tenant's own set.

    Every question is asked as it is served now, and as it would be; nothing that serves moves meanwhile. Tenants that
    get worse are named, and the exit code is 1. Scores stay in each tenant's database; this shows names and figures.
    """
    import msgspec

    from evaluation.change import read_change
    from evaluation.gate import MARGIN
    from service.evaluating import Terms
    from service.settings import load_settings
    from service.wiring import build

    if not 0 < margin <= 1:
        raise InvalidInput("a margin is above 0 and at most 1", item="--margin", remedy=f"{MARGIN} is the default")
    wanted, terms = read_change(change), Terms(asker, margin=margin, policy=policy, unsure=unsure)

    async def work() -> list[Row]:
        services = build(load_settings(common.config))
        try:
            return await _all(services, tenant, _Sets(services, sets, name), wanted, terms)
        finally:
            await services.aclose()

    rows = blocking(work())
    show_table(common, [msgspec.to_builtins(row) for row in rows], _COLUMNS)
    for row in rows:
        if row.reason is not None:
            note(f"{row.tenant} was not tried: {row.reason}")
        if row.left is not None:
            note(f"{row.tenant} is still to be changed: {row.left}")
    return FAILED if any(row.verdict in {"worse", "not tried"} for row in rows) else DONE


class _Sets:
    """Where each tenant's set is found."""

    def __init__(self, services: Services, folder: Path | None, name: str) -> None:
        self._services, self._folder, self._name = services, folder, name
        if folder is not None and not folder.is_dir():
            raise InvalidInput(
                "there is no such folder", item=str(folder), remedy="name a folder of TENANT.jsonl files"
            )

    def of(self, tenant: str) -> Sequence[Case] | None:
        """The set of a tenant; None where it has none. Raises `InvalidInput` for one that cannot be read."""
        from evaluation.sets import read_set
        from evaluation.store import load_set
        from tenancy.errors import NotFound

        if self._folder is not None:
            file = self._folder / f"{tenant}.jsonl"
            if not file.exists():
                return None
            found = read_set(file)
            for bad in found.bad:
                note(f"{file}: line {bad.number}: {bad.reason}")
            return found.cases
        control = self._services.control
        with control.tenants.open(control.authenticator.operator(tenant)).reading() as view:
            try:
                return load_set(view, self._name)
            except NotFound:
                return None


async def _all(services: Services, names: Sequence[str] | None, sets: _Sets, change: Any, terms: Any) -> list[Row]:
    from service.evaluating import told_of, try_on
    from tenancy.errors import StrongroomError

    control, rows = services.control, []
    chosen = names or [record.name for record in control.tenants.listed() if record.status == "active"]
    for name in dict.fromkeys(chosen):
        with progress() as told:
            lacking = "it has no set (`strongroom eval save` keeps one)"
            try:
                cases = sets.of(name)
            except StrongroomError as error:
                # Not tried, so that the policy holds for this tenant, too.
                cases, lacking = None, told_of(error)
            rows.append(await try_on(services, name, cases, change, terms, _named(told, name), lacking))
    return rows


def _named(told: Callable[[str, int, int], None], tenant: str) -> Callable[[str, int, int], None]:
    return lambda what, done, of: told(f"{tenant}: {what}", done, of)


@contextmanager
def progress() -> Iterator[Callable[[str, int, int], None]]:
    """A bar on a terminal, a line every few seconds elsewhere."""
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("", total=None)
            yield lambda what, done, of: bar.update(task, description=what, completed=done, total=of or None)
        return
    last = 0.0

    def line(what: str, done: int, of: int) -> None:
        nonlocal last
        if of and time.monotonic() - last > _LINES_S:
            last = time.monotonic()
            print(f"{what}: {done} of {of}", file=sys.stderr)

    yield line
