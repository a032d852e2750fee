"""Embedding by a sentence-transformers model: packaged, from a directory, or from the hub at a pinned commit."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
# Read when torch is imported. By default OpenMP threads wait by spinning: as soon as another process wanted one of two
# processors, a question took 100 to 600 ms. Sleeping, it takes 16, and 10 become 16 where nobody else wants any.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer
from transformers.utils.logging import disable_progress_bar

from indexing.embedders.coverage import coverage
from indexing.embedders.model_files import ModelSource, find_model
from indexing.embedders.port import EmbeddingSettings, Fingerprint, TokenVectors, Vectors, require_unicode, unit_rows
from tenancy.errors import InvalidInput, Unavailable


class SentenceTransformerEmbedder:
    """The model is loaded here, and used from one thread of its own.

    Fast tokenizers refuse concurrent use while their truncation is set, and each thread that runs torch has
    its own pool of OpenMP threads. One thread with a queue avoids both, and serves callers in turn, batch by
    batch: a question waits for at most one batch of each call that is running.
    """

    def __init__(self, settings: EmbeddingSettings) -> None:
        source = find_model(settings.model)
        self._batch_size = settings.batch_size
        self._model = _load(source, settings)
        self._model.max_seq_length = window = _window(self._model, settings)
        self._tokenizer = _counting_tokenizer(self._model, settings.model)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="embed")
        self.spec: Final = settings.model
        self.fingerprint: Final = Fingerprint(
            name=source.name,
            revision=source.revision,
            dtype=settings.dtype,
            dimension=len(self.encode_query("")),
            normalised=True,
            window=window,
        )

    def encode(self, texts: Sequence[str]) -> Vectors:
        require_unicode(texts)
        if not texts:
            return np.zeros((0, self.fingerprint.dimension), dtype=np.float32)
        # Texts of like length share a batch, so that little of it is padding.
        order = sorted(range(len(texts)), key=lambda index: -len(texts[index]))
        batches = [order[start : start + self._batch_size] for start in range(0, len(order), self._batch_size)]
        rows = [self._run(self._model.encode_document, [texts[index] for index in batch]) for batch in batches]
        vectors = np.empty((len(texts), rows[0].shape[1]), dtype=np.float32)
        vectors[order] = np.concatenate(rows)
        return vectors

    def encode_query(self, text: str) -> Vectors:
        require_unicode([text])
        vector: Vectors = self._run(self._model.encode_query, [text])[0]
        return vector

    def read(self, texts: Sequence[str], *, question: bool = False) -> list[TokenVectors]:
        require_unicode(texts)
        prompt = self._model.prompts.get("query" if question else "document") or ""
        found = []
        for start in range(0, len(texts), self._batch_size):
            batch = list(texts[start : start + self._batch_size])
            future = self._thread.submit(
                self._model.encode, batch, prompt=prompt, batch_size=len(batch), show_progress_bar=False,
                output_value="token_embeddings",
            )  # fmt: skip
            found += [self._tokens(prompt, *pair) for pair in zip(batch, future.result(), strict=True)]
        return found

    def _tokens(self, prompt: str, text: str, rows: torch.Tensor) -> TokenVectors:
        """`rows` (tokens, dimension) are those of `prompt` and `text`, with a special token at either end."""
        encoded = self._tokenizer.encode(prompt + text)
        spans = np.array(encoded.offsets[: len(rows) - 1], dtype=np.int64).reshape(-1, 2) - len(prompt)
        own = (spans[:, 1] > np.maximum(spans[:, 0], 0)).nonzero()[0]
        return TokenVectors(spans[own], _unit(rows.float().cpu().numpy()[own]))

    def token_count(self, text: str) -> int:
        require_unicode([text])
        return len(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def token_starts(self, text: str) -> npt.NDArray[np.int64]:
        require_unicode([text])
        offsets = self._tokenizer.encode(text, add_special_tokens=False).offsets
        return np.fromiter((start for start, _ in offsets), dtype=np.int64, count=len(offsets))

    def question_length(self, text: str) -> int:
        require_unicode([text])
        prompt = self._model.prompts.get("query") or ""
        return len(self._tokenizer.encode(prompt + text).ids)

    def covers(self, text: str) -> float:
        require_unicode([text])
        return coverage(self._tokenizer, text)

    def _run(self, encode: Callable[..., Any], batch: list[str]) -> Vectors:
        """One batch on the model's thread: (n, dimension). Raises `Unavailable` for vectors with NaN."""
        future = self._thread.submit(encode, batch, batch_size=len(batch), show_progress_bar=False)
        return _unit(np.asarray(future.result(), dtype=np.float32))


def _unit(vectors: npt.NDArray[np.float32]) -> Vectors:
    if not np.isfinite(vectors).all():
        raise Unavailable(
            "the embedding model gave a vector that is not finite", remedy="use dtype float32 or bfloat16"
        )
    return unit_rows(vectors)


def _load(source: ModelSource, settings: EmbeddingSettings) -> SentenceTransformer:
    disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        return SentenceTransformer(
            source.location,
            device=device_of(settings.device),
            revision=source.commit,
            local_files_only=source.commit is None,
            trust_remote_code=False,
            model_kwargs={"dtype": getattr(torch, settings.dtype), "use_safetensors": True},
        )
    except (OSError, ValueError, RuntimeError, KeyError, SafetensorError) as error:
        remedy = "see the cause, and check the files of the model"
        if source.commit is not None:
            remedy = "check the name, the commit and the way to the hub, or give a directory"
        raise Unavailable(
            f"the embedding model cannot be loaded: {error}", item=settings.model, remedy=remedy
        ) from error


def device_of(name: str) -> str:
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InvalidInput("no such device", item=name, remedy="use auto, cpu or cuda") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise InvalidInput("this machine has no such device", item=name, remedy="use auto or cpu")
    return name


def _window(model: SentenceTransformer, settings: EmbeddingSettings) -> int:
    """Tokens that the model reads, special ones included: the setting, or what the model was trained for."""
    config = getattr(getattr(model[0], "auto_model", None), "config", None)
    limit: int | None = getattr(config, "max_position_embeddings", None)
    window = settings.window or model.max_seq_length or limit
    if window is None:
        raise InvalidInput("the model names no window", item=settings.model, remedy="set embedding.window")
    if limit is not None and window > limit:
        raise InvalidInput(
            f"the model reads at most {limit} tokens, not {window}", item=settings.model, remedy="lower the window"
        )
    return window


def _counting_tokenizer(model: SentenceTransformer, item: str) -> Tokenizer:
    """A copy that never truncates or pads; nothing changes it later, so any thread may use it."""
    backend = getattr(model.tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise InvalidInput("the model has no fast tokenizer", item=item, remedy="use a model with a tokenizer.json")
    tokenizer = Tokenizer.from_str(backend.to_str())
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer
