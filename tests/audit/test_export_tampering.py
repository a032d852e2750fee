"""What each way of tampering with an export looks like to somebody who has the key and, where it says so, an old
checkpoint: verdict and first bad record. `pytest -s` prints the table.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from audit import signers
from audit.checkpoints import checkpoint
from audit.export import export
from audit.log import AuditLog
from audit.merkle import Frontier, leaf_hash
from audit.notes import Signer, make, vkey
from audit.offline.check import check
from audit.offline.manifest import SIGNED
from audit.offline.verdict import Report
from tests.audit.test_export import fill, keys_of

PART = 400
"""Records a part; blocks are 256, so the parts' bounds fall into blocks."""


@dataclass
class Case:
    """A folder of two exports (records 0-999 and 1,000-1,499) with three parts and two."""

    folder: Path
    keys: list[str]
    old: str
    signer: Signer
    log: AuditLog

    def check(self, *, kept: bool = False) -> Report:
        return check(self.folder, self.keys, [self.old] if kept else [])

    def lines(self, first: int) -> tuple[Path, list[bytes]]:
        (path,) = self.folder.glob(f"records-{first:012}-*")
        return path, path.read_bytes().splitlines(keepends=True)

    def change(self, first: int, change: Callable[[list[bytes]], object]) -> None:
        path, lines = self.lines(first)
        change(lines)
        path.write_bytes(b"".join(lines))

    def manifest(self, number: int) -> Path:
        return self.folder / f"manifest-{number:06}.json"

    def rewrite(self, number: int, change: Callable[[dict[str, Any]], object], *, sign: bool) -> None:
        """Change a manifest; with `sign`, as somebody who holds the log's key."""
        body = json.loads(self.manifest(number).read_bytes())
        change(body)
        if sign:
            body["signature"] = ""
            bare = {name: value for name, value in body.items() if name != "signature"}
            body["signature"] = base64.b64encode(self.signer.private.sign(SIGNED + canonical(bare))).decode()
        self.manifest(number).write_bytes(canonical(body) + b"\n")


