"""What one question of a set came to, and the figures of a whole run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from evaluation.measures import facts_held, first_places, ndcg, precision, recall, reciprocal_rank
from evaluation.sets import Case
from retrieval.question import Answer

DECIMALS: Final = 6


class Scores(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Scores of one question, in [0, 1]; None where the case says nothing about it. No text.

    `quality` is what the gate compares: of an unanswerable question whether it was declined; of another 0 where it was
    declined or failed, else the mean of nDCG, citation precision and facts, those that apply. `cited` is the share of
    citations that are of an expected document (0 for an answer without any), `placed` of those that are at an expected
    place of one as well. `seconds` is the answer's time,
    `microunits` its cost. `failed` is the code of an error.
    """

    unanswerable: bool
    declined: bool
    quality: float
    ndcg: float | None = None
    recall: float | None = None
    mrr: float | None = None
    cited: float | None = None
    placed: float | None = None
    facts: float | None = None
    seconds: float | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    microunits: int = 0
    failed: str | None = None


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """A run in numbers. Means are over the questions to which the measure applies; None over none.

    `declined_right` is the share of unanswerable questions that were declined, `declined_wrong` of the answerable ones.
    Of fewer than 100 answers `p99_s` is the slowest.
    """

    k: int
    questions: int
    answerable: int
    unanswerable: int
    failed: int
    quality: float | None
    ndcg: float | None
    recall: float | None
    mrr: float | None
    citation_precision: float | None
    place_precision: float | None
    facts: float | None
    declined_right: float | None
    declined_wrong: float | None
    p50_s: float | None
    p99_s: float | None
    input_tokens: int
    output_tokens: int
    microunits: int


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer took: seconds, tokens, microunits."""

    seconds: float
    input_tokens: int = 0
    output_tokens: int = 0
    microunits: int = 0


def scored(case: Case, ranked: Sequence[str], answer: Answer, spent: Spent, k: int) -> Scores:
    """The scores of an answer. `ranked` are names of the documents of the passages that were found, best first."""
    declined = answer.finish == "abstain"
    used = msgspec.structs.asdict(spent)
    if case.unanswerable:
        return Scores(unanswerable=True, declined=declined, quality=float(declined), **used)
    places, expected = first_places(ranked), set(case.documents)
    found = {
        "ndcg": ndcg(places, expected, k) if expected else None,
        "recall": recall(places, expected, k) if expected else None,
        "mrr": reciprocal_rank(places, expected) if expected else None,
        "cited": precision([one.document for one in answer.citations], expected) if expected and not declined else None,
        "placed": _placed(case, answer) if case.places and not declined else None,
        "facts": facts_held(answer.text, case.facts) if case.facts and not declined else None,
    }
    parts = [found[name] for name in ("ndcg", "cited", "facts") if found[name] is not None]
    quality = 0.0 if declined else float(np.mean(np.array(parts, dtype=np.float64)))
    rounded: dict[str, Any] = {name: None if value is None else round(value, DECIMALS) for name, value in found.items()}
    return Scores(unanswerable=False, declined=declined, quality=round(quality, DECIMALS), **rounded, **used)


def _placed(case: Case, answer: Answer) -> float:
    right = [one.document if one.place in case.places else "" for one in answer.citations]
    return precision(right, set(case.documents))


def unanswered(case: Case, code: str) -> Scores:
    """The scores of a question that ended in an error, which no measure takes for an answer or a refusal."""
    return Scores(unanswerable=case.unanswerable, declined=False, quality=0.0, failed=code)


def qualities(scores: Mapping[bytes, Scores]) -> dict[bytes, float]:
    """What the gate compares, by question."""
    return {key: one.quality for key, one in scores.items()}


def figures(scores: Sequence[Scores], k: int) -> Figures:
    """The figures of a run."""
    done = [one for one in scores if one.failed is None]
    seconds = [one.seconds for one in done if one.seconds is not None]
    empty, full = [one for one in done if one.unanswerable], [one for one in done if not one.unanswerable]
    return Figures(
        k=k,
        questions=len(scores),
        answerable=sum(not one.unanswerable for one in scores),
        unanswerable=sum(one.unanswerable for one in scores),
        failed=len(scores) - len(done),
        quality=_mean(one.quality for one in scores),
        ndcg=_mean(one.ndcg for one in done),
        recall=_mean(one.recall for one in done),
        mrr=_mean(one.mrr for one in done),
        citation_precision=_mean(one.cited for one in done),
        place_precision=_mean(one.placed for one in done),
        facts=_mean(one.facts for one in done),
        declined_right=_mean(float(one.declined) for one in empty),
        declined_wrong=_mean(float(one.declined) for one in full),
        p50_s=_quantile(seconds, 0.5),
        p99_s=_quantile(seconds, 0.99),
        input_tokens=sum(one.input_tokens for one in done),
        output_tokens=sum(one.output_tokens for one in done),
        microunits=sum(one.microunits for one in done),
    )


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(sum(known) / len(known), DECIMALS) if known else None


def _quantile(values: Sequence[float], share: float) -> float | None:
    return round(float(np.quantile(values, share, method="higher")), DECIMALS) if values else None
