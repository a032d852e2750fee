"""Sets, runs and scores of one tenant, in its own database: its sets hold questions, its runs none."""

from __future__ import annotations

import secrets
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import Row, delete, insert, select, update

from evaluation.scores import Figures, Scores
from evaluation.sets import Case
from tenancy.errors import Corrupt, InvalidInput, NotFound
from tenancy.names import nfc_name
from tenancy.quality_schema import evaluation_scores, evaluation_sets, evaluations
from tenancy.tenant import ReadView, WriteView

RUNS_KEPT: Final = 200
"""Runs of one tenant; the oldest go."""
SETS_KEPT: Final = 50
DEFAULT: Final = "default"
"""The set that trials of a change use."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a set. `at` is UTC epoch seconds, `change` the digest of what was tried, empty for what serves."""

    id: str
    at: float
    set: str
    change: str
    questions: int
    figures: Figures


def save_set(view: WriteView, name: str, cases: Sequence[Case], now: float) -> None:
    """Put a set in the place of the one of this name. Raises `InvalidInput` where there are too many."""
    name = nfc_name(name, "set")
    view.execute(delete(evaluation_sets).where(evaluation_sets.c.name == name))
    if len(view.execute(select(evaluation_sets.c.name)).all()) >= SETS_KEPT:
        raise InvalidInput(f"a tenant keeps at most {SETS_KEPT} sets", item=name, remedy="save it under a present name")
    values = {"name": name, "saved": now, "cases": msgspec.to_builtins(list(cases))}
    view.execute(insert(evaluation_sets).values(values))


def load_set(view: ReadView, name: str = DEFAULT) -> tuple[Case, ...]:
    """A saved set. Raises `NotFound`, `Corrupt`."""
    found = view.execute(select(evaluation_sets.c.cases).where(evaluation_sets.c.name == name)).scalar_one_or_none()
    if found is None:
        raise NotFound("the tenant has no such set", item=name, remedy="`strongroom eval save` keeps one")
    try:
        return tuple(msgspec.convert(found, list[Case]))
    except msgspec.ValidationError:
        raise Corrupt("a saved set cannot be read by this version", item=name, remedy="save it again") from None


def forget_cases(view: WriteView, asker: str) -> int:
    """Take the questions out of all saved sets that `asker` asks; returns how many. A set that had no others goes."""
    asker, removed = unicodedata.normalize("NFC", asker), 0
    for name in view.execute(select(evaluation_sets.c.name)).scalars().all():
        cases = load_set(view, name)
        left = [case for case in cases if case.asker != asker]
        removed += len(cases) - len(left)
        if not left:
            view.execute(delete(evaluation_sets).where(evaluation_sets.c.name == name))
        elif len(left) < len(cases):
            values = {"cases": msgspec.to_builtins(left)}
            view.execute(update(evaluation_sets).where(evaluation_sets.c.name == name).values(values))
    return removed


def sets(view: ReadView) -> list[dict[str, Any]]:
    """Names of the saved sets, with when they were saved and how many questions they have."""
    rows = view.execute(select(evaluation_sets).order_by(evaluation_sets.c.name))
    return [{"set": row.name, "saved": row.saved, "questions": len(row.cases)} for row in rows]


def save_run(
    view: WriteView, set_name: str, change: str, scores: Mapping[bytes, Scores], figures: Figures, now: float
) -> Run:
    """Keep a run with the scores of its questions, by question."""
    set_name = nfc_name(set_name, "set")
    run = Run(
        id=f"ev_{secrets.token_hex(8)}",
        at=now,
        set=set_name,
        change=change,
        questions=len(scores),
        figures=figures,
    )
    view.execute(
        insert(evaluations).values(
            id=run.id,
            at=now,
            set_name=set_name,
            change=change,
            questions=len(scores),
            figures=msgspec.to_builtins(figures),
        )
    )
    rows = [
        {"evaluation_id": run.id, "question": question, "scores": msgspec.to_builtins(one)}
        for question, one in scores.items()
    ]
    if rows:
        view.execute(insert(evaluation_scores), rows)
    older = select(evaluations.c.id).order_by(evaluations.c.at.desc(), evaluations.c.id).offset(RUNS_KEPT)
    gone = view.execute(older.limit(RUNS_KEPT)).scalars().all()
    if gone:
        view.execute(delete(evaluations).where(evaluations.c.id.in_(gone)))
    return run


def runs(view: ReadView, limit: int = RUNS_KEPT) -> list[Run]:
    """The newest runs first."""
    rows = view.execute(select(evaluations).order_by(evaluations.c.at.desc(), evaluations.c.id).limit(limit))
    return [_run(row) for row in rows]


def find_run(view: ReadView, run_id: str) -> Run:
    """Raises `NotFound`."""
    row = view.execute(select(evaluations).where(evaluations.c.id == run_id)).one_or_none()
    if row is None:
        raise NotFound("the tenant has no such run", item=run_id[:64], remedy="`strongroom eval list` shows them")
    return _run(row)


def scores_of(view: ReadView, run_id: str) -> dict[bytes, Scores]:
    """The scores of a run by question. Raises `Corrupt`."""
    table = evaluation_scores.c
    rows = view.execute(select(table.question, table.scores).where(table.evaluation_id == run_id))
    try:
        return {bytes(row.question): msgspec.convert(row.scores, Scores) for row in rows}
    except msgspec.ValidationError:
        raise _unreadable(run_id) from None


def _run(row: Row[Any]) -> Run:
    try:
        figures = msgspec.convert(row.figures, Figures)
    except msgspec.ValidationError:
        raise _unreadable(row.id) from None
    return Run(id=row.id, at=row.at, set=row.set_name, change=row.change, questions=row.questions, figures=figures)


def _unreadable(run_id: str) -> Corrupt:
    return Corrupt("a kept run cannot be read by this version", item=run_id, remedy="run the set again")
