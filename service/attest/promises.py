"""Of the contracts: are limits, prices behind them, weights and objectives what was agreed?

Objectives are the one promise that is held against what happened: each server judges the windows of what it served, and
of what a window missed there is a record in the tenant's log. Those records alone are counted.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import chain
from typing import Final

from admission.fair import FairQueue, Party
from admission.limits import Limits, TenantLimits
from audit.filters import Filters
from audit.query import query_log
from metering.prices import FREE, PriceList
from service.attest.claims import Claim, Tally, not_built
from service.control import Control
from service.metrics.judge import ACTION
from service.metrics.objectives import LEAST, breaches
from service.metrics.windows import Window
from service.settings import Settings
from service.tariff import open_tariff
from tenancy.contract import Contract
from tenancy.errors import StrongroomError
from tenancy.objectives import Objectives

_DAYS: Final = 30
_MUCH: Final = 1_000_000
_ROUNDS: Final = 100
_NEAR: Final = 0.05
"""Of a weight, for how far a share may be from it after so many rounds."""

Agreed = Sequence[tuple[str, Contract]]


def examined(control: Control, agreed: Agreed) -> list[Claim]:
    settings = control.settings
    return [_limits(settings, agreed), _money(settings, agreed), _weights(agreed), _objectives(control, agreed)]


def _limits(settings: Settings, agreed: Agreed) -> Claim:
    """A number that a contract names holds, whatever the deployment says; the others are the deployment's."""
    tally = Tally("limits are those agreed")
    tally.control(_differ(Limits(concurrent=9), Limits(concurrent=1)), "a limit that another one took the place of")
    for name, contract in agreed:
        held, own = contract.limits(settings.admission.limits), contract.admission
        scopes = ((held.tenant, own.tenant), (held.user, own.user), (held.key, own.key))
        tally.probe(any(_differ(limits, wanted) for limits, wanted in scopes), name)
    return tally.close()


def _differ(held: Limits, agreed: Limits) -> bool:
    named = {name: value for name in agreed.__struct_fields__ if (value := getattr(agreed, name)) is not None}
    return any(getattr(held, name) != value for name, value in named.items())


def _money(settings: Settings, agreed: Agreed) -> Claim:
    """A limit on money needs prices: under a plan where everything is free it would never be reached."""
    claim = "limits on money are limits on something that has a price"
    tally, tariff = Tally(claim), open_tariff(settings.prices)
    tally.control(_is_free(FREE), "a plan without prices")
    for name, contract in agreed:
        if not _limits_money(contract.limits(settings.admission.limits)):
            continue
        try:
            free = _is_free(tariff.book.at(contract.usage.prices or tariff.plan, time.time()))
        except StrongroomError:
            free = True
        tally.probe(free, name)
    return tally.close() if tally.probes else not_built(claim, "no contract, and no default, limits money")


def _limits_money(held: TenantLimits) -> bool:
    return any(limits.money_per_month is not None for limits in (held.tenant, held.user, held.key))


def _is_free(prices: PriceList) -> bool:
    of_models = chain.from_iterable(hops.values() for hops in prices.models.values())
    return not any(price.of(_MUCH, _MUCH) for price in chain(prices.hops.values(), of_models))


def _weights(agreed: Agreed) -> Claim:
    """Of a queue that is never empty, tenants are served by the weights that their contracts name."""
    tally = Tally("shares of a queue are by the weights agreed")
    tally.control(not _is_near(_share(1), 4), "equal weights are told from 4 to 1")
    for name, contract in agreed:
        tally.probe(not _is_near(_share(contract.weight), contract.weight), name)
    return tally.close()


def _is_near(share: float, weight: int) -> bool:
    return abs(share - weight) <= _NEAR * weight


def _share(weight: int) -> float:
    """What a tenant of this weight is served for each request of one of weight 1, while both always wait."""
    queue: FairQueue[str] = FairQueue()
    parties = {"agreed": Party("agreed", "user", float(weight)), "other": Party("other", "user")}
    served = dict.fromkeys(parties, 0)
    for name, party in parties.items():
        # Two each: whoever is served is never away from the queue.
        queue.enter(name, party, 1)
        queue.enter(name, party, 1)
    for _ in range(_ROUNDS * (weight + 1)):
        place = next(queue.heads())
        queue.begin(place)
        served[place.item] += 1
        queue.enter(place.item, place.party, 1)
        queue.leave(place)
    return served["agreed"] / max(1, served["other"])


def _objectives(control: Control, agreed: Agreed) -> Claim:
    claim = f"objectives agreed were met in the last {_DAYS} days"
    asked = [name for name, contract in agreed if contract.objectives != Objectives()]
    if not asked:
        return not_built(claim, "no contract names objectives")
    tally, missed = Tally(claim), Window(0.0)
    missed.requests = missed.system = LEAST
    tally.control(bool(breaches(Objectives(availability=1.0), missed)), "a window in which nothing was served")
    since = time.time() - _DAYS * 86_400.0
    for name in asked:
        log = control.logs.of(control.authenticator.operator(name))
        found = query_log(log, Filters(action=ACTION, since=since), limit=1)
        tally.probe(bool(found.events), name)
    return tally.close()
