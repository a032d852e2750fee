"""`strongroom eval`: a tenant's quality on sets of questions, runs compared, starters, drift."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import App, Parameter

from service.cli.console import (
    DEFAULT,
    Common,
    Tenant,
    audited,
    blocking,
    iso,
    note,
    opened,
    print_json,
    show_record,
    show_table,
)
from service.cli.eval_shadow import progress, shadow
from service.problems import DONE, FAILED
from tenancy.errors import AlreadyExists, InvalidInput

if TYPE_CHECKING:
    from audit.trail import Trail
    from evaluation.drift import Report
    from evaluation.gate import Gate
    from evaluation.starter import Started
    from evaluation.store import Run
    from service.evaluating import Evaluated

app = App(name="eval", help="Measure a tenant's quality: run a set of questions, try a change, look for drift.")
app.command(shadow)

SetFile = Annotated[Path, Parameter(help="The set: JSON Lines of question, documents, facts, asker, unanswerable.")]
Asker = Annotated[str | None, Parameter(help="The user who asks what names no asker.")]
RunId = Annotated[str, Parameter(help="A run's id, as `eval list` shows it.")]

_RUN_COLUMNS: Final = ["run", "at", "set", "change", "questions", "quality", "ndcg", "declined_right", "p50_s"]
_DAY_S: Final = 86_400


@app.default
@app.command(name="run")
def run(
    file: SetFile,
    *,
    tenant: Tenant,
    asker: Asker = None,
    k: Annotated[int, Parameter(help="Depth of the ranking, in documents (1 to 20).")] = 10,
    questions: Annotated[bool, Parameter(negative=(), help="Also the scores of each question, by its line.")] = False,
    common: Common = DEFAULT,
) -> int:
    """Ask a set of questions, each as its asker, past the cache, and keep the scores in the tenant's database.

    Each question is asked on the path of the API, under the permissions of its asker, and is in the audit and in the
    usage report, under the feature `evaluation`. Lines that cannot be used are named, and the others are asked.
    """
    import msgspec

    from evaluation.sets import read_set
    from service.evaluating import Terms, evaluate
    from service.settings import load_settings
    from service.wiring import build

    if not 1 <= k <= 20:
        raise InvalidInput("the depth is from 1 to 20", item="--k")
    found = read_set(file)

    async def work() -> Evaluated:
        services = build(load_settings(common.config))
        try:
            with progress() as told:
                return await evaluate(
                    services, tenant, file.stem, found.cases, Terms(asker, k), lambda done, of: told("asked", done, of)
                )
        finally:
            await services.aclose()

    done = blocking(work())
    rows = [{"line": line, **msgspec.to_builtins(one)} for line, one in zip(found.lines, done.scores, strict=True)]
    for bad in found.bad:
        note(f"line {bad.number}: {bad.reason}")
    for row in rows:
        if row.get("failed"):
            note(f"line {row['line']}: it failed with {row['failed']}")
    shown = {"run": done.run.id, **msgspec.to_builtins(done.run.figures)}
    if common.as_json:
        bad_lines = [{"line": bad.number, "reason": bad.reason} for bad in found.bad]
        print_json({**shown, "bad_lines": bad_lines, **({"lines": rows} if questions else {})})
    else:
        if questions:
            columns = [
                "line",
                "quality",
                "ndcg",
                "recall",
                "mrr",
                "cited",
                "placed",
                "facts",
                "declined",
                "seconds",
                "failed",
            ]
            show_table(common, rows, columns)
        show_record(common, shown)
    return FAILED if found.bad or done.run.figures.failed else DONE


@app.command
def save(
    file: SetFile,
    *,
    tenant: Tenant,
    name: Annotated[str, Parameter(help="Under which name; `default` is what `eval shadow` uses.")] = "default",
    common: Common = DEFAULT,
) -> int:
    """Keep a set in the tenant's own database, in the place of the one of this name. Expected documents that are not
    there are named: their questions count as wrong.
    """
    from evaluation.sets import read_set
    from evaluation.store import save_set
    from indexing.documents import find_stored

    found = read_set(file)
    with opened(common) as control:
        principal = control.authenticator.operator(tenant)

        def work(trail: Trail) -> list[int]:
            trail.note(detail={"set": name[:100], "questions": len(found.cases)})
            with control.tenants.open(principal).writing() as view:
                save_set(view, name, found.cases, time.time())
                there = {one: find_stored(view, one) for case in found.cases for one in case.documents}
            numbered = zip(found.lines, found.cases, strict=True)
            return [line for line, case in numbered if any(there[one] is None for one in case.documents)]

        astray = audited(control, principal, "eval.save", work)
    for line in astray:
        note(f"line {line}: it expects a document that is not there")
    for bad in found.bad:
        note(f"line {bad.number}: {bad.reason}")
    show_record(common, {"set": name, "questions": len(found.cases), "bad_lines": len(found.bad)})
    return FAILED if found.bad else DONE


@app.command
def generate(
    file: Annotated[Path, Parameter(help="A new file for the set.")],
    *,
    tenant: Tenant,
    asker: Annotated[str, Parameter(help="A user of the tenant: only what this user may read is used.")],
    count: Annotated[int, Parameter(help="Questions, at most 500; a fifth of them without an answer.")] = 50,
    seed: Annotated[int, Parameter(help="Another number draws other sentences.")] = 1,
    common: Common = DEFAULT,
) -> None:
    """Write a first set from the tenant's own documents, without a model. A starter: read it, and correct it.

    It asks for sentences of documents with a number taken out, and for general knowledge that is in none of them. That
    measures whether documents are found by their own words; what people really ask has to come from people. The file
    holds text of the tenant's documents: it is made for its owner alone.
    """
    from audit.record import Resource
    from evaluation.sets import encoded
    from evaluation.starter import starter

    with opened(common) as control:
        principal = control.authenticator.operator(tenant, asker)

        def work(trail: Trail) -> Started:
            found = starter(principal, control.tenants.open(principal), count, seed)
            read = {one: Resource(document=one[0], version=one[1], chunk=one[2], stage="read") for one in found.read}
            trail.note(resources=read.values(), detail={"questions": len(found.cases)})
            _write_new(file, encoded(found.cases))
            return found

        found = audited(control, principal, "eval.generate", work)
    empty = sum(case.unanswerable for case in found.cases)
    show_record(common, {"file": str(file), "questions": len(found.cases), "unanswerable": empty})
    note("a starter: known sentences, looked for by their own words; read it, and add what people ask")


@app.command(name="list")
def list_runs(*, tenant: Tenant, common: Common = DEFAULT) -> None:
    """The tenant's runs, the newest first; `change` is the digest of what was tried."""
    from evaluation.store import runs

    with opened(common) as control:
        principal = control.authenticator.operator(tenant)

        def work(_: Trail) -> list[Run]:
            with control.tenants.open(principal).reading() as view:
                return runs(view)

        found = audited(control, principal, "eval.list", work)
    show_table(common, [_run_row(one) for one in found], _RUN_COLUMNS)


