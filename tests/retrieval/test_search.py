"""Search under a scope: what comes back is readable at the moment at which it is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from indexing.chunk import chunk_key
from indexing.collections.open import OpenCollections
from indexing.documents import delete_document
from indexing.embed import Embedder, EmbeddingSettings, load_embedder
from indexing.ingest import Pipeline, Source, put_document
from retrieval import search as module
from retrieval.search import ATTEMPTS, Passages, Scope, SearchMode, open_scope, search
from tenancy.acl import AccessList
from tenancy.errors import Forbidden, InvalidInput, StaleDomain
from tenancy.identity import Principal
from tests.support.people import NOW, Company

EMBEDDER: Embedder = load_embedder(EmbeddingSettings(model="hashing:256"))
MODEL = EMBEDDER.fingerprint
PIPELINE = Pipeline(EMBEDDER, clock=lambda: NOW)
QUESTION = "how many days of annual leave"


class Library:
    def __init__(self, company: Company) -> None:
        self.company = company
        self.collections = OpenCollections(EMBEDDER.fingerprint, 2**30)

    def put(self, name: str, text: str, *allow: str, deny: Sequence[str] = ()) -> None:
        access = AccessList.of(allow, deny)
        put_document(self.company.handle, PIPELINE, Source(name, text.encode(), access))

    def scope(self, principal: Principal) -> Scope:
        return open_scope(principal, self.company.handle, self.collections)

    def search(
        self,
        principal: Principal,
        query: str = QUESTION,
        top_k: int = 5,
        mode: SearchMode = "hybrid",
        scope: Scope | None = None,
    ) -> Passages:
        vector = EMBEDDER.encode_query(query)
        scope = scope or self.scope(principal)
        return search(self.company.handle, principal, scope, query, vector, top_k, mode, model=MODEL, covers=1.0)


@pytest.fixture
def library(acme: Company) -> Library:
    return Library(acme)


def found(passages: Passages) -> list[str]:
    return [passage.document for passage in passages.items]


@pytest.mark.parametrize("mode", ["dense", "lexical", "hybrid"])
def test_everybody_finds_what_they_may_read_and_nothing_else(library: Library, mode: SearchMode) -> None:
    ana, bo = library.company.principal("ana"), library.company.principal("bo")
    library.put("leave.txt", "Annual leave is twenty days.", "tenant")
    library.put("board.txt", "Annual leave of the board is forty days.", "user:ana")
    library.put("nobody.txt", "Annual leave days: how many of them nobody may know.")
    library.put("not-bo.txt", "How many days of annual leave bo has.", "tenant", deny=["user:bo"])
    assert sorted(found(library.search(ana, mode=mode))) == ["board.txt", "leave.txt", "not-bo.txt"]
    assert found(library.search(bo, mode=mode)) == ["leave.txt"]
    assert found(library.search(library.company.principal("cy"), mode=mode, top_k=1)) == ["not-bo.txt"]


def test_a_passage_carries_where_it_stands(library: Library) -> None:
    ana = library.company.principal("ana")
    text = "Unrelated words at first. " * 60 + "Annual leave is twenty days."
    library.put("hr/leave.txt", text, "tenant")
    [best, *_] = library.search(ana, "annual leave twenty").items
    assert text[best.start : best.end] == best.text
    assert best.text.endswith("Annual leave is twenty days.")
    assert (best.document, best.title, best.chunk) == ("hr/leave.txt", "leave.txt", chunk_key(best.text))
    assert best.version.startswith("sha256:")


def test_scope_and_domain_are_of_one_state(library: Library) -> None:
    ana = library.company.principal("ana")
    library.put("a.txt", "annual leave", "tenant")
    scope = library.scope(ana)
    assert scope.domain.epochs == scope.snapshot.epochs
    assert library.search(ana, scope=scope).domain is scope.domain


def test_similarity_is_that_of_the_passages_alone(library: Library) -> None:
    ana = library.company.principal("ana")
    library.put("secret.txt", QUESTION, "user:bo")
    library.put("a.txt", "annual leave", "tenant")
    passages = library.search(ana)
    expected = float(EMBEDDER.encode(["annual leave"])[0] @ EMBEDDER.encode_query(QUESTION))
    assert passages.similarity == pytest.approx(expected)
    assert library.search(ana, mode="lexical").similarity is None
    assert library.search(library.company.principal("nobody"), "x").withheld == 0


def test_without_labels_or_documents_nothing_is_asked(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    ana = library.company.principal("ana")
    assert library.search(ana).items == ()
    library.put("a.txt", "annual leave", "user:bo")

    def refuse(*_: Any) -> Any:
        raise AssertionError("a back end was called")

    monkeypatch.setattr("indexing.snapshot.Snapshot.dense", refuse)
    monkeypatch.setattr("indexing.snapshot.Snapshot.lexical", refuse)
    assert library.search(ana).items == ()
    with pytest.raises(AssertionError):
        library.search(library.company.principal("bo"))


def between(monkeypatch: pytest.MonkeyPatch, act: Callable[[int], None]) -> list[int]:
    """Run `act(attempt)` between the ranking and the reading of the rows."""
    attempts: list[int] = []
    hydrate: Callable[..., Any] = module._hydrate

    def acting(*arguments: Any) -> Any:
        attempts.append(len(attempts) + 1)
        act(attempts[-1])
        return hydrate(*arguments)

    monkeypatch.setattr(module, "_hydrate", acting)
    return attempts


def test_a_revocation_between_search_and_reading_holds(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    ana = library.company.principal("ana")
    library.company.member("legal", "ana")
    library.put("a.txt", "annual leave of all", "tenant")
    library.put("b.txt", "annual leave of legal", "group:legal")
    scope = library.scope(ana)
    assert sorted(found(library.search(ana, scope=scope))) == ["a.txt", "b.txt"]
    attempts = between(monkeypatch, lambda attempt: library.company.leave("legal", "ana"))
    passages = library.search(ana, scope=scope)
    assert found(passages) == ["a.txt"]
    assert attempts == [1, 2]
    assert passages.withheld == 0
    assert passages.domain is not scope.domain
    assert passages.domain.epochs == library.scope(ana).domain.epochs


def test_a_replaced_document_is_found_in_its_new_version(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    ana = library.company.principal("ana")
    library.put("a.txt", "annual leave is twenty days", "tenant")
    attempts = between(
        monkeypatch,
        lambda attempt: library.put("a.txt", "annual leave is thirty days", "tenant") if attempt == 1 else None,
    )
    [passage] = library.search(ana).items
    assert passage.text == "annual leave is thirty days"
    assert attempts == [1, 2]


def test_after_the_last_attempt_changed_rows_are_withheld(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    ana = library.company.principal("ana")
    library.put("a.txt", "annual leave of all", "tenant")
    for number in range(ATTEMPTS):
        library.put(f"gone{number}.txt", "annual leave", "tenant")
    attempts = between(
        monkeypatch, lambda attempt: delete_document(library.company.handle, f"gone{attempt - 1}.txt", NOW) and None
    )
    passages = library.search(ana)
    assert attempts == list(range(1, ATTEMPTS + 1))
    assert found(passages) == ["a.txt"]
    assert passages.withheld == 1


def test_a_stale_view_is_opened_again(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    ana = library.company.principal("ana")
    library.put("a.txt", "annual leave", "tenant")
    refusals = [StaleDomain("older")] * (ATTEMPTS - 1)
    opened: Callable[..., Any] = OpenCollections.opened

    def refusing(*arguments: Any) -> Any:
        if refusals:
            raise refusals.pop()
        return opened(*arguments)

    monkeypatch.setattr(OpenCollections, "opened", refusing)
    assert found(library.search(ana)) == ["a.txt"]
    refusals += [StaleDomain("older")] * ATTEMPTS
    with pytest.raises(StaleDomain):
        library.scope(ana)


def test_foreign_principals_and_scopes_are_refused(library: Library, globex: Company) -> None:
    ana, bo, other = library.company.principal("ana"), library.company.principal("bo"), globex.principal("ana")
    library.put("a.txt", "annual leave", "tenant")
    with pytest.raises(Forbidden):
        library.scope(other)
    scope = library.scope(ana)
    for principal in (bo, other):
        with pytest.raises(InvalidInput, match="another principal"):
            library.search(principal, scope=scope)
    assert found(library.search(ana, scope=scope)) == ["a.txt"]


def test_what_cannot_be_searched_is_refused(library: Library) -> None:
    ana = library.company.principal("ana")
    library.put("a.txt", "annual leave", "tenant")
    for top_k in (0, -1, 1001):
        with pytest.raises(InvalidInput, match="top_k"):
            library.search(ana, top_k=top_k)
    with pytest.raises(InvalidInput, match="vector"):
        search(
            library.company.handle,
            ana,
            library.scope(ana),
            "q",
            np.zeros(3, dtype=np.float32),
            5,
            model=MODEL,
            covers=1.0,
        )
    assert len(library.search(ana, top_k=1000).items) == 1


def test_what_somebody_may_not_read_moves_no_score_or_order_of_the_fused_ranking(library: Library) -> None:
    ana = library.company.principal("ana")
    for number, words in enumerate(("annual leave days", "leave days", "days days", "many of annual")):
        library.put(f"{number}.txt", words, "user:ana")
    before = [(item.document, item.score) for item in library.search(ana).items]
    assert len(before) == 4
    for number in range(5):
        library.put(f"foreign{number}.txt", QUESTION + " days" * number, "tenant", deny=["user:ana"])
        assert [(item.document, item.score) for item in library.search(ana).items] == before
    delete_document(library.company.handle, "foreign0.txt", NOW)
    assert [(item.document, item.score) for item in library.search(ana).items] == before
    library.put("mine.txt", QUESTION, "user:ana")
    assert found(library.search(ana))[0] == "mine.txt"
