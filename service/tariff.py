"""The price lists of a deployment, from its settings."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path

from audit.trail import Trail
from metering.meter import HopUse, Tariff
from metering.prices import PriceSettings, read_book
from tenancy.contract import Contract
from tenancy.errors import InvalidInput
from tenancy.tenant import TenantHandle


def open_tariff(settings: PriceSettings) -> Tariff:
    """Read all lists. Raises `InvalidInput` for a list that cannot be read, or a plan that is not in force."""
    packaged = resources.files("configs").joinpath("prices")
    book = read_book(Path(settings.folder).expanduser() if settings.folder else packaged)
    book.at(settings.plan, time.time())
    return Tariff(book, settings.plan)


@contextmanager
def embedding(trail: Trail, tariff: Tariff, tenant: TenantHandle) -> Iterator[HopUse]:
    """Meter what documents that come in cost, on record however the block ends. Raises `Unavailable` without a list."""
    meter = tariff.meter(tenant.contract.usage)
    trail.priced(meter.prices.id, meter.basis)
    try:
        with meter.hop("embed") as use:
            yield use
    finally:
        trail.hop("embed", meter.hops[-1].milliseconds, meter.hops[-1].metered)
        trail.note(microunits=meter.microunits)


def require_plan(settings: PriceSettings, contract: Contract) -> None:
    """Raise `InvalidInput` where this deployment has no list in force of the plan that a contract names."""
    plan = contract.usage.prices
    if plan is None:
        return
    try:
        open_tariff(settings).book.at(plan, time.time())
    except InvalidInput as error:
        raise InvalidInput(error.reason, item="usage.prices", remedy=error.remedy) from None
