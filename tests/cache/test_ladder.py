"""Each rung decides alone: with everything else in order it turns a hit into a miss with its own reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from unittest.mock import ANY

import pytest

from cache import guards
from cache.certificate import evidence, negatives
from cache.certificate.evidence import Judged, Place
from cache.entry import sealed
from cache.guards import Text, contrast
from cache.ladder import Ladder
from cache.lookup import Hit, Miss, Mode, Nominated, Reason, Would, ask, nominate
from cache.openings import close_template
from cache.policy import CachePolicy, TemplatePolicy
from cache.store import NotStored, Stored
from cache.stores.local import LocalStore
from tenancy.domain import permission_domain
from tenancy.errors import InvalidInput, Unavailable
from tests.cache.desk import Clock, Desk, identity, unit
from tests.support.people import Company

QUESTION = "How long is the parental leave for new parents?"
SAME = "How long is parental leave for new parents please?"
OTHER = "How long is the parental leave for adoptive parents?"


@dataclass
class Fixed:
    """A score and a verifier that always say the same, and remember what they were asked."""

    value: float = 0.9
    threshold: float = 0.7
    revision: str = "fixed-1"
    model: str | None = None
    seen: list[tuple[str, str]] = field(default_factory=list)

    def fits(self, embedder: str) -> bool:
        return self.model in (None, embedder)

    def probability(self, question: Text | str, cached: Text | str, *_: object) -> float:
        self.seen.append(tuple(text if isinstance(text, str) else text.source for text in (question, cached)))  # type: ignore[arg-type]
        return self.value


@dataclass
class Second:
    """A verifier that says its values in turn, the last one ever after, and remembers what it was asked and how long
    it was given. An exception among the values is raised.
    """

    values: tuple[float | Exception, ...] = (0.8,)
    threshold: float = 0.7
    revision: str = "second-1"
    timeout_s: float = 0.2
    seen: list[tuple[str, str]] = field(default_factory=list)
    given: list[float] = field(default_factory=list)

    def probability(self, question: str, cached: str, *, within_s: float) -> float:
        value = self.values[min(len(self.seen), len(self.values) - 1)]
        self.seen.append((question, cached))
        self.given.append(within_s)
        if isinstance(value, Exception):
            raise value
        return value


class Failing:
    revision = "failing-1"
    threshold = 0.5

    def __init__(self, error: Exception) -> None:
        self.error = error

    def fits(self, _: str) -> bool:
        return True

    def probability(self, *_: object) -> float:
        raise self.error


@pytest.fixture
def opened(ana: Desk, handbook: int) -> Desk:
    """A desk whose template is open and whose cache holds the answer to QUESTION."""
    stored = ana.put(QUESTION, ana.answer(handbook))
    assert isinstance(stored, Stored)
    ana.open(0.9)
    return ana


def found(desk: Desk, **ladder: object) -> Hit | Miss:
    desk.ladder = replace(Ladder(), **ladder)  # type: ignore[arg-type]
    return desk.semantic(SAME, unit(1.0))


def test_the_score_decides_at_its_threshold_and_the_policy_may_choose_another(
    opened: Desk, desk_of: Callable[[str], Desk], clock: Clock
) -> None:
    hit = found(opened, score=Fixed(0.7))
    assert isinstance(hit, Hit)
    assert (hit.score, hit.verified) == (0.7, None)
    for value in (0.69, float("nan"), 1.5, -1.0):
        missed = found(opened, score=Fixed(value))
        assert isinstance(missed, Miss)
        assert missed.reason is Reason.LOW_SCORE
        (candidate,) = missed.candidates
        assert candidate.verdict is not None
        assert candidate.verdict.name == "score"
    opened.store = LocalStore(CachePolicy(template=TemplatePolicy(score=0.71)), clock=clock)
    assert isinstance(found(opened, score=Fixed(0.7)), Miss)
    assert isinstance(found(opened, score=Fixed(0.71)), Hit)


def test_the_score_judges_similarities_of_its_own_embedding_model_alone(opened: Desk) -> None:
    own, other = Fixed(model=opened.ask(SAME).identity.embedder), Fixed(model="another model")
    assert isinstance(found(opened, score=own), Hit)
    missed = found(opened, score=other)
    assert isinstance(missed, Miss)
    assert missed.reason is Reason.OTHER_MODEL
    assert missed.candidates[0].verdicts[-1].reason == "score fitted with another embedding model"
    assert other.seen == []


def test_the_verifier_decides_last_and_its_failure_is_a_miss(opened: Desk) -> None:
    sure, doubtful = Second(), Fixed(0.1)
    hit = found(opened, score=doubtful, verifier=sure)
    assert isinstance(hit, Hit)
    assert (hit.score, hit.verified, sure.seen) == (0.1, 0.8, [(SAME, QUESTION)])
    for value in (0.6, float("nan"), 1.1):
        refused = found(opened, score=doubtful, verifier=Second((value,)))
        assert isinstance(refused, Miss)
        assert refused.reason is Reason.UNVERIFIED
    for error in (TimeoutError(), RuntimeError("no model"), ValueError("a secret question")):
        missed = found(opened, score=doubtful, verifier=Second((error,)))
        assert isinstance(missed, Miss)
        assert missed.reason is Reason.VERIFIER_AWAY


def test_the_verifier_is_asked_about_what_the_score_alone_would_refuse_and_no_more(opened: Desk, clock: Clock) -> None:
    for value in (0.7, 1.0):
        sure = Second((0.0,))
        hit = found(opened, score=Fixed(value), verifier=sure)
        assert isinstance(hit, Hit)
        assert (hit.verified, sure.seen) == (None, []), "what is served without a verifier is served with one"
    for value in (0.0999, 0.0, -1.0, 1.01, float("nan")):
        asked = Second()
        missed = found(opened, score=Fixed(value), verifier=asked)
        assert isinstance(missed, Miss)
        assert (missed.reason, asked.seen) == (Reason.LOW_SCORE, []), "what is hopeless costs no time"
    opened.store = LocalStore(CachePolicy(template=TemplatePolicy(score=1.0, verified=0.9)), clock=clock)
    assert isinstance(found(opened, score=Fixed(0.99), verifier=Second((0.89,))), Miss)
    assert isinstance(found(opened, score=Fixed(0.99), verifier=Second((0.9,))), Hit)


def test_a_veto_of_contrast_is_the_verifiers_to_lift_and_no_other(opened: Desk) -> None:
    """OTHER has another qualifier. However sure the score is, the verifier has to be asked; and a guard is a guard."""
    for value, kind in ((0.7, Hit), (0.69, Miss)):
        asked, weighed = Second((value,)), Fixed(1.0)
        opened.ladder = Ladder(score=weighed, verifier=asked)
        assert isinstance(opened.semantic(OTHER, unit(1.0)), kind)
        assert (len(weighed.seen), asked.seen) == (1, [(OTHER, QUESTION)])
    opened.ladder = Ladder(score=Fixed(1.0))
    alone = opened.semantic(OTHER, unit(1.0))
    assert isinstance(alone, Miss)
    assert alone.reason is Reason.VETOED, "without a verifier the veto stands"
    asked = Second((1.0,))
    opened.ladder = Ladder(score=Fixed(1.0), verifier=asked)
    for different in (f"{QUESTION} In 2019?", "How long is the parental leave not for new parents?"):
        missed = opened.semantic(different, unit(1.0))
        assert isinstance(missed, Miss)
        assert missed.reason is Reason.VETOED
    assert asked.seen == []


def test_contrast_stands_last_so_that_nothing_behind_it_is_skipped() -> None:
    assert guards._CHECKS[-1] is guards._TURNED[-1] is contrast.check


@pytest.fixture
def five(opened: Desk, handbook: int) -> Desk:
    for number, word in enumerate(("all", "our", "these", "those"), 1):
        question = QUESTION.replace("new parents", f"{word} new parents")
        assert isinstance(opened.put(question, opened.answer(handbook, vector=unit(1.0, number / 100))), Stored)
    return opened


def test_at_most_two_candidates_of_a_question_are_put_before_the_verifier(five: Desk) -> None:
    refusing = Second((0.0,))
    missed = found(five, score=Fixed(0.5), verifier=refusing)
    assert isinstance(missed, Miss)
    reasons = [candidate.reason for candidate in missed.candidates]
    assert reasons == [Reason.UNVERIFIED] * 2 + [Reason.UNASKED] * 3
    assert len(refusing.seen) == 2
    second = Second((0.0, 0.8))
    hit = found(five, score=Fixed(0.5), verifier=second)
    assert isinstance(hit, Hit), "a refused first one does not hide a good second"
    assert len(second.seen) == 2


def test_a_verifier_that_stalls_is_asked_once_and_all_pairs_share_one_time(
    five: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    for error in (TimeoutError(), Unavailable("late")):
        stalled = Second((error,))
        missed = found(five, score=Fixed(0.5), verifier=stalled)
        assert isinstance(missed, Miss)
        assert [candidate.reason for candidate in missed.candidates] == [Reason.VERIFIER_AWAY] + [Reason.UNASKED] * 4
        assert len(stalled.seen) == 1
    unreadable = Second((InvalidInput("too long"), 0.8))
    assert isinstance(found(five, score=Fixed(0.5), verifier=unreadable), Hit), "says nothing about the next pair"
    for spent, asked in ((0.15, 2), (0.2, 1), (7.0, 1)):
        slow = Second((0.0,))
        # The clock stands still but for what the verifier takes.
        monkeypatch.setattr("cache.rungs.verifier.monotonic", lambda slow=slow, spent=spent: spent * len(slow.seen))
        assert isinstance(found(five, score=Fixed(0.5), verifier=slow), Miss)
        assert len(slow.seen) == asked
        assert slow.given == pytest.approx([0.2, 0.05][:asked])


def test_a_dry_look_asks_the_verifier_about_every_candidate_and_decides_as_one_that_is_not(five: Desk) -> None:
    ladder = Ladder(score=Fixed(0.5), verifier=Second((0.0,)))
    five.ladder = ladder
    with five.company.handle.writing() as view:
        negatives.add(view, negatives.pair_of(view.tenant, QUESTION, SAME), source="feedback", now=1.0)
    explained = five.semantic(SAME, unit(1.0), dry=True)
    assert isinstance(explained, Miss)
    assert [candidate.verdicts[-1].value for candidate in explained.candidates] == [0.0, 0.0, 0.0, None, None]
    assert [candidate.reason for candidate in explained.candidates] == [
        Reason.KNOWN_NEGATIVE, Reason.UNVERIFIED, Reason.UNVERIFIED, Reason.UNASKED, Reason.UNASKED,
    ]  # fmt: skip


def test_while_the_verifier_works_no_transaction_is_open(opened: Desk) -> None:
    asked = opened.ask(SAME)
    with opened.company.handle.reading() as view:
        domain = permission_domain(opened.principal, view)
        waiting = Second()
        ladder = Ladder(score=Fixed(0.5), verifier=waiting)
        nominated = nominate(
            domain, view, opened.store, asked, unit(1.0), tokens=8, limit=256, ladder=ladder, dry=False
        )
        assert isinstance(nominated, Nominated)
        assert waiting.seen == []
    assert isinstance(nominated.decided(), Hit)
    assert waiting.seen == [(SAME, QUESTION)]


def test_the_plain_score_is_the_similarity_and_weighs_no_near_miss(opened: Desk) -> None:
    text, plain = opened.ask(QUESTION).text, Ladder().score
    assert [plain.probability(text, text, similarity, ()) for similarity in (0.7, 1.00001)] == [0.7, 1.0]
    for similarity in (0.0, -0.5, float("nan")):
        assert plain.probability(text, text, similarity, ()) == 0.0
    assert plain.probability(text, text, 0.99, ("word replaced",)) == 0.0


def test_a_guard_or_a_score_that_fails_refuses(
    opened: Desk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    missed = found(opened, score=Failing(IndexError(SAME)))
    assert isinstance(missed, Miss)
    assert missed.reason is Reason.LOW_SCORE

    def fails(*_: object) -> None:
        raise RecursionError(SAME)

    with monkeypatch.context() as patch:
        patch.setattr("cache.rungs.guards.compare", fails)
        vetoed = found(opened)
        assert isinstance(vetoed, Miss)
        assert (vetoed.reason, vetoed.candidates[0].verdicts[-1].reason) == (Reason.VETOED, "a guard failed")
        assert opened.semantic(SAME, unit(1.0), dry=True) == replace(vetoed, candidates=ANY)
    assert "IndexError" in caplog.text
    assert "RecursionError" in caplog.text
    assert "parental" not in caplog.text
    assert isinstance(found(opened), Hit)


def test_a_failure_of_the_verifier_is_logged_without_a_text(opened: Desk, caplog: pytest.LogCaptureFixture) -> None:
    found(opened, score=Fixed(0.5), verifier=Second((ValueError(SAME),)))
    assert "ValueError" in caplog.text
    assert "parental" not in caplog.text


def test_an_entry_that_came_back_under_another_key_is_refused(
    opened: Desk, handbook: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole, of this namespace and fresh, but the answer to another question: no store is trusted with that."""
    assert isinstance(opened.put("Who pays for the trip?", opened.answer(handbook)), Stored)
    other = opened.exact("Who pays for the trip?")
    assert isinstance(other, Hit)
    assert isinstance(opened.exact(QUESTION), Hit)
    monkeypatch.setattr(opened.store, "get", lambda *_: other.entry)
    missed = opened.exact(QUESTION)
    assert isinstance(missed, Miss)
    assert missed.reason is Reason.CORRUPT
    assert missed.candidates[0].verdict is not None
    assert missed.candidates[0].verdict.name == "exact"


