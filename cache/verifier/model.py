"""The pair classifier: a small BERT encoder that reads both questions at once (a cross-encoder).

Post-norm encoder of Devlin et al. 2019 with the dimensions of MiniLM (Wang et al. 2020), written out here so that
serving needs torch and a tokenizer only. Two additions: each token is told whether the other question holds the
same token, and the head sees the two questions' mean vectors beside [CLS], as in Conneau et al. 2017 (InferSent).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional

from cache.verifier.shape import Shape


@dataclass(frozen=True, slots=True)
class Encoded:
    """One ordered pair: `[CLS] first [SEP] second [SEP]`. All three have the same length.

    `segments` is 0 for the first question, 1 for the second; `shared` is 1 where the other question holds the token.
    """

    ids: list[int]
    segments: list[int]
    shared: list[int]


@dataclass(frozen=True, slots=True)
class Batch:
    """(n, tokens) each; `mask` is 1 for a token and 0 for padding."""

    ids: Tensor
    segments: Tensor
    shared: Tensor
    mask: Tensor


def encode(tokenizer: Tokenizer, first: str, second: str) -> Encoded:
    """Never cut: what is too long for the window has to be refused by the caller. Raises `ValueError` without [CLS]."""
    one = tokenizer.encode(first, add_special_tokens=False).ids
    two = tokenizer.encode(second, add_special_tokens=False).ids
    start, end = tokenizer.token_to_id("[CLS]"), tokenizer.token_to_id("[SEP]")
    if start is None or end is None:
        raise ValueError("the tokenizer has no [CLS] or [SEP]")
    in_one, in_two = set(one), set(two)
    return Encoded(
        [start, *one, end, *two, end],
        [0] * (len(one) + 2) + [1] * (len(two) + 1),
        [0, *(int(token in in_two) for token in one), 0, *(int(token in in_one) for token in two), 0],
    )


def batch(pairs: Sequence[Encoded]) -> Batch:
    length = max(len(pair.ids) for pair in pairs)

    def rows(name: str) -> Tensor:
        return torch.tensor([getattr(pair, name) + [0] * (length - len(pair.ids)) for pair in pairs])

    mask = torch.tensor([[1] * len(pair.ids) + [0] * (length - len(pair.ids)) for pair in pairs])
    return Batch(rows("ids"), rows("segments"), rows("shared"), mask)


class PairModel(nn.Module):
    """Ordered pairs to logits. Not symmetric by itself: `probability` of the verifier averages both orders."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.words = nn.Embedding(shape.vocabulary, shape.hidden)
        self.positions = nn.Embedding(shape.positions, shape.hidden)
        self.segments = nn.Embedding(2, shape.hidden)
        self.shared = nn.Embedding(2, shape.hidden)
        self.norm = nn.LayerNorm(shape.hidden, eps=1e-12)
        self.layers = nn.ModuleList(_Layer(shape) for _ in range(shape.layers))
        self.head = nn.Linear(3 * shape.hidden, shape.hidden)
        self.logit = nn.Linear(shape.hidden, 1)

    def forward(self, pairs: Batch) -> Tensor:
        """(n,) logits; above 0 the model says that one answer serves both."""
        order = torch.arange(pairs.ids.shape[1])
        state = self.words(pairs.ids) + self.positions(order) + self.segments(pairs.segments)
        state = self.norm(state + self.shared(pairs.shared))
        visible = pairs.mask.bool()[:, None, None, :]
        for layer in self.layers:
            state = layer(state, visible)
        first = _mean(state, pairs.mask * (1 - pairs.segments))
        second = _mean(state, pairs.mask * pairs.segments)
        seen = torch.cat([state[:, 0], (first - second).abs(), first * second], dim=1)
        logit: Tensor = self.logit(functional.gelu(self.head(seen)))
        return logit.squeeze(1)


class _Layer(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.qkv = nn.Linear(shape.hidden, 3 * shape.hidden)
        self.out = nn.Linear(shape.hidden, shape.hidden)
        self.norm_attention = nn.LayerNorm(shape.hidden, eps=1e-12)
        self.up = nn.Linear(shape.hidden, shape.intermediate)
        self.down = nn.Linear(shape.intermediate, shape.hidden)
        self.norm_output = nn.LayerNorm(shape.hidden, eps=1e-12)

    def forward(self, state: Tensor, visible: Tensor) -> Tensor:
        n, tokens, hidden = state.shape
        query, key, value = self.qkv(state).view(n, tokens, 3, self.heads, hidden // self.heads).permute(2, 0, 3, 1, 4)
        # Written out: the backward pass of torch's fused attention takes half of a training step on a processor.
        weights = (query @ key.transpose(2, 3)) * (hidden // self.heads) ** -0.5
        seen = weights.masked_fill(~visible, float("-inf")).softmax(3) @ value
        state = self.norm_attention(state + self.out(seen.transpose(1, 2).reshape(n, tokens, hidden)))
        changed: Tensor = self.norm_output(state + self.down(functional.gelu(self.up(state))))
        return changed


def _mean(state: Tensor, chosen: Tensor) -> Tensor:
    weights = chosen.to(state.dtype).unsqueeze(2)
    return (state * weights).sum(1) / weights.sum(1).clamp(min=1)
