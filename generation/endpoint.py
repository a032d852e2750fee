"""Where a generator's server is, and what the product may send there."""

from __future__ import annotations

import ipaddress
import ssl
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from tenancy.errors import InvalidInput


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """`kind` is `sglang`, or `openai` for any other server with OpenAI's chat protocol (no KV salt, no abort).

    `revision` names the weights and goes into cache keys. `adapter` is a LoRA adapter's opaque name at the server;
    `answers_as` the model's name in answers, where the server gives it another one there than it is asked by;
    `tokenizer` the folder of the model's `tokenizer.json`. `admin_key` opens `/abort_request` where the server has
    one. `plaintext` permits http to other machines; loopback needs no permission. `ca_file` (PEM) is who may sign the
    server's certificate, in the place of the public authorities.
    """

    base_url: str
    model: str
    revision: str
    kind: Literal["sglang", "openai"] = "sglang"
    adapter: str | None = None
    answers_as: str | None = None
    api_key: str | None = field(default=None, repr=False)
    admin_key: str | None = field(default=None, repr=False)
    tokenizer: Path | None = None
    temperature: float = 0.0
    plaintext: bool = False
    ca_file: Path | None = None
    connect_seconds: float = 5.0

    @property
    def anywhere(self) -> Endpoint:
        """What replicas of one pool have in common: all but the address."""
        return replace(self, base_url="", api_key=None, admin_key=None)

    @property
    def requested_model(self) -> str:
        return self.model if self.adapter is None else f"{self.model}:{self.adapter}"


def checked_url(endpoint: Endpoint) -> str:
    """The endpoint's address without a trailing `/v1`; raises `InvalidInput` where it is unusable or unprotected."""
    item = "generator.base_url"
    if not endpoint.model or not endpoint.revision:
        raise InvalidInput("a generator needs a model and a revision", item="generator.model")
    try:
        url = urlsplit(endpoint.base_url)
        host, _ = url.hostname or "", url.port
    except ValueError as error:
        raise InvalidInput("the generator's address is no URL", item=item) from error
    if not endpoint.base_url.isprintable() or " " in endpoint.base_url:
        raise InvalidInput("the generator's address holds spaces or control characters", item=item)
    if url.scheme not in {"http", "https"} or not host:
        raise InvalidInput("the generator's address must begin with http:// or https://", item=item)
    if "@" in url.netloc or url.query or url.fragment:
        raise InvalidInput("the generator's address must hold no credentials, query or fragment", item=item)
    if url.scheme == "http" and not endpoint.plaintext and not _is_loopback(host):
        raise InvalidInput(
            "the generator's address is unencrypted and on another machine",
            item=item,
            remedy="use https, or set plaintext = true for a private network",
        )
    return url.geturl().rstrip("/").removesuffix("/v1")


def authorities(endpoint: Endpoint) -> ssl.SSLContext | bool:
    """Who may sign the server's certificate; True is the public ones. Raises `InvalidInput`."""
    if endpoint.ca_file is None:
        return True
    try:
        return ssl.create_default_context(cafile=str(endpoint.ca_file))
    except OSError as error:
        raise InvalidInput(
            "the file of authorities cannot be read, or is no PEM file", item="generator.ca_file"
        ) from error


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
