"""What was withdrawn is on record before it is committed, and taken away again from older states."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import select

from tenancy import directory, ledger
from tenancy.acl import AccessList, get_access_list, set_access_list
from tenancy.control import Tenants
from tenancy.errors import Unavailable
from tenancy.keys import MasterKey
from tenancy.tenant import AuditFiles
from tests.support.people import NOW, Company


def entries(company: Company) -> list[list[object]]:
    with company.handle.audit.ledger().reading() as connection:
        return [what for _, _, what in ledger.since(connection, 0)]


def position(company: Company) -> int:
    with company.handle.reading() as view:
        return ledger.position(view._connection)


def test_each_way_of_taking_away_is_on_record_and_nothing_that_gives(acme: Company) -> None:
    paper = acme.document("paper", allow=["user:ana", "group:legal"])
    acme.member("legal", "user:bo", "group:staff")
    acme.access("paper", allow=["user:ana", "group:legal", "tenant"])
    assert entries(acme) == []
    assert not (acme.handle.audit.directory / ledger.LEDGER_FILE).exists() or entries(acme) == []
    acme.access("paper", allow=["group:legal", "tenant"], deny=["user:cy"])
    acme.leave("legal", "user:bo")
    acme.leave("legal", "user:bo")
    with acme.handle.writing() as view:
        bo, staff = directory.find_user(view, "bo"), directory.find_group(view, "staff")
        directory.delete_user(view, "bo")
        directory.delete_group(view, "staff")
        cy = directory.find_user(view, "cy")
        legal = directory.find_group(view, "legal")
        ana = directory.find_user(view, "ana")
    found = entries(acme)
    assert sorted(map(str, found[:2])) == sorted(map(str, [["allow", paper, "user", ana], ["deny", paper, "user", cy]]))
    assert found[2:] == [["member", legal, "user", bo], ["user", bo], ["group", staff]]
    assert position(acme) == 5


def test_a_new_documents_list_withdraws_nothing(acme: Company) -> None:
    acme.document("paper", allow=["tenant"], deny=["user:ana"])
    assert position(acme) == 0


def test_applying_takes_away_what_is_there_and_gives_nothing(acme: Company) -> None:
    paper = acme.document("paper", allow=["user:ana", "user:bo"])
    acme.member("legal", "user:ana")
    with acme.handle.writing() as view:
        ana, legal = directory.find_user(view, "ana"), directory.find_group(view, "legal")
        connection = view._connection
        assert ledger.apply(connection, ["allow", paper, "user", ana])
        assert not ledger.apply(connection, ["allow", paper, "user", ana])
        assert not ledger.apply(connection, ["allow", 99, "user", "u_none"])
        assert ledger.apply(connection, ["deny", paper, "user", "u_unknown"])
        assert not ledger.apply(connection, ["deny", paper, "user", "u_unknown"])
        assert not ledger.apply(connection, ["deny", 99, "user", ana])
        assert ledger.apply(connection, ["member", legal, "user", ana])
        assert ledger.apply(connection, ["user", ana])
        assert not ledger.apply(connection, ["lost"])
        assert get_access_list(view, paper) == AccessList.of(["user:bo"], ["user:?"])
        assert ledger.apply(connection, ["document", paper])
        assert not ledger.apply(connection, ["document", paper])


def test_a_change_without_its_entry_is_not_committed(acme: Company, monkeypatch: pytest.MonkeyPatch) -> None:
    paper = acme.document("paper", allow=["user:ana"])

    def away(self: AuditFiles) -> ledger.Ledger:
        raise Unavailable("the disk is full")

    monkeypatch.setattr(AuditFiles, "ledger", away)
    with pytest.raises(Unavailable), acme.handle.writing() as view:
        set_access_list(view, paper, AccessList.of(), NOW)
    with acme.handle.reading() as view:
        assert get_access_list(view, paper) == AccessList.of(["user:ana"])


def test_a_change_that_fails_after_its_entry_takes_away_too_much_never_too_little(acme: Company) -> None:
    acme.member("legal", "user:ana")

    def dies() -> None:
        with acme.handle.writing() as view:
            directory.remove_members(view, "legal", ["ana"])
            view.settle()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        dies()
    assert position(acme) == 0
    assert [what[0] for what in entries(acme)] == ["member"]
    acme.leave("legal", "user:ana")
    assert position(acme) == 2


@pytest.mark.parametrize("loss", ["missing", "empty", "ruined"])
def test_a_lost_ledger_keeps_nobody_from_withdrawing_and_says_that_it_was_lost(
    acme: Company, master: MasterKey, loss: str
) -> None:
    acme.member("legal", "user:ana", "user:bo")
    acme.leave("legal", "user:ana")
    acme.tenants.close()
    path: Path = acme.handle.audit.directory / ledger.LEDGER_FILE
    if loss == "missing":
        path.unlink()
    else:
        path.write_bytes(b"" if loss == "empty" else b"ruin" * 3000)
    again = Tenants(acme.tenants.data_dir, master)
    acme.leave("legal", "user:bo")
    assert [what[0] for what in entries(acme)] == ["lost", "member"]
    assert position(acme) == 3
    with again.audit_files_of(acme.handle.tenant_id).ledger().reading() as connection:
        assert ledger.head(connection) == 3
        assert connection.execute(select(ledger.withdrawals.c.seq)).scalars().all() == [2, 3]
    again.close()
