"""The context of an answer: which passages go into the prompt, within a token budget."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from generation.prompt import PromptSource, sources_text
from generation.sentences import sentences
from retrieval.passage import Passage

_OVERLAP = 0.6


@dataclass(frozen=True, slots=True)
class Source:
    """A passage under the key that the answer cites it by ("S1"). `audience` is the document's reader class."""

    key: str
    passage: Passage
    audience: str | None = None

    def for_prompt(self) -> PromptSource:
        passage = self.passage
        return PromptSource(
            self.key, passage.document, passage.title, passage.text, self.audience,
            context=passage.context, place=passage.place, hidden=passage.hidden,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Context:
    """`text` is the sources as they stand in the prompt; `tokens` its length by the generator's count."""

    sources: tuple[Source, ...]
    text: str
    tokens: int

    @property
    def prompt_sources(self) -> tuple[PromptSource, ...]:
        return tuple(source.for_prompt() for source in self.sources)


def assemble(
    passages: Iterable[Passage],
    budget: int,
    count: Callable[[str], int],
    audiences: Mapping[int, str] | None = None,
) -> Context:
    """Choose from `passages`, most relevant first, without ever exceeding `budget` tokens.

    A passage that mostly repeats a better one is dropped: a chunk that overlaps it in the same document, or the same
    text in another. One that does not fit is left out and a shorter one may follow; but the best passage is never
    lost to its own length: it is cut after the last sentence that fits. `audiences` maps document ids to reader
    classes. Equal inputs give equal contexts.
    """
    chosen: list[Source] = []
    text, tokens = "", 0
    for passage in passages:
        if any(_repeats(passage, other.passage) for other in chosen):
            continue
        audience = (audiences or {}).get(passage.document_id)
        candidate = Source(f"S{len(chosen) + 1}", passage, audience)
        if not chosen and count(_text([candidate])) > budget:
            fitting = _cut(candidate, budget, count)
            if fitting is None:
                continue
            candidate = fitting
        longer = _text([*chosen, candidate])
        length = count(longer)
        if length <= budget:
            chosen.append(candidate)
            text, tokens = longer, length
    return Context(tuple(chosen), text, tokens)


def _text(sources: Sequence[Source]) -> str:
    return sources_text(source.for_prompt() for source in sources)


def _repeats(passage: Passage, better: Passage) -> bool:
    if (passage.document_id, passage.version) == (better.document_id, better.version):
        shared = min(passage.end, better.end) - max(passage.start, better.start)
        return shared > 0 and shared >= _OVERLAP * min(len(passage.text), len(better.text))
    return passage.text.split() == better.text.split()


def _cut(source: Source, budget: int, count: Callable[[str], int]) -> Source | None:
    """`source` up to the end of the last sentence with which it fits; `None` where not even the first does."""
    passage = source.passage
    ends = [sentence.end for sentence in sentences(passage.text)]
    for end in reversed(ends):
        shorter = replace(source, passage=replace(passage, end=passage.start + end, text=passage.text[:end]))
        if count(_text([shorter])) <= budget:
            return shorter
    return None
