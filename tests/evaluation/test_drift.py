"""The report of drift: silent where nothing changed, loud where something did, and never about few questions."""

from __future__ import annotations

import numpy as np
import pytest

from evaluation.drift import Report, report
from retrieval.drift import LEAST, Drift, Noted, write
from tenancy.errors import InvalidInput
from tests.support.people import Company

TODAY = 20_000
DIMENSION = 48


class Questions:
    """Unit vectors around one subject, with what came of them."""

    def __init__(self, company: Company) -> None:
        self.company = company
        self.drift = Drift()
        self.dice = np.random.default_rng(11)
        self.subject = np.eye(DIMENSION)[0]

    def on(self, day: int, count: int, *, subject: int = 0, similarity: float = 0.6, declined: float = 0.1) -> None:
        for _ in range(count // LEAST):
            for _ in range(LEAST):
                vector = np.eye(DIMENSION)[subject] + self.dice.normal(0, 0.2, DIMENSION)
                vector /= np.linalg.norm(vector)
                near = float(np.clip(self.dice.normal(similarity, 0.1), 0, 1))
                found = bool(self.dice.random() >= declined)
                self.drift.add(self.company.handle, Noted("m", vector.astype(np.float32), near, near, found))
            write(self.drift, self.company.handle, (TODAY + day) * 86_400.0)

    def report(self) -> Report:
        with self.company.handle.reading() as view:
            return report(view, TODAY)


@pytest.fixture
def questions(acme: Company) -> Questions:
    found = Questions(acme)
    found.on(-20, 400)
    return found


def remarkable(found: Report) -> set[str]:
    return {shift.figure for shift in found.shifts if shift.remarkable}


def test_the_same_kind_of_questions_is_not_remarkable(questions: Questions) -> None:
    questions.on(0, 200)
    found = questions.report()
    assert (found.enough, remarkable(found)) == (True, set())
    assert (found.reference.questions, found.recent.questions) == (400, 200)
    assert found.recent.similarity == pytest.approx(0.6, abs=0.03)


def test_another_subject_is(questions: Questions) -> None:
    questions.on(0, 200, subject=1)
    assert remarkable(questions.report()) == {"questions"}


def test_half_the_questions_on_another_subject_are(questions: Questions) -> None:
    questions.on(-1, 100)
    questions.on(0, 100, subject=1)
    assert "questions" in remarkable(questions.report())


def test_documents_that_fit_less_well_are(questions: Questions) -> None:
    questions.on(0, 200, similarity=0.5)
    assert remarkable(questions.report()) == {"similarity", "strength"}


def test_more_questions_without_an_answer_are(questions: Questions) -> None:
    questions.on(0, 200, declined=0.4)
    found = questions.report()
    assert remarkable(found) == {"declined"}
    assert found.recent.declined == pytest.approx(0.4, abs=0.1)


def test_what_people_do_stands_beside_it(questions: Questions) -> None:
    questions.drift.tell(questions.company.handle.tenant_id, asked=100, retries=50, abandoned=3, told=20, edited=10)
    questions.on(0, 200)
    found = questions.report()
    assert (found.recent.retry_rate, found.recent.abandon_rate, found.recent.edit_rate) == (0.5, 0.03, 0.5)
    assert found.reference.retry_rate is None


def test_of_few_questions_nothing_is_remarkable(questions: Questions) -> None:
    questions.on(0, LEAST, subject=1, similarity=0.1, declined=1.0)
    found = questions.report()
    assert (found.enough, remarkable(found)) == (False, set())


def test_a_tenant_without_questions_has_a_report_too(globex: Company) -> None:
    with globex.handle.reading() as view:
        found = report(view, TODAY)
    assert (found.enough, found.recent.questions, found.recent.declined) == (False, 0, None)
    with globex.handle.reading() as view, pytest.raises(InvalidInput):
        report(view, TODAY, recent=0)
