"""The dashboard and the alert rules name series that a server has, with labels that these have."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from service.metrics.families import Families
from tests.layout.scope_rule import ROOT

_NAME = re.compile(r"\bstrongroom_\w+")
_GROUPED = re.compile(r"by \(([^)]*)\)")
_BUILT_IN = {"instance", "job", "le"}


def rules() -> list[dict[str, Any]]:
    loaded = yaml.safe_load((ROOT / "configs/prometheus/alerts.yml").read_text(encoding="utf-8"))
    return [rule for group in loaded["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((ROOT / "configs/grafana/strongroom.json").read_text())["panels"]
    return found


def queries() -> Iterator[str]:
    yield from (rule["expr"] for rule in rules())
    yield from (target["expr"] for panel in panels() for target in panel["targets"])


@pytest.mark.parametrize("query", list(queries()))
def test_a_query_names_series_and_labels_that_there_are(query: str) -> None:
    families = Families(1)
    assert set(_NAME.findall(query)) <= set(families.names())
    labels = {label for metric in families.declared for label in metric._labelnames} | _BUILT_IN
    grouped = {name.strip() for names in _GROUPED.findall(query) for name in names.split(",")}
    matched = set(re.findall(r"(\w+)=~?\"", query))
    assert grouped | matched <= labels
    assert query.count("(") == query.count(")")


def test_every_family_that_names_a_tenant_is_shown() -> None:
    text = " ".join(queries())
    assert [family._name for family in Families(1).by_tenant if family._name not in text] == []


def test_alerts_have_a_severity_and_a_sentence_and_panels_do_not_overlap() -> None:
    for rule in rules():
        assert rule["labels"]["severity"] in {"page", "ticket"}
        assert rule["annotations"]["summary"]
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels()]
    assert len(set(places)) == len(places) == len({panel["id"] for panel in panels()})


def test_the_scraped_port_is_the_default_of_the_admin_listener() -> None:
    from service.settings import load_settings

    loaded = yaml.safe_load((ROOT / "configs/prometheus/prometheus.yml").read_text(encoding="utf-8"))
    (job,) = loaded["scrape_configs"]
    assert job["static_configs"] == [{"targets": [f"127.0.0.1:{load_settings(environment={}).server.admin.port}"]}]
    assert loaded["rule_files"] == ["alerts.yml"]
