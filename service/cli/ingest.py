"""`strongroom ingest`: load and refresh one tenant's documents."""

from __future__ import annotations

import secrets
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from service.cli.console import DEFAULT, Common, Tenant, audited, blocking, note, opened, show_pages
from service.cli.ingest_report import Tally, reporting
from service.problems import DONE, FAILED
from tenancy.errors import InvalidInput

if TYPE_CHECKING:
    from audit.trail import Trail
    from indexing.acl_rules import AccessRules, Decision
    from indexing.outcome import Outcome
    from indexing.run import Decide
    from indexing.walk import Found
    from metering.meter import Tariff
    from service.control import Control
    from tenancy.identity import Principal
    from tenancy.tenant import TenantHandle

Labels = Annotated[tuple[str, ...], Parameter(negative=(), help="user:NAME, group:NAME or tenant; repeat for more.")]
# Documents named in one audit event.
_RECORDED = 500
_STAGES = {"added": "written", "updated": "written", "moved": "written", "acl_updated": "access", "removed": "deleted"}


def ingest(
    path: Path,
    /,
    *paths: Path,
    tenant: Tenant,
    acl: Annotated[Path | None, Parameter(help="Rules by folder (TOML): who may read what.")] = None,
    manifest: Annotated[Path | None, Parameter(help="Access lists by document (CSV or JSON Lines).")] = None,
    allow: Labels = (),
    deny: Labels = (),
    posix: Annotated[
        Path | None, Parameter(help="Map of accounts (TOML): files without a rule are given by owner, group and mode.")
    ] = None,
    folder_rules: Annotated[bool, Parameter(help="Heed .strongroom.toml files in the folders.")] = True,
    dry_run: Annotated[bool, Parameter(negative=(), help="Show who would read what; nothing is written.")] = False,
    prune: Annotated[bool, Parameter(negative=(), help="Remove documents whose files are gone from PATH.")] = False,
    common: Common = DEFAULT,
) -> int:
    """Load files and folders. Equal content is skipped; changed content replaces the older version in one step.

    A document's access list comes from its line of `--manifest`, else from the nearest `.strongroom.toml`, else from
    `--acl` (or `--allow` and `--deny`, for all alike), else from `--posix`. Without any, known documents keep theirs
    and nobody reads a new one. Stop with Ctrl-C: the next run goes on.

    Parameters
    ----------
    path: Path
        A file or a folder.
    paths: Path
        Further ones.
    """
    rules, decide = _access(acl, manifest, allow, deny, posix, folder_rules)
    not_documents = [file for file in (acl, manifest, posix) if file is not None]
    if dry_run:
        return _preview(tenant, [path, *paths], decide, not_documents, common)
    tally, unread = Tally(), 0
    seen: list[str] = []
    undecided: set[str] = set()

    def decided(entry: Found) -> Decision | None:
        # The lines of a JSON Lines file are documents of their own; rules are about the file.
        seen.append(entry.lies)
        decision = decide(entry)
        if decision is None or decision.by is None:
            undecided.add(entry.lies)
        return decision

    with opened(common) as control, reporting([path, *paths], common) as report:

        def done(outcome: Outcome) -> None:
            nonlocal unread
            seen.append(outcome.document)
            tally.add(outcome)
            names = {outcome.document, outcome.document.rpartition("#")[0]}
            unread += outcome.change.value == "added" and bool(undecided & names)
            report(outcome)

        blocking(_load(control, tenant, [path, *paths], decided, not_documents, prune, done))
    if rules is not None:
        for where in rules.unused(seen):
            note(f"{where} fits no document")
    if unread:
        note(f"nobody reads {unread} of the new documents: no --allow, rule, manifest or folder names them")
    tally.show(tenant, common)
    return FAILED if tally.failures else DONE


