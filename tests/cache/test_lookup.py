"""The ladder: for every must-miss a must-hit that differs in that one thing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sqlalchemy import text

from cache.entry import canonical_payload, sealed
from cache.key import namespace
from cache.lookup import Hit, Miss, Mode, Reach, Reason, ask
from cache.openings import close_template
from cache.policy import CachePolicy, TemplatePolicy
from cache.store import NotStored, Stored
from cache.stores.local import LocalStore
from tenancy.errors import InvalidInput, Unavailable
from tests.cache.desk import Clock, Desk, identity, unit
from tests.support.people import Company

QUESTION = "How long is the parental leave for new parents?"
SAME = "How long is parental leave for new parents please?"
OTHER = "How long is the parental leave for adoptive parents?"


def hit(found: Hit | Miss) -> Hit:
    assert isinstance(found, Hit), found
    return found


def miss(found: Hit | Miss) -> Reason:
    assert isinstance(found, Miss), found
    return found.reason


def remember(desk: Desk, question: str, *documents: int, **changes: Any) -> str:
    stored = desk.put(question, desk.answer(*documents, **changes))
    assert isinstance(stored, Stored), stored
    return stored.entry_id


def test_an_exact_hit_serves_the_same_bytes_to_the_whole_domain(ana: Desk, bo: Desk, handbook: int) -> None:
    assert miss(ana.exact(QUESTION)) is Reason.ABSENT
    answer = ana.answer(handbook, text="Zwölf \U0001f600 weeks.")
    assert isinstance(ana.put(QUESTION, answer), Stored)
    found = hit(bo.exact(f"  {QUESTION} "))
    assert (
        found.entry.payload
        == answer.payload
        == canonical_payload({"finish_reason": "stop", "citations": [handbook], "answer": "Zwölf \U0001f600 weeks."})
    )
    assert (found.kind, found.similarity, found.uncertified) == ("exact", 1.0, False)
    assert (found.entry.origin_user, found.entry.origin_seq) == (ana.principal.user_id, 7)
    assert miss(bo.exact(QUESTION.lower())) is Reason.ABSENT


def test_a_semantic_hit_needs_an_opening_and_says_uncertified(ana: Desk, handbook: int) -> None:
    remember(ana, QUESTION, handbook)
    assert miss(ana.semantic(SAME, unit(1.0, 0.1))) is Reason.UNCERTIFIED
    ana.open(0.9)
    found = hit(ana.semantic(SAME, unit(1.0, 0.1)))
    assert found.uncertified
    assert found.standing is not None
    opened = found.standing.opening
    assert opened is not None
    assert (opened.template, opened.opened_by, opened.reason) == ("default", "ana", "trial")
    assert found.similarity == pytest.approx(unit(1.0, 0.1)[0], abs=1e-6)
    with ana.company.handle.writing() as view:
        close_template(view, "default")
    assert miss(ana.semantic(SAME, unit(1.0, 0.1))) is Reason.UNCERTIFIED


def test_threshold_guards_and_window_each_refuse_alone(ana: Desk, handbook: int) -> None:
    remember(ana, QUESTION, handbook)
    ana.open(0.9)
    hit(ana.semantic(SAME, unit(1.0)))
    assert miss(ana.semantic(SAME, unit(1.0, 1.0))) is Reason.BELOW_THRESHOLD
    refused = ana.semantic(OTHER, unit(1.0))
    assert miss(refused) is Reason.VETOED
    assert isinstance(refused, Miss)
    verdict = refused.candidates[0].verdict
    assert verdict is not None
    assert (verdict.name, verdict.passed) == ("contrast", False)
    assert miss(ana.semantic(SAME, unit(1.0), tokens=257)) is Reason.WINDOW
    assert miss(ana.semantic(SAME, np.full(8, np.nan, dtype=np.float32))) is Reason.BELOW_THRESHOLD
    assert miss(ana.semantic(SAME, np.ones(4, dtype=np.float32) / 2)) is Reason.ABSENT


def test_a_vetoed_first_candidate_does_not_hide_a_good_second(ana: Desk, handbook: int) -> None:
    remember(ana, "How long is the parental leave for 3 new parents?", handbook, text="Six.", vector=unit(1.0))
    good = remember(ana, QUESTION, handbook, vector=unit(1.0, 0.2))
    ana.open(0.9)
    found = hit(ana.semantic(SAME, unit(1.0)))
    assert found.entry.id == good
    assert [candidate.reason for candidate in found.refused] == [Reason.VETOED]


def test_modes(ana: Desk, handbook: int) -> None:
    remember(ana, QUESTION, handbook, text="old")
    hit(ana.exact(QUESTION))
    assert miss(ana.exact(QUESTION, mode=Mode.BYPASS)) is Reason.BYPASSED
    assert miss(ana.exact(QUESTION, mode=Mode.REFRESH)) is Reason.REFRESHED
    bypassed = ana.ask(QUESTION, mode=Mode.BYPASS)
    assert ana.put(bypassed, ana.answer(handbook, text="new")) == NotStored("bypassed")
    assert b"old" in hit(ana.exact(QUESTION)).entry.payload
    refreshed = ana.ask(QUESTION, mode=Mode.REFRESH)
    assert isinstance(ana.put(refreshed, ana.answer(handbook, text="new")), Stored)
    assert b"new" in hit(ana.exact(QUESTION)).entry.payload
    assert ana.store.stats(ana.company.handle).entries == 1


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"finish_reason": "length"}, "incomplete"),
        ({"finish_reason": "error"}, "incomplete"),
        ({"abstained": True}, "abstained"),
        ({"verified_citations": 0}, "no verified citation"),
        ({"dependencies": ()}, "no verified citation"),
    ],
)
def test_only_complete_and_cited_answers_are_stored(
    ana: Desk, handbook: int, changes: dict[str, Any], reason: str
) -> None:
    assert ana.put(QUESTION, ana.answer(handbook, **changes)) == NotStored(reason)
    assert miss(ana.exact(QUESTION)) is Reason.ABSENT
    remember(ana, QUESTION, handbook)
    hit(ana.exact(QUESTION))


def test_what_moved_while_the_answer_was_made_is_not_stored(acme: Company, ana: Desk, handbook: int) -> None:
    before = ana.answer(handbook)
    asked = ana.ask(QUESTION)
    acme.access("handbook", allow=["group:staff", "user:cy"])
    assert ana.put(asked, before) == NotStored("access lists moved")
    before, asked = ana.answer(handbook), ana.ask(QUESTION)
    other = acme.document("travel", allow=["group:staff"])
    assert isinstance(ana.put(asked, before), Stored), "growth of the corpus alone does not prevent storing"
    before, asked = ana.answer(other), ana.ask(QUESTION)
    with acme.handle.writing() as view:
        view.execute(text("UPDATE documents SET version = 'sha256:2' WHERE id = :id"), {"id": other})
        view.bump_corpus(other)
    assert ana.put(asked, before) == NotStored("a document moved")
    asked = ana.ask(QUESTION)
    assert isinstance(ana.put(asked, ana.answer(handbook)), Stored)


def test_revocation_update_and_deletion_between_store_and_lookup_miss(
    acme: Company, ana: Desk, bo: Desk, handbook: int
) -> None:
    other = acme.document("travel", allow=["group:staff"])
    remember(ana, QUESTION, handbook, other)
    hit(bo.exact(QUESTION))
    acme.access("travel", allow=["group:staff"], deny=["user:bo"])
    assert isinstance(bo.exact(QUESTION), Miss)
    acme.access("travel", allow=["group:staff"])
    hit(bo.exact(QUESTION))
    acme.leave("staff", "user:bo")
    assert isinstance(bo.exact(QUESTION), Miss)
    hit(ana.exact(QUESTION))
    with acme.handle.writing() as view:
        view.execute(text("UPDATE documents SET version = 'sha256:2' WHERE id = :id"), {"id": other})
        view.bump_corpus(other)
    assert miss(ana.exact(QUESTION)) is Reason.CHANGED
    with acme.handle.writing() as view:
        view.execute(text("UPDATE documents SET version = 'sha256:1' WHERE id = :id"), {"id": other})
        view.bump_corpus(other)
    hit(ana.exact(QUESTION))
    with acme.handle.writing() as view:
        view.execute(text("DELETE FROM documents WHERE id = :id"), {"id": other})
        view.bump_corpus(other, removed=True)
    assert miss(ana.exact(QUESTION)) is Reason.CHANGED


def test_a_change_without_an_epoch_is_caught_too(acme: Company, ana: Desk, handbook: int) -> None:
    """A restored backup repeats its counters: equal epochs prove nothing."""
    remember(ana, QUESTION, handbook)
    with acme.handle.writing() as view:
        view.execute(text("UPDATE documents SET version = 'sha256:2'"))
    assert miss(ana.exact(QUESTION)) is Reason.CHANGED


def test_a_revocation_after_the_domain_was_made_misses(acme: Company, ana: Desk, bo: Desk, handbook: int) -> None:
    remember(ana, QUESTION, handbook)
    acme.document("board", allow=["group:board"])
    acme.member("board", "user:cy")
    stale = ana.ask(QUESTION)
    hit(ana.exact(stale))
    acme.member("board", "user:ana")
    assert miss(ana.exact(stale)) is Reason.STALE_DOMAIN


def test_staleness_and_expiry(acme: Company, ana: Desk, handbook: int, clock: Clock) -> None:
    remember(ana, QUESTION, handbook)
    clock.now += 700
    hit(ana.exact(QUESTION))
    acme.document("more", allow=["group:staff"])
    assert miss(ana.exact(QUESTION)) is Reason.GROWN
    clock.now -= 200
    hit(ana.exact(QUESTION))
    remember(ana, QUESTION, handbook)
    clock.now += 86_399
    hit(ana.exact(QUESTION))
    clock.now += 1
    assert miss(ana.exact(QUESTION)) is Reason.EXPIRED
    clock.now -= 2 * 86_400
    assert miss(ana.exact(QUESTION)) is Reason.EXPIRED, "created in the future: a clock was set back"


def test_staleness_by_template(acme: Company, handbook: int, clock: Clock) -> None:
    store = LocalStore(CachePolicy(templates={"news": TemplatePolicy(max_staleness_s=10.0)}), clock=clock)
    desk = Desk(acme, acme.principal("ana"), store)
    for template in ("news", "default"):
        asked = desk.ask(QUESTION, template=template, template_revision=f"{template}@1")
        assert isinstance(desk.put(asked, desk.answer(handbook)), Stored)
    acme.document("more", allow=["group:staff"])
    clock.now += 20
    assert miss(desk.exact(QUESTION, template="news", template_revision="news@1")) is Reason.GROWN
    hit(desk.exact(QUESTION, template="default", template_revision="default@1"))


@pytest.mark.parametrize(
    "column", ["payload", "question", "dependencies", "created", "expires", "vector", "origin_user", "template"]
)
def test_a_corrupt_entry_is_a_miss_and_goes(acme: Company, ana: Desk, handbook: int, column: str) -> None:
    remember(ana, QUESTION, handbook)
    ana.open()
    hit(ana.exact(QUESTION))
    change = {
        "payload": "CAST(replace(payload, 'Twelve', 'Eleven') AS BLOB)",
        "question": "question || ' '",
        "dependencies": "'[[1,\"sha256:1\",3]]'",
        "created": "created + 1",
        "expires": "expires + 1",
        "vector": "zeroblob(length(vector))",
        "origin_user": "'u_x'",
        "template": "'other'",
    }[column]
    with acme.handle.database("cache.sqlite", None).writing() as connection:  # type: ignore[arg-type]
        connection.execute(text(f"UPDATE entries SET {column} = {change}"))
    assert isinstance(ana.exact(QUESTION), Miss)
    assert isinstance(ana.semantic(SAME, unit(1.0)), Miss)
    remember(ana, QUESTION, handbook)
    hit(ana.exact(QUESTION))


def test_an_entry_of_another_namespace_planted_under_ours_is_refused(ana: Desk, bo: Desk, handbook: int) -> None:
    """Rows moved by SQL, and a foreign row that the index in memory leads to."""
    remember(ana, QUESTION, handbook, vector=unit(1.0))
    ana.open()
    ours = ana.ask(QUESTION, filter="x")
    with ana.company.handle.database("cache.sqlite", None).writing() as connection:  # type: ignore[arg-type]
        connection.execute(
            text("UPDATE entries SET namespace = :n, exact = :e"), {"n": ours.namespace.value, "e": ours.exact}
        )
    assert miss(ana.exact(ours)) is Reason.CORRUPT
    remember(ana, QUESTION, handbook, vector=unit(1.0))
    hit(ana.semantic(SAME, unit(1.0)))
    foreign = ana.store._indexes.get(ana.company.handle.tenant_id, ours.namespace.value, 8)
    with ana.company.handle.database("cache.sqlite", None).reading() as connection:  # type: ignore[arg-type]
        rows = connection.execute(text("SELECT seq, vector FROM entries")).all()
    foreign.append([(row.seq, row.vector) for row in rows])
    found = ana.semantic(ana.ask(SAME, filter="x"), unit(1.0))
    assert miss(found) is Reason.OTHER_NAMESPACE


def test_a_file_that_is_out_of_reach_is_a_miss(ana: Desk, handbook: int, monkeypatch: pytest.MonkeyPatch) -> None:
    remember(ana, QUESTION, handbook)
    ana.open()

    def away(*_: object, **__: object) -> None:
        raise Unavailable("the cache file cannot be used", item="cache.sqlite")

    with monkeypatch.context() as patch:
        for name in ("get", "nearest", "put"):
            patch.setattr(ana.store, name, away)
        assert miss(ana.exact(QUESTION)) is Reason.STORE_AWAY
        assert miss(ana.semantic(SAME, unit(1.0))) is Reason.STORE_AWAY
        assert ana.put(QUESTION, ana.answer(handbook)) == NotStored("cache out of reach")
    hit(ana.exact(QUESTION))


def test_personal_questions_stay_with_their_asker(ana: Desk, bo: Desk, handbook: int) -> None:
    personal = "Is the account of ana@example.com covered by the policy?"
    remember(ana, personal, handbook)
    ana.open()
    hit(ana.exact(personal))
    assert miss(bo.exact(personal)) is Reason.ABSENT
    assert miss(ana.semantic(personal, unit(1.0))) is Reason.EXACT_ONLY
    remember(ana, QUESTION, handbook)
    hit(bo.exact(QUESTION))


def test_reach_decides_what_is_looked_up(ana: Desk, handbook: int) -> None:
    ana.open()
    now = "Who is on call today?"
    assert ana.ask(now).reach is Reach.NONE
    assert ana.put(now, ana.answer(handbook)) == NotStored("not cacheable")
    assert miss(ana.exact(now)) is Reason.NOT_CACHEABLE
    remembered = ana.ask("And for managers?", conversation="9f")
    assert remembered.reach is Reach.EXACT
    assert isinstance(ana.put(remembered, ana.answer(handbook)), Stored)
    hit(ana.exact(remembered))
    assert miss(ana.semantic(remembered, unit(1.0))) is Reason.EXACT_ONLY
    assert miss(ana.exact("And for managers?")) is Reason.ABSENT


def test_a_follow_up_without_its_conversation_is_refused(ana: Desk, handbook: int) -> None:
    domain = ana.company.domain(ana.principal)
    with ana.company.handle.reading() as view, pytest.raises(InvalidInput, match="conversation"):
        ask(domain, view, identity(domain), QUESTION, template="default", mode=Mode.DEFAULT, follow_up=True)


def test_somebody_who_may_read_nothing_neither_hits_nor_stores(
    acme: Company, ana: Desk, desk_of: Any, handbook: int
) -> None:
    remember(ana, QUESTION, handbook)
    nobody = desk_of("dee")
    assert miss(nobody.exact(QUESTION)) is Reason.NOT_CACHEABLE
    assert isinstance(nobody.put(QUESTION, nobody.answer(handbook)), NotStored)


def test_a_forged_entry_of_another_tenant_key_is_corrupt(ana: Desk, globex: Company, handbook: int) -> None:
    """Sealed with another tenant's key: the checksum binds an entry to its tenant."""
    asked = ana.ask(QUESTION)
    remember(ana, QUESTION, handbook)
    entry = hit(ana.exact(QUESTION)).entry
    forged = sealed(globex.handle, replace(entry, payload=b"{}"))
    assert ana.store.put(ana.company.handle, forged, allowed=lambda: None) is None
    assert miss(ana.exact(asked)) is Reason.CORRUPT
    domain = ana.company.domain(ana.principal)
    assert namespace(ana.company.handle, domain, identity(domain)) == asked.namespace
