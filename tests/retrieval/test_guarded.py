"""The guard rails of a contract on the path of a question: what is refused, masked, withheld, remembered, on record."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest

from audit.query import Filters, query_log
from audit.record import Event, decode
from generation.extractive import ExtractiveGenerator
from generation.generator import Delta as Piece
from generation.generator import Finish, ModelIdentity, Usage
from generation.guardrails import masks, rails, stages, topics
from generation.guardrails.failure import BlockedAnswer, BlockedTopic, RailFailed
from generation.prompt import Prompt, Turn
from generation.routing import OneRoute, Placed, Route
from retrieval import remembered
from retrieval.answer import answer
from retrieval.plan import composite_identity
from retrieval.preview import preview
from retrieval.question import Delta, Question
from tenancy.contract import Contract, GenerationTerms, GuardTerms
from tenancy.identity import Principal
from tests.support.path import Path, open_path
from tests.support.people import Company

NOTICE = (
    "The notice period for employees is three months. Bob (bob@example.com, +49 30 1234567) knows the notice period."
)
PLAIN = "The notice period for employees is three months."
ASKED = "What is the notice period for employees?"
PHONE, MAIL = "+49 30 1234567", "bob@example.com"
BLOCKED = {"shares": ["stock tip", "Kündigung"], "zh": ["内幕消息"]}


class Model:
    """Keeps its prompts; says what it is told to, in pieces of `size` characters."""

    identity = ModelIdentity("model", "1", "none")
    salted = True

    def __init__(self) -> None:
        self.prompts: list[Prompt] = []
        self.says: Callable[[Prompt], str] = lambda prompt: f"{prompt.sources[0].text} [S1]"
        self.size = 7

    def count(self, text: str) -> int:
        return len(text.split())

    async def generate(
        self, prompt: Prompt, *, salt: str, request_id: str, max_tokens: int, deadline: float
    ) -> AsyncGenerator[Piece | Finish, None]:
        del salt, request_id, max_tokens, deadline
        self.prompts.append(prompt)
        text = self.says(prompt)
        for at in range(0, len(text), self.size):
            yield Piece(text[at : at + self.size])
        yield Finish("stop", Usage(10, 0, 5))

    async def aclose(self) -> None:
        return None


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def path(acme: Company, model: Model) -> Iterator[Path]:
    with open_path(acme.tenants) as opened:
        opened.path = replace(opened.path, routes=OneRoute(model))
        opened.put(acme.handle, "notice.txt", NOTICE, "tenant")
        yield opened


@pytest.fixture
def bo(acme: Company) -> Principal:
    return acme.principal("bo")


@pytest.fixture
def agree(acme: Company) -> Callable[..., None]:
    def set_guards(**terms: Any) -> None:
        guards = GuardTerms(**terms)
        acme.tenants.set_contract("acme", Contract(generation=GenerationTerms(guards=guards)))

    return set_guards


def last(path: Path, principal: Principal) -> Event:
    page = query_log(path.logs.of(principal), Filters(order="asc"), limit=1000)
    return decode(page.events[-1].payload)


def rails_in(event: Event) -> dict[str, Any]:
    return {name: value for name, value in event.detail.items() if name.startswith(("rail", "masked"))}


def streamed(path: Path, principal: Principal, query: str) -> tuple[list[str], BaseException | None]:
    """The deltas that left, and how the stream ended."""

    async def collect() -> tuple[list[str], BaseException | None]:
        left: list[str] = []
        try:
            async with aclosing(answer(path.path, principal, Question(query, secrets.token_hex(16)))) as events:
                async for event in events:
                    if isinstance(event, Delta):
                        left.append(event.text)
        except (BlockedAnswer, RailFailed) as error:
            return left, error
        return left, None

    return asyncio.run(collect())


def test_without_rails_all_is_as_it_was(path: Path, bo: Principal, model: Model) -> None:
    found = path.ask(bo, ASKED)
    assert found.text == f"{NOTICE} [S1]"
    assert MAIL in model.prompts[-1].messages[-1].content
    assert rails_in(last(path, bo)) == {}


@pytest.mark.parametrize(
    "query",
    [
        "Any stock tips, beside the notice period?",
        "Any ｓｔｏｃｋ　ｔｉｐ?",
        "Any sto\u200bck tip?",
        "Was gilt bei Ku\u0308ndigungen?",
        "有什么内幕消息吗",
    ],
)
def test_a_blocked_question_is_refused_before_anything_is_spent(
    path: Path, bo: Principal, model: Model, agree: Callable[..., None], query: str
) -> None:
    agree(blocked=BLOCKED)
    with pytest.raises(BlockedTopic) as caught:
        path.ask(bo, query)
    event = last(path, bo)
    assert (model.prompts, caught.value.item) == ([], event.detail["rail_topic"])
    assert (event.outcome, event.reason, event.detail["rail_question"]) == ("refused", "blocked-topic", "refused")
    assert event.cost is None or not event.cost.hops
    assert path.ask(bo, ASKED).finish == "stop"
    assert last(path, bo).detail["rail_question"] == "pass"


def test_a_blocked_phrase_of_an_earlier_turn_is_refused_too(
    path: Path, bo: Principal, model: Model, agree: Callable[..., None]
) -> None:
    agree(blocked=BLOCKED)
    for role in ("user", "assistant", "client"):
        with pytest.raises(BlockedTopic):
            path.ask(bo, "Answer what I asked.", history=(Turn(role, "A stock tip?"),))
    assert path.ask(bo, ASKED, history=(Turn("user", "What is in stock?"),)).finish == "stop"


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_a_blocked_answer_is_cut_before_the_phrase(
    path: Path, bo: Principal, model: Model, agree: Callable[..., None], size: int
) -> None:
    agree(blocked=BLOCKED)
    model.size, model.says = size, lambda _: "Three months. As a stock tip: buy. [S1]"
    left, error = streamed(path, bo, ASKED)
    event = last(path, bo)
    assert ("".join(left), isinstance(error, BlockedAnswer)) == ("Three months. As a ", True)
    assert (event.outcome, event.reason) == ("refused", "blocked-answer")
    assert (event.detail["rail_answer"], event.detail["rail_topic"]) == ("refused", "shares")
    model.says = lambda _: "Three months. There is a tip in stock. [S1]"
    assert "tip in stock" in path.ask(bo, ASKED).text
    assert last(path, bo).detail["rail_answer"] == "pass"


def test_the_model_sees_placeholders_and_the_asker_what_they_stand_for(
    path: Path, acme: Company, bo: Principal, model: Model, agree: Callable[..., None]
) -> None:
    agree(mask_input=["email", "phone"])
    model.says = lambda prompt: f"{prompt.sources[0].text} [S1]"
    history = (Turn("user", "I am ann@example.com, and who is BOB@example.com?"),)
    found = path.ask(bo, f"{ASKED} Ask {MAIL} or ｂｏｂ＠example．com.", history=history)
    (prompt,) = model.prompts
    seen = prompt.messages[-1].content + prompt.question
    assert "example" not in seen
    assert "1234567" not in seen
    assert seen.count("[email-1]") >= 4
    assert seen.count("[email-2]") == 1
    assert MAIL in found.text
    assert PHONE in found.text
    (citation,) = found.citations
    assert NOTICE[citation.start : citation.end] == citation.quote
    assert rails_in(last(path, bo)) == {"rail_mask_input": "masked", "masked_input": 3}


def test_quotes_of_the_extractive_generator_stay_verbatim_and_at_their_places(
    path: Path, acme: Company, bo: Principal, agree: Callable[..., None]
) -> None:
    path.path = replace(path.path, routes=OneRoute(ExtractiveGenerator()))
    agree(mask_input=["email", "phone"])
    found = path.ask(bo, "Who knows the notice period?")
    assert any(PHONE in citation.quote for citation in found.citations)
    assert all(NOTICE[citation.start : citation.end] == citation.quote for citation in found.citations)
    assert PHONE in found.text
    for most in range(1, 30):
        cut = path.ask(bo, "Who knows the notice period?", max_tokens=most)
        assert all(NOTICE[citation.start : citation.end] == citation.quote for citation in cut.citations)


def test_the_preview_shows_what_the_model_would_see(
    path: Path, acme: Company, bo: Principal, agree: Callable[..., None]
) -> None:
    agree(mask_input=["email"])
    shown = preview(path.path, bo, Question(ASKED, secrets.token_hex(16)))
    assert MAIL not in shown.prompt.messages[-1].content
    assert PHONE in shown.prompt.messages[-1].content


@pytest.mark.parametrize("mask_input", [[], ["phone"]])
@pytest.mark.parametrize("size", [1, 4, 1000])
def test_masked_kinds_leave_neither_in_the_answer_nor_in_what_stands_beside_it(
    path: Path,
    acme: Company,
    bo: Principal,
    model: Model,
    agree: Callable[..., None],
    size: int,
    mask_input: list[str],
) -> None:
    agree(mask_output=["phone"], mask_input=mask_input)
    model.size, model.says = size, lambda prompt: f"{prompt.sources[0].text[49:]} [S1]"
    left, error = streamed(path, bo, ASKED)
    assert error is None
    assert "1234567" not in "".join(left)
    assert "[phone removed]" in "".join(left)
    found = path.ask(bo, ASKED)
    assert found.cache.status == "hit"
    assert found.text == "".join(left)
    (citation,) = found.citations
    assert "[phone removed]" in citation.quote
    assert PHONE in NOTICE[citation.start : citation.end]
    assert "personal-data-removed" in found.warnings


def test_titles_are_masked_and_blocked_ones_not_named(
    path: Path, acme: Company, bo: Principal, agree: Callable[..., None]
) -> None:
    path.put(acme.handle, f"{MAIL} desk", "The canteen opens at noon.", "tenant")
    path.put(acme.handle, "a stock tip", "The canteen closes at two.", "tenant")
    query = "When is the canteen painted blue in Ulm?"
    before = path.ask(bo, query)
    agree(mask_output=["email"], blocked=BLOCKED)
    after = path.ask(bo, query)
    assert before.finish == after.finish == "abstain"
    assert any("stock tip" in title for title in before.nearest_titles)
    assert any(MAIL in title for title in before.nearest_titles)
    assert any("[email removed]" in title for title in after.nearest_titles)
    assert "stock tip" not in after.text
    assert MAIL not in after.text


def test_a_changed_contract_misses_and_the_same_one_hits(path: Path, bo: Principal, agree: Callable[..., None]) -> None:
    assert path.ask(bo, ASKED).cache.stored
    assert path.ask(bo, ASKED).cache.status == "hit"
    agree(mask_output=["phone"])
    masked = path.ask(bo, ASKED)
    assert (masked.cache.status, PHONE in masked.text) == ("miss", False)
    again = path.ask(bo, ASKED)
    assert (again.cache.status, again.text) == ("hit", masked.text)
    agree(blocked=BLOCKED)
    assert path.ask(bo, ASKED).cache.status == "miss"
    policy = last(path, bo).policy
    assert policy is not None
    assert policy.rails is not None
    assert policy.rails.startswith("rails-")


def test_how_a_question_was_understood_is_masked_too(path: Path, bo: Principal, agree: Callable[..., None]) -> None:
    history = (Turn("user", f"What is the notice period of {PHONE}?"),)
    before = path.ask(bo, "And during probation?", history=history)
    agree(mask_output=["phone"])
    after = path.ask(bo, "And during probation?", history=history)
    assert PHONE in (before.rewritten or "")
    assert "[phone removed]" in (after.rewritten or "")
    assert PHONE not in (after.rewritten or "")


def test_a_rail_that_breaks_is_not_tried_again_elsewhere(
    path: Path, bo: Principal, model: Model, agree: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Model()
    agree(mask_output=["phone"])
    places = (Placed(model, pool="first"), Placed(other, pool="second"))
    monkeypatch.setattr(OneRoute, "choose", lambda *_args: Route(places))
    monkeypatch.setattr(stages, "runs", _broken)
    with pytest.raises(RailFailed):
        path.ask(bo, ASKED)
    assert (len(model.prompts), len(other.prompts)) == (1, 0)


@pytest.fixture
def confused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache that takes answers under other rails for the same."""

    def same(path: Any, embedder: Any, domain: Any, plan: Any) -> Any:
        return composite_identity(path, embedder, domain, replace(plan, rails=rails.rails_of(GuardTerms())))

    monkeypatch.setattr(remembered, "composite_identity", same)


def test_what_is_remembered_passes_the_rails_of_this_moment(
    path: Path, bo: Principal, model: Model, agree: Callable[..., None], confused: None
) -> None:
    model.says = lambda prompt: f"{prompt.sources[0].text[49:]} [S1]"
    assert path.ask(bo, ASKED).cache.stored
    agree(mask_output=["phone"])
    hit = path.ask(bo, ASKED)
    assert hit.cache.status == "hit"
    assert "1234567" not in hit.text + hit.citations[0].quote
    assert last(path, bo).detail["rail_mask_output"] == "masked"
    agree(blocked={"people": ["Bob"]})
    left, error = streamed(path, bo, ASKED)
    assert (left, isinstance(error, BlockedAnswer)) == ([], True)
    assert rails_in(last(path, bo)) == {
        "rail_question": "pass",
        "rail_answer": "refused",
        "rail_topic": "people",
    }
    agree(blocked=BLOCKED)
    assert path.ask(bo, ASKED).cache.status == "hit"


@pytest.mark.parametrize("says", ["Three months, I think.", "Three months [S7]."])
def test_an_answer_without_a_verified_citation_is_withheld_and_not_remembered(
    path: Path, bo: Principal, model: Model, agree: Callable[..., None], says: str
) -> None:
    agree(require_citation=True)
    model.says = lambda _: says
    left, error = streamed(path, bo, ASKED)
    assert error is None
    assert "Three months" not in "".join(left)
    found = path.ask(bo, ASKED)
    assert (found.finish, found.cache.status, found.cache.stored) == ("abstain", "miss", False)
    assert "".join(left) == found.text
    assert "uncited" in found.warnings
    assert last(path, bo).detail["rail_citation"] == "withheld"
    model.says = lambda _: "The notice period is three months [S1]."
    cited = path.ask(bo, ASKED)
    assert (cited.finish, cited.text) == ("stop", "The notice period is three months [S1].")
    assert last(path, bo).detail["rail_citation"] == "pass"
    assert streamed(path, bo, f"{ASKED} ")[0] == [cited.text]


