"""One reader class a prompt: what a class is, which one is chosen, what is on record, and who may switch it off."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from dataclasses import replace
from typing import Any

import pytest

from audit.query import Filters, query_log
from audit.record import Event, decode
from generation.generator import Delta as Piece
from generation.generator import Finish, ModelIdentity, Usage
from generation.prompt import Prompt, Turn
from generation.routing import OneRoute
from retrieval.mixing import by_class, reader_classes
from retrieval.question import PathSettings
from tenancy.contract import Contract, GenerationTerms
from tenancy.errors import InvalidInput
from tenancy.identity import Principal
from tests.retrieval.passages import passage
from tests.support.path import Path, open_path
from tests.support.people import Company
from tests.support.spent import spent

NOTICE = "The notice period for employees is three months to the end of a quarter."
PUBLIC = "Notice board. Employees meet at the notice board for a short period."
ASKED = "What is the notice period for employees?"


class Model:
    """Keeps its prompts; says what every source says, and cites each."""

    identity = ModelIdentity("model", "1", "none")
    salted = True

    def __init__(self) -> None:
        self.prompts: list[Prompt] = []

    def count(self, text: str) -> int:
        return len(text.split())

    async def generate(
        self, prompt: Prompt, *, salt: str, request_id: str, max_tokens: int, deadline: float
    ) -> AsyncGenerator[Piece | Finish, None]:
        del salt, request_id, max_tokens, deadline
        self.prompts.append(prompt)
        for source in prompt.sources:
            yield Piece(f"{source.text} [{source.key}] ")
        yield Finish("stop", Usage(10, 0, 5))

    async def aclose(self) -> None:
        return None

    @property
    def last(self) -> set[str]:
        return {source.document for source in self.prompts[-1].sources}


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def path(acme: Company, model: Model) -> Iterator[Path]:
    acme.member("hr", "ana")
    with open_path(acme.tenants, generator=model) as opened:
        opened.put(acme.handle, "notice.txt", NOTICE, "group:hr")
        opened.put(acme.handle, "board.txt", PUBLIC, "tenant")
        yield opened


@pytest.fixture
def ana(acme: Company) -> Principal:
    return acme.principal("ana")


def detail(path: Path, principal: Principal) -> dict[str, Any]:
    page = query_log(path.logs.of(principal), Filters(order="asc"), limit=1000)
    events: list[Event] = [decode(stored.payload) for stored in page.events]
    return next(event for event in reversed(events) if event.phase == "outcome").detail


def agree(acme: Company, **terms: Any) -> None:
    acme.tenants.set_contract("acme", Contract(generation=GenerationTerms(**terms)))


@pytest.mark.both_storages
def test_a_class_is_the_labels_of_an_access_list_with_their_effect(acme: Company) -> None:
    lists: dict[str, dict[str, list[str]]] = {
        "a": {"allow": ["tenant"]}, "b": {"allow": ["tenant"]}, "c": {"allow": ["group:hr"]},
        "d": {"allow": ["user:ana"]}, "e": {"allow": ["tenant"], "deny": ["user:bo"]}, "f": {"allow": ["user:bo"]},
        "g": {}, "h": {"deny": ["tenant"]}, "i": {"allow": ["group:hr", "user:ana"]},
        "j": {"allow": ["user:ana", "group:hr"]},
    }  # fmt: skip
    ids = {
        name: acme.document(name, allow=access.get("allow", ()), deny=access.get("deny", ()))
        for name, access in lists.items()
    }
    with acme.handle.reading() as view:
        classes = reader_classes(view, {*ids.values(), 99_999})
    assert classes[ids["a"]] == classes[ids["b"]]
    assert classes[ids["i"]] == classes[ids["j"]]
    assert classes[ids["g"]] == classes[99_999] == frozenset()
    assert len(set(classes.values())) == 8


def test_a_group_and_its_only_member_are_two_classes(acme: Company) -> None:
    """Who else is in the group may be known to an identity provider alone, and changes without the document."""
    acme.member("hr", "ana")
    ids = [acme.document("a", allow=["group:hr"]), acme.document("b", allow=["user:ana"])]
    with acme.handle.reading() as view:
        assert len(set(reader_classes(view, ids).values())) == 2


def test_groups_keep_the_order_of_relevance() -> None:
    public, secret = frozenset({(1, "allow")}), frozenset({(2, "allow")})
    passages = [passage(f"text {at}", document=f"d{at}", document_id=at) for at in range(4)]
    groups = by_class(passages, {0: public, 1: secret, 2: public, 3: secret})
    assert [[one.document_id for one in group] for group in groups] == [[0, 2], [1, 3]]
    assert by_class([], {}) == []


def test_passages_with_other_readers_are_left_out_and_that_is_on_record(
    path: Path, model: Model, ana: Principal
) -> None:
    answer = path.ask(ana, ASKED)
    assert model.last == {"notice.txt"}
    assert "three months" in answer.text
    assert answer.warnings == ("sources-separated",)
    assert detail(path, ana)["left_out"] == 1
    again = path.ask(ana, ASKED)
    assert (again.cache.status, again.warnings) == ("hit", ("sources-separated",)), "also where it is remembered"


def test_one_class_is_not_separated_from_itself(path: Path, model: Model, acme: Company, ana: Principal) -> None:
    acme.access("board.txt", allow=["group:hr"])
    answer = path.ask(ana, ASKED)
    assert model.last == {"notice.txt", "board.txt"}
    assert answer.warnings == ()
    assert "left_out" not in detail(path, ana)


def test_a_class_that_cannot_answer_gives_way_to_one_that_can(path: Path, model: Model, ana: Principal) -> None:
    """The best passage's class comes first, unless it holds too little of the question to answer it alone."""
    handle = path.path.tenants.open(ana)
    path.put(handle, "dates.txt", "Quarter quarter quarter quarter end end end end.", "user:ana")
    found = path.retrieve(ana, "quarter end employees notice period", top_k=5).passages
    assert {one.document for one in found} >= {"dates.txt", "notice.txt"}
    path.ask(ana, "quarter end employees notice period")
    assert model.last == {"notice.txt"}


