"""What is kept of the kind of a tenant's questions: sums of twenty at least, in its own database, and no text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from sqlalchemy import select

from retrieval import drift
from retrieval.drift import LEAST, Drift, Noted, write
from tenancy.control import Tenants
from tenancy.identity import Principal
from tenancy.quality_schema import question_days
from tests.support.path import Path, open_path
from tests.support.people import NOW, Company


@pytest.fixture
def path(tenants: Tenants, acme: Company) -> Iterator[Path]:
    with open_path(tenants) as found:
        found.put(acme.handle, "notice.md", "The notice period is three months.", "tenant")
        yield found


@pytest.fixture
def ana(acme: Company) -> Principal:
    return acme.principal("ana")


def rows(company: Company) -> list[Any]:
    with company.handle.reading() as view:
        return list(view.execute(select(question_days)).all())


def noted(vector: list[float], *, found: bool = True) -> Noted:
    return Noted("m", np.array(vector, dtype=np.float32), 0.5, 0.8, found)


def test_fewer_than_twenty_questions_leave_no_row_and_the_twentieth_does(
    path: Path, acme: Company, ana: Principal
) -> None:
    for number in range(LEAST - 1):
        path.ask(ana, f"How long is notice period {number}?", cache="bypass")
    assert rows(acme) == []
    path.ask(ana, "Who painted the chapel?", cache="bypass")
    (row,) = rows(acme)
    assert (row.sums["questions"], row.sums["declined"]) == (LEAST, 1)
    assert len(row.total) == 4 * 256


def test_no_two_states_of_a_row_differ_by_fewer(path: Path, acme: Company, ana: Principal) -> None:
    seen = set()
    for number in range(2 * LEAST + 3):
        path.ask(ana, f"How long is notice period {number}?", cache="bypass")
        seen.update(row.sums["questions"] for row in rows(acme))
    assert seen == {LEAST, 2 * LEAST}


def test_questions_of_an_evaluation_are_nobodys(path: Path, acme: Company, ana: Principal) -> None:
    for number in range(LEAST):
        path.ask(ana, f"How long is notice period {number}?", cache="bypass", feature="evaluation")
    assert rows(acme) == []


def test_a_served_memory_is_no_further_question(path: Path, acme: Company, ana: Principal) -> None:
    for _ in range(LEAST):
        path.ask(ana, "How long is the notice period?")
    assert rows(acme) == []


def test_sums_that_cannot_be_written_take_nothing_from_an_answer(
    path: Path, acme: Company, ana: Principal, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(drift, "write", full)
    for number in range(LEAST):
        answer = path.ask(ana, f"How long is notice period {number}?", cache="bypass")
    assert answer.finish == "stop"
    assert "could not be written: OSError" in caplog.text
    assert rows(acme) == []


def test_the_row_is_the_sum_of_what_was_added(acme: Company) -> None:
    sums = Drift()
    for _ in range(LEAST):
        sums.add(acme.handle, noted([1.0, 0.0]))
    sums.tell(acme.handle.tenant_id, asked=30, retries=2)
    write(sums, acme.handle, NOW)
    for _ in range(LEAST):
        sums.add(acme.handle, noted([0.0, 0.5], found=False))
    write(sums, acme.handle, NOW)
    (row,) = rows(acme)
    assert np.frombuffer(row.total, dtype="<f4").tolist() == [LEAST, LEAST / 2]
    sums = row.sums
    assert (sums["questions"], sums["declined"], sums["asked"], sums["retries"]) == (2 * LEAST, LEAST, 30, 2)
    assert sums["similarity"] == pytest.approx(LEAST)


def test_sums_of_fewer_than_all_questions_wait_for_twenty_of_their_own(acme: Company) -> None:
    sums, seen = Drift(), []
    alone = Noted("m", np.array([1.0], dtype=np.float32), 0.9, 0.8, True)
    plain = Noted("m", np.array([1.0], dtype=np.float32), None, 0.8, True)
    for _ in range(3):
        for number in range(LEAST):
            sums.add(acme.handle, alone if number < 8 else plain)
        sums.tell(acme.handle.tenant_id, asked=8, retries=1)
        sums.tell(acme.handle.tenant_id, told=15, edited=1)
        write(sums, acme.handle, NOW)
        (row,) = rows(acme)
        seen.append([row.sums.get(name, 0) for name in ("questions", "compared", "asked", "retries", "told", "edited")])
    assert seen == [[LEAST, 0, 0, 0, 0, 0], [2 * LEAST, 0, 0, 0, 30, 2], [3 * LEAST, 24, 24, 3, 30, 2]]
    assert row.sums["similarity"] == pytest.approx(24 * 0.9)
    assert row.total == np.array([3 * LEAST], dtype="<f4").tobytes()


def test_what_one_tenant_asks_stands_with_no_other(acme: Company, globex: Company) -> None:
    sums = Drift()
    for _ in range(LEAST):
        sums.add(acme.handle, noted([1.0, 0.0]))
    sums.add(globex.handle, noted([0.0, 1.0]))
    write(sums, globex.handle, NOW)
    write(sums, acme.handle, NOW)
    assert (len(rows(acme)), rows(globex)) == (1, [])


def test_of_a_deleted_tenant_nothing_waits(acme: Company) -> None:
    sums = Drift()
    for _ in range(LEAST):
        sums.add(acme.handle, noted([1.0]))
    sums.forget(acme.handle.tenant_id)
    write(sums, acme.handle, NOW)
    assert rows(acme) == []


def test_old_days_go(acme: Company) -> None:
    sums = Drift()
    for now in (NOW, NOW + 401 * 86_400):
        for _ in range(LEAST):
            sums.add(acme.handle, noted([1.0]))
        write(sums, acme.handle, now)
    (row,) = rows(acme)
    assert row.day == int(NOW // 86_400) + 401