def test_a_known_negative_stays_apart_in_both_orders(opened: Desk) -> None:
    assert isinstance(found(opened), Hit)
    with opened.company.handle.writing() as view:
        negatives.add(view, negatives.pair_of(view.tenant, QUESTION, SAME), source="feedback", now=1.0)
    missed = found(opened)
    assert isinstance(missed, Miss)
    assert missed.reason is Reason.KNOWN_NEGATIVE
    assert isinstance(opened.semantic(f"{SAME} Thanks!", unit(1.0)), Hit)


def test_a_refused_candidate_carries_the_verdict_of_every_rung_that_it_reached(opened: Desk) -> None:
    missed = opened.semantic(OTHER, unit(1.0))
    assert isinstance(missed, Miss)
    (candidate,) = missed.candidates
    assert [verdict.name for verdict in candidate.verdicts][:2] == ["nearest", "identity"]
    assert [verdict.passed for verdict in candidate.verdicts] == [True, True, False]
    assert missed.reason is candidate.reason is Reason.VETOED
    served = found(opened)
    assert isinstance(served, Hit)
    names = [verdict.name for verdict in served.verdicts]
    assert names == ["nearest", "identity", "guards", "negatives", "score", "freshness", "verifier"]
    assert [verdict.name for verdict in served.steps] == ["cacheability", "window", "nearest", "standing", "standing"]
    assert all(verdict.passed and not verdict.reason for verdict in (*served.verdicts, *served.steps))


