"""Counting tokens: with the model's own tokenizer where its file is at hand, else by an estimate that errs upwards."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import regex

from tenancy.errors import InvalidInput

ESTIMATE = "estimate-1"

_LETTERS = regex.compile(r"[A-Za-z]+")
_SPACES = regex.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class Counter:
    """`name` identifies the tokenizer in cache keys: a digest of its file, or that of the estimate."""

    name: str
    count: Callable[[str], int]


def load_counter(path: Path | None) -> Counter:
    """The tokenizer in `path` (a `tokenizer.json`, or a folder with one); without a path, the estimate.

    Raises `InvalidInput` for a path that holds no readable tokenizer.
    """
    if path is None:
        return Counter(ESTIMATE, estimate)
    file = path / "tokenizer.json" if path.is_dir() else path
    from tokenizers import Tokenizer  # slow to import, and needed only here

    try:
        data = file.read_bytes()
        tokenizer = Tokenizer.from_buffer(data)
        tokenizer.no_truncation()  # a file may carry the limits of its training
        tokenizer.no_padding()
    except (OSError, ValueError) as error:
        raise InvalidInput(
            "no tokenizer could be read", item=str(file), remedy="give the folder that holds the model's tokenizer.json"
        ) from error
    return Counter(
        f"sha256:{hashlib.sha256(data).hexdigest()}",
        lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids),
    )


def estimate(text: str) -> int:
    """An upper estimate for byte-pair tokenizers of 30,000 entries or more.

    A run of English letters costs a token for every four, at least one; a digit or an ASCII sign one; a run of white
    space one; any other character half its UTF-8 bytes (a Chinese character 1.5, an emoji 2).
    """
    letters = sum(math.ceil(len(match.group()) / 4) for match in _LETTERS.finditer(text))
    spaces = sum(1 for _ in _SPACES.finditer(text)) // 4
    signs = sum(1 for character in text if character.isascii() and not character.isalpha() and not character.isspace())
    other = sum(len(character.encode("utf-8", "replace")) for character in text if not character.isascii())
    return letters + spaces + signs + math.ceil(other / 2)
