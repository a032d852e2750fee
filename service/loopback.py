"""Whether an address is this machine's own, which nobody else reaches."""

from __future__ import annotations

import ipaddress


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
