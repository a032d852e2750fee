from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import structlog

from service.logs import Seldom, configure_logging


@contextmanager
def configured() -> Iterator[None]:
    """Not a fixture: the test runner has its own handlers, and its own standard error, in each of its phases."""
    root = logging.getLogger()
    before = (root.handlers, root.level)
    configure_logging()
    try:
        yield
    finally:
        root.handlers, root.level = before
        structlog.reset_defaults()


def raise_with_text() -> None:
    raise ValueError("private text of a document")


@pytest.mark.parametrize("library", ["structlog", "logging"])
def test_an_exception_is_logged_by_class_and_place_without_its_message(
    capsys: pytest.CaptureFixture[str], library: str
) -> None:
    with configured(), structlog.contextvars.bound_contextvars(request_id="r1"):
        log = structlog.get_logger("mine") if library == "structlog" else logging.getLogger("mine")
        try:
            raise_with_text()
        except ValueError:
            log.exception("failed")
    line = json.loads(capsys.readouterr().err)
    assert (line["event"], line["level"], line["logger"]) == ("failed", "error", "mine")
    assert (line["exception"], line["request_id"]) == ("ValueError", "r1")
    assert any("raise_with_text" in frame for frame in line["frames"])
    assert "private" not in json.dumps(line)


def test_a_line_is_one_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    with configured():
        structlog.get_logger("mine").info("request", status=200, tenant="acme")
    (line,) = capsys.readouterr().err.splitlines()
    assert json.loads(line)["tenant"] == "acme"


def test_a_message_that_repeats_passes_seldom() -> None:
    now = [0.0]
    seldom = Seldom(lambda: now[0])
    passed = []
    for moment, message in ((0, "a\n1"), (1, "a\n2"), (2, "b"), (3, "b"), (4, "a\n3"), (13, "a\n4"), (15, "a\n5")):
        now[0] = moment
        passed.append(seldom.filter(logging.makeLogRecord({"msg": message})))
    assert passed == [True, False, True, False, True, False, True]
