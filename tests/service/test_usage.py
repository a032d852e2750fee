"""Usage over HTTP and on the command line: what a question used, what a remembered answer saved, who may read it."""

from __future__ import annotations

import csv
import io
import json
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import service.retention
from metering.events import CORRECT
from metering.ledger import UsageLedger
from metering.reconcile import reconcile
from metering.usage import events_of
from service.cli import run
from service.cli.console import audited
from service.control import Control, open_control
from service.log_care import LogCare
from service.retention import prune_log
from service.usage import MOST, Window, correct, usage_report
from tenancy.billing import UsageTerms
from tenancy.contract import Contract
from tenancy.errors import InvalidInput
from tenancy.identity import Role
from tests.service.house import MASTER, House, problem
from tests.service.priced import QUESTION, house, ledger_of
from tests.service.test_deletion import delete
from tests.service.test_pruning import Commands, command

__all__ = ["command", "house"]


def asked(house: House, **more: Any) -> dict[str, Any]:
    response = house.post("/v1/answers", house.key("acme", "ana"), QUESTION | more)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def used(house: House, query: str = "", role: Role = Role.AUDITOR, tenant: str = "acme") -> dict[str, Any]:
    response = house.get(f"/v1/usage{query}", house.key(tenant, "boss", role))
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def by_hop(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Rows by hop, but for documents that came in, which have a feature of their own."""
    return {row["hop"]: row for row in found["rows"] if row.get("feature") != "ingestion"}


def test_a_question_is_booked_hop_by_hop_and_its_repetition_says_what_it_saved(house: House) -> None:
    first = asked(house)
    tokens = first["usage"]
    hops = by_hop(used(house, "?group_by=hop,feature"))
    assert {row["feature"] for row in hops.values()} == {"help"}
    generated = 1_000 + 10 * tokens["input_tokens"] + 20 * tokens["output_tokens"]
    assert tokens["output_tokens"] > 0
    assert hops["generate"]["microunits"] == generated
    assert hops["generate"]["tokens_computed"] == hops["generate"]["tokens_served"] > 0
    assert (hops["retrieve"]["microunits"], hops["cache"]["saved"]) == (70, 0)
    assert hops["embed"]["microunits"] == hops["embed"]["tokens_computed"] > 0

    again = asked(house)
    assert again["cache"]["status"] == "hit"
    after = by_hop(used(house, "?group_by=hop,feature"))
    for hop in ("generate", "retrieve", "embed"):
        assert after[hop]["microunits"] == hops[hop]["microunits"], hop
    assert after["cache"]["tokens_computed"] == 0
    assert after["cache"]["tokens_served"] == tokens["input_tokens"] + tokens["output_tokens"]
    assert after["cache"]["saved"] == generated
    assert after["cache"]["microunits"] == 3 * after["cache"]["events"]
    assert reconcile(ledger_of(house)).agrees


def test_logical_tokens_charge_what_was_served_from_memory_too(house: House) -> None:
    house.services.control.tenants.set_contract("acme", Contract(usage=UsageTerms(tokens="logical")))
    tokens = asked(house)["usage"]
    before = by_hop(used(house, "?group_by=hop"))["cache"]["microunits"]
    assert asked(house)["cache"]["status"] == "hit"
    row = by_hop(used(house, "?group_by=hop,basis"))["cache"]
    assert row["basis"] == "logical"
    # Two looks into the cache, before and after it was on record, and the answer's tokens.
    assert row["microunits"] - before == 3 * 2 + (tokens["output_tokens"] * 500_000 + 500_000) // 1_000_000


def test_a_question_without_a_feature_is_unattributed_or_refused_by_contract(house: House) -> None:
    asked(house, feature=None)
    assert {row["feature"] for row in used(house, "?group_by=feature")["rows"]} == {"unattributed", "ingestion"}
    house.services.control.tenants.set_contract("acme", Contract(usage=UsageTerms(feature="required")))
    key = house.key("acme", "ana")
    found = problem(house.post("/v1/answers", key, {"query": QUESTION["query"]}), 422, "invalid-input")
    assert "feature" in json.dumps(found)
    asked(house)


def test_usage_is_for_auditors_and_admins_of_the_tenant_itself(house: House) -> None:
    asked(house)
    for role in (Role.READER, Role.INGEST):
        problem(house.get("/v1/usage", house.key("acme", "boss", role)), 403, "forbidden")
    assert used(house, role=Role.ADMIN)["rows"] == used(house)["rows"] != []
    assert {row["feature"] for row in used(house, tenant="globex")["rows"]} == {"ingestion"}
    assert {row["tenant"] for row in used(house)["rows"]} == {"acme"}
    event = [one for one in house.events("acme") if one["action"] == "usage.query"][-1]
    assert event["detail"]["group_by"] == "tenant,feature,model,hop"


def test_documents_that_come_in_are_booked_under_a_feature_of_their_own(house: House) -> None:
    (row,) = used(house, "?group_by=feature,hop")["rows"]
    assert (row["feature"], row["hop"], row["events"]) == ("ingestion", "embed", 1)
    assert row["tokens_computed"] > 0
    assert row["microunits"] == row["tokens_computed"]
    house.put("acme", "notice.md", "The notice period is three months.", allow=["tenant"])
    (again,) = used(house, "?group_by=feature,hop")["rows"]
    assert (again["events"], again["tokens_computed"]) == (2, row["tokens_computed"])


def test_csv_has_the_same_figures(house: House) -> None:
    asked(house)
    response = house.get("/v1/usage?group_by=hop&format=csv", house.key("acme", "boss", Role.AUDITOR))
    assert response.headers["content-type"].startswith("text/csv")
    rows = {row["hop"]: int(row["microunits"]) for row in csv.DictReader(io.StringIO(response.text))}
    assert rows == {row["hop"]: row["microunits"] for row in used(house, "?group_by=hop")["rows"]}


@pytest.mark.parametrize(
    "query",
    ["group_by=colour", "group_by=hop,hop", "format=xml", "since=yesterday", "since=2026-02-01&until=2026-01-01"],
)
def test_what_cannot_be_asked_is_refused(house: House, query: str) -> None:
    problem(house.get(f"/v1/usage?{query}", house.key("acme", "boss", Role.AUDITOR)), 422, "invalid-input")


def test_an_answer_that_was_refused_costs_nothing_and_one_that_failed_what_it_used(house: House) -> None:
    problem(house.post("/v1/answers", house.key("acme", "ana"), QUESTION | {"model": "other"}), 404, "not-found")
    assert by_hop(used(house)) == {}


def test_a_correction_is_another_event_and_never_gives_back_more_than_was_charged(house: House) -> None:
    asked(house)
    ledger = ledger_of(house)
    ledger.catch_up()
    control = house.services.control
    principal = control.authenticator.operator("acme")
    request = next(event["request"]["id"] for event in house.events("acme") if event["action"] == "answer")
    hops = by_hop(used(house, "?group_by=hop"))
    number = next(n for n in range(9) if _there(ledger, f"{request}.{n}.generate"))
    about, charged = f"{request}.{number}.generate", hops["generate"]["microunits"]

    def corrected(amount: int) -> None:
        audited(
            control, principal, "usage.correct", lambda trail: correct(ledger.log, trail, about, amount, "by agreement")
        )

    # Also what no ledger could book: it would be on record, and stop the ledger for good.
    for wrong in (0, -charged - 1, MOST - charged + 1, 2**63 - 1, 10**30):
        with pytest.raises(InvalidInput):
            corrected(wrong)
    corrected(MOST - charged)
    assert by_hop(used(house, "?group_by=hop"))["generate"]["microunits"] == MOST
    corrected(charged - MOST)
    corrected(-charged)
    row = by_hop(used(house, "?group_by=hop"))["generate"]
    assert (row["microunits"], row["events"], row["corrections"]) == (0, 1, 3)
    assert ledger.charged(about) == 0
    with pytest.raises(InvalidInput):
        corrected(-1)
    assert reconcile(ledger).agrees


def test_corrections_at_once_give_back_no_more_than_was_charged(house: House) -> None:
    asked(house)
    with closing(open_control(house.settings, MASTER)) as other:
        ledger = ledger_of(house)
        ledger.catch_up()
        about = next(one for one in events_of(ledger) if one.hop == "generate")
        controls = [house.services.control, other] * 3
        refused: list[InvalidInput] = []
        begin = threading.Barrier(len(controls))

        def give_back(control: Control) -> None:
            principal = control.authenticator.operator("acme")
            log = control.logs.of(principal)
            begin.wait()
            try:
                audited(
                    control, principal, CORRECT, lambda trail: correct(log, trail, about.id, -about.microunits, "x")
                )
            except InvalidInput as error:
                refused.append(error)

        threads = [threading.Thread(target=give_back, args=(control,)) for control in controls]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert reconcile(ledger).agrees
    assert (ledger.charged(about.id), len(refused)) == (0, len(controls) - 1)


def test_a_server_books_what_its_logs_grew_by(house: House) -> None:
    asked(house)
    control = house.services.control
    care = LogCare(control, 0.0)
    try:
        care._unbooked |= set(control.logs.sign())
        care.book()
    finally:
        care.close()
    place = ledger_of(house).place()
    assert place.next > 0
    assert place.missed == 0


def test_what_is_pruned_was_booked_before(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    asked(house)
    control = house.services.control
    principal = control.authenticator.operator("acme")
    log = control.logs.of(principal)
    log.flush()
    monkeypatch.setattr(service.retention, "cutoff", lambda _retention, now: now + 1.0)

    found = audited(
        control, principal, "audit.retention", lambda trail: prune_log(trail, log, "184-days", dry_run=False)
    )
    assert found["records"] > 0
    assert by_hop(used(house, "?group_by=hop"))["generate"]["microunits"] > 0
    again = reconcile(ledger_of(house))
    assert again.agrees
    assert again.kept > 0


def test_a_deleted_tenant_can_still_be_billed(house: House) -> None:
    asked(house)
    control = house.services.control
    before = [row["microunits"] for row in used(house)["rows"]]
    tenant_id = control.tenants.show("acme").id
    delete(house)
    found = usage_report(control.logs.of_id(tenant_id), tenant_id, ("tenant", "feature", "model", "hop"), Window())
    assert [row["microunits"] for row in found["rows"]] == before
    assert {row["tenant"] for row in found["rows"]} == {tenant_id}


def test_the_commands_report_and_reconcile(command: Commands, folder: Path) -> None:
    command("tenant", "create", "acme")
    command("key", "create", "--tenant", "acme", "--user", "ana")
    (folder / "notice.md").write_text("The notice period is three months.")
    assert run(["ingest", str(folder / "notice.md"), "--tenant", "acme", "--allow", "tenant"]) == 0
    command("ask", QUESTION["query"], "--tenant", "acme", "--user", "ana", "--feature", "desk")
    found = command("usage", "report", "--tenant", "acme", "--group-by", "feature")
    assert {row["feature"] for row in found["rows"]} == {"ingestion", "desk"}
    found = command("usage", "report", "--tenant", "acme", "--group-by", "hop")
    assert {row["hop"] for row in found["rows"]} >= {"cache", "embed", "retrieve", "generate"}
    listed = command("usage", "list", "--tenant", "acme")
    assert listed[0]["feature"] == "ingestion"
    assert sum(row["computed_input"] for row in listed) == found["total"]["computed_input"] > 0
    before, after = folder / "before.prom", folder / "after.prom"
    counters = "sglang:prompt_tokens_total 10.0\nsglang:generation_tokens_total {written}.0\n"
    before.write_text(counters.format(written=5))
    after.write_text(counters.format(written=7))
    found = command("usage", "reconcile", "--before", before, "--after", after)
    (row,) = found["tenants"]
    assert row["agrees"]
    assert found["generation"]["engines"] == {"prompt": 0, "cached": 0, "generated": 2}


def test_a_report_names_one_tenant(command: Commands) -> None:
    for words in ((), ("--tenant", "acme", "--deleted", "t_1")):
        assert "give --tenant NAME or --deleted ID" in command("usage", "report", *words, code=2)


def _there(ledger: UsageLedger, event_id: str) -> bool:
    return ledger.charged(event_id) != 0