def canonical(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


@pytest.fixture
def case(log: AuditLog, tmp_path: Path) -> Case:
    folder = tmp_path / "export"
    fill(log, 600)
    old = checkpoint(log, force=True)
    assert old is not None
    fill(log, 400)
    export(log, folder, part_records=PART)
    fill(log, 500)
    export(log, folder, part_records=PART)
    return Case(folder, keys_of(log), old.note, signers.current(log), log)


def with_record(line: bytes, old: bytes, new: bytes, *, leaf: bool = False) -> bytes:
    """A line whose record was edited, and whose leaf was computed anew if `leaf`."""
    found = re.fullmatch(rb'(.*"record":)(.*)\}\n', line)
    assert found is not None
    assert old in found[2]
    changed = found[2].replace(old, new, 1)
    head = re.sub(rb'"leaf":"\w+"', b'"leaf":"%s"' % leaf_hash(changed).hex().encode(), found[1]) if leaf else found[1]
    return head + changed + b"}\n"


def leaf_of(line: bytes) -> bytes:
    return bytes.fromhex(json.loads(line)["leaf"])


def after(line: bytes, leaf: bytes) -> bytes:
    """The line as if it followed a record with this leaf."""
    return re.sub(rb'"prev":"\w+"', b'"prev":"%s"' % leaf.hex().encode(), line)


def edit_a_byte(case: Case) -> None:
    def change(lines: list[bytes]) -> None:
        lines[37] = with_record(lines[37], b"allowed", b"refused")

    case.change(400, change)


def edit_and_hash_anew(case: Case) -> None:
    def change(lines: list[bytes]) -> None:
        lines[37] = with_record(lines[37], b"allowed", b"refused", leaf=True)

    case.change(400, change)


def edit_hash_and_link_anew(case: Case) -> None:
    def change(lines: list[bytes]) -> None:
        lines[37] = with_record(lines[37], b"allowed", b"refused", leaf=True)
        lines[38] = after(lines[38], leaf_of(lines[37]))

    case.change(400, change)


def edit_before_the_kept_checkpoint(case: Case) -> None:
    """With an old checkpoint that does not agree either: the export's own signature says more exactly where."""

    def change(lines: list[bytes]) -> None:
        lines[190] = with_record(lines[190], b"intent", b"Intent", leaf=True)
        lines[191] = after(lines[191], leaf_of(lines[190]))

    case.change(400, change)


def edit_the_last_record(case: Case) -> None:
    def change(lines: list[bytes]) -> None:
        lines[-1] = with_record(lines[-1], b"allowed", b"refused", leaf=True)

    case.change(1400, change)


def garble_a_line(case: Case) -> None:
    def change(lines: list[bytes]) -> None:
        lines[37] = b"{}\n"

    case.change(400, change)


def renumber_a_line(case: Case) -> None:
    def change(lines: list[bytes]) -> None:
        lines[37] = lines[37].replace(b'{"seq":437', b'{"seq":440', 1)

    case.change(400, change)


def delete_a_record(case: Case) -> None:
    case.change(400, lambda lines: lines.pop(37))


def delete_and_close_the_gap(case: Case) -> None:
    def change(lines: list[bytes]) -> None:
        del lines[37]
        lines[37] = after(lines[37], leaf_of(lines[36]))
        for place in range(37, len(lines)):
            lines[place] = lines[place].replace(b'{"seq":%d' % (401 + place), b'{"seq":%d' % (400 + place), 1)

    case.change(400, change)


def swap_neighbours(case: Case) -> None:
    def change(lines: list[bytes]) -> None:
        lines[37], lines[38] = lines[38], lines[37]

    case.change(400, change)


def swap_records_of_two_parts(case: Case) -> None:
    _, others = case.lines(1000)

    def change(lines: list[bytes]) -> None:
        lines[37], others[5] = others[5], lines[37]

    case.change(400, change)
    case.lines(1000)[0].write_bytes(b"".join(others))


def swap_contents(case: Case) -> None:
    """Two records change places, and the numbers of the lines stay."""

    def change(lines: list[bytes]) -> None:
        one, two = json.loads(lines[37]), json.loads(lines[39])
        records = [re.sub(rb'^.*?"record":', b"", line) for line in (lines[39], lines[37])]
        for place, new, leaf in ((37, records[0], two["leaf"]), (39, records[1], one["leaf"])):
            head = re.sub(rb'"record":.*', b'"record":', lines[place], flags=re.DOTALL)
            lines[place] = re.sub(rb'"leaf":"\w+"', b'"leaf":"%s"' % leaf.encode(), head) + new

    case.change(400, change)


def replace_by_an_earlier_one(case: Case) -> None:
    def change(lines: list[bytes]) -> None:
        lines[37] = lines[30]

    case.change(400, change)


def put_a_record_in_twice(case: Case) -> None:
    case.change(400, lambda lines: lines.insert(37, lines[36]))


def fork(case: Case) -> None:
    """A second record of number 437, with a hash of its own, beside the one that was signed."""
    case.change(400, lambda lines: lines.insert(37, with_record(lines[37], b"allowed", b"refused", leaf=True)))


def add_at_the_end(case: Case) -> None:
    def change(lines: list[bytes]) -> None:
        added = with_record(lines[-1], b'"seq":1499', b'"seq":1500', leaf=True)
        lines.append(after(added.replace(b'{"seq":1499', b'{"seq":1500', 1), leaf_of(lines[-1])))

    case.change(1400, change)


def cut_the_last_part(case: Case) -> None:
    case.change(1400, lambda lines: lines.__delitem__(slice(60, None)))


def cut_the_last_part_within_a_line(case: Case) -> None:
    path, lines = case.lines(1400)
    path.write_bytes(b"".join(lines[:60]) + lines[60][:50])


def cut_a_part_in_the_middle(case: Case) -> None:
    case.change(400, lambda lines: lines.__delitem__(slice(60, None)))


def remove_a_part(case: Case) -> None:
    case.lines(400)[0].unlink()


def remove_the_last_part(case: Case) -> None:
    case.lines(1400)[0].unlink()


def empty_a_part(case: Case) -> None:
    case.lines(400)[0].write_bytes(b"")


def exchange_two_parts(case: Case) -> None:
    (one, first), (two, second) = case.lines(0), case.lines(400)
    one.write_bytes(b"".join(second))
    two.write_bytes(b"".join(first))


def drop_the_bytes_as_if_pruned(case: Case) -> None:
    def change(lines: list[bytes]) -> None:
        lines[37] = re.sub(rb'"record":.*', b'"pruned":true}\n', lines[37], flags=re.DOTALL)

    case.change(400, change)


def replay_an_old_manifest(case: Case) -> None:
    shutil.copy(case.manifest(1), case.manifest(2))


def remove_the_first_manifest(case: Case) -> None:
    case.manifest(1).unlink()


def change_a_number_in_a_manifest(case: Case) -> None:
    case.rewrite(2, lambda body: body.update(records=1), sign=False)


def change_a_digest_in_the_first_manifest(case: Case) -> None:
    case.rewrite(1, lambda body: body["parts"][0].update(sha256="0" * 64), sign=False)


def replace_the_checkpoint(case: Case) -> None:
    case.rewrite(2, lambda body: body.update(checkpoint=case.old), sign=False)


def replace_a_signature_of_a_checkpoint(case: Case) -> None:
    def change(body: dict[str, Any]) -> None:
        stranger = make(case.log.log_id, 1500, bytes(32), 0.0, [case.signer]).note
        body["checkpoint"] = body["checkpoint"].partition("\n\n")[0] + "\n\n" + stranger.partition("\n\n")[2]

    case.rewrite(2, change, sign=True)


def sign_another_first_manifest(case: Case) -> None:
    """By who holds the key, but without signing what follows anew."""
    case.rewrite(1, lambda body: body.update(made="2020-01-01T00:00:00Z"), sign=True)


def sign_a_checkpoint_of_another_tree(case: Case) -> None:
    def change(body: dict[str, Any]) -> None:
        body["checkpoint"] = make(case.log.log_id, 1500, bytes(32), 0.0, [case.signer]).note

    case.rewrite(2, change, sign=True)


def another_key(case: Case) -> None:
    case.keys = [vkey(case.signer.name, Ed25519PrivateKey.generate().public_key().public_bytes_raw())]


def nothing(case: Case) -> None:
    pass


def drop_the_newest_export(case: Case) -> None:
    """The folder as it was earlier: consistent in itself."""
    case.manifest(2).unlink()
    for first in (1000, 1400):
        case.lines(first)[0].unlink()


def write_the_log_anew(case: Case) -> None:
    """What the log's owner can do: other records from 100 on, all hashes and signatures anew."""
    tree, prev = Frontier(), b""
    manifests = [json.loads(case.manifest(number).read_bytes()) for number in (1, 2)]
    previous: dict[str, Any] | None = None
    for number, body in enumerate(manifests, 1):
        for part in body["parts"]:
            path, lines = case.lines(part["first"])
            blocks: list[str] = []
            for place, line in enumerate(lines):
                if tree.size == 101:
                    line = with_record(line, b"allowed", b"refused", leaf=True)
                lines[place] = after(line, prev) if tree.size else line
                prev = leaf_of(lines[place])
                blocks += [node.hash.hex() for node in tree.append(prev) if node.level == 8]
            path.write_bytes(b"".join(lines))
            part |= {"sha256": hashlib.sha256(b"".join(lines)).hexdigest(), "blocks": blocks}
        nodes = tree.to_bytes()
        changed = {
            "parts": body["parts"],
            "frontier": [nodes[at : at + 32].hex() for at in range(0, len(nodes), 32)],
            "last_leaf": prev.hex(),
            "checkpoint": make(case.log.log_id, tree.size, tree.root(), 0.0, [case.signer]).note,
            "previous": previous,
        }
        case.rewrite(number, lambda found, changed=changed: found.update(changed), sign=True)  # type: ignore[misc]
        data = case.manifest(number).read_bytes()
        previous = {"number": number, "size": tree.size, "sha256": hashlib.sha256(data).hexdigest(),
                    "signature": json.loads(data)["signature"]}  # fmt: skip


def forge_the_kept_checkpoint(case: Case) -> None:
    case.old = case.old.replace("\n600\n", "\n601\n")


TABLE: list[tuple[Callable[[Case], None], bool, str | None, int | None, int | None]] = [
    (nothing, False, None, None, None),
    (nothing, True, None, None, None),
    (edit_a_byte, False, "edited", 437, None),
    (edit_and_hash_anew, False, "forked", 437, None),
    (edit_hash_and_link_anew, False, "edited", 400, 511),
    (edit_before_the_kept_checkpoint, True, "edited", 512, 767),
    (edit_the_last_record, False, "edited", 1400, 1499),
    (garble_a_line, False, "edited", 437, None),
    (renumber_a_line, False, "edited", 437, None),
    (delete_a_record, False, "missing", 437, None),
    (delete_and_close_the_gap, False, "missing", 437, None),
    (swap_neighbours, False, "reordered", 437, None),
    (swap_records_of_two_parts, False, "reordered", 437, None),
    (swap_contents, False, "reordered", 437, None),
    (replace_by_an_earlier_one, False, "reordered", 437, None),
    (put_a_record_in_twice, False, "forked", 436, None),
    (fork, False, "forked", 437, None),
    (add_at_the_end, False, "forked", 1500, None),
    (cut_the_last_part, False, "truncated", 1460, 1499),
    (cut_the_last_part_within_a_line, False, "truncated", 1460, 1499),
    (cut_a_part_in_the_middle, False, "missing", 460, 799),
    (remove_a_part, False, "missing", 400, 799),
    (remove_the_last_part, False, "truncated", 1400, 1499),
    (empty_a_part, False, "missing", 400, 799),
    (exchange_two_parts, False, "reordered", 0, None),
    (drop_the_bytes_as_if_pruned, False, "missing", 437, None),
    (replay_an_old_manifest, False, "truncated", 1000, None),
    (remove_the_first_manifest, False, "missing", 0, None),
    (change_a_number_in_a_manifest, False, "edited", 1000, 1499),
    (change_a_digest_in_the_first_manifest, False, "edited", 0, 999),
    (replace_the_checkpoint, False, "edited", 1000, 1499),
    (replace_a_signature_of_a_checkpoint, False, "checkpoint", 1000, 1499),
    (sign_another_first_manifest, False, "forked", 0, 999),
    (sign_a_checkpoint_of_another_tree, False, "forked", 1000, 1499),
    (another_key, False, "untrusted", 0, 999),
    # What the holder of the key can do is seen with an old checkpoint alone.
    (drop_the_newest_export, False, None, None, None),
    (write_the_log_anew, False, None, None, None),
    (write_the_log_anew, True, "forked", 0, 599),
    (forge_the_kept_checkpoint, True, "checkpoint", None, None),
]


@pytest.fixture(scope="module")
def table() -> Iterator[list[str]]:
    rows: list[str] = []
    yield rows
    print("\n" + "\n".join(rows))


@pytest.mark.slow
def test_every_way_of_tampering_is_told_with_its_place(case: Case, tmp_path: Path, table: list[str]) -> None:
    original = tmp_path / "original"
    shutil.copytree(case.folder, original)
    keys, old = case.keys, case.old
    wrong = []
    for tamper, kept_checkpoint, kind, at, until in TABLE:
        shutil.rmtree(case.folder)
        shutil.copytree(original, case.folder)
        case.keys, case.old = keys, old
        tamper(case)
        finding = case.check(kept=kept_checkpoint).finding
        told = (None, None, None) if finding is None else (finding.kind, finding.at, finding.until)
        name = tamper.__name__.replace("_", " ") + (", with a kept checkpoint" if kept_checkpoint else "")
        place = "" if told[1] is None else f"{told[1]}" if told[2] is None else f"{told[1]} to {told[2]}"
        table.append(f"{name:58} {told[0] or 'ok':11} {place}")
        if told != (kind, at, until):
            wrong.append((name, told, finding))
    assert wrong == []


def test_a_kept_checkpoint_that_is_newer_than_the_export_shows_what_is_missing(case: Case) -> None:
    newer = checkpoint(case.log, force=True)
    assert newer is not None
    drop_the_newest_export(case)
    found = check(case.folder, case.keys, [case.old, newer.note])
    assert found.agreed == [600]
    assert found.finding is not None
    assert (found.finding.kind, found.finding.at, found.finding.until) == ("truncated", 1000, newer.size - 1)
