"""A second look at the passages that were found: a model reads them again, for this question.

A cross-encoder (Nogueira and Cho, "Passage Re-ranking with BERT", 2019) reads the question and each of them together.
The embedding model itself reads them token by token (`indexing.late_interaction`), for which no other model is needed.
Both tell better than cosines of whole passages what answers a question, and cost a pass of a model for each passage.
It is off unless the settings name a model.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Annotated, Any, Final, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from indexing.chunk import embedded_text
from indexing.embed import Embedder, TokenReader
from indexing.embedders.model_files import find_files
from indexing.late_interaction import COVERED, late_likeness
from retrieval.duplicates import spread
from retrieval.passage import Passage
from tenancy.errors import InvalidInput, Unavailable

MAX_DEPTH: Final = 200
_SEAMS: Final = 8
"""Tokens that a passage may have more within a template than alone."""

EMBEDDING: Final = "embedding"
"""The name, in the settings, of the deployment's embedding model as one that reads passages again."""


class RerankSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`model` is a directory or `org/name@<commit>`, or `embedding`; empty reranks nothing. `depth` passages are read.

    A cross-encoder reads `batch_size` at one time, each cut with its question to `window` tokens; the embedding model
    has settings of its own for both.
    """

    model: str
    depth: Annotated[int, msgspec.Meta(ge=1, le=MAX_DEPTH)]
    device: str
    batch_size: Annotated[int, msgspec.Meta(ge=1)]
    window: Annotated[int, msgspec.Meta(ge=16)]


class Reranker(Protocol):
    """Questions and passages to scores. Safe to call from several threads."""

    @property
    def name(self) -> str: ...

    @property
    def revision(self) -> str:
        """A digest of the model's files, or the commit of a hub model, with what else decides a score."""
        ...

    @property
    def depth(self) -> int:
        """How many passages are read for one question, at least."""
        ...

    @property
    def share(self) -> float:
        """How much of a passage's new score is the reading's, in [0, 1]; the search's has the rest."""
        ...

    def scores(self, question: str, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """How well each text answers the question, in [0, 1]: (n,). A batch holds the texts of one call only."""
        ...

    def token_count(self, question: str, texts: Sequence[str]) -> int:
        """The tokens that `scores` reads, cut at the window."""
        ...


class CrossEncoderReranker:
    """A cross-encoder of sentence-transformers with one output, on a thread of its own, as the embedding models are."""

    def __init__(self, settings: RerankSettings) -> None:
        """Raises `InvalidInput` and `Unavailable` for a model that cannot be used, with the remedy."""
        source = find_files(settings.model, "config.json", "cross-encoder")
        if source is None:
            raise InvalidInput(
                "no such model for reranking",
                item=settings.model,
                remedy="use a directory that exists, or org/name@<commit>",
            )
        self.name: Final = source.name
        self.revision: Final = f"{source.revision}/{settings.window}"
        self.depth: Final = settings.depth
        self.share: Final = 1.0
        self._batch_size = settings.batch_size
        self._window = settings.window
        self._model = _load(source.location, source.commit, settings)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="rerank")

    def scores(self, question: str, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        found = np.empty(len(texts), dtype=np.float32)
        # Texts of like length share a batch, so that little of it is padding; a question waits for at most one batch of
        # each call that is running.
        order = sorted(range(len(texts)), key=lambda index: -len(texts[index]))
        for start in range(0, len(order), self._batch_size):
            batch = order[start : start + self._batch_size]
            found[batch] = self._thread.submit(self._predict, question, [texts[index] for index in batch]).result()
        if not np.isfinite(found).all():
            raise Unavailable("the reranking model gave a score that is not finite", remedy="use another model")
        return found

    def token_count(self, question: str, texts: Sequence[str]) -> int:
        if not texts:
            return 0
        # On the model's thread: a tokenizer keeps how it cuts and pads, and must not be asked otherwise in between.
        return self._thread.submit(self._count, question, texts).result()

    def _count(self, question: str, texts: Sequence[str]) -> int:
        return int(self._model.preprocess(self._pairs(question, texts))["attention_mask"].sum())

    def _predict(self, question: str, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        import torch

        scores: npt.NDArray[np.float32] = self._model.predict(
            self._pairs(question, texts),
            batch_size=len(texts),
            show_progress_bar=False,
            activation_fn=torch.nn.Sigmoid(),
        )
        return scores

    def _pairs(self, question: str, texts: Sequence[str]) -> list[tuple[str, str]]:
        """A chat template may put the question behind the passage, where the window's end would cut it off."""
        if _causal(self._model) is None:
            return [(question, text) for text in texts]
        around = int(self._model.preprocess([(question, "")])["attention_mask"].sum())
        room = max(0, self._window - around - _SEAMS)
        return [(question, self._cut(text, room)) for text in texts]

    def _cut(self, text: str, tokens: int) -> str:
        found = self._model.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
        return text if len(found) <= tokens else text[: found[tokens][0]]


class TokenReranker:
    """The embedding model, token by token. Where it does not know a question's language, the order stays."""

    share: Final = 0.7
    """Measured: docs/operations/retrieval.md. The reading alone loses on questions that share words with documents."""

    def __init__(self, embedder: Embedder, settings: RerankSettings) -> None:
        """Raises `InvalidInput` for an embedding model that gives no vectors of tokens."""
        if not isinstance(embedder, TokenReader):
            raise InvalidInput(
                "this embedding model does not read token by token, and cannot rerank",
                item=embedder.fingerprint.name,
                remedy="use a model of sentence-transformers as embedding.model, or name a cross-encoder",
            )
        self.name: Final = embedder.fingerprint.name
        self.revision: Final = f"tokens-1/{embedder.fingerprint.revision}/{embedder.fingerprint.window}/{self.share}"
        self.depth: Final = settings.depth
        self._embedder: Embedder = embedder
        self._reader: TokenReader = embedder

    def scores(self, question: str, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        if not self._reads(question, texts):
            return np.zeros(len(texts), dtype=np.float32)
        asked = self._reader.read([question], question=True)[0].vectors
        found = [late_likeness(asked @ read.vectors.T) for read in self._reader.read(texts)]
        return np.array(found, dtype=np.float32)

    def token_count(self, question: str, texts: Sequence[str]) -> int:
        if not self._reads(question, texts):
            return 0
        counts = map(self._embedder.token_count, (question, *texts))
        return sum(min(count, self._embedder.fingerprint.window) for count in counts)

    def _reads(self, question: str, texts: Sequence[str]) -> bool:
        return bool(texts) and self._embedder.covers(question) >= COVERED


def texts_of(passages: Sequence[Passage]) -> list[str]:
    """What a model reads of each: as it is embedded, with the heading above it."""
    return [embedded_text(passage.text, passage.context) for passage in passages]


def reranked(
    passages: Sequence[Passage], scores: npt.NDArray[np.float32], top_k: int, share: float = 1.0
) -> tuple[Passage, ...]:
    """The best `top_k` of `passages` by `scores` (n,), which become theirs; ties keep the order that they had.

    With a `share` below 1, scores of the reading and of the search are mixed, each scaled to [0, 1].
    """
    if share < 1:
        before = np.array([passage.score for passage in passages], dtype=np.float32)
        scores = share * _scaled(scores) + (1 - share) * _scaled(before)
    order = np.argsort(-scores, kind="stable")[:top_k]
    return tuple(replace(passages[index], score=float(scores[index])) for index in order)


def best_apart(
    passages: Sequence[Passage], scores: npt.NDArray[np.float32], top_k: int, share: float
) -> tuple[Passage, ...]:
    """`reranked`, with near-duplicates of better ones last."""
    return tuple(spread(reranked(passages, scores, len(passages), share), top_k))


def _scaled(scores: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """The best becomes 1 and the weakest 0; where all are equal, 1."""
    if not len(scores) or scores.max() == scores.min():
        return np.ones_like(scores)
    scaled: npt.NDArray[np.float32] = (scores - scores.min()) / (scores.max() - scores.min())
    return scaled


def _load(location: str, commit: str | None, settings: RerankSettings) -> Any:
    from safetensors import SafetensorError
    from sentence_transformers import CrossEncoder
    from transformers.utils.logging import disable_progress_bar

    from indexing.embedders.sentence_transformer import device_of

    disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        model = CrossEncoder(
            location,
            device=device_of(settings.device),
            revision=commit,
            local_files_only=commit is None,
            trust_remote_code=False,
            max_length=settings.window,
            model_kwargs={"use_safetensors": True},
        )
    except (OSError, ValueError, RuntimeError, KeyError, SafetensorError) as error:
        remedy = "see the cause, and check the files of the model"
        if commit is not None:
            remedy = "check the name, the commit and the way to the hub, or give a directory"
        raise Unavailable(
            f"the reranking model cannot be loaded: {error}", item=settings.model, remedy=remedy
        ) from error
    if model.num_labels != 1:
        raise InvalidInput(
            f"a model for reranking gives one score, not {model.num_labels}",
            item=settings.model,
            remedy="use a cross-encoder that was trained for ranking",
        )
    _require_asked(model, settings.model)
    return model


def _causal(model: Any) -> Any:
    """What reads yes and no off a causal language model, or None for another."""
    from sentence_transformers.cross_encoder.modules.logit_score import LogitScore

    return next((module for module in model if isinstance(module, LogitScore)), None)


def _require_asked(model: Any, name: str) -> None:
    """Raises `InvalidInput` for a causal language model that cannot be asked: its score would be of no question."""
    said = _causal(model)
    if said is None:
        return
    cause = ""
    if said.true_token_id == said.false_token_id:
        cause = "its vocabulary tells yes and no by one token"
    elif getattr(model.tokenizer, "chat_template", None) is None:
        cause = "it has no chat template"
    else:
        try:
            model.preprocess([("?", ".")])
        except ValueError:
            cause = "its chat template does not render a query and a document"
    if cause:
        raise InvalidInput(
            f"a causal language model that reads passages is asked for yes or no: {cause}",
            item=name,
            remedy="use one whose chat template has the roles query and document, or a cross-encoder",
        )
