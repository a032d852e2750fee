"""`strongroom master`: the one key outside the data directory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from service.cli.console import DEFAULT, Common, audited, note, opened, show_record

if TYPE_CHECKING:
    from audit.trail import Trail

app = App(name="master", help="Create and change the master key; which one is needed.")


@app.command
def create(path: Path, /, *, common: Common = DEFAULT) -> None:
    """Write a new random master key to a file, readable by its owner alone; never over an existing one.

    Parameters
    ----------
    path: Path
        Where to.
    """
    from tenancy.keys import create_master_key

    made = create_master_key(path)
    show_record(common, {"master_key": str(path), "fingerprint": made.fingerprint})


@app.command(name="recovery-key")
def recovery_key(path: Path, /, *, common: Common = DEFAULT) -> None:
    """Make a pair of keys for backups that another machine is to open: the public one is for `backup --for`.

    Parameters
    ----------
    path: Path
        Where the private key goes, for the recovery desk; the public one lies beside it, with .pub.
    """
    from tenancy.archive import create_recovery_key

    public = create_recovery_key(path)
    show_record(common, {"private": str(path), "public": str(public)})


@app.command
def show(*, common: Common = DEFAULT) -> int:
    """Which master key the data directory needs, and whether the settings name that one. Exit code 1 if not."""
    from service.control import keyring_of, master_key
    from service.settings import load_settings
    from tenancy.errors import InvalidInput
    from tenancy.keyring import master_of

    settings = load_settings(common.config)
    try:
        present = master_key(settings).fingerprint
    except InvalidInput:
        present = None
    with keyring_of(settings) as keyring:
        needed = master_of(keyring)
    fits = needed is None or needed == present
    show_record(common, {"needed": needed, "present": present, "fits": fits})
    return 0 if fits else 1


@app.command
def rotate(
    *,
    new_key_file: Annotated[Path, Parameter(help="The new key, from `strongroom master create`.")],
    common: Common = DEFAULT,
) -> None:
    """Wrap the keyring by a new master key. No tenant's file is touched, and a running server goes on.

    Afterwards put the new key where the settings look for it: other commands are refused until then.
    """
    from service.control import master_key
    from tenancy.errors import InvalidInput
    from tenancy.keyring import rotate_master
    from tenancy.keys import load_master_key

    if not new_key_file.exists():
        raise InvalidInput(
            "there is no such file",
            item=str(new_key_file),
            remedy=f"`strongroom master create {new_key_file}` makes it",
        )
    new = load_master_key(new_key_file, None)
    with opened(common) as control:
        old = master_key(control.settings)

        def work(trail: Trail) -> None:
            trail.note(detail={"from": old.fingerprint, "to": new.fingerprint})
            rotate_master(control.tenants.storage.keyring, old, new)

        audited(control, None, "master.rotate", work)
    show_record(common, {"master_key": str(new_key_file), "fingerprint": new.fingerprint})
    note(
        "put this file where the setting master_key_file points; keep the old key as long as there are copies under it"
    )
