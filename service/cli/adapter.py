"""`strongroom adapter`: a tenant's own LoRA adapters. A change holds at once, also for answers under way."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from service.cli.console import DEFAULT, Common, Tenant, audited, clean, iso, note, opened, show_record, show_table
from tenancy.errors import NotFound

if TYPE_CHECKING:
    from audit.trail import Trail
    from generation.adapters.registry import Registered
    from service.settings import GenerationSettings
    from tenancy.tenant import ReadView, TenantHandle

app = App(name="adapter", help="Add, list, show and revoke a tenant's own LoRA adapters.")

Name = Annotated[str, Parameter(help="The adapter's name; a request names it as MODEL:NAME.")]

_COLUMNS = ["name", "id", "base", "rank", "allow", "state", "created"]


@app.command
def add(
    name: Name,
    folder: Annotated[Path, Parameter(help="As PEFT saves it: adapter_config.json, adapter_model.safetensors.")],
    *,
    tenant: Tenant,
    allow: Annotated[
        tuple[str, ...],
        Parameter(negative=(), help="user:NAME or group:NAME that may use it; repeat for more. Without: every user."),
    ] = (),
    training: Annotated[
        Path | None,
        Parameter(
            help="What it was trained on (docs/operations/lineage.md). Without: training_data.json in the folder."
        ),
    ] = None,
    common: Common = DEFAULT,
) -> None:
    """Copy an adapter to where the engines see it, and let the tenant's users name it.

    It takes the place of the one that has this name. One that none of the tenant's pools could load is refused, and so
    is one whose training data are another tenant's.
    """
    from generation.adapters.training import ForeignTraining
    from service.adapters import add_adapter, training_in
    from service.lineage import declared, named_in, tell

    with opened(common) as control:
        principal = control.authenticator.operator(tenant)

        def work(trail: Trail) -> dict[str, Any]:
            trail.note(detail={"name": name[:100]})
            handle = control.tenants.open(principal)
            said = training_in(folder, training)
            trail.note(detail=declared(said))
            with _progress(folder) as progress:
                made = add_adapter(
                    control.settings.generation,
                    handle,
                    name,
                    folder,
                    allow=allow or None,
                    training=said,
                    progress=progress,
                )
            trail.note(detail={"adapter": made.id, "revision": made.revision})
            with handle.reading() as view:
                return _record(view, made) | declared(said)

        try:
            made = audited(control, principal, "adapter.add", work)
        except ForeignTraining as refused:
            training_data = refused.training
            for other, sources in named_in(control, refused):
                audited(control, other, "lineage.refused", partial(tell, control, other, training_data, sources))
            raise
        if made["training"] == "undeclared":
            note("nothing says what it was trained on; `strongroom lineage` shows it as undeclared")
        show_record(common, made)


@app.command(name="list")
def list_adapters(
    *,
    tenant: Tenant,
    revoked: Annotated[bool, Parameter(negative=(), help="Also those that were revoked.")] = False,
    common: Common = DEFAULT,
) -> None:
    """The tenant's adapters by name."""
    from generation.adapters.registry import registered

    with opened(common) as control:
        principal = control.authenticator.operator(tenant)

        def work(_: Trail) -> list[dict[str, Any]]:
            with control.tenants.open(principal).reading() as view:
                return [_record(view, one) for one in registered(view) if revoked or one.revoked is None]

        show_table(common, audited(control, principal, "adapter.list", work), _COLUMNS)


@app.command
def show(name: Name, *, tenant: Tenant, common: Common = DEFAULT) -> None:
    """One adapter: what it is for, who may use it, its files' digests, and whether the files are still those."""
    from generation.adapters.registry import registered

    with opened(common) as control:
        principal = control.authenticator.operator(tenant)

        def work(trail: Trail) -> dict[str, Any]:
            trail.note(detail={"name": name[:100]})
            handle = control.tenants.open(principal)
            with handle.reading() as view:
                found = [one for one in registered(view, name) if one.revoked is None]
                if not found:
                    raise NotFound(
                        "the tenant has no such adapter", item=name[:100], remedy="`strongroom adapter list --revoked`"
                    )
                record = _record(view, found[-1])
            return record | {"files": _files(control.settings.generation, handle, found[-1])}

        show_record(common, audited(control, principal, "adapter.show", work))


@app.command
def revoke(name: Name, *, tenant: Tenant, common: Common = DEFAULT) -> None:
    """Take an adapter away for good: no user gets another word of it, whatever the engines still hold.

    Answers that were remembered with it are never found again, and its files are removed.
    """
    from service.adapters import revoke_adapter

    with opened(common) as control:
        principal = control.authenticator.operator(tenant)

        def work(trail: Trail) -> tuple[str, ...]:
            trail.note(detail={"name": name[:100]})
            gone = revoke_adapter(control.settings.generation, control.tenants.open(principal), name)
            trail.note(detail={"adapter": " ".join(gone)})
            return gone

        show_record(common, {"name": name, "revoked": list(audited(control, principal, "adapter.revoke", work))})


def _record(view: ReadView, adapter: Registered) -> dict[str, Any]:
    from generation.adapters.registry import labels_of

    allow = labels_of(view, adapter)
    return {
        "name": adapter.name,
        "id": adapter.id,
        "model": f"{adapter.base}:{adapter.name}",
        "base": adapter.base,
        "rank": adapter.rank,
        "modules": list(adapter.modules),
        "allow": ["every user"] if allow is None else allow,
        "state": "usable" if adapter.revoked is None else "revoked",
        "created": iso(adapter.created),
        "revision": adapter.revision,
        "manifest": dict(adapter.manifest),
    }


def _files(settings: GenerationSettings, tenant: TenantHandle, adapter: Registered) -> str:
    from generation.adapters.files import adapter_path, intact

    root = settings.adapters_path
    there = root is not None and intact(adapter_path(root, tenant.tenant_id, adapter.id), adapter.manifest)
    if not there:
        note("the engines cannot load it: add it again")
    return "intact" if there else "missing or changed"


@contextmanager
def _progress(folder: Path) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal: weights may be gigabytes."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    from generation.adapters.manifest import FILES

    total = sum(path.stat().st_size for name in FILES if (path := folder / name).is_file())
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(clean(folder.name), total=total)
        yield lambda size: bar.advance(task, size)
