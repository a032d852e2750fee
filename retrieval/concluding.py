"""The end of a generated answer: its citations verified, or the answer withheld where that was agreed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from audit.record import Resource
from generation.generator import Finish, Quote
from generation.guardrails.rails import Leaving
from retrieval.citations import Citation, verify
from retrieval.masking import Masking
from retrieval.outgoing import shown_citations
from retrieval.question import Answer
from retrieval.sources import Gathered
from tenancy.errors import Unavailable

if TYPE_CHECKING:
    from retrieval.steps import Asking

HISTORY_CUT = "history-cut"
UNCITED = "uncited"


def ended(finish: Finish) -> Literal["stop", "length", "budget", "abstain"]:
    """How generation ended. Raises `Unavailable` where it failed."""
    if finish.reason == "error":
        raise Unavailable("the generator failed", item="generator", remedy="try again")
    return finish.reason


async def conclude(
    asking: Asking, gathered: Gathered, made: Masking, checks: Leaving, draft: Answer, text: str, finish: Finish
) -> Answer:
    """The answer of `text` with the citations that hold; `draft` where a citation is required and none does."""
    cited = await _cite(asking, checks.said, gathered, made.originals(finish.quotes, gathered.context))
    cut = (HISTORY_CUT,) if asking.plan.room.cut else ()
    warnings = (*gathered.warnings, *checks.warnings, *cut)
    if asking.plan.rails.terms.require_citation:
        asking.trail.note(detail={"rail_citation": "pass" if cited else "withheld"})
        if not cited:
            return replace(draft, warnings=(*warnings, UNCITED))
    return replace(draft, text=text, citations=cited, finish=ended(finish), nearest_titles=(), warnings=warnings)


async def _cite(asking: Asking, text: str, gathered: Gathered, quotes: Sequence[Quote]) -> tuple[Citation, ...]:
    """The citations of `text` that hold, on record, as their asker may see them."""
    cited = await asking.path.workers.run(verify, text, gathered.context.sources, quotes)
    asking.trail.note(
        resources=[
            Resource(document=citation.document, version=citation.version, chunk=citation.chunk, stage="cited")
            for citation in cited.citations
        ],
        detail={"unknown_marks": cited.unknown, "unsupported_marks": cited.unsupported},
    )
    return shown_citations(asking.plan.rails, cited.citations)
