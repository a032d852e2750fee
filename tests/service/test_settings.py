from __future__ import annotations

import re
from pathlib import Path

import pytest

from cache.policy import TemplatePolicy
from service.settings import default_text, known_keys, load_settings
from tenancy.errors import InvalidInput
from tests.layout.scope_rule import ROOT

EXAMPLES = sorted((ROOT / "configs" / "examples").glob("*.toml"))


def test_the_defaults_load_and_stay_on_this_machine() -> None:
    settings = load_settings(environment={})
    assert settings.server.host == "127.0.0.1"
    assert settings.generation.kind == "extractive"
    assert settings.issuers == ()


def test_every_line_of_the_defaults_has_a_comment() -> None:
    lines = [line for line in default_text().splitlines() if line.strip()]
    assert [line for line in lines if not re.search(r"# \S", line)] == []


def test_a_file_wins_over_the_defaults_and_the_environment_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "strongroom.toml"
    file.write_text("[server]\nport = 1111\nhost = '::1'\n[generation.templates]\nbrief = 'Be brief.'\n")
    environment = {"STRONGROOM_CONFIG": str(file), "STRONGROOM_SERVER__PORT": "2222"}
    settings = load_settings(environment=environment)
    assert (settings.server.port, settings.server.host) == (2222, "::1")
    assert settings.generation.templates == {"brief": "Be brief."}
    assert settings.server.max_body == load_settings(environment={}).server.max_body


def test_lists_and_sections_come_from_the_environment_as_toml() -> None:
    issuer = "[{iss = 'https://a.example', audience = 's', algorithms = ['RS256'], tenants = ['acme'], jwks = 'k'}]"
    settings = load_settings(
        environment={"STRONGROOM_ISSUERS": issuer, "STRONGROOM_SERVER__TRUSTED_PROXIES": "['10.0.0.1']"}
    )
    assert settings.issuers[0].iss == "https://a.example"
    assert settings.server.trusted_proxies == ("10.0.0.1",)


@pytest.mark.parametrize(
    ("variable", "nearest"),
    [
        ("STRONGROOM_SERVER__PROT", "server.port"),
        ("STRONGROOM_ADMISSION__USER__CONCURENT", "admission.user.concurrent"),
        ("STRONGROOM_DATADIR", "data_dir"),
    ],
)
def test_an_unknown_variable_is_an_error_that_names_the_nearest_key(variable: str, nearest: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(f"did you mean {nearest}?")) as caught:
        load_settings(environment={variable: "1"})
    assert caught.value.item == variable


def test_an_unknown_key_in_a_file_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text("[serve]\nport = 1\n")
    with pytest.raises(InvalidInput, match=r"unknown setting serve"):
        load_settings(file, {})
    file.write_text("[[issuers]]\niss = 'a'\naudiance = 'b'\n")
    with pytest.raises(InvalidInput, match=r"did you mean issuers\.audience\?"):
        load_settings(file, {})


@pytest.mark.parametrize("former", ['revision = "2026-01"', "[prices.hops.generate]\ncall = 1"])
def test_prices_of_older_settings_are_told_where_they_stand_now(tmp_path: Path, former: str) -> None:
    file = tmp_path / "s.toml"
    file.write_text(f"[prices]\n{former}\n")
    with pytest.raises(InvalidInput, match=r"no setting any more.*prices\.folder and a plan in prices\.plan") as caught:
        load_settings(file, {})
    assert caught.value.item == str(file)


@pytest.mark.parametrize(
    ("environment", "item"),
    [
        ({"STRONGROOM_SERVER__PORT": "many"}, "server.port"),
        ({"STRONGROOM_SERVER__PORT": "70000"}, "server.port"),
        ({"STRONGROOM_GENERATION__KIND": "magic"}, "generation.kind"),
        ({"STRONGROOM_SERVER__TRUSTED_PROXIES": "["}, "STRONGROOM_SERVER__TRUSTED_PROXIES"),
        ({"STRONGROOM_CONFIG": "/nowhere/at/all.toml"}, "/nowhere/at/all.toml"),
    ],
)
def test_a_value_that_does_not_fit_names_its_place(environment: dict[str, str], item: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        load_settings(environment=environment)
    assert caught.value.item == item


def test_kubernetes_service_variables_are_not_settings() -> None:
    load_settings(environment={"STRONGROOM_PORT": "tcp://10.0.0.1:80", "STRONGROOM_SERVICE_HOST": "10.0.0.1"})
    with pytest.raises(InvalidInput):
        load_settings(environment={"STRONGROOM_PORTS": "80"})


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_every_example_loads(example: Path) -> None:
    load_settings(example, {})


def test_the_list_of_keys_holds_nested_ones() -> None:
    keys = known_keys()
    assert {"data_dir", "server.port", "admission.user.concurrent", "issuers.iss"} <= set(keys)
    assert "server" not in keys


def test_a_template_of_the_cache_has_a_policy_of_its_own_and_the_rest_of_the_values() -> None:
    environment = {
        "STRONGROOM_GENERATION__TEMPLATES": '{brief = "Be brief."}',
        "STRONGROOM_CACHE__TEMPLATES": '{brief = {alpha = 0.05, modes = ["default"]}, default = {shadow = 0.2}}',
    }
    found = load_settings(environment=environment).cache.templates
    assert (found["brief"].alpha, found["brief"].modes, found["brief"].shadow) == (0.05, ("default",), 0.1)
    assert (found["default"].shadow, found["default"].probation) == (0.2, 2)
    assert load_settings(environment={}).cache.templates == {"default": TemplatePolicy()}


@pytest.mark.parametrize(
    ("policy", "item"),
    [
        ("{default = {alpha = 0}}", "cache.templates[...].alpha"),
        ("{default = {alpha = 1.0}}", "cache.templates[...].alpha"),
        ("{default = {shadow = 1.5}}", "cache.templates[...].shadow"),
        ("{default = {probation = -1}}", "cache.templates[...].probation"),
        ("{default = {modes = []}}", "cache.templates[...].modes"),
        ("{default = {modes = ['always']}}", "cache.templates[...].modes[0]"),
        ("{default = {personal = 'shared'}}", "cache.templates[...].personal"),
        ("{default = {ttl_s = 0}}", "cache.templates[...].ttl_s"),
        ("{default = {alpah = 0.05}}", "STRONGROOM_CACHE__TEMPLATES"),
        ("{brief = {alpha = 0.05}}", "cache.templates.brief"),
    ],
)
def test_a_policy_that_cannot_hold_is_refused_at_start(policy: str, item: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        load_settings(environment={"STRONGROOM_CACHE__TEMPLATES": policy})
    assert caught.value.item == item
    assert caught.value.remedy
