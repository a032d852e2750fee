"""Standing: a certificate, or an operator's opening; else nothing but exact hits is served."""

from __future__ import annotations

from typing import Final

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
    return Standing("uncertified", 0, 0, 1.0, 0.0, asked.policy.alpha, allowed, version, asked.template)


def check(standing: Standing) -> Verdict:
    if standing.serves:
        return passed(NAME)
    return veto(NAME, Reason.SUSPENDED if standing.state == "suspended" else Reason.UNCERTIFIED)


def purpose(standing: Standing, ladder: Ladder, asked: Asked, entry: Entry) -> Purpose:  # noqa: ARG001
    return "none"
