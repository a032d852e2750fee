"""API keys: form, checksum, hash."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenancy.apikeys import (
    KEY_ID_LENGTH,
    MAX_KEY_LENGTH,
    SECRET_LENGTH,
    hash_secret,
    matches,
    mint,
    parse,
)
from tenancy.errors import InvalidInput, Unauthenticated

SERVER_KEY = bytes(range(32))
ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def test_minted_key_parses_to_its_parts() -> None:
    key = mint("test")
    parsed = parse(key.text)
    assert (parsed.env, parsed.key_id, parsed.secret) == ("test", key.key_id, key.secret)
    assert key.text.startswith(f"sr_test_{key.key_id}_")


def test_secret_has_at_least_160_random_bits_and_is_new_each_time() -> None:
    assert SECRET_LENGTH * 5 >= 160
    keys = [mint() for _ in range(200)]
    assert len({key.secret for key in keys}) == len({key.key_id for key in keys}) == 200
    assert {character for key in keys for character in key.secret} == set(ALPHABET)


def test_rotation_keeps_the_key_id_and_changes_the_secret() -> None:
    old = mint()
    new = mint(key_id=old.key_id)
    assert new.key_id == old.key_id
    assert new.secret != old.secret


@pytest.mark.parametrize("env", ["", "Live", "a_b", "x" * 17, "é", "live\n"])
def test_bad_environment_is_refused(env: str) -> None:
    with pytest.raises(InvalidInput):
        mint(env)


@pytest.mark.parametrize("key_id", ["", "short", "I" * KEY_ID_LENGTH, "0" * (KEY_ID_LENGTH + 1)])
def test_bad_key_id_is_refused(key_id: str) -> None:
    with pytest.raises(InvalidInput):
        mint(key_id=key_id)


@given(st.data())
def test_any_single_typo_or_swap_is_found_offline(data: st.DataObject) -> None:
    text = mint().text
    position = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.sampled_from(ALPHABET.replace(text[position], "")))
    swapped = position + 1 < len(text) and text[position] != text[position + 1]
    typed = [
        text[:position] + other + text[position + 1 :],
        text[:position] + text[position + 1 :],
        text[:position] + other + text[position:],
    ]
    if swapped:
        typed.append(text[:position] + text[position + 1] + text[position] + text[position + 2 :])
    assert parse(text)
    for wrong in typed:
        if wrong == text:
            continue
        with pytest.raises(Unauthenticated) as refused:
            parse(wrong)
        assert text.split("_")[3] not in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "sr",
        "sr____",
        "sr_live_x_y_z",
        "Bearer sr_live",
        "sr_live_" + "0" * MAX_KEY_LENGTH,
        "\x00",
        "\ud800",
        "sr_live_" + "é" * 16 + "_" + "0" * 40 + "_" + "0" * 7,
        "sr_live_" + "٣" * 16 + "_" + "0" * 40 + "_" + "0" * 7,
    ],
)
def test_malformed_text_is_unauthenticated_never_a_crash(text: str) -> None:
    with pytest.raises(Unauthenticated):
        parse(text)


@pytest.mark.parametrize("change", [str.upper, lambda text: text + "\n", lambda text: " " + text])
def test_another_spelling_is_not_the_key(change: Callable[[str], str]) -> None:
    text = mint().text
    assert parse(text)
    with pytest.raises(Unauthenticated):
        parse(change(text))


def test_hash_matches_only_its_own_key_id_secret_and_server_key() -> None:
    key, other = mint(), mint()
    stored = hash_secret(SERVER_KEY, key.key_id, key.secret)
    assert len(stored) == 32
    assert matches(stored, hash_secret(SERVER_KEY, key.key_id, key.secret))
    assert not matches(stored, hash_secret(SERVER_KEY, other.key_id, key.secret))
    assert not matches(stored, hash_secret(SERVER_KEY, key.key_id, other.secret))
    assert not matches(stored, hash_secret(bytes(32), key.key_id, key.secret))
    assert not matches(stored, b"")


def test_secret_does_not_show_in_representations() -> None:
    key = mint()
    assert key.secret not in repr(key)
    assert key.secret not in repr(parse(key.text))
    assert key.key_id in repr(key)