async def _load(
    control: Control,
    tenant: str,
    paths: Sequence[Path],
    decide: Decide,
    not_documents: Sequence[Path],
    prune: bool,
    done: Callable[[Outcome], None],
) -> None:
    from indexing.batch import ingest_paths
    from indexing.embedding import Embedders
    from indexing.ingest import at_present
    from service.engines import build_engines
    from service.tariff import embedding, open_tariff
    from service.wiring import ingestion, open_collections, parsers

    principal, request_id = control.authenticator.operator(tenant), secrets.token_hex(16)
    embedders, engines = Embedders(control.settings.embedding), build_engines(control.settings.collections)
    parsing = parsers(control.settings.parsing)
    pipeline = ingestion(embedders, engines, parsing)
    collections = open_collections(control.settings, embedders, engines)
    tariff = open_tariff(control.settings.prices)
    counts: Counter[str] = Counter()
    changed: deque[Outcome] = deque()
    tokens: Counter[str] = Counter()

    def written(outcomes: Sequence[Outcome]) -> None:
        tokens["read"] += sum(outcome.tokens for outcome in outcomes)
        changed.extend(outcome for outcome in outcomes if outcome.change.value in _STAGES)
        # Durable already; from here on it is found at the tenant's engine as well.
        collections.settle(handle)

    async with (
        control.trail.open(principal, action="ingest", request_id=request_id) as trail,
        AsyncExitStack() as stack,
    ):
        handle = control.tenants.open(principal)
        model = embedders.default.fingerprint.name
        await stack.enter_async_context(_admitted(control, tariff, trail, principal, handle, model))
        await trail.intent()
        outcomes = ingest_paths(
            handle,
            pipeline,
            paths,
            decide,
            lambda: control.tenants.open(principal),
            prune=prune,
            exclude=not_documents,
            written=written,
        )
        with embedding(trail, tariff, handle) as use:
            try:
                present = at_present(handle, pipeline).embedder.fingerprint
                use.by(present.name, present.revision)
                for outcome in outcomes:
                    counts[outcome.status.value] += 1
                    if len(changed) >= _RECORDED:
                        await _record(control, principal, request_id, [changed.popleft() for _ in range(_RECORDED)])
                    done(outcome)
            finally:
                # Ends the batch in flight, whose documents belong on record as well.
                outcomes.close()
                parsing.close()
                engines.close()
                use.used(tokens["read"])
                _note(trail, changed)
                trail.note(detail=dict(counts))


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


def _access(
    acl: Path | None,
    manifest: Path | None,
    allow: Sequence[str],
    deny: Sequence[str],
    posix: Path | None,
    folder_rules: bool,
) -> tuple[AccessRules | None, Decide]:
    """Where access lists come from, checked before anything is read."""
    from indexing.acl_rules import AccessRules, Decision
    from indexing.deciding import Access
    from indexing.posix_rules import PosixRules
    from tenancy.acl import AccessList

    by_mode = PosixRules(posix) if posix is not None else None
    if acl is None and manifest is None:
        for_all = Decision(AccessList.of(allow, deny), "--allow") if allow or deny else None
        return None, Access(None, for_all, by_mode, folders=folder_rules).decide
    if allow or deny:
        raise InvalidInput(
            "access lists come from one place", item="--allow", remedy="leave out --allow and --deny, or the files"
        )
    rules = AccessRules(acl, manifest)
    return rules, Access(rules, None, by_mode, folders=folder_rules).decide


def _preview(tenant: str, paths: Sequence[Path], decide: Decide, not_documents: Sequence[Path], common: Common) -> int:
    """Show who would read what. The exit code tells whether each file could be decided."""
    from service.access_preview import Preview, preview

    counts: Counter[str] = Counter()

    def pages(found: Iterator[Preview]) -> Iterator[list[dict[str, object]]]:
        while page := list(islice(found, _RECORDED)):
            counts.update(one.change for one in page)
            counts["nobody"] += sum(one.change != "failed" and not one.readers for one in page)
            yield [asdict(one) for one in page]

    with opened(common) as control:
        principal = control.authenticator.operator(tenant)

        def work(trail: Trail) -> None:
            found = preview(control.tenants.open(principal), paths, decide, not_documents)
            columns = ["change", "document", "readers", "who", "allow", "deny", "by", "unknown", "reason"]
            show_pages(common, pages(found), columns)
            trail.note(detail=dict(counts))

        audited(control, principal, "ingest.preview", work)
    if counts["nobody"]:
        note(f"no user of the directory would read {counts['nobody']} of the files")
    return FAILED if counts["failed"] else DONE
