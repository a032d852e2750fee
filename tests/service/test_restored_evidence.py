"""What a restore of an older state does to the evidence: an auditor who kept something newer is told so clearly, and
nobody who was erased meanwhile comes back.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import select

import service.retention
from cache.certificate import evidence
from cache.certificate.evidence import Judged, Place
from cache.certificate.reports import asker_of
from service.control import open_control
from service.settings import load_settings
from tenancy import schema
from tests.service.test_backup import NOTICE, Node, here, nodes

__all__ = ["here", "nodes"]

SECRET = "How long is the marzipan notice period?"


def words(node: Node, *more: str | Path) -> list[str | Path]:
    return [*more, "--tenant", "acme"]


@pytest.mark.slow
def test_an_auditor_with_a_newer_checkpoint_is_told_that_the_end_is_missing(
    here: Node, nodes: Callable[[str], Node]
) -> None:
    desk = here.folder / "desk.pem"
    here.done("master", "recovery-key", desk)
    here.cited("ana", SECRET)
    early, kept, rotated = (here.folder / name for name in ("early", "kept", "rotated"))
    here.done("audit", "checkpoint", early, "--tenant", "acme")
    (first,) = here.data("audit", "key", "--tenant", "acme")
    hold = here.data("user", "hold", "bo", "--tenant", "acme", "--reason", "case 17")
    here.done("backup", here.folder / "b", "--tenant", "acme", "--for", f"{desk}.pub")
    here.cited("bo", NOTICE)
    here.done("user", "erase", "ana", "--tenant", "acme", "--yes")
    here.done("audit", "checkpoint", kept, "--tenant", "acme")
    here.done("audit", "rotate-key", "--tenant", "acme")
    here.done("audit", "checkpoint", rotated, "--tenant", "acme")
    here.done("backup", here.folder / "ledger", "--tenant", "acme", "--for", f"{desk}.pub", "--ledger-only")

    there = nodes("there")
    restored = there.data("restore", here.folder / "b", "--key", desk, "--ledger", here.folder / "ledger")
    assert restored["withdrawn_again"] == {"user": 1}

    def verdict(*more: str | Path) -> str:
        code, out, err = there("audit", "verify", *more)
        assert code in {0, 1}, err
        return out.lower()

    tenant = ("--tenant", "acme")
    assert "ok" in verdict(*tenant)
    assert "ok" in verdict(*tenant, "--checkpoint", early)
    assert "truncated" in verdict(*tenant, "--checkpoint", kept)
    # Of a key that was made after the backup nothing is known there: said as that, and not as a change of a record.
    assert "was not signed by the key of this log" in verdict(*tenant, "--checkpoint", rotated)
    folder = there.folder / "export"
    there.done("audit", "export", folder, *tenant)
    check = (folder, "--key", first["key"])
    assert "truncated" in verdict(*check, "--checkpoint", kept)
    assert "no key of it" in verdict(*check, "--checkpoint", rotated)
    assert "agree" in verdict(*check, "--checkpoint", early)

    # Nobody whom the first machine erased is there, or readable; nor is anything else of before.
    events = there.data("audit", "query", *tenant, "--limit", "1000")
    assert "marzipan" not in str(events)
    assert "no such user" in there.fails("user", "erase", "ana", *tenant, "--yes")
    # Holds lie beside the log, and stayed behind.
    assert there.data("audit", "holds", *tenant) == []
    assert hold["id"]

    # The key changes there too, and what was kept before the backup still holds.
    there.done("audit", "rotate-key", *tenant)
    assert "ok" in verdict(*tenant, "--checkpoint", early)
    while there.data("audit", "verify", *tenant)[0]["records"] < 80:
        there.cited("bo", NOTICE)
    assert "edited" in verdict(*tenant, "--checkpoint", kept)
    there.done("audit", "export", folder, *tenant)
    assert "forked" in verdict(*check, "--checkpoint", kept)


@pytest.mark.slow
def test_the_evidence_in_an_older_backup_tells_of_nobody_who_was_erased_since(here: Node) -> None:
    here.cited("ana", SECRET)
    settings = load_settings(environment=here.environment)

    def told() -> dict[str, bool]:
        control = open_control(settings)
        tenant = control.tenants.open(control.authenticator.operator("acme"), suspended=True)
        with tenant.reading() as view:
            rows = [row for table in schema.tenant.sorted_tables for row in view.execute(select(table)).all()]
        cells = " ".join(cell.hex() if isinstance(cell, bytes) else str(cell) for row in rows for cell in row)
        found = {name: asker_of(tenant, user).hex() in cells for name, user in users.items()}
        control.close()
        return found

    control = open_control(settings)
    tenant = control.tenants.open(control.authenticator.operator("acme"))
    users = {name: control.tenants.find_user(tenant.tenant_id, name) or "" for name in ("ana", "bo")}
    with tenant.writing() as view:
        for name, user in users.items():
            judged = Judged("uniform", "same", "", f"entry of {name}", asker=asker_of(tenant, user).hex())
            evidence.record(view, Place("default", "lv_1", "ns_1", 0.01), judged, 1.0)
    control.close()
    assert told() == {"ana": True, "bo": True}
    here.done("backup", here.folder / "b", "--tenant", "acme")
    here.done("user", "erase", "ana", "--tenant", "acme", "--yes")
    assert told() == {"ana": False, "bo": True}
    here.done("tenant", "suspend", "acme")
    assert here.data("restore", here.folder / "b", "--replace")["withdrawn_again"]["user"] == 1
    assert told() == {"ana": False, "bo": True}
    here.done("tenant", "resume", "acme")
    assert "no such user" in here.fails("user", "erase", "ana", "--tenant", "acme", "--yes")
    assert here.data("user", "receipts", "--tenant", "acme")[0]["outcome"] == "erased"
    copy = here.data("restore", here.folder / "b", "--as", "copy")
    assert copy["withdrawn_again"]["user"] == 1


@pytest.mark.slow
def test_a_restore_elsewhere_says_how_many_pruned_records_its_usage_has_lost(
    here: Node, nodes: Callable[[str], Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = here.folder / "desk.pem"
    here.done("master", "recovery-key", desk)
    here.done("backup", here.folder / "young", "--tenant", "acme", "--for", f"{desk}.pub")
    here.cited("ana", NOTICE)
    monkeypatch.setattr(service.retention, "cutoff", lambda _retention, now: now + 1.0)
    (pruned,) = here.data("audit", "prune", "--tenant", "acme")
    here.done("backup", here.folder / "old", "--tenant", "acme", "--for", f"{desk}.pub")
    (row,) = here.data("usage", "reconcile", "--tenant", "acme")["tenants"]
    assert (row["agrees"], row["missed_records"]) == (True, 0)

    for backup, lost in (("young", 0), ("old", pruned["records"])):
        there = nodes(backup)
        there.data("restore", here.folder / backup, "--key", desk)
        code, out, _ = there("usage", "reconcile", "--tenant", "acme", "--json")
        (row,) = json.loads(out)["tenants"]
        assert (code, row["agrees"], row["missed_records"]) == (int(lost > 0), lost == 0, lost)
