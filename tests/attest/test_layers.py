"""Each layer's examination: PASS of the service as it is, and FAIL or INCONCLUSIVE of one that is broken on purpose."""

from __future__ import annotations

import dataclasses
import secrets
from typing import Any

import msgspec
import pytest
import structlog
from sqlalchemy import bindparam, select

from cache.key import CompositeIdentity
from service.attest import cache, logs, retrieval, timing
from service.attest.stage import Stage
from tenancy import domain
from tenancy.prepared import Prepared
from tenancy.schema import labels
from tests.attest.place import Place, claim, confuse_tenants, logging_to, plain, verdicts

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def everybody_holds_everything(patch: pytest.MonkeyPatch) -> None:
    """Every user has every label of the tenant."""
    every = select(labels.c.id).where(bindparam("user") == bindparam("user"))
    patch.setattr(domain, "_BY_DIRECTORY", Prepared(every))


def without(patch: pytest.MonkeyPatch, part: str) -> None:
    """The cache's identity lacks a part, so that its namespaces are one."""
    original = CompositeIdentity.parts
    patch.setattr(CompositeIdentity, "parts", lambda self: original(dataclasses.replace(self, **{part: "any"})))


class TestRetrieval:
    def test_it_passes(self, stage: Stage) -> None:
        found = retrieval.examine(stage)
        assert found.verdict == "PASS", plain(found)
        assert claim(found, "of another tenant").probes >= 100
        assert all(one.controls and one.held == one.controls for one in found.claims)

    def test_tenants_that_are_confused_fail_it(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        confuse_tenants(monkeypatch, stage.pair)
        found = retrieval.examine(stage)
        assert claim(found, "of another tenant").verdict == "FAIL", plain(found)
        assert claim(found, "lists and addresses").verdict == "FAIL", plain(found)

    def test_labels_that_nobody_checks_fail_it(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        everybody_holds_everything(monkeypatch)
        found = retrieval.examine(stage)
        assert claim(found, "without its label").verdict == "FAIL", plain(found)
        assert claim(found, "of another tenant").verdict == "PASS", plain(found)

    def test_a_search_that_finds_nothing_shows_nothing(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        nobody = select(labels.c.id).where(bindparam("user") != bindparam("user"))
        monkeypatch.setattr(domain, "_BY_DIRECTORY", Prepared(nobody))
        found = retrieval.examine(stage)
        assert claim(found, "of another tenant").verdict == "INCONCLUSIVE", plain(found)
        assert claim(found, "without its label").verdict == "INCONCLUSIVE", plain(found)


class TestCache:
    def test_it_passes(self, stage: Stage) -> None:
        found = cache.examine(stage)
        said = verdicts(found)
        assert found.verdict == "PASS", plain(found)
        assert said.pop("a remembered answer is not served across: model") == "NOT BUILT"
        assert set(said.values()) == {"PASS"}

    @pytest.mark.parametrize(
        ("part", "across", "verdict"),
        [
            ("domain", "answer is not served across: user domain", "FAIL"),
            # What was made with another template is dropped behind the namespace, too: the control sees that.
            ("template_revision", "across: template", "INCONCLUSIVE"),
        ],
    )
    def test_an_identity_without_a_part_fails_it(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch, part: str, across: str, verdict: str
    ) -> None:
        without(monkeypatch, part)
        found = cache.examine(stage)
        assert claim(found, across).verdict == found.verdict == verdict, plain(found)
        if part == "domain":
            assert claim(found, "a paraphrase is not served across: user domain").verdict == "FAIL", plain(found)
        assert claim(found, "answer is not served across: tenant").against == 0

    def test_tenants_that_are_confused_fail_it(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        confuse_tenants(monkeypatch, stage.pair)
        found = cache.examine(stage)
        assert claim(found, "answer is not served across: tenant").verdict == "FAIL", plain(found)

    def test_a_cache_that_keeps_nothing_shows_nothing(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        # Every question has a namespace of its own.
        monkeypatch.setattr(CompositeIdentity, "parts", lambda _: (secrets.token_hex(),))
        found = cache.examine(stage)
        assert found.verdict == "INCONCLUSIVE", plain(found)
        assert "PASS" not in verdicts(found).values(), plain(found)

    def test_a_cache_that_is_off_is_not_built(self, stage: Stage) -> None:
        off = msgspec.structs.replace(
            stage.settings, cache=msgspec.structs.replace(stage.settings.cache, enabled=False)
        )
        without = dataclasses.replace(stage, settings=off)
        assert (cache.examine(without).verdict, timing.examine(without).verdict) == ("NOT BUILT", "NOT BUILT")


class TestLogs:
    def test_it_passes(self, stage: Stage, place: Place) -> None:
        with logging_to(place.log):
            found = logs.examine(with_log(stage, place))
        assert found.verdict == "PASS", plain(found)

    def test_tenants_that_are_confused_fail_it(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        confuse_tenants(monkeypatch, stage.pair)
        found = logs.examine(stage)
        assert claim(found, "holds its own tenant's").verdict == "FAIL", plain(found)

    def test_a_log_line_with_a_question_fails_it(
        self, stage: Stage, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with logging_to(place.log):
            confided = confiding(monkeypatch)
            found = logs.examine(with_log(stage, place))
        assert confided
        assert claim(found, "no log line").verdict == "FAIL", plain(found)

    def test_another_file_shows_nothing(self, stage: Stage, place: Place) -> None:
        place.log.write_text("nothing of this service\n")
        found = logs.examine(with_log(stage, place))
        assert claim(found, "no log line").verdict == "INCONCLUSIVE", plain(found)
        assert claim(logs.examine(stage), "no log line").verdict == "INCONCLUSIVE"


def with_log(stage: Stage, place: Place) -> Stage:
    return dataclasses.replace(stage, options=msgspec.structs.replace(stage.options, log=place.log))


def confiding(patch: pytest.MonkeyPatch) -> list[str]:
    """The answer path writes each question into the log."""
    from service.routes import answers

    said: list[str] = []
    original = answers.question_of

    def spoken(data: Any, request_id: str) -> Any:
        said.append(data.query)
        structlog.get_logger("strongroom.test").info("asked", query=data.query)
        return original(data, request_id)

    patch.setattr(answers, "question_of", spoken)
    return said