def test_the_first_hits_of_an_entry_are_on_probation_until_checks_confirm_it(opened: Desk) -> None:
    for confirmed in (0, 1):
        missed = found(opened, judge="judge-1", random=lambda: 0.99)
        assert isinstance(missed, Miss)
        would = missed.would
        assert isinstance(would, Would)
        assert (missed.reason, would.purpose, would.entry.confirmed) == (Reason.PROBATION, "probation", confirmed)
        confirm(opened, would)
    assert isinstance(found(opened, judge="judge-1", random=lambda: 0.99), Hit)


def test_an_entry_on_probation_does_not_hide_a_later_one_that_left_it(opened: Desk, handbook: int) -> None:
    again = "How long is parental leave for new parents?"
    assert isinstance(opened.put(again, opened.answer(handbook, vector=unit(1.0, 0.2))), Stored)
    both = found(opened, judge="judge-1", random=lambda: 0.99)
    assert isinstance(both, Miss)
    assert both.would is not None
    first = both.would.entry
    assert (both.reason, both.would.purpose, first.question) == (Reason.PROBATION, "probation", QUESTION)
    asked = opened.ask(again)
    for confirmed in (1, 2):
        second = opened.store.get(opened.company.handle, asked.namespace, asked.exact)
        assert second is not None
        assert opened.store.confirm(
            opened.company.handle, sealed(opened.company.handle, replace(second, confirmed=confirmed))
        )
    draws = []

    def drawn(value: float) -> float:
        draws.append(value)
        return value

    served = found(opened, judge="judge-1", random=lambda: drawn(0.99))
    assert isinstance(served, Hit)
    assert (served.entry.question, len(draws)) == (again, 1)
    assert [(one.entry_id, one.reason) for one in served.refused] == [(first.id, Reason.PROBATION)]
    # What is drawn, and so labelled, is what would have been served, and not what passed before it.
    missed = found(opened, judge="judge-1", random=lambda: 0.0)
    assert isinstance(missed, Miss)
    assert missed.would is not None
    assert (missed.reason, missed.would.purpose, missed.would.entry.id) == (Reason.DRAWN, "uniform", served.entry.id)
    with opened.company.handle.writing() as view:
        close_template(view, "default")
    missed = found(opened, judge="judge-1", random=lambda: 0.99)
    assert isinstance(missed, Miss)
    assert missed.would is not None
    assert (missed.would.purpose, missed.would.entry.id) == ("uniform", served.entry.id)


