"""Abstention: strong evidence is used, weak evidence is admitted, and only given titles are named."""

from __future__ import annotations

import pytest

from retrieval.abstain import THRESHOLD, not_found, weigh
from tests.retrieval.passages import passage

MODEL = "all-MiniLM-L6-v2"
LEAVE = passage("Employees have 27 days of annual leave. Managers approve each request.", title="Leave policy")
TRAVEL = passage("Flights are booked by the travel office.", document="t.md", document_id=2, title="Travel policy")
ZH = passage("员工每年享有15天年假。病假须提供证明。", document="zh.md", document_id=3, title="年假政策")
ASKED = "How many days of annual leave do employees have?"


@pytest.mark.parametrize(
    ("question", "similarity", "model"),
    [(ASKED, None, None), (ASKED, 0.7, MODEL), (ASKED, 0.7, f"org/{MODEL}"), ("员工每年有多少天年假？", None, MODEL)],
)
def test_an_answerable_question_has_evidence(question: str, similarity: float | None, model: str | None) -> None:
    evidence = weigh(question, [LEAVE, TRAVEL, ZH], similarity=similarity, model=model)
    assert evidence.sufficient
    assert evidence.strength >= THRESHOLD
    assert evidence.cover > 0.5


@pytest.mark.parametrize(
    ("question", "similarity", "model"),
    [
        ("What is the capital of Mongolia?", None, None),
        ("What is the capital of Mongolia?", 0.1, MODEL),
        ("木星有多少颗卫星？", None, MODEL),
    ],
)
def test_an_unanswerable_question_has_none(question: str, similarity: float | None, model: str | None) -> None:
    evidence = weigh(question, [LEAVE, TRAVEL, ZH], similarity=similarity, model=model)
    assert not evidence.sufficient
    assert evidence.nearest == ("Leave policy", "Travel policy", "年假政策")


def test_similarity_counts_only_for_the_model_that_it_was_fitted_for() -> None:
    alone = weigh(ASKED, [LEAVE])
    assert weigh(ASKED, [LEAVE], similarity=0.0, model="hashing:384").strength == alone.strength
    assert weigh(ASKED, [LEAVE], similarity=0.0, model=MODEL).strength < alone.strength
    near, far = (weigh("time off", [LEAVE], similarity=cosine, model=MODEL) for cosine in (0.9, 0.1))
    assert near.sufficient
    assert not far.sufficient


def test_no_passage_is_no_evidence() -> None:
    evidence = weigh(ASKED, [], similarity=0.9, model=MODEL)
    assert (evidence.strength, evidence.sufficient, evidence.nearest) == (0.0, False, ())


def test_the_threshold_decides() -> None:
    strength = weigh(ASKED, [LEAVE]).strength
    assert weigh(ASKED, [LEAVE], threshold=strength).sufficient
    assert not weigh(ASKED, [LEAVE], threshold=strength + 1e-9).sufficient


def test_the_refusal_names_the_nearest_titles_once_each() -> None:
    again = passage("More.", ordinal=1, start=100, title="Leave policy")
    evidence = weigh("What is the capital of Mongolia?", [LEAVE, again, TRAVEL])
    assert not_found("What?", evidence) == (
        "This is not in the documents that you may read. The nearest are: Leave policy; Travel policy."
    )
    assert not_found("什么？", evidence).endswith("Leave policy；Travel policy。")
    assert not_found("What?", weigh("What?", [])) == "This is not in the documents that you may read."
