"""Identity: the entry is of the namespace that was asked, and is what was written, whatever led to it."""

from __future__ import annotations

import hmac
from typing import Final

from cache.decision import Asked, Reason
from cache.entry import Entry, is_intact
from cache.verdict import Verdict, passed, veto
from tenancy.tenant import TenantHandle

NAME: Final = "identity"


def check(tenant: TenantHandle, asked: Asked, entry: Entry) -> Verdict:
    """The namespace once more after fetching, the template, and the keyed checksum over every field."""
    if not hmac.compare_digest(entry.namespace, asked.namespace.value) or entry.template != asked.template:
        return veto(NAME, Reason.OTHER_NAMESPACE)
    return passed(NAME) if is_intact(tenant, entry) else veto(NAME, Reason.CORRUPT)
