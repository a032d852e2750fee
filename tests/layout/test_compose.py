"""compose.yaml parses against the Compose specification, and each command by the program that will read it."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

import pytest
import yaml
from compose_spec import PyCompose

from tests.layout.scope_rule import ROOT

TEXT = (ROOT / "compose.yaml").read_text(encoding="utf-8")
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(TEXT)["services"]


def test_the_file_is_a_valid_compose_specification() -> None:
    # YAML merge keys are resolved first, as Compose itself does.
    spec = PyCompose.from_json(json.dumps(yaml.safe_load(TEXT))).to_spec()
    assert set(spec.services or {}) == {"strongroom", "sglang", "qdrant", "redis", "postgres", "milvus"}


def test_the_checker_does_refuse_an_unknown_key() -> None:
    with pytest.raises(Exception, match="imagee"):
        PyCompose.from_yaml("services:\n  a:\n    imagee: x\n").to_spec()


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_each_service_is_pinned_checked_and_bounded(name: str) -> None:
    service = SERVICES[name]
    assert re.fullmatch(r"[\w./-]+:v?\d+\.\d+(\.\d+)?[\w.-]*", service["image"]), service["image"]
    assert "healthcheck" in service
    assert "mem_limit" in service
    assert "pids_limit" in service
    assert service["networks"]


def test_only_the_service_is_reachable_and_only_from_this_machine() -> None:
    ports = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert ports == {"strongroom": ["127.0.0.1:8080:8080"]}
    networks = yaml.safe_load(TEXT)["networks"]
    assert [name for name, network in networks.items() if not network.get("internal")] == ["edge"]
    assert [name for name, service in SERVICES.items() if "edge" in service["networks"]] == ["strongroom"]


def test_no_secret_stands_in_the_file() -> None:
    for name, service in SERVICES.items():
        for key, value in service.get("environment", {}).items():
            secret = any(word in key for word in ("KEY", "PASSWORD", "SECRET", "TOKEN"))
            assert not secret or key.endswith("_FILE"), f"{name}: {key}"
            assert "secret" not in str(value) or str(value).startswith("/run/secrets/")


def test_optional_servers_are_profiles() -> None:
    assert SERVICES["milvus"]["profiles"] == ["milvus"]
    assert SERVICES["postgres"]["profiles"] == ["postgres"]


def test_the_service_command_parses() -> None:
    from service.cli import app

    command, bound, _ = app.parse_args(SERVICES["strongroom"]["command"][1:], exit_on_error=False, print_error=False)
    assert command.__name__ == "serve"
    assert "compose.toml" in str(bound.arguments)


@pytest.mark.parametrize("name", ["sglang", "redis"])
def test_shell_commands_are_one_exec_with_secrets_by_file(name: str) -> None:
    (line,) = SERVICES[name]["command"]
    words = shlex.split(line.replace("$$", "$"))
    assert words[0] == "exec"
    assert "$(cat /run/secrets/" in line.replace("$$", "$")


def test_the_generator_keeps_first_come_first_served_and_both_keys() -> None:
    (line,) = SERVICES["sglang"]["command"]
    words = shlex.split(line.replace("$$", "$"))
    assert words[words.index("--schedule-policy") + 1] == "fcfs"
    assert "--api-key" in words
    assert "--admin-api-key" in words


def test_redis_never_evicts() -> None:
    (line,) = SERVICES["redis"]["command"]
    assert "--maxmemory-policy noeviction" in line
