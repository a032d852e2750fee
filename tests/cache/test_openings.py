"""Openings: who, when, why, and only with a reason."""

from __future__ import annotations

from typing import Any

import pytest

from cache.openings import Opening, close_template, open_template, opening, openings
from tenancy.errors import InvalidInput, NotFound
from tests.support.people import Company

GOOD: dict[str, Any] = {"threshold": 0.9, "opened_by": "ana", "reason": "trial", "now": 5.0}


def test_open_change_list_and_close(acme: Company, globex: Company) -> None:
    with acme.handle.writing() as view:
        open_template(view, "default", **GOOD)
        open_template(view, "default", **GOOD | {"threshold": 0.95, "now": 6.0})
        open_template(view, "brief", **GOOD)
    with acme.handle.reading() as view:
        assert opening(view, "default") == Opening("default", 0.95, "ana", 6.0, "trial")
        assert [found.template for found in openings(view)] == ["brief", "default"]
        assert opening(view, "other") is None
    with globex.handle.reading() as view:
        assert openings(view) == []
    with acme.handle.writing() as view:
        close_template(view, "default")
        assert opening(view, "default") is None
        assert opening(view, "brief") is not None
    with acme.handle.writing() as view, pytest.raises(NotFound):
        close_template(view, "default")


@pytest.mark.parametrize(
    "wrong", [{"threshold": 0.49}, {"threshold": 1.01}, {"threshold": float("nan")}, {"opened_by": " "}, {"reason": ""}]
)
def test_an_opening_without_decision_is_refused(acme: Company, wrong: dict[str, Any]) -> None:
    with acme.handle.writing() as view:
        with pytest.raises(InvalidInput):
            open_template(view, "default", **GOOD | wrong)
        open_template(view, "default", **GOOD)
