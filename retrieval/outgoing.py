"""What every answer passes on its way out: one chain of checks, made for one prompt; and what stands beside it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace

from audit.trail import Trail
from generation.canary import CanaryCheck
from generation.declined import Declined
from generation.guardrails.failure import BlockedAnswer, BlockedTopic, RailFailed, UncitedAnswer
from generation.guardrails.masks import Masks
from generation.guardrails.rails import Leaving, Rails
from generation.links import LinkCheck, title_alone, without_images
from retrieval.abstain import Evidence, not_found
from retrieval.citations import Citation
from retrieval.plan import Plan
from retrieval.sources import Gathered
from tenancy.errors import StrongroomError


@asynccontextmanager
async def verdicts_on_record(trail: Trail) -> AsyncIterator[None]:
    """What a rail refused, or that it failed, is noted on `trail`: the rail and a topic's name, no text."""
    try:
        yield
    except BlockedTopic as refusal:
        trail.note(detail={"rail_question": "refused", "rail_topic": refusal.item})
        raise
    except BlockedAnswer as refusal:
        trail.note(detail={"rail_answer": "refused", "rail_topic": refusal.item})
        raise
    except UncitedAnswer:
        trail.note(detail={"rail_citation": "withheld"})
        raise
    except RailFailed as failure:
        trail.note(detail={"rail_failed": failure.item})
        raise


def outgoing(plan: Plan, gathered: Gathered, masks: Masks, declined: Declined) -> Leaving:
    """The checks, in this order. No address leaves of a document that speaks to the model."""
    trusted = [
        source.for_prompt()
        for source in gathered.context.sources
        if source.passage.document_id not in gathered.instructed
    ]
    # Links are looked at with what placeholders stand for: an address that a source holds is written there in full.
    return plan.rails.leaving(masks, [declined, CanaryCheck(plan.mark)], [LinkCheck(trusted)])


def passed(trail: Trail, checks: Leaving, text: str | None) -> str:
    """What of `text` may leave now, at the end (None) the rest; what the checks found is on record by then.

    Raises `Withheld` and `RailFailed`, and which check it was is on record. Once what was returned has left, ask
    `checks.refuse`.
    """
    try:
        leaving = checks.flush() if text is None else checks.feed(text)
    except StrongroomError:
        trail.note(detail=checks.detail)
        raise
    if text is None:
        trail.note(detail=checks.detail)
    return leaving


def shown_citations(rails: Rails, citations: Iterable[Citation]) -> tuple[Citation, ...]:
    """Citations as their asker may see them: offsets stay, personal data in quotes and titles is taken out, and one
    that quotes a blocked phrase is left out.
    """
    return tuple(
        replace(citation, quote=rails.shown(citation.quote), title=rails.shown(citation.title))
        for citation in citations
        if not rails.names_blocked(f"{citation.title}\n{citation.quote}")
    )


def said_not_found(question: str, evidence: Evidence) -> str:
    """What is said in the place of an answer. It cites nothing, so that no address leaves in a title that it names."""
    titles = tuple(title_alone(title) for title in evidence.nearest)
    return without_images(not_found(question, replace(evidence, nearest=titles)))


def shown_evidence(rails: Rails, evidence: Evidence) -> Evidence:
    """Likewise the titles of the nearest documents."""
    nearest = tuple(rails.shown(title) for title in evidence.nearest if not rails.names_blocked(title))
    return replace(evidence, nearest=nearest)
