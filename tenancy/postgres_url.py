"""How this process reaches its PostgreSQL server: address, password, TLS, timeouts."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from tenancy.errors import InvalidInput

Seconds = Annotated[float, msgspec.Meta(gt=0)]

# No other address, sslmode, password or server option than those that are checked or set here.
_PARAMETERS: Final = frozenset(
    {"host", "port", "sslrootcert", "sslcert", "sslkey", "sslcrl", "target_session_attrs", "load_balance_hosts"}
)
_EXAMPLE: Final = "write postgresql://USER@HOST:PORT/DATABASE?sslrootcert=/path/ca.pem"


class PostgresSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An empty `url` means the embedded databases. Times are in seconds; `pool_size` is connections a process to
    tenants; logs and control plane have a quarter as many each, and at least two.
    """

    url: str = ""
    password_file: str = ""
    plaintext: bool = False
    pool_size: Annotated[int, msgspec.Meta(ge=2)] = 20
    connect_timeout_s: Annotated[float, msgspec.Meta(ge=2)] = 5.0
    lock_timeout_s: Seconds = 10.0
    statement_timeout_s: Seconds = 60.0


def server_url(settings: PostgresSettings) -> URL:
    """The address with the password from its file, TLS verified unless it stays on this machine.

    Raises `InvalidInput`.
    """
    try:
        url = make_url(settings.url)
    except ArgumentError:
        raise InvalidInput("is no address of a database", item="database.url", remedy=_EXAMPLE) from None
    if url.get_backend_name() != "postgresql" or url.get_driver_name() not in {"", "psycopg", "psycopg2"}:
        raise InvalidInput("must be the address of a PostgreSQL server", item="database.url", remedy=_EXAMPLE)
    if url.password:
        raise InvalidInput(
            "must hold no password",
            item="database.url",
            remedy="put it into the file that database.password_file names",
        )
    if not url.database:
        raise InvalidInput("names no database", item="database.url", remedy=_EXAMPLE)
    unknown = sorted(url.query.keys() - _PARAMETERS)
    if unknown:
        raise InvalidInput(
            f"has a parameter that is not allowed: {unknown[0]}",
            item="database.url",
            remedy=f"leave it out; allowed are {', '.join(sorted(_PARAMETERS))}",
        )
    local = all(_is_local(host) for host in _hosts(url))
    mode = "prefer" if local or settings.plaintext else "verify-full"
    return url.set(drivername="postgresql+psycopg", password=_password(settings)).update_query_dict({"sslmode": mode})


def connect_arguments(settings: PostgresSettings) -> dict[str, Any]:
    """What each connection is opened with (libpq's names)."""
    limits = {
        "lock_timeout": round(1000 * settings.lock_timeout_s),
        "statement_timeout": round(1000 * settings.statement_timeout_s),
        # The server drops the locks of a machine that went away without a word.
        "tcp_keepalives_idle": 30,
        "tcp_keepalives_interval": 10,
        "tcp_keepalives_count": 3,
    }
    return {
        "application_name": "strongroom",
        "connect_timeout": round(settings.connect_timeout_s),
        "options": " ".join(f"-c {name}={value}" for name, value in limits.items()),
        "keepalives_idle": 30,
        "keepalives_interval": 10,
        "keepalives_count": 3,
        # A statement's text differs by schema: prepared ones would fill the server's memory tenant by tenant.
        "prepare_threshold": None,
    }


def _hosts(url: URL) -> list[str]:
    """The hosts of an address; several may stand in its query, each with its port, and none means a local socket."""
    listed = url.query.get("host", ())
    hosts = [listed] if isinstance(listed, str) else list(listed)
    names = [name for host in hosts for name in host.split(",")]
    return [url.host or "", *names] if url.host or not names else names


def _is_local(host: str) -> bool:
    if not host or host.startswith("/"):
        return True
    # In the address itself, IPv6 stands without brackets and port.
    names = (host, host.rpartition(":")[0].strip("[]"))
    return "localhost" in names or any(map(_is_loopback, names))


def _is_loopback(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _password(settings: PostgresSettings) -> str | None:
    if not settings.password_file:
        return None
    try:
        return Path(settings.password_file).expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        remedy = str(getattr(error, "strerror", "") or "must be UTF-8")
        raise InvalidInput("the password file cannot be read", item="database.password_file", remedy=remedy) from None
