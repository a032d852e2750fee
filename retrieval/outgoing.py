"""What every answer passes on its way out: one chain of checks, made for one prompt."""

from __future__ import annotations

from audit.trail import Trail
from generation.canary import CanaryCheck
from generation.links import LinkCheck
from generation.output import Chain, Withheld
from retrieval.plan import Plan
from retrieval.sources import Gathered


def outgoing(plan: Plan, gathered: Gathered) -> Chain:
    """The checks, in this order. No address leaves of a document that speaks to the model."""
    trusted = [
        source.for_prompt()
        for source in gathered.context.sources
        if source.passage.document_id not in gathered.instructed
    ]
    return Chain([CanaryCheck(plan.mark), LinkCheck(trusted)])


def passed(trail: Trail, checks: Chain, text: str | None) -> str:
    """What of `text` may leave now, at the end (None) the rest; what the checks found is on record by then.

    Raises `Withheld`, and which check it was is on record.
    """
    try:
        leaving = checks.flush() if text is None else checks.feed(text)
    except Withheld:
        trail.note(detail=checks.detail)
        raise
    if text is None:
        trail.note(detail=checks.detail)
    return leaving
