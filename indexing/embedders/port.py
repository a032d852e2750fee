"""What an embedding model is to the rest of the product."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import msgspec
import numpy as np
import numpy.typing as npt

from tenancy.errors import InvalidInput

Dtype = Literal["float32", "bfloat16", "float16"]
Vectors = npt.NDArray[np.float32]

DEFAULT_MODEL = "packaged:all-MiniLM-L6-v2"


class EmbeddingSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which model embeds, and how.

    `model` is `packaged:all-MiniLM-L6-v2`, `hashing:<dimension>`, a directory, or `org/name@<commit>`.
    `device` is `auto` or a torch device such as `cpu`, `cuda`, `cuda:1`. `batch_size` is in texts.
    `window` is in tokens, special ones included; absent, the model's own. `also` are further models that a tenant's
    contract may name, each loaded when it is first needed.
    """

    model: str = DEFAULT_MODEL
    device: str = "auto"
    dtype: Dtype = "float32"
    batch_size: int = 32
    window: int | None = None
    also: tuple[str, ...] = ()


class Fingerprint(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What must be equal for two vectors to be comparable; stored with a collection.

    `revision` is a digest of the model's files, or the commit of a hub model. `window` is in tokens: what
    lies behind it does not reach the vector.
    """

    name: str
    revision: str
    dtype: Dtype
    dimension: int
    normalised: bool
    window: int


class Embedder(Protocol):
    """Texts to vectors. Safe to call from several threads; a batch holds the texts of one call only."""

    @property
    def spec(self) -> str:
        """How the settings name the model."""
        ...

    @property
    def fingerprint(self) -> Fingerprint: ...

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Embed passages: (n, dimension) float32, rows of length 1, in the order of `texts`.

        Raises `InvalidInput` for text that is not valid Unicode (lone surrogates).
        """
        ...

    def encode_query(self, text: str) -> Vectors:
        """Embed one question: (dimension,) float32. Models with a query prompt apply it here."""
        ...

    def token_count(self, text: str) -> int:
        """Tokens of `text` without special ones, not cut at the window."""
        ...

    def token_starts(self, text: str) -> npt.NDArray[np.int64] | None:
        """The offsets in `text`, in characters, at which its tokens begin, ascending: (tokens,); None for a model
        without a tokenizer.
        """
        ...

    def question_length(self, text: str) -> int:
        """Tokens of a question as the model reads it, with special ones and its query prompt, not cut at the window."""
        ...

    def covers(self, text: str) -> float:
        """How far the model knows the language of `text`, 0 to 1: the weight of the dense leg follows it."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class TokenVectors:
    """A text as the model reads it, token by token: `vectors` (tokens, dimension) float32 of length 1, and the tokens'
    offsets in the text, in characters, `spans` (tokens, 2). Special tokens and prompts are left out, and so is what
    lies behind the window.
    """

    spans: npt.NDArray[np.int64]
    vectors: Vectors


@runtime_checkable
class TokenReader(Protocol):
    """An embedding model that also gives the vectors of the single tokens, each in its context."""

    def read(self, texts: Sequence[str], *, question: bool = False) -> list[TokenVectors]:
        """Of passages, or of questions. Raises `InvalidInput` for text that is not valid Unicode."""
        ...


def require_unicode(texts: Sequence[str]) -> None:
    """Raise `InvalidInput` where a text holds a lone surrogate, which no tokenizer takes."""
    for position, text in enumerate(texts):
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            raise InvalidInput(
                "the text is not valid Unicode", item=f"text {position}", remedy="replace lone surrogates"
            ) from None


def unit_rows(vectors: npt.NDArray[np.floating]) -> Vectors:
    """Scale the rows of (n, dimension) to length 1 in float32; a zero row stays zero."""
    rows = np.array(vectors, dtype=np.float32, order="C")
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    norms[norms == 0] = 1
    rows /= norms
    return rows