@app.command
def sets(*, tenant: Tenant, common: Common = DEFAULT) -> None:
    """The sets that the tenant keeps."""
    from evaluation.store import sets as saved_sets

    with opened(common) as control:
        principal = control.authenticator.operator(tenant)

        def work(_: Trail) -> list[dict[str, Any]]:
            with control.tenants.open(principal).reading() as view:
                return [row | {"saved": iso(row["saved"])} for row in saved_sets(view)]

        found = audited(control, principal, "eval.sets", work)
    show_table(common, found, ["set", "questions", "saved"])


@app.command
def show(run_id: RunId, *, tenant: Tenant, common: Common = DEFAULT) -> None:
    """The figures of one run."""
    from evaluation.store import find_run

    with opened(common) as control:
        principal = control.authenticator.operator(tenant)

        def work(_: Trail) -> Run:
            with control.tenants.open(principal).reading() as view:
                return find_run(view, run_id)

        found = audited(control, principal, "eval.show", work)
    show_record(common, _run_row(found))


@app.command
def compare(
    before: RunId,
    after: RunId,
    *,
    tenant: Tenant,
    margin: Annotated[float, Parameter(help="How much of the mean quality may be lost.")] = 0.05,
    common: Common = DEFAULT,
) -> int:
    """Whether the second run is worse than the first, by question; exit code 1 where it is."""
    import msgspec

    from evaluation import gate
    from evaluation.scores import qualities
    from evaluation.store import find_run, scores_of

    with opened(common) as control:
        principal = control.authenticator.operator(tenant)

        def work(_: Trail) -> Gate:
            with control.tenants.open(principal).reading() as view:
                old, new = (scores_of(view, find_run(view, one).id) for one in (before, after))
            return gate.compare(qualities(old), qualities(new), margin)

        found = audited(control, principal, "eval.compare", work)
    show_record(common, msgspec.to_builtins(found))
    return FAILED if found.verdict == "worse" else DONE


@app.command
def drift(
    *,
    tenant: Tenant,
    recent: Annotated[int, Parameter(help="Days that are looked at, today included.")] = 7,
    reference: Annotated[int, Parameter(help="Days before them that they are held against.")] = 28,
    common: Common = DEFAULT,
) -> None:
    """Whether the tenant's questions have changed, and what people did with its answers, from sums without any text.

    Counted are questions that servers searched for, written twenty at a time; docs/operations/evaluation.md says what
    each figure means.
    """
    import msgspec

    from evaluation.drift import report

    with opened(common) as control:
        principal = control.authenticator.operator(tenant)

        def work(_: Trail) -> Report:
            with control.tenants.open(principal).reading() as view:
                return report(view, int(time.time() // _DAY_S), recent, reference)

        found = audited(control, principal, "eval.drift", work)
    if common.as_json:
        print_json(msgspec.to_builtins(found))
        return
    print(f"{found.recent.questions} questions in the last {recent} days, {found.reference.questions} before")
    show_table(
        common, [msgspec.to_builtins(shift) for shift in found.shifts], ["figure", "before", "after", "z", "remarkable"]
    )
    if not found.enough:
        note("too few questions to call anything remarkable")


def _write_new(file: Path, data: bytes) -> None:
    """Raises `AlreadyExists`, `InvalidInput`."""
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise AlreadyExists("the file exists", item=str(file), remedy="name a new one") from None
    except OSError as error:
        raise InvalidInput("the file cannot be written", item=str(file), remedy=str(error.strerror)) from None
    with os.fdopen(descriptor, "wb") as out:
        out.write(data)


def _run_row(one: Run) -> dict[str, Any]:
    import msgspec

    head = {"run": one.id, "at": iso(one.at), "set": one.set, "change": one.change or None}
    return {**head, **msgspec.to_builtins(one.figures)}
