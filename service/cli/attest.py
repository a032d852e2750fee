"""`strongroom attest`: prove from outside that tenants are apart, and sign what was found."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
from cyclopts import Parameter

from service.cli.console import DEFAULT, Common, note, opened, print_json
from tenancy.errors import InvalidInput, Unavailable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from service.attest.stage import Options
    from service.settings import AttestSettings


def attest(
    *,
    url: Annotated[
        str | None, Parameter(help="Address of the running service, instead of that of the settings.")
    ] = None,
    tenant: Annotated[
        tuple[str, ...],
        Parameter(name=["--tenant", "-t"], negative=(), help="Compare this contract; repeat for more. Without: all."),
    ] = (),
    output: Annotated[Path | None, Parameter(help="Folder for the report, also as Markdown.")] = None,
    ca: Annotated[Path | None, Parameter(help="PEM file that the service's certificate is checked against.")] = None,
    probes: Annotated[int | None, Parameter(help="Questions of each kind to the cache.")] = None,
    timing: Annotated[int | None, Parameter(help="Probes of each arm of the measure of times; 0: none.")] = None,
    load: Annotated[
        int | None, Parameter(help="Clients of one canary that ask while the other's answers are timed; 0: none.")
    ] = None,
    log: Annotated[Path | None, Parameter(help="File that the service's log lines go to.")] = None,
    adapter: Annotated[Path | None, Parameter(help="Folder with an adapter that a shared pool can load.")] = None,
    common: Common = DEFAULT,
) -> int:
    """Probe the running service with canary tenants, layer by layer, and write a signed report.

    Each layer is PASS, FAIL, INCONCLUSIVE (its control failed, so that nothing is shown) or NOT BUILT. No tenant's data
    is touched: the canaries are two tenants made for this and removed afterwards. Exit code 1 where a layer is FAIL or
    INCONCLUSIVE.
    """
    from service.attest.caller import Caller
    from service.attest.report import FOLDER, markdown, write
    from service.attest.run import attest as run

    with opened(common) as control:
        folder = output or control.settings.data_path / FOLDER
        _require_folder(folder)
        options = _options(
            control.settings.attest,
            {"probes": probes, "timing": timing, "load": load, "log": log, "adapter": adapter},
        )
        caller = Caller.of(control.settings.server, url, ca)
        try:
            report = run(control, caller, options, tenants=tenant, progress=lambda layer: note(f"examining {layer}"))
        finally:
            caller.close()
        try:
            written = write(report, folder)
        except OSError as error:
            raise Unavailable(
                "the report cannot be written", item=str(folder), remedy=f"{error.strerror}; attest again"
            ) from error
    print_json(report) if common.as_json else print(markdown(report))
    note(f"the report is at {written[0]}")
    return int(report["verdict"] in {"FAIL", "INCONCLUSIVE"})


def _require_folder(folder: Path) -> None:
    """Raise `InvalidInput` for a folder that no report can be written to, before anything is probed."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise InvalidInput("this is no folder for reports", item=str(folder), remedy=str(error.strerror)) from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InvalidInput("this folder cannot be written to", item=str(folder))


def _options(settings: AttestSettings, given: Mapping[str, Any]) -> Options:
    from service.attest.stage import options_of

    for name, least in (("probes", 1), ("timing", 0), ("load", 0)):
        if given[name] is not None and given[name] < least:
            raise InvalidInput(f"a number from {least} on is needed", item=f"--{name}")
    chosen = {name: value for name, value in given.items() if value is not None}
    return msgspec.structs.replace(options_of(settings), **chosen)