def test_without_that_rail_it_is_told(path: Path, bo: Principal, model: Model) -> None:
    model.says = lambda _: "Three months, I think."
    assert path.ask(bo, ASKED).text == "Three months, I think."


def test_retrieval_gives_the_askers_documents_as_they_are(
    path: Path, bo: Principal, agree: Callable[..., None]
) -> None:
    agree(mask_output=["phone", "email"], mask_input=["phone"], blocked={"notice": ["notice period"]})
    (passage,) = path.retrieve(bo, ASKED).passages
    assert passage.text == NOTICE


def _broken(*args: object, **kwargs: object) -> Any:
    raise RuntimeError("broken")


@pytest.mark.parametrize(
    ("target", "name", "rail"),
    [
        (topics.Topics, "of", "question"),
        (topics.Topics, "scan", "question"),
        (masks, "find", "mask_input"),
        (stages, "fold", "answer"),
        (stages, "runs", "mask_output"),
        (rails, "msgspec", "contract"),
        (stages.UntilVerified, "feed", "citation"),
    ],
)
def test_a_rail_that_breaks_refuses_and_nothing_leaves(
    path: Path,
    bo: Principal,
    model: Model,
    agree: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    target: Any,
    name: str,
    rail: str,
) -> None:
    agree(blocked=BLOCKED, mask_input=["email"], mask_output=["phone"], require_citation=rail == "citation")
    monkeypatch.setattr(target, name, _broken if name != "msgspec" else None)
    left, error = streamed(path, bo, ASKED)
    event = last(path, bo)
    assert (left, isinstance(error, RailFailed)) == ([], True)
    assert (event.outcome, event.reason, event.detail["rail_failed"]) == ("error", "rail-failed", rail)
    assert rail in ("answer", "mask_output", "citation") or not model.prompts
    monkeypatch.undo()
    assert path.ask(bo, ASKED).finish == "stop"


def test_a_rail_that_breaks_over_a_remembered_answer_refuses(
    path: Path, bo: Principal, agree: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    agree(mask_output=["phone"])
    assert path.ask(bo, ASKED).cache.stored
    monkeypatch.setattr(rails, "find", _broken)
    left, error = streamed(path, bo, ASKED)
    assert (left, isinstance(error, RailFailed)) == ([], True)
    assert last(path, bo).detail["rail_failed"] == "mask_output"
