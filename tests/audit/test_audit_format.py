"""The published format: its worked example is what the program of that page, and the verifier, find it to be."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from audit.offline.chain import rotation
from audit.offline.check import check
from audit.offline.manifest import Manifest, Row
from audit.rotation import statement
from tests.layout.scope_rule import ROOT

PAGE = (ROOT / "docs/audit-format.md").read_text(encoding="utf-8")
EXAMPLE = ROOT / "docs/audit-format-example"
INDENTED = re.findall(r"^    (.+)$", PAGE.partition("## A worked example")[2].partition("```")[0], re.MULTILINE)


def test_the_program_of_the_page_finds_the_root() -> None:
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    done = subprocess.run([sys.executable, "-I", "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"The root of all six is `{done.stdout.strip()}`" in PAGE


def test_the_example_verifies_with_the_key_of_the_page() -> None:
    found = check(EXAMPLE, [INDENTED[0]])
    assert found.finding is None
    assert (found.size, found.pruned, found.exports, found.unnamed) == (6, 2, 2, [])
    assert f"`{found.root}`" in PAGE


def test_the_record_of_the_page_has_the_leaf_of_the_page() -> None:
    leaf = hashlib.sha256(b"\x00" + INDENTED[1].encode()).hexdigest()
    assert f"The leaf of record 5 is `{leaf}`" in PAGE
    rows = [Row.read(line) for part in sorted(EXAMPLE.glob("records-*")) for line in part.read_bytes().splitlines(True)]
    assert (rows[5].payload, rows[5].leaf.hex()) == (INDENTED[1].encode(), leaf)


def test_a_change_of_the_key_is_stated_as_the_page_says() -> None:
    newest = Manifest.read((EXAMPLE / "manifest-000002.json").read_bytes())
    old, new = newest.keys
    said = rotation(newest.log, old.key.public, new.key.public)
    assert said == statement(newest.log, old.key.public, new.key.public)
    Ed25519PublicKey.from_public_bytes(old.key.public).verify(new.signature, said)


@pytest.mark.parametrize("number", [1, 2])
def test_the_page_names_every_field_of_a_manifest(number: int) -> None:
    found = json.loads((EXAMPLE / f"manifest-{number:06}.json").read_bytes())
    names = {*found, *found["parts"][0], *found["keys"][0], *(found["previous"] or {})}
    table = PAGE.partition("| field | meaning |")[2].partition("\n\n")[0]
    assert [name for name in names if f"`{name}`" not in table] == []
