"""What a folder with a verifier has to be before anything in it is used."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import torch
from safetensors.torch import save_file

from cache.verifier.artefact import MANIFEST, TOKENIZER, WEIGHTS, file_sha256, read_artefact, write_manifest
from cache.verifier.pair import PairVerifier
from tenancy.errors import Corrupt, InvalidInput, StrongroomError
from tests.cache.verifier.small import SHAPE, small_verifier


def test_an_untouched_folder_loads_and_its_revision_is_that_of_its_contents(tmp_path: Path) -> None:
    small_verifier(tmp_path / "one")
    small_verifier(tmp_path / "same")
    small_verifier(tmp_path / "other", seed=4)
    revisions = [read_artefact(tmp_path / name).revision for name in ("one", "same", "other")]
    assert revisions[0] == revisions[1] != revisions[2]
    assert revisions[0].startswith("verifier-")
    assert PairVerifier(tmp_path / "one").threshold == 0.9


def test_another_threshold_is_another_revision(tmp_path: Path) -> None:
    manifest = small_verifier(tmp_path)
    before = read_artefact(tmp_path).revision
    write_manifest(tmp_path, msgspec.structs.replace(manifest, threshold=0.8))
    assert read_artefact(tmp_path).revision != before


def _flip(name: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        raw = bytearray((folder / name).read_bytes())
        raw[-2] ^= 1
        (folder / name).write_bytes(raw)

    return change


def _edit(**changes: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        found = json.loads((folder / MANIFEST).read_text())
        (folder / MANIFEST).write_text(json.dumps(found | changes))

    return change


def _refit(folder: Path) -> None:
    """Weights of other sizes under a manifest whose digests are right."""
    manifest = small_verifier(folder, shape=msgspec.structs.replace(SHAPE, layers=1))
    write_manifest(folder, msgspec.structs.replace(manifest, shape=SHAPE))


def _pickled(folder: Path) -> None:
    torch.save({"words.weight": torch.zeros(2)}, folder / "pytorch_model.bin")


def _no_weights_inside(folder: Path) -> None:
    manifest = small_verifier(folder)
    torch.save({"words.weight": torch.zeros(2)}, folder / WEIGHTS)
    files = manifest.files | {WEIGHTS: file_sha256(folder / WEIGHTS)}
    write_manifest(folder, msgspec.structs.replace(manifest, files=files))


def _other_tensors(folder: Path) -> None:
    manifest = small_verifier(folder)
    save_file({"strange": torch.zeros(2)}, folder / WEIGHTS)
    files = manifest.files | {WEIGHTS: file_sha256(folder / WEIGHTS)}
    write_manifest(folder, msgspec.structs.replace(manifest, files=files))


@pytest.mark.parametrize(
    ("damage", "error", "item", "reason"),
    [
        (_flip(WEIGHTS), Corrupt, WEIGHTS, "SHA-256"),
        (_flip(TOKENIZER), Corrupt, TOKENIZER, "SHA-256"),
        (lambda folder: (folder / WEIGHTS).unlink(), Corrupt, WEIGHTS, "missing"),
        (lambda folder: (folder / MANIFEST).unlink(), InvalidInput, "", "no manifest.json"),
        (lambda folder: (folder / MANIFEST).write_text("{"), Corrupt, MANIFEST, "cannot be read"),
        (_edit(format="strongroom-verifier-0"), InvalidInput, MANIFEST, "another format"),
        (_edit(files={}), Corrupt, MANIFEST, "does not name exactly"),
        (_edit(threshold=1.5), Corrupt, MANIFEST, "threshold"),
        (_edit(extra=1), Corrupt, MANIFEST, "extra"),
        (_pickled, InvalidInput, "pytorch_model.bin", "pickled"),
        (_no_weights_inside, Corrupt, WEIGHTS, "do not fit"),
        (_other_tensors, Corrupt, WEIGHTS, "do not fit"),
        (_refit, Corrupt, WEIGHTS, "do not fit"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_folder_that_is_not_what_its_manifest_says_is_refused(
    tmp_path: Path, damage: Callable[[Path], object], error: type[StrongroomError], item: str, reason: str
) -> None:
    small_verifier(tmp_path)
    damage(tmp_path)
    with pytest.raises(error, match=reason) as caught:
        PairVerifier(tmp_path)
    assert (caught.value.item or "").endswith(item)
    assert caught.value.remedy


def test_sizes_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    manifest = small_verifier(tmp_path)
    write_manifest(tmp_path, msgspec.structs.replace(manifest, shape=msgspec.structs.replace(SHAPE, heads=3)))
    with pytest.raises(Corrupt, match="contradict"):
        PairVerifier(tmp_path)
