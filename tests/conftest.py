"""What every suite shares: a master key, tenants in a fresh folder, and principals made as the product makes them.

Tests marked `both_storages` run twice: over files, and over a real PostgreSQL server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tenancy.control import Tenants
from tenancy.identity import Authenticator
from tenancy.keys import MasterKey
from tests.support.people import Company
from tests.support.postgres import fresh_database, postgres_storage


@pytest.fixture
def master() -> MasterKey:
    return MasterKey(bytes(range(32)))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.definition.get_closest_marker("both_storages") and "storage" in metafunc.fixturenames:
        metafunc.parametrize("storage", ["embedded", "postgres"], indirect=True)


@pytest.fixture
def storage(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of the test's own PostgreSQL database, empty where its data are files."""
    if getattr(request, "param", "embedded") == "embedded":
        yield ""
    else:
        with fresh_database() as url:
            yield url


@pytest.fixture
def open_tenants(tmp_path: Path, master: MasterKey, storage: str) -> Iterator[Callable[[], Tenants]]:
    """Opens the control plane, each time as another process would; closed at the end."""
    opened: list[Tenants] = []

    def another() -> Tenants:
        data = tmp_path / "data"
        opened.append(Tenants(data, master, storage=postgres_storage(storage, data) if storage else None))
        return opened[-1]

    yield another
    for one in opened:
        one.close()


@pytest.fixture
def tenants(open_tenants: Callable[[], Tenants]) -> Tenants:
    return open_tenants()


@pytest.fixture
def authenticator(tenants: Tenants) -> Authenticator:
    return Authenticator(tenants)


@pytest.fixture
def acme(tenants: Tenants, authenticator: Authenticator) -> Company:
    return Company(tenants, authenticator, "acme")


@pytest.fixture
def globex(tenants: Tenants, authenticator: Authenticator) -> Company:
    return Company(tenants, authenticator, "globex")


_ASKED_FOR = {"milvus": "Tests of a real Milvus server", "load": "Tests of a real SGLang server under load"}
_left_out: list[pytest.Item] = []


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Some tests run where they are asked for alone.

    A Milvus server binds fixed ports and takes half a minute; tests of load want the machine to themselves.
    """
    left = [marker for marker in _ASKED_FOR if marker not in config.option.markexpr]
    _left_out.extend(item for item in items if any(item.get_closest_marker(marker) for marker in left))
    if _left_out:
        config.hook.pytest_deselected(items=list(_left_out))
        items[:] = [item for item in items if item not in set(_left_out)]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    # Workers collect, and the process that reports does not know what they left out.
    if _left_out or getattr(config.option, "numprocesses", None):
        for marker, what in _ASKED_FOR.items():
            if marker not in config.option.markexpr:
                terminalreporter.write_line(f"{what} were left out: `make test-{marker}` runs them.")
