"""A verifier small enough to be made in a test: two layers of random weights over a few words."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.normalizers import Lowercase
from tokenizers.pre_tokenizers import Whitespace

from cache.verifier.artefact import FORMAT, TOKENIZER, WEIGHTS, Calibration, Manifest, file_sha256, write_manifest
from cache.verifier.model import PairModel
from cache.verifier.shape import Shape

WORDS = "[PAD] [UNK] [CLS] [SEP] how do i close open my account the card lock ? what is a limit of 5 6".split()  # noqa: SIM905
SHAPE = Shape(layers=2, hidden=16, heads=2, intermediate=32, vocabulary=len(WORDS), positions=40, window=32)


def small_verifier(folder: Path, *, shape: Shape = SHAPE, seed: int = 3) -> Manifest:
    """Write the folder; the manifest that stands in it."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(seed)
    save_file(PairModel(shape).state_dict(), folder / WEIGHTS)
    tokenizer = Tokenizer(WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.normalizer = Lowercase()
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(folder / TOKENIZER))
    manifest = Manifest(
        format=FORMAT,
        files={name: file_sha256(folder / name) for name in (WEIGHTS, TOKENIZER)},
        shape=shape,
        calibration=Calibration(slope=1.5, offset=-0.25),
        threshold=0.9,
        training={"sets": ["generated"]},
        evaluation={},
    )
    write_manifest(folder, manifest)
    return manifest
