"""Standing: a certificate, or an operator's opening; else nothing but exact hits is served."""

from __future__ import annotations

from typing import Final

from cache.certificate import evidence, shadow
from cache.decision import Asked, Purpose, Reason
from cache.entry import Entry
from cache.ladder import Ladder
from cache.openings import opening
from cache.standing import Standing
from cache.verdict import Verdict, passed, veto
from tenancy.tenant import ReadView

NAME: Final = "standing"


def of(view: ReadView, ladder: Ladder, asked: Asked) -> Standing:
    """How semantic hits of this template stand, in the state of `view`; without evidence uncertified."""
    allowed = opening(view, asked.template)
    version = ladder.version(asked, None if allowed is None else allowed.threshold)
    space = asked.namespace.fingerprint
    return evidence.standing(view, asked.template, version, namespace=space, alpha=asked.policy.alpha, opening=allowed)


def check(standing: Standing) -> Verdict:
    if standing.serves:
        return passed(NAME)
    return veto(NAME, Reason.SUSPENDED if standing.state == "suspended" else Reason.UNCERTIFIED)


def purpose(standing: Standing, ladder: Ladder, asked: Asked, entry: Entry) -> Purpose:
    """Why to answer afresh and compare, in place of serving `entry`; or `none`."""
    return shadow.purpose(standing, asked.policy, entry.confirmed, ladder.random)