def test_a_hit_that_is_drawn_is_not_served(opened: Desk) -> None:
    for _ in range(2):
        missed = found(opened, judge="judge-1")
        assert isinstance(missed, Miss)
        assert missed.would is not None
        confirm(opened, missed.would)
    drawn = found(opened, judge="judge-1", random=lambda: 0.0999)
    assert isinstance(drawn, Miss)
    assert drawn.would is not None
    assert (drawn.reason, drawn.would.purpose) == (Reason.DRAWN, "uniform")
    assert drawn.steps[-1].reason == Reason.DRAWN
    assert isinstance(found(opened, judge="judge-1", random=lambda: 0.1), Hit)
    assert isinstance(found(opened, random=lambda: 0.0), Hit), "without a judge there is nothing to compare with"


def test_without_certificate_or_opening_a_hit_is_only_named(opened: Desk) -> None:
    with opened.company.handle.writing() as view:
        close_template(view, "default")
    missed = found(opened)
    assert (missed.reason, missed.would) == (Reason.UNCERTIFIED, None)  # type: ignore[union-attr]
    for confirmed in range(3):
        drawn = found(opened, judge="judge-1", random=lambda: 0.99)
        assert isinstance(drawn, Miss)
        assert drawn.would is not None
        # What would not be served on a certificate either is no label for one.
        purpose = "uniform" if confirmed == 2 else "probation"
        assert (drawn.reason, drawn.would.purpose) == (Reason.UNCERTIFIED, purpose)
        assert drawn.would.entry.confirmed == confirmed
        confirm(opened, drawn.would)


