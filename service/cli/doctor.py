"""`strongroom doctor`: what is wrong with this installation, and what to do about it."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from service.cli.console import DEFAULT, Common, note, opened, show_record, show_table


def doctor(
    *,
    create_master_key: Annotated[
        bool, Parameter(negative=(), help="Write a new random master key; never over an existing one.")
    ] = False,
    public_key: Annotated[
        bool, Parameter(negative=(), help="Show the key that deletion certificates are checked with.")
    ] = False,
    settings: Annotated[bool, Parameter(negative=(), help="Show every setting with its present value.")] = False,
    common: Common = DEFAULT,
) -> int:
    """Check master key, data directory, SQLite and fsync, descriptors, model, engines, generator and cache.

    Exit code 1 where something is wrong; each finding comes with its remedy.
    """
    from service.diagnosis import create_key, examine, setting_values
    from service.settings import load_settings

    chosen = load_settings(common.config)
    if public_key:
        with opened(common) as control:
            key = control.tenants.public_key
            # Alone on its line: it is an argument of the program that checks certificates.
            show_record(common, {"public_key": key}) if common.as_json else print(key)
        return 0
    if create_master_key:
        path = create_key(chosen)
        note("keep a copy of this key outside this machine: without it no tenant's data can be read")
        show_record(common, {"master_key": str(path)})
        return 0
    if settings:
        show_table(common, setting_values(chosen), ["setting", "value"])
        return 0
    findings = examine(chosen)
    rows = [{"check": one.check, "state": one.state, "finding": one.finding, "remedy": one.remedy} for one in findings]
    show_table(common, rows, ["check", "state", "finding", "remedy"])
    return 1 if any(one.state == "wrong" for one in findings) else 0
