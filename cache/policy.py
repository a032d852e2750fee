"""Limits of a tenant's cache, and what each prompt template permits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

import msgspec

Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Modes = Annotated[tuple[Literal["default", "bypass", "refresh"], ...], msgspec.Meta(min_length=1)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]


class TemplatePolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What one template permits. `None` leaves it to the deployment (times) or to the score and verifier themselves.

    `alpha` is the target for wrong hits among semantic hits; `shadow` the share of semantic hits that is answered
    afresh and compared, `probation` how many of a new entry's first ones always are. `score` is the least probability
    served on the score's word alone, `verified` on the word of the verifier, which is asked about what lies below.
    `modes` are the request modes permitted, the first for requests that name none.
    `personal`, `moment` and `deictic` say how far answers travel to questions with personal data, about now or today,
    and that point at something outside: `private` keeps them for their asker, `exact` for the same words, `none` not.
    """

    alpha: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 0.01
    shadow: Share = 0.1
    probation: Annotated[int, msgspec.Meta(ge=0)] = 2
    score: Share | None = None
    verified: Share | None = None
    ttl_s: Seconds | None = None
    max_staleness_s: Annotated[float, msgspec.Meta(ge=0)] | None = None
    modes: Modes = ("default", "bypass", "refresh")
    personal: Literal["private", "none"] = "private"
    moment: Literal["none", "exact"] = "none"
    deictic: Literal["exact", "none"] = "exact"
    semantic: bool = True


@dataclass(frozen=True, slots=True)
class CachePolicy:
    """Times in seconds, sizes in bytes; quotas hold per tenant.

    `max_staleness` bounds how long an answer may be served after documents or access lists have moved elsewhere in
    the tenant; the documents that the answer rests on are checked at every hit regardless. `records` bounds each kind
    of row about wrong hits (`cache.certificate.retention`). `templates` are policies by the template's name, `template`
    the one of every other.
    """

    time_to_live: float = 86_400.0
    max_staleness: float = 600.0
    max_entries: int = 100_000
    max_bytes: int = 1 << 30
    nearest: int = 5
    records: int = 100_000
    templates: Mapping[str, TemplatePolicy] = field(default_factory=dict)
    template: TemplatePolicy = field(default_factory=TemplatePolicy)

    def of(self, template: str) -> TemplatePolicy:
        return self.templates.get(template, self.template)

    def lifetime(self, template: str) -> float:
        found = self.of(template).ttl_s
        return self.time_to_live if found is None else found

    def staleness(self, template: str) -> float:
        found = self.of(template).max_staleness_s
        return self.max_staleness if found is None else found
