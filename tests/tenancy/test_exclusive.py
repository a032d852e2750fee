"""One holder at a time, across threads and processes."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tenancy.errors import NotFound, Unavailable
from tests.support.people import Company

pytestmark = pytest.mark.both_storages


def test_one_name_has_one_holder_and_another_name_is_free(acme: Company) -> None:
    with acme.handle.exclusive("collection"):
        with pytest.raises(Unavailable), acme.handle.exclusive("collection", timeout_s=0.05):
            pass
        with acme.handle.exclusive("move", timeout_s=0.05):
            pass
    with acme.handle.exclusive("collection", timeout_s=0.05):
        pass


def test_it_is_released_by_an_exception(acme: Company) -> None:
    with pytest.raises(RuntimeError), acme.handle.exclusive("collection"):
        raise RuntimeError
    with acme.handle.exclusive("collection", timeout_s=0.05):
        pass


def test_who_waits_gets_it_when_it_is_given_back(acme: Company) -> None:
    got = threading.Event()

    def wait() -> None:
        with acme.handle.exclusive("collection"):
            got.set()

    with acme.handle.exclusive("collection"):
        thread = threading.Thread(target=wait)
        thread.start()
        assert not got.wait(0.05)
    assert got.wait(10)
    thread.join()


def test_two_tenants_do_not_meet(acme: Company, globex: Company) -> None:
    with acme.handle.exclusive("collection"), globex.handle.exclusive("collection", timeout_s=0.05):
        pass


def test_a_killed_process_holds_nothing(acme: Company, storage: str) -> None:
    arguments = [str(acme.tenants.data_dir), storage, acme.handle.tenant_id, "collection"]
    holder = subprocess.Popen(
        [sys.executable, "-m", "tests.support.hold", *arguments],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(Unavailable), acme.handle.exclusive("collection", timeout_s=0.05):
            pass
        holder.kill()
        holder.wait()
        with acme.handle.exclusive("collection", timeout_s=5):
            pass


def test_a_deleted_tenant_has_nothing_to_hold(acme: Company) -> None:
    acme.tenants.delete("acme")
    with pytest.raises(NotFound), acme.handle.exclusive("collection"):
        pass
