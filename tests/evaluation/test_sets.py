"""Sets as files and as rows: what is no question is named by its line, and nothing of a set reaches another tenant."""

from __future__ import annotations

from pathlib import Path

import pytest

from evaluation.scores import Scores, Spent, figures, scored, unanswered
from evaluation.sets import Case, encoded, parse_lines, question_key, read_set
from evaluation.store import RUNS_KEPT, forget_cases, load_set, runs, save_run, save_set, scores_of
from generation.generator import Usage
from retrieval.citations import Citation
from retrieval.question import Answer, CacheReport
from tenancy.control import Tenants
from tenancy.errors import InvalidInput, NotFound
from tests.support.people import NOW, Company

GOOD = b'{"question": "How long?", "documents": ["a.md"], "facts": ["30 days"], "asker": "ana"}'


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "it is not JSON"),
        (b"\xff\xfe", "it is not JSON"),
        (b"[]", "expected `object`, got `array`"),
        (b'{"question": "  ", "unanswerable": true}', "the question is blank"),
        (b'{"question": "secret?", "documents": "secret"}', "expected `array`, got `str` - at `$.documents`"),
        (b'{"question": "secret?"}', "it says neither documents nor facts, nor that it is unanswerable"),
        (
            b'{"question": "secret?", "unanswerable": true, "facts": ["secret"]}',
            "an unanswerable question has neither documents nor facts",
        ),
        (
            b'{"question": "secret?", "unanswerable": true, "colour": 1}',
            "it has another key than question, documents, places, facts, asker, unanswerable",
        ),
        (
            b'{"what the secret is": 1}',
            "it has another key than question, documents, places, facts, asker, unanswerable",
        ),
        (b'{"question": "secret?", "facts": [" "]}', "a fact is blank, and every answer would hold it"),
        (GOOD, "the same question of the same asker stands above"),
    ],
)
def test_a_line_that_is_no_case_is_named_and_not_quoted(line: bytes, reason: str) -> None:
    found = parse_lines([GOOD, b"", line])
    assert len(found.cases) == 1
    assert [(bad.number, bad.reason) for bad in found.bad] == [(3, reason)]
    assert "secret" not in found.bad[0].reason


def test_a_file_as_other_systems_write_it(tmp_path: Path) -> None:
    file = tmp_path / "set.jsonl"
    file.write_bytes(b"\xef\xbb\xbf" + GOOD + b"\r\n" + GOOD.replace(b"long", b"far"))
    assert (len(read_set(file).cases), read_set(file).bad) == (2, ())
    file.write_bytes(GOOD.decode().encode("utf-16"))
    with pytest.raises(InvalidInput, match="UTF-16"):
        read_set(file)


def test_what_has_no_end_is_read_as_far_as_a_set_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evaluation.sets.MOST_BYTES", 1000)
    with pytest.raises(InvalidInput, match="at most 1,000 bytes"):
        read_set(Path("/dev/zero"))


def test_an_asker_is_named_as_users_are_on_record(acme: Company) -> None:
    found = parse_lines(['{"question": "a?", "unanswerable": true, "asker": "jose\u0301"}'.encode()])
    assert found.cases[0].asker == "jos\xe9"
    with acme.handle.writing() as view:
        save_set(view, "one", found.cases, NOW)
        assert forget_cases(view, "jose\u0301") == 1
        save_set(view, "one", found.cases, NOW)
        assert forget_cases(view, "jos\xe9") == 1


def test_the_same_question_of_another_asker_is_another_case() -> None:
    found = parse_lines([GOOD, b"", GOOD.replace(b"ana", b"bo")])
    assert (len(found.cases), found.lines, found.bad) == (2, (1, 3), ())


def test_a_file_of_a_set_and_back(tmp_path: Path) -> None:
    file = tmp_path / "set.jsonl"
    file.write_bytes(GOOD + b"\r\n")
    (case,) = read_set(file).cases
    assert (case.documents, case.facts, case.asker) == (("a.md",), ("30 days",), "ana")
    assert parse_lines(encoded([case]).splitlines()).cases == (case,)
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_set(tmp_path)
    file.write_bytes(b"\n")
    with pytest.raises(InvalidInput, match="it is empty"):
        read_set(file)


