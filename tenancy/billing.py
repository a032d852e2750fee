"""How one tenant's use is charged, as its contract says it."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

PlanName = Annotated[str, msgspec.Meta(pattern="^[a-z0-9][a-z0-9._-]{0,62}$")]
Basis = Literal["actual", "logical"]
"""Which tokens are charged: those that were computed, or those that were served, whoever computed them when."""


class UsageTerms(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """`prices` is a plan of the deployment's price lists, `tokens` which tokens it charges. With `feature` "required" a
    question has to name what it is asked for; otherwise one that does not is booked as unattributed.
    """

    prices: PlanName | None = None
    tokens: Basis = "actual"
    feature: Literal["optional", "required"] = "optional"
