"""`strongroom audit replay`: past hits decided again; what refuses is named, and what is missing is not guessed."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import insert, update

from audit import hits
from audit.hits import past_hits, state_of
from audit.log import AuditLog
from audit.record import Event
from audit.record import encode as encode_event
from audit.tables import events, prunings
from cache.decision import Reason
from cache.guards import compare
from cache.openings import close_template, open_template
from cache.rungs import guards, personal
from cache.verdict import passed
from generation import templates
from retrieval import cached
from service.cli import run
from service.replay import replay
from tenancy import directory
from tenancy.errors import InvalidInput, NotFound, Unavailable
from tenancy.identity import Role
from tenancy.tenant import TenantHandle
from tests.service.house import House

NOTICE = "Notice periods. The notice period for employees is three months to the end of a quarter."
ASKED = "What is the notice period for employees?"
PARAPHRASE = "Which notice period is there for employees?"
OPPOSITE = "What is not the notice period for employees?"


@pytest.fixture
def house(folder: Path) -> Iterator[House]:
    """Semantic hits of the default template are served, and none is drawn or on probation; ana has asked."""
    made = House(
        folder, STRONGROOM_CACHE__TEMPLATES="{default = {shadow = 0.0, probation = 0, alpha = 0.05, score = 0.0}}"
    )
    with made.client:
        made.put("acme", "notice.md", NOTICE, allow=["group:staff"])
        with handle(made).writing() as view:
            open_template(view, "default", threshold=0.5, opened_by="operator", reason="test", now=0.0)
            directory.add_members(view, "staff", ["ana", "bo"], 0.0)
        assert ask(made, "ana", ASKED)["cache"]["status"] == "miss"
        yield made
    made.close()


def handle(house: House) -> TenantHandle:
    control = house.services.control
    return control.tenants.open(control.authenticator.operator("acme"))


def log_of(house: House) -> AuditLog:
    control = house.services.control
    return control.logs.of(control.authenticator.operator("acme"))


def ask(house: House, user: str, query: str, **more: Any) -> dict[str, Any]:
    response = house.post("/v1/answers", house.key("acme", user), {"query": query, **more})
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def hit(house: House, user: str = "bo", query: str = PARAPHRASE, kind: str = "semantic") -> dict[str, Any]:
    found = ask(house, user, query)
    assert (found["cache"]["status"], found["cache"]["kind"]) == ("hit", kind)
    return found


def again(house: House, **options: Any) -> dict[str, Any]:
    services = house.services
    path = options.pop("path", services.path)
    return replay(path, services.control, services.control.authenticator.operator("acme"), **options)


def events_of(house: House) -> list[Event]:
    """The hits on record."""
    log = log_of(house)
    return [hit.event for page in past_hits(log, state_of(log)) for hit in page.served]


def refusals(found: dict[str, Any]) -> list[tuple[str, str]]:
    (row,) = found["rows"]
    assert row["decision"] == "refused"
    return [(one["rung"], one["reason"]) for one in row["findings"] if one["verdict"] == "refuse"]


def reference(house: House, user: str) -> str:
    with handle(house).reading() as view:
        return log_of(house).subjects.ref(directory.find_user(view, user) or "")


def test_hits_that_hold_are_counted_and_not_listed(house: House) -> None:
    hit(house)
    hit(house, "bo", ASKED, "exact")
    found = again(house)
    assert (found["hits"], found["served_again"], found["refused"], found["open"]) == (2, 2, 0, 0)
    assert (found["rows"], found["refused_by"], found["missing"]) == ([], {}, {})
    assert found["as_of"]["size"] == log_of(house).head().size


def test_a_hit_that_laxer_guards_let_pass_is_refused_by_todays(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as before:
        before.setattr(guards, "compare", lambda *_: passed("guards"))
        served = hit(house, query=OPPOSITE)
    hit(house)
    assert guards.compare is compare
    found = again(house)
    assert (found["hits"], found["served_again"], found["refused"]) == (2, 1, 1)
    (refused,) = refusals(found)
    assert refused[0] == "guards"
    assert refused[1].startswith("polarity")
    row = found["rows"][0]
    assert (row["request"], row["user"], row["kind"]) == (served["request_id"], "bo", "semantic")
    assert row["then"]["similarity"] == pytest.approx(row["now"]["nearest"], abs=1e-5)
    assert found["refused_by"] == {"guards": 1}


def test_a_stricter_score_decides(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    hit(house)
    store = house.services.path.cache
    stricter = msgspec.structs.replace(store.policy.of("default"), score=1.0)
    monkeypatch.setattr(store, "policy", replace(store.policy, templates={"default": stricter}))
    found = again(house)
    # The operator's opening counts for every ladder, so that the score alone refuses.
    assert refusals(found) == [("score", "score too low")]
    assert 0 <= found["rows"][0]["now"]["score"] < 1


class Says:
    """A verifier that always says the same."""

    revision, threshold, timeout_s = "says-1", 0.5, 1.0

    def __init__(self, probability: float | None) -> None:
        self._probability = probability

    def probability(self, question: str, cached: str, *, within_s: float) -> float:
        if self._probability is None:
            raise Unavailable("away")
        return self._probability


@pytest.mark.parametrize(
    ("says", "verdict", "reason"),
    [(0.9, None, ""), (0.1, "refuse", "refused by the verifier"), (None, "unknown", "verifier failed")],
)
def test_a_verifier_decides_where_it_can(
    house: House, monkeypatch: pytest.MonkeyPatch, says: float | None, verdict: str | None, reason: str
) -> None:
    hit(house)
    path, store = house.services.path, house.services.path.cache
    unsure = msgspec.structs.replace(store.policy.of("default"), score=1.0)
    monkeypatch.setattr(store, "policy", replace(store.policy, templates={"default": unsure}))
    ladder = replace(path.ladder, verifier=Says(says), worth=0.0)
    found = again(house, path=replace(path, ladder=ladder))
    assert found["rules"]["verifier"] == "says-1"
    assert (found["served_again"], found["refused"], found["open"]) == {
        None: (1, 0, 0), "refuse": (0, 1, 0), "unknown": (0, 0, 1),
    }[verdict]  # fmt: skip
    said = [(one["rung"], one["verdict"], one["reason"]) for row in found["rows"] for one in row["findings"]]
    assert said == ([] if verdict is None else [("verifier", verdict, reason)])


def test_the_similarity_on_record_counts_for_its_own_model_alone(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    hit(house)
    embedder = house.services.path.embedders.default
    encoded: list[str] = []
    encode = embedder.encode_query
    monkeypatch.setattr(embedder, "encode_query", lambda text: encoded.append(text) or encode(text))
    assert (again(house)["served_again"], encoded) == (1, [])
    (event,) = events_of(house)
    other = msgspec.structs.replace(event, detail=event.detail | {"embedder": "em_another"})
    with log_of(house).database.writing() as connection:
        connection.execute(update(events).where(events.c.seq == event.seq).values(payload=encode_event(other)))
    assert again(house)["served_again"] == 1
    assert encoded == [PARAPHRASE, ASKED]


def test_a_raised_threshold_and_a_closed_template_refuse(house: House) -> None:
    hit(house)
    with handle(house).writing() as view:
        open_template(view, "default", threshold=0.99, opened_by="operator", reason="test", now=0.0)
    assert refusals(again(house)) == [("nearest", "below the threshold")]
    with handle(house).writing() as view:
        close_template(view, "default")
    assert refusals(again(house)) == [("standing", "no certificate, and not opened by an operator")]


def test_what_was_reported_wrong_stays_refused(house: House) -> None:
    served = hit(house)
    told = house.post(
        "/v1/feedback", house.key("acme", "bo"), {"answer_id": served["request_id"], "verdict": "wrong_hit"}
    )
    assert told.status_code == 200
    assert ("negatives", "reported as a wrong hit before") in refusals(again(house))


@pytest.mark.parametrize("kind", ["exact", "semantic"])
def test_documents_and_rights_are_those_of_today(house: House, kind: str) -> None:
    hit(house, "bo", ASKED if kind == "exact" else PARAPHRASE, kind)
    with handle(house).writing() as view:
        directory.remove_members(view, "staff", ["bo"])
    found = again(house)
    assert refusals(found) == [("freshness", "a document is not readable by the asker now")]
    assert found["rows"][0]["domain_changed"] is True
    with handle(house).writing() as view:
        directory.add_members(view, "staff", ["bo"], 0.0)
    assert again(house)["refused"] == 0
    house.put("acme", "notice.md", NOTICE + " Or four.", allow=["group:staff"])
    assert refusals(again(house)) == [("freshness", "a document changed")]
    gone = house.send("DELETE", "/v1/documents/notice.md", house.key("acme", "loader", Role.INGEST))
    assert gone.status_code in (200, 204), gone.text
    assert refusals(again(house)) == [("freshness", "a document is gone")]


def test_users_who_are_gone_are_named(house: House) -> None:
    hit(house)
    with handle(house).writing() as view:
        directory.delete_user(view, "ana")
    assert refusals(again(house)) == [("freshness", "the user whose question it answers was deleted")]
    with handle(house).writing() as view:
        directory.delete_user(view, "bo")
    assert refusals(again(house)) == [("freshness", "the asker is no user any more")]


def test_an_entry_that_was_older_than_todays_time_to_live_is_refused(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = house.services.path.cache
    now = store.clock()
    monkeypatch.setattr(store, "clock", lambda: now + 500)
    hit(house)
    assert again(house)["refused"] == 0
    policy = replace(store.policy, time_to_live=400.0)
    monkeypatch.setattr(store, "policy", policy)
    assert refusals(again(house)) == [("freshness", "expired")]


def test_erased_texts_are_named_and_nothing_is_guessed(house: House) -> None:
    hit(house)
    hit(house, "bo", ASKED, "exact")
    subjects = log_of(house).subjects
    assert subjects.destroy(reference(house, "ana")) == 1
    found = again(house)
    # The exact hit needs no other question than its own.
    assert (found["hits"], found["served_again"], found["open"], found["refused"]) == (2, 1, 1, 0)
    assert found["missing"] == {"origin erased": 2}
    (row,) = found["rows"]
    assert row["decision"] == "open"
    assert {one["rung"] for one in row["findings"]} >= {"guards", "score", "negatives"}
    assert {one["reason"] for one in row["findings"]} == {"origin missing"}
    subjects.destroy(reference(house, "bo"))
    found = again(house)
    assert (found["open"], found["served_again"]) == (2, 0)
    assert found["missing"] == {"origin erased": 2, "question erased": 2}
    # Rights need no text: they are still decided.
    with handle(house).writing() as view:
        directory.remove_members(view, "staff", ["bo"])
    assert again(house)["refused"] == 2


def test_a_pruned_origin_is_named(house: House) -> None:
    hit(house)
    log = log_of(house)
    (past,) = next(past_hits(log, state_of(log))).served
    assert past.origin is not None
    with log.database.writing() as connection:
        connection.execute(update(events).where(events.c.seq == past.origin.seq).values(payload=b""))
    found = again(house)
    assert (found["open"], found["missing"]) == (1, {"origin pruned": 1})
    assert ("freshness", "unknown") in [(one["rung"], one["verdict"]) for one in found["rows"][0]["findings"]]


def test_pruned_records_are_counted_and_not_among_the_hits(house: House) -> None:
    hit(house)
    assert again(house)["pruned"] == 0
    (event,) = events_of(house)
    log = log_of(house)
    with log.database.writing() as connection:
        bare = {"payload": b"", "phase": "", "cache_status": None}
        connection.execute(update(events).where(events.c.seq.between(1, event.seq)).values(bare))
        connection.execute(insert(prunings).values(first=1, last=event.seq, seq=event.seq + 2, ts=0.0))
    found = again(house)
    assert (found["hits"], found["pruned"]) == (0, event.seq)
    assert again(house, since=event.time)["pruned"] == 1
    assert again(house, until=0.0)["pruned"] == 0


def test_the_rights_of_a_token_are_not_guessed(house: House) -> None:
    hit(house)
    log = log_of(house)
    (past,) = next(past_hits(log, state_of(log))).served
    actor = msgspec.structs.replace(past.event.actor, method="jwt")
    with log.database.writing() as connection:
        payload = encode_event(msgspec.structs.replace(past.event, actor=actor))
        connection.execute(update(events).where(events.c.seq == past.event.seq).values(payload=payload))
    found = again(house)
    assert found["open"] == 1
    (finding,) = found["rows"][0]["findings"]
    assert finding == {"rung": "freshness", "verdict": "unknown", "reason": "the groups of a token are on no record"}
    house.put("acme", "notice.md", NOTICE + " Or four.", allow=["group:staff"])
    assert refusals(again(house)) == [("freshness", "a document changed")]


def test_personal_data_in_a_shared_exact_hit_is_refused(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    question = "What is the notice period for employees with the e-mail ana@acme.example?"
    with monkeypatch.context() as before:
        before.setattr(personal, "kind", lambda _: None)
        ask(house, "ana", question)
        hit(house, "ana", question, "exact")
        hit(house, "bo", question, "exact")
    found = again(house)
    assert (found["served_again"], found["refused"]) == (1, 1)
    assert found["rows"][0]["user"] == "bo"
    assert refusals(found) == [("cacheability", "personal data, and another user's answer")]


def test_a_withdrawn_template_refuses(house: House) -> None:
    with handle(house).writing() as view:
        templates.add(view, "brief", "Be brief.", 0.0)
    for user in ("ana", "bo"):
        ask(house, user, ASKED, template="brief")
    found = again(house)
    assert (found["hits"], found["served_again"]) == (1, 1)
    with handle(house).writing() as view:
        templates.withdraw(view, house.services.path.templates, "brief", None, 0.0)
    assert refusals(again(house)) == [("plan", "could not be asked today: not-found")]


def test_a_hit_that_did_not_leave_is_counted_apart(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as before:
        before.setattr(cached, "look_again", lambda *_: Reason.GONE)
        assert ask(house, "bo", PARAPHRASE)["cache"]["status"] == "miss"
    found = again(house)
    assert (found["hits"], found["withheld_then"]) == (0, 1)


def test_a_window_and_a_user_narrow_it(house: House) -> None:
    hit(house, "bo")
    hit(house, "ana", "Which notice period is there for the employees?")
    assert again(house)["hits"] == 2
    assert again(house, user="bo")["hits"] == 1
    last = max(event.time for event in events_of(house))
    assert (again(house, until=last)["hits"], again(house, since=last)["hits"]) == (1, 1)
    assert (again(house, since=0.0)["hits"], again(house, until=0.0)["hits"]) == (2, 0)
    with pytest.raises(NotFound):
        again(house, user="nobody")
    with pytest.raises(InvalidInput):
        again(house, since=2.0, until=1.0)


def test_looking_changes_nothing(house: House) -> None:
    hit(house)
    store, tenant = house.services.path.cache, handle(house)
    before, count = store.inspect(tenant, limit=10), len(house.events("acme"))
    again(house)
    assert store.inspect(tenant, limit=10) == before
    assert len(house.events("acme")) == count


def test_pages_are_read_to_the_end(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hits, "PAGE", 2)
    for _ in range(5):
        hit(house, "bo", ASKED, "exact")
    assert again(house)["hits"] == 5


Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture
def cli(house: House, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Commands beside the house's server, under its settings."""
    for name, value in {
        "DATA_DIR": str(folder / "data"),
        "MASTER_KEY": base64.b64encode(bytes(range(32))).decode(),
        "EMBEDDING__MODEL": "hashing:256",
        "CACHE__TEMPLATES": "{default = {shadow = 0.0, probation = 0, alpha = 0.05, score = 0.0}}",
    }.items():
        monkeypatch.setenv(f"STRONGROOM_{name}", value)

    def go(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()  # what the house's server said
        code = run(words)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return go


def test_the_command_is_on_record_and_shows_questions_only_where_asked(house: House, cli: Cli) -> None:
    hit(house)
    code, out, said = cli("audit", "replay", "--tenant", "acme", "--json")
    assert code == 0, said
    found = json.loads(out)
    # The command's score was fitted with another model than the hashed words of this test.
    assert refusals(found) == [("score", "score fitted with another embedding model")]
    assert "employees" not in out
    event = [one for one in house.events("acme") if one["action"] == "audit.replay"][-1]
    assert (event["outcome"], event["detail"]["hits"], event["detail"]["refused"]) == ("allowed", 1, 1)
    assert event["detail"]["questions"] is False
    code, out, said = cli("audit", "replay", "--tenant", "acme", "--questions")
    assert code == 0, said
    assert PARAPHRASE in out
    assert ASKED in out
    assert "1 hits: 0 would be served again, 1 refused now, 0 open" in out
    assert [one for one in house.events("acme") if one["action"] == "audit.replay"][-1]["detail"]["questions"] is True
    assert cli("audit", "replay", "--tenant", "acme", "--since", "yesterday")[0] == 2
