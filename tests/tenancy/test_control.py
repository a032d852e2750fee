"""Tenants and API keys: create, suspend, delete, revoke."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tenancy import control, directory
from tenancy.acl import AccessList
from tenancy.contract import Contract
from tenancy.control import Tenants
from tenancy.deletion import verify
from tenancy.errors import AlreadyExists, InvalidInput, NotFound, TenantSuspended, Unauthenticated
from tenancy.identity import Authenticator, Role
from tenancy.keys import MasterKey
from tests.support.people import NOW, Company

SOURCE = "192.0.2.1"


@pytest.mark.parametrize("name", ["", "A", "a b", "../x", "a/b", "é", "-a", "x" * 64, ".", "a\n"])
@pytest.mark.both_storages
def test_a_bad_tenant_name_is_refused(tenants: Tenants, name: str) -> None:
    with pytest.raises(InvalidInput):
        tenants.create(name)
    assert tenants.all() == []


@pytest.mark.both_storages
def test_a_tenant_is_there_after_a_restart_and_its_name_is_taken(
    tenants: Tenants, open_tenants: Callable[[], Tenants]
) -> None:
    made = tenants.create("acme", Contract(retention="ten years"))
    again = open_tenants()
    assert again.show("acme") == made
    with pytest.raises(AlreadyExists):
        again.create("acme")


@pytest.mark.both_storages
def test_a_key_authenticates_until_it_is_revoked(acme: Company, authenticator: Authenticator) -> None:
    minted = acme.tenants.create_key("acme", "ana", [Role.READER, Role.AUDITOR], groups=["legal"])
    principal = authenticator.authenticate(minted.text, SOURCE)
    assert (principal.tenant, principal.user, principal.roles) == ("acme", "ana", {Role.READER, Role.AUDITOR})
    night = acme.tenants.create_key("acme", "ana", [Role.READER], work="batch")
    assert (principal.work, authenticator.authenticate(night.text, SOURCE).work) == ("interactive", "batch")
    with acme.handle.reading() as view:
        assert directory.list_groups(view) == {"legal": ["user:ana"]}
    acme.tenants.revoke_key("acme", minted.key_id)
    with pytest.raises(Unauthenticated):
        authenticator.authenticate(minted.text, SOURCE)


@pytest.mark.both_storages
def test_an_expired_key_looks_like_an_unknown_one(acme: Company) -> None:
    now = [NOW]
    authenticator = Authenticator(acme.tenants, clock=lambda: now[0])
    minted = acme.tenants.create_key("acme", "ana", [Role.READER], expires=NOW + 10)
    assert authenticator.authenticate(minted.text, SOURCE).user == "ana"
    now[0] += 10
    with pytest.raises(Unauthenticated) as expired:
        authenticator.authenticate(minted.text, SOURCE)
    stranger = acme.tenants.create_key("acme", "ana", [Role.READER])
    acme.tenants.revoke_key("acme", stranger.key_id)
    with pytest.raises(Unauthenticated) as revoked:
        authenticator.authenticate(stranger.text, SOURCE)
    assert str(expired.value) == str(revoked.value)


@pytest.mark.both_storages
def test_another_tenants_key_cannot_be_revoked(acme: Company, globex: Company, authenticator: Authenticator) -> None:
    minted = acme.tenants.create_key("acme", "ana", [Role.READER])
    with pytest.raises(NotFound):
        globex.tenants.revoke_key("globex", minted.key_id)
    assert authenticator.authenticate(minted.text, SOURCE).tenant == "acme"


def test_no_file_holds_a_secret_or_a_name(acme: Company) -> None:
    minted = acme.tenants.create_key("acme", "ana-lucia", [Role.READER])
    written = b"".join(path.read_bytes() for path in acme.tenants.data_dir.rglob("*") if path.is_file())
    assert len(written) > 10_000
    assert minted.secret.encode() not in written
    assert b"ana-lucia" not in written


@pytest.mark.both_storages
def test_a_suspended_tenant_opens_for_nobody_until_it_is_resumed(acme: Company, globex: Company) -> None:
    ana, bo = acme.principal("ana"), globex.principal("bo")
    acme.tenants.set_status("acme", "suspended")
    with pytest.raises(TenantSuspended):
        acme.tenants.open(ana)
    assert globex.tenants.open(bo).name == "globex"
    acme.tenants.set_status("acme", "active")
    assert acme.tenants.open(ana).name == "acme"


def test_deletion_destroys_files_keys_and_credentials_and_signs_for_it(
    acme: Company, globex: Company, authenticator: Authenticator, master: MasterKey
) -> None:
    minted = acme.tenants.create_key("acme", "ana", [Role.READER])
    principal = authenticator.authenticate(minted.text, SOURCE)
    acme.document("paper", allow=["tenant"])
    certificate = acme.tenants.delete("acme")
    assert not acme.handle.directory.exists()
    assert certificate["destroyed"]["files"][0]["file"] == "tenant.sqlite"
    public = base64.b64decode(certificate["public_key"])
    assert verify(certificate, public)
    assert not verify({**certificate, "tenant": "globex"}, public)
    assert not verify(certificate, bytes(32))
    with pytest.raises(Unauthenticated):
        authenticator.authenticate(minted.text, SOURCE)
    with pytest.raises(NotFound):
        acme.tenants.open(principal)
    assert globex.tenants.show("globex").status == "active"


@pytest.mark.both_storages
def test_a_tenant_created_again_starts_empty(acme: Company, authenticator: Authenticator) -> None:
    acme.principal("ana")
    old = acme.handle.tenant_id
    acme.document("paper", allow=["tenant"])
    acme.tenants.delete("acme")
    fresh = Company(acme.tenants, authenticator, "acme")
    assert fresh.handle.tenant_id != old
    assert fresh.domain(fresh.principal("ana")).is_empty
    with fresh.handle.reading() as view:
        assert view.epochs.corpus == 0


@pytest.mark.both_storages
def test_using_a_handle_after_deletion_is_an_error_and_creates_nothing(acme: Company) -> None:
    handle = acme.handle
    acme.tenants.delete("acme")
    with pytest.raises(NotFound, match="deleted"), handle.writing() as view:
        directory.ensure_user(view, "ana", NOW)
    assert not (handle.directory / "tenant.sqlite").exists()


def test_what_another_process_deleted_is_forgotten_with_its_files(
    acme: Company, globex: Company, authenticator: Authenticator, master: MasterKey
) -> None:
    beside = Tenants(acme.tenants.data_dir, master)
    for company in (acme, globex):
        with company.handle.reading() as view:
            assert view.epochs
    assert acme.tenants.forget_deleted() == []
    beside.delete("acme")
    assert any(str(acme.handle.directory) in name for name in _open_files())
    assert acme.tenants.forget_deleted() == [acme.handle.tenant_id]
    assert not any(str(acme.handle.directory) in name for name in _open_files())
    assert acme.tenants.open(authenticator.operator("globex")) is globex.handle
    beside.close()


def test_a_deleted_tenant_that_only_the_caller_remembers_is_found(acme: Company, globex: Company) -> None:
    remembered = [acme.handle.tenant_id, globex.handle.tenant_id, "t_never_was"]
    acme.tenants.delete("acme")
    assert set(acme.tenants.forget_deleted(remembered)) == {acme.handle.tenant_id, "t_never_was"}
    assert acme.tenants.forget_deleted() == []


def test_tenants_are_listed_in_pages_by_name_and_counted_without_opening_any(tenants: Tenants) -> None:
    names = sorted(f"t{number}" for number in range(25))
    for name in reversed(names):
        tenants.create(name)
    tenants.set_status("t3", "suspended")
    first = [record.name for record in tenants.page(limit=10)]
    assert first == names[:10]
    assert [record.name for record in tenants.page(first[-1], 10)] == names[10:20]
    assert [record.name for record in tenants.listed(names[19])] == names[20:]
    assert (list(tenants.page("u")), tenants.count()) == ([], (25, 24))
    assert not any((tenants.data_dir / "tenants").rglob("*.sqlite"))
    for limit in (0, 1_001):
        with pytest.raises(InvalidInput):
            tenants.page(limit=limit)


def test_handles_that_nobody_holds_are_bounded(
    tenants: Tenants, authenticator: Authenticator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "HANDLES", 3)
    again = Tenants(tenants.data_dir, MasterKey(bytes(range(32))))
    made = Authenticator(again)
    for number in range(10):
        again.create(f"t{number}")
    held = again.open(made.operator("t0"))
    for number in range(10):
        again.open(made.operator(f"t{number}"))
    assert len(again._handles.values()) == 4
    assert again.open(made.operator("t0")) is held
    again.close()


def _open_files() -> list[str]:
    return [os.readlink(entry) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]


@pytest.mark.both_storages
def test_an_interrupted_deletion_is_finished_at_the_next_start(acme: Company) -> None:
    directory_path: Path = acme.handle.directory
    acme.tenants.delete("acme")
    directory_path.mkdir()
    (directory_path / "tenant.sqlite").write_bytes(b"left behind")
    assert acme.tenants.sweep() == [acme.handle.tenant_id]
    assert not directory_path.exists()


def test_labels_are_normalised_and_bad_ones_named() -> None:
    assert AccessList.of(["user:Zoe\u0308"]).allow == {"user:Zoë"}
    for label in ("", "everyone", "user:", "robot:x", "group", "tenant:x", "user:a\0"):
        with pytest.raises(InvalidInput):
            AccessList.of([label])
