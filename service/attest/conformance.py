"""Contracts: can this deployment, as it is configured and running, keep what was agreed with each tenant?

Read are contracts and settings, and of tenants that agreed on it which adapters they have and what those declare;
no document, question or answer. Each check is also made of a contract that the deployment
cannot keep, which it has to refuse.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from audit.retention import LONGEST
from generation.adapters.lineage import Origin, origins
from generation.adapters.registry import registered
from service.attest import promises
from service.attest.claims import Claim, Layer, Tally, inconclusive, not_built
from service.attest.running import is_running
from service.control import Control
from service.engines import require_possible
from service.generators import pools_of, table_of
from service.retention import class_of
from service.settings import PoolSettings, Settings
from tenancy.contract import Contract, GenerationTerms, stored_contract
from tenancy.errors import StrongroomError

NAME: Final = "contracts"

_NOWHERE: Final = "no-such-name"
Agreed = Sequence[tuple[str, Contract]]


def examine(control: Control, tenants: Sequence[str]) -> Layer:
    """Of the contracts of `tenants`, by name; of all active ones where none is named. Raises `NotFound`."""
    settings = control.settings
    same = is_running(settings)
    if not same:
        why = "no server of this data directory has said with which settings it runs"
        if same is False:
            why = "the running server was started with other settings than this command reads"
        remedy = "use the server's own --config and environment, and restart it after a change"
        return Layer.of(NAME, [inconclusive("the deployment keeps its tenants' contracts", why, remedy)])
    agreed: list[tuple[str, Contract]] = []
    unreadable = Tally("every contract can be kept by this version")
    unreadable.control(_refuses(lambda: stored_contract({_NOWHERE: 1}, _NOWHERE)), "an unknown key")
    for name in tenants or [record.name for record in control.tenants.listed() if record.status == "active"]:
        try:
            agreed.append((name, stored_contract(control.tenants.show(name).contract, name)))
            unreadable.probe(False, name)
        except StrongroomError:
            if tenants:
                control.tenants.show(name)
            unreadable.probe(True, name)
    if not agreed and not unreadable.probes:
        return Layer.of(NAME, [not_built("the deployment keeps its tenants' contracts", "there is no tenant")])
    return Layer.of(
        NAME,
        [
            unreadable.close(),
            _tier(settings, agreed),
            _generation(settings, agreed),
            _memory(settings, agreed),
            _retention(control, agreed),
            _declared(control, agreed),
            *promises.examined(control, agreed),
            *_absent(),
        ],
    )


def _tier(settings: Settings, agreed: Agreed) -> Claim:
    tally = Tally("isolation tier, engine and embedding model are those agreed")
    for wrong in (Contract(engine=_NOWHERE), Contract(tier="dedicated", engine="faiss"), Contract(model=_NOWHERE)):
        refused = _refuses(lambda wrong=wrong: require_possible(settings, _NOWHERE, wrong))  # type: ignore[misc]
        tally.control(refused, "a contract that cannot be kept")
    for name, contract in agreed:
        bare = msgspec.structs.replace(contract, generation=GenerationTerms())
        tally.probe(_refuses(lambda name=name, bare=bare: require_possible(settings, name, bare)), name)  # type: ignore[misc]
    return tally.close()


def _generation(settings: Settings, agreed: Agreed) -> Claim:
    tally = Tally("answers come from the pools and models agreed")
    table = table_of(settings.generation)
    wrong = Contract(generation=GenerationTerms(pools=[_NOWHERE]))
    tally.control(_refuses(lambda: table.of(_NOWHERE, wrong)), "a pool that there is none of")
    for name, contract in agreed:
        tally.probe(_refuses(lambda name=name, terms=contract: table.of(name, terms)), name)  # type: ignore[misc]
    return tally.close()


def _memory(settings: Settings, agreed: Agreed) -> Claim:
    """A pool whose servers may share memory between tenants serves no tenant, unless it is that tenant's own."""
    tally = Tally("no tenant is answered by a pool whose KV isolation is waived")
    tally.control(_may_share(PoolSettings(kind="sglang", kv_isolation="waived")), "a pool that is waived")
    pools = {name: pool for name, (_, pool) in pools_of(settings.generation).items()}
    table = table_of(settings.generation)
    for name, contract in agreed:
        try:
            serving = [pools[entry.name] for entry in table.of(name, contract)]
        except StrongroomError:
            continue
        tally.probe(any(map(_may_share, serving)), name)
    return tally.close()


def _may_share(pool: PoolSettings) -> bool:
    return pool.kind != "extractive" and pool.kv_isolation == "waived" and not pool.dedicated_to


def _retention(control: Control, agreed: Agreed) -> Claim:
    """The class by which a tenant's audit records would be pruned is the one agreed, or the deployment's."""
    tally = Tally("audit records are kept for the time agreed")
    for name, contract in agreed:
        wanted = contract.audit.retention or control.settings.audit.retention
        tally.probe(class_of(control, name) != wanted, name)
    # Of a deleted tenant no contract says anything: it has to be the longest.
    tally.control(class_of(control, None, deleted=True) == LONGEST, "a deleted tenant")
    return tally.close()


def _declared(control: Control, agreed: Agreed) -> Claim:
    claim = "adapters say what they were trained on, where that was agreed"
    asked = [name for name, contract in agreed if contract.generation.declared_adapters]
    if not asked:
        return not_built(claim, "no contract asks for it (generation.declared_adapters)")
    tally = Tally(claim)
    tally.control(bool(_undeclared({_NOWHERE}, [])), "an adapter that declares nothing")
    for name in asked:
        handle = control.tenants.open(control.authenticator.operator(name))
        with handle.reading() as view:
            usable = {one.id for one in registered(view) if one.revoked is None}
        tally.probe(bool(_undeclared(usable, origins(handle.audit))), name)
    return tally.close()


def _undeclared(usable: set[str], known: Sequence[Origin]) -> set[str]:
    return usable - {one.id for one in known if one.declarations}


def _absent() -> list[Claim]:
    """What a contract cannot say yet is promised to nobody."""
    why = "contracts have no term for it"
    return [
        not_built(f"{commitment} are as agreed", why)
        for commitment in ("rules for training", "caching rules", "telemetry rules")
    ]


def _refuses(check: Callable[[], object]) -> bool:
    try:
        check()
    except StrongroomError:
        return True
    return False
