"""The audit log exported through HTTP: what an auditor keeps verifies, and nobody else gets any of it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from audit.offline.check import check
from audit.pruning import prune
from audit.signers import public_keys
from tenancy.identity import Role
from tests.audit.test_export_pruned import announce
from tests.service.house import House, problem

PATH = "/v1/audit/exports"


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path)
    made.put("acme", "a.md", "Notice is three months.", allow=["tenant"])
    made.post("/v1/answers", made.key("acme", "ana"), {"query": "How long is the notice?"})
    yield made
    made.close()


def exported(house: House, **wanted: Any) -> dict[str, Any]:
    response = house.post(PATH, house.key("acme", "paula", Role.AUDITOR), wanted)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def keep(folder: Path, found: dict[str, Any]) -> str:
    """Write the files of a response; gives the manifest's text."""
    folder.mkdir(exist_ok=True)
    for one in found["files"]:
        (folder / one["file"]).write_bytes(one["text"].encode())
    return next(one["text"] for one in found["files"] if one["file"].startswith("manifest"))


def keys_of(house: House, tenant: str) -> list[str]:
    control = house.services.control
    return [key.vkey for key in public_keys(control.logs.of(control.authenticator.operator(tenant)))]


def test_responses_kept_in_one_folder_are_an_export(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.audit_exports.MAX_RECORDS", 3)
    folder, manifest, sizes = tmp_path / "kept", None, []
    for _ in range(3):
        found = exported(house, **({} if manifest is None else {"after": manifest}))
        manifest = keep(folder, found)
        sizes.append((found["first"], found["size"]))
    assert sizes == [(0, 3), (3, 6), (6, 9)]
    report = check(folder, keys_of(house, "acme"))
    assert (report.finding, report.size, report.exports) == (None, 9, 3)
    told = [one for one in house.events("acme") if one["action"] == "audit.export" and one["phase"] == "outcome"]
    assert told[-1]["detail"]["manifest"] == hashlib.sha256(manifest.encode()).hexdigest()
    assert not list((tmp_path / "data" / "staging").glob("*"))


def test_an_export_holds_no_text_and_nothing_of_another_tenant(house: House, tmp_path: Path) -> None:
    house.put("globex", "secret-plan.md", "Globex plans.", allow=["tenant"])
    keep(tmp_path / "kept", exported(house))
    everything = b"".join(path.read_bytes() for path in (tmp_path / "kept").iterdir())
    assert b"a.md" in everything
    assert b"How long" not in everything
    assert b"secret-plan" not in everything


def test_only_an_auditor_of_the_tenant_gets_it(house: House) -> None:
    for role in (Role.READER, Role.ADMIN, Role.INGEST):
        problem(house.post(PATH, house.key("acme", "rita", role), {}), 403, "forbidden")
    problem(house.post(PATH, house.key("acme", "paula", Role.AUDITOR), {"tenant": "globex"}), 403, "forbidden")
    assert exported(house)["files"]


def test_what_the_log_did_not_sign_is_no_base(house: House) -> None:
    manifest = exported(house)["files"][0]["text"]
    house.put("globex", "b.md", "b", allow=["tenant"])
    theirs = house.post(PATH, house.key("globex", "otto", Role.AUDITOR), {}).json()["files"][0]["text"]
    key = house.key("acme", "paula", Role.AUDITOR)
    for text in (theirs, manifest.replace('"number":1', '"number":2'), "{}", "", manifest + " "):
        response = house.post(PATH, key, {"after": text})
        assert response.status_code in {400, 422}, response.text
    problem(house.post(PATH, key, {"after": theirs}), 422, "invalid-input")
    assert house.post(PATH, key, {"after": manifest}).status_code == 200


def test_an_export_as_of_a_size(house: House) -> None:
    found = exported(house, as_of=2)
    assert (found["first"], found["size"]) == (0, 2)
    assert found["log_size"] > 2
    key = house.key("acme", "paula", Role.AUDITOR)
    manifest = next(one["text"] for one in found["files"] if one["file"].startswith("manifest"))
    assert exported(house, as_of=2, after=manifest)["files"] == []
    problem(house.post(PATH, key, {"as_of": 1, "after": manifest}), 422, "invalid-input")
    problem(house.post(PATH, key, {"as_of": 9_999}), 422, "invalid-input")
    problem(house.post(PATH, key, {"size": 1}), 422, "invalid-input")


@pytest.mark.parametrize("wanted", [lambda _: {}, lambda size: {"as_of": size}])
def test_a_pruned_log_is_exported_in_pieces_too(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: Callable[[int], dict[str, int]]
) -> None:
    control = house.services.control
    log = control.logs.of(control.authenticator.operator("acme"))
    assert prune(log, log.now() + 1.0, announce).records
    monkeypatch.setattr("service.audit_exports.MAX_RECORDS", 3)
    folder, found = tmp_path / "kept", exported(house)
    manifest, size = keep(folder, found), found["log_size"]
    while found["size"] < size:
        found = exported(house, after=manifest, **wanted(size))
        manifest = keep(folder, found)
    report = check(folder, keys_of(house, "acme"))
    assert report.finding is None
    assert report.pruned
    # As of a size before the record that accounts for it, none can be made.
    auditor = house.key("acme", "paula", Role.AUDITOR)
    problem(house.post(PATH, auditor, {"as_of": 2}), 409, "conflict")
