"""`strongroom ingest`: load and refresh one tenant's documents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from service.cli.console import DEFAULT, Common, Tenant, audited, note, opened, show_pages
from service.cli.ingest_access import Deciding, Sources
from service.cli.ingest_loading import Loading
from service.cli.ingest_watch import follow, one_pass
from service.problems import DONE, FAILED
from tenancy.errors import InvalidInput

if TYPE_CHECKING:
    from audit.trail import Trail
    from indexing.run import PruneLimit

Labels = Annotated[tuple[str, ...], Parameter(negative=(), help="user:NAME, group:NAME or tenant; repeat for more.")]
# Rows of a preview that are made at a time.
_PAGE = 500


def ingest(
    path: Path,
    /,
    *paths: Path,
    tenant: Tenant,
    acl: Annotated[Path | None, Parameter(help="Rules by folder (TOML): who may read what.")] = None,
    manifest: Annotated[Path | None, Parameter(help="Readers, title, metadata by file (CSV, JSON Lines).")] = None,
    allow: Labels = (),
    deny: Labels = (),
    posix: Annotated[
        Path | None, Parameter(help="Map of accounts (TOML): files without a rule are given by owner, group and mode.")
    ] = None,
    folder_rules: Annotated[bool, Parameter(help="Heed .strongroom.toml files in the folders.")] = True,
    dry_run: Annotated[bool, Parameter(negative=(), help="Show who would read what; nothing is written.")] = False,
    prune: Annotated[bool, Parameter(negative=(), help="Remove documents whose files are gone from PATH.")] = False,
    prune_limit: Annotated[int | None, Parameter(help="Remove at most so many, however large their share.")] = None,
    watch: Annotated[bool, Parameter(negative=(), help="Go on: what is saved in PATH is loaded at once.")] = False,
    common: Common = DEFAULT,
) -> int:
    """Load files and folders. Equal content is skipped; changed content replaces the older version in one step.

    A document's access list comes from its line of `--manifest`, else from the nearest `.strongroom.toml`, else from
    `--acl` (or `--allow` and `--deny`, for all alike), else from `--posix`. Without any, known documents keep theirs
    and nobody reads a new one; with `--acl` or `--manifest`, nobody reads what neither names. Stop with
    Ctrl-C: the next run goes on.

    A file that was renamed or moved within PATH keeps its document, under the access list of its new place. --prune
    refuses to remove more than 20 documents or a fifth of a folder's, whichever is more, or those of more than half of
    a small folder's files, without --prune-limit.

    Parameters
    ----------
    path: Path
        A file or a folder.
    paths: Path
        Further ones.
    """
    from indexing.walk import root_of

    for one in (path, *paths):
        # A misspelt path is told before models are loaded.
        root_of(one)
    sources = Sources(acl, manifest, allow, deny, posix, folder_rules)
    limit = _prune_limit(prune, prune_limit)
    access = sources.read()
    if dry_run:
        if prune:
            note("what --prune would remove is not shown")
        return _preview(tenant, [path, *paths], access, sources.files, common)
    with opened(common) as control:
        loading = Loading(control, tenant, [path, *paths], sources.files, limit)
        try:
            if watch:
                return follow(loading, sources, access, tenant, common)
            tally = one_pass(loading, access, common)
        finally:
            loading.close()
    tally.show(tenant, common)
    return FAILED if tally.failures else DONE


def _prune_limit(prune: bool, limit: int | None) -> PruneLimit | None:
    from indexing.run import PruneLimit

    if limit is not None and not prune:
        raise InvalidInput("there is nothing to limit", item="--prune-limit", remedy="give --prune as well")
    if limit is not None and limit < 0:
        raise InvalidInput("the limit is 0 or more", item="--prune-limit")
    return PruneLimit(limit) if prune else None


def _preview(tenant: str, paths: Sequence[Path], access: Deciding, exclude: Sequence[Path], common: Common) -> int:
    """Show who would read what. The exit code tells whether each file could be decided."""
    from service.access_preview import Preview, preview

    counts: Counter[str] = Counter()

    def pages(found: Iterator[Preview]) -> Iterator[list[dict[str, object]]]:
        while page := list(islice(found, _PAGE)):
            counts.update(one.change for one in page)
            counts["nobody"] += sum(one.change != "failed" and not one.readers for one in page)
            yield [asdict(one) for one in page]

    with opened(common) as control:
        principal = control.authenticator.operator(tenant)

        def work(trail: Trail) -> None:
            found = preview(control.tenants.open(principal), paths, access.decide, exclude)
            columns = ["change", "document", "readers", "who", "allow", "deny", "by", "hold_nobody", "reason"]
            show_pages(common, pages(found), columns)
            trail.note(detail=dict(counts))

        audited(control, principal, "ingest.preview", work)
    for where in access.unused():
        note(f"{where} fits no document")
    if counts["nobody"]:
        note(f"no user of the directory would read {counts['nobody']} of the files")
    return FAILED if counts["failed"] else DONE
