"""The admin listener beside a whole service: what it tells, to whom, and what it does not."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from litestar.testing import TestClient

from admission.shares import Share
from generation.occupancy import EngineUse
from service.admin import create_admin
from service.metrics.export import traces_of
from service.metrics.judge import ACTION, Judge
from service.metrics.objectives import LEAST
from service.metrics.seen import Seen
from tenancy.contract import Contract
from tenancy.errors import InvalidInput
from tenancy.objectives import Objectives
from tests.service.conftest import _MEMORY
from tests.service.house import House, problem

QUESTION = "How long is the notice period?"


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    with tempfile.TemporaryDirectory(dir=_MEMORY, prefix="strongroom-test-") as folder:
        found = House(Path(folder))
        with found.client:
            found.put("acme", "notice.md", "The notice period is three months.", allow=["tenant"])
            for query in (QUESTION, QUESTION, "What is the colour of the moon?"):
                assert found.post("/v1/answers", found.key("acme", "ana"), {"query": query}).status_code == 200
            yield found
        found.close()


@pytest.fixture(scope="module")
def admin(house: House) -> Iterator[httpx.Client]:
    with TestClient(create_admin(house.services, house.settings.server.admin)) as client:
        yield client


def test_a_tenant_has_its_signals(admin: httpx.Client) -> None:
    found = admin.get("/v1/admin/tenants/acme/signals").json()
    kept = found["kept"]
    assert (found["tenant"], found["isolation_violations"]) == ("acme", 0)
    assert (kept["questions"], kept["answered"], kept["availability"]) == (3, 3, 1.0)
    assert kept["total"]["count"] == 3
    # One was remembered, and one not to be found in the documents: neither waited for a model.
    assert kept["queue_wait"]["count"] == 1
    assert kept["retry_rate"] == pytest.approx(1 / 3)
    assert kept["total"]["p50"] <= kept["total"]["p95"] <= kept["total"]["p99"]
    assert 0 < kept["first_token"]["p50"] <= kept["total"]["p99"]


def test_a_tenant_that_there_is_none_of_is_not_found(admin: httpx.Client) -> None:
    problem(admin.get("/v1/admin/tenants/nobody/signals"), 404, "not-found")


def test_metrics_hold_no_question_no_answer_no_document_and_no_person(house: House, admin: httpx.Client) -> None:
    text = admin.get("/metrics").text
    assert 'strongroom_tenant_requests_total{fate="answered",tenant="acme"}' in text
    for word in ("notice", "moon", "three months", "ana", house.key("acme", "ana")):
        assert word not in text.replace("\n", " ").split('"'), word
    assert "moon" not in text
    assert "notice.md" not in text


@pytest.mark.parametrize("path", ["/metrics", "/v1/admin/tenants/acme/signals"])
def test_the_public_listener_has_none_of_it(house: House, path: str) -> None:
    problem(house.get(path, house.key("acme", "ana")), 404, "not-found")


@pytest.mark.parametrize("path", ["/metrics?tenant=acme", "/v1/admin/tenants/acme/signals?window=3"])
def test_parameters_are_refused(admin: httpx.Client, path: str) -> None:
    problem(admin.get(path), 400, "unknown-parameter")


def test_an_address_that_there_is_none_of_and_a_wrong_method(admin: httpx.Client) -> None:
    problem(admin.get("/v1/answers"), 404, "not-found")
    problem(admin.post("/metrics"), 405, "method-not-allowed")


class TestToken:
    TOKEN = "0123456789abcdef0123456789abcdef"

    def listener(self, house: House, folder: Path, text: str, **changes: Any) -> Any:
        file = folder / "token"
        file.write_text(text)
        settings = msgspec.structs.replace(house.settings.server.admin, token_file=str(file), **changes)
        return create_admin(house.services, settings)

    def test_it_is_asked_for(self, house: House, tmp_path: Path) -> None:
        with TestClient(self.listener(house, tmp_path, self.TOKEN + "\n", host="0.0.0.0")) as client:
            assert client.get("/metrics", headers={"Authorization": f"Bearer {self.TOKEN}"}).status_code == 200
            for headers in ({}, {"Authorization": f"Bearer {self.TOKEN[:-1]}"}, {"Authorization": self.TOKEN}):
                problem(client.get("/metrics", headers=headers), 401, "unauthenticated")
                problem(client.get("/v1/admin/tenants/acme/signals", headers=headers), 401, "unauthenticated")

    def test_others_are_never_served_without(self, house: House) -> None:
        settings = msgspec.structs.replace(house.settings.server.admin, host="0.0.0.0")
        with pytest.raises(InvalidInput, match="figures of every tenant"):
            create_admin(house.services, settings)

    @pytest.mark.parametrize("text", ["", "short", "two words that are long enough", "ä" * 40])
    def test_one_that_is_none_keeps_it_from_starting(self, house: House, tmp_path: Path, text: str) -> None:
        with pytest.raises(InvalidInput):
            self.listener(house, tmp_path, text)


class TestObjectives:
    def judged(self, house: House, objectives: Objectives, **given: Any) -> list[dict[str, Any]]:
        """What the log holds of a window of answers that took 30 s each."""
        house.key("strict", "ana")
        tenants = house.services.control.tenants
        tenants.set_contract("strict", Contract(objectives=objectives))
        record = tenants.show("strict")
        signals = house.services.signals
        then = signals.now - 2 * signals.windows.window_s
        for _ in range(LEAST):
            one = Seen(record.id, "strict", "answer", given.get("fate", "answered"), total_s=30.0)
            signals.windows.add(one, then)
        judge = Judge(house.services.control, signals, house.services.workers, lambda: given.get("shares", {}), list)
        before = len(house.events("strict"))
        found = asyncio.run(judge.look())
        assert asyncio.run(judge.look()) == []  # once
        events = [event for event in house.events("strict")[before:] if event["action"] == ACTION]
        assert len(found) == len(events)
        return events

    def test_a_breach_is_on_record_in_the_tenants_log(self, house: House) -> None:
        (event,) = self.judged(house, Objectives(p99_s=20.0, availability=0.9))
        assert event["detail"] | {"objective": "p99_s", "target": "20", "count": LEAST} == event["detail"]
        assert float(event["detail"]["found"]) == pytest.approx(30.0, rel=0.03)
        assert event["detail"]["until"] - event["detail"]["since"] >= 300

    def test_what_is_kept_is_not(self, house: House) -> None:
        assert self.judged(house, Objectives(p99_s=40.0, availability=0.9)) == []
        assert self.judged(house, Objectives()) == []

    def test_shares_and_use_of_the_engines_come_from_the_pools(self, house: House) -> None:
        tenant_id = house.services.control.tenants.show("acme").id
        judge = Judge(
            house.services.control,
            house.services.signals,
            house.services.workers,
            lambda: {tenant_id: Share(80.0, 100.0, 50.0), "t_gone": Share(1.0, 1.0, 0.0)},
            lambda: [("main", {tenant_id: EngineUse(1_500_000_000, 700), "t_gone": EngineUse(9, 9)})],
        )
        asyncio.run(judge.look())
        found = house.services.signals.report(tenant_id, "acme").kept
        assert (found.share_received, found.share_due, found.share) == (80.0, 100.0, 0.8)
        assert (found.engine_s, found.kv_peak_tokens) == (1.5, 700)


class TestTraces:
    def test_without_a_collector_there_are_none(self, house: House) -> None:
        assert traces_of(house.settings.signals.traces) is None

    @pytest.mark.parametrize(
        "endpoint", ["collector:4318", "ftp://collector/", "http://collector:4318/v1/traces", "https://a:b@collector/"]
    )
    def test_an_address_that_cannot_be_or_is_in_the_clear_is_refused(self, house: House, endpoint: str) -> None:
        settings = msgspec.structs.replace(house.settings.signals.traces, endpoint=endpoint)
        with pytest.raises(InvalidInput):
            traces_of(settings)
