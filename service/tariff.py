"""The price lists of a deployment, from its settings."""

from __future__ import annotations

import time
from importlib import resources
from pathlib import Path

from metering.meter import Tariff
from metering.prices import PriceSettings, read_book
from tenancy.contract import Contract
from tenancy.errors import InvalidInput


def open_tariff(settings: PriceSettings) -> Tariff:
    """Read all lists. Raises `InvalidInput` for a list that cannot be read, or a plan that is not in force."""
    packaged = resources.files("configs").joinpath("prices")
    book = read_book(Path(settings.folder).expanduser() if settings.folder else packaged)
    book.at(settings.plan, time.time())
    return Tariff(book, settings.plan)


def require_plan(settings: PriceSettings, contract: Contract) -> None:
    """Raise `InvalidInput` where this deployment has no list in force of the plan that a contract names."""
    plan = contract.usage.prices
    if plan is None:
        return
    try:
        open_tariff(settings).book.at(plan, time.time())
    except InvalidInput as error:
        raise InvalidInput(error.reason, item="usage.prices", remedy=error.remedy) from None
