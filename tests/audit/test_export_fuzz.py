"""No change of a single byte of an export goes unnoticed, and none stops the verifier."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audit.offline.check import check
from audit.offline.manifest import Manifest
from tests.layout.scope_rule import ROOT

EXAMPLE = ROOT / "docs/audit-format-example"
KEY = json.loads((EXAMPLE / "manifest-000001.json").read_bytes())["keys"][0]["vkey"]
FILES = sorted(path.name for path in EXAMPLE.iterdir())
SAMPLE = 100
"""Places in each file; all of them hold too, and take a minute."""


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_no_change_of_a_byte_goes_unnoticed(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "export"
    shutil.copytree(EXAMPLE, folder)
    data = (EXAMPLE / name).read_bytes()
    chance = random.Random(name)
    unnoticed = []
    for place in chance.sample(range(len(data)), SAMPLE):
        other = chance.choice([byte for byte in range(256) if byte != data[place]])
        changed = data[:place] + bytes([other]) + data[place + 1 :]
        (folder / name).write_bytes(changed)
        if check(folder, [KEY]).finding is None:
            unnoticed.append((place, data[place], other))
    assert unnoticed == []


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_no_missing_or_added_byte_goes_unnoticed(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "export"
    shutil.copytree(EXAMPLE, folder)
    data = (EXAMPLE / name).read_bytes()
    for place in [*range(0, len(data), 71), len(data)]:
        for changed in (data[:place], data[:place] + b"\n" + data[place:], data[:place] + data[place + 1 :]):
            (folder / name).write_bytes(changed)
            assert changed == data or check(folder, [KEY]).finding is not None


_VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 1 << 70), st.floats(), st.text(max_size=5), st.just([]), st.just({}),
    st.just([[]]), st.just([{}]), st.just({"sha256": 5}),
)  # fmt: skip


def paths(value: object, prefix: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [*([prefix] if prefix else []), *(found for name, one in inside for found in paths(one, (*prefix, name)))]


PLACES = paths(json.loads((EXAMPLE / "manifest-000002.json").read_bytes()))


@settings(max_examples=200)
@given(st.sampled_from(PLACES), _VALUES)
def test_whatever_stands_in_a_manifest_is_read_or_refused(place: tuple[Any, ...], value: object) -> None:
    body = json.loads((EXAMPLE / "manifest-000002.json").read_bytes())
    target = body
    for name in place[:-1]:
        target = target[name]
    target[place[-1]] = value
    data = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")
    try:
        Manifest.read(data + b"\n")
    except ValueError:
        return