def test_evidence_certifies_and_suspends_and_belongs_to_one_version_of_the_ladder(opened: Desk) -> None:
    with opened.company.handle.writing() as view:
        close_template(view, "default")
    judge(opened, right=600)
    hit = found(opened)
    assert isinstance(hit, Hit)
    assert hit.standing is not None
    assert (hit.standing.state, hit.standing.n, hit.uncertified) == ("certified", 600, False)
    assert hit.rules == hit.standing.ladder
    assert isinstance(found(opened, score=Fixed(0.9, revision="fixed-2")), Miss), "another score has no evidence"
    opened.open(0.9)
    assert isinstance(found(opened), Hit)
    judge(opened, wrong=60)
    missed = found(opened)
    assert isinstance(missed, Miss)
    assert missed.reason is Reason.SUSPENDED, "an opening does not outweigh evidence"


def test_a_dry_look_touches_draws_and_removes_nothing_and_goes_on_to_the_last_rung(
    opened: Desk, acme: Company, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("a dry look changed something")

    for name in ("touch", "discard", "put", "confirm", "invalidate", "sweep"):
        monkeypatch.setattr(opened.store, name, never)

    def drawing() -> float:
        raise AssertionError("a dry look drew")

    opened.ladder = Ladder(judge="judge-1", random=drawing)
    missed = opened.semantic(OTHER, unit(1.0), dry=True)
    assert isinstance(missed, Miss)
    (candidate,) = missed.candidates
    assert candidate.reason is Reason.VETOED
    assert len(candidate.verdicts) == 7
    would = opened.semantic(SAME, unit(1.0), dry=True)
    assert isinstance(would, Miss)
    assert would.reason is Reason.PROBATION
    with monkeypatch.context() as patch:
        patch.setattr(opened.store, "policy", CachePolicy(template=TemplatePolicy(probation=0)))
        assert isinstance(opened.semantic(SAME, unit(1.0), dry=True), Hit)
    opened.ladder = Ladder()
    assert isinstance(opened.semantic(SAME, unit(1.0), dry=True), Hit)
    assert isinstance(opened.exact(QUESTION, dry=True), Hit)
    with acme.handle.database("cache.sqlite", None).writing() as connection:  # type: ignore[arg-type]
        connection.exec_driver_sql("UPDATE entries SET created = created + 1")
    corrupt = opened.semantic(SAME, unit(1.0), dry=True)
    assert (corrupt.reason, opened.store.stats(acme.handle).entries) == (Reason.CORRUPT, 1)  # type: ignore[union-attr]


def confirm(desk: Desk, would: Would) -> None:
    entry = sealed(desk.company.handle, replace(would.entry, confirmed=would.entry.confirmed + 1))
    assert desk.store.confirm(desk.company.handle, entry)


def judge(desk: Desk, *, right: int = 0, wrong: int = 0) -> None:
    """Uniform judgements for the template as it stands now."""
    missed = desk.semantic("What is the notice period for employees?", unit(0.0, 1.0), dry=True)
    assert isinstance(missed, Miss)
    assert missed.standing is not None
    asked = desk.ask(SAME)
    place = Place("default", missed.standing.ladder, asked.space, 0.01)
    with desk.company.handle.writing() as view:
        for label, count in (("same", right), ("wrong", wrong)):
            for number in range(count):
                evidence.record(view, place, Judged("uniform", label, "", f"ce_{label}_{number}"), 1.0)  # type: ignore[arg-type]


def test_the_policy_of_a_template_decides_how_far_its_answers_travel(
    acme: Company, desk_of: Callable[[str], Desk], handbook: int, clock: Clock
) -> None:
    personal = "Is the account of ana@example.com covered by the policy?"
    policies = {
        "closed": TemplatePolicy(personal="none", semantic=False, ttl_s=60.0),
        "default": TemplatePolicy(),
    }
    desk = Desk(acme, acme.principal("ana"), LocalStore(CachePolicy(templates=policies), clock=clock))
    for template in policies:
        desk.open(0.9, template)
        for question in (QUESTION, personal):
            asked = desk.ask(question, template=template, template_revision=f"{template}@1")
            stored = desk.put(asked, desk.answer(handbook))
            assert isinstance(stored, Stored) is not (template == "closed" and question == personal)

    def look(question: str, template: str) -> tuple[str, str]:
        asked = desk.ask(question, template=template, template_revision=f"{template}@1")
        found = (desk.exact(asked), desk.semantic(asked, unit(1.0)))
        return tuple("hit" if isinstance(one, Hit) else one.reason.name for one in found)  # type: ignore[return-value]

    assert look(QUESTION, "default") == ("hit", "hit")
    assert look(QUESTION, "closed") == ("hit", "EXACT_ONLY")
    assert look(personal, "default") == ("hit", "EXACT_ONLY")
    assert look(personal, "closed") == ("NOT_CACHEABLE", "NOT_CACHEABLE")
    clock.now += 61
    assert look(QUESTION, "default") == ("hit", "hit")
    assert look(QUESTION, "closed") == ("EXPIRED", "EXACT_ONLY")


def test_a_policy_may_keep_questions_of_the_moment_and_leave_out_what_points_elsewhere(
    acme: Company, handbook: int, clock: Clock
) -> None:
    policy = TemplatePolicy(moment="exact", deictic="none")
    desk = Desk(acme, acme.principal("ana"), LocalStore(CachePolicy(template=policy), clock=clock))
    today, pointing = desk.ask("Who is on call today?"), desk.ask("What about that one?")
    assert (today.reach.value, pointing.reach.value) == ("exact", "none")
    assert isinstance(desk.put(today, desk.answer(handbook)), Stored)
    assert isinstance(desk.exact(today), Hit)
    assert desk.put(pointing, desk.answer(handbook)) == NotStored("not cacheable")
    assert desk.ask("Is ana@example.com on call today?").reach.value == "private"
    assert desk.ask("Cancel my leave today").reach.value == "none", "an action is never remembered"


@pytest.mark.parametrize(
    ("question", "reach", "why"),
    [
        ("How long is the parental leave?", "shared", ""),
        ("Cancel my parental leave", "none", "asks for an action"),
        ("Who is on call today?", "none", "depends on the moment"),
        ("Is ana@example.com covered?", "private", "personal data"),
        ("What about that one?", "exact", "points at something outside"),
        ("42?", "exact", "no words"),
    ],
)
def test_a_question_says_why_its_answer_travels_no_further(ana: Desk, question: str, reach: str, why: str) -> None:
    asked = ana.ask(question)
    assert (asked.reach.value, asked.why) == (reach, why)
    assert ana.ask(question, conversation="9f").reach.value in {"none", "private", "exact"}


def test_an_answer_that_is_drawn_by_chance_is_never_remembered(ana: Desk, handbook: int) -> None:
    with ana.company.handle.reading() as view:
        domain = ana.company.domain(ana.principal)
        sampled, plain = (
            ask(
                domain, view, identity(domain), QUESTION, template="default", mode=Mode.DEFAULT, follow_up=False,
                sampled=chance,
            )
            for chance in (True, False)
        )  # fmt: skip
    assert (sampled.reach.value, sampled.why, plain.reach.value) == ("none", "sampled", "shared")
    assert ana.put(sampled, ana.answer(handbook)) == NotStored("not cacheable")
    assert isinstance(ana.put(plain, ana.answer(handbook)), Stored)


def test_each_version_of_what_decides_is_another_ladder(ana: Desk) -> None:
    """A change of rules, score, verifier, threshold, judge, model or template starts new evidence; a question none."""
    asked, ladder, policy = ana.ask(QUESTION), Ladder(judge="judge-1"), CachePolicy()
    stricter = replace(asked, policy=TemplatePolicy(score=0.99))
    versions = {
        ladder.version(asked, None, policy),
        ladder.version(asked, 0.9, policy),
        ladder.version(asked, 0.91, policy),
        ladder.version(stricter, None, policy),
        replace(ladder, score=Fixed()).version(asked, None, policy),
        replace(ladder, score=Fixed(revision="fixed-2")).version(asked, None, policy),
        replace(ladder, verifier=Second()).version(asked, None, policy),
        replace(ladder, verifier=Second(threshold=0.71)).version(asked, None, policy),
        replace(ladder, verifier=Second(), worth=0.2).version(asked, None, policy),
        replace(ladder, verifier=Second(), pairs=1).version(asked, None, policy),
        replace(ladder, judge="judge-2").version(asked, None, policy),
        ladder.version(replace(asked, policy=TemplatePolicy(probation=3)), None, policy),
        ladder.version(replace(asked, policy=TemplatePolicy(ttl_s=60.0)), None, policy),
        ladder.version(replace(asked, policy=TemplatePolicy(max_staleness_s=60.0)), None, policy),
        ladder.version(asked, None, replace(policy, time_to_live=60.0)),
        ladder.version(asked, None, replace(policy, max_staleness=60.0)),
        ladder.version(asked, None, replace(policy, nearest=6)),
    }
    for change in ({"time_to_live": 60.0}, {"max_staleness": 60.0}, {"nearest": 6}):
        assert ladder.version(asked, None, replace(policy, **change)) != ladder.version(asked, None, policy)
    # What a template sets itself, the deployment's does not move; nor do sizes.
    own = replace(asked, policy=TemplatePolicy(ttl_s=60.0))
    assert ladder.version(own, None, replace(policy, time_to_live=7.0)) in versions
    assert ladder.version(asked, None, replace(policy, max_entries=7, max_bytes=7)) in versions
    changed = ("model_revision", "tokenizer_revision", "template_revision", "adapter_revision", "embedder")
    for name in changed:
        other = replace(asked.identity, **{name: "other"})  # type: ignore[arg-type]
        versions.add(ladder.version(replace(asked, identity=other), None, policy))
    # A time has the same version wherever it is set: two of the seventeen are set twice.
    assert len(versions) == 17 - 2 + len(changed)
    assert replace(ladder, worth=0.2, pairs=1).version(asked, None, policy) in versions, "without a verifier: nothing"
    assert ladder.version(ana.ask("Who pays?", filter="x"), None, policy) in versions
