"""Passes of `strongroom ingest` over files, each of them admitted, metered and on record."""

from __future__ import annotations

import gc
import secrets
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from audit.trail import Trail
    from indexing.batch import Decide
    from indexing.outcome import Outcome
    from indexing.run import PruneLimit
    from metering.meter import HopUse, Tariff
    from service.control import Control
    from tenancy.identity import Principal
    from tenancy.tenant import TenantHandle

_RECORDED: Final = 500
"""Documents named in one audit event."""
_STAGES: Final = {
    "added": "written", "updated": "written", "moved": "written", "acl_updated": "access", "removed": "deleted",
}  # fmt: skip


class Loading:
    """One tenant's folders, and what it takes to load them: models, parsers and engines, until it is closed."""

    def __init__(
        self,
        control: Control,
        tenant: str,
        paths: Sequence[Path],
        not_documents: Sequence[Path],
        prune: PruneLimit | None,
    ) -> None:
        """`prune` None removes nothing but parts of files that are there."""
        from indexing.embedding import Embedders
        from service.engines import build_engines
        from service.tariff import open_tariff
        from service.wiring import ingestion, open_collections, parsers

        self.paths = paths
        self._control, self._not_documents, self._prune = control, not_documents, prune
        self._principal = control.authenticator.operator(tenant)
        self._embedders = Embedders(control.settings.embedding)
        self._engines = build_engines(control.settings.collections)
        self._parsing = parsers(control.settings.parsing)
        self._pipeline = ingestion(self._embedders, self._engines, self._parsing)
        self._collections = open_collections(control.settings, self._embedders, self._engines)
        self._tariff = open_tariff(control.settings.prices)
        # What stays to the end is out of the way of collecting what each document leaves behind.
        gc.freeze()

    def close(self) -> None:
        self._parsing.close()
        self._engines.close()

    async def load(self, decide: Decide, done: Callable[[Outcome], None], only: Collection[Path] | None = None) -> None:
        """One pass over all files, or over what lies at or below the places `only`; `done` is told what became of each.

        Raises what ends it: a tenant that is suspended, a limit, a model that cannot be had.
        """
        from indexing.batch import PRUNE_LIMIT, ingest_paths
        from service.tariff import embedding

        control, principal, request_id = self._control, self._principal, secrets.token_hex(16)
        counts: Counter[str] = Counter()
        changed: deque[Outcome] = deque()
        tokens: Counter[str] = Counter()

        def written(outcomes: Sequence[Outcome]) -> None:
            tokens["read"] += sum(outcome.tokens for outcome in outcomes)
            changed.extend(outcome for outcome in outcomes if outcome.change.value in _STAGES)
            # Durable already; from here on it is found at the tenant's engine as well.
            self._collections.settle(handle)

        async with (
            control.trail.open(principal, action="ingest", request_id=request_id) as trail,
            AsyncExitStack() as stack,
        ):
            handle = control.tenants.open(principal)
            model = self._embedders.default.fingerprint.name
            await stack.enter_async_context(_admitted(control, self._tariff, trail, principal, handle, model))
            await trail.intent()
            outcomes = ingest_paths(
                handle,
                self._pipeline,
                self.paths,
                decide,
                lambda: control.tenants.open(principal),
                prune=self._prune is not None,
                prune_limit=self._prune or PRUNE_LIMIT,
                exclude=self._not_documents,
                only=only,
                written=written,
                threads=control.settings.parsing.workers,
            )
            with embedding(trail, self._tariff, handle) as use:
                try:
                    self._note_model(handle, use)
                    for outcome in outcomes:
                        counts[outcome.status.value] += 1
                        if len(changed) >= _RECORDED:
                            await _record(control, principal, request_id, [changed.popleft() for _ in range(_RECORDED)])
                        done(outcome)
                finally:
                    # Ends the batch in flight, whose documents belong on record as well.
                    outcomes.close()
                    use.used(tokens["read"])
                    _note(trail, changed)
                    trail.note(detail=dict(counts))

    def _note_model(self, handle: TenantHandle, use: HopUse) -> None:
        from indexing.ingest import at_present

        present = at_present(handle, self._pipeline).embedder.fingerprint
        use.by(present.name, present.revision)


@asynccontextmanager
async def _admitted(
    control: Control, tariff: Tariff, trail: Trail, principal: Principal, tenant: TenantHandle, model: str
) -> AsyncIterator[None]:
    """Hold a lease for the whole run. How much of it is new is not known yet: a request, and what it comes to."""
    from service.alerts import Alerts
    from service.charging import loading
    from service.wiring import gate
    from tenancy.workers import Workers

    workers = Workers(1, 8)
    settings = control.settings.admission
    door = gate(settings, Alerts(settings.alerts), control, workers)
    try:
        async with loading(door, tariff, trail, principal, tenant, model=model, size=0):
            yield
    finally:
        await door.counters.aclose()
        workers.close()


async def _record(control: Control, principal: Principal, request_id: str, changed: Sequence[Outcome]) -> None:
    """A large ingestion names its documents in several events."""
    async with control.trail.open(principal, action="ingest", request_id=request_id) as trail:
        _note(trail, changed)


def _note(trail: Trail, changed: Iterable[Outcome]) -> None:
    from audit.record import Resource

    trail.note(
        resources=[
            Resource(document=name, stage=_STAGES[outcome.change.value])  # type: ignore[arg-type]
            for outcome in changed
            for name in (outcome.document, outcome.moved_from)
            if name is not None
        ]
    )
