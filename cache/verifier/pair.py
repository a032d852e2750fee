"""The verifier at work: two questions in, the probability that one answer serves both.

A batch holds one pair in both orders and nothing else, so no two tenants ever share one. One thread of its own runs
the model, a bounded number of calls waits for it, and each gives up after its time limit: then the question is
answered afresh.
"""

from __future__ import annotations

import math
import os
from concurrent.futures import CancelledError, ThreadPoolExecutor
from concurrent.futures import TimeoutError as LateError
from pathlib import Path
from threading import BoundedSemaphore
from typing import Final

# As in indexing.embedders: threads that wait by spinning take the processor from the embedder.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import regex
import torch
from safetensors import SafetensorError
from safetensors.torch import load
from tokenizers import Tokenizer

from cache.verifier.artefact import MANIFEST, TOKENIZER, WEIGHTS, Artefact, read_artefact
from cache.verifier.model import PairModel, batch, encode
from tenancy.errors import Corrupt, InvalidInput, Unavailable

_FOREIGN = regex.compile(r"[\p{L}--\p{Script=Latin}--\p{Script=Common}]", flags=regex.V1)
_REMEDY: Final = "train it again with python -m benchmarks.train_verifier"
WAITING: Final = 16


class PairVerifier:
    """Loaded once, called from many threads. `timeout_s` is what one question may take, the wait for turns included."""

    def __init__(self, folder: Path, *, timeout_s: float = 0.2, waiting: int = WAITING) -> None:
        """Raises `InvalidInput`, `Corrupt` or `Unavailable` for a folder that cannot be used, naming the file."""
        artefact = read_artefact(folder)
        self.revision: Final = artefact.revision
        self.threshold: Final = artefact.manifest.threshold
        self._calibration = artefact.manifest.calibration
        self._window = artefact.manifest.shape.window
        self.timeout_s: Final = timeout_s
        self._tokenizer = _tokenizer(artefact, folder)
        self._model = _model(artefact, folder)
        self._places = BoundedSemaphore(waiting)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="verify")
        # The first run of a model is many times slower than the next.
        self._thread.submit(self._logit, "Is this the first question?", "Is it the first one?").result()

    def probability(self, question: str, cached: str, *, within_s: float | None = None) -> float:
        """Between 0 and 1, the same in both orders.

        Raises `InvalidInput` for texts that the model cannot judge (too long, another script than Latin) and
        `Unavailable` where it is late (`within_s`, else `timeout_s`), too many wait, or the result is no number.
        """
        if _FOREIGN.search(question) or _FOREIGN.search(cached):
            raise InvalidInput("the verifier reads Latin script only")
        if not self._places.acquire(blocking=False):
            raise Unavailable("too many pairs wait for the verifier", remedy="raise cache.verifier.timeout_s or cores")
        limit = self.timeout_s if within_s is None else within_s
        first, second = sorted((question, cached))
        try:
            future = self._thread.submit(self._logit, first, second)
        except RuntimeError:
            self._places.release()
            raise Unavailable("the verifier is closed") from None
        future.add_done_callback(lambda _done: self._places.release())
        try:
            logit = future.result(limit)
        except (LateError, CancelledError):
            future.cancel()
            raise Unavailable(f"the verifier did not answer within {limit:.3g} s") from None
        if not math.isfinite(logit):
            raise Unavailable("the verifier gave a value that is not finite", remedy=_REMEDY)
        value = self._calibration.slope * logit + self._calibration.offset
        return 1 / (1 + math.exp(-max(-60.0, min(60.0, value))))

    def close(self) -> None:
        """Calls that wait end as `Unavailable`; the one that runs is waited for."""
        self._thread.shutdown(cancel_futures=True)

    @torch.inference_mode()
    def _logit(self, first: str, second: str) -> float:
        pairs = [encode(self._tokenizer, first, second), encode(self._tokenizer, second, first)]
        if len(pairs[0].ids) > self._window:
            raise InvalidInput(f"the pair is longer than the {self._window} tokens that the verifier reads")
        return float(self._model(batch(pairs)).mean())


def _tokenizer(artefact: Artefact, folder: Path) -> Tokenizer:
    try:
        tokenizer = Tokenizer.from_buffer(artefact.tokenizer)
    except Exception as error:  # noqa: BLE001 - the library raises bare exceptions
        raise Corrupt(f"not a tokenizer: {error}", item=str(folder / TOKENIZER), remedy=_REMEDY) from None
    if None in (tokenizer.token_to_id("[CLS]"), tokenizer.token_to_id("[SEP]")):
        raise Corrupt("the tokenizer has no [CLS] or [SEP]", item=str(folder / TOKENIZER), remedy=_REMEDY)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _model(artefact: Artefact, folder: Path) -> PairModel:
    shape = artefact.manifest.shape
    if shape.window > shape.positions or shape.hidden % shape.heads:
        raise Corrupt("the sizes contradict each other", item=str(folder / MANIFEST), remedy=_REMEDY)
    try:
        with torch.device("meta"):
            model = PairModel(shape)
        model.load_state_dict(load(artefact.weights), assign=True)
    except (SafetensorError, RuntimeError, ValueError) as error:
        first = str(error).strip().splitlines()[0]
        raise Corrupt(f"the weights do not fit: {first}", item=str(folder / WEIGHTS), remedy=_REMEDY) from None
    return model.float().eval().requires_grad_(False)
