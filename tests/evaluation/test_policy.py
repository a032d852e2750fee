"""What becomes of a tenant after a trial, for each verdict and each kind of change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evaluation.change import Change, check_change
from evaluation.gate import Verdict
from evaluation.policy import Decision, Unsure, decide, kept
from evaluation.trial import Present
from tenancy.contract import ChunkingTerms, Contract, GenerationTerms, RetrievalTerms, check_contract

PRESENT = Present(
    retrieval=RetrievalTerms(top_k=8, mode="hybrid", threshold=0.15),
    chunking=ChunkingTerms(target_chars=900, overlap_chars=120, target_tokens=200, overlap_tokens=26),
    pools=("main",),
    model="packaged",
    template="Answer.",
)


@pytest.mark.parametrize(
    ("verdict", "unsure", "decision"),
    [
        ("worse", "keep", "keep"),
        ("worse", "change", "keep"),
        ("not worse", "keep", "change"),
        ("cannot tell", "keep", "keep"),
        ("cannot tell", "change", "change"),
    ],
)
def test_only_what_is_shown_not_to_get_worse_changes(verdict: Verdict, unsure: Unsure, decision: Decision) -> None:
    assert decide(verdict, unsure) == decision


def change(**parts: Any) -> Change:
    return check_change(parts, Path())


@pytest.mark.parametrize(
    ("parts", "held"),
    [
        ({"retrieval": {"threshold": 0.9}}, {"retrieval": {"threshold": 0.15}}),
        ({"retrieval": {"top_k": 3, "mode": "dense"}}, {"retrieval": {"top_k": 8, "mode": "hybrid"}}),
        ({"chunking": {"target_tokens": 100}}, {"chunking": {"target_tokens": 200}}),
        ({"generation": {"pools": ["large"]}}, {"generation": {"pools": ["main"]}}),
        ({"embedding": {"model": "other"}}, {"model": "packaged"}),
        ({"template": {"system": "Answer briefly."}}, {}),
    ],
)
def test_a_kept_tenant_holds_what_it_has_and_nothing_else(parts: dict[str, Any], held: dict[str, Any]) -> None:
    assert kept(change(**parts), Contract(), PRESENT).stored() == held


def test_a_word_that_the_contract_has_already_stays() -> None:
    own = Contract(generation=GenerationTerms(pools=["own", "spare"]), retrieval=RetrievalTerms(top_k=4), weight=3)
    found = kept(change(generation={"pools": ["large"]}), own, PRESENT)
    assert found == own


def test_a_change_is_over_the_contract_and_leaves_the_rest() -> None:
    own = Contract(retrieval=RetrievalTerms(top_k=4, threshold=0.2), weight=3)
    found = change(retrieval={"threshold": 0.9}).over(own)
    assert (found.retrieval, found.weight) == (RetrievalTerms(top_k=4, threshold=0.9), 3)


def test_what_a_change_says_nothing_of_stays_in_the_contract() -> None:
    own = check_contract(
        {
            "metadata": {"year": "integer"},
            "retrieval": {"rerank": False, "boosts": [{"field": "year", "newer": 0.1}], "threshold": 0.2},
        }
    )
    found = change(retrieval={"top_k": 3}).over(own).retrieval
    assert (found.rerank, found.boosts, found.threshold, found.top_k) == (False, own.retrieval.boosts, 0.2, 3)
    assert change(retrieval={"rerank": False}).over(Contract()).retrieval.rerank is False


def test_what_a_change_is_called_is_no_part_of_it() -> None:
    one, same = change(name="a", retrieval={"top_k": 3}), change(name="b", retrieval={"top_k": 3})
    assert one.digest == same.digest != change(retrieval={"top_k": 4}).digest
    assert (one.parts, one.needs_copy) == (("retrieval",), False)
    assert change(embedding={"model": "m"}).needs_copy
