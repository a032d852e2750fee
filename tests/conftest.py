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


_left_out: list[pytest.Item] = []


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests that need a Milvus server run where they are asked for: it binds fixed ports and takes half a minute."""
    if "milvus" in config.option.markexpr:
        return
    _left_out.extend(item for item in items if item.get_closest_marker("milvus"))
    if _left_out:
        config.hook.pytest_deselected(items=list(_left_out))
        items[:] = [item for item in items if not item.get_closest_marker("milvus")]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    # Workers collect, and the process that reports does not know what they left out.
    if "milvus" not in config.option.markexpr and (_left_out or getattr(config.option, "numprocesses", None)):
        terminalreporter.write_line("Tests of a real Milvus server were left out: `make test-milvus` runs them.")
