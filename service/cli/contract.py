"""`strongroom tenant contract`: show and change what was agreed with a tenant."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from service.cli.console import DEFAULT, Common, audited, note, opened, print_json, show_record
from tenancy.errors import Conflict, InvalidInput

if TYPE_CHECKING:
    from audit.trail import Trail
    from service.control import Control
    from tenancy.contract import Contract

app = App(name="contract", help="Show and change what was agreed with a tenant: tier, engine, model, fields, limits.")

Name = Annotated[str, Parameter(help="The tenant's name.")]


@app.command
def show(name: Name, *, common: Common = DEFAULT) -> None:
    """The contract, without what it leaves to the deployment."""
    with opened(common) as control:
        stored = dict(control.tenants.show(name).contract)
        show_record(common, stored) if stored or common.as_json else print("everything is left to the deployment")


@app.command(name="set")
def set_contract(
    name: Name,
    file: Annotated[
        Path | None, Parameter(help="The contract (TOML); it takes the place of the whole present one.")
    ] = None,
    *,
    empty: Annotated[bool, Parameter(negative=(), help="No contract: everything is the deployment's.")] = False,
    common: Common = DEFAULT,
) -> None:
    """Put another contract in place, from the next request on. Engine and model change with `tenant move` alone.

    Guard rails (generation.guards) are described in docs/operations/guard-rails.md; what was remembered under others is
    not served any more.
    """
    from service.engines import require_possible
    from tenancy.contract import Contract, read_contract

    if (file is None) is not empty:
        raise InvalidInput("say which contract", item="FILE", remedy="name one file, or --empty for none")
    contract = Contract() if file is None else read_contract(file)
    with opened(common) as control:
        principal = control.authenticator.operator(name)
        require_possible(control.settings, name, contract)

        def work(trail: Trail) -> None:
            trail.note(detail={"contract": json.dumps(contract.stored())})
            _require_no_move(control, name, contract)
            control.tenants.set_contract(name, contract)

        audited(control, principal, "tenant.contract", work)
        _note_absent_template(control, name, contract)
    print_json(contract.stored())


def _note_absent_template(control: Control, name: str, contract: Contract) -> None:
    """Say where questions that name no template would be refused until there is the one that the contract names."""
    from generation.prompt import Templates
    from generation.templates import resolve
    from tenancy.errors import Unavailable

    with control.tenants.open(control.authenticator.operator(name)).reading() as view:
        try:
            resolve(view, Templates(control.settings.generation.templates))
        except Unavailable:
            note(f"there is no template {contract.generation.template} yet: add it, or questions are refused")


def _require_no_move(control: Control, name: str, contract: Contract) -> None:
    """Raise `Conflict` where the tenant's documents are elsewhere, or embedded otherwise, than the contract says."""
    from indexing.catalogue import serving
    from indexing.embedding import Embedders
    from indexing.model import holds_chunks

    with control.tenants.open(control.authenticator.operator(name)).reading() as view:
        found = serving(view) if holds_chunks(view) else None
    if found is None:
        return
    wanted = []
    if contract.engine not in (None, found.engine):
        wanted.append(f"--engine {contract.engine}")
    other = contract.model is not None and contract.model != found.model.spec
    if (
        other
        and Embedders(control.settings.embedding).named(contract.model or "").fingerprint != found.model.fingerprint
    ):
        wanted += [] if wanted else [f"--engine {found.engine}"]
        wanted.append(f"--model {contract.model}")
    if wanted:
        raise Conflict(
            "the tenant's documents would have to move",
            item=name,
            remedy=f"`strongroom tenant move {name} {' '.join(wanted)}` does it, and changes the contract",
        )
