"""Contracts: every key checked, an unknown one refused with the nearest; in force from the next opening on."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from tenancy import schema
from tenancy.contract import Contract, check_contract, read_contract
from tenancy.control import Tenants
from tenancy.errors import Corrupt, InvalidInput
from tenancy.identity import Authenticator
from tenancy.limits import Away, Limits, TenantLimits
from tests.support.people import Company

EXAMPLE = Path(__file__).resolve().parents[2] / "configs" / "contracts" / "example.toml"


def test_the_example_names_every_key_and_nothing_else() -> None:
    contract = read_contract(EXAMPLE)
    given = contract.stored()
    assert {name for name in Contract.__struct_fields__ if name not in given} == {"tier"}
    assert given["admission"]["user"].keys() == set(Limits.__struct_fields__)
    assert set(contract.metadata.values()) == {"string", "integer", "number", "boolean"}


@pytest.mark.parametrize(
    ("given", "item", "remedy"),
    [
        ({"teir": "collection"}, "teir", "did you mean tier?"),
        ({"admission": {"user": {"concurent": 1}}}, "admission.user.concurent", "mean admission.user.concurrent?"),
        ({"admission": {"group": {}}}, "admission.group", "known: admission.tenant, admission.user"),
        ({"tier": "shared"}, "tier", ""),
        ({"tier": "dedicated"}, "engine", "dedicated_to"),
        ({"engine": "../faiss"}, "engine", ""),
        ({"engine": 3}, "engine", ""),
        ({"metadata": {"year": "date"}}, "metadata.year", "string, integer, number, boolean"),
        ({"metadata": {"year": ["integer"]}}, "metadata.year", ""),
        ({"metadata": {"": "string"}}, "field", ""),
        ({"metadata": {"a\u0301": "string", "\u00e1": "string"}}, "metadata.\u00e1", "remove one"),
        ({"metadata": {f"f{number}": "string" for number in range(65)}}, "metadata", ""),
        ({"metadata": []}, "metadata", ""),
        ({"admission": {"user": {"concurrent": -1}}}, "admission.user.concurrent", ""),
        ({"admission": {"user": {"kv_tokens": 2**53 + 1}}}, "admission.user.kv_tokens", ""),
        ({"admission": {"key": {"money_per_month": 10**30}}}, "admission.key.money_per_month", ""),
        ({"admission": {"away": {"tokens": 2**64}}}, "admission.away.tokens", ""),
        ({"admission": {"user": {"deadline_s": math.inf}}}, "admission.user.deadline_s", ""),
        ({"admission": {"wait_s": math.nan}}, "admission.wait_s", ""),
        ({"model": ""}, "model", ""),
    ],
)  # fmt: skip
def test_a_wrong_key_is_named_with_its_path(given: dict[str, Any], item: str, remedy: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_contract(given)
    assert refused.value.item == item
    assert remedy in (refused.value.remedy or "")


def test_a_file_that_is_no_contract_is_named(tmp_path: Path) -> None:
    for content in (b"tier = ", b"\xff\xfe"):
        path = tmp_path / "c.toml"
        path.write_bytes(content)
        with pytest.raises(InvalidInput, match="not TOML"):
            read_contract(path)
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_contract(tmp_path / "absent.toml")


def test_what_is_stored_comes_back_equal() -> None:
    contract = read_contract(EXAMPLE)
    assert check_contract(contract.stored()) == contract
    assert check_contract({}) == Contract()
    assert Contract().stored() == {}


def test_its_limits_take_the_place_of_the_deployments_number_by_number() -> None:
    deployment = TenantLimits(tenant=Limits(concurrent=64, tokens_per_minute=10), user=Limits(concurrent=16))
    contract = Contract(admission=TenantLimits(tenant=Limits(concurrent=0)))
    assert contract.limits(deployment) == TenantLimits(
        tenant=Limits(concurrent=0, tokens_per_minute=10), user=Limits(concurrent=16)
    )
    assert Contract().limits(deployment) == deployment


def test_a_handle_has_the_contract_that_is_in_force(tenants: Tenants, authenticator: Authenticator) -> None:
    tenants.create("acme", Contract(metadata={"year": "integer"}))
    principal = authenticator.operator("acme")
    assert tenants.open(principal).contract.metadata == {"year": "integer"}
    tenants.set_contract("acme", Contract(metadata={"year": "string"}))
    assert tenants.open(principal).contract.metadata == {"year": "string"}


def test_a_contract_of_a_newer_program_is_not_half_kept(acme: Company, authenticator: Authenticator) -> None:
    with acme.tenants._control.writing() as connection:
        connection.execute(update(schema.tenants).values(contract={"region": "eu"}))
    with pytest.raises(Corrupt, match="region"):
        acme.tenants.open(authenticator.operator("acme"))


def test_what_holds_without_the_store_of_the_counters_is_the_contract_s_or_the_deployment_s() -> None:
    refuses, allows = Away("refuse"), Away("allowance", requests=5, tokens=900)
    silent = check_contract({})
    assert silent.limits(TenantLimits(away=allows)).away == allows
    assert silent.limits(TenantLimits()).away is None
    agreed = check_contract({"admission": {"away": {"policy": "refuse"}}})
    assert agreed.limits(TenantLimits(away=allows)).away == refuses
    own = check_contract({"admission": {"away": {"policy": "allowance", "requests": 5, "tokens": 900}}})
    assert own.limits(TenantLimits(away=refuses)).away == allows
    for contract in (silent, agreed, own):
        assert check_contract(contract.stored()) == contract
    with pytest.raises(InvalidInput) as refused:
        check_contract({"admission": {"away": {"polcy": "refuse"}}})
    assert refused.value.item == "admission.away.polcy"
