"""How an engine may be reached: encrypted and with a key, unless it is on this machine or the operator says so."""

from __future__ import annotations

import ipaddress
import ssl
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from tenancy.errors import InvalidInput

MAX_KEY_BYTES: Final = 4096


def checked_address(url: str, *, engine: str, authenticated: bool, plaintext: bool) -> str:
    """`url`, if it is http(s) without credentials and protected as far as it must be. Raises `InvalidInput`.

    Another machine is reached over https with a key. `plaintext` permits neither, for a network of one's own.
    """
    item = f"collections.engines.{engine}.url"
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError as error:
        raise InvalidInput("the engine's address is no URL", item=item) from error
    if parts.scheme not in {"http", "https"} or not host:
        raise InvalidInput(
            "the engine's address must begin with http:// or https://",
            item=item,
            remedy="as in https://vectors.example.com:6333",
        )
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise InvalidInput("the engine's address must hold no credentials, query or fragment", item=item)
    if plaintext or is_loopback(host):
        return url
    if parts.scheme == "http":
        raise InvalidInput(
            "the engine's address is unencrypted and on another machine",
            item=item,
            remedy="use https, or set plaintext = true for a private network",
        )
    if not authenticated:
        raise InvalidInput(
            "the engine is on another machine and would be reached without a key",
            item=item,
            remedy="set api_key_file, or plaintext = true for a private network",
        )
    return url


def read_key(path: Path | None, *, engine: str) -> str | None:
    """The key in a file of one line; None for no file. Raises `InvalidInput`, which never quotes the key."""
    if path is None:
        return None
    item = f"collections.engines.{engine}.api_key_file"
    try:
        with path.open("rb") as file:
            key = file.read(MAX_KEY_BYTES + 1).decode("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput("the engine's key file cannot be read", item=item) from error
    if not key or len(key) > MAX_KEY_BYTES or len(key.split()) != 1:
        raise InvalidInput("the engine's key file must hold one key and nothing else", item=item)
    return key


def authorities(path: Path | None, *, engine: str) -> ssl.SSLContext:
    """Who may sign the server's certificate: the PEM file at `path`, or the public ones. Raises `InvalidInput`."""
    try:
        return ssl.create_default_context(cafile=None if path is None else str(path))
    except (OSError, ssl.SSLError) as error:
        raise InvalidInput(
            "the engine's file of authorities cannot be read, or is no PEM file",
            item=f"collections.engines.{engine}.ca_file",
        ) from error


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
