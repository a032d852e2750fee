"""Adding and taking away a tenant's adapters: files below the folder of the engines, rows in the tenant's database.

The files are in place before the row that names them is committed, and they go after it: a crash leaves files without
a row, which the next change of the tenant's adapters removes. What the adapter was made of is on record before that
row, too (`generation.adapters.lineage`), and never goes.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from generation.adapters import lineage, registry
from generation.adapters.files import Progress, adapter_path, copy_in, intact, keep_only, publish
from generation.adapters.manifest import Description, describe
from generation.adapters.registry import Registered
from generation.adapters.training import FILE as TRAINING_FILE
from generation.adapters.training import Training, read_training, require_own
from generation.placement import AdapterTerms, Entry
from service.generators import table_of
from service.settings import GenerationSettings
from tenancy.acl import parse_label
from tenancy.errors import Conflict, InvalidInput, StrongroomError
from tenancy.tenant import TenantHandle

_EXCLUSIVE = "adapters"
_STARTED = "as its replicas were started"


def adapters_root(settings: GenerationSettings) -> Path:
    """The folder below which the engines see adapters. Raises `InvalidInput` where none is configured."""
    root = settings.adapters_path
    if root is None:
        raise InvalidInput(
            "there is no folder for adapters",
            item="generation.adapters_dir",
            remedy="name one that the engines see under the same path; see docs/operations/adapters.md",
        )
    return root


def add_adapter(
    settings: GenerationSettings,
    tenant: TenantHandle,
    name: str,
    folder: Path,
    *,
    allow: Sequence[str] | None = None,
    training: Training | None = None,
    progress: Progress = lambda _: None,
) -> Registered:
    """Copy the adapter in `folder` and put it on record as `name`, in the place of the one that has this name.

    `training` says what it was trained on; without, what the folder brings along. Raises `InvalidInput` for a folder
    that is no adapter, or one that none of the tenant's pools takes; the item is the file or the key. Raises
    `ForeignTraining` for training data of another tenant, and `InvalidInput` where the contract asks for a declaration
    and there is none.
    """
    root = adapters_root(settings)
    registry.checked_name(name)
    for label in allow or ():
        parse_label(label)
    training = training or training_in(folder, None)
    _require_permitted(tenant, training)
    described = describe(folder)
    base = base_for(settings, tenant, described)
    with tenant.exclusive(_EXCLUSIVE):
        partial, manifest = copy_in(folder, root, tenant.tenant_id, progress)
        try:
            # What counts is what was copied, whatever the folder holds by now.
            if describe(partial) != described:
                raise Conflict("the folder changed while it was copied", item=str(folder), remedy="try again")
            with tenant.writing() as view:
                now = time.time()
                made = registry.register(view, name, base, described, manifest, allow, now)
                place = adapter_path(root, tenant.tenant_id, made.id)
                if not intact(place, manifest):
                    shutil.rmtree(place, ignore_errors=True)
                    publish(partial, made.id)
                lineage.record(tenant.audit, made, described, training, now)
        except BaseException:
            with suppress(StrongroomError):
                _tidy(root, tenant)
            raise
        _tidy(root, tenant)
    return made


def training_in(folder: Path, given: Path | None) -> Training | None:
    """The declaration in the file `given`, else the one that the adapter's folder brings along, else None.

    Raises as `read_training`.
    """
    brought = folder / TRAINING_FILE
    if given is None and not (brought.is_symlink() or brought.exists()):
        return None
    return read_training(given or brought)


def revoke_adapter(settings: GenerationSettings, tenant: TenantHandle, name: str) -> tuple[str, ...]:
    """Take an adapter away and remove its files; returns its ids. Raises `NotFound`; `Unavailable` where the files
    could not be removed, and then it is revoked all the same.
    """
    with tenant.exclusive(_EXCLUSIVE):
        with tenant.writing() as view:
            gone = registry.revoke(view, name, time.time())
        if settings.adapters_path is not None:
            _tidy(settings.adapters_path, tenant)
    return gone


def _require_permitted(tenant: TenantHandle, training: Training | None) -> None:
    if training is not None:
        require_own(training, tenant.name, tenant.tenant_id)
    elif tenant.contract.generation.declared_adapters:
        raise InvalidInput(
            "the tenant's contract asks what an adapter was trained on",
            item=TRAINING_FILE,
            remedy="declare it: docs/operations/lineage.md",
        )


def base_for(settings: GenerationSettings, tenant: TenantHandle, described: Description) -> str:
    """The model of the first of the tenant's pools that takes such an adapter. Raises `InvalidInput`."""
    pools = table_of(settings).of(tenant.name, tenant.contract)
    taking = [(entry, entry.adapters) for entry in pools if entry.adapters is not None]
    if not taking:
        raise InvalidInput(
            "none of the tenant's pools takes adapters",
            item="generation.pools",
            remedy="set max_adapters of a pool that serves it",
        )
    refusals = []
    for entry, terms in taking:
        refusal = _refusal(entry, terms, described)
        if refusal is None:
            return entry.model
        refusals.append(refusal)
    # The one that came furthest says most.
    raise max(refusals, key=lambda one: one[0])[1]


def _refusal(entry: Entry, terms: AdapterTerms, described: Description) -> tuple[int, InvalidInput] | None:
    """Why a pool does not take an adapter, with a number that grows the more of it fits."""
    if described.base not in terms.bases:
        return 0, InvalidInput(
            f"the adapter is for {described.base}, and the pool {entry.name} runs {entry.model}",
            item="base_model_name_or_path",
            remedy=f"where it is the same model, add the name to generation.pools.{entry.name}.adapter_bases",
        )
    if described.base_revision not in (None, terms.revision):
        return 1, InvalidInput(
            f"the adapter is for another revision of the model than that of the pool {entry.name}, {terms.revision}",
            item="revision",
            remedy="train it for that revision",
        )
    if described.rank > terms.rank:
        return 2, InvalidInput(
            f"the adapter has rank {described.rank}, and the pool {entry.name} takes {terms.rank} at most",
            item="r",
            remedy=f"raise max_adapter_rank, {_STARTED} (--max-lora-rank)",
        )
    foreign = sorted(set(described.modules) - terms.modules)
    if foreign:
        return 3, InvalidInput(
            f"the adapter changes modules that the pool {entry.name} has no room for: {', '.join(foreign)}",
            item="target_modules",
            remedy=f"add them to adapter_modules, {_STARTED} (--lora-target-modules)",
        )
    return None


def _tidy(root: Path, tenant: TenantHandle) -> None:
    """Remove files of adapters that are revoked, and what a crash left."""
    with tenant.reading() as view:
        kept = registry.present(view)
    keep_only(root, tenant.tenant_id, kept)
