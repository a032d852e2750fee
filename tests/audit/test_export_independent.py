"""What an export says of its tree, beside an implementation of RFC 6962 that is not ours (pymerkle)."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from pymerkle import InmemoryTree

from audit.export import export
from audit.log import AuditLog
from audit.offline.manifest import Manifest, Row
from audit.offline.notes import Tree
from tests.audit.test_export import fill
from tests.audit.test_merkle import frontier_of


def independent(records: list[bytes]) -> InmemoryTree:
    tree = InmemoryTree(algorithm="sha256")
    for record in records:
        tree.append(record)
    return tree


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=80))
def test_the_verifier_and_the_log_build_the_tree_of_the_standard(records: list[bytes]) -> None:
    other = independent(records)
    tree = Tree()
    for size, record in enumerate(records, 1):
        tree.add(other.hash_leaf(record))
        assert tree.root() == other.get_state(size)
    assert frontier_of(records).root() == tree.root()


def test_exported_bytes_give_the_signed_roots(log: AuditLog, tmp_path: Path) -> None:
    folder = tmp_path / "export"
    for count in (5, 300, 1, 210):
        fill(log, count)
        export(log, folder, part_records=100)
    lines = [line for part in sorted(folder.glob("records-*")) for line in part.read_bytes().splitlines(keepends=True)]
    records = [Row.read(line).payload or b"" for line in lines]
    other = independent(records)
    manifests = [Manifest.read(path.read_bytes()) for path in sorted(folder.glob("manifest-*"))]
    assert [found.size for found in manifests] == [5, 305, 306, 516]
    for found in manifests:
        assert found.note.root == other.get_state(found.size)
        described = json.loads((folder / f"manifest-{found.number:06}.json").read_bytes())
        for block in (block for part in described["parts"] for block in part["blocks"]):
            assert block in {independent(records[at : at + 256]).get_state().hex() for at in (0, 256)}
