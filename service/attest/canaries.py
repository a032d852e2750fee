"""Canary tenants: made for one attestation, filled with text that nobody else has, and removed after it.

Their names stand in a file below `data_dir/attest` before they are made, which the attestation holds locked: what a
crash leaves is found by these names, and by nothing that a customer's tenant could have. The next attestation and the
next start of a server remove it.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from audit.trail import Trail
from service.control import Control
from service.deletion import delete_tenant
from service.engines import build_engines
from service.wiring import cache_store
from tenancy.contract import Contract, GenerationTerms
from tenancy.errors import NotFound
from tenancy.identity import Principal, Role
from tenancy.limits import Limits, TenantLimits

T = TypeVar("T")

FOLDER: Final = "attest"
_SUFFIX: Final = ".canaries"
_PREFIX: Final = "attest-"
LEFT, RIGHT = "left", "right"
_CANARY: Final = re.compile(rf"{_PREFIX}[0-9a-f]{{16}}-(?:{LEFT}|{RIGHT})")

_ENOUGH: Final = Limits(requests_per_minute=10**6, concurrent=100, tokens_per_minute=10**9)
_PEOPLE: Final = {
    # Each tenant has the same people in the same groups: only the tenant tells them apart.
    "ana": (Role.READER, ("red",)),
    "ann": (Role.READER, ("red",)),
    "rob": (Role.READER, ("blue",)),
    "uma": (Role.READER, ()),
    "loader": (Role.INGEST, ()),
    "auditor": (Role.AUDITOR, ()),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Canary:
    """A tenant of this attestation, and the API keys of its people by their names."""

    name: str
    principal: Principal
    keys: dict[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Pair:
    """Two tenants that are alike in everything but their documents' secrets."""

    control: Control
    run: str
    left: Canary
    right: Canary

    def agree(self, pool: str | None = None) -> None:
        """Let both be answered by one pool; without, by those of the deployment's routing."""
        for canary in (self.left, self.right):

            def work(_: Trail, name: str = canary.name) -> None:
                self.control.tenants.set_contract(name, _contract(pool))

            on_record(self.control, canary.principal, "tenant.contract", work)

    def limit(self, canary: Canary, limits: Limits | None) -> None:
        """Give one of them limits of its own as a tenant; without, all that it may need."""

        def work(_: Trail) -> None:
            contract = _contract(None)
            if limits is not None:
                terms = msgspec.structs.replace(contract.admission, tenant=limits)
                contract = msgspec.structs.replace(contract, admission=terms)
            self.control.tenants.set_contract(canary.name, contract)

        on_record(self.control, canary.principal, "tenant.contract", work)

    def join(self, user: str, *groups: str) -> None:
        """A further reader of this name, of these groups, in both tenants."""
        for canary in (self.left, self.right):
            canary.keys[user] = _key(self.control, canary.principal, user, Role.READER, groups)


@contextmanager
def canaries(control: Control) -> Iterator[Pair]:
    """A fresh pair, removed when the block ends. What an earlier crash left is removed first."""
    sweep(control)
    run = secrets.token_hex(8)
    names = {side: f"{_PREFIX}{run}-{side}" for side in (LEFT, RIGHT)}
    with _journal(control.settings.data_path / FOLDER, run, list(names.values())) as journal:
        try:
            yield Pair(control, run, *(_made(control, names[side]) for side in (LEFT, RIGHT)))
        finally:
            remove(control, list(names.values()))
            journal.unlink(missing_ok=True)


def sweep(control: Control) -> list[str]:
    """Remove the canary tenants of attestations whose process is gone; returns their names."""
    removed = []
    for path in sorted((control.settings.data_path / FOLDER).glob(f"*{_SUFFIX}")):
        with suppress(FileNotFoundError), path.open("r+", encoding="utf-8") as journal:
            try:
                fcntl.flock(journal, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            removed += remove(control, json.loads(journal.read()))
            path.unlink(missing_ok=True)
    return removed


def remove(control: Control, names: list[str]) -> list[str]:
    """Delete those of the tenants `names` that there are, as an operator does; returns them."""
    found = []
    # Whatever a file says, nothing else is ever deleted here.
    for name in filter(_CANARY.fullmatch, names):
        with suppress(NotFound):
            control.tenants.show(name)
            found.append(name)
    if not found:
        return []
    engines, store = build_engines(control.settings.collections), cache_store(control.settings, patient=True)
    try:
        for name in found:
            principal = control.authenticator.operator(name)

            def work(trail: Trail, principal: Principal = principal) -> None:
                trail.note(detail={"tenant": principal.tenant_id, "why": "attest"})
                delete_tenant(control, principal, engines, store)

            on_record(control, None, "tenant.delete", work)
    finally:
        engines.close()
        store.shutdown()
    return found


def on_record(control: Control, principal: Principal | None, action: str, work: Callable[[Trail], T]) -> T:
    """Do `work` between a durable intent and an outcome; without a principal in the system's log."""

    async def run() -> T:
        async with control.trail.open(principal, action=action, request_id=secrets.token_hex(16)) as trail:
            await trail.intent()
            return work(trail)

    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(run())
    finally:
        loop.close()


@contextmanager
def _journal(folder: Path, run: str, names: list[str]) -> Iterator[Path]:
    """Locked before it has its name, and on the disk before a tenant is made."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    unnamed, path = folder / f"{run}.new", folder / f"{run}{_SUFFIX}"
    descriptor = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.write(descriptor, json.dumps(names).encode())
        os.fsync(descriptor)
        unnamed.rename(path)
        yield path
    finally:
        unnamed.unlink(missing_ok=True)
        os.close(descriptor)


def _made(control: Control, name: str) -> Canary:
    def work(trail: Trail) -> Any:
        record = control.tenants.create(name, _contract(None))
        trail.note(detail={"tenant": record.id, "why": "attest"})
        return record

    on_record(control, None, "tenant.create", work)
    principal = control.authenticator.operator(name)
    keys = {user: _key(control, principal, user, role, groups) for user, (role, groups) in _PEOPLE.items()}
    return Canary(name, principal, keys)


def _key(control: Control, principal: Principal, user: str, role: Role, groups: tuple[str, ...]) -> str:
    def work(trail: Trail) -> str:
        made = control.tenants.create_key(principal.tenant, user, [role], groups=groups)
        trail.note(detail={"key": made.key_id, "roles": role.value})
        return made.text

    return on_record(control, principal, "key.create", work)


def _contract(pool: str | None) -> Contract:
    terms = GenerationTerms() if pool is None else GenerationTerms(pools=[pool])
    return Contract(admission=TenantLimits(tenant=_ENOUGH, user=_ENOUGH), generation=terms)
