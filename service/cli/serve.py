"""`strongroom serve`: the REST API, until a stop signal."""

from __future__ import annotations

from typing import Annotated

import msgspec
from cyclopts import Parameter

from service.cli.console import DEFAULT, Common


def serve(
    *,
    host: Annotated[str | None, Parameter(help="Address to listen on, instead of server.host.")] = None,
    port: Annotated[int | None, Parameter(help="Port, instead of server.port; 0 takes a free one.")] = None,
    common: Common = DEFAULT,
) -> None:
    """Serve the REST API; the OpenAPI page is at /schema.

    One server works on a data directory; all other commands may run beside it, and what they change holds from the
    next request on. A stop signal lets requests in flight end first; SIGHUP takes generation.pools from the settings.
    """
    from service.server import run
    from service.settings import load_settings

    settings = load_settings(common.config)
    chosen = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    changed = msgspec.structs.replace(settings, server=msgspec.structs.replace(settings.server, **chosen))
    run(changed, lambda: load_settings(common.config))
