"""Names, the encoding of tuples, key wrapping."""

from __future__ import annotations

import base64
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenancy.errors import AlreadyExists, Corrupt, InvalidInput
from tenancy.keys import RootKey, create_master_key, decrypt, encrypt, load_master_key
from tenancy.names import document_name, enc, mapped_controls, nfc_name

parts = st.lists(st.one_of(st.none(), st.binary(max_size=20)), max_size=5)


@given(parts, parts)
def test_two_different_tuples_never_share_an_encoding(one: list[bytes | None], two: list[bytes | None]) -> None:
    assert (enc(*one) == enc(*two)) == (one == two)


def test_absent_differs_from_empty_and_boundaries_count() -> None:
    assert enc(None) != enc("") != enc()
    assert enc("a", "bc") != enc("ab", "c")
    assert enc("é") == enc("e\u0301")


@pytest.mark.parametrize("text", ["", " a", "a ", "a\0b", "a\nb", "a\u200bb", "a\u202eb", "\ud800", "x" * 201])
def test_a_bad_name_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        nfc_name(text, "user")


@pytest.mark.parametrize("text", ["ana", "Zoë", "山田 太郎", "o'neil", "a" * 200, "ana@example.org"])
def test_a_good_name_stays(text: str) -> None:
    assert nfc_name(text, "user") == text


def test_two_spellings_are_one_name() -> None:
    assert nfc_name("Zoe\u0308", "user") == "Zoë"


def test_encryption_binds_text_key_and_purpose() -> None:
    sealed = encrypt(bytes(32), b"secret", b"a")
    assert decrypt(bytes(32), sealed, b"a") == b"secret"
    for key, text, associated in ((bytes(31) + b"1", sealed, b"a"), (bytes(32), sealed, b"b"), (bytes(32), b"", b"a")):
        with pytest.raises(Corrupt):
            decrypt(key, text, associated)
    assert encrypt(bytes(32), b"secret", b"a") != sealed


def test_a_wrapped_key_does_not_open_for_another_tenant_or_purpose() -> None:
    root = RootKey(bytes(range(32)))
    wrapped = root.wrap("t_1", "data", b"k" * 32)
    assert root.unwrap("t_1", "data", wrapped) == b"k" * 32
    for tenant, purpose in (("t_2", "data"), ("t_1", "audit")):
        with pytest.raises(Corrupt):
            root.unwrap(tenant, purpose, wrapped)


def test_a_master_key_file_is_private_and_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "master.key"
    made = create_master_key(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert load_master_key(path, None) == made
    with pytest.raises(AlreadyExists):
        create_master_key(path)
    assert "value" not in repr(made)


@pytest.mark.parametrize("text", ["", "short", base64.b64encode(b"x" * 31).decode(), "é" * 44])
def test_a_bad_master_key_says_what_is_wrong(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidInput, match="32 bytes"):
        load_master_key(None, text)
    with pytest.raises(InvalidInput, match="does not exist"):
        load_master_key(tmp_path / "none", None)


PERSIAN = "نامه\u200cهای می\u200cخواهم.pdf"
FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467\U0001f3fd\u200d\u2764\ufe0f\u200d\U0001f525 photo.jpg"


@pytest.mark.parametrize(
    "text", [PERSIAN, FAMILY, "क्\u200dष and क्\u200cष", "അവന്\u200d", " a.txt", "a ", "\u3000a", "a" * 1000]
)
def test_what_files_are_called_may_hold_joiners_in_their_place_and_blanks_at_its_ends(text: str) -> None:
    assert document_name(text) == text
    assert mapped_controls(text, lambda _: "!") == text
    if len(text) < 200:
        with pytest.raises(InvalidInput):
            nfc_name(text, "user")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("re\u200cport", "re!port"), ("re\u200dport", "re!port"), ("\u200ca", "!a"), ("نامه\u200c", "نامه!"),
        ("نامه\u200c\u200cها", "نامه!!ها"), ("\u0631\u200c\u0627", "\u0631!\u0627"), ("क्\u200c", "क्!"),
        ("\U0001f468\u200d", "\U0001f468!"), ("a\U0001f468\u200db", "a\U0001f468!b"), ("a\n", "a!"),
        ("\x1b[2J", "![2J"),
        ("a\u202eb", "a!b"), ("\u200e", "!"), ("a\tb", "a!b"), ("a\u2028b", "a!b"), ("a\xadb", "a!b"),
    ],
)  # fmt: skip
def test_elsewhere_what_nobody_sees_is_refused(text: str, shown: str) -> None:
    with pytest.raises(InvalidInput):
        document_name(text)
    assert mapped_controls(text, lambda _: "!") == shown


@pytest.mark.parametrize("text", ["", " ", "\u3000\u00a0", "\ud800", "x" * 1001])
def test_a_document_is_called_something(text: str) -> None:
    with pytest.raises(InvalidInput):
        document_name(text)
