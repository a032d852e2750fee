"""POST /v1/feedback: only about one's own answers; it removes and suspends, and certifies nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from cache.certificate import evidence, negatives, reports
from cache.openings import open_template
from tenancy.cache_schema import cache_feedback
from tenancy.identity import Role
from tests.service.house import House, problem

NOTICE = "Notice periods. The notice period for employees is three months to the end of a quarter."
ASKED = "What is the notice period for employees?"
PARAPHRASE = "Which notice period is there for employees?"


@pytest.fixture
def open_house(tmp_path: Path) -> Iterator[House]:
    """Semantic hits of the default template are served, and none is drawn or on probation."""
    house = House(
        tmp_path,
        STRONGROOM_CACHE__TEMPLATES="{default = {shadow = 0.0, probation = 0, alpha = 0.05, score = 0.0}}",
    )
    house.put("acme", "notice.md", NOTICE, allow=["tenant"])
    with tenant(house).writing() as view:
        open_template(view, "default", threshold=0.5, opened_by="operator", reason="test", now=0.0)
    yield house
    house.close()


def tenant(house: House) -> Any:
    control = house.services.control
    return control.tenants.open(control.authenticator.operator("acme"))


def ask(house: House, key: str, query: str, **options: Any) -> dict[str, Any]:
    response = house.post("/v1/answers", key, {"query": query, **options})
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def tell(house: House, key: str, answer: str, verdict: str = "wrong_hit") -> Any:
    return house.post("/v1/feedback", key, {"answer_id": answer, "verdict": verdict})


@pytest.fixture
def ana(open_house: House) -> str:
    return open_house.key("acme", "ana")


def test_a_wrong_hit_is_removed_and_its_pair_stays_apart(open_house: House, ana: str) -> None:
    ask(open_house, ana, ASKED)
    hit = ask(open_house, ana, PARAPHRASE)
    assert (hit["cache"]["kind"], hit["cache"]["certified"]) == ("semantic", "uncertified")
    told = tell(open_house, ana, hit["request_id"])
    assert told.status_code == 200, told.text
    assert told.json() == {"answer_id": hit["request_id"], "verdict": "wrong_hit", "removed": True}
    again = ask(open_house, ana, ASKED)
    assert again["cache"]["status"] == "miss"
    assert ask(open_house, ana, PARAPHRASE)["cache"]["status"] == "miss"
    with tenant(open_house).reading() as view:
        assert negatives.count(view) == 1
        (record,) = evidence.evidence(view)
    assert (record.reports, record.hits, record.n) == (1, 1, 0)
    event = next(one for one in open_house.events("acme") if one["action"] == "feedback" and one["phase"] == "outcome")
    assert event["detail"]["answer"] == hit["request_id"]
    assert event["detail"]["entry"] == hit["cache"]["cached_from"]


def test_the_same_report_counts_once(open_house: House, ana: str) -> None:
    ask(open_house, ana, ASKED)
    hit = ask(open_house, ana, PARAPHRASE)["request_id"]
    for verdict in ("wrong_hit", "wrong_hit", "good", "wrong_hit"):
        assert tell(open_house, ana, hit, verdict).status_code == 200
    with tenant(open_house).reading() as view:
        (record,) = evidence.evidence(view)
    assert record.reports == 1


def test_praise_changes_nothing(open_house: House, ana: str) -> None:
    ask(open_house, ana, ASKED)
    hit = ask(open_house, ana, PARAPHRASE)
    for verdict in ("good", "edited", "wrong_answer"):
        assert tell(open_house, ana, hit["request_id"], verdict).json()["removed"] is False
    assert ask(open_house, ana, PARAPHRASE)["cache"]["kind"] == "semantic"
    with tenant(open_house).reading() as view:
        assert all((record.n, record.state) == (0, "uncertified") for record in evidence.evidence(view))


def test_an_exact_hit_can_be_wrong_too_and_suspends_nothing(open_house: House, ana: str) -> None:
    ask(open_house, ana, ASKED)
    hit = ask(open_house, ana, ASKED)
    assert hit["cache"]["kind"] == "exact"
    assert tell(open_house, ana, hit["request_id"]).json()["removed"] is True
    assert ask(open_house, ana, ASKED)["cache"]["status"] == "miss"
    with tenant(open_house).reading() as view:
        assert (negatives.count(view), evidence.evidence(view)) == (0, [])


def report_some(house: House, keys: list[str]) -> int:
    told = 0
    for number in range(8):
        key = keys[number % len(keys)]
        ask(house, key, ASKED)
        found = ask(house, key, "Which notice period is there for " + "the " * number + "employees?")
        if found["cache"]["kind"] != "semantic":
            break
        assert tell(house, key, found["request_id"]).status_code == 200
        told += 1
    return told


def test_one_person_s_reports_suspend_nothing(open_house: House, ana: str) -> None:
    assert report_some(open_house, [ana]) == 8
    with tenant(open_house).reading() as view:
        (record,) = evidence.evidence(view)
    assert (record.state, record.reports) == ("uncertified", 8)


def test_a_right_hit_with_another_spelling_of_a_number_is_not_suspended_by_a_report(open_house: House) -> None:
    open_house.put(
        "acme", "orders.md", "Orders. For orders of 1,200 EUR the limit is three per month.", allow=["tenant"]
    )
    ana, bo = open_house.key("acme", "ana"), open_house.key("acme", "bo")
    ask(open_house, ana, "What is the limit for 1,200 EUR orders?")
    hit = ask(open_house, bo, "What is the limit for 1200 EUR orders?")
    assert hit["cache"]["kind"] == "semantic"
    assert tell(open_house, bo, hit["request_id"]).json()["removed"] is True
    with tenant(open_house).reading() as view:
        (record,) = evidence.evidence(view)
    assert (record.state, record.reports) == ("uncertified", 1)


def test_a_pair_counts_once_for_each_person(open_house: House, ana: str) -> None:
    """Two answers from one pair, told of one after the other."""
    ask(open_house, ana, ASKED)
    bo = open_house.key("acme", "bo")
    hits = [(key, ask(open_house, key, PARAPHRASE)) for key in (ana, ana, bo)]
    assert {hit["cache"]["kind"] for _, hit in hits} == {"semantic"}
    counted = []
    for key, hit in hits:
        assert tell(open_house, key, hit["request_id"]).status_code == 200
        with tenant(open_house).reading() as view:
            counted.append(evidence.evidence(view)[0].reports)
    assert counted == [1, 1, 2]


def test_two_people_together_suspend_nothing_until_somebody_confirms_it(open_house: House, ana: str) -> None:
    """Each report of another pair; the lower limit of confirmed ones passes the target after a few."""
    told = report_some(open_house, [ana, open_house.key("acme", "bo")])
    assert told == 8
    with tenant(open_house).writing() as view:
        (record,) = evidence.evidence(view)
        assert (record.state, record.reports) == ("uncertified", 8)
        states = [
            reports.confirm(view, one.answer, open_house.services.path.cache.policy, 1.0)[1]
            for one in reports.reports(view)
        ]
        (record,) = evidence.evidence(view)
    assert (record.state, record.why) == ("suspended", "feedback")
    assert (states[0], states[-1]) == ("uncertified", "suspended")


def test_feedback_is_limited_like_any_request(tmp_path: Path) -> None:
    house = House(tmp_path, STRONGROOM_ADMISSION__USER="{requests_per_minute = 3}")
    with house.client:
        house.put("acme", "notice.md", NOTICE, allow=["tenant"])
        ana, bo = house.key("acme", "ana"), house.key("acme", "bo")
        answer = ask(house, ana, ASKED)["request_id"]
        assert [tell(house, ana, answer, "good").status_code for _ in range(3)] == [200, 200, 429]
        assert ask(house, bo, ASKED)["cache"]["status"] == "hit", "others go on"
    house.close()


def test_what_is_said_is_bounded(tmp_path: Path) -> None:
    house = House(tmp_path, STRONGROOM_CACHE__RECORDS="1000")
    assert house.services.path.cache.policy.records == 1_000
    house.put("acme", "notice.md", NOTICE, allow=["tenant"])
    ana = house.key("acme", "ana")
    answer = ask(house, ana, ASKED)["request_id"]
    with tenant(house).writing() as view:
        row = {"verdict": "good", "reporter": b"x"}
        view.execute(cache_feedback.insert(), [row | {"answer": f"a_{number}", "at": 0.0} for number in range(1_000)])
    assert tell(house, ana, answer, "good").status_code == 200
    with tenant(house).reading() as view:
        said = view.execute(select(cache_feedback.c.answer)).scalars().all()
    assert (len(said), answer in said) == (1_000 - 10, True)
    house.close()


FOREIGN: dict[str, Callable[[House], str]] = {
    "a colleague": lambda house: house.key("acme", "bo"),
    "another tenant": lambda house: house.key("globex", "ana"),
}


@pytest.mark.parametrize("who", FOREIGN)
def test_a_foreign_answer_looks_like_an_absent_one(open_house: House, ana: str, who: str) -> None:
    ask(open_house, ana, ASKED)
    hit = ask(open_house, ana, PARAPHRASE)
    foreign, absent = (tell(open_house, FOREIGN[who](open_house), one) for one in (hit["request_id"], "0" * 32))
    bodies = [problem(response, 404, "not-found") for response in (foreign, absent)]
    assert [{**body, "instance": ""} for body in bodies] == [{**bodies[0], "instance": ""}] * 2
    assert ask(open_house, ana, PARAPHRASE)["cache"]["kind"] == "semantic"


def test_only_an_answer_can_be_told_of(open_house: House, ana: str) -> None:
    passages = open_house.post("/v1/retrieve", ana, {"query": ASKED})
    problem(tell(open_house, ana, passages.headers["x-request-id"], "good"), 404, "not-found")
    fresh = ask(open_house, ana, ASKED)
    problem(tell(open_house, ana, fresh["request_id"], "wrong_hit"), 422, "invalid-input")
    assert tell(open_house, ana, fresh["request_id"], "wrong_answer").status_code == 200


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"answer_id": "x" * 32, "verdict": "good"}, 422),
        ({"answer_id": "0" * 31, "verdict": "good"}, 422),
        ({"answer_id": "0" * 32, "verdict": "bad"}, 422),
        ({"answer_id": "0" * 32}, 422),
        ({"answer_id": "0" * 32, "verdict": "good", "user": "bo"}, 422),
        ({"answer_id": "0" * 32, "verdict": "good", "tenant": "globex"}, 403),
    ],
)
def test_other_bodies_are_refused(open_house: House, ana: str, body: dict[str, Any], status: int) -> None:
    problem(open_house.post("/v1/feedback", ana, body), status, "forbidden" if status == 403 else "invalid-input")


def test_a_reader_s_role_is_needed(open_house: House) -> None:
    problem(tell(open_house, open_house.key("acme", "ed", Role.INGEST), "0" * 32, "good"), 403, "forbidden")
