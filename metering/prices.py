"""Prices as data: one TOML file is one revision of a plan, in force from a day on.

    plan = "standard"
    revision = "2026-12"
    since = 2026-12-01            # 00:00 UTC
    currency = "EUR"              # a microunit is a millionth of it

    [hops.generate]               # embed, retrieve, rerank, generate, cache; one that is left out is free
    call = 100                    # microunits a call
    input_per_million = 200_000   # microunits a million tokens
    output_per_million = 600_000

    [models."org/large".generate] # takes the place of the hop's price for one model

All amounts are whole microunits, and each hop is rounded once, so that sums are exact. A file is never edited once it
was in force: a change is another revision. Each event names revision and digest, so that an edit is noticed.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from importlib.resources.abc import Traversable
from typing import Annotated, Final, Literal

import msgspec

from tenancy.billing import Basis as Basis
from tenancy.billing import PlanName
from tenancy.errors import InvalidInput

HopName = Literal["embed", "retrieve", "rerank", "generate", "cache"]
MicroUnits = Annotated[int, msgspec.Meta(ge=0, le=10**12)]
"""A million of the currency at most, so that sums of many events fit into a ledger."""

FREE_PLAN: Final = "none"
_PER: Final = 1_000_000


class Price(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Microunits per call and per million tokens."""

    call: MicroUnits = 0
    input_per_million: MicroUnits = 0
    output_per_million: MicroUnits = 0

    def of(self, input_tokens: int, output_tokens: int) -> int:
        """Microunits of one call; the token part is rounded half up, once."""
        tokens = input_tokens * self.input_per_million + output_tokens * self.output_per_million
        return self.call + (tokens + _PER // 2) // _PER


class PriceList(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One revision of a plan."""

    plan: PlanName = FREE_PLAN
    revision: PlanName = "1"
    since: date = date(1970, 1, 1)
    currency: Annotated[str, msgspec.Meta(pattern="^[A-Z]{3}$")] = "EUR"
    hops: Mapping[HopName, Price] = {}
    models: Mapping[str, Mapping[HopName, Price]] = {}

    @property
    def id(self) -> str:
        """Plan, revision and a digest of the prices, as in "standard/2026-12+5f0c1a2b"."""
        digest = hashlib.sha256(msgspec.json.encode(self, order="sorted")).hexdigest()[:8]
        return f"{self.plan}/{self.revision}+{digest}"

    def price(self, hop: str, model: str | None = None) -> Price:
        """What a hop costs with a model."""
        own = {} if model is None else self.models.get(model, {})
        found = (price for prices in (own, self.hops) for name, price in prices.items() if name == hop)
        return next(found, _FREE)


class PriceSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`folder` holds the lists, empty for those that come with the program; `plan` is that of most tenants."""

    folder: str
    plan: PlanName


_FREE: Final = Price()
FREE: Final = PriceList()
"""Nothing costs anything; every book has it as the plan "none"."""


class PriceBook:
    """All revisions of all plans of a deployment."""

    def __init__(self, lists: Iterable[PriceList] = ()) -> None:
        """Raises `InvalidInput` where two revisions of a plan share their name or their first day."""
        self._plans: dict[str, list[PriceList]] = {FREE_PLAN: [FREE]}
        for found in lists:
            known = self._plans.setdefault(found.plan, [])
            if any(found.revision == other.revision or found.since == other.since for other in known):
                raise InvalidInput(
                    "a plan has two price lists of one revision, or from one day on",
                    item=f"{found.plan}/{found.revision}",
                    remedy="give each revision its own name and first day",
                )
            known.append(found)
            known.sort(key=lambda one: one.since)

    @property
    def plans(self) -> list[str]:
        return sorted(self._plans)

    def at(self, plan: str, moment: float) -> PriceList:
        """The list of `plan` in force at `moment` (UTC epoch seconds).

        Raises `InvalidInput` for a plan that there is none of, or that is not in force yet.
        """
        day = datetime.fromtimestamp(moment, UTC).date()
        found = [one for one in self._plans.get(plan, ()) if one.since <= day]
        if not found:
            raise InvalidInput(
                "no price list of this plan is in force",
                item=plan[:100],
                remedy=f"the plans are {', '.join(self.plans)}; see configs/prices",
            )
        return found[-1]


def read_book(folder: Traversable) -> PriceBook:
    """All `*.toml` of a folder. Raises `InvalidInput` naming the file and the key."""
    try:
        files = sorted((file for file in folder.iterdir() if file.name.endswith(".toml")), key=lambda file: file.name)
    except OSError as error:
        raise InvalidInput(
            "the folder of price lists cannot be read", item=str(folder), remedy=str(error.strerror)
        ) from None
    return PriceBook(_read(file) for file in files)


def _read(file: Traversable) -> PriceList:
    try:
        return msgspec.convert(tomllib.loads(file.read_text(encoding="utf-8")), PriceList)
    except OSError as error:
        raise InvalidInput("a price list cannot be read", item=file.name, remedy=str(error.strerror)) from None
    except msgspec.ValidationError as error:
        reason, _, where = str(error).partition(" - at `$.")
        item = f"{file.name}: {where.rstrip('`')}" if where else file.name
        raise InvalidInput(reason[:1].lower() + reason[1:], item=item, remedy="see configs/prices") from None
    except ValueError as error:
        raise InvalidInput("a price list is not TOML", item=file.name, remedy=str(error)) from None