def test_a_contract_goes_before_the_deployment_in_both_directions(
    path: Path, model: Model, acme: Company, ana: Principal
) -> None:
    agree(acme, mixing="allow")
    answer = path.ask(ana, ASKED)
    assert model.last == {"notice.txt", "board.txt"}
    assert answer.warnings == ()
    agree(acme, mixing="separate")
    assert path.ask(ana, ASKED).cache.status == "miss", "another policy's answer is never served"
    assert model.last == {"notice.txt"}


def test_the_deployment_decides_where_the_contract_says_nothing(acme: Company, model: Model, ana: Principal) -> None:
    acme.member("hr", "ana")
    with open_path(acme.tenants, generator=model, settings=PathSettings(mixing="allow")) as path:
        path.put(acme.handle, "notice.txt", NOTICE, "group:hr")
        path.put(acme.handle, "board.txt", PUBLIC, "tenant")
        path.ask(ana, ASKED)
        assert model.last == {"notice.txt", "board.txt"}


def test_an_access_list_that_changes_is_another_class_from_the_next_question_on(
    path: Path, model: Model, acme: Company, ana: Principal
) -> None:
    acme.access("board.txt", allow=["group:hr"])
    path.ask(ana, ASKED, cache="bypass")
    assert model.last == {"notice.txt", "board.txt"}
    acme.access("board.txt", allow=["group:hr", "user:bo"])
    path.ask(ana, ASKED, cache="bypass")
    assert model.last == {"notice.txt"}


def short(path: Path, model: Model, length: int) -> None:
    path.path = replace(path.path, routes=OneRoute(model, length))


def test_a_conversation_that_is_too_long_loses_its_oldest_turns_on_record(
    path: Path, model: Model, ana: Principal
) -> None:
    history = tuple(Turn("user" if at % 2 == 0 else "assistant", f"turn{at} " + "leave " * 100) for at in range(8))
    short(path, model, 900)
    answer = path.ask(ana, ASKED, history=history, max_tokens=100)
    text = model.prompts[-1].messages[-1].content
    assert "turn7" in text
    assert "turn0" not in text
    assert model.last == {"notice.txt"}
    assert "history-cut" in answer.warnings
    cut = detail(path, ana)["history_cut"]
    assert isinstance(cut, int)
    assert [f"turn{at}" in text for at in range(8)] == [at >= cut for at in range(8)]
    # The digest covers what was sent: another oldest turn is another conversation, although it is not in the prompt.
    assert path.ask(ana, ASKED, history=history, max_tokens=100).cache.status == "hit"
    changed = (Turn("user", "something else"), *history[1:])
    assert path.ask(ana, ASKED, history=changed, max_tokens=100).cache.status == "miss"
    assert model.prompts[-1].messages == model.prompts[0].messages


def test_the_whole_prompt_and_the_answer_fit_the_model(path: Path, model: Model, acme: Company, ana: Principal) -> None:
    for at in range(8):
        path.put(acme.handle, f"more{at}.txt", f"{NOTICE} {at} " + "period notice " * 80, "group:hr")
    most = []
    for length in (500, 900, 3_000):
        short(path, model, length)
        path.ask(ana, ASKED, cache="bypass", max_tokens=100)
        counted = sum(model.count(message.content) for message in model.prompts[-1].messages)
        assert counted + 100 <= length
        most.append(len(model.last))
    assert most == sorted(most)
    assert most[0] < most[-1]
    short(path, model, 200)
    with pytest.raises(InvalidInput, match="no room"):
        path.ask(ana, ASKED, cache="bypass", max_tokens=100)
    assert spent(path.path.admission, acme.handle.tenant_id).concurrent == 0


def test_other_classes_among_the_best_do_not_shorten_the_prompt(
    path: Path, model: Model, acme: Company, ana: Principal
) -> None:
    """Where passages are left out, the class's own that were found behind them take their place, up to `top_k`."""
    for at in range(8):
        path.put(acme.handle, f"board{at}.txt", f"{PUBLIC} Board {at}.", "tenant")
        path.put(acme.handle, f"notice{at}.txt", f"{NOTICE} Rule {at}.", "group:hr")
    path.ask(ana, ASKED, top_k=6)
    assert len(model.last) == 6
    assert {name.rstrip("0123456789.tx") for name in model.last} == {"notice"}
    assert len(path.retrieve(ana, ASKED, top_k=6).passages) == 6
    agree(acme, mixing="allow")
    assert path.ask(ana, ASKED, top_k=6).warnings == ()
    assert len(model.last) == 6
