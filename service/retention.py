"""How long a deployment keeps its audit logs, and pruning them after that."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from audit.log import AuditLog
from audit.pruning import ACTION, plan, prune
from audit.retention import LONGEST, cutoff
from audit.trail import Trail
from metering.ledger import UsageLedger
from service.control import Control
from tenancy.contract import Retention, stored_contract
from tenancy.errors import Conflict, InvalidInput
from tenancy.identity import Principal


def one_log(
    control: Control, tenant: str | None, *, system: bool, deleted: str | None
) -> tuple[Principal | None, AuditLog]:
    """The log that was named, and in whose name it is changed: that of a deleted tenant in the system's."""
    if [tenant is not None, system, deleted is not None].count(True) != 1:
        raise InvalidInput("name one log", item="audit", remedy="give --tenant NAME, --system or --deleted ID")
    if deleted is not None:
        return None, control.logs.of_id(retained(control, deleted)[0])
    principal = None if tenant is None else control.authenticator.operator(tenant)
    return principal, control.logs.of(principal)


def retained(control: Control, deleted: str) -> tuple[str, str]:
    """Id and name of a deleted tenant, whose log is all that is left. Raises `NotFound`, and `Conflict` for a tenant
    that is still there: what is done with its log belongs on record there.
    """
    tenant_id, name = control.tenants.resolve(deleted)
    there = control.tenants.adoption.known(tenant_id).name
    if there is not None:
        raise Conflict("the tenant is not deleted", item=there, remedy=f"give --tenant {there}")
    return tenant_id, name


def class_of(control: Control, tenant: str | None, *, deleted: bool = False) -> Retention:
    """The class of a tenant's log: of its contract, else of the settings, like the system's. Of a `deleted` tenant,
    whose contract is gone, the longest.
    """
    if deleted:
        return LONGEST
    agreed = None
    if tenant is not None:
        agreed = stored_contract(control.tenants.show(tenant).contract, tenant).audit.retention
    return agreed or control.settings.audit.retention


def prune_log(trail: Trail, log: AuditLog, retention: Retention, *, dry_run: bool) -> dict[str, Any]:
    """Prune one log by its class; returns what went, or would go, and what of its age stays for which reason."""
    before = cutoff(retention, log.now())
    if not dry_run:
        # What is pruned is booked before.
        UsageLedger(log).catch_up()
    found = plan(log, before) if dry_run else prune(log, before, lambda said: trail.aside(ACTION, said))
    moment = datetime.fromtimestamp(before, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    trail.note(
        detail={
            "log": log.log_id, "retention": retention, "before": moment, "dry_run": dry_run,
            "records": found.records, "ranges": len(found.ranges), "kept": found.kept.total(),
        }
    )  # fmt: skip
    return {
        "retention": retention,
        "before": moment,
        "records": found.records,
        "ranges": len(found.ranges),
        "kept": dict(found.kept),
        "dry_run": dry_run,
    }
