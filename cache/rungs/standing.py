"""Standing: a certificate, or an operator's opening; else nothing but exact hits is served."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from cache.certificate import evidence, shadow
from cache.decision import Asked, Purpose, Reason
from cache.entry import Entry
from cache.ladder import Ladder
from cache.openings import opening
from cache.policy import CachePolicy
from cache.standing import Standing
from cache.verdict import Verdict, passed, veto
from tenancy.tenant import ReadView

NAME: Final = "standing"
_REASONS: Final = {"uniform": Reason.DRAWN, "probation": Reason.PROBATION}


def of(view: ReadView, ladder: Ladder, asked: Asked, policy: CachePolicy) -> Standing:
    """How semantic hits of this template and namespace stand, in the state of `view`."""
    allowed = opening(view, asked.template)
    return evidence.standing(
        view,
        asked.template,
        ladder.version(asked, None if allowed is None else allowed.threshold, policy),
        namespace=asked.space,
        alpha=asked.policy.alpha,
        opening=allowed,
    )


def check(standing: Standing) -> Verdict:
    if standing.serves:
        return passed(NAME, value=standing.upper)
    reason = Reason.SUSPENDED if standing.state == "suspended" else Reason.UNCERTIFIED
    return veto(NAME, reason, value=standing.upper)


def is_checked(ladder: Ladder, asked: Asked) -> bool:
    """Whether hits are compared with fresh answers at all: there is a judge, and the policy draws some."""
    return ladder.judge is not None and asked.policy.shadow > 0


def on_probation(ladder: Ladder, asked: Asked, entry: Entry) -> bool:
    """Whether this entry is compared rather than served, whatever the standing."""
    return ladder.judge is not None and shadow.on_probation(asked.policy, entry.confirmed)


def purpose(
    standing: Standing, ladder: Ladder, asked: Asked, entry: Entry, random: Callable[[], float]
) -> tuple[Verdict, Purpose]:
    """Whether this hit is answered afresh and compared, although it might be served."""
    if ladder.judge is None:
        return passed(NAME), "none"
    found = shadow.purpose(standing, asked.policy, entry.confirmed, random)
    return (passed(NAME) if found == "none" else veto(NAME, _REASONS[found])), found
