"""A trained verifier on disk: a folder with `manifest.json`, `model.safetensors` and `tokenizer.json`.

The manifest holds the SHA-256 of the other two, the sizes of the model, calibration, threshold and what the model
was trained on. Its own digest is the revision, so nothing can change under evidence that was gathered before.
Nothing in the folder is executed: weights are read as safetensors, everything else as JSON.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Annotated, Final

import msgspec

from cache.verifier.shape import Shape
from tenancy.errors import Corrupt, InvalidInput, Unavailable

FORMAT: Final = "strongroom-verifier-1"
MANIFEST: Final = "manifest.json"
WEIGHTS: Final = "model.safetensors"
TOKENIZER: Final = "tokenizer.json"
_PICKLED: Final = frozenset({".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".joblib"})
_REMEDY: Final = "train it again with python -m benchmarks.train_verifier, or copy the whole folder again"


class Calibration(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Probability = 1 / (1 + exp(-(slope * logit + offset))) (Platt 1999)."""

    slope: Annotated[float, msgspec.Meta(gt=0)]
    offset: float


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`files` maps each file to its SHA-256 in hex.

    `training` (sets, rows, licences) and `evaluation` (what it served of held-out pairs) are for people.
    """

    format: str
    files: dict[str, str]
    shape: Shape
    calibration: Calibration
    threshold: Annotated[float, msgspec.Meta(gt=0, lt=1)]
    training: dict[str, object]
    evaluation: dict[str, object]


@dataclass(frozen=True, slots=True)
class Artefact:
    """The bytes here are those whose digests were compared: nothing is read from the folder again."""

    manifest: Manifest
    revision: str
    weights: bytes
    tokenizer: bytes


def read_artefact(folder: Path) -> Artefact:
    """Read a folder and compare every file with its digest.

    Raises `InvalidInput` where the folder is no verifier, `Corrupt` where a file is not the one of the manifest,
    `Unavailable` where a file cannot be read.
    """
    try:
        return _read(folder)
    except OSError as error:
        raise Unavailable(
            f"a file of the verifier cannot be read: {error.strerror}", item=str(folder), remedy="check its permissions"
        ) from None


def _read(folder: Path) -> Artefact:
    path = folder / MANIFEST
    if not path.is_file():
        raise InvalidInput("the folder holds no manifest.json of a verifier", item=str(folder), remedy=_REMEDY)
    for found in sorted(folder.iterdir()):
        if found.suffix.lower() in _PICKLED:
            raise InvalidInput(
                "a pickled file can run code when it is read and has no place in a verifier",
                item=str(found),
                remedy="remove it; weights are read from model.safetensors alone",
            )
    raw = path.read_bytes()
    try:
        manifest = msgspec.json.decode(raw, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupt(f"the manifest cannot be read: {error}", item=str(path), remedy=_REMEDY) from None
    if manifest.format != FORMAT:
        raise InvalidInput(
            f"the verifier has another format than {FORMAT}", item=str(path), remedy="train it with this program"
        )
    if manifest.files.keys() != {WEIGHTS, TOKENIZER}:
        raise Corrupt(f"the manifest does not name exactly {WEIGHTS} and {TOKENIZER}", item=str(path), remedy=_REMEDY)
    read = {name: _checked(folder / name, expected) for name, expected in manifest.files.items()}
    return Artefact(manifest, f"verifier-{sha256(raw).hexdigest()[:32]}", read[WEIGHTS], read[TOKENIZER])


def _checked(path: Path, expected: str) -> bytes:
    if not path.is_file():
        raise Corrupt("a file of the verifier is missing", item=str(path), remedy=_REMEDY)
    raw = path.read_bytes()
    if sha256(raw).hexdigest() != expected:
        raise Corrupt("the file does not have the manifest's SHA-256", item=str(path), remedy=_REMEDY)
    return raw


def write_manifest(folder: Path, manifest: Manifest) -> None:
    (folder / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=2))


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()
