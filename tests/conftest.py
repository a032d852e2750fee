"""What every suite shares: a master key, tenants in a fresh folder, and principals made as the product makes them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tenancy.control import Tenants
from tenancy.identity import Authenticator
from tenancy.keys import MasterKey
from tests.support.people import Company


@pytest.fixture
def master() -> MasterKey:
    return MasterKey(bytes(range(32)))


@pytest.fixture
def tenants(tmp_path: Path, master: MasterKey) -> Iterator[Tenants]:
    control = Tenants(tmp_path / "data", master)
    yield control
    control.close()


@pytest.fixture
def authenticator(tenants: Tenants) -> Authenticator:
    return Authenticator(tenants)


@pytest.fixture
def acme(tenants: Tenants, authenticator: Authenticator) -> Company:
    return Company(tenants, authenticator, "acme")


@pytest.fixture
def globex(tenants: Tenants, authenticator: Authenticator) -> Company:
    return Company(tenants, authenticator, "globex")
