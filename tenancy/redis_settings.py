"""How this process reaches its Redis server: address, ACL user, password, TLS, timeouts."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import SplitResult, urlsplit

import msgspec

from tenancy.errors import InvalidInput

_EXAMPLE: Final = "write rediss://HOST:PORT or rediss://HOST:PORT/DATABASE, or unix:///path/to/redis.sock"


class RedisSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`timeout_s` and `connect_timeout_s` in seconds; `connections` is how many this process keeps at most.

    After `failures` calls in a row that failed the server is left alone for `retry_s` seconds, then asked by one call.
    """

    url: str = "redis://127.0.0.1:6379/0"
    username: str = ""
    password_file: str = ""
    ca_file: str = ""
    plaintext: bool = False
    timeout_s: Annotated[float, msgspec.Meta(gt=0, le=10)] = 0.25
    connect_timeout_s: Annotated[float, msgspec.Meta(gt=0, le=10)] = 0.25
    connections: Annotated[int, msgspec.Meta(ge=1)] = 64
    failures: Annotated[int, msgspec.Meta(ge=1)] = 2
    retry_s: Annotated[float, msgspec.Meta(gt=0)] = 1.0


def options(settings: RedisSettings, section: str = "cache.redis") -> Mapping[str, Any]:
    """Arguments of a client of redis-py; errors name keys of `section`.

    Raises `InvalidInput`: the address, a password in it, plain text to another machine, a file that cannot be read.
    """
    try:
        url = urlsplit(settings.url)
        port = url.port or 6379
    except ValueError:
        raise InvalidInput("is no address", item=f"{section}.url", remedy=_EXAMPLE) from None
    if url.scheme not in {"redis", "rediss", "unix"} or url.query or url.fragment:
        raise InvalidInput("is no address of a Redis server", item=f"{section}.url", remedy=_EXAMPLE)
    if url.password or url.username:
        raise InvalidInput(
            "must hold no user and no password",
            item=f"{section}.url",
            remedy=f"name the user in {section}.username and the file of the password in {section}.password_file",
        )
    found: dict[str, Any] = {
        "username": settings.username or None,
        "password": _password(settings.password_file, section),
        "socket_timeout": settings.timeout_s,
        "socket_connect_timeout": settings.connect_timeout_s,
        "max_connections": settings.connections,
        "protocol": 2,
        "client_name": "strongroom",
    }
    if url.scheme == "unix":
        return found | {"unix_socket_path": url.path}
    if not url.hostname or not (url.path in {"", "/"} or url.path.removeprefix("/").isdigit()):
        raise InvalidInput("names no host, or a database that is no number", item=f"{section}.url", remedy=_EXAMPLE)
    found |= {"host": url.hostname, "port": port, "db": int(url.path.removeprefix("/") or 0)}
    return found | (_tls(settings, section) if url.scheme == "rediss" else _plain(url, settings, section))


def _tls(settings: RedisSettings, section: str) -> dict[str, Any]:
    if settings.ca_file and not Path(settings.ca_file).expanduser().is_file():
        raise InvalidInput("the file is not there", item=f"{section}.ca_file", remedy="name a file of certificates")
    authority = {"ssl_ca_certs": str(Path(settings.ca_file).expanduser())} if settings.ca_file else {}
    return {"ssl": True, "ssl_cert_reqs": "required", "ssl_check_hostname": True, **authority}


def _plain(url: SplitResult, settings: RedisSettings, section: str) -> dict[str, Any]:
    """What is kept there and a password do not cross a network in plain text unless somebody said so."""
    if settings.plaintext or _is_local(str(url.hostname)):
        return {}
    raise InvalidInput(
        "would send the password and what is kept there in plain text to another machine",
        item=f"{section}.url",
        remedy=f"write rediss://, or set {section}.plaintext = true in a private network",
    )


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _password(file: str, section: str) -> str | None:
    if not file:
        return None
    try:
        found = Path(file).expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        raise InvalidInput(
            "the password file cannot be read", item=f"{section}.password_file", remedy="check its name and rights"
        ) from None
    if not found:
        raise InvalidInput("the password file is empty", item=f"{section}.password_file", remedy="write it there")
    return found
