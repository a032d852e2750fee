"""A service at which each step of a question costs something."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from metering.ledger import UsageLedger
from tests.service.house import House

PRICES = """
plan = "plan"
revision = "1"
since = 2020-01-01
[hops.embed]
input_per_million = 1_000_000
[hops.retrieve]
call = 70
[hops.cache]
call = 3
output_per_million = 500_000
[hops.generate]
call = 1_000
input_per_million = 10_000_000
output_per_million = 20_000_000
"""
QUESTION = {"query": "How long is the notice period?", "feature": "help"}


def price_list(folder: Path) -> dict[str, str]:
    """Puts a price list below `folder`; the settings that charge by it."""
    (folder / "prices").mkdir(exist_ok=True)
    (folder / "prices" / "plan.1.toml").write_text(PRICES)
    return {"STRONGROOM_PRICES__FOLDER": str(folder / "prices"), "STRONGROOM_PRICES__PLAN": "plan"}


def opened(folder: Path, **environment: str) -> House:
    return House(folder, **price_list(folder), **environment)


@pytest.fixture
def house(folder: Path) -> Iterator[House]:
    """Two tenants with one document each."""
    made = opened(folder)
    with made.client:
        for tenant in ("acme", "globex"):
            made.put(tenant, "notice.md", "The notice period is three months.", allow=["tenant"])
        yield made
    made.close()


def ledger_of(house: House, tenant: str = "acme") -> UsageLedger:
    control = house.services.control
    return UsageLedger(control.logs.of(control.authenticator.operator(tenant)))
