"""What a contract promises about the service that a tenant gets."""

from __future__ import annotations

from typing import Annotated

import msgspec


class Objectives(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """Targets; `None` is none. `p99_s`: seconds that 99 of 100 answers take at most. `share`: least service received by
    service due, while the tenant's questions wait. `availability`: least share of the requests that the deployment had
    to serve and did.
    """

    p99_s: Annotated[float, msgspec.Meta(gt=0)] | None = None
    share: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    availability: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