def test_a_failure_is_neither_an_answer_nor_a_refusal() -> None:
    failed = unanswered(Case(question="x?", unanswerable=True), "unavailable")
    found = figures([failed, Scores(unanswerable=True, declined=True, quality=1.0)], 10)
    assert (found.failed, found.declined_right, found.quality, found.p50_s) == (1, 1.0, 0.5, None)


@pytest.mark.parametrize(("place", "placed"), [("page 3", 0.5), ("page 4", 0.0), (None, 0.0)])
def test_a_citation_is_at_its_place_or_not(place: str | None, placed: float) -> None:
    def citation(document: str) -> Citation:
        return Citation("S1", document, 1, document, "v", "c", 1, 0, 4, "text", place=place)

    answer = Answer(
        text="text", citations=(citation("a.pdf"), citation("b.pdf")), finish="stop", model="m", rewritten=None,
        nearest_titles=(), cache=CacheReport("bypass"), usage=Usage(), audit_seq=1, request_id="r",
    )  # fmt: skip
    case = Case(question="x?", documents=("a.pdf",), places=("page 3",))
    found = scored(case, ["a.pdf"], answer, Spent(seconds=0.1), 10)
    assert (found.cited, found.placed, found.quality) == (0.5, placed, 0.75)
    assert figures([found], 10).place_precision == placed
    assert scored(Case(question="x?", documents=("a.pdf",)), [], answer, Spent(seconds=0.1), 10).placed is None


def test_sets_and_runs_are_the_tenants_own(acme: Company, globex: Company) -> None:
    case = Case(question="How long?", documents=("a.md",), asker="ana")
    one = Scores(unanswerable=False, declined=False, quality=0.5, ndcg=0.5)
    with acme.handle.writing() as view:
        save_set(view, "default", [case], NOW)
        run = save_run(view, "s", "", {question_key(acme.handle, case): one}, figures([one], 10), NOW)
    with acme.handle.reading() as view:
        assert load_set(view) == (case,)
        assert scores_of(view, run.id) == {question_key(acme.handle, case): one}
        assert runs(view) == [run]
    with globex.handle.reading() as view:
        assert (runs(view), scores_of(view, run.id)) == ([], {})
        with pytest.raises(NotFound):
            load_set(view)
    assert question_key(acme.handle, case) != question_key(globex.handle, case)


def test_a_question_keeps_its_key_when_the_data_key_changes(tenants: Tenants, acme: Company) -> None:
    case = Case(question="How long?", unanswerable=True, asker="ana")
    before = question_key(acme.handle, case)
    tenants.rotate_key("acme")
    with acme.handle.reading():
        assert question_key(acme.handle, case) == before


def test_of_a_person_who_goes_no_saved_question_is_left(acme: Company) -> None:
    asked = {name: Case(question=f"What does {name} ask?", unanswerable=True, asker=name) for name in ("ana", "bo")}
    with acme.handle.writing() as view:
        save_set(view, "both", list(asked.values()), NOW)
        save_set(view, "hers", [asked["ana"]], NOW)
        assert forget_cases(view, "ana") == 2
        assert load_set(view, "both") == (asked["bo"],)
        with pytest.raises(NotFound):
            load_set(view, "hers")
        assert forget_cases(view, "ana") == 0


def test_the_oldest_runs_go_with_their_scores(acme: Company) -> None:
    one = Scores(unanswerable=True, declined=True, quality=1.0)
    with acme.handle.writing() as view:
        made = [
            save_run(view, "s", "", {b"q": one}, figures([one], 10), NOW + number) for number in range(RUNS_KEPT + 3)
        ]
        assert [run.id for run in runs(view)] == [run.id for run in reversed(made[3:])]
        assert scores_of(view, made[0].id) == {}
        assert scores_of(view, made[-1].id) == {b"q": one}
