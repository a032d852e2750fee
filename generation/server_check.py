"""What an SGLang server says about itself, and whether salts can be trusted there."""

from __future__ import annotations

import re

import msgspec

from generation.endpoint import Endpoint
from generation.generator import Misfit

OLDEST_VERSION = (0, 5, 20)

_VERSION = re.compile(r"(\d{1,6})\.(\d{1,6})\.(\d{1,6})", re.ASCII)


class _ServerInfo(msgspec.Struct, frozen=True):
    """The fields of `GET /server_info` that matter here (SGLang 0.5.23)."""

    version: str = ""
    served_model_name: str | None = None
    hicache_storage_backend: str | None = None
    enable_lmcache: bool | None = None
    enable_flexkv: bool | None = None


def check_server_info(data: bytes, endpoint: Endpoint) -> None:
    """Raise `Misfit` for a server that is too old, serves another model, or keeps KV beyond its memory.

    Until 0.5.17 salts were concatenated with other keys, and until 0.5.19 storage tiers ignored them. The server
    answers for any model name in a request, so that its own name must be compared.
    """
    item = endpoint.base_url
    try:
        info = msgspec.json.decode(data, type=_ServerInfo)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Misfit("the server's description is not SGLang's", item=item) from error
    found = _VERSION.match(info.version)
    if found is None or tuple(map(int, found.groups())) < OLDEST_VERSION:
        oldest = ".".join(map(str, OLDEST_VERSION))
        raise Misfit(
            f"the server runs SGLang {info.version[:40] or 'of unknown version'}; salts isolate from {oldest} on",
            item=item,
            remedy="upgrade the server",
        )
    if info.served_model_name != endpoint.model:
        raise Misfit(
            f"the server serves the model {str(info.served_model_name)[:200]!r}, not {endpoint.model!r}",
            item=item,
            remedy="set the generator's model to the server's --served-model-name",
        )
    if info.hicache_storage_backend or info.enable_lmcache or info.enable_flexkv:
        raise Misfit(
            "the server keeps KV memory in a storage tier, whose isolation has not been shown",
            item=item,
            remedy="start it without a HiCache storage backend, LMCache or FlexKV",
        )
