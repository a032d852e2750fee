"""A change tried on one tenant's set: asked as it serves now, then as it would, and compared. Nothing served moves.

Both sides go the whole path of a question. What a contract says is another contract in this process alone; other
instructions stand under a name of the trial; another embedding model or chunking is a copy beside the tenant's data
(`indexing.beside`), and where documents are cut anew, both sides are copies, so that they differ in nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final, Literal

import msgspec

from evaluation.change import Change
from evaluation.gate import MARGIN, Gate, compare
from evaluation.running import FEATURE, Step, Way, Withdrawn, run
from evaluation.scores import Scores, qualities
from evaluation.sets import Case, question_key
from generation.templates import resolve
from indexing.agreed import chunking_of
from indexing.beside import collections_of, fill
from indexing.catalogue import serving
from indexing.chunk import Chunking
from indexing.embed import Embedder
from retrieval.plan import open_plan
from retrieval.question import AnswerPath, Opens, Question
from tenancy.contract import ChunkingTerms, RetrievalTerms, check_contract
from tenancy.identity import Principal
from tenancy.tenant import Epochs, TenantHandle

COPY_BUDGET: Final = 1 << 30
"""Bytes of memory for a copy that is searched."""

_PROBE: Final = "?"
_SIDES: Final[tuple[Literal["before", "after"], ...]] = ("before", "after")

Side = Literal["before", "after"]
Told = Callable[[str, int, int], None]
"""Told what is being done, with what is done and to do."""


@dataclass(frozen=True, slots=True)
class Present:
    """What holds for a tenant now, of all that a change may name."""

    retrieval: RetrievalTerms
    chunking: ChunkingTerms
    pools: tuple[str, ...]
    model: str
    template: str


@dataclass(frozen=True, slots=True)
class Tried:
    """Both runs by question, and what the gate says of them."""

    before: Mapping[bytes, Scores]
    after: Mapping[bytes, Scores]
    gate: Gate


@dataclass(frozen=True, slots=True)
class Trial:
    """A change, how to judge it, and whose principal is whose: `askers` by name. `chunking` is the deployment's."""

    path: AnswerPath
    askers: Callable[[str], Principal]
    change: Change
    k: int = 10
    margin: float = MARGIN
    chunking: Chunking = field(default_factory=Chunking)
    budget: int = COPY_BUDGET

    async def on(
        self, tenant: TenantHandle, cases: Sequence[Case], told: Told = lambda _name, _done, _of: None
    ) -> Tried:
        """Run `cases` both ways. Raises `Conflict` where access was withdrawn or a document deleted meanwhile,
        `InvalidInput` for what this deployment, or a contract, cannot hold, `NotFound`, `Unavailable`.
        """
        check_contract(self.change.over(tenant.contract).stored())
        found: list[dict[bytes, Scores]] = []
        keys = [question_key(tenant, case) for case in cases]
        for side in _SIDES:
            with self._way(tenant, side, told) as way:
                # What refuses every question alike is no score.
                asker = self.askers(cases[0].asker or "")
                open_plan(way.path, asker, Question(_PROBE, "0" * 32, template=way.template, feature=FEATURE))
                scores = await run(way, self.askers, cases, _stepping(told, side))
            found.append(dict(zip(keys, scores, strict=True)))
        before, after = found
        return Tried(before, after, compare(qualities(before), qualities(after), self.margin))

    def present(self, tenant: TenantHandle, asker: Principal) -> Present:
        """What holds for `tenant` now. Raises as `open_plan` does."""
        opened = open_plan(self.path, asker, Question(_PROBE, "0" * 32, feature=FEATURE))
        cut = chunking_of(tenant.contract.chunking, self.chunking)
        with tenant.reading() as view:
            name = self.change.template.name if self.change.template is not None else None
            template, collection = resolve(view, self.path.templates, name), serving(view)
        plan = opened.plan
        return Present(
            retrieval=msgspec.structs.replace(
                tenant.contract.retrieval, top_k=plan.top_k, mode=plan.search_mode, threshold=plan.threshold
            ),
            chunking=ChunkingTerms(**{name: getattr(cut, name) for name in ChunkingTerms.__struct_fields__}),
            pools=tuple(place.pool for place in plan.route.places),
            model=opened.embedder.spec if collection is None else collection.model.spec,
            template=template.system,
        )

    @contextmanager
    def _way(self, tenant: TenantHandle, side: Side, told: Told) -> Iterator[Way]:
        change, path, template = self.change, self.path, None
        contract = tenant.contract
        if side == "after":
            contract = change.over(contract)
        if change.template is not None:
            template = change.template.name
            if side == "after":
                template = f"trial-{change.digest}"
                path = replace(path, templates=path.templates.along(template, change.template.system or ""))
        if not (change.cuts or (change.needs_copy and side == "after")):
            opens = Trying(path.tenants, lambda real: real.trying(change.over(real.contract)))
            yield Way(path if side == "before" else replace(path, tenants=opens), template, self.k)
            return
        embedder = self._embedder(tenant, side)
        cut = chunking_of(contract.chunking, self.chunking) if change.cuts else None
        with tenant.beside(contract) as copy:
            as_of = fill(tenant, copy, embedder, cut, told)
            opens = Trying(path.tenants, lambda _real: copy, as_of)
            path = replace(path, tenants=opens, collections=collections_of(embedder, self.budget))
            yield Way(path, template, self.k)

    def _embedder(self, tenant: TenantHandle, side: Side) -> Embedder:
        if side == "after" and self.change.embedding is not None:
            return self.path.embedders.named(self.change.embedding.model)
        with tenant.reading() as view:
            return self.path.embedders.of(view)


@dataclass(frozen=True, slots=True)
class Trying:
    """Opens tenants as they would be: `shape` makes that of the real one, which is opened first, so that one who is
    suspended or gone is refused here too.

    A copy has the access lists of its time: with `as_of`, nothing is read from it once access was withdrawn, or a
    document deleted, since then.
    """

    real: Opens
    shape: Callable[[TenantHandle], TenantHandle]
    as_of: Epochs | None = None

    def open(self, principal: Principal) -> TenantHandle:
        """See `Opens.open`. Raises also `Conflict`."""
        real = self.real.open(principal)
        if self.as_of is not None:
            with real.reading() as view:
                if view.epochs.kv != self.as_of.kv:
                    raise Withdrawn(
                        "access was withdrawn, or a document deleted, since the copy was made",
                        item=real.name,
                        remedy="begin again",
                    )
        return self.shape(real)


def _stepping(told: Told, side: str) -> Step:
    return lambda done, of: told(f"asked {side}", done, of)
