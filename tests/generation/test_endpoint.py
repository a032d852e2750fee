"""Addresses of generators: what is accepted, what is refused and why."""

from __future__ import annotations

import pytest

from generation.endpoint import Endpoint, checked_url
from tenancy.errors import InvalidInput


def endpoint(url: str, *, plaintext: bool = False) -> Endpoint:
    return Endpoint(base_url=url, model="m", revision="r", plaintext=plaintext)


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("http://127.0.0.1:30000", "http://127.0.0.1:30000"),
        ("http://localhost:30000/v1/", "http://localhost:30000"),
        ("http://[::1]:30000/", "http://[::1]:30000"),
        ("https://engine.example/v1", "https://engine.example"),
        ("https://engine.example/team", "https://engine.example/team"),
    ],
)
def test_usable_addresses(url: str, base: str) -> None:
    assert checked_url(endpoint(url)) == base


@pytest.mark.parametrize(
    "url",
    [
        "http://engine.example",
        "http://10.0.0.7:30000",
        "http://127.0.0.1.example",
        "ftp://127.0.0.1",
        "engine:30000",
        "",
        "https://user:secret@engine.example",
        "https://engine.example?key=1",
        "https://",
        "https://engine.example:port",
        "http://[::1",
    ],
)
def test_unusable_addresses(url: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        checked_url(endpoint(url))
    assert "secret" not in str(refusal.value)


def test_a_private_network_can_be_permitted() -> None:
    assert checked_url(endpoint("http://10.0.0.7:30000", plaintext=True)) == "http://10.0.0.7:30000"


def test_keys_do_not_show() -> None:
    shown = repr(Endpoint(base_url="x", model="m", revision="r", api_key="secret-1", admin_key="secret-2"))
    assert "secret" not in shown


@pytest.mark.parametrize(("model", "revision"), [("", "r"), ("m", "")])
def test_a_model_and_its_revision_are_required(model: str, revision: str) -> None:
    with pytest.raises(InvalidInput):
        checked_url(Endpoint(base_url="http://127.0.0.1", model=model, revision=revision))
