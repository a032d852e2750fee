"""From passages to the sources of a prompt: separated by reader class, weighed, fitted into the budget, looked through.

The same for an answer and for the preview of a template.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from generation.injection import instructions_in
from indexing.embed import Embedder
from retrieval.abstain import Evidence, weigh
from retrieval.context import Context, assemble
from retrieval.mixing import by_class, reader_classes
from retrieval.passage import Passage
from retrieval.plan import Plan
from retrieval.search import Passages
from tenancy.tenant import TenantHandle

SEPARATED: Final = "sources-separated"
INSTRUCTED: Final = "instructions-in-source"
HIDDEN: Final = "hidden-text-in-source"

_COVERED: Final = 0.5


@dataclass(frozen=True, slots=True)
class Gathered:
    """The sources of a prompt and whether they can answer.

    `left_out` counts passages of other reader classes among the best, `instructed` are ids of documents of which a
    passage among the best, or in the prompt, speaks to the model.
    """

    context: Context
    evidence: Evidence
    left_out: int
    instructed: tuple[int, ...]

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the asker is told."""
        passages = [source.passage for source in self.context.sources]
        told = (
            (SEPARATED, self.left_out > 0),
            (INSTRUCTED, not {passage.document_id for passage in passages}.isdisjoint(self.instructed)),
            (HIDDEN, any(passage.hidden for passage in passages)),
        )
        return tuple(warning for warning, holds in told if holds)


def gather(tenant: TenantHandle, plan: Plan, found: Passages, embedder: Embedder) -> Gathered:
    """Choose and fit the sources for `plan`, best first."""
    similarity = found.similarity if embedder.covers(plan.query) >= _COVERED else None

    def weighed(passages: Sequence[Passage]) -> Evidence:
        model = embedder.fingerprint.name
        return weigh(plan.query, passages, similarity=similarity, model=model, threshold=plan.threshold)

    items = [item for item in found.items if not item.hidden or plan.hidden == "mark"]
    best = items[: plan.top_k]
    chosen: Sequence[Passage] = best
    groups = _groups(tenant, items) if plan.mixing == "separate" and len(best) > 1 else []
    if len(groups) > 1:
        # Where no class is enough alone, the best passage's is tried, and the generator may still find nothing in it.
        chosen = next((group for group in groups if weighed(group).sufficient), groups[0])[: plan.top_k]
    looked = {item.chunk_id: item for item in (*best, *chosen)}
    return Gathered(
        context=assemble(chosen, plan.room.sources, plan.count),
        evidence=weighed(best),
        left_out=len(looked) - len(chosen),
        instructed=tuple(sorted({item.document_id for item in looked.values() if _speaks(item)})),
    )


def _speaks(item: Passage) -> bool:
    """Whether what the prompt would hold of a passage speaks to the model, its title and name included."""
    return bool(instructions_in(f"{item.title}\n{item.document}\n{item.context or ''}\n{item.text}"))


def _groups(tenant: TenantHandle, items: Sequence[Passage]) -> list[list[Passage]]:
    with tenant.reading() as view:
        classes = reader_classes(view, {item.document_id for item in items})
    return by_class(items, classes)
