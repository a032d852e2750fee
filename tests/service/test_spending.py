"""A restart forgets nothing that was spent: the month's money of every scope comes from the usage ledger."""

from __future__ import annotations

import base64
import os
import signal
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from litestar.testing import TestClient

from admission.scopes import DEPLOYMENT, Scope, key_scope, model_scope, tenant_scope, user_scope
from metering.events import month_of
from service.app import create_app
from service.control import open_control
from service.ratelimit import told
from service.settings import load_settings
from service.spending import spent_this_month
from service.wiring import build
from tenancy.contract import Contract
from tenancy.identity import Role
from tenancy.limits import Limits, TenantLimits
from tests.service.house import MASTER, House, problem
from tests.service.priced import QUESTION, house, ledger_of, price_list
from tests.service.test_server import serving

__all__ = ["house"]


def asked(house: House, user: str, tenant: str = "acme") -> int:
    """Micro-units of one answer, by the ledger."""
    ledger = ledger_of(house, tenant)
    ledger.catch_up()
    scope = tenant_scope(house.services.control.tenants.show(tenant).id)
    before = amount(house, scope)
    response = house.post("/v1/answers", house.key(tenant, user), QUESTION | {"cache": "bypass"})
    assert response.status_code == 200, response.text
    return amount(house, scope) - before


def amount(house: House, scope: Scope) -> int:
    month, found = spent_this_month(house.services.control, (scope,))
    assert month == month_of(ledger_of(house).log.now())
    return found[scope]


def test_each_scope_has_what_its_own_requests_cost(house: House) -> None:
    tenants = house.services.control.tenants
    acme, globex = tenants.show("acme").id, tenants.show("globex").id
    ingested = {tenant: amount(house, tenant_scope(tenant)) for tenant in (acme, globex)}
    assert min(ingested.values()) > 0
    ana, bo, other = asked(house, "ana"), asked(house, "bo"), asked(house, "ana", "globex")
    assert min(ana, bo, other) > 0
    model = house.generator.identity.model
    found = {
        tenant_scope(acme): ingested[acme] + ana + bo,
        tenant_scope(globex): ingested[globex] + other,
        user_scope(acme, tenants.find_user(acme, "ana") or ""): ana,
        user_scope(acme, tenants.find_user(acme, "bo") or ""): bo,
        key_scope(acme, house.key("acme", "bo").split("_")[2]): bo,
        key_scope(globex, house.key("acme", "bo").split("_")[2]): 0,
        model_scope(model): ana + bo + other,
        model_scope("another"): 0,
        DEPLOYMENT: sum(ingested.values()) + ana + bo + other,
    }
    assert spent_this_month(house.services.control, tuple(found))[1] == found
    later = ledger_of(house).log.now() + 40 * 86_400
    month, none = spent_this_month(house.services.control, tuple(found), lambda: later)
    assert (month, set(none.values())) == (month_of(later), {0})


def test_a_service_that_is_built_anew_refuses_what_was_spent_before(house: House, folder: Path) -> None:
    spent = asked(house, "ana")
    acme = house.services.control.tenants.show("acme").id
    total = amount(house, tenant_scope(acme))
    capped = Contract(admission=TenantLimits(tenant=Limits(money_per_month=total + spent - 1)))
    house.services.control.tenants.set_contract("acme", capped)
    key = house.key("acme", "ana")
    refused = problem(house.post("/v1/answers", key, QUESTION | {"cache": "bypass"}), 429, "limit-exceeded")
    assert (refused["bound"], refused["used"]) == ("money_per_month", told("money_per_month", refused["limit"], total))
    assert house.post("/v1/answers", house.key("globex", "ana"), QUESTION).status_code == 200

    again = build(house.settings, MASTER)
    try:
        with TestClient(create_app(again)) as client:
            headers = {"Authorization": f"Bearer {key}"}
            body = QUESTION | {"cache": "bypass"}
            refused = problem(client.post("/v1/answers", json=body, headers=headers), 429, "limit-exceeded")
            assert (refused["bound"], refused["used"]) == (
                "money_per_month",
                told("money_per_month", refused["limit"], total),
            )
    finally:
        again.close()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_spent_budget_stays_spent_over_kills_and_restarts(folder: Path) -> None:
    variables = {
        "STRONGROOM_DATA_DIR": str(folder / "data"),
        "STRONGROOM_MASTER_KEY": base64.b64encode(MASTER.value).decode(),
        "STRONGROOM_EMBEDDING__MODEL": "hashing:256",
        **price_list(folder),
    }
    environment = {name: value for name, value in os.environ.items() if not name.startswith("STRONGROOM_")} | variables
    limit = 50_000
    with closing(open_control(load_settings(environment=variables), MASTER)) as control:
        acme = control.tenants.create("acme", Contract(admission=TenantLimits(tenant=Limits(money_per_month=limit)))).id
        bearer = control.tenants.create_key("acme", "ana", (Role.READER, Role.INGEST)).text
        statuses, spent, refused = [], [], {}
        for most in (2, 100, 100):
            with (
                serving(environment, folder / "server.log", limit_s=280) as (process, address),
                httpx.Client(base_url=address, headers={"Authorization": f"Bearer {bearer}"}, timeout=100) as client,
            ):
                document = {"text": "The notice period is three months.", "allow": ["tenant"]}
                client.put("/v1/documents/notice.md", json=document)
                for _ in range(most):
                    reply = client.post("/v1/answers", json=QUESTION | {"cache": "bypass"})
                    if reply.status_code != 200:
                        refused = reply.json()
                        break
                statuses.append(reply.status_code)
                process.send_signal(signal.SIGKILL)
                process.wait(30)
            spent.append(spent_this_month(control, (tenant_scope(acme),))[1][tenant_scope(acme)])
    # The second server spent what the first one left, the third nothing more.
    assert statuses == [200, 429, 429], refused
    assert 0 < spent[0] < spent[1] == spent[2] <= limit
    assert refused["used"] == told("money_per_month", limit, spent[2])
    assert (refused["scope"], refused["bound"]) == ("tenant", "money_per_month")
