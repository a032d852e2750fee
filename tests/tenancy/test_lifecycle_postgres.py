"""What of a tenant's life works where the tenants lie in PostgreSQL, and what says that it does not."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenancy import directory, ledger
from tenancy.control import Tenants
from tenancy.deletion import verify
from tenancy.errors import Conflict, NotFound
from tenancy.identity import Authenticator
from tenancy.keys import MasterKey
from tests.support.people import NOW, Company
from tests.support.postgres import fresh_database, postgres_storage

pytestmark = pytest.mark.slow


@pytest.fixture
def acme(tmp_path: Path, master: MasterKey) -> Iterator[Company]:
    with fresh_database() as url:
        tenants = Tenants(tmp_path / "data", master, storage=postgres_storage(url, tmp_path / "data"))
        yield Company(tenants, Authenticator(tenants), "acme")
        tenants.close()


def test_a_deletion_is_counted_and_signed_for_and_writers_end(acme: Company) -> None:
    acme.document("paper", allow=["tenant"])
    certificate = acme.tenants.delete("acme")
    assert certificate["destroyed"]["documents"]["count"] == 1
    assert verify(certificate, base64.b64decode(acme.tenants.public_key))
    with pytest.raises(NotFound), acme.handle.writing() as view:
        directory.ensure_user(view, "ana", NOW)
    acme.tenants.create("acme")
    assert acme.tenants.deletion.certificate("acme") == certificate


def test_what_is_withdrawn_is_on_record(acme: Company) -> None:
    acme.member("legal", "user:ana")
    acme.leave("legal", "user:ana")
    with acme.handle.audit.ledger().reading() as connection:
        assert [what[0] for _, _, what in ledger.since(connection, 0)] == ["member"]


def test_files_are_asked_for_where_there_are_none(acme: Company) -> None:
    with pytest.raises(Conflict, match="database server"):
        acme.tenants.rotate_key("acme")
    with acme.handle.reading() as view:
        assert view.epochs
